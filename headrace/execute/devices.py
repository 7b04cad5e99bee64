"""Devices: places where kernels run, each with its own threads, streams and memory.

The process has one CPU, but may have several *logical* CPU devices. Each of them has an executor thread, runs its part
of a step by itself, and obtains values of another device only through Send and Recv. So a step that works on logical
devices also works on devices of different machines.

A device has *streams*: queues of work that is done in FIFO order. Heavy kernels go to the stream `compute`. So a device
runs one of them at a time, as an accelerator would, while its executor fires the nodes that are ready. Copies to and
from a slower memory go to the stream `copy`, and so overlap with computing. A kernel may return when its work is
enqueued: work that follows it in the same stream starts after it.

New types of devices are added with `register_device`. Such a device may have a memory that numpy cannot read. Then its
values are the results of its `put`, and only its own kernels read them; when a value is sent to another device or
fetched, `get` makes an array of it again (`execute.ports`).
"""

from __future__ import annotations

import abc
import importlib
import importlib.util
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headrace import forking, plugins, thresholds
from headrace.errors import GraphError, InvalidArgumentError
from headrace.execute.threads import Pool
from headrace.ir.device import GPU, TORCH, DeviceSpec
from headrace.records import record
from headrace.registry import Registry

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace.execute.step import Step

HERE: Final = DeviceSpec(job="localhost", replica=0, task=0)


class Device(abc.ABC):
    """Description of a device: the part of it that placement and messages read.

    Args:
      spec: the full name of the device, in parts.
      memory_limit: bytes that values on it may take; None: no limit.

    Attributes:
      spec: the full name of the device, in parts.
      name: the full name as text.
      type: the type, such as "CPU".
      memory_limit: bytes that values on it may take; None: no limit.
      enqueues: whether kernels return when their work is enqueued, so that the time of a call is not that of its work.
    """

    enqueues = False

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
        """Copies an array, or numpy scalar, to the memory of the device.

        It is not called for CPUs. Several threads may call it at once. The result has the `shape` and the `dtype` of
        the array. The device must not write into the array. It may keep a reference to it, because nothing else writes
        into it either.
        """
        return array

    def get(self, value: Any) -> Any:
        """Inverse of `put`. The array, or numpy scalar, is never written to."""
        return value

    @abc.abstractmethod
    def close(self) -> None:
        """Releases the threads and the memory of the device. May be called twice."""


class Stream:
    """Queue of work in FIFO order, with a thread that is started on first use.

    Args:
      name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._worker = Pool(1, name)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Adds `work` to the queue and returns at once."""
        from concurrent.futures import Future  # this import is slow, and most sessions do not need it

        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(work())
            except BaseException as e:
                future.set_exception(e)

        self._worker.submit(job)
        return future

    def wait(self) -> None:
        """Blocks until all work in the queue is done."""
        self.submit(lambda: None).result()

    def close(self) -> None:
        """Accepts no more work. Work in the queue is still done."""
        self._worker.close()


class LocalDevice(Device):
    """A device of this process.

    Its threads and streams are created on first use, so an unused device costs nothing.

    Example:
      >>> import headrace as hr
      >>> class Lent(hr.extend.LocalDevice):
      ...     pass
      >>> hr.register_device("DocLent", Lent)
      >>> [d.device_type for d in hr.Session(devices={"DocLent": 1}, graph=hr.Graph()).list_devices()]
      ['CPU', 'DocLent']
    """

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        super().__init__(spec, memory_limit)
        self._lock = threading.Lock()
        self._threads: Pool | None = None
        self._streams: dict[str, Stream] = {}
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.Lock()

    @property
    def short_name(self) -> str:
        """Name of the device within its process, such as "CPU:1"."""
        return f"{self.type}:{self.spec.index}"

    def run(self, part: Callable[[], None]) -> None:
        """Runs `part` of a step in a thread of the device of its own."""
        if self._threads is None:
            with self._lock:
                if self._threads is None:
                    self._threads = Pool(thresholds.DEVICE_STEPS, f"headrace-{self.short_name}", computes=False)
        self._threads.submit(part)

    def stream(self, name: str) -> Stream:
        """Returns the stream `name`, which is created on first use."""
        found = self._streams.get(name)
        if found is None:
            with self._lock:
                found = self._streams.setdefault(name, Stream(f"headrace-{self.short_name}-{name}"))
        return found

    def compute(self) -> Stream:
        """Returns the stream of heavy kernels."""
        return self.stream("compute")

    def trace(self, step: Step) -> Callable[[], object]:
        """Observes copies of the device for the listener of a step, from now on.

        Returns:
          A function that ends this and tells the listener of them, each as a `step_events.StreamSpan`.
        """
        return lambda: None

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
            streams, self._streams = self._streams, {}
        if threads is not None:
            threads.close()
        for s in streams.values():
            s.close()


@record(frozen=True, slots=True)
class DeviceAttributes:
    """Description of a device, as `Session.list_devices` returns it.

    Attributes:
      name: the full name, such as "/job:localhost/replica:0/task:0/device:CPU:0".
      device_type: the type, such as "CPU".
      memory_limit_bytes: bytes that values on the device may take; 0: no limit.
    """

    name: str
    device_type: str
    memory_limit_bytes: int


# Creates a device of a type, given its full name and its memory limit.
DeviceFactory = Callable[[DeviceSpec, "int | None"], LocalDevice]
device_types: Registry[DeviceFactory] = Registry("device type")
device_types.register("CPU", LocalDevice)


_OF_EXTRAS: Final = ("torch", "array_api_compat")  # packages
_CUDA: Final = "headrace.devices.cuda"  # the module that imports PyTorch

