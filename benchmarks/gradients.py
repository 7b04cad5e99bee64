"""Loops and their gradients, compared with TensorFlow, JAX and PyTorch in one process.

Each system that is installed runs each program (`benchmarks.programs`) forward, and forward with its gradient; in
turns, so that other work of the machine affects all alike. Before the timing their results are compared: the value and
all gradients must be the same, or there are no figures. A system that is not installed is left out, and named.

    python -m benchmarks --only gradients

TensorFlow builds graphs with its V1 control flow and runs them in a Session, JAX compiles by jit, PyTorch runs eagerly,
which is how each of them is used for such programs. They use as many threads as they like.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

import headrace as hr
from benchmarks import programs
from benchmarks.measure import Result, in_turns
from benchmarks.programs import Program, in_graphs

Call = Callable[[], list[np.ndarray]]

PROGRAMS = (
    programs.power(100),
    programs.rnn(4, 16, 100),
    programs.lstm(8, 200, 64),
    programs.lstm(1, 500, 128),
    programs.lstm(32, 100, 256),
    programs.branches(100),
    programs.nested(10, 10),
)


class System(abc.ABC):
    """One of the systems that are compared.

    Attributes:
      title: its name.
      package: the package that must be installed; None: none.
    """

    title: ClassVar[str]
    package: ClassVar[str | None] = None

    @abc.abstractmethod
    def prepare(self, program: Program) -> tuple[Call, Call]:
        """Builds a program: functions that return [loss], and [loss, gradient by each of `by`]."""

    @abc.abstractmethod
    def cube(self) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
        """Spellings of x**3 as a loop: names, and functions that return both derivatives."""


class Headrace(System):
    title = "headrace"

    def prepare(self, program: Program) -> tuple[Call, Call]:
        with hr.Graph() as graph:
            return _in_graph(hr, hr.Session(graph=graph), program)

    def cube(self) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
        def loop() -> tuple[float, float]:
            with hr.Graph() as graph:
                return _cube_in_graph(hr, hr.Session(graph=graph))

        return [("while_loop", loop)]


class TensorFlow(System):
    title = "TensorFlow"
    package = "tensorflow"

    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        self.tf = tf

    @contextlib.contextmanager
    def graph(self) -> Iterator[Any]:
        """A graph whose loops are the five primitives, TensorFlow 1's default."""
        v1 = self.tf.compat.v1
        was_v2 = v1.control_flow_v2_enabled()
        v1.disable_control_flow_v2()
        try:
            with v1.Graph().as_default() as graph:
                yield graph
        finally:
            if was_v2:
                v1.enable_control_flow_v2()

    def prepare(self, program: Program) -> tuple[Call, Call]:
        v1 = self.tf.compat.v1
        with self.graph() as graph:
            return _in_graph(v1, v1.Session(graph=graph), program)

    def cube(self) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
        tf = self.tf

        def v1() -> tuple[float, float]:
            with self.graph() as graph:
                return _cube_in_graph(tf.compat.v1, tf.compat.v1.Session(graph=graph))

        @tf.function
        def derivatives(x: Any) -> Any:
            y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, 1.0))[1]
            (first,) = tf.gradients(y, x)
            return first, tf.gradients(first, x)[0]

        def v2() -> tuple[float, float]:
            first, second = derivatives(tf.constant(2.0))
            return float(first), float(second)

        return [("while_loop of V1", v1), ("while_loop in a tf.function", v2)]


def _in_graph(tf: Any, session: Any, program: Program) -> tuple[Call, Call]:
    """`System.prepare` for systems with TensorFlow's API, `tf`; in the graph that one has entered."""
    args = {name: tf.placeholder("float32", np.shape(v), name) for name, v in program.arguments.items()}
    loss = getattr(in_graphs, program.function)(tf, **program.sizes, **args)
    grads = tf.gradients(loss, [args[name] for name in program.by])
    values = [program.arguments[name] for name in args]

    def call(fetches: list[Any]) -> Call:
        run = session.make_callable(fetches, list(args.values()))
        return lambda: run(*values)

    return call([loss]), call([loss, *grads])


def _cube_in_graph(tf: Any, session: Any) -> tuple[float, float]:
    x = tf.placeholder("float32", ())
    y = in_graphs.power(tf, 3, x)
    (first,) = tf.gradients(y, x)
    (second,) = tf.gradients(first, x)
    f, g = session.run([first, second], {x: 2.0})
    return float(f), float(g)


class Jax(System):
    title = "JAX"
    package = "jax"

    def __init__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        from benchmarks.programs import in_jax

        self.jax = jax
        self.texts = in_jax

    def prepare(self, program: Program) -> tuple[Call, Call]:
        jax, text = self.jax, getattr(self.texts, program.function)
        args = {name: jax.numpy.asarray(v) for name, v in program.arguments.items()}
        by = {name: args.pop(name) for name in program.by}

        def loss(by: Any, rest: Any) -> Any:
            return text(**program.sizes, **by, **rest)

        value = jax.jit(loss)
        both = jax.jit(jax.value_and_grad(loss))

        def forward() -> list[Any]:
            return [value(by, args).block_until_ready()]

        def gradient() -> list[Any]:
            y, grads = jax.block_until_ready(both(by, args))
            return [y, *(grads[name] for name in program.by)]

        return forward, gradient

    def cube(self) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
        jax = self.jax

        def steps(x: Any) -> Any:
            start = (0, jax.numpy.float32(1.0))
            return jax.lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * x), start)[1]

        def by(d: Callable[..., Any], f: Callable[..., Any]) -> Callable[[], tuple[float, float]]:
            return lambda: (float(d(f)(2.0)), float(d(d(f))(2.0)))

        return [
            ("while_loop, grad", by(jax.grad, steps)),
            ("while_loop, jacfwd", by(jax.jacfwd, steps)),
            ("fori_loop with known trips, grad", by(jax.grad, lambda x: self.texts.power(3, x))),
        ]


