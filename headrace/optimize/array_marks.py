"""Removes access checks of TensorFlow 1 arrays whose indices prove that none fails.

    array = _TensorArrayTrack(TensorListReserve(...))
    While(i = 0, array)         body: array = TensorListSetItem(array, i, x) ^_TensorArrayMarkWritten(array, i)
    TensorListStack(array) ^_TensorArrayMarkRead(array)

Each iteration writes an index of its own, and all elements are read once, at the end. So no element is written twice,
written after a read, or read twice. Without the checks the array is a tensor list as `hr.TensorArray` makes it, for
which the passes on loops and the compiler have rules. `ops.array_accesses` defines the checks, and
`headrace docs reference/loops` describes the optimization of such loops.

The pass finds all versions of the list of one array, through loops and conditionals (`_History`). For each mark it
determines the elements that the mark touches (`_Places`): known indices, all elements, or an index that changes by the
same amount in each iteration of one loop. Then it must prove for every two marks that could conflict that they do not.
If one proof fails, all checks of that array stay.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes, thresholds
from headrace.ir.edit.editor import Editor
from headrace.ir.function import inside_out, nested_operations, owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.ir.order import is_constant
from headrace.opkit.tensor_lists import MARKS
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import owns_graphs, primitives
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_TRACK: Final = "_TensorArrayTrack"
_REFILL: Final = "_TensorArrayRefill"
_MARK_READ: Final = "_TensorArrayMarkRead"


class DropMarks(Pass):
    """Pass that removes the access checks of arrays; see the head of the module."""

    name = "array_marks"
    whole = True

    def requires(self, graph: Graph) -> str:
        return next((why for g in inside_out(graph) if (why := primitives(g))), "")

    def call(self, graph: Graph, context: PassContext) -> bool:
        # Without an array there is nothing to find.
        if not any(op.type == _TRACK for op in nested_operations(graph.operations)):  # mutate: no
            return False
        flow = _Flow(graph)
        histories = {t: flow.history(t) for t in flow.tracked}
        seen = {op for h in histories.values() if h is not None for op in (*h.reads, *h.writes)}
        if not seen.issuperset(flow.marks):
            why = "another list of the graph has checks, and its uses cannot be analyzed"
            for t in flow.tracked:
                context.refused(self.name, t.op, why)
            return False
        changed = False
        for t, history in histories.items():
            if history is None:
                context.refused(self.name, t.op, "its list has a use that cannot be analyzed")
                continue
            why = _conflict(history, flow) or _lost(history, flow, context)
            if why:
                context.refused(self.name, t.op, why)
                continue
            n = len(history.reads) + len(history.writes)
            context.fired(self.name, t.op, f"no element is written or read twice: {n} checks removed")
            flow.drop(history, context)
            changed = True
        return changed


@record(slots=True)
class _History:
    """Versions of the list of one array, and the marks on them.

    Attributes:
      track: the operation that makes the list an array.
      reads, writes: the marks; a `_TensorArrayRefill` is one of the writes.
      next: for each version of the list, the versions that follow it directly.
    """

    track: Operation
    reads: list[Operation] = dataclasses.field(default_factory=list)
    writes: list[Operation] = dataclasses.field(default_factory=list)
    next: dict[Tensor, list[Tensor]] = dataclasses.field(default_factory=dict)


@record(frozen=True, slots=True)
class _Places:
    """The elements that one mark touches, each of them once.

    Attributes:
      numbers: the indices, if they are known.
      loop: otherwise the loop that contains the mark, with one element for each iteration. None: the mark is in no
        loop, and its elements are not known.
      counter: the position of the loop variable in the formula of the index.
      scale, offset: the index is `scale * counter + offset`; the offset is None if it is not known.
      first: the index in the first iteration, if it is known.
      step: the change of the index from one iteration to the next; not 0.
    """

    numbers: frozenset[int] | None = None
    loop: Operation | None = None
    counter: int = 0
    scale: int = 0
    offset: int | None = None
    first: int | None = None
    step: int = 0


class _Flow:
    """Paths of tensor lists through a graph and its nested graphs.

    `list_flow` follows lists that are not arrays.

    Args:
      graph: the graph of a step.

    Attributes:
      tracked: the tensors with which an array begins.
      marks: all mark operations.
    """

    def __init__(self, graph: Graph) -> None:
        self.tracked: list[Tensor] = []
        self.marks: list[Operation] = []
        self._owner: dict[Graph, Operation] = {}
        self._readers: dict[Tensor, list[tuple[Operation, int]]] = {}
        self._waits: dict[Operation, list[Operation]] = {}  # operations with a control edge from a mark
        self._results: dict[Tensor, list[tuple[Graph, int]]] = {}
        for g in inside_out(graph):
            for op in g.operations:
                self._owner.update((f, op) for f in owned(op))
                if op.type == _TRACK:
                    self.tracked.append(op.outputs[0])
                elif op.type in MARKS:
                    self.marks.append(op)
                for i, t in enumerate(op.inputs):
                    if t.dtype.base is dtypes.variant:
                        self._readers.setdefault(t, []).append((op, i))
                for c in op.control_inputs:
                    if c.type in MARKS:
                        self._waits.setdefault(c, []).append(op)
            for k, t in enumerate(g.results if isinstance(g, FuncGraph) else ()):
                if t.dtype.base is dtypes.variant:
                    self._results.setdefault(t, []).append((g, k))

    def history(self, tracked: Tensor) -> _History | None:
        """Returns the history of the array `tracked`; None if a version cannot be followed."""
        history = _History(tracked.op)
        todo, seen = [tracked], {tracked}
        while todo:
            t = todo.pop()
            for op, _ in self._readers.get(t, ()):
                if op.type in (*MARKS, _REFILL):
                    (history.reads if op.type == _MARK_READ else history.writes).append(op)
            goes = self._next(t, tracked.op.graph)
            if goes is None:
                return None
            history.next[t] = goes
            todo += [x for x in goes if x not in seen]
            seen.update(goes)
        return history

    def _next(self, t: Tensor, within: Graph) -> list[Tensor] | None:
        """Returns the next versions of the list `t`.

        None if it leaves the graph `within`, or enters graphs that are not owned.
        """
        goes: list[Tensor] = []
        for op, i in self._readers.get(t, ()):
            if owns_graphs(op):
                goes += [g.params[i - param_offset(op)] for g in owned(op)]
            elif op.opdef.structured:
                return None
            elif op.type != "ZerosLike":  # its list is new
                goes += [out for out in op.outputs if out.dtype.base is dtypes.variant]
        for g, k in self._results.get(t, ()):
            if g is within:
                return None
            owner = self._owner[g]
            goes.append(owner.outputs[k])
            if owner.opdef.structured == "While":
                goes += [f.params[k] for f in owned(owner)]
        return list(dict.fromkeys(goes))

    def way(self, op: Operation, track: Operation) -> list[tuple[Operation, Graph]]:
        """Returns the structured operations around `op`, up to the graph of `track`.

        Innermost first, each with its nested graph that contains `op`.
        """
        out, graph = [], op.graph
        while graph is not track.graph:
            owner = self._owner[graph]
            out.append((owner, graph))
            graph = owner.graph
        return out

    def owner(self, graph: Graph) -> Operation:
        return self._owner[graph]

    def readers(self, t: Tensor) -> Sequence[tuple[Operation, int]]:
        """Pairs (operation, input index) that read the list `t`."""
        return self._readers.get(t, ())

    def waiting(self, mark: Operation) -> Sequence[Operation]:
        """Operations that wait for a mark."""
        return self._waits.get(mark, ())

    def drop(self, history: _History, context: PassContext) -> None:
        """Removes the marks of an array, and the operations that make its list an array."""
        of: dict[Graph, list[Operation]] = {}
        for op in (history.track, *history.reads, *history.writes):
            of.setdefault(op.graph, []).append(op)
        for graph, ops in of.items():
            edit = Editor(graph, context.preserved_of(graph))
            for op in ops:
                if op.type in MARKS:
                    for reader in list(edit.waits.get(op, ())):
                        rest = [c for c in reader.control_inputs if c is not op]
                        edit.set_controls(reader, [*rest, *op.control_inputs])
                else:
                    maker = op.inputs[0].op
                    if op.type == _REFILL:  # the operations that made the previous version must still run
                        edit.add_controls(maker, [op.inputs[1].op])
                    edit.replace(op.outputs[0], op.inputs[0])
                    edit.replace_control(op, [maker])
            edit.remove(ops)


def _lost(history: _History, flow: _Flow, context: PassContext) -> str:
    """Returns the effect that removing the operations of an array would lose, or ""."""
    for op in (history.track, *history.reads, *history.writes):
        must = op.graph.control_results if isinstance(op.graph, FuncGraph) else context.preserved
        if op in must:
            return f"'{op.name}' is a target or a control result"
        if op.type in MARKS:
            wanted = {t for t in op.inputs if t.op.type != "Const"}
            more = [reader for reader in flow.waiting(op) if not wanted.issubset(reader.inputs)]
            if more:
                return f"'{more[0].name}' waits for '{op.name}'"
        elif op.type == _REFILL and context.options.is_lowered and len(flow.readers(op.inputs[0])) > 1:
            return f"'{op.inputs[0].op.name}' would wait for '{op.inputs[1].op.name}'"
        elif not set(op.control_inputs).issubset(op.inputs[0].op.control_inputs):
            return f"'{op.name}' has control inputs that its list does not have"
    return ""


# *** Elements that marks touch ***


def _conflict(history: _History, flow: _Flow) -> str:
    """Returns why two accesses to one element cannot be ruled out; "" if they can."""
    accesses = {}
    for op in (*history.reads, *history.writes):
        way = flow.way(op, history.track)
        places = _touched(op, way, flow)
        if places is None:
            return f"'{op.name}' may touch an element twice"
        accesses[op] = _Access(op, way, places)
    writes = [accesses[op] for op in history.writes]
    reads = [accesses[op] for op in history.reads]
    return (
        _shared(writes)
        or (_shared(reads) if history.track.attrs["clear_after_read"] else "")
        or _late(reads, writes, _written(history, flow))
    )


@record(frozen=True, slots=True)
class _Access:
    """A mark, the path to it (`_Flow.way`), and the elements that it touches."""

    op: Operation
    way: Sequence[tuple[Operation, Graph]]
    places: _Places


def _loops(way: Sequence[tuple[Operation, Graph]]) -> list[Operation]:
    return [owner for owner, _ in way if owner.opdef.structured == "While"]


def _by_element(accesses: Sequence[_Access]) -> tuple[dict[int, list[int]], list[int]]:
    """Positions of accesses: by known element, and those with unknown elements."""
    known: dict[int, list[int]] = {}
    for k, a in enumerate(accesses):
        for n in a.places.numbers or ():
            known.setdefault(n, []).append(k)
    return known, [k for k, a in enumerate(accesses) if a.places.numbers is None]


def _shared(accesses: Sequence[_Access]) -> str:
    """Returns which two accesses may touch the same element; "" if no two do.

    Args:
      accesses: all reads of an array, or all writes.
    """
    known, others = _by_element(accesses)
    same = (pair for found in known.values() for pair in itertools.combinations(found, 2))
    unlike = (
        (i, k) for i in others for n, found in known.items() if not _is_apart(accesses[i].places, n) for k in found
    )
    for i, k in itertools.chain(same, itertools.combinations(others, 2), unlike):
        a, b = accesses[i], accesses[k]
        if not _is_either(a, b):
            return f"'{a.op.name}' and '{b.op.name}' may touch the same element"
    return ""


def _late(reads: Sequence[_Access], writes: Sequence[_Access], written: Mapping[Tensor, int]) -> str:
    """Returns which write may follow a read of the same element; "" if none does."""
    known, others = _by_element(writes)
    for read in reads:
        numbers, loops = read.places.numbers, set(_loops(read.way))
        near = range(len(writes)) if numbers is None else [*others, *(k for n in numbers for k in known.get(n, ()))]
        for k in near:
            write = writes[k]
            in_one_loop = not loops.isdisjoint(_loops(write.way))
            is_after = written[read.op.inputs[0]] >> k & 1 and not in_one_loop
            if not is_after and not _is_before(read.places, write.places):
                return f"'{write.op.name}' may write an element after '{read.op.name}' has read it"
    return ""


def _written(history: _History, flow: _Flow) -> dict[Tensor, int]:
    """Returns the writes before each version of the list, as bits of an integer."""
    out = dict.fromkeys(history.next, 0)
    for k, write in enumerate(history.writes):
        for op in [write] if write.type == _REFILL else flow.waiting(write):
            for t in op.outputs:
                if t in out:
                    out[t] |= 1 << k
    todo = collections.deque(out)
    while todo:
        t = todo.popleft()
        for after in history.next[t]:
            both = out[after] | out[t]
            if both != out[after]:
                out[after] = both
                todo.append(after)
    return out


def _touched(op: Operation, way: Sequence[tuple[Operation, Graph]], flow: _Flow) -> _Places | None:
    """Returns the elements that a mark touches; None if it may touch one twice."""
    loops = _loops(way)
    if op.type == _REFILL or op.attrs["all"]:
        return None if loops else _Places()
    index = op.inputs[1]
    if loops:
        return _changing(index, loops[0], flow) if len(loops) == 1 and index.shape == () else None
    value = constant_value(index)
    if value is None:
        return _Places() if index.shape == () else None
    numbers = frozenset(np.ravel(value).tolist())
    return _Places(numbers) if len(numbers) == value.size else None


def _changing(t: Tensor, loop: Operation, flow: _Flow) -> _Places | None:
    """Returns the values of index `t` in a loop's iterations, if no two are equal."""
    known: dict[Tensor, _Linear | None] = {}
    found = _linear(t, loop, flow, known)
    if found is None or found.counter is None:
        return None
    k = found.counter
    by = _linear(loop.attrs["body"].results[k], loop, flow, known)
    if by is None or (by.counter, by.scale) != (k, 1) or not by.offset or not found.scale:
        return None
    start = constant_value(loop.inputs[k])
    first = None if start is None or found.offset is None else found.scale * int(start) + found.offset
    return _Places(None, loop, k, found.scale, found.offset, first, found.scale * by.offset)