#: Device types of headrace's own that need another library, with the module that registers each one.
EXTRAS: Final = {GPU: "headrace.devices.torch", TORCH: "headrace.devices.torch"}


def _load(type: str) -> None:
    """Imports the module that registers a device type.

    Raises:
      InvalidArgumentError: its library is not installed.
    """
    try:
        importlib.import_module(EXTRAS[type])
    except ModuleNotFoundError as e:
        if e.name is None or e.name.startswith("headrace"):
            raise
        raise InvalidArgumentError(
            f"devices of type {type!r} need the package {e.name!r}, which is not installed: "
            "pip install 'headrace[torch]'"
        ) from e


def list_devices(device_type: str | None = None) -> list[DeviceAttributes]:
    """Returns the devices that a session of this process can have.

    These are a CPU, a TORCH device if PyTorch is installed (`pip install 'headrace[torch]'`), and the CUDA devices that
    PyTorch finds. A session has one CPU unless it asks for others: `hr.Session(devices={"GPU": 1})`. It may have more
    CPUs, which are logical. Types of other packages (`register_device`) are not listed.

    To count the CUDA devices, PyTorch is imported if it is installed, which takes a second or more, unless
    `device_type` is another type.

    Args:
      device_type: only devices of this type; None: all.

    Source: TensorFlow's `device_lib.list_local_devices` and `tf.config.list_physical_devices`.

    Example:
      >>> import headrace as hr
      >>> [d.name for d in hr.list_devices("CPU")]
      ['/job:localhost/replica:0/task:0/device:CPU:0']
    """
    types = ("CPU", TORCH, GPU) if device_type is None else (device_type,)
    return [
        DeviceAttributes(str(DeviceSpec(HERE.job, HERE.replica, HERE.task, type, i)), type, 0)
        for type in types
        for i in range(available(type))
    ]


def available(type: str) -> int:
    """Returns the number of devices in `list_devices`; imports PyTorch for GPUs alone."""
    if type == "CPU":
        return 1
    if type not in EXTRAS or not all(map(importlib.util.find_spec, _OF_EXTRAS)):
        return 0
    if type == TORCH:
        return 1
    return int(importlib.import_module(_CUDA).count())


def capability_of_gpu(index: int) -> tuple[int, ...]:
    """Returns the compute capability of a GPU: major and minor version."""
    return tuple(importlib.import_module(_CUDA).capability(index))


def allocated_on_gpu(index: int) -> tuple[int, int]:
    """Returns the bytes of PyTorch's tensors on a GPU, now and at most."""
    now, most = importlib.import_module(_CUDA).allocated(index)
    return int(now), int(most)


def forget_peak_of_gpu(index: int) -> None:
    """Lets the greatest number of bytes on a GPU be the present one."""
    importlib.import_module(_CUDA).forget_peak(index)


def register_device(type: str, factory: DeviceFactory) -> None:
    """Adds a type of devices, which sessions can then create: `hr.Session(devices={"DLP": 1})`.

    Args:
      type: the name of the type in device names ("DLP" in "/device:DLP:0").
      factory: a function or class that makes a `LocalDevice` of its full name (a `DeviceSpec`) and its memory limit
        (bytes, or None). A subclass of `LocalDevice` is usual. `register_kernel` adds the kernels that the device can
        run.

    Raises:
      InvalidArgumentError: `type` is not valid in a device name.
      TypeError: `factory` is not callable.
      DuplicateError: a type of this name exists (also a KeyError); the text names the line that registered it.

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
    """Raises `InvalidArgumentError` unless `type` is valid as the type in a device name."""
    try:
        found = DeviceSpec.from_string(f"/device:{type}:0").type if isinstance(type, str) else None
    except GraphError:
        found = None
    if found is None or found != type:
        hint = f"; write {found!r}" if found else ""
        raise InvalidArgumentError(
            f"{type!r} is not a device type: expected letters, digits and '_', not beginning with a digit, as in "
            f"'/device:DLP:0'{hint}"
        )


def make_devices(
    counts: Mapping[str, int], memory_limit: int | None = None, task: DeviceSpec = HERE
) -> dict[str, LocalDevice]:
    """Creates the devices of a session, by name.

    Args:
      counts: number of devices of each type. There is always at least one CPU.
      memory_limit: the memory limit of each device, in bytes; None: no limit.
      task: job, replica and task in the names of the devices.

    Raises:
      InvalidArgumentError: a type that is not registered, or a count that is not a valid number.
    """
    out: dict[str, LocalDevice] = {}
    for type, n in {"CPU": 1, **counts}.items():
        # a missing kernel of another device type loads no plugins, so all plugins are loaded before such a device
        # exists
        failures = plugins.load() if type != "CPU" else []
        if n and type in EXTRAS and type not in device_types:
            _load(type)
        factory = device_types.find(type)
        if factory is None:
            known = ", ".join(sorted(device_types))
            why = plugins.sentence(failures) or "Install the package that registers it (hr.register_device)"
            raise InvalidArgumentError(
                f"no device type {type!r} is registered; the registered types are {known}. {why}"
            ) from (failures[0].error if failures else None)
        if isinstance(n, bool) or not isinstance(n, int) or n < (type == "CPU"):
            raise InvalidArgumentError(f"devices={{{type!r}: {n!r}}}: expected the number of devices, an int")
        for i in range(n):
            d = factory(DeviceSpec(task.job, task.replica, task.task, type, i), memory_limit)
            if not isinstance(d, LocalDevice):
                raise InvalidArgumentError(
                    f"the factory of device type {type!r}, registered at {device_types.where(type)}, must make a "
                    f"LocalDevice, got {d!r}"
                )
            out[d.name] = d
    return out
