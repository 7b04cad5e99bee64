"""Steps without control flow, in an order that is fixed before the run.

**The idea.** In a step without control flow no token is dead. If also no node waits and no kernel justifies its own
thread, every run fires the same nodes, and any order that the edges allow is correct. So the order is computed once:
the token machine runs the plan without values, and the order in which it fires the nodes is kept. Most steps are of
this kind: one or two operations, run very often.

**A run** follows this order. It needs no pending counts and no ready queue; a value is a place in a list.

**Memory.** A value stays in its place until its last reader has read it. An output takes the place of an input without
further readers, so a run holds no more values than the executor would.

A run with a listener or with a ready queue of its own uses the executor instead.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace import thresholds
from headrace.execute.acyclic_propagator import AcyclicPropagator
from headrace.execute.blame import raise_blamed
from headrace.execute.entered import entered, threads_of
from headrace.execute.plan import ARG, NARY, NULLARY, OTHER, PASS, RETVAL, STATEFUL, TRIGGER, UNARY
from headrace.execute.records import Frame, Iteration
from headrace.execute.run import RunAtOnce
from headrace.gc_pause import paused
from headrace.ir.kernel import KernelContext

if TYPE_CHECKING:
    from headrace.execute.plan import Plan, PlanNode
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step

BINARY: Final = -1  # a kernel of two inputs and one output; all other kinds are those of nodes

_KINDS: Final = frozenset({ARG, NARY, NULLARY, OTHER, PASS, RETVAL, STATEFUL, TRIGGER, UNARY})


class Firing(NamedTuple):
    """A node of a static schedule.

    Attributes:
      kind: `BINARY` for a kernel with two inputs, else the kind of the node. `NULLARY` becomes `NARY`.
      kernel: the function that computes it; None if it is made at each step, or if there is none.
      ins: places of its inputs; for `UNARY` and `PASS` a single number.
      out: places of its outputs; for a node with one output a single number.
      drops: places without further readers.
      node: the node, for messages.
    """

    kind: int
    kernel: Any
    ins: Any
    out: Any
    drops: tuple[int, ...]
    node: PlanNode


class StaticSchedule:
    """A plan in a fixed order. The module describes it.

    Args:
      plan: the plan.
      order: its nodes in the order of a run.

    Attributes:
      plan: the plan.
      chunks: the nodes in order, in chunks of `thresholds.FIRINGS_PER_LOOK` nodes; a run checks for cancellation
        between them.
      places: initial contents of a run's places: the constants, else None.
      args: for each feed the place of its value.
      root: the only iteration, for messages.
    """

    __slots__ = ("args", "chunks", "places", "plan", "root")

    def __init__(self, plan: Plan, order: Iterable[PlanNode]) -> None:
        self.plan = plan
        self.places: list[Any] = []
        self.args: list[int] = []
        self.root = Iteration(Frame(plan.root, None), 0, [], [], 0)
        code = _Layout(plan, list(order), self.places, self.args).code
        self.chunks = [
            code[i : i + thresholds.FIRINGS_PER_LOOK] for i in range(0, len(code), thresholds.FIRINGS_PER_LOOK)
        ]


def static_schedule(plan: Plan) -> StaticSchedule | None:
    """Returns the schedule of `plan`; None if only the token machine can run it.

    The schedule is computed at the first call and kept in the plan.
    """
    found = plan.static_schedule
    if found is None:
        with paused():
            order = _order(plan) if plan.is_acyclic and all(n.kind in _KINDS for n in plan.nodes) else None
            found = plan.static_schedule = False if order is None else StaticSchedule(plan, order)
    return found or None


def _order(plan: Plan) -> list[PlanNode] | None:
    """Order in which the token machine fires the nodes; None if stuck."""
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
            if node.only is not None and node.kind <= NULLARY:  # `dispatch_loop` fires this node next
                entry = ready[behind]
                del ready[behind]
                ready.appendleft(entry)
    return order if p.finished else None


class _Layout:
    """Assigns a place to each value. `code` is the resulting list of firings."""

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
        """Place of input `i` of `node`."""
        t = node.op.inputs[i]
        if t.op in self._nodes:
            return self._at[self._nodes[t.op], t.index]
        if node.index >= 0:  # a constant; the plan has its value in a slot of its reader
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


class StaticProgram:
    """A static schedule as a program.

    Args:
      schedule: the schedule.
      environment: the resources of the session.
    """

    __slots__ = ("environment", "schedule")

    def __init__(self, schedule: StaticSchedule, environment: RunEnvironment) -> None:
        self.schedule = schedule
        self.environment = environment

    def start(self, step: Step) -> StaticRun:
        """Returns a new run of the schedule for `step`."""
        return StaticRun(self.schedule, step, self.environment.blas_threads)


class StaticRun(RunAtOnce):
    """A run of a static schedule.

    Args:
      schedule: the schedule to run.
      step: the identity, resources and cancellation of the step.
      blas_threads: number of threads that the BLAS library may use during the run.
    """

    __slots__ = ("_places", "_schedule")

    def __init__(self, schedule: StaticSchedule, step: Step, blas_threads: int = 1) -> None:
        super().__init__(step, blas_threads)
        self._schedule = schedule
        self._places = schedule.places[:]
        fetches = schedule.plan.retvals
        self.results = [None] * (fetches[-1].position + 1 if fetches else 0)

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        self._places[self._schedule.args[position]] = value

    def _compute(self) -> None:
        plan = self._schedule.plan
        with entered(plan.flushes, threads_of(plan, self._blas_threads)):
            self._run()

    def _run(self) -> None:
        schedule, step, v = self._schedule, self.step, self._places
        plan = schedule.plan
        kernels = [factory(KernelContext(step, op), op.attrs) for op, factory in plan.binders] if plan.binders else []
        node: Any = None
        given: Any
        ins: Any = ()
        try:
            for n, chunk in enumerate(schedule.chunks):
                if n:
                    node = None
                    step.look()
                for kind, kernel, ins, out, drops, node in chunk:
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
            raise_blamed(e, node, schedule.root, x[0] if len(x) == 1 else x)
