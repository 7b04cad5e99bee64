"""Flow of tensor lists from the operation that makes one to its uses.

    flow = ListFlow(graph)
    uses = flow.of(new_list)        # None: the list reaches an operation that is not understood

`ListLengths` follows a list in the other direction, from a use to all operations that may have made it.

A list is a value: `TensorListPushBack` returns a new one. So "the list" means all versions of it, through loops and
conditionals. A list that becomes an element of another list is not followed further. The zeros like a list, and the sum
of lists, as gradients make them, have elements of the shapes of its own, and count as versions of it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from headrace import dtypes, shapes
from headrace.ir.function import nested, nested_operations, owned, param_offset
from headrace.ir.infer import scalar_value
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape

FOLLOWED: Final = ("If", "Case", "Call", "While")  # kinds of operations that lists are followed through


@record(slots=True)
class Uses:
    """Uses of a list.

    Attributes:
      put: the tensors that become elements of it.
      pops: the operations that remove its last element.
      is_indexed: whether elements are set by position, or its length is, so that some elements may never be set.
      is_computed: whether some versions have other elements, zeros or sums.
      versions: all versions of it.
    """

    put: list[Tensor] = dataclasses.field(default_factory=list)
    pops: list[Operation] = dataclasses.field(default_factory=list)
    is_indexed: bool = False
    is_computed: bool = False
    versions: set[Tensor] = dataclasses.field(default_factory=set)


class ListFlow:
    """Paths of the lists of a graph; the head of the module has an example.

    Args:
      graph: the graph. It and the graphs that its operations own are read once, by the constructor.

    Attributes:
      new: the operations that make new lists.
    """

    def __init__(self, graph: Graph) -> None:
        self.new: list[Operation] = []
        self._readers: dict[Tensor, list[tuple[Operation, int]]] = {}
        self._results: dict[Tensor, list[tuple[Operation, Graph, int]]] = {}  # with the owner, its graph and position
        for op in nested_operations(graph.operations):
            role = op.opdef.facts.list_role
            if role is not None and role.makes:
                self.new.append(op)
            for i, t in enumerate(op.inputs):
                if t.dtype.base is dtypes.variant:
                    self._readers.setdefault(t, []).append((op, i))
        for owner, g in nested(graph.operations):
            for k, t in enumerate(g.results):
                if t.dtype.base is dtypes.variant:
                    self._results.setdefault(t, []).append((owner, g, k))

    def of(self, new: Tensor) -> Uses | None:
        """Uses of the list that begins as `new`; None if they are not all known."""
        uses = Uses(versions={new})
        seen, todo = uses.versions, [new]
        while todo:
            t = todo.pop()
            goes: list[Tensor] = []
            for op, i in self._readers.get(t, ()):
                through = _through(op, i, uses)
                if through is None:
                    return None
                goes += through
            for op, g, k in self._results.get(t, ()):
                if op.opdef.structured not in FOLLOWED:
                    return None
                goes.append(op.outputs[k])
                if op.opdef.structured == "While":
                    if g is not op.attrs["body"]:
                        return None
                    goes += [f.params[k] for f in owned(op)]
            todo += [t for t in dict.fromkeys(goes) if t not in seen]
            seen.update(goes)
        return uses

    def element_shape(self, new: Tensor) -> Shape:
        """Full static shape of all elements of the list that begins as `new`, or None."""
        uses = self.of(new)
        if uses is None:
            return None
        found = {t.shape for t in uses.put}
        if new.op.opdef.list_kind == "from_tensor":
            rows = new.op.inputs[0].shape
            found.add(None if rows is None else rows[1:])
        shape = found.pop() if len(found) == 1 else None
        return shape if shapes.is_full(shape) else None


def _through(op: Operation, i: int, uses: Uses) -> list[Tensor] | None:
    """Next versions of the list that is input `i` of `op`, or None."""
    if op.opdef.structured:
        graphs, k = owned(op), i - param_offset(op)
        return None if op.opdef.structured not in FOLLOWED or not graphs or k < 0 else [g.params[k] for g in graphs]
    if op.type in ("_TensorArrayTrack", "_TensorArrayRefill"):  # the second input only names the array
        return [op.outputs[0]] if i == 0 else []
    if op.type in ("Identity", "ZerosLike", "AddN"):
        uses.is_computed |= op.type != "Identity"
        return [op.outputs[0]]
    role = op.opdef.facts.list_role
    if i == 0 and role is not None and role.kind in ("push", "set", "unset", "pop", "resize"):
        uses.is_indexed |= role.kind in ("set", "unset", "resize")
        if role.element_input is not None:
            uses.put.append(op.inputs[role.element_input])
        elif role.kind == "pop":
            uses.pops.append(op)
        return [op.outputs[0]]
    # an operation that only reads the list makes no list; a list that is fetched leaves the step
    return None if any(t.dtype.base is dtypes.variant for t in op.outputs) else []


class ListLengths:
    """Lengths of the lists of a graph.

    Args:
      graph: the graph. The graphs that its operations own are private.
    """

    def __init__(self, graph: Graph) -> None:
        self._owners = {g: owner for owner, g in nested(graph.operations)}

    def of(self, used: Tensor) -> int | None:
        """Length of the list `used`; None if it is unknown or not always the same."""
        lengths: set[int] = set()
        seen, todo = {used}, [used]
        while todo:
            t = todo.pop()
            made = _made_length(t)
            if made is not None:
                lengths.add(made)
                continue
            before = self._before(t)
            if before is None:
                return None
            todo += [u for u in dict.fromkeys(before) if u not in seen]
            seen.update(before)
        return lengths.pop() if len(lengths) == 1 else None

    def _before(self, t: Tensor) -> list[Tensor] | None:
        """Lists of which one has the length of `t` in a run; None if unknown."""
        op, g = t.op, t.op.graph
        if g in self._owners and t in g.params:
            owner, k = self._owners[g], g.params.index(t)
            return self._carried(owner, [owner.inputs[param_offset(owner) + k]], k)
        if op.opdef.structured == "While":
            return self._carried(op, [op.inputs[param_offset(op) + t.index]], t.index)
        if op.opdef.structured in ("If", "Case"):
            return [g.results[t.index] for g in owned(op)] or None
        role = op.opdef.facts.list_role
        keeps = role is not None and (
            role.kind == "unset" or (role.kind == "set" and not op.attrs.get("resize_if_index_out_of_bounds"))
        )
        return [op.inputs[0]] if keeps or op.type in ("Identity", "_TensorArrayTrack", "_TensorArrayRefill") else None

    def _carried(self, owner: Operation, given: list[Tensor], k: int) -> list[Tensor] | None:
        """The argument of `owner` and, for a loop, the next value of its variable `k`."""
        if owner.opdef.structured in ("If", "Case"):
            return given
        return [*given, owner.attrs["body"].results[k]] if owner.opdef.structured == "While" and owned(owner) else None


def _made_length(t: Tensor) -> int | None:
    """Length of a list that the operation of `t` makes, if it is known."""
    kind = t.op.opdef.list_kind
    if kind == "reserve":
        n = scalar_value(t.op.inputs[1])
        return None if n is None or n < 0 else n
    rows = t.op.inputs[0].shape if kind == "from_tensor" else None
    return None if rows is None else rows[0]
