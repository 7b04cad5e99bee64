"""The devices that a step may use, as the cost model sees them: how fast they compute, and how fast they are joined.

A `Cluster` need not exist. The placer and the simulator ask it for numbers only, so a plan for eight machines can be
made, and its makespan predicted, on a laptop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec

# One core of a present machine, with numpy's BLAS: the figures are rough, and measured costs take their place
# (`costs.Costs`). What matters is their order: an op costs microseconds, a crossing tens of them.
_FLOPS: Final = 4e10
_BANDWIDTH: Final = 8e9
_OVERHEAD: Final = 2e-6
_LATENCY: Final = 5e-5
_LINK_BANDWIDTH: Final = 2e10


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceModel:
    """A device, to the cost model.

    Attributes:
      name: its full name, "/job:localhost/replica:0/task:0/device:CPU:1".
      flops: floating-point operations a second.
      bandwidth: bytes a second that it reads and writes memory with.
      overhead: seconds that any op takes, however little it does.
    """

    name: str
    flops: float = _FLOPS
    bandwidth: float = _BANDWIDTH
    overhead: float = _OVERHEAD

    @property
    def type(self) -> str:
        """ "CPU", "GPU", ...; what kernels are found by."""
        return DeviceSpec.from_string(self.name).type or ""


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """What joins two devices.

    Attributes:
      latency: seconds from the sending of a token to its arrival, if it is empty.
      bandwidth: bytes a second.
    """

    latency: float = _LATENCY
    bandwidth: float = _LINK_BANDWIDTH

    def seconds(self, size: float) -> float:
        """How long a token of `size` bytes takes."""
        return self.latency + size / self.bandwidth


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """Devices and what joins them.

    Args:
      devices: at least one; their names are full and differ. The first is where things go that may go anywhere.
      link: what joins any two of them.
      links: (from, to) → what joins these two instead.

    Raises:
      InvalidArgumentError: there is no device; two have one name; a name is not full; a link joins what is not there.

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
            raise InvalidArgumentError(f"two devices of a cluster have one name: {', '.join(names)}")
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
        """Logical devices of one process: each a core, and a token crosses by reference."""
        return Cluster(tuple(DeviceModel(name) for name in names))

    @property
    def names(self) -> tuple[str, ...]:
        """The devices' names, in order."""
        return tuple(d.name for d in self.devices)

    def between(self, source: str, target: str) -> Link:
        """What joins the device `source` to `target`."""
        return self.links.get((source, target), self.link)
