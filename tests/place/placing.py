"""Text in, placement out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.grad.differentiate import differentiate
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.kernel import override
from headrace.ir.text import from_text
from headrace.lower import Lowered, lower
from headrace.place import Cluster, DeviceModel, place
from headrace.prune import prune

TASK = "/job:localhost/replica:0/task:0/device:"


def cluster(*devices: str) -> Cluster:
    """`cluster("CPU:0", "CPU:1")`; those two if nothing is given."""
    return Cluster(tuple(DeviceModel(TASK + d) for d in devices or ("CPU:0", "CPU:1")))


def short(device: str) -> str:
    """ "CPU:1" of a full name."""
    return device.removeprefix(TASK)


def placed(text: str | Graph, devices: Cluster | None = None, **options: Any) -> dict[str, str]:
    """Name of an operation → "CPU:1"."""
    graph = from_text(text) if isinstance(text, str) else text
    found = place(graph.operations, devices or cluster(), **options)
    assert set(found.of) == set(graph.operations)
    return {op.name: short(device) for op, device in found.of.items()}


def lowered(fetches: Sequence[Tensor], feeds: Sequence[Tensor] = ()) -> Lowered:
    """The primitive form of a step."""
    return lower(prune(list(feeds), list(fetches), []).graph, [], differentiate)


def named(ops: Sequence[Operation], of: dict[Operation, str]) -> dict[str, str]:
    """The same as `placed` gives."""
    return {op.name: short(of[op]) for op in ops}


# A type of device that can do little: multiply matrices, and hand things on.
for _op in ("MatMul", "Identity", "NoOp"):

    @override(_op, "SLIM")
    def _kernel(attrs: Any) -> Callable[..., Any]:
        return lambda *x: x[0]
