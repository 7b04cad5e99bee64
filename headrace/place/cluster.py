"""Cluster model: devices and links of a step, with their speeds.

A `Cluster` describes devices for the cost model, and need not exist. The placer and the simulator use its numbers only,
so a plan for eight machines can be made, and its makespan predicted, on a laptop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from headrace import thresholds
from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.records import record


@record(frozen=True, slots=True)
class DeviceModel:
    """Speed of a device in the cost model.

    Attributes:
      name: the full name, such as "/job:localhost/replica:0/task:0/device:CPU:1".
      flops: floating-point operations per second.
      bandwidth: bytes per second that it reads and writes in memory.
      overhead: the least number of seconds of any op.

    Example:
      >>> import headrace as hr
      >>> hr.DeviceModel("/device:GPU:0", flops=1e12).flops
      1000000000000.0
    """

    name: str
    flops: float = thresholds.DEVICE_FLOPS
    bandwidth: float = thresholds.DEVICE_BANDWIDTH
    overhead: float = thresholds.OPERATION_OVERHEAD

    @property
    def type(self) -> str:
        """The type of the device, such as "CPU", by which kernels are found."""
        return DeviceSpec.from_string(self.name).type or ""


@record(frozen=True, slots=True)
class Link:
    """Speed of the connection of two devices.

    Attributes:
      latency: seconds from the sending of an empty token to its arrival.
      bandwidth: bytes per second.

    Example:
      >>> import headrace as hr
      >>> hr.Link(latency=1e-4, bandwidth=1e9).bandwidth
      1000000000.0
    """

    latency: float = thresholds.LINK_LATENCY
    bandwidth: float = thresholds.LINK_BANDWIDTH

    def seconds(self, size: float) -> float:
        """Seconds that a token of `size` bytes takes."""
        return self.latency + size / self.bandwidth


@record(frozen=True, slots=True)
class Cluster:
    """Devices and the links between them.

    Args:
      devices: at least one device; their names are full and differ. The first is the default.
      link: the link between any two of them.
      links: (from, to) → the link of these two in place of `link`.

    Raises:
      InvalidArgumentError: no devices; equal names; a name that is not full; a link of an unknown device.

    Example:
      >>> cluster = Cluster.local([f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)])
      >>> cluster.between(*[d.name for d in cluster.devices]).seconds(0) > 0
      True
    """

    devices: tuple[DeviceModel, ...]
    link: Link = Link()
    links: Mapping[tuple[str, str], Link] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [d.name for d in self.devices]
        if not names:
            raise InvalidArgumentError("a cluster needs at least one device")
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"two devices of a cluster have the same name: {', '.join(names)}")
        for name in names:
            if not DeviceSpec.from_string(name).is_full:
                raise InvalidArgumentError(
                    f"{name!r} is not the full name of a device; '/job:localhost/replica:0/task:0/device:CPU:0' is one"
                )
        unknown = sorted({end for pair in self.links for end in pair} - set(names))
        if unknown:
            raise InvalidArgumentError(f"a link joins {', '.join(unknown)}; the devices are {', '.join(names)}")

    @staticmethod
    def local(names: Iterable[str]) -> Cluster:
        """Returns a cluster of logical devices of one process.

        Each device is a core, and tokens cross by reference.
        """
        return Cluster(tuple(DeviceModel(name) for name in names))

    @staticmethod
    def remote(names: Iterable[str], network: Link) -> Cluster:
        """Returns a cluster of devices of several processes.

        Args:
          names: the full names of the devices.
          network: the link between devices of different tasks. Between devices of one task tokens cross by reference.
        """
        models = tuple(DeviceModel(name) for name in names)
        tasks: dict[str, list[str]] = {}
        for name in names:
            tasks.setdefault(name.rpartition("/device:")[0], []).append(name)
        inside = {(a, b): Link() for of in tasks.values() for a in of for b in of}
        return Cluster(models, network, inside)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices, in order."""
        return tuple(d.name for d in self.devices)

    def between(self, source: str, target: str) -> Link:
        """Link from the device `source` to `target`."""
        return self.links.get((source, target), self.link)
