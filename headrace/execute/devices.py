"""Devices: where kernels run, each with threads, streams and memory of its own.

A *device* is a place to compute. The process has one CPU, but may have several *logical* CPU devices: each has an
executor thread, runs its part of a step by itself, and gets at values of another only through Send and Recv. So what
works on them works on devices that lie in different machines.

A device has *streams*: queues of work that is done in the order in which it was put in. Heavy kernels go to the stream
`compute`, so that a device does one of them at a time, as an accelerator would, while its executor goes on with what is
ready; what is copied to and from a slower memory goes to `copy`, and so overlaps with computing. A kernel may return
when its work is enqueued: what follows it in the same stream finds it done.

New types of devices are added with `register_device`. Such a device may have a memory that numpy does not reach: then
its values are what its `put` makes of arrays, only its own kernels see them, and where one is sent to another device or
fetched, `get` makes an array of it again (`execute.device_memory_executor`).
"""

from __future__ import annotations

import abc
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headrace import forking, plugins
from headrace.errors import GraphError, InvalidArgumentError
from headrace.execute.threads import Pool
from headrace.ir.device import DeviceSpec
from headrace.registry import Registry

if TYPE_CHECKING:
    from concurrent.futures import Future

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

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the device {self.name} belongs to its session and cannot be copied or pickled; its name (device.name) can"
        )

    def put(self, array: Any) -> Any:
        """An array, or numpy scalar, as a value in the memory of the device. Not asked of CPUs.

        Any thread may call it, several at once. What it gives has a `shape` and a `dtype`, which are the array's. It
        must not write into the array; it may go on using it, for nobody does.
        """
        return array

    def get(self, value: Any) -> Any:
        """What `put` undoes: a value of the device as an array, or numpy scalar, that nobody will write into."""
        return value

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what it holds. May be called twice."""


class Stream:
    """Queue of work in FIFO order, with a thread that is started on first use.

    Args:
      name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._worker = Pool(1, name)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Puts `work` in; returns at once."""
        from concurrent.futures import Future  # takes a while to import, and most sessions need none

        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(work())
            except BaseException as e:
                future.set_exception(e)

        self._worker.submit(job)
        return future

    def wait(self) -> None:
        """Until all that has been put in is done."""
        self.submit(lambda: None).result()

    def close(self) -> None:
        """Takes nothing in any more; what was put in is still done."""
        self._worker.close()


class LocalDevice(Device):
    """A device of this process.

    Its threads and streams are made when they are first needed, so one that runs nothing costs nothing.
    """

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        super().__init__(spec, memory_limit)
        self._lock = threading.Lock()
        self._threads: Pool | None = None
        self._streams: dict[str, Stream] = {}
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`."""
        self._lock = threading.Lock()

    @property
    def short_name(self) -> str:
        """The device within its process: "CPU:1"."""
        return f"{self.type}:{self.spec.index}"

    def run(self, part: Callable[[], None]) -> None:
        """Runs `part` of a step in an executor thread of the device. Steps that overlap have a thread each."""
        if self._threads is None:
            with self._lock:
                if self._threads is None:
                    self._threads = Pool(MOST_STEPS, f"headrace-{self.short_name}", computes=False)
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
            threads.close()
        for s in streams.values():
            s.close()


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """A device as `Session.list_devices` tells of it.

    Attributes:
      name: in full, "/job:localhost/replica:0/task:0/device:CPU:0".
      device_type: "CPU", ...
      memory_limit_bytes: that values on it may take; 0: not limited.
    """

    name: str
    device_type: str
    memory_limit_bytes: int


# How a device of each type is made, given its full name and its memory limit.
DeviceFactory = Callable[[DeviceSpec, "int | None"], LocalDevice]
device_types: Registry[DeviceFactory] = Registry("device type")
device_types.register("CPU", LocalDevice)


def register_device(type: str, factory: DeviceFactory) -> None:
    """Adds a type of devices, which sessions may then have: `hr.Session(devices={"DLP": 1})`.

    Args:
      type: what it is called in device names ("DLP" in "/device:DLP:0").
      factory: makes a `LocalDevice`, given its name (a `DeviceSpec`) and its memory limit in bytes or None; a subclass
        of `LocalDevice` will mostly do. Which ops it can run is said by `register_kernel`.

    Raises:
      InvalidArgumentError: `type` cannot stand in a device name.
      TypeError: `factory` cannot be called.
      DuplicateError (a KeyError): there is such a type; the text says which line registered it.

    Example:
      >>> import headrace as hr
      >>> from headrace.extend import LocalDevice
      >>> hr.register_device("Abacus", LocalDevice)  # its values are numpy's
      >>> with hr.Graph() as g, hr.Session(graph=g, devices={"Abacus": 1}) as session:
      ...     [d.device_type for d in session.list_devices()]
      ['CPU', 'Abacus']
    """
    check_type(type)
    if not callable(factory):
        raise TypeError(f"the factory of device type {type!r} must be a function or class, got {factory!r}")
    device_types.register(type, factory, depth=2)


def check_type(type: str) -> None:
    """Raises `InvalidArgumentError` unless `type` is a type of devices as it stands in their names."""
    try:
        found = DeviceSpec.from_string(f"/device:{type}:0").type if isinstance(type, str) else None
    except GraphError:
        found = None
    if found is None or found != type:
        hint = f"; write {found!r}" if found else ""
        raise InvalidArgumentError(
            f"{type!r} is no type of devices: expected letters, digits and '_', no digit first, as in "
            f"'/device:DLP:0'{hint}"
        )


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
        # kernels for devices of other types are not missed, so where there are such devices all plugins are there
        failures = plugins.load() if type != "CPU" else []
        factory = device_types.find(type)
        if factory is None:
            known = ", ".join(sorted(device_types))
            why = plugins.sentence(failures) or "Is the package that brings it installed (hr.register_device)?"
            raise InvalidArgumentError(f"no devices of type {type!r} exist: there are {known}. {why}") from (
                failures[0].error if failures else None
            )
        if isinstance(n, bool) or not isinstance(n, int) or n < (type == "CPU"):
            raise InvalidArgumentError(f"devices={{{type!r}: {n!r}}}: expected how many there are to be, as an int")
        for i in range(n):
            d = factory(DeviceSpec(HERE.job, HERE.replica, HERE.task, type, i), memory_limit)
            if not isinstance(d, LocalDevice):
                raise InvalidArgumentError(
                    f"the factory of device type {type!r}, registered at {device_types.where(type)}, must make a "
                    f"LocalDevice, got {d!r}"
                )
            out[d.name] = d
    return out
