"""Steps without control flow, in an order fixed beforehand.

Where nothing can be dead, nothing waits and no kernel is worth a thread of its own, the tokens of a step always fire
the same nodes, and any order that the edges allow is right. So the order is found once, by letting the token machine
take it without values, and a run goes along it: there are no counts and no queue, and a value is a place in a list.
That is what most steps are: one or two operations, run very often.

A value stays in its place until its last reader has it; an output takes the place of an input without
further readers, so that a run holds as much as in the executor. A run with a listener or a queue of its own uses the
executor itself.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace.denormals import flushed
from headrace.execute import blas
from headrace.execute.acyclic_propagator import AcyclicPropagator
from headrace.execute.blame import raise_blamed
from headrace.execute.plan import ARG, NARY, NULLARY, OTHER, PASS, RETVAL, STATEFUL, TRIGGER, UNARY
from headrace.execute.records import Frame, Iteration
from headrace.gc_pause import paused
from headrace.ir.kernel import KernelContext

if TYPE_CHECKING:
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.step import StepState

LOOK: Final = 256  # nodes between two looks at cancellation and the clock
BINARY: Final = -1  # a kernel of two inputs and one output; all else is told apart by the kinds of nodes

_KINDS: Final = frozenset({ARG, NARY, NULLARY, OTHER, PASS, RETVAL, STATEFUL, TRIGGER, UNARY})


class Firing(NamedTuple):
    """One node of a sequence.

    Attributes:
      kind: `UNARY`, `BINARY`, or the node's; `NARY` for all others with one output.
      kernel: what computes it; None where it is made at each step, or where there is none.
      ins, out: the places of its inputs and outputs; of `UNARY` one number, of all with one output `out` is one.
      drops: places without further readers.
      node: for messages.
    """

    kind: int
    kernel: Any
    ins: Any
    out: Any
    drops: tuple[int, ...]
    node: PlanNode


class StaticSchedule:
    """A plan as a sequence; see the module's text.

    Attributes:
      plan: the plan of which it was made.
      blocks: the nodes in order, in pieces between which a run looks whether it is still wanted.
      places: what a run's places hold at the start: constants, else None.
      args: for each feed the place of its value.
      root: the one iteration there is, for messages.
    """

    __slots__ = ("args", "blocks", "places", "plan", "root")

    def __init__(self, plan: Plan, order: Iterable[PlanNode]) -> None:
        self.plan = plan
        self.places: list[Any] = []
        self.args: list[int] = []
        self.root = Iteration(Frame(plan.root, None), 0, [], [], 0)
        code = _Layout(plan, list(order), self.places, self.args).code
        self.blocks = [code[i : i + LOOK] for i in range(0, len(code), LOOK)]


def static_schedule(plan: Plan) -> StaticSchedule | None:
    """The sequence of `plan`, which is made when first asked for; None if only the token machine can run it."""
    found = plan.sequence
    if found is None:
        with paused():
            order = _order(plan) if plan.is_straight and all(n.kind in _KINDS for n in plan.nodes) else None
            found = plan.sequence = False if order is None else StaticSchedule(plan, order)
    return found or None


def _order(plan: Plan) -> list[PlanNode] | None:
    """The order in which the token machine fires the nodes; None if it gets stuck."""
    ready: collections.deque[tuple[PlanNode, Iteration, Any]] = collections.deque()
    p = AcyclicPropagator(plan, ready)
    order = list(plan.args)
    for node in plan.args:
        p.done(node, p.root, None)
    p.start()
    while ready:
        node, it, _ = ready.popleft()
        order.append(node)
        if node.kind == RETVAL:
            p.absorbed(it)
        elif node.n_outputs != 1:
            p.done_many(node, it, (None,) * node.n_outputs)
        else:
            behind = len(ready)
            p.done(node, it, None)
            if node.only is not None and node.kind <= NULLARY:  # `dispatch_loop` fires it next
                entry = ready[behind]
                del ready[behind]
                ready.appendleft(entry)
    return order if p.finished else None


class _Layout:
    """Gives each value a place; `code` is the sequence."""

    def __init__(self, plan: Plan, order: list[PlanNode], places: list[Any], args: list[int]) -> None:
        self._nodes = {node.op: node for node in plan.nodes}
        self._at: dict[tuple[PlanNode, int], int] = {}
        self._free: list[int] = []
        self._places = places
        self._sources = dict(plan.root.sources)
        self._last = {value: node for node in order for value in self._values(node)}
        self.code = [f for node in order if (f := self._firing(node, args)) is not None]

    def _values(self, node: PlanNode) -> Iterator[tuple[PlanNode, int]]:
        """Inputs of `node` that other nodes compute."""
        return ((self._nodes[t.op], t.index) for t in node.op.inputs if t.op in self._nodes)

    def _firing(self, node: PlanNode, args: list[int]) -> Firing | None:
        ins = [self._in(node, i) for i in range(node.arity)]
        done = list(dict.fromkeys(self._at[value] for value in self._values(node) if self._last[value] is node))
        outs, unread = [], []
        for k in range(node.n_outputs):
            place = done.pop() if done else self._new()
            outs.append(place)
            self._at[node, k] = place
            if (node, k) not in self._last:
                unread.append(place)
        drops = (*done, *unread)
        self._free += drops
        if node.kind == ARG:
            args.append(outs[0])
            return None
        kind, out, given = node.kind, outs[0] if node.n_outputs == 1 else tuple(outs), tuple(ins)
        if kind in (UNARY, PASS):
            return Firing(kind, node.kernel, ins[0], out, drops, node)
        if kind in (NARY, NULLARY):
            kind = BINARY if node.arity == 2 else NARY
        return Firing(kind, node.kernel, given, out, drops, node)

    def _in(self, node: PlanNode, i: int) -> int:
        """The place of the input `i` of `node`."""
        t = node.op.inputs[i]
        if t.op in self._nodes:
            return self._at[self._nodes[t.op], t.index]
        if node.index >= 0:  # a constant, which the plan has put where it is read
            value = node.frame.values[node.start + i]
        else:
            value = self._sources[node] if node.arity == 1 else self._sources[node][i]
        self._places.append(value)
        return len(self._places) - 1

    def _new(self) -> int:
        if self._free:
            return self._free.pop()
        self._places.append(None)
        return len(self._places) - 1


class ScheduledStep:
    """One run of a sequence, as an `Executor` is one run of a plan.

    Args:
      sequence: the sequence to run.
      step: its identity, resources and cancellation.
      blas_threads: how many threads the BLAS library may use meanwhile.

    Attributes:
      results: for each fetch its value, once there.
    """

    __slots__ = ("_blas_threads", "_places", "_sequence", "results", "step")

    def __init__(self, sequence: StaticSchedule, step: StepState, blas_threads: int = 1) -> None:
        self._sequence = sequence
        self._places = sequence.places[:]
        self._blas_threads = blas_threads
        self.step = step
        fetches = sequence.plan.retvals
        self.results: list[Any] = [None] * (fetches[-1].position + 1 if fetches else 0)

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        self._places[self._sequence.args[position]] = value

    def run(self) -> None:
        """Runs the step.

        Raises:
          OpError: of a kernel, or `DeadlineExceededError`, `CancelledError`.
        """
        plan = self._sequence.plan
        if plan.uses_blas:
            with blas.threads(self._blas_threads), flushed(), np.errstate(all="ignore"):
                self._run()
        else:
            with flushed(plan.flushes), np.errstate(all="ignore"):
                self._run()

    def fetch(self, position: int) -> Any:
        """The value of a fetch."""
        return self.results[position]

    def forget(self, position: int) -> None:
        """Drops the value of a fetch."""
        self.results[position] = None

    def _run(self) -> None:
        sequence, step, v = self._sequence, self.step, self._places
        plan = sequence.plan
        kernels = [factory(KernelContext(step, op), op.attrs) for op, factory in plan.binders] if plan.binders else []
        node: Any = None
        given: Any
        ins: Any = ()
        try:
            for n, block in enumerate(sequence.blocks):
                if n:
                    node = None
                    step.look()
                for kind, kernel, ins, out, drops, node in block:
                    if kind == UNARY:
                        v[out] = kernel(v[ins])
                    elif kind == BINARY:
                        a, b = ins
                        v[out] = kernel(v[a], v[b])
                    elif kind == RETVAL:
                        value = v[ins[0]]
                        self.results[node.position] = value.read() if node.reads else value
                        value = None
                    elif kind == PASS:
                        v[out] = v[ins]
                    elif kind == NARY:
                        v[out] = kernel(*[v[i] for i in ins])
                    elif kind != TRIGGER:
                        if kind == STATEFUL:
                            kernel = kernels[node.bound]
                            given = [v[i].read() if k in node.reads else v[i] for k, i in enumerate(ins)]
                        else:
                            given = [v[i] for i in ins]
                        made = kernel(*given)
                        given = None
                        if node.n_outputs == 1:
                            v[out] = made
                        else:
                            for i, value in zip(out, () if made is None else made, strict=True):
                                v[i] = value
                        made = value = None
                    for i in drops:
                        v[i] = None
        except BaseException as e:
            x = [] if node is None else [v[i] for i in (ins if isinstance(ins, tuple) else (ins,))]
            raise_blamed(e, node, sequence.root, x[0] if len(x) == 1 else x)
