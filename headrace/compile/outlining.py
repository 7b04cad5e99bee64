"""Outlining: the choice of loops and conditionals that stay whole inside fused regions.

A `While`, `If` or `Case` that contains only pure operations need not be lowered. It can be a member of a fused region
(`fused_regions`) as a whole, and is compiled with it. Two conditions must hold.

**Contents.** No operation in it waits, has effects or needs a node of its own. Reads of variables are allowed in a loop
that counts, because such a loop ends for any values read. A conditional with a product that is worth a thread of its
own is not outlined, as that product would not be a member of a region either. A loop with one is outlined, because the
executor's work in each iteration takes longer.

**No new waiting.** As one node, a loop starts when all its inputs are available, and sends all its results at the end.
In the executor, each result is sent on its own. For example, the number of iterations may be known before a queue has
delivered the values that the loop processes. A conditional needs no inputs of the branches that are not taken, and a
loop without iterations does not read the inputs of its body. So the analysis asks for each result what it *surely*
waits for (`SureInputs`). Every further event that the whole operation waits for is *more*.

More is harmless if it ends in pure operations that wait for the same events anyway, by their other inputs. For example,
the gradient of a loop reads the number of iterations, but it also reads values from the queue. If it does not end there
but reaches a queue or an assignment, the operations through which it came are lowered (`must_not_wait`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from headrace import thresholds
from headrace.compile.deadness import deadness_of
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.analysis.sure_inputs import SureInputs
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.function import nested_operations, owned, owns_all
from headrace.ir.graph import FuncGraph, Operation
from headrace.ir.kernel import find_kernel
from headrace.ir.order import is_constant

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor


_KINDS: Final = frozenset({"If", "Case", "While"})


class Lowered(Protocol):
    """Primitive graph that still contains structured operations (`lower.Lowered`)."""

    @property
    def ops(self) -> Sequence[Operation]:
        """Its operations."""
        ...

    @property
    def functions(self) -> Mapping[str, Sequence[Operation]]:
        """Operations of the functions that it calls in frames of their own."""
        ...

    @property
    def left(self) -> Mapping[Operation, Operation]:
        """Structured operations that were not lowered, with the originals of which they are copies."""
        ...


L = TypeVar("L", bound=Lowered)


def select_outlined(
    lower: Callable[[OutlinedStructures], L],
    is_heavy: Callable[[Operation], bool],
    is_late: Callable[[Operation], bool],
    is_partial: bool = False,
) -> L | None:
    """Lowers a step except for the structured operations that fused regions can contain.

    Args:
      lower: Lowers the step; its argument decides which structured operations stay whole.
      is_heavy: Whether an operation with a pure kernel may be worth a thread of its own.
      is_late: Whether an operation of a primitive graph waits after it fires.
      is_partial: Whether results are fetched while the step waits for feeds.

    Returns:
      The lowered step; None if no structured operation stays whole.
    """
    outlined = OutlinedStructures(is_heavy)
    for _ in range(thresholds.OUTLINING_ROUNDS):
        lowered = lower(outlined)
        early = must_not_wait(lowered.ops, is_late, is_partial).union(
            *(must_not_wait(ops, is_late) for ops in lowered.functions.values())
        )
        if not early:
            return lowered if lowered.left else None
        outlined.refused.update(lowered.left[op] for op in early)
    return None


class OutlinedStructures:
    """Predicate for the structured operations of a step that are not lowered.

    Args:
      is_heavy: Whether an operation with a pure kernel may be worth a thread of its own.

    Attributes:
      refused: Operations that are lowered although their contents would allow outlining.
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
        """Whether all contents of `op` are allowed in a fused region."""
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
        return not any(map(_only_reads, nested_operations(_all_in(graphs))))

    def _is_light(self, op: Operation) -> bool:
        """Whether no operation in `op`, outside of loops, is heavy."""
        if op.opdef.structured == "While":
            return True
        return all(self._is_light(e) if e.opdef.structured else not self._is_heavy(e) for e in _all_in(_graphs(op)))


def _graphs(op: Operation) -> list[FuncGraph]:
    """Graphs that `op` owns; [] if it names a recursive or large library function."""
    return owned(op) if owns_all(op) else []


def _all_in(graphs: Iterable[FuncGraph]) -> Iterable[Operation]:
    return (op for g in graphs for op in g.operations)


