"""Device requests of operations, before they are placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested_operations

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


def inherit_devices(ops: Sequence[Operation], graph: Graph) -> None:
    """Copies device requests to operations that are colocated with pruned operations.

    Args:
      ops: the operations of the step; those without a request of their own are changed.
      graph: the user's graph, which has the pruned operations too.
    """
    there = {op.name for op in ops}
    for op in ops:
        for entry in op.attrs.get("_class", ()) if not op.device else ():
            name = entry.removeprefix("loc:@")
            other = None if name in there else graph.find(name)
            if other is not None and other.device:
                Editor(op.graph).set_device(op, other.device)
                break


def check_devices(ops: Sequence[Operation], names: Sequence[str], soft: bool) -> None:
    """Checks that each operation may run on one of the devices `names`.

    Args:
      ops: the operations.
      names: the full names of the devices.
      soft: whether an operation may run on another device than the requested one; if so, nothing is checked.

    Raises:
      InvalidArgumentError: an operation that requests another device.
    """
    if soft:
        return
    for op in nested_operations(ops, calls=True):
        if op.device:
            spec: Any = DeviceSpec.from_string(op.device)
            if not any(spec.matches(DeviceSpec.from_string(d)) for d in names):
                there = ", ".join(names)
                raise InvalidArgumentError(
                    f"Cannot assign a device for operation {op.name}: it requests {op.device!r}, and this session has "
                    f"{there}. Set allow_soft_placement to run it on an available device.",
                    op.name,
                    op,
                )


def owns_state(op: Operation) -> bool:
    """Whether `op` makes the handle of a resource or the reference to a variable."""
    return not op.inputs and any(t.dtype.is_ref or t.dtype == dtypes.resource for t in op.outputs)
