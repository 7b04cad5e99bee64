"""Specializes the graph of a step to the shapes of its feeds.

Programs leave dimensions unknown, above all the batch size, so that one graph serves any size. But with an unknown
batch size even `x * y` might broadcast. Its gradient must find the dimensions to sum over at run time, its result
cannot be written over one of its inputs, and the rows of all time steps cannot be put into one array before the loop.
So a step with loops is compiled for the shapes that are fed (`compiled_step.CompiledStep`). `specialize` propagates
these shapes through the whole graph, as if they had been stated where it was built.

Most of this is a second inference, from the feeds on. Two cases need care:

**Loops.** The shape of a loop variable covers its shapes in all iterations. The shape of the initial value is more
precise now. Whether the next value is more precise too depends on the assumption about the variable. So the algorithm
first assumes exactly the shape of the initial value, and infers the body. If the result is less precise, the variable
gets a shape that covers both, and the body is inferred again. `ir.analysis.loop_shapes` uses the same fixed-point
iteration.

**Lists.** A list states the shape of its elements as far as it was known when the list was made, perhaps [?, 128].
Every element that is taken out was put in. So if all operations put in elements of shape [32, 128], all elements have
that shape. If all put in one constant (loops keep shapes for their gradients), each element is that constant.
`list_flow` follows the list from its creation to find the operations that put elements in. A list that was made for as
many elements as a tensor has rows has a known length now, and so have its elements as the rows of one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, shapes, thresholds
from headrace.ir import walk
from headrace.ir.attr_values import equal
from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested_operations, owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value, forget, infer_more
from headrace.ir.notes import ResidualPop
from headrace.ir.static_info import merged
from headrace.optimize.list_flow import FOLLOWED, ListFlow, ListLengths

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


def specialize(graph: Graph, known: Mapping[Tensor, Shape]) -> None:
    """Propagates the shapes of some tensors through a graph and its nested graphs.

    Args:
      graph: a private copy, whose operations own private copies of their graphs.
      known: more precise shapes of outputs of operations without inputs, consistent with their static shapes.

    Example:
      >>> from headrace.ir.text import from_text
      >>> g = from_text('''
      ... x = _Arg[T=float32, index=0, shape=[?, 2]]
      ... y = Neg(x)
      ... ''')
      >>> x, y = g.operations
      >>> specialize(g, {x.outputs[0]: (3, 2)})
      >>> y.outputs[0].shape
      (3, 2)
    """
    for t, shape in known.items():
        t.refine(shape)
    _infer(graph, 0)
    flow = ListFlow(graph)
    for _ in range(thresholds.SPECIALIZE_LIST_ROUNDS):
        elements = [op for op in flow.new if _know_elements(op, flow)]
        values = [op for op in flow.new if _know_values(op, flow)]
        lengths = _know_lengths(graph)
        if not elements and not values and not lengths:
            break
        _infer(graph, 0)


# *** inference ***


def _infer(graph: Graph, depth: int) -> None:
    """Infers static information of every tensor of `graph` again, from that of operations without inputs."""
    for op in walk.toposort(graph.operations):
        if op.opdef.structured:
            _look_into(op, depth)
        if op.inputs:
            forget(op)
            infer_more(op)


def _look_into(op: Operation, depth: int) -> None:
    """Infers static information in the graphs of a structured operation."""
    graphs = owned(op)
    if op.opdef.structured not in FOLLOWED or not graphs:
        return
    args = op.inputs[param_offset(op) :]
    if op.opdef.structured != "While":
        for g in graphs:
            for p, t in zip(g.params, args, strict=True):
                p.replace_static(*_entering(p, t))
            _infer(g, depth)
        return
    if len(graphs) < 2 or depth >= thresholds.SPECIALIZE_DEPTH:
        return
    before = _Facts(graphs)
    body: FuncGraph = op.attrs["body"]
    stated = [(p.shape, p.handle) for p in body.params]
    supposed = [_entering(p, t) for p, t in zip(body.params, args, strict=True)]
    for _ in range(thresholds.SPECIALIZE_ROUNDS):
        for g in graphs:
            for p, known in zip(g.params, supposed, strict=True):
                p.replace_static(*known)
            _infer(g, depth + 1)
        covering = [_covering(*each) for each in zip(stated, supposed, body.results, strict=True)]
        if covering == supposed:
            return
        before.restore()
        supposed = covering
    for g in graphs:
        _infer(g, depth + 1)


def _entering(p: Tensor, t: Tensor) -> tuple[Shape, Any]:
    """Static information of a parameter `p` whose argument is `t`."""
    try:
        return merged((p.shape, p.handle), (t.shape, t.handle))
    except ValueError:
        return p.shape, p.handle


def _covering(stated: tuple[Shape, Any], supposed: tuple[Shape, Any], result: Tensor) -> tuple[Shape, Any]:
    """Static information that covers a variable's `supposed` one and that of its next value, `result`."""
    shape = shapes.merge(stated[0], shapes.join(supposed[0], result.shape))
    return shape, supposed[1] if supposed[1] == result.handle else stated[1]


class _Facts:
    """Saved static information of all tensors in some graphs and their nested graphs."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        ops = nested_operations(op for g in graphs for op in g.operations)
        self._facts = [(t, t.shape, t.handle, t._constant) for op in ops for t in op.outputs]

    def restore(self) -> None:
        for t, shape, handle, constant in self._facts:
            t.replace_static(shape, handle)
            t._constant = constant


# *** lists ***


def _know_elements(op: Operation, flow: ListFlow) -> bool:
    """Infers the element shape of a new list; returns whether it became more precise."""
    out = op.outputs[0]
    if out.handle is None or out.handle[0] in dtypes.OBJECT or shapes.is_full(out.handle[1]):
        return False
    shape = flow.element_shape(out)
    if shape is None or not shapes.covers(out.handle[1], shape):
        return False
    out.refine(handle=(out.handle[0], shape))
    return True


def _know_values(op: Operation, flow: ListFlow) -> bool:
    """Replaces pops of a list by the constant of its elements; returns whether it did.

    This is done only in the gradient of a loop, which pops as often as the loop pushed. A pop from a list of the user
    may fail, and must still fail.
    """
    uses = flow.of(op.outputs[0]) if op.opdef.list_kind == "empty" else None
    if uses is None or uses.is_indexed or uses.is_computed or not uses.put or not uses.pops:
        return False
    if not all(ResidualPop in op.notes for op in uses.pops):
        return False
    values = [constant_value(t) for t in uses.put]
    first = values[0]
    if first is None or not all(v is not None and equal(v, first) for v in values):
        return False
    changed = False
    for pop in uses.pops:
        graph, got = pop.graph, pop.outputs[1]
        edit = Editor(graph)
        if edit.is_used(got):
            attrs = {"value": first, "dtype": got.dtype}
            const = graph.add_op("Const", graph.unique_name(f"{pop.name}/value"), (), attrs, (), pop.device, pop.source)
            const.outputs[0].refine(first.shape)
            edit.replace(got, const.outputs[0])
            edit.put_first(const)
            changed = True
    return changed


def _know_lengths(graph: Graph) -> bool:
    """States the lengths of lists that become tensors; returns whether one is new."""
    lengths, changed = ListLengths(graph), False
    for op in nested_operations(graph.operations):
        if op.opdef.list_kind == "stack" and op.attrs["num_elements"] < 0:
            n = lengths.of(op.inputs[0])
            if n is not None:
                Editor(op.graph).set_attr(op, "num_elements", n)
                changed = True
    return changed
