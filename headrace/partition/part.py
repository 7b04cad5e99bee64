"""Part: the share of a step that one device runs, as plain data.

A part has a graph of its own, the graphs of the functions that it calls in frames of their own, and a list of the edges
to other parts. `partition.codec` encodes it to bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dtypes import DType
    from headrace.ir.graph import Graph, Operation
    from headrace.shapes import Shape


@record(frozen=True, slots=True)
class Edge:
    """An edge between two parts, seen from one of them.

    Attributes:
      key: the name that the Send and the Recv of the edge share.
      peer: the full name of the other device.
      is_sent: whether this part sends.
      dtype: the dtype of the values; None for a control edge.
      shape: the static shape of the values; None if unknown.
    """

    key: str
    peer: str
    is_sent: bool
    dtype: DType | None
    shape: Shape


@record(frozen=True, slots=True)
class Part:
    """The part of a step that one device runs.

    Attributes:
      device: the full name of the device.
      graph: a primitive graph of its own. Copies keep the names, attributes, notes, shapes and source lines of their
        originals, and request the device they are on. The name of an additional copy (see `partition.copies`) contains
        its device.
      functions: function that is called in a frame of its own → a copy of its primitive graph for this part.
      edges: the edges to other parts, in the order of their Sends and Recvs in the graph.
    """

    device: str
    graph: Graph
    functions: Mapping[str, Graph]
    edges: tuple[Edge, ...]

    @property
    def ops(self) -> Sequence[Operation]:
        """The operations of the graph."""
        return self.graph.operations

    @property
    def called(self) -> dict[str, Sequence[Operation]]:
        """The operations of each function, by its name."""
        return {name: graph.operations for name, graph in self.functions.items()}


def part_of(device: str, graph: Graph, functions: Mapping[str, Graph]) -> Part:
    """Returns the part with a graph; its Sends and Recvs determine the edges."""
    edges = []
    for op in graph.operations:
        kind, a = op.opdef.primitive, op.attrs
        if kind in ("Send", "Recv"):
            tensors = op.inputs if kind == "Send" else op.outputs
            peer = a["recv_device" if kind == "Send" else "send_device"]
            dtype, shape = (tensors[0].dtype, tensors[0].shape) if tensors else (None, None)
            edges.append(Edge(a["tensor_name"], peer, kind == "Send", dtype, shape))
    return Part(device, graph, functions, tuple(edges))
