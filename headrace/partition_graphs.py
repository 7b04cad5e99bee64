"""Graphs that the devices of a step run, as messages: `RunMetadata.partition_graphs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import UnimplementedError
from headrace.ir.serial.graphdef import export_graph_def

if TYPE_CHECKING:
    from headrace.compiled_step import CompiledStep
    from headrace.ir.graph import Graph
    from headrace.pb import GraphDef


def partition_graphs(step: CompiledStep, device: str) -> list[GraphDef]:
    """Returns a `GraphDef` for each device of a step, with its operations after the optimizer.

    A step that runs as one function, or on one device, has one graph. Feeds are `_Arg` and fetches `_Retval`
    operations. Operations that are fused at run time are listed as they were before.

    Args:
      step: the step.
      device: full name of the device of a step that names none.

    Raises:
      UnimplementedError: other processes have compiled the step.
    """
    parts = step.parts
    if parts:
        return [_message(part.graph, name) for name, part in parts.items()]
    if step.compiled is None and not step.plans:
        raise UnimplementedError(
            "output_partition_graphs: the workers of a cluster have the graphs of this step; "
            "`Session.explain` tells how they run it"
        )
    return [_message(step.graph.graph, step.device or device)]


def _message(graph: Graph, device: str) -> GraphDef:
    out = export_graph_def(graph)
    for node in out.node:
        node.device = node.device if "/task:" in node.device else device
    return out
