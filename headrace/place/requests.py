"""Device requests of operations, before they are placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested, nested_operations, param_offset
from headrace.ir.kernel import CPU
from headrace.place.constraints import advice

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


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


class WholeStructures:
    """Predicate for conditionals and loops that one device can run whole.

    Their contents request at most one CPU together with the resources that they use. At most one of them may justify a
    thread of its own: several could run on different devices at the same time.

    Args:
      ops: the operations of the step.
      names: the full names of all devices.
      home: returns the device that an operation with state must keep, or None.
      is_heavy: whether an operation justifies a thread of its own.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        names: Sequence[str],
        home: Callable[[str], str | None],
        is_heavy: Callable[[Operation], bool],
    ) -> None:
        #: Parameter of a nested graph → the input of the owner that it stands for, of handles.
        self._passed = {
            graph.params[i]: t
            for owner, graph in nested(ops)
            for i, t in enumerate(owner.inputs, -param_offset(owner))
            if _is_handle(t) and 0 <= i < len(graph.params)
        }
        self._is_heavy = is_heavy
        self._devices = [DeviceSpec.from_string(name) for name in names]
        self._home = home

    def __call__(self, op: Operation) -> bool:
        inside = list(nested_operations([op]))
        handles = [self._maker(t) for t in op.inputs if _is_handle(t)]
        asked = {o.device for o in (*inside, *handles)} | {self._home(o.name) or "" for o in handles}
        specs = [DeviceSpec.from_string(device) for device in asked - {""}]
        can = [d for d in self._devices if d.type == CPU and all(spec.matches(d) for spec in specs)]
        return bool(can) and sum(map(self._is_heavy, inside)) <= 1

    def _maker(self, handle: Tensor) -> Operation:
        """Returns the operation that makes a handle, outside of all nested graphs."""
        while handle in self._passed:
            handle = self._passed[handle]
        return handle.op


def _is_handle(t: Tensor) -> bool:
    return t.dtype is dtypes.resource or t.dtype.is_ref


def request_of(op: Operation) -> str:
    """Returns the requests of `op` and its contents, which agree, as one; "" for none."""
    asked = DeviceSpec()
    for device in {o.device for o in nested_operations([op])}:
        asked = asked.merge(DeviceSpec.from_string(device))
    return str(asked)


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
                    f"{there}. {advice(spec)}",
                    op.name,
                    op,
                )


def owns_state(op: Operation) -> bool:
    """Whether `op` makes the handle of a resource or the reference to a variable."""
    return not op.inputs and any(t.dtype.is_ref or t.dtype == dtypes.resource for t in op.outputs)
