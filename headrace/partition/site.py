"""A part under construction: one device's graph and its counterparts of the whole graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir.builder import Builder
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.source import Source


class Site:
    """A part under construction.

    Args:
      device: the full name of its device.
      label: the name of the device in names of operations.
      originals: the operations of the whole graph that will have a copy in the part. Their names are reserved.

    Attributes:
      device: the full name of its device.
      label: the name of the device in names of operations.
      originals: the operations of the whole graph that will have a copy in the part.
      graph: the graph of the part.
      ops: operation of the whole graph → its copy.
      tensors: tensor of the whole graph → its counterpart: an output of a copy, or of a Recv.
    """

    def __init__(self, device: str, label: str, originals: Sequence[Operation]) -> None:
        self.device = device
        self.label = label
        self.originals = originals
        self.graph = Graph()
        self.ops: dict[Operation, Operation] = {}
        self.tensors: dict[Tensor, Tensor] = {}
        if originals:
            self.graph.share_functions(originals[0].graph)
        for op in originals:
            self.graph.unique_name(op.name)

    def builder(self, source: Source | None, after: Iterable[Operation] = ()) -> Builder:
        """Returns a builder of operations of this part that have no original."""
        return Builder(self.graph, device=self.device, control_inputs=tuple(after), source=source)


def labels(devices: Iterable[str]) -> dict[str, str]:
    """Returns a short name of each device, for names of operations.

    The name is "CPU_1", or "worker_0_2_CPU_1" if the devices are in different processes.
    """
    specs = {d: DeviceSpec.from_string(d) for d in devices}
    alone = len({(s.job, s.replica, s.task) for s in specs.values()}) == 1
    return {
        d: f"{s.type}_{s.index}" if alone else f"{s.job}_{s.replica}_{s.task}_{s.type}_{s.index}"
        for d, s in specs.items()
    }
