"""Replacement of stacks and tensor arrays by lists that pass from operation to operation.

TensorFlow 1 keeps the residuals of a loop on stacks, and the inputs and outputs of loops in tensor arrays. Both are
mutable resources behind a handle: a loop constant through which all iterations push, pop, read and write one object.
This cannot be differentiated, because no data edge leads from the push to the pop, so second derivatives would be
missing. A `TensorList` has the same contents as a value:

    s = StackV2()                                    s0 = EmptyTensorList()
    while: StackPushV2(s, x)                         while: s = TensorListPushBack(s, x)      a further loop variable
    while: y = StackPopV2(s)                         while: s, y = TensorListPopBack(s)       starts at that end

So the state of each stack or array, if all its uses are known, is *threaded* through the structured graph. In each
graph that uses the state, its operations are visited in order. Each takes the list that the previous one returned. A
conditional passes the list through its branches as a further input and result, and a loop passes it as a further loop
variable.

The gradient of an array (`TensorArrayGradV3`) is an array of its own, to which a write adds. It starts as zeros like
the array after all its writes. A stack or array stays unchanged if an operation outside of `_RULES` uses it, if its
handle is stored, or if a branch returns its handle.

Flows are scalars that order the operations on an array. They stay in the graph but have no further effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.editor import Editor
from headrace.ir.function import bodies, owned, param_offset
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.shapes import Shape


class _State:
    """Stack, array, or gradient of an array.

    Attributes:
      op: The operation that creates it.
      dtype: The dtype of the elements.
      element: The static shape of the elements.
      grows: Whether a write may extend it.
      adds: Whether a write adds to the element.
      uses: The operations in each graph that use it or own a graph that does.
      gradients: The gradients of an array, by source.
    """

    def __init__(self, op: Operation, dtype: DType, element: Shape, grows: bool, adds: bool = False) -> None:
        self.op = op
        self.dtype = dtype
        self.element = element
        self.grows = grows
        self.adds = adds
        self.uses: dict[Graph, dict[Operation, None]] = {}
        self.gradients: dict[str, _State] = {}

    def every(self) -> list[_State]:
        return [self, *self.gradients.values()]


def lists_for_handles(graph: Graph, members: Sequence[Operation], covered: set[Operation]) -> dict[Tensor, Tensor]:
    """Replaces stacks and arrays that structured operations use by lists, where possible.

    Args:
      graph: The graph, which owns its structured operations.
      members: The operations outside primitive branches and loops, including structured ones.
      covered: The operations inside primitive branches and loops, whose uses of a handle structured operations repeat.

    Returns:
      The replacements for outputs of `members`. In graphs that operations own, the replacements are already in use.
    """
    return _Handles(graph, members, covered).run()


class _Handles:
    def __init__(self, graph: Graph, members: Sequence[Operation], covered: set[Operation]) -> None:
        self.root = graph
        self.members = list(members)
        self.covered = covered
        self.removed: set[Operation] = set()
        self.instead: dict[Tensor, Tensor] = {}
        self.orders: dict[Graph, list[Operation]] = {}
        self.owners: dict[Graph, Operation] = {}
        self.readers: dict[Graph, dict[Tensor, list[tuple[Operation, int]]]] = {}

    def run(self) -> dict[Tensor, Tensor]:
        todo: list[Graph] = [self.root]
        for graph in todo:
            for op in self.ops(graph):
                todo += owned(op)
                self.owners.update((g, op) for g in owned(op))
        for graph in todo:
            for op in list(self.ops(graph)):
                if op.type in _MAKERS and op not in self.removed:
                    state = self._state(op, graph)
                    if state is not None:
                        self._convert(state, graph)
        for graph in todo:
            if isinstance(graph, FuncGraph):
                self._finish(graph)
        inside = set(self.members)
        return {old: self.now(old) for old in self.instead if old.op in inside and not old.dtype.is_ref}

    def ops(self, graph: Graph) -> Sequence[Operation]:
        return self.members if graph is self.root else graph.operations

    def now(self, t: Tensor) -> Tensor:
        """The current replacement of `t`, or `t` itself."""
        while t in self.instead:
            t = self.instead[t]
        return t

    # *** uses ***

    def _state(self, op: Operation, graph: Graph) -> _State | None:
        """The state that `op` creates; None if it cannot be replaced."""
        if op.type == "StackV2":
            dtype = op.attrs["elem_type"]
            state = _State(op, dtype, None, False)
        else:
            state = _State(op, op.attrs["dtype"], op.attrs["element_shape"], op.attrs["dynamic_size"])
        if state.dtype.base is dtypes.resource or not self._find(state, graph, op.outputs[0]):
            return None
        if not any(o.opdef.structured for s in state.every() for ops in s.uses.values() for o in ops):
            return None
        if state.gradients and state.dtype not in dtypes.NUMERIC:
            return None  # values written twice could not be added
        return state

    def _find(self, state: _State, graph: Graph, handle: Tensor) -> bool:
        """Records the uses of a handle; returns whether all of them are supported."""
        todo = [(state, graph, handle)]
        seen = set()
        while todo:
            s, g, h = todo.pop()
            if (g, h) in seen:
                continue
            seen.add((g, h))
            for op, i in self._readers(g, h):
                if op.opdef.structured in ("If", "Case", "While"):
                    more = self._inside(op, i, g, h)
                    if more is None:
                        return False
                    todo += [(s, inner, t) for inner, t in more]
                    s.uses.setdefault(g, {})[op] = None
                elif i != 0:
                    return False
                elif op.type == "TensorArrayGradV3" and not s.adds:
                    source = op.attrs["source"]
                    if source not in state.gradients:
                        state.gradients[source] = _State(op, s.dtype, s.element, False, adds=True)
                    gradient = state.gradients[source]
                    todo.append((gradient, g, op.outputs[0]))
                    s.uses.setdefault(g, {})[op] = None
                    around = g
                    while around is not graph:  # it lives as long as the array, so it is passed in from `graph`
                        owner = self.owners[around]
                        gradient.uses.setdefault(owner.graph, {})[owner] = None
                        around = owner.graph
                elif op.type in _RULES:
                    if s.adds and op.type in ("TensorArraySplitV3",):
                        return False
                    s.uses.setdefault(g, {})[op] = None
                else:
                    return False
            if isinstance(g, FuncGraph) and h in g.results and h not in g.params:
                return False
        return True

    def _inside(self, op: Operation, i: int, graph: Graph, handle: Tensor) -> list[tuple[Graph, Tensor]] | None:
        """Handles inside a structured operation for its input `i`, and its output; None if unsupported."""
        out: list[tuple[Graph, Tensor]] = []
        graphs = dict(bodies(op))
        for name, g in graphs.items():
            k = i - param_offset(op)
            if k < 0 or g not in owned(op):
                return None
            p = g.params[k]
            uses_it = bool(self._readers(g, p))
            if op.opdef.structured == "While":
                if name == "cond" and uses_it:
                    return None
                if name == "body" and (g.results[k] is not p or g.results.count(p) > 1):
                    return None
            elif p in g.results:
                return None
            out.append((g, p))
        if op.opdef.structured == "While":
            out.append((graph, op.outputs[i]))
        return out

    def _readers(self, graph: Graph, t: Tensor) -> list[tuple[Operation, int]]:
        """Readers of the handle `t` in `graph`, each with the position of the input."""
        if graph not in self.readers:
            mine = (op for op in graph.operations if graph is not self.root or op not in self.covered)
            uses = walk.uses(op for op in mine if any(x.dtype is dtypes.resource for x in op.inputs))
            self.readers[graph] = uses
        return self.readers[graph].get(t, [])

    # *** threading ***

    def _convert(self, state: _State, graph: Graph) -> None:
        op = state.op
        b = self.builder(op, graph)
        size = op.inputs[0]
        if op.type == "StackV2":
            first = b.EmptyTensorList(_shape(b, None), size, element_dtype=state.dtype)
        else:
            first = b.TensorListReserve(_shape(b, state.element), size, element_dtype=state.dtype)
        last = self._thread(state, graph, first)
        for g in state.gradients.values():
            self._thread(g, graph, b.ZerosLike(last))

    def _thread(self, state: _State, graph: Graph, value: Tensor) -> Tensor:
        """Threads the list `value` through the operations of `graph`; returns the final list."""
        uses = state.uses.get(graph, {})
        for op in self._order(graph):
            if op not in uses:
                continue
            kind = op.opdef.structured
            if kind == "While":
                param, out = add_values.add_variable(op, value, _name(state))
                body = dict(bodies(op))["body"]
                end = self._thread(state, body, param)
                if end is not param:
                    add_values.set_result(op, len(op.outputs) - 1, end)
                    value = out
            elif kind:
                params = add_values.add_input(op, value, _name(state))
                ends = [self._thread(state, p.op.graph, p) for p in params]
                if ends != params:
                    value = add_values.add_result(op, ends)
                    value.replace_static(value.shape, ends[0].handle)
            else:
                value = self._step(state, op, graph, value)
        return value

    def _order(self, graph: Graph) -> list[Operation]:
        if graph not in self.orders:
            self.orders[graph] = walk.in_order(self.ops(graph))
        return self.orders[graph]

    def _step(self, state: _State, op: Operation, graph: Graph, value: Tensor) -> Tensor:
        if op.type == "TensorArrayGradV3":
            self.instead[op.outputs[1]] = self.now(op.inputs[1])
        else:
            args = [self.now(t) for t in op.inputs[1:]]
            value, *results = _RULES[op.type](self.builder(op, graph), state, value, args, op)
            for old, new in zip(op.outputs, results, strict=True):
                if new.shape is None:
                    new.refine(old.shape)
                self.instead[old] = new
        self.removed.add(op)
        return value

    def builder(self, op: Operation, graph: Graph) -> Builder:
        return Builder(graph, scope=f"{op.name}/", device=op.device, source=op.source, is_ordered=False)

    def _finish(self, graph: FuncGraph) -> None:
        """Replaces inputs, control inputs and results in a graph that an operation owns."""
        edit = Editor(graph)
        for op in graph.operations:
            if op not in self.removed:
                edit.set_inputs(op, [self.now(t) for t in op.inputs])
                edit.set_controls(op, [c for c in self._kept(op.control_inputs) if c is not op])
        controls = [op for op in graph.control_results if op not in self.removed]
        graph.set_results([self.now(t) for t in graph.results], controls)

    def _kept(self, controls: Iterable[Operation]) -> list[Operation]:
        """`controls` with each removed operation replaced by those for which it waited."""
        out: dict[Operation, None] = {}
        todo = list(reversed(list(controls)))
        while todo:
            c = todo.pop()
            if c in self.removed:
                todo += [*c.control_inputs, *(t.op for t in c.inputs if t.op.opdef.facts.effect)]
            else:
                out[c] = None
        return list(out)


def is_flow(t: Tensor) -> bool:
    """Whether `t` is the flow output of an operation on an array."""
    return (
        t.op.type.startswith("TensorArray")
        and t.dtype.base is dtypes.float32
        and t.op.opdef.outs[t.index].name
        in (
            "flow",
            "flow_out",
        )
    )


def _name(state: _State) -> str:
    return state.op.name.rpartition("/")[2]


def _shape(b: Builder, shape: Shape) -> Tensor:
    """The shape as an input of list operations."""
    return b.const(-1 if shape is None else [-1 if d is None else d for d in shape], dtypes.int32, "element_shape")


# *** rules for single operations: (the list afterwards, its results) ***


def _push(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    return b.TensorListPushBack(value, args[0]), args[0]


def _pop(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    out: Sequence[Tensor] = b.TensorListPopBack(value, _shape(b, op.outputs[0].shape), element_dtype=s.dtype)
    return out


def _close(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    return (value,)


def _item(b: Builder, s: _State, value: Tensor, index: Tensor, shape: Any) -> Tensor:
    out: Tensor = b.TensorListGetItem(value, index, shape, element_dtype=s.dtype)
    return out


def _read(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    return value, _item(b, s, value, args[0], _shape(b, op.outputs[0].shape or s.element))


def _write(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    index, item, flow = args
    if s.adds:
        item = b.AddV2(_item(b, s, value, index, b.Shape(item)), item)
    return b.TensorListSetItem(value, index, item, resize_if_index_out_of_bounds=s.grows), flow


def _rows(b: Builder, s: _State, value: Tensor, indices: Tensor, shape: Shape) -> Tensor:
    out: Tensor = b.TensorListGather(value, indices, _shape(b, shape), element_dtype=s.dtype)
    return out


def _gather(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    shape = op.attrs["element_shape"]
    return value, _rows(b, s, value, args[0], s.element if shape is None else shape)


def _scatter(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    indices, items, flow = args
    if s.adds:
        items = b.AddV2(_rows(b, s, value, indices, s.element), items)
    return b.TensorListScatterIntoExistingList(value, items, indices), flow


def _size(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    return value, b.TensorListLength(value)


def _concat(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    rest = op.attrs["element_shape_except0"]
    shape = _shape(b, None if rest is None else (None, *rest))
    joined, lengths = b.TensorListConcatV2(value, shape, b.const([], dtypes.int64), element_dtype=s.dtype)
    return value, joined, lengths


def _split(b: Builder, s: _State, value: Tensor, args: list[Tensor], op: Operation) -> Sequence[Tensor]:
    items, lengths, flow = args
    rest = None if items.shape is None else (None, *items.shape[1:])
    return b.TensorListSplit(items, _shape(b, rest), lengths), flow


_MAKERS = ("StackV2", "TensorArrayV3")
_RULES: dict[str, Callable[..., Sequence[Tensor]]] = {
    "StackPushV2": _push,
    "StackPopV2": _pop,
    "StackCloseV2": _close,
    "TensorArrayReadV3": _read,
    "TensorArrayWriteV3": _write,
    "TensorArrayGatherV3": _gather,
    "TensorArrayScatterV3": _scatter,
    "TensorArraySizeV3": _size,
    "TensorArrayConcatV3": _concat,
    "TensorArraySplitV3": _split,
    "TensorArrayCloseV3": _close,
}
