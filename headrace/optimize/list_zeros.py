"""Makes the zeros of a list a list of elements that are not set.

    ZerosLike(list)     becomes     TensorListReserve(shape, TensorListLength(list))

The gradient of an element that is read from a list puts the gradient of this element into the zeros of the list.
Elements that are not set are read as zeros, and take no memory. The compiler changes a reserved list in place
(`schedule.lists`). The elements must be numbers of one known shape: that of the list, or of all tensors that are put
into it (`list_flow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes, shapes
from headrace.ir.builder import Builder
from headrace.ir.function import inside_out, nested_operations
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.list_flow import ListFlow
from headrace.optimize.queries import other_device, primitives
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


class ReserveZeros(Pass):
    """Pass that reserves lists in place of lists of zeros."""

    name = "list_zeros"
    whole = True
    grows = True

    def requires(self, graph: Graph) -> str:
        return next((why for g in inside_out(graph) if (why := primitives(g))), "")

    def call(self, graph: Graph, context: PassContext) -> bool:
        if not any(map(_is_zeros, nested_operations(graph.operations))):
            return False
        elements = _element_shapes(graph)
        changed = [_reserve(g, elements, context) for g in list(inside_out(graph))]
        return any(changed)


def _is_zeros(op: Operation) -> bool:
    return op.type == "ZerosLike" and op.inputs[0].dtype.base is dtypes.variant


def _element_shapes(graph: Graph) -> dict[Tensor, Shape]:
    """Shape of the elements of each version of the lists for which it is known."""
    flow = ListFlow(graph)
    found: dict[Tensor, Shape] = {}
    for op in flow.new:
        shape = flow.element_shape(op.outputs[0])
        uses = None if shape is None else flow.of(op.outputs[0])
        if uses is not None:
            found.update(dict.fromkeys(uses.versions, shape))
    return found


def _reserve(graph: Graph, elements: dict[Tensor, Shape], context: PassContext) -> bool:
    walking = Rewriter(graph, context)
    for op in walking:
        if not _is_zeros(op) or op in walking.preserved or op.control_inputs or "_class" in op.attrs:
            continue
        values = op.inputs[0]
        if values.handle is None or values.handle[0] in dtypes.OBJECT or other_device([op]):
            continue
        shape = values.handle[1] if shapes.is_full(values.handle[1]) else elements.get(values)
        if shape is None:
            context.refused("list_zeros", op, "the shape of the elements is unknown")
            continue
        known = len(graph.operations)
        b = Builder(graph, device=op.device, source=op.source)
        n = b.TensorListLength(values, name=f"{op.name}/length")
        made = b.TensorListReserve(b.const(shape, dtypes.int32), n, element_dtype=values.handle[0], name=op.name)
        for new in graph.operations[known:]:
            walking.insert(new)
        walking.replace(op, [made], (made.op,))
        context.fired("list_zeros", op, "the elements of a list of zeros need not be set")
    return walking.finish()