def _computes_only(op: Operation) -> bool:
    kernel = find_kernel(op)
    is_pure = kernel is not None and kernel.form == "pure" and op.opdef.is_pure and not op.opdef.primitive
    return is_pure and not op.opdef.facts.blocking and not any(t.dtype.is_ref for t in (*op.inputs, *op.outputs))


def _only_reads(op: Operation) -> bool:
    """Whether `op` reads state that other operations write and has no other effect."""
    facts, kernel = op.opdef.facts, find_kernel(op)
    is_reading = facts.effect == "resource" and not facts.writes and not facts.waits and bool(op.inputs)
    is_there = kernel is not None and kernel.form == "stateful"
    return is_reading and is_there and not any(t.dtype.is_ref for t in (*op.inputs, *op.outputs))


def is_outlined(op: Operation) -> bool:
    """Whether `op`, of a lowered graph, is a structured operation that was not lowered."""
    return op.opdef.structured in _KINDS


# *** waiting ***


def must_not_wait(
    ops: Sequence[Operation], is_late: Callable[[Operation], bool], is_partial: bool = False
) -> set[Operation]:
    """Outlined operations of a primitive graph that make an operation wait for more events.

    Args:
      ops: The operations of one graph.
      is_late: Whether an operation that is not a primitive waits after it fires.
      is_partial: Whether results are fetched while the step waits for feeds.

    Returns:
      The outlined operations that must be lowered instead.
    """
    left = {op for op in ops if is_outlined(op)}
    return _More(ops, left, is_late, is_partial).blamed if left else set()


class _More:
    """Events that operations wait for only because of outlining; see the module's text.

    Attributes:
      blamed: The outlined operations through which such an event reaches an operation with effects or a primitive.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        left: Collection[Operation],
        is_late: Callable[[Operation], bool],
        is_partial: bool,
    ) -> None:
        self.blamed: set[Operation] = set()
        self._deadness = deadness_of(ops, frames.derive(ops), is_late)
        self._sure = SureInputs()
        # symbols by the outlined operations through which they came, for a tensor or the control output of an operation
        self._more: dict[Tensor | Operation, Mapping[Operation, int]] = {}
        for op in walk.toposort(ops):
            if op in left:
                self._left(op)
                continue
            is_merge = op.opdef.primitive == "Merge"  # it waits for one of its inputs only
            surely = 0 if is_merge else self._surely([*op.inputs, *op.control_inputs])
            if more := self._given(op, surely):
                if op.opdef.primitive or not op.opdef.is_pure or is_late(op):
                    # a step that is fed at once ends only when all its operations have run
                    if is_partial or op.type != "_Retval":
                        self.blamed.update(more)
                else:
                    self._more.update(dict.fromkeys((op, *op.outputs), more))

    def _surely(self, ends: Iterable[Tensor | Operation]) -> int:
        """Symbols that a consumer of these tensors and operations waits for in any case."""
        out = 0
        for end in ends:
            waits = (self._deadness.after[end] if isinstance(end, Operation) else self._deadness.out(end)).waits
            for symbols in self._more.get(end, {}).values():
                waits &= ~symbols
            out |= waits
        return out

    def _given(self, op: Operation, surely: int) -> dict[Operation, int]:
        """Symbols in the inputs of `op` that are not in `surely`, by outlined operation."""
        out: dict[Operation, int] = {}
        ends: list[Tensor | Operation] = [*op.inputs, *op.control_inputs]
        for end in ends:
            for through, symbols in self._more.get(end, {}).items():
                if symbols & ~surely:
                    out[through] = out.get(through, 0) | symbols & ~surely
        return out

    def _left(self, op: Operation) -> None:
        waits = self._deadness.of[op].waits
        controls = self._surely(op.control_inputs)
        each = 0
        for k, (t, positions) in enumerate(zip(op.outputs, self._sure.of(op), strict=True)):
            surely = self._surely([x for i, x in enumerate(op.inputs) if positions >> i & 1])
            if op.opdef.structured != "While" or not is_constant(op.attrs["body"], k):  # else it forwards its input
                surely |= controls
            each |= surely
            self._set(t, op, waits & ~surely, self._given(op, surely))
        self._set(op, op, waits & ~each & ~controls, self._given(op, each | controls))

    def _set(self, end: Tensor | Operation, op: Operation, symbols: int, given: Mapping[Operation, int]) -> None:
        if symbols:
            self._more[end] = {**given, op: symbols}
