"""Operations with copies on several devices: small constants, and the Enters of loop constants.

**Constants.** To send a value of a few bytes costs more than to keep it on both devices. So a small constant is copied
to each device that reads it.

**Enters.** An Enter of a loop constant brings its value into every iteration of a loop, so its output would be sent
once for each iteration. If the Enter is copied, the value *before* the Enter is sent, once for each time the loop is
entered, and the copy of the Enter brings it into each iteration on the other device. A constant of an outer loop that
is read in an inner one passes two Enters. Both are copied, so the value is sent outside both loops.

An Enter without a reader on its own device has no copy there. Otherwise this device would take part in a loop in which
it computes nothing.

**Buffers.** Two devices share no buffer, except by sending it, because a graph that works between two threads must also
work between two machines. So each copy of a constant has an array of its own (`Buffers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import dtypes, thresholds
from headrace.ir import walk
from headrace.ir.attr_values import first_element, is_splat
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, find_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ir.graph import Operation

Where: TypeAlias = "Mapping[Operation, Sequence[str]]"  # the devices with a copy of each operation


def standing(order: Sequence[Operation], of: Mapping[Operation, str]) -> Where:
    """Devices of each operation's copies, at least one; usually the device in `of`.

    Args:
      order: the operations in topological order, without the back edges of loops.
      of: the placement: the device of each operation.
    """
    readers: dict[Operation, dict[str, None]] = {}
    where: dict[Operation, tuple[str, ...]] = {}
    for op in reversed(order):
        wanted = tuple(readers.get(op, ())) if is_copied(op) else ()
        found = tuple(d for d in wanted if _may_stand(op, d))
        where[op] = found if found and found == wanted else tuple(dict.fromkeys((*found, of[op])))
        for p in walk.predecessors(op):
            if is_copied(p):
                readers.setdefault(p, {}).update(dict.fromkeys(where[op]))
    return where


def is_copied(op: Operation) -> bool:
    """Whether each device that reads `op` has a copy of it."""
    if op.type == "Const" and not op.control_inputs:
        value = op.attrs["value"]
        return (
            isinstance(value, np.ndarray)
            and value.nbytes <= thresholds.COPIED_CONSTANT_BYTES
            and op.outputs[0].dtype is not dtypes.resource
        )
    return op.opdef.primitive == "Enter" and bool(op.attrs["is_constant"])


def _may_stand(op: Operation, device: str) -> bool:
    """Whether a copy of `op` may be on `device`. A constant needs a kernel there."""
    type = DeviceSpec.from_string(device).type or CPU
    return bool(op.opdef.primitive) or find_kernel(op, type) is not None


class Buffers:
    """Owners of the arrays of constants: no array belongs to two devices."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def attrs_on(self, op: Operation, device: str) -> dict[str, Any]:
        """Returns the attributes of a copy of `op` on `device`."""
        if op.type != "Const" or not isinstance(op.attrs["value"], np.ndarray):
            return op.attrs
        value = op.attrs["value"]
        if self._owners.setdefault(id(_storage(value)), device) == device:
            return op.attrs
        return {**op.attrs, "value": _duplicate(value)}


def _storage(array: np.ndarray) -> object:
    """Object with the elements of `array`: the array itself, or the base of the view."""
    found: object = array
    while isinstance(found, np.ndarray) and found.base is not None:
        found = found.base
    return found


def _duplicate(array: np.ndarray) -> np.ndarray:
    """Copies `array`. An array of equal elements stays a broadcast view of a single one."""
    if is_splat(array):
        return np.broadcast_to(first_element(array).copy().reshape(()), array.shape)
    out = array.copy()
    out.flags.writeable = False
    return out
