"""Handmade functions of primitives for the token machine, run without a session."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import headrace  # noqa: F401 - registers the ops
from headrace import step_events
from headrace.dtypes import int32
from headrace.execute.executor import Executor, MachineProgram
from headrace.execute.plan import make_plan
from headrace.execute.run import RunEnvironment
from headrace.execute.step import Step
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.resources.manager import ResourceManager
from tests.execute.machine import Machine, SeededReady

Body = Callable[..., Any]  # (b, *parameters) -> results


class Program:
    """A root graph and the functions it calls, whose parameters and results are int32 scalars.

    p = Program()
    p.function("double", lambda b, x: b.AddV2(x, x))
    p.fetch(p.call(p.b, "double", 21))
    [n] = p.execute()
    """

    def __init__(self) -> None:
        self.b = Builder(Graph())
        self.functions: dict[str, Sequence[Operation]] = {}
        self._results: dict[str, int] = {}
        self._fetches = 0

    def function(self, name: str, body: Body, results: int = 1) -> None:
        """Adds the function `name`. The names of its operations begin with its own."""
        self._results[name] = results  # it may call itself
        b = Builder(Graph()).within(name)
        params = [
            b.make("_Arg", [], {"T": int32, "index": i, "shape": ()}, "arg")
            for i in range(body.__code__.co_argcount - 1)
        ]
        made = body(b, *params)
        for i, r in enumerate([made] if isinstance(made, Tensor) else made):
            b.make("_Retval", [r], {"index": i}, "ret")
        self.functions[name] = b.graph.operations

    def call(self, b: Builder, function: str, *args: Any, name: str = "call") -> Any:
        """A call: its output, or outputs, or (without any) the operation."""
        tensors = [b.tensor(a, int32) for a in args]
        attrs = {"Tout": (int32,) * self._results[function], "f": Func(function)}
        return b.make("StatefulPartitionedCall", [tensors], attrs, name)

    def cond(self, b: Builder, pred: Any, *data: Tensor) -> tuple[Side, Side]:
        """The two sides of a conditional, the true one first; `data` goes into them."""
        switches = [b.Switch(x, pred) for x in data]
        no, yes = b.Switch(pred, pred)
        return (
            Side(b.after(b.Identity(yes)), [s[1] for s in switches]),
            Side(b.after(b.Identity(no)), [s[0] for s in switches]),
        )

    def fetch(self, t: Tensor) -> Operation:
        """Makes `t` the next fetch and returns its `_Retval`."""
        self._fetches += 1
        ret: Operation = self.b.make("_Retval", [t], {"index": self._fetches - 1}, "fetch")
        return ret

    def machine(self, seed: int | None = None, **kwargs: Any) -> Machine:
        """Runs it without an executor."""
        return Machine(self.b.graph, seed, functions=self.functions, **kwargs).run()

    def executor(
        self, seed: int | None = None, listener: step_events.Listener | None = None, timeout: float = 20.0
    ) -> Executor:
        """Executor of one run of the program."""
        plan = make_plan(self.b.graph.operations, self.functions)
        ready = None if seed is None else SeededReady(seed)
        step = Step(ResourceManager(), ResourceManager, time.monotonic() + timeout, None, listener, ready)
        return MachineProgram(plan, RunEnvironment()).start(step)

    def execute(self, seed: int | None = None, listener: step_events.Listener | None = None) -> list[Any]:
        """Runs the program once and returns the values of its fetches."""
        e = self.executor(seed, listener)
        e.run()
        assert e.propagator.finished
        if isinstance(e._ready, SeededReady):
            e._ready.check(e.propagator)
        return [e.fetch(i) for i in range(self._fetches)]


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of a conditional.

    It has a builder whose operations wait for the side, and the data of the side.
    """

    b: Builder
    data: Sequence[Tensor]


def factorial(p: Program, name: str = "fact") -> None:
    """Adds `name(n) = 1 if n < 1 else n * name(n - 1)`."""

    def body(b: Builder, n: Tensor) -> Tensor:
        base, step = p.cond(b, b.Less(n, 1), n)
        (m,) = step.data
        out: Tensor = b.Merge([base.b.const(1), b.Mul(m, p.call(b, name, b.Sub(m, 1)))])[0]
        return out

    p.function(name, body)
