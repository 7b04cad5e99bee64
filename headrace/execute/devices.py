"""Devices: where kernels run, each with threads, streams and memory of its own.

A *device* is a place to compute. The process has one CPU, but may have several *logical* CPU devices: each has an
executor thread, runs its part of a step by itself, and gets at values of another only through Send and Recv. So what
works on them works on devices that lie in different machines.

A device has *streams*: queues of work that is done in the order in which it was put in. Heavy kernels go to the stream
`compute`, so that a device does one of them at a time, as an accelerator would, while its executor goes on with what is
ready; what is copied to and from a slower memory goes to `copy`, and so overlaps with computing. A kernel may return
when its work is enqueued: what follows it in the same stream finds it done.

New types of devices are added with `register_device`.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import InvalidArgumentError
from headrace.ir.device import DeviceSpec
from headrace.registry import Registry

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

MOST_STEPS: Final = 1024  # of steps that one device runs at once; each has a thread while it runs
HERE: Final = DeviceSpec(job="localhost", replica=0, task=0)


class Device(abc.ABC):
    """A device as placement and messages know it.

    Attributes:
      spec, name: what it is called.
      type: "CPU", ...
      memory_limit: bytes that values on it may take; None: not limited.
    """

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        assert spec.type is not None, "a device has a full name"
        self.spec = spec
        self.name = str(spec)
        self.type = spec.type
        self.memory_limit = memory_limit

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what it holds. May be called twice."""


class Stream:
    """Work that is done in the order it is put in, in a thread of its own, which is made when first needed.

    Args:
      name: of the thread.
    """

    def __init__(self, name: str) -> None:
        from concurrent.futures import ThreadPoolExecutor  # takes a while to import, and most sessions need none

        self.name = name
        self._worker = ThreadPoolExecutor(1, name)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Puts `work` in; returns at once."""
        return self._worker.submit(work)

    def wait(self) -> None:
        """Until all that has been put in is done."""
        self._worker.submit(lambda: None).result()

    def close(self) -> None:
        """Takes nothing in any more; what was put in is still done."""
        self._worker.shutdown(wait=False)


class LocalDevice(Device):
    """A device of this process.

    Its threads and streams are made when they are first needed, so one that runs nothing costs nothing.
    """

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        super().__init__(spec, memory_limit)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._streams: dict[str, Stream] = {}

    @property
    def short_name(self) -> str:
        """The device within its process: "CPU:1"."""
        return f"{self.type}:{self.spec.index}"

    def run(self, part: Callable[[], None]) -> None:
        """Runs `part` of a step in an executor thread of the device. Steps that overlap have a thread each."""
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            with self._lock:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(MOST_STEPS, f"headrace-{self.short_name}")
        self._threads.submit(part)

    def stream(self, name: str) -> Stream:
        """The stream of that name."""
        found = self._streams.get(name)
        if found is None:
            with self._lock:
                found = self._streams.setdefault(name, Stream(f"headrace-{self.short_name}-{name}"))
        return found

    def compute(self) -> Stream:
        """The stream of heavy kernels."""
        return self.stream("compute")

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
            streams, self._streams = self._streams, {}
        if threads is not None:
            threads.shutdown(wait=False)
        for s in streams.values():
            s.close()


# How a device of each type is made, given its full name and its memory limit.
DeviceFactory = Callable[[DeviceSpec, "int | None"], LocalDevice]
device_types: Registry[DeviceFactory] = Registry("device type")
device_types.register("CPU", LocalDevice)


def register_device(type: str, factory: DeviceFactory) -> None:
    """Adds a type of devices.

    Args:
      type: what it is called in device names ("DLP").
      factory: makes a device, given its name and memory limit. Which ops it can run is said by `register_kernel`.

    Raises:
      RegistryError: there is such a type.
    """
    device_types.register(type, factory, depth=2)


def make_devices(counts: Mapping[str, int], memory_limit: int | None = None) -> dict[str, LocalDevice]:
    """The devices of a session, by name.

    Args:
      counts: how many there are to be of each type; there is always one CPU.
      memory_limit: of each of them, in bytes.

    Raises:
      InvalidArgumentError: a type that is not registered, or a count that is none.
    """
    out: dict[str, LocalDevice] = {}
    for type, n in {"CPU": 1, **counts}.items():
        factory = device_types.find(type)
        if factory is None:
            known = ", ".join(sorted(device_types))
            raise InvalidArgumentError(
                f"no devices of type {type!r} exist: there are {known}. Is the package that brings it installed and "
                "imported (hr.register_device)?"
            )
        if isinstance(n, bool) or not isinstance(n, int) or n < (type == "CPU"):
            raise InvalidArgumentError(f"devices={{{type!r}: {n!r}}}: expected how many there are to be, as an int")
        for i in range(n):
            d = factory(DeviceSpec(HERE.job, HERE.replica, HERE.task, type, i), memory_limit)
            out[d.name] = d
    return out
