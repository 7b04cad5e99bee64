"""Cluster model: devices and links of a step, with their speeds.

A `Cluster` describes devices for the cost model, and need not exist. The placer and the simulator use its numbers only,
so a plan for eight machines can be made, and its makespan predicted, on a laptop.

`Cluster.local` and `Cluster.remote`, the clusters of sessions, have figures for two more types. A TORCH device uses the
processor of the CPU of its task, by PyTorch's functions: the two never compute at the same time, and each call takes
longer. A GPU is fast, and far away. A token to or from either of them is copied, in addition to its way. Fed and
fetched values are on the host.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace import thresholds
from headrace.errors import InvalidArgumentError
from headrace.ir.device import GPU, TORCH, DeviceSpec
from headrace.ir.kernel import CPU
from headrace.records import record

#: Type of device → the type whose processor it uses. Until an operation was measured on one, the other's figure counts.
SAME_PROCESSOR: Final = {TORCH: CPU, CPU: TORCH}


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

        Each CPU is a core, and tokens cross by reference, except to and from the memory of another device.
        """
        names = tuple(names)
        return Cluster(tuple(map(_model, names)), links=_with_copies(names, {}, Link()))

    @staticmethod
    def remote(names: Iterable[str], network: Link) -> Cluster:
        """Returns a cluster of devices of several processes.

        Args:
          names: the full names of the devices.
          network: the link between devices of different tasks. Between devices of one task tokens cross as in `local`.
        """
        names = tuple(names)
        tasks: dict[str, list[str]] = {}
        for name in names:
            tasks.setdefault(_task(name), []).append(name)
        inside = {(a, b): Link() for of in tasks.values() for a in of for b in of}
        return Cluster(tuple(map(_model, names)), network, _with_copies(names, inside, network))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices, in order."""
        return tuple(d.name for d in self.devices)

    def between(self, source: str, target: str) -> Link:
        """Link from the device `source` to `target`."""
        return self.links.get((source, target), self.link)


def processors(cluster: Cluster) -> dict[str, str]:
    """Returns for each device the one whose processor it uses.

    That is itself, or for TORCH the first CPU of its task.

    Example:
      >>> task = "/job:localhost/replica:0/task:0/device:"
      >>> processors(Cluster.local([f"{task}CPU:0", f"{task}TORCH:0"]))[f"{task}TORCH:0"] == f"{task}CPU:0"
      True
    """
    hosts = _hosts(cluster)
    return {d.name: hosts.get(_task(d.name), d.name) if d.type == TORCH else d.name for d in cluster.devices}


def from_host(cluster: Cluster) -> dict[str, Link]:
    """Returns the links from the first CPU of each task to devices with another memory."""
    hosts = _hosts(cluster)
    return {
        d.name: cluster.between(hosts[_task(d.name)], d.name)
        for d in cluster.devices
        if d.type in (TORCH, GPU) and _task(d.name) in hosts
    }


def _hosts(cluster: Cluster) -> dict[str, str]:
    """The first CPU of each task."""
    hosts: dict[str, str] = {}
    for d in cluster.devices:
        if d.type == CPU:
            hosts.setdefault(_task(d.name), d.name)
    return hosts


def _task(name: str) -> str:
    return name.rpartition("/device:")[0]


def _model(name: str) -> DeviceModel:
    """Returns the speeds of a device by its type; unknown types have a CPU's."""
    type = DeviceSpec.from_string(name).type
    if type == TORCH:
        return DeviceModel(name, overhead=thresholds.TORCH_OVERHEAD)
    if type == GPU:
        return DeviceModel(name, thresholds.GPU_FLOPS, thresholds.GPU_BANDWIDTH, thresholds.GPU_OVERHEAD)
    return DeviceModel(name)


def _copy(name: str) -> Link | None:
    """Returns the speed of copies between a device and the host; None: they share memory."""
    type = DeviceSpec.from_string(name).type
    if type == TORCH:
        return Link(thresholds.TORCH_COPY_LATENCY, thresholds.TORCH_COPY_BANDWIDTH)
    if type == GPU:
        return Link(thresholds.GPU_COPY_LATENCY, thresholds.GPU_COPY_BANDWIDTH)
    return None


def _with_copies(
    names: Sequence[str], links: dict[tuple[str, str], Link], otherwise: Link
) -> dict[tuple[str, str], Link]:
    """Adds the copies to the links of the devices whose memory is not the host's.

    Args:
      names: the devices.
      links: the links without copies.
      otherwise: the link of devices that are not in `links`.
    """
    copies = {name: copy for name in names if (copy := _copy(name)) is not None}
    pairs = {pair for a in copies for b in names if a != b for pair in ((a, b), (b, a))}
    return links | {
        (a, b): functools.reduce(_after, [copies[d] for d in (a, b) if d in copies], links.get((a, b), otherwise))
        for a, b in pairs
    }


def _after(first: Link, then: Link) -> Link:
    """Returns the link of tokens that take one link after the other."""
    return Link(first.latency + then.latency, 1 / (1 / first.bandwidth + 1 / then.bandwidth))
