"""Loops and conditionals as members of clusters: which can be, so that nobody has to wait for more than before.

A `While`, `If` or `Case` in which there is nothing but pure operations need not be taken apart for the token machine:
as a whole it can be a member of a cluster (`fused_regions`), and is compiled with it. Two things must hold.

**Nothing in it waits, changes anything or stands by itself.** In a loop that counts, and so ends whatever it reads,
variables may be read. A conditional with a product that is worth a thread of its own is no member, as that product
would be none; a loop is in any case, for what the token machine does in each iteration takes longer.

**No new waiting.** As one node a loop begins when all is there that it reads, and gives all its results in the end. In
the token machine each result goes its own way: the number of iterations may be known before a queue has given what the
loop works on, a conditional needs nothing that the branch taken does not read, and a loop that goes round no time does
not even look at what its body reads. So for each result one asks what it *surely* waits for (`_Sure`). What the whole
waits for besides is *more* than that. More is harmless where it ends before anybody can tell: in pure operations that
wait for as much anyway, by their other inputs. The gradient of a loop reads how often the loop went round, but it works
on what comes from the queue, too. Where it does not end there, in a queue or in an assignment, say, all through whom it
came are taken apart (`must_not_wait`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from headrace.compile.deadness import deadness_of
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.function import functions_of, owned, with_owned
from headrace.ir.graph import FuncGraph, Operation
from headrace.ir.infer import constant_value
from headrace.ir.kernel import find_kernel
from headrace.ir.order import is_constant

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor

MOST_ROUNDS: Final = 16  # in which a step is lowered; then nothing in it is left as it is
DEEPEST: Final = 32  # additions in a row by which a number of iterations is found out; loops have a few

_KINDS: Final = frozenset({"If", "Case", "While"})


class Lowered(Protocol):
    """A primitive graph with structured operations left in it (`lower.Lowered`)."""

    @property
    def ops(self) -> Sequence[Operation]:
        """Its operations."""
        ...

    @property
    def functions(self) -> Mapping[str, Sequence[Operation]]:
        """Those of the functions that it calls in frames of their own."""
        ...

    @property
    def left(self) -> Mapping[Operation, Operation]:
        """The structured ones; for each what it is a copy of."""
        ...


L = TypeVar("L", bound=Lowered)


def select_outlined(
    lower: Callable[[OutlinedStructures], L],
    is_heavy: Callable[[Operation], bool],
    is_late: Callable[[Operation], bool],
) -> L | None:
    """The primitive form of a step in which what can be in clusters is left as it is; None if there is no such thing.

    Args:
      lower: lowers the step, given what tells which operations stay.
      is_heavy: whether an operation with a pure kernel may be worth a thread of its own.
      is_late: whether an operation of a primitive graph waits for something else, once it fires.
    """
    stays = OutlinedStructures(is_heavy)
    for _ in range(MOST_ROUNDS):
        lowered = lower(stays)
        early = must_not_wait(lowered.ops, is_late).union(
            *(must_not_wait(ops, is_late) for ops in lowered.functions.values())
        )
        if not early:
            return lowered if lowered.left else None
        stays.refused.update(lowered.left[op] for op in early)
    return None


class OutlinedStructures:
    """Which structured operations of a step are left as they are when it is lowered; call it with one.

    Args:
      is_heavy: whether an operation with a pure kernel may be worth a thread of its own.

    Attributes:
      refused: those that are not, though nothing in them stands against it.
    """

    def __init__(self, is_heavy: Callable[[Operation], bool]) -> None:
        self.refused: set[Operation] = set()
        self._is_heavy = is_heavy
        self._known: dict[Operation, tuple[bool, bool]] = {}

    def __call__(self, op: Operation) -> bool:
        if op.opdef.structured not in _KINDS or op in self.refused:
            return False
        if op not in self._known:
            self._known[op] = self._inside(op), self._is_light(op)
        return all(self._known[op])

    def _inside(self, op: Operation) -> bool:
        """Whether all in `op` may be in a cluster."""
        graphs = _graphs(op)
        if not graphs:
            return False
        for each in _all_in(graphs):
            if each.opdef.structured:
                if each.opdef.structured not in (*_KINDS, "Call") or not self._inside(each):
                    return False
            elif not (each.type == "_Arg" or _computes_only(each) or _only_reads(each)):
                return False
        if op.opdef.structured != "While" or trip_count(op) is not None:
            return True
        return not any(map(_only_reads, with_owned(_all_in(graphs))))

    def _is_light(self, op: Operation) -> bool:
        """Whether nothing in `op`, outside of loops, may be worth a thread of its own."""
        if op.opdef.structured == "While":
            return True
        return all(self._is_light(e) if e.opdef.structured else not self._is_heavy(e) for e in _all_in(_graphs(op)))


def _graphs(op: Operation) -> list[FuncGraph]:
    """The graphs that `op` owns; none if it names one of a library (which calls itself, or is large)."""
    graphs = owned(op)
    return graphs if len(graphs) == len(functions_of(op)) else []


def _all_in(graphs: Iterable[FuncGraph]) -> Iterable[Operation]:
    return (op for g in graphs for op in g.operations)


def _computes_only(op: Operation) -> bool:
    kernel = find_kernel(op)
    is_pure = kernel is not None and kernel.form == "pure" and op.opdef.is_pure and not op.opdef.primitive
    return is_pure and not op.opdef.facts.blocking and not any(t.dtype.is_ref for t in (*op.inputs, *op.outputs))


def _only_reads(op: Operation) -> bool:
    """Whether `op` sees what others write, and that is all."""
    facts, kernel = op.opdef.facts, find_kernel(op)
    is_reading = facts.effect == "resource" and not facts.writes and not facts.waits and bool(op.inputs)
    is_there = kernel is not None and kernel.form == "stateful"
    return is_reading and is_there and not any(t.dtype.is_ref for t in (*op.inputs, *op.outputs))


def is_outlined(op: Operation) -> bool:
    """Whether `op`, of a graph that has been lowered, is a structured operation that was left as it is."""
    return op.opdef.structured in _KINDS


# *** waiting ***


def must_not_wait(ops: Sequence[Operation], is_late: Callable[[Operation], bool]) -> set[Operation]:
    """Those structured operations left in a primitive graph through which something comes to wait for more.

    Args:
      ops: of one graph.
      is_late: whether an operation that is no primitive waits for something else, once it fires.
    """
    left = {op for op in ops if is_outlined(op)}
    return _More(ops, left, is_late).blamed if left else set()


class _More:
    """What operations wait for only because structured ones are left as they are; see the module's text.

    Attributes:
      blamed: of those, the ones through which it gets to where it can be told.
    """

    def __init__(
        self, ops: Sequence[Operation], left: Collection[Operation], is_late: Callable[[Operation], bool]
    ) -> None:
        self.blamed: set[Operation] = set()
        self._fates = deadness_of(ops, frames.derive(ops), is_late)
        self._sure = _Sure()
        # of a tensor, or of what waits for an operation: symbols, by the operations through which they came
        self._more: dict[Tensor | Operation, Mapping[Operation, int]] = {}
        for op in walk.toposort(ops):
            if op in left:
                self._left(op)
                continue
            is_merge = op.opdef.primitive == "Merge"  # which waits for one of its inputs only
            surely = 0 if is_merge else self._surely([*op.inputs, *op.control_inputs])
            if more := self._given(op, surely):
                if op.opdef.primitive or not op.opdef.is_pure or is_late(op):
                    if op.type != "_Retval":  # the step is over when all of it is
                        self.blamed.update(more)
                else:
                    self._more.update(dict.fromkeys((op, *op.outputs), more))

    def _surely(self, ends: Iterable[Tensor | Operation]) -> int:
        """What whoever reads tensors and waits for operations would wait for in any case."""
        out = 0
        for end in ends:
            waits = (self._fates.after[end] if isinstance(end, Operation) else self._fates.out(end)).waits
            for symbols in self._more.get(end, {}).values():
                waits &= ~symbols
            out |= waits
        return out

    def _given(self, op: Operation, surely: int) -> dict[Operation, int]:
        """What `op` is given that is more than `surely`."""
        out: dict[Operation, int] = {}
        ends: list[Tensor | Operation] = [*op.inputs, *op.control_inputs]
        for end in ends:
            for through, symbols in self._more.get(end, {}).items():
                if symbols & ~surely:
                    out[through] = out.get(through, 0) | symbols & ~surely
        return out

    def _left(self, op: Operation) -> None:
        waits = self._fates.of[op].waits
        controls = self._surely(op.control_inputs)
        each = 0
        for k, (t, positions) in enumerate(zip(op.outputs, self._sure.of(op), strict=True)):
            surely = self._surely([x for i, x in enumerate(op.inputs) if positions >> i & 1])
            if op.opdef.structured != "While" or not is_constant(op.attrs["body"], k):  # else it is what went in
                surely |= controls
            each |= surely
            self._set(t, op, waits & ~surely, self._given(op, surely))
        self._set(op, op, waits & ~each & ~controls, self._given(op, each | controls))

    def _set(self, end: Tensor | Operation, op: Operation, symbols: int, given: Mapping[Operation, int]) -> None:
        if symbols:
            self._more[end] = {**given, op: symbols}


class _Sure:
    """What the results of structured operations surely wait for, as sets of inputs: an int, bit i for input i."""

    def __init__(self) -> None:
        self._known: dict[FuncGraph, list[int]] = {}
        self._numbers: dict[Tensor, int | None] = {}
        self._depth = 0  # additions around the one that is looked at

    def of(self, op: Operation) -> list[int]:
        """For each output of `op` the inputs that it waits for, whatever their values are."""
        graphs = owned(op)
        if op.opdef.structured == "While":
            return self._loop(op)
        if op.opdef.structured == "Call":
            return self._results(graphs[0])
        out = []
        for each in zip(*map(self._results, graphs), strict=True):
            both = each[0]
            for other in each[1:]:
                both &= other
            out.append(1 | both << 1)
        return out

    def _loop(self, op: Operation) -> list[int]:
        cond: FuncGraph = op.attrs["cond"]
        loop: FuncGraph = op.attrs["body"]
        (asked,) = self._results(cond)
        made = self._results(loop)
        fixed = sum(1 << k for k in range(len(made)) if is_constant(loop, k))
        once = [asked | m for m in made]  # after one iteration; after more, what has been so each time
        while True:
            more = [m & (asked | made[k] & fixed | _union(once, made[k] & ~fixed)) for k, m in enumerate(once)]
            if more == once:
                break
            once = more
        goes_round = bool(self._trips(op))
        out = []
        for k, m in enumerate(once):
            if fixed >> k & 1:
                out.append(1 << k)
            else:
                out.append(m if goes_round else asked | m & 1 << k)
        return out

    def _trips(self, op: Operation) -> int | None:
        """How often the loop `op` goes round, if that can be known."""
        counted = trip_count(op)
        if counted is None or not counted.is_exact:
            return None
        least: list[int] = []
        for bound in counted.bounds:
            first, limit = self._number(bound.first), self._number(bound.limit)
            if first is None or limit is None:
                return None
            least.append(max(0, limit - first + bound.is_inclusive))
        return min(least)

    def _number(self, t: Tensor) -> int | None:
        """The scalar integer that `t` always is, if that can be known; behind a loop also what that has counted."""
        if t not in self._numbers:
            self._numbers[t] = None
            self._numbers[t] = self._found(t)
        return self._numbers[t]

    def _found(self, t: Tensor) -> int | None:
        op, value = t.op, constant_value(t)
        if value is not None:
            return int(value) if value.shape == () and value.dtype.kind == "i" else None
        if op.opdef.structured == "While":
            counted, n = trip_count(op), self._trips(op)
            first = self._number(op.inputs[t.index])
            counts = counted is not None and any(b.counter == t.index for b in counted.bounds)
            return first + n if counts and first is not None and n is not None else None
        if op.type not in ("Sub", "AddV2", "Add") or t.shape != () or self._depth >= DEEPEST:
            return None
        self._depth += 1
        x, y = map(self._number, op.inputs)
        self._depth -= 1
        return None if x is None or y is None else x - y if op.type == "Sub" else x + y

    def _results(self, graph: FuncGraph) -> list[int]:
        """For each result of `graph` the parameters that it waits for."""
        known = self._known.get(graph)
        if known is not None:
            return known
        at: dict[Tensor, int] = {p: 1 << i for i, p in enumerate(graph.params)}
        after: dict[Operation, int] = {}
        for op in walk.in_order(walk.reachable([t.op for t in graph.results])):
            controls = 0
            for c in op.control_inputs:
                controls |= after[c]
            each = [at[t] for t in op.inputs]
            made = self.of(op) if op.opdef.structured else [(1 << len(each)) - 1] * len(op.outputs)
            after[op] = controls
            for t, inputs in zip(op.outputs, made, strict=True):
                at.setdefault(t, controls | _union(each, inputs))
                after[op] |= at[t]
        known = self._known[graph] = [at[r] for r in graph.results]
        return known


def _union(sets: Sequence[int], which: int) -> int:
    """The union of those of `sets` that the bits of `which` tell."""
    out = 0
    for i, s in enumerate(sets):
        if which >> i & 1:
            out |= s
    return out