@record(frozen=True, slots=True)
class _Linear:
    """A number in a loop: `scale * counter + offset`.

    Without a counter it is loop-invariant. An offset of None is unknown.
    """

    counter: int | None = None
    scale: int = 0
    offset: int | None = None


def _linear(t: Tensor, loop: Operation, flow: _Flow, known: dict[Tensor, _Linear | None]) -> _Linear | None:
    """Returns `t` as a linear function of one loop variable, or None."""
    if t not in known:
        known[t] = _find_linear(t, loop, flow, known) if len(known) < thresholds.INDEX_TENSORS else None
    return known[t]


def _find_linear(t: Tensor, loop: Operation, flow: _Flow, known: dict[Tensor, _Linear | None]) -> _Linear | None:
    value = constant_value(t)
    if value is not None:
        return _Linear(offset=int(value)) if value.shape == () else None
    op = t.op
    if op.type == "_Arg":
        owner, k = flow.owner(op.graph), op.attrs["index"]
        if owner is loop:
            return _Linear() if is_constant(loop.attrs["body"], k) else _Linear(k, 1, 0)
        return _linear(owner.inputs[k + param_offset(owner)], loop, flow, known)
    forwards = 0 if op.type == "Cast" and op.inputs[0].dtype.base in _INTEGERS else op.opdef.facts.forwards
    if forwards is not None:
        return _linear(op.inputs[forwards], loop, flow, known)
    sign = op.opdef.facts.sum_sign
    if not sign:
        return None
    x, y = (_linear(i, loop, flow, known) for i in op.inputs)
    if x is None or y is None or len({x.counter, y.counter} - {None}) > 1:
        return None
    counter = y.counter if x.counter is None else x.counter
    offset = None if x.offset is None or y.offset is None else x.offset + sign * y.offset
    return _Linear(counter, x.scale + sign * y.scale, offset)


_INTEGERS: Final = (dtypes.int32, dtypes.int64)


def _is_apart(a: _Places, n: int) -> bool:
    """Whether a mark in a loop never touches element `n`."""
    if a.first is None:
        return False
    return n < a.first if a.step > 0 else n > a.first


def _is_either(a: _Access, b: _Access) -> bool:
    """Whether two marks exclude each other: they are in different branches of a conditional.

    If the conditional is in a loop, both must touch the same element in each iteration.
    """
    branches = dict(a.way)
    for i, (owner, graph) in enumerate(b.way):
        if owner.opdef.structured != "While" and branches.get(owner, graph) is not graph:
            return not _loops(b.way[i + 1 :]) or (a.places == b.places and a.places.offset is not None)
    return False


def _is_before(read: _Places, write: _Places) -> bool:
    """Whether no write to a later version touches an element that was read."""
    if read.numbers is not None:
        return all(_is_apart(write, n) for n in read.numbers)
    if write.numbers is not None:
        return all(_is_apart(read, n) for n in write.numbers)
    if (read.loop, read.counter, read.scale) != (write.loop, write.counter, write.scale):
        return False
    if read.offset is None or write.offset is None:
        return False
    return read.offset < write.offset if read.step > 0 else read.offset > write.offset
