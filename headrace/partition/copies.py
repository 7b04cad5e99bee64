"""Operations that stand on several devices: small constants, and the Enters of loop constants.

To send a value of a few bytes costs more than to have it in both places, so a small constant is copied to each device
that reads it. An Enter of a loop constant must be copied: it brings its value into every iteration of a loop, and what
comes out of it would have to cross once an iteration. Copied, it is the value *before* the Enter that crosses, once for
each time the loop is entered, and an Enter on the other side brings it into each iteration there. For a constant of an
outer loop that is used in an inner one, which goes through two Enters, this holds twice; so it crosses outside both.

An Enter that nobody reads on the device it was placed on does not stand there at all, lest a device take part in a loop
that it has nothing to do in.

No two devices may see one buffer, except by sending it: what works between two threads must work between two machines.
So each copy of a constant has an array of its own (`Buffers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.attr_values import first_element, is_splat
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, find_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ir.graph import Operation

Where: TypeAlias = "Mapping[Operation, Sequence[str]]"  # the devices that each operation stands on

SMALL: Final = 1 << 16  # bytes of a constant that is copied


def standing(order: Sequence[Operation], of: Mapping[Operation, str]) -> Where:
    """The devices that each operation stands on, at least one; of most, the one in `of`.

    Args:
      order: the operations, each after what it waits for, back edges of loops aside.
      of: the device that each was placed on.
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
    """Whether `op` stands on each device that reads it."""
    if op.type == "Const" and not op.control_inputs:
        value = op.attrs["value"]
        return isinstance(value, np.ndarray) and value.nbytes <= SMALL and op.outputs[0].dtype is not dtypes.resource
    return op.opdef.primitive == "Enter" and bool(op.attrs["is_constant"])


def _may_stand(op: Operation, device: str) -> bool:
    """Whether a copy of `op` may be on `device`: of a constant, if there is a kernel for it."""
    type = DeviceSpec.from_string(device).type or CPU
    return bool(op.opdef.primitive) or find_kernel(op, type) is not None


class Buffers:
    """Which device has which array, so that no other gets it."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def attrs_on(self, op: Operation, device: str) -> dict[str, Any]:
        """The attributes of a copy of `op` that stands on `device`."""
        if op.type != "Const" or not isinstance(op.attrs["value"], np.ndarray):
            return op.attrs
        value = op.attrs["value"]
        if self._owners.setdefault(id(_storage(value)), device) == device:
            return op.attrs
        return {**op.attrs, "value": _duplicate(value)}


def _storage(array: np.ndarray) -> object:
    """What holds the elements of `array`: itself, or what it is a view of."""
    found: object = array
    while isinstance(found, np.ndarray) and found.base is not None:
        found = found.base
    return found


def _duplicate(array: np.ndarray) -> np.ndarray:
    """The same elements elsewhere; of one element seen many times, which may have no storage to speak of, that one."""
    if is_splat(array):
        return np.broadcast_to(first_element(array).copy().reshape(()), array.shape)
    out = array.copy()
    out.flags.writeable = False
    return out
