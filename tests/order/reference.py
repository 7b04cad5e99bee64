"""Executes the primitive graphs of `tests.order.primitives`, and finds the determined values and orders.

Every operation that a fetch or target reaches by data, control or order edges fires once in every iteration of its
frame, live or dead. A live operation with an effect is an *event*. Each event knows the events that happened before it
by edges. The result of two conflicting events without such an order is not determined, nor are the values that depend
on it.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from tests.order.api import Api
from tests.order.primitives import Node, Tensor, WhileContext

MODULUS = 97
IN_QUEUE = 600  # elements in the queue that is read
MOST_TRIPS = 40

Tag = tuple[Any, ...]  # () or (outer tag, loop, iteration)


class Indeterminate(Exception):
    """The set of operations that run depends on an order that the program leaves open."""


@dataclasses.dataclass(slots=True)
class Token:
    """A value with two bit masks of events.

    `before` has the events before it, and `data` the events that its value depends on.
    """

    value: Any
    before: int
    data: int


@dataclasses.dataclass(slots=True)
class Fired:
    outputs: tuple[Token | None, ...]
    is_dead: bool
    before: int


@dataclasses.dataclass(slots=True)
class Event:
    resource: str
    mode: str
    before: int
    data: int  # the events that the values written or logged depend on
    entry: tuple[str, int, float] | None = None  # of the log


@dataclasses.dataclass(frozen=True)
class Expected:
    """Expected effects and values of a step; None for a value that is not determined.

    Attributes:
      fetches: The values fetched.
      variables: Values of all variables after the step.
      log: (kind, number, argument) of each Python call and print; an argument that is not determined is None.
      order: Pairs of indices into `log`, of which the first must come first.
      queue: Elements that the step has put into the queue; None if they are open.
      is_fifo: Whether the elements must be in the order of `queue`.
      taken: Number of elements that have been taken from the other queue; None if that is open.
      events: Number of events up to the end of the step.
      labels: Entries of the log and slots of counters that may have happened in addition, any number of times; empty
        unless the step is lenient.
    """

    fetches: list[Any]
    variables: dict[str, Any]
    log: list[tuple[str, int, float | None]]
    order: list[tuple[int, int]]
    queue: list[float | None] | None
    is_fifo: bool
    taken: int | None
    events: int
    labels: frozenset[tuple[str, int]] = frozenset()


class State:
    """Everything that outlives a step."""

    def __init__(self, variables: Mapping[str, Any], feeds: Mapping[Tensor, float], draws: Callable[[int, int], float]):
        self.variables = dict(variables)
        self.feeds = {t: (v, 1.0 if t.op.label == ("x", 0) else 0.0) for t, v in feeds.items()}
        self.written: dict[str, int] = {}  # of each resource what its content depends on
        self.out: list[tuple[float, int]] = []
        self.taken = 0
        self.drawn: dict[int, int] = {}
        self.events: list[Event] = []
        self._draws = draws
        self.entry: tuple[str, int, float] | None = None

    def read(self, name: str) -> Any:
        x = self.variables[name]
        return tuple((v, 0.0) for v in x) if isinstance(x, tuple) else (x, 0.0)

    def write(self, name: str, x: Any) -> None:
        self.variables[name] = x

    def record(self, kind: str, k: int, x: Any, out: Any = None) -> Any:
        self.entry = (kind, k, x[0])
        return (x[0] + 1.0, 0.0) if out is None else out

    def draw(self, op: int, k: int) -> Any:
        n = self.drawn[op] = self.drawn.get(op, -1) + 1
        return self._draws(k, n), 0.0

    def put(self, x: Any) -> None:
        self.out.append((x[0], len(self.events)))

    def take(self) -> Any:
        self.taken += 1
        if self.taken > IN_QUEUE:
            raise Indeterminate
        return 100.0 + self.taken - 1, 0.0


class Run:
    """One step."""

    def __init__(self, state: State, roots: Sequence[Node], is_ordered: bool) -> None:
        self.state = state
        self.is_ordered = is_ordered
        self.first = len(state.events)
        self.start = (1 << self.first) - 1  # steps come one after another
        self.control = 0  # the events that decide what runs
        self._fired: dict[tuple[Node, Tag], Fired] = {}
        self._frames: dict[tuple[WhileContext, Tag], int] = {}
        self.reached = _reached(roots, state.feeds)
        self._of: dict[WhileContext | None, list[Node]] = {}
        for op in sorted(self.reached, key=lambda op: op.id):
            self._of.setdefault(op.loop(), []).append(op)
        for op in self._of.get(None, ()):
            self.fire(op, ())

    def fire(self, op: Node, tag: Tag) -> Fired:
        key = op, tag
        out = self._fired.get(key)
        if out is None:
            out = self._fired[key] = self._fire(op, tag)
        return out

    def get(self, t: Tensor, tag: Tag) -> Token | None:
        """The token of `t` for an operation that fires at `tag`."""
        if t in self.state.feeds:
            return Token(self.state.feeds[t], self.start, 0)
        return self.fire(t.op, tag[0] if t.op.type == "Enter" else tag).outputs[t.index]

    def _fire(self, op: Node, tag: Tag) -> Fired:
        if op.type == "Exit":
            return self._exit(op, tag)
        before, is_dead = self.start, False
        for c in op.controls:
            done = self.fire(c, tag[0] if c.type == "Enter" else tag)
            before |= done.before
            is_dead |= done.is_dead
        if op.type == "Merge":
            return self._merge(op, tag, before)
        tokens = [self.get(t, tag) for t in op.inputs]
        if is_dead or None in tokens:
            return Fired((None,) * len(op.outputs), True, before)
        inputs = [t for t in tokens if t is not None]
        data = 0
        for t in inputs:
            before |= t.before
            data |= t.data
        if op.type == "Switch":
            x, pred = inputs
            self.control |= pred.data
            token = Token(x.value, before, data)
            return Fired((None, token) if pred.value[0] else (token, None), False, before)
        if op.type in ("Enter", "NextIteration", "LoopCond"):
            return Fired((Token(inputs[0].value, before, data),), False, before)
        if op.type == "Gradient":  # its value needs less than all that `y` needs
            assert op.compute is not None
            return Fired((Token(op.compute(self.state, inputs[0].value), self.start, data),), False, self.start)
        return self._compute(op, [t.value for t in inputs], before, data)

    def _compute(self, op: Node, values: Sequence[Any], before: int, data: int) -> Fired:
        state = self.state
        assert op.compute is not None
        state.entry = None
        value = op.compute(state, *values)
        if op.effect is not None:
            resource, mode = op.effect
            bit = 1 << len(state.events)
            state.events.append(Event(resource, mode, before, data, state.entry))
            before |= bit
            if mode in ("write", "add"):
                state.written[resource] = state.written.get(resource, 0) | data
            if mode != "log":
                data |= bit | state.written.get(resource, 0)
        return Fired((Token(value, before, data),) * len(op.outputs), False, before)

    def _merge(self, op: Node, tag: Tag, before: int) -> Fired:
        first, second = op.inputs
        loop = op.context
        if first.op.type == "Enter" and isinstance(loop, WhileContext) and first.op.frame is loop:
            n = tag[2]
            got = self.get(first, tag) if n == 0 else self.fire(second.op, (tag[0], loop, n - 1)).outputs[0]
        else:
            both = [self.get(t, tag) for t in op.inputs]
            assert None in both
            got = both[0] or both[1]
        if got is None:
            return Fired((None,), True, before)
        before |= got.before
        return Fired((Token(got.value, before, got.data),), False, before)

    def _exit(self, op: Node, tag: Tag) -> Fired:
        assert op.frame is not None
        last = self._frame(op.frame, tag)
        token = None if last is None else self.get(op.inputs[0], (tag, op.frame, last))
        before = self.start
        for c in op.controls:  # in the frame, of which the last iteration counts
            if last is not None:
                before |= self.fire(c, (tag, op.frame, last)).before
        if token is None:
            return Fired((None,), True, before)
        before |= token.before
        return Fired((Token(token.value, before, token.data),), False, before)

    def _frame(self, loop: WhileContext, tag: Tag) -> int | None:
        """Runs a loop to its end; returns the number of its last iteration.

        The result is None if the loop is dead.
        """
        key = loop, tag
        if key not in self._frames:
            ops = self._of[loop]
            assert loop.cond is not None
            for n in itertools.count():
                at = (tag, loop, n)
                for op in ops:
                    self.fire(op, at)
                more = self.fire(loop.cond, at).outputs[0]
                if more is not None:
                    self.control |= more.data
                if more is None or not more.value[0]:
                    self._frames[key] = None if more is None else n  # type: ignore[assignment]
                    break
                if n > MOST_TRIPS:
                    raise Indeterminate
        return self._frames[key]

    # *** determined values and orders ***

    def expected(self, fetches: Sequence[Tensor], unreached: Sequence[Node]) -> Expected:
        state = self.state
        events = state.events
        racy = self._racy()
        labels = frozenset(op.label for op in unreached if op.effect is not None and op.label is not None)
        changed = {op.effect[0] for op in unreached if op.effect is not None and op.effect[1] != "read"} - {"c"}
        racy[0].update(i for i, e in enumerate(events) if e.resource in changed and e.mode != "log")
        racy[1].update(changed)
        bad = 0
        for i in racy[0]:
            bad |= 1 << i
        if self.control & bad:
            raise Indeterminate

        def known(x: Any, data: int) -> Any:
            return None if data & bad else x

        values = []
        for t in fetches:
            token = self.get(t, ())
            assert token is not None
            v = token.value
            plain = tuple(a for a, _ in v) if v and isinstance(v[0], tuple) else v[0]
            values.append(known(plain, token.data))
        variables = {n: None if n in racy[1] else known(x, state.written.get(n, 0)) for n, x in state.variables.items()}
        logged = [(i, e) for i, e in enumerate(events) if e.entry is not None and i >= self.first]
        log = [(e.entry[0], e.entry[1], known(e.entry[2], e.data)) for _, e in logged if e.entry is not None]
        order = []
        for (a, (i, e)), (b, (j, f)) in itertools.combinations(enumerate(logged), 2):
            same = self.is_ordered and e.resource == f.resource
            if f.before >> i & 1 or same:
                order.append((a, b))
            elif e.before >> j & 1:
                order.append((b, a))
        queue = [known(x, events[i].data) for x, i in state.out if i >= self.first]
        return Expected(
            values, variables, log, order, None if "queue out" in changed else queue, "queue out" not in racy[1],
            None if "queue in" in changed else state.taken, len(events), labels,
        )  # fmt: skip

    def _racy(self) -> tuple[set[int], set[str]]:
        """The events whose result is not determined, and the resources whose content is not."""
        of: dict[str, list[int]] = {}
        events = self.state.events
        for i, e in enumerate(events):
            if e.mode != "log" and (not self.is_ordered or e.resource.startswith("queue")):
                of.setdefault(e.resource, []).append(i)
        out: set[int] = set()
        resources: set[str] = set()
        for resource, ids in of.items():
            pairs = []
            for i, j in itertools.combinations(ids, 2):
                a, b = events[i], events[j]
                conflict = not (a.mode == b.mode and a.mode in ("read", "add"))
                if conflict and not (b.before >> i & 1 or a.before >> j & 1):
                    pairs.append((i, j))
            for i, j in pairs:
                out |= {i, j}
                if "read" not in (events[i].mode, events[j].mode):
                    resources.add(resource)
            for k in ids:
                before = events[k].before
                if any(before >> i & before >> j & 1 for i, j in pairs):
                    out.add(k)
        return out, resources


def _reached(roots: Sequence[Node], feeds: Container[Tensor]) -> set[Node]:
    seen: set[Node] = set()
    todo = list(roots)
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [t.op for t in op.inputs if t not in feeds]
            todo += op.controls
            todo += op.extra
    return seen


class Reference:
    """A program as the reference executes it, with its state.

    Args:
      api: with which the program has been made.
      fetches: tensors.
      targets: operations, tensors for all results of their structures.
      state: before the first step.
    """

    def __init__(self, api: Api, fetches: Sequence[Tensor], targets: Sequence[Any], state: State) -> None:
        self.api, self.fetches, self.state = api, list(fetches), state
        self.roots = [t.op for t in fetches if t not in state.feeds] + [
            n for t in targets for n in api.graph.waited_for(t)
        ]

    def step(self, lenient: bool = False) -> Expected:
        """Does a step.

        Args:
          lenient: whether what is not reached may happen or not; it does not happen else.
        """
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 20_000))  # a step is one recursion over iterations and operations
        try:
            run = Run(self.state, self.roots, self.api.ordered)
            unreached = [op for op in self.api.graph.nodes if op not in run.reached] if lenient else []
            return run.expected(self.fetches, unreached)
        finally:
            sys.setrecursionlimit(limit)
