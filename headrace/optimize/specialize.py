"""What follows for a step from the shapes that it is fed.

Programs leave dimensions open, most of all that of the batch, so that one graph serves any. But with a batch of an
unknown size even `x * y` might broadcast: its gradient has to find out at run time what to sum over, its result cannot
be written over one of its inputs, the rows of all time steps cannot be put into one array before the loop. So a step
with loops is compiled for the shapes it is fed (`pipeline.CompiledStep`), and what `specialize` does is to let all of
the graph know them, as if they had been stated where it was built.

Most of it is inference once more, from the feeds on. Two things need thought:

**Loops.** A loop variable has a shape that covers those of all iterations. What enters is known better now; whether
what the body makes of it is, too, depends on what is supposed of the variable. So it is supposed to have just the shape
that enters, the body is looked at, and if that gives something less certain, the variable becomes what covers both and
the body is looked at again: the way of `ir.analysis.loop_shapes`.

**Lists.** A list says of what shape its elements are, as far as it was known when the list was made: perhaps
[?, 128]. Whatever is taken out was put in, so if all who put something in put in [32, 128], so are all the elements;
and if all put in one constant (loops keep shapes for their gradients), that is what comes out. Who puts in is found by
following the list from where it was made (`list_flow`).
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
from headrace.ir.static_info import merged
from headrace.optimize.list_flow import FOLLOWED, ListFlow

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


def specialize(graph: Graph, known: Mapping[Tensor, Shape]) -> None:
    """Lets a graph, and the graphs in it, know the shapes of some of its tensors.

    Args:
      graph: a private copy, whose operations own private copies of their graphs.
      known: outputs of operations that have no inputs, and their shapes, which fit what was known of them.

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
        more = [op for op in flow.new if _know_elements(op, flow)]
        if not more:
            break
        _infer(graph, 0)
    for op in flow.new:
        _know_values(op, flow)


# *** inference ***


def _infer(graph: Graph, depth: int) -> None:
    """Finds out what is known of every tensor of `graph`, given what is of those that have no inputs."""
    for op in walk.toposort(graph.operations):
        if op.opdef.structured:
            _look_into(op, depth)
        if op.inputs:
            forget(op)
            infer_more(op)


def _look_into(op: Operation, depth: int) -> None:
    """Finds out what is known in the graphs of a structured operation."""
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
    """What is known of a parameter to which `t` is given."""
    try:
        return merged((p.shape, p.handle), (t.shape, t.handle))
    except ValueError:
        return p.shape, p.handle


def _covering(stated: tuple[Shape, Any], supposed: tuple[Shape, Any], result: Tensor) -> tuple[Shape, Any]:
    """What is known of a variable that was `supposed` to be something, of which the body makes `result`."""
    shape = shapes.merge(stated[0], shapes.join(supposed[0], result.shape))
    return shape, supposed[1] if supposed[1] == result.handle else stated[1]


class _Facts:
    """What was known of all tensors in some graphs, and in those within."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        ops = nested_operations(op for g in graphs for op in g.operations)
        self._facts = [(t, t.shape, t.handle, t._constant) for op in ops for t in op.outputs]

    def restore(self) -> None:
        for t, shape, handle, constant in self._facts:
            t.replace_static(shape, handle)
            t._constant = constant


# *** lists ***


def _know_elements(op: Operation, flow: ListFlow) -> bool:
    """Finds out of what shape the elements of a new list are; whether that is more than was known."""
    out = op.outputs[0]
    if out.handle is None or out.handle[0] in dtypes.OBJECT or shapes.is_full(out.handle[1]):
        return False
    uses = flow.of(out)
    if uses is None:
        return False
    found = {t.shape for t in uses.put}
    if op.opdef.list_kind == "from_tensor":
        rows = op.inputs[0].shape
        found.add(None if rows is None else rows[1:])
    if len(found) != 1:
        return False
    shape = found.pop()
    if not shapes.is_full(shape) or not shapes.covers(out.handle[1], shape):
        return False
    out.refine(handle=(out.handle[0], shape))
    return True


def _know_values(op: Operation, flow: ListFlow) -> None:
    """Puts a constant in the place of what is popped from a list that got nothing else.

    Only in the gradient of a loop, which pops as often as the loop pushed: from a list of the user's own, the pop may
    fail, and must still do so.
    """
    uses = flow.of(op.outputs[0]) if op.opdef.list_kind == "empty" else None
    if uses is None or uses.is_indexed or not uses.put or not uses.pops:
        return
    if not all(op.attrs.get("_accumulated") for op in uses.pops):
        return
    values = [constant_value(t) for t in uses.put]
    first = values[0]
    if first is None or not all(v is not None and equal(v, first) for v in values):
        return
    for pop in uses.pops:
        graph, got = pop.graph, pop.outputs[1]
        edit = Editor(graph)
        if edit.is_used(got):
            attrs = {"value": first, "dtype": got.dtype}
            const = graph.add_op("Const", graph.unique_name(f"{pop.name}/value"), (), attrs, (), pop.device, pop.source)
            const.outputs[0].refine(first.shape)
            edit.replace(got, const.outputs[0])
            edit.put_first(const)
