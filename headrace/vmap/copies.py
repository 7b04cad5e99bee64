"""Copies of operations that are the same for all examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.ir.edit.copying import copied_attrs
from headrace.ir.edit.editor import Editor

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor


def copied(b: Builder, op: Operation, inputs: Iterable[Tensor]) -> Sequence[Tensor]:
    """Returns the outputs of a copy of `op`.

    Args:
      b: the builder of the copy.
      op: the original.
      inputs: its inputs in the graph of `b`.
    """
    graph = b.graph
    moved: dict[Tensor, Tensor] = {}
    given = list(inputs)
    moved.update(zip(op.inputs, given, strict=True))
    name = graph.unique_name(b.scope + op.name.rpartition("/")[2])
    twin = graph.copy_op(op, given, [], name, device=b.device)
    Editor(graph).set_attrs(twin, copied_attrs(op, graph, moved))
    controls = [graph.capture_control(c) for c in b.control_inputs]
    if graph.order is not None and op.opdef.is_effectful:
        controls += graph.order.after(twin)
    for c in controls:
        if c is not None:
            graph.add_control_input(twin, c)
    return twin.outputs
