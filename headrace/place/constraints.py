"""Constraints: the devices on which each operation may run.

Four rules apply, in this order:

1. *Kernels*: a device must have one for each operation of a colocation group (`colocation` has the groups).
2. A *first* placement: a variable stays on its device.
3. *Requests*: each operation's own device string, any part of which may be left open.
4. If the placement is soft, *relaxation*: of a request that cannot be met, a part is met (the type of device instead of
   its number), or nothing.

**Operations on state yield.** With `v` on one device and `v.read()` in the scope of another, the user expects the value
on the second device, and not an error. So the request of an operation that takes a handle counts only as far as it
agrees with the request of the operation that makes the handle, in soft and in hard placement. The same holds for the
Enter and the NextIteration of a loop variable, which the user does not write: they follow their Merge. Source:
TensorFlow's placer, whose rules, error class and first words are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir import kernel
from headrace.ir.device import GPU, TORCH, DeviceSpec

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.place.cluster import Cluster
    from headrace.place.groups import ColocationConstraints, Group, Groups

_MISSING: Final = "this session does not have"
_LISTED: Final = 20  # operations of a group that an error lists
_SOFTEN: Final = "Set allow_soft_placement to run it on an available device"


class Constraints:
    """Finds the devices of the groups of `colocation`.

    Args:
      colocation: the colocation groups.
      cluster: the available devices.
      soft: whether a request that cannot be met is relaxed; else it is an error.
      first: fixed placements.
      bodies: the operations of functions that are called in frames of their own, with the name of their function.

    Attributes:
      reasons: for each operation whose request was not met, the reason.
    """

    def __init__(
        self,
        colocation: ColocationConstraints,
        cluster: Cluster,
        soft: bool,
        first: Mapping[Operation, str],
        bodies: Mapping[Operation, str],
    ) -> None:
        self._colocation = colocation
        self._soft = soft
        self._first = first
        self._bodies = bodies
        self._devices = {name: DeviceSpec.from_string(name) for name in cluster.names}
        self._types = list(dict.fromkeys(d.type for d in cluster.devices))
        # Merges with a reader of the index of the input that arrived: the executor makes this number on the host
        self._telling = {
            t.op
            for group in colocation.groups
            for op in group.ops
            for t in op.inputs
            if t.index and t.op.opdef.primitive == "Merge"
        }
        self.reasons: dict[Operation, str] = {}

    def solve(self) -> Groups:
        """Returns the groups, with the devices on which each may run.

        Raises:
          InvalidArgumentError: no device is possible for some group.
          UnimplementedError: no device has a kernel for some operation.
        """
        groups = self._colocation.groups
        for group in groups:
            group.devices = self._solve(group)
        return groups

    def _solve(self, group: Group) -> frozenset[str]:
        devices = frozenset(self._devices)
        for op in group.ops:
            devices &= self._able(op)
        if not devices:
            raise self._impossible(group, group.ops[0], "no device has a kernel for each of them")
        devices, who = self._fixed(group, devices)
        asking = sorted((op for op in group.ops if op.device), key=lambda op: (_yields(op), op.id))
        for op in asking:
            met = self._narrowed(group, op, devices, who)
            if met != devices:
                devices, who = met, op
        return devices

    def _able(self, op: Operation) -> frozenset[str]:
        """Devices with a kernel for `op`."""
        if op in self._telling:
            types = [t for t in self._types if t == kernel.CPU or kernel.has_namespace(t or "")]
            return frozenset(name for name, spec in self._devices.items() if spec.type in types)
        if op.opdef.structured and op.opdef.structured != "Call":  # compiled code is for CPUs
            return frozenset(name for name, spec in self._devices.items() if spec.type == kernel.CPU)
        if op.opdef.primitive or op.opdef.structured or op.opdef.facts.graph_end:
            return frozenset(self._devices)
        types = self._types_of_kernels(op)
        if not types:
            raise UnimplementedError(
                f"Cannot assign a device for operation {op.name}: no kernel computes '{op.type}' (operation "
                f"{op.name!r}{_made(op)}) on {' or '.join(self._types)}{self._lack(op, self._types)}",
                op.name,
                op,
            )
        return frozenset(name for name, spec in self._devices.items() if spec.type in types)

    def _fixed(self, group: Group, devices: frozenset[str]) -> tuple[frozenset[str], Operation | None]:
        """Reduces `devices` to the fixed device of the group, if it has one.

        Returns:
          The devices, and the operation that fixes them, or None.
        """
        who: Operation | None = None
        for op in group.ops:
            place = self._first.get(op)
            if place is None:
                continue
            if place not in self._devices:
                raise InvalidArgumentError(
                    f"Cannot assign a device for operation {op.name}: it was placed on {place!r} before, "
                    f"which this session does not have; available: {', '.join(self._devices)}",
                    op.name,
                    op,
                )
            if place not in devices and self._soft and self._hosts(group, place):
                devices = frozenset((place,))
            if place not in devices:
                why = f"'{op.name}' was placed on {place!r} before" + (
                    f", '{who.name}' on another device"
                    if who is not None
                    else ", which does not have kernels for all of them"
                )
                raise self._impossible(group, op, why, who)
            devices, who = frozenset((place,)), op
        return devices, who

    def _types_of_kernels(self, op: Operation) -> list[str]:
        """Types of device that can compute `op`, or on which lists can have their elements."""
        on_any = kernel.keeps_elements(op)
        return [t for t in self._types if kernel.find_kernel(op, t) is not None or (on_any and kernel.has_namespace(t))]

    def _hosts(self, group: Group, device: str) -> bool:
        """Whether a device can have a group that needs kernels of the host.

        The device's type has a namespace. These operations then run on copies (`ir.kernel.host_kernel`).
        """
        if not kernel.has_namespace(self._devices[device].type or ""):
            return False
        lacking = [op for op in group.ops if device not in self._able(op)]
        if any(op.opdef.structured or op in self._telling or kernel.find_kernel(op) is None for op in lacking):
            return False
        for op in lacking:
            self.reasons[op] = (
                f"it is colocated with others on {device!r}, which has no kernel for '{op.type}': the host computes it "
                "on copies"
            )
        return True

    def _narrowed(self, group: Group, op: Operation, devices: frozenset[str], who: Operation | None) -> frozenset[str]:
        """Reduces `devices` to those that `op` requests.

        `who` is the operation whose request or fixed device reduced `devices` last, if any.
        """
        asked = DeviceSpec.from_string(op.device)
        met = self._matching(asked) & devices
        if met:
            return met
        there = self._matching(asked)
        able = there & self._able(op)
        if who is not None and able and _yields(op):
            self.reasons[op] = (
                f"it requests {op.device!r}, but is colocated with '{who.name}' ({self._wanted(who)}): "
                + "; ".join(self._colocation.reasons(op, who))
            )
            return devices
        if able and who is not None and who in self._bodies and op in self._bodies:
            raise self._conflict(group, op, who)
        if not self._soft:
            if not there:
                raise InvalidArgumentError(
                    f"Cannot assign a device for operation {op.name}: it requests {op.device!r}{_made(op)}, and this "
                    f"session has {self._there()}. {advice(asked)}",
                    op.name,
                    op,
                )
            if not able:
                lack = self._lack(op, self._types_of(there))
                raise InvalidArgumentError(
                    f"Cannot assign a device for operation {op.name}: it requests {op.device!r}{_made(op)}, where no "
                    f"kernel computes '{op.type}'{lack}; it can run on {', '.join(sorted(self._able(op)))}. {_SOFTEN}.",
                    op.name,
                    op,
                )
            if who is not None:
                raise self._conflict(group, op, who)
            raise self._impossible(
                group, op, f"'{op.name}' requests a device that does not have kernels for all of them"
            )
        lack = self._lack(op, self._types_of(there))
        lack = f"has no kernel for '{op.type}'{lack}, while {self._have_one(op)} has one"
        why = _MISSING if not there else lack if not able else ""
        why = why or (
            f"conflicts with '{who.name}'" if who is not None else "does not have kernels for all colocated operations"
        )
        for kept in _parts(asked):
            met = self._matching(kept) & devices
            if met:
                self.reasons[op] = _moved(op, why, kept)
                return met
        self.reasons[op] = _moved(op, why, None)
        return devices

    def _matching(self, asked: DeviceSpec) -> frozenset[str]:
        return frozenset(name for name, spec in self._devices.items() if asked.matches(spec))

    def _have_one(self, op: Operation) -> str:
        """Types of device with a kernel for `op`."""
        return " or ".join(self._types_of(self._able(op)))

    def _types_of(self, names: Iterable[str]) -> list[str]:
        """Types of the devices `names`."""
        return list(dict.fromkeys(t for t in (self._devices[name].type for name in sorted(names)) if t))

    def _lack(self, op: Operation, types: Iterable[str]) -> str:
        """Explains that devices of `types` compute `op.type` with other attributes; "" if never."""
        return "".join(kernel.why_none(op, t) for t in types)

    def _there(self) -> str:
        """Short list of the devices by type."""
        counts = Counter(spec.type for spec in self._devices.values())
        return ", ".join(f"{n} x {t}" for t, n in counts.items())

    def _wanted(self, op: Operation) -> str:
        """Describes the request of `op` in words."""
        place = self._first.get(op)
        return (
            f"was placed on {place!r} before"
            if place is not None
            else f"requests {op.device!r}"
            if op.device
            else "requests no device"
        )

    def _conflict(self, group: Group, op: Operation, who: Operation) -> InvalidArgumentError:
        if op in self._bodies and who in self._bodies:
            why = f"the body of the function '{self._bodies[op]}' must be on one device, and requests several"
            return self._impossible(group, op, why, who)
        why = f"'{who.name}' {self._wanted(who)}, '{op.name}' requests {op.device!r}"
        return self._impossible(group, op, why, who)

    def _impossible(
        self, group: Group, op: Operation, why: str, other: Operation | None = None
    ) -> InvalidArgumentError:
        """Returns the error of a group without a possible device.

        The text lists its operations, their requests and the reasons of their colocation.
        """
        telling = [o for o in group.ops if o.device or o in self._first or len(self._able(o)) < len(self._devices)]
        lines = [
            f"  '{o.name}' ({o.type}{_made(o)}) {self._wanted(o)}; it can run on {', '.join(sorted(self._able(o)))}"
            for o in sorted(telling, key=lambda o: (o not in (op, other), o.id))[:_LISTED]
        ]
        if len(lines) < len(group.ops):
            lines.append(f"  and {len(group.ops) - len(lines)} more")
        together = self._colocation.reasons(op, other) if other is not None else []
        if together:
            lines.append("They are colocated because " + "; ".join(together) + ".")
        return InvalidArgumentError(
            f"Cannot assign a device for operation {op.name}: {len(group.ops)} operations must be on one device, "
            f"and no device meets all requirements: {why}.\n" + "\n".join(lines),
            op.name,
            op,
        )


def advice(asked: DeviceSpec, is_soft: bool = False) -> str:
    """Describes what can be done about a request for a missing device; "" for nothing.

    Args:
      asked: the request.
      is_soft: whether the placement is soft already.
    """
    make = ""
    if asked.type in (GPU, TORCH):  # a session has them on request
        devices = f'devices={{"{asked.type}": {(asked.index or 0) + 1}}}'
        make = f"ake the session with {devices}, which needs pip install 'headrace[torch]'."
    if is_soft:
        return f"M{make}" if make else ""
    return f"{_SOFTEN}, or m{make}" if make else f"{_SOFTEN}."


def unmet(ops: Iterable[Operation], names: Sequence[str]) -> dict[Operation, str]:
    """Returns the reason for each operation that requests another device than `names`, under soft placement.

    Args:
      ops: the operations.
      names: the full names of all devices of the session.
    """
    devices = [DeviceSpec.from_string(name) for name in names]
    out: dict[Operation, str] = {}
    for op in ops:
        if op.device:
            asked = DeviceSpec.from_string(op.device)
            if not any(map(asked.matches, devices)):
                kept = next((part for part in _parts(asked) if any(map(part.matches, devices))), None)
                out[op] = _moved(op, _MISSING, kept)
    return out


def _parts(asked: DeviceSpec) -> list[DeviceSpec]:
    """Parts of a request that soft placement may meet alone, the most wanted first."""
    parts = (
        DeviceSpec(asked.job, asked.replica, asked.task, asked.type),
        DeviceSpec(type=asked.type),
        DeviceSpec(asked.job, asked.replica, asked.task),
    )
    return [part for part in parts if part != DeviceSpec()]


def _moved(op: Operation, why: str, kept: DeviceSpec | None) -> str:
    met = "no part of the request is met" if kept is None else f"the part {str(kept)!r} of the request is met"
    return f"it requests {op.device!r}, which {why}; {met}"


def _yields(op: Operation) -> bool:
    """Whether the request of `op` gives way to those of its group.

    It does for operations on state of another operation, and for the Enters and NextIterations of loop variables.
    """
    if op.opdef.primitive in ("Enter", "NextIteration"):
        return True
    return any(d is dtypes.resource or d.is_ref for d in op.opdef.input_dtypes(op.attrs))


def _made(op: Operation) -> str:
    return f", made at {op.source}" if op.source is not None else ""