class PyTorch(System):
    title = "PyTorch"
    package = "torch"

    def __init__(self) -> None:
        import torch

        from benchmarks.programs import in_torch

        self.torch = torch
        self.texts = in_torch

    def prepare(self, program: Program) -> tuple[Call, Call]:
        torch, text = self.torch, getattr(self.texts, program.function)
        args = {name: torch.tensor(v) for name, v in program.arguments.items()}
        by = [args[name].requires_grad_() for name in program.by]

        def forward() -> list[Any]:
            with torch.no_grad():
                return [text(**program.sizes, **args)]

        def gradient() -> list[Any]:
            y = text(**program.sizes, **args)
            return [y.detach(), *torch.autograd.grad(y, by)]

        return forward, gradient

    def cube(self) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
        torch = self.torch

        def by(f: Callable[[Any], Any]) -> Callable[[], tuple[float, float]]:
            def derivatives() -> tuple[float, float]:
                x = torch.tensor(2.0, requires_grad=True)
                (first,) = torch.autograd.grad(f(x), x, create_graph=True)
                (second,) = torch.autograd.grad(first, x)
                return first.item(), second.item()

            return derivatives

        def steps(x: Any) -> Any:
            from torch._higher_order_ops.while_loop import while_loop

            start = (torch.tensor(0), torch.tensor(1.0))
            return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), start)[1]

        def scanned(x: Any) -> Any:
            from torch._higher_order_ops.scan import scan

            return scan(lambda y, i: (y * x, y.clone()), torch.tensor(1.0), torch.arange(3.0))[0]

        return [
            ("Python's own loop", by(lambda x: self.texts.power(3, x))),
            ("while_loop (a prototype there)", by(steps)),
            ("scan (a prototype there)", by(scanned)),
        ]


def systems() -> list[System]:
    """headrace and those of the others that are installed; says which are not."""
    found: list[System] = []
    for system in (Headrace, TensorFlow, Jax, PyTorch):
        if system.package is None or importlib.util.find_spec(system.package) is not None:
            found.append(system())
        else:
            print(f"  {system.title}: not installed", file=sys.stderr)
    return found


def gradients(which: Sequence[Program] = PROGRAMS, repeats: int = 9) -> list[Result]:
    """Microseconds an iteration, forward and with the gradient, of each program in each system."""
    found = systems()
    others = [s.title for s in found[1:]]
    results = []
    for program in which:
        prepared = [s.prepare(program) for s in found]
        difference = compare(program, [s.title for s in found], [gradient() for _, gradient in prepared])
        same = f"results differ by {difference:.1g} at most" if others else ""
        calls = [call for pair in prepared for call in pair]
        seconds = in_turns(calls, repeats)
        per_trip = [[1e6 * s / program.trips for s in mine] for mine in seconds]
        for k, (what, facts) in enumerate((("forward", ""), ("with gradient", same))):
            mine, *theirs = per_trip[k::2]
            results.append(
                Result(f"{program.title}: {what}", "µs an iteration", mine, facts, dict(zip(others, theirs)))
            )
        ratio = [a / b for a, b in zip(per_trip[1], per_trip[0])]
        theirs = [[a / b for a, b in zip(g, f)] for f, g in zip(per_trip[2::2], per_trip[3::2])]
        shown = ", ".join(f"{name} {np.median(r):.3g}" for name, r in zip(others, theirs))
        results.append(Result(f"{program.title}: with gradient / forward", "ratio", ratio, shown))
    return results


def compare(program: Program, titles: Sequence[str], found: Sequence[Sequence[Any]]) -> float:
    """The greatest difference of results, relative to the greatest element of each array.

    Raises:
      ArithmeticError: it is more than float32 explains.
    """
    worst = 0.0
    for what, *values in zip(("value", *(f"gradient by {name}" for name in program.by)), *found, strict=True):
        arrays = [np.asarray(v, np.float64) for v in values]
        size = max(float(np.max(np.abs(arrays[0]))), 1e-30)
        for (one, a), (other, b) in itertools.combinations(zip(titles, arrays), 2):
            if a.shape != b.shape:
                raise ArithmeticError(f"{program.title}: {what} has shape {a.shape} in {one} and {b.shape} in {other}")
            difference = float(np.max(np.abs(a - b))) / size
            if not difference <= 1e-3:
                raise ArithmeticError(f"{program.title}: {what} differs by {difference:.2g} between {one} and {other}")
            worst = max(worst, difference)
    return worst


def answers() -> list[Result]:
    """Both derivatives of x**3 as a loop, at 2, for each spelling."""
    results = []
    for system in systems():
        for how, derivatives in system.cube():
            name = f"x**3 as a loop, f'' at 2, {system.title}: {how}"
            try:
                first, second = derivatives()
            except Exception as e:
                line = (str(e).strip().splitlines() or [""])[0]
                said = line if len(line) < 100 else line[:96] + " ..."
                results.append(Result(name, "", [float("nan")], f"refused: {type(e).__name__}: {said}"))
            else:
                right = "right" if (first, second) == (12.0, 12.0) else "WRONG, and nothing was said"
                results.append(Result(name, "", [second], f"f' = {first:g}, f'' = {second:g}: {right}"))
    return results
