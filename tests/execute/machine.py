"""Drives the token machine in a seeded random order and checks its invariant.

`SeededReady` is a queue of ready nodes that hands them out in a random order, and records which node fired in which
iteration. After a run, `check` asserts the invariant: in every opened iteration of every frame instance each node fired
exactly once, and nothing is left over. A `Session` takes one in its `RunOptions`.

`Machine` drives a `Propagator` with no executor at all: the test chooses the values, and every firing is
recorded.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.execute import plan as plans
from headrace.execute.frames import Propagator
from headrace.execute.plan import Plan, PlanNode, make_plan
from headrace.execute.records import Frame, Iteration
from headrace.ir.graph import Graph, Operation, Tensor


class SeededReady:
    """A ready queue that picks in random order (seed None: first in, first out).

    Args:
      seed: of the order.
      last: op names that are picked only when nothing else is ready; they make a loop's window fill up.
    """

    def __init__(self, seed: int | None = None, last: frozenset[str] = frozenset()) -> None:
        self.seed = seed
        self.random = None if seed is None else random.Random(seed)
        self.last = last
        self.entries: list[Any] = []
        self.fired: dict[int, collections.Counter] = {}
        self.iterations: dict[int, Iteration] = {}

    def append(self, entry: Any) -> None:
        self.entries.append(entry)

    def popleft(self) -> Any:
        entry = self.entries.pop(self._pick())
        node, it, _ = entry
        self.iterations[id(it)] = it
        self.fired.setdefault(id(it), collections.Counter())[node.live] += 1
        return entry

    def _pick(self) -> int:
        if self.last:
            first = [i for i, (n, _, _) in enumerate(self.entries) if n.op.name not in self.last]
            if first:
                return first[0] if self.random is None else self.random.choice(first)
        return 0 if self.random is None else self.random.randrange(len(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def check(self, propagator: Propagator | None = None) -> None:
        """Asserts the invariant, after a run that finished."""
        where = f"seed {self.seed}: "
        assert not self.entries, f"{where}left in the ready queue: {self.entries}"
        expected: dict[int, set[Any]] = {}
        for key, it in self.iterations.items():
            plan, fired = it.frame.plan, self.fired[key]
            if id(plan) not in expected:
                expected[id(plan)] = set(plan.nodes) - _args(plan)
            wanted = expected[id(plan)]
            twice = {n: k for n, k in fired.items() if k > 1 or n not in wanted}
            # a dead token that stops (at an Exit, a NextIteration) is counted where it is sent, and never queued
            never = [n for n in wanted if n not in fired and not n.stops_dead]
            assert (twice, never) == ({}, []), f"{where}{it.tag or 'root'}: fired too often {twice}, never {never}"
            assert it.left == 0, f"{where}{it.tag}: {it.left} still to fire"
            frame = it.frame
            kept = [*frame.origins, *frame.next_iteration_roots, *frame.children]
            assert kept == [], where + it.tag
            assert frame.parent is None or frame.open == frame.enters_left == 0, where + it.tag
        if propagator is not None:
            assert propagator.finished, where + "not finished"
            assert not propagator.waiting(), f"{where}half-fed: {propagator.waiting()}"


def _args(plan: Any) -> set[Any]:
    """Feeds are supplied, not fired."""
    return {n for n in plan.nodes if n.op.type == "_Arg"}


class Dead:
    """The one value that stands for a dead token in what `Machine` reports."""

    def __repr__(self) -> str:
        return "DEAD"


DEAD = Dead()


@dataclasses.dataclass(frozen=True)
class Firing:
    """One firing: the operation, its tag and the values sent.

    The values of a dead firing are None.
    """

    name: str
    tag: str
    values: tuple[Any, ...] | None


Compute = Callable[[Operation, Sequence[Any]], Any]


def _compute(op: Operation, args: Sequence[Any]) -> Any:
    """Computes an op type of these tests on plain Python values."""
    return _MEANING[op.type](*args)


_MEANING: dict[str, Callable[..., Any]] = {
    "Identity": lambda x: x,
    "LoopCond": lambda x: x,
    "AddV2": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Less": lambda x, y: x < y,
    "Greater": lambda x, y: x > y,
    "LogicalNot": lambda x: not x,
    "NoOp": lambda: (),
}


class Machine:
    """A propagator and a driver that fires what is ready, one node at a time.

    Args:
      ops: a graph, or the operations to run; all of them run.
      seed: of the order of firing; None: first in, first out.
      last: operations that fire only when nothing else is ready.
      compute: values of the ops that are no primitives; constants have their own.
      propagator: which class moves the tokens.
      remember: whether firings are recorded and checked by a `SeededReady`.
      functions: the functions that calls refer to, by name.

    Attributes:
      history: every firing, in order.
      most: for each frame name the largest number of iterations that were open at once in one of its instances.
      opened: for each frame name how many iterations were opened, in all instances together.
      records: the largest number of iteration records alive at once.
    """

    def __init__(
        self,
        ops: Graph | Sequence[Operation] | Plan,
        seed: int | None = None,
        last: Sequence[Operation | Tensor] = (),
        compute: Compute = _compute,
        propagator: type[Propagator] = Propagator,
        remember: bool = True,
        functions: Mapping[str, Sequence[Operation]] | None = None,
    ) -> None:
        if isinstance(ops, Graph):
            ops = ops.operations
        self.plan = ops if isinstance(ops, Plan) else make_plan(ops, functions)
        names = frozenset(o.op.name if isinstance(o, Tensor) else o.name for o in last)
        self.ready: Any = SeededReady(seed, names) if remember else collections.deque()
        self.compute = compute
        self.history: list[Firing] = []
        self.most: collections.Counter[str] = collections.Counter()
        self.opened: collections.Counter[str] = collections.Counter()
        self.records = 0
        self._alive = 0
        self._remember = remember
        self._open: dict[Frame, list[int]] = {}
        self.propagator = propagator(self.plan, self.ready, self._watch)

    def run(self, feeds: Mapping[int, Any] | None = None) -> Machine:
        """Fires until nothing is ready; asserts that everything has fired as it must."""
        self.propagator.start()
        for position, value in (feeds or {}).items():
            self.propagator.done(self.plan.args[position], self.propagator.root, value)
        while self.ready:
            self._fire(*self.ready.popleft())
        if self._remember:
            self.ready.check(self.propagator)
        assert self.propagator.finished
        if self.propagator.root.frame.open == 0:
            assert self._open == {}, "iterations are open"
        else:
            assert self.plan.is_acyclic  # it has nothing to free
        return self

    # *** the history ***

    def firings(self, what: Tensor | Operation, tag: str | None = None) -> list[Firing]:
        """The firings of an operation, in one tag or in all."""
        name = what.op.name if isinstance(what, Tensor) else what.name
        return [f for f in self.history if f.name == name and tag in (None, f.tag)]

    def value(self, what: Tensor | Operation, tag: str = "") -> Any:
        """Value that an operation sent along one output in a tag, or `DEAD`.

        An operation without outputs has the value ().
        """
        firings = self.firings(what, tag)
        if not firings and self._stops_dead(what.op if isinstance(what, Tensor) else what):
            return DEAD
        (f,) = firings
        if f.values is None:
            return DEAD
        return f.values[what.index] if isinstance(what, Tensor) else f.values

    def when(self, what: Tensor | Operation, tag: str = "") -> int:
        """The position of a firing in the history."""
        (f,) = self.firings(what, tag)
        return self.history.index(f)

    def tags(self, what: Tensor | Operation) -> list[str]:
        """The tags in which an operation fired alive, sorted by iteration."""
        return sorted((f.tag for f in self.firings(what) if f.values is not None), key=_by_iteration)

    def _stops_dead(self, op: Operation) -> bool:
        return any(n.stops_dead for n in self.plan.nodes if n.op.name == op.name)

    # *** driving ***

    def _watch(self, event: str, frame: Frame, it: Iteration) -> None:
        name = frame.plan.name
        window = self._open.setdefault(frame, [])
        if event == "open":
            window.append(it.index)
            self.opened[name] += 1
            self.most[name] = max(self.most[name], len(window))
            self._alive += 1
            self.records = max(self.records, self._alive)
            if frame.parent is not None:
                assert len(window) <= frame.plan.limit, f"{it.tag}: {window} are open"
        else:
            self._alive -= 1
            assert window[0] == it.index, f"{it.tag} is freed before {window[0]}"
            window.pop(0)
            if not window:
                del self._open[frame]

    def _fire(self, node: PlanNode, it: Iteration, x: Any) -> None:
        p, kind = self.propagator, node.kind
        values: tuple[Any, ...] | None = ()
        if kind == plans.DEAD:
            values = None
        elif kind == plans.SWITCH:
            values = (x[0], DEAD) if not x[1] else (DEAD, x[0])
        elif kind == plans.LOOP_MERGE:
            values = (x, int(node.value_index[1 if it.index else 0]))
        elif kind == plans.MERGE:
            values = (x[0], x[1])
        elif kind in (plans.NEXT, plans.ENTER, plans.EXIT, plans.RETVAL, plans.RESULT):
            values = (x,)
        elif kind == plans.SWITCH_N:
            taken = x[1] if 0 <= x[1] < node.n_outputs else node.n_outputs - 1
            values = tuple(x[0] if k == taken else DEAD for k in range(node.n_outputs))
        elif kind == plans.CALL:
            values = (x,) if node.arity == 1 else tuple(x)  # the arguments; the results come later
        elif kind == plans.NULLARY and node.op.type == "Const":
            assert node.kernel is not None
            values = (node.kernel(),)
        elif kind != plans.TRIGGER:
            args = [] if node.arity == 0 else [x] if node.arity == 1 else x
            out = self.compute(node.op, args)
            values = (out,) if node.n_outputs == 1 else tuple(out)
        if self._remember:
            self.history.append(Firing(node.op.name, it.tag, values))
        if values is None:
            p.dead(node, it, x)
        elif kind == plans.SWITCH:
            p.switch(node, it, x[0], bool(x[1]))
        elif kind in (plans.LOOP_MERGE, plans.MERGE):
            p.merge(node, it, *values)
        elif kind == plans.NEXT:
            p.next_iteration(node, it, x)
        elif kind == plans.ENTER:
            p.enter(node, it, x)
        elif kind == plans.EXIT:
            p.exit(node, it, x)
        elif kind == plans.CALL:
            p.call(node, it, values)
        elif kind == plans.RESULT:
            p.result(node, it, x)
        elif kind == plans.SWITCH_N:
            p.switch_n(node, it, x[0], int(x[1]))
        elif kind == plans.RETVAL:
            p.done_many(node, it, ())
        elif node.n_outputs == 1:
            p.done(node, it, values[0])
        else:
            p.done_many(node, it, values)


def _by_iteration(tag: str) -> list[int]:
    return [int(part.rpartition("#")[2]) for part in tag.split("/")] if tag else []
