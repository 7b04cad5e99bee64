"""A simulated CUDA device, with streams and events, and the device type `FAR` on it.

`CUDA` is in place of the module `torch.cuda`, with the part of it that headrace uses.

    from tests.devices.simulated_cuda import FAR, CUDA

    CUDA.reset()
    with hr.Session(graph=g, devices={FAR: 1}) as session:
        session.run(...)
    assert [w.label for w in CUDA.log] == ...

A device of type `FAR` has the kernels of `TORCH`, in a memory that is far: its tensors are those of a simulated device.
An operation on such a tensor is *enqueued* as on a CUDA device, and computed late:

* A stream is a queue of work. Work runs only if something demands it: a wait of the host for an event or stream, a look
  at an element (which CUDA answers after a wait, too), or work of another stream that waits for an event.
* The results of work that has not run are garbage: NaN, or large integers. So an order that is missing, of a stream
  behind another one or of the host behind a stream, gives wrong values.
* Memory that is freed becomes garbage as soon as its stream may use it again, as PyTorch's allocator would let it. So a
  missing `record_stream` gives wrong values.
* Time is simulated. Work takes `COSTS` of its label, else 1; enqueuing takes `Cuda.host_cost`, and a wait of the host
  ends when what it waits for has ended. `Cuda.log` has all work with its times, in the order in which it was enqueued.

The simulation does not show which kernels PyTorch lacks on CUDA, nor real times and sizes.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from headrace.device_arrays import DeviceArray
from headrace.devices.torch.device import DTYPES, TorchDevice, TorchMemory, _namespace
from headrace.devices.torch.streams import Streams
from headrace.execute.devices import LocalDevice, device_types
from headrace.ir import kernel
from headrace.ir.device import TORCH, DeviceSpec

FAR: Final = "FAR"
DEVICE: Final = f"/device:{FAR}:0"


class Work:
    """Work in a stream.

    Attributes:
      stream: the name of the stream.
      label: "copy", or the name of an operation of PyTorch; "" for events and freed memory.
      enqueued, start, end: times; the last two are NaN before it runs.
    """

    def __init__(self, stream: str, label: str, do: Callable[[], object], enqueued: float, cost: float) -> None:
        self.stream, self.label, self.do, self.enqueued, self.cost = stream, label, do, enqueued, cost
        self.start = self.end = float("nan")

    def __repr__(self) -> str:
        return f"{self.stream}:{self.label}[{self.enqueued:g}|{self.start:g}-{self.end:g}]"


class Stream:
    """A stream of the simulated device."""

    def __init__(self, cuda: Cuda, name: str) -> None:
        self.cuda, self.name = cuda, name
        self.queue: collections.deque[Work] = collections.deque()
        self.enqueued = self.done = 0
        self.clock = 0.0

    def enqueue(self, label: str, do: Callable[[], object], cost: float = 0.0) -> None:
        with self.cuda.lock:
            work = Work(self.name, label, do, self.cuda.now, cost)
            if label:
                self.cuda.now += self.cuda.host_cost
                self.cuda.log.append(work)
            self.queue.append(work)
            self.enqueued += 1

    def run(self, until: int | None = None) -> None:
        """Runs the work up to a number, and all that it waits for."""
        with self.cuda.lock:
            until = self.enqueued if until is None else until
            while self.done < until:
                work = self.queue.popleft()
                work.do()  # a wait moves the clock
                self.done += 1
                work.start = max(self.clock, work.enqueued)
                work.end = self.clock = work.start + work.cost

    def record_event(self, event: Event | None = None) -> Event:
        event = self.cuda.Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        with self.cuda.lock:
            stream, position = event.stream, event.position

        def wait() -> None:
            if stream is not None:
                stream.run(position)
                self.clock = max(self.clock, event.times[position])

        self.enqueue("", wait)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def query(self) -> bool:
        return not self.queue

    def synchronize(self) -> None:
        with self.cuda.lock:
            self.run()
            self.cuda.now = max(self.cuda.now, self.clock)


class Event:
    """An event of the simulated device."""

    def __init__(self, cuda: Cuda, enable_timing: bool = False) -> None:
        self.cuda, self.enable_timing = cuda, enable_timing
        self.stream: Stream | None = None
        self.position = 0
        self.times: dict[int, float] = {}

    def record(self, stream: Stream | None = None) -> None:
        found = self.cuda.current_stream() if stream is None else stream
        with self.cuda.lock:
            self.stream, self.position = found, found.enqueued + 1
            position = self.position

            enqueued = self.cuda.now

            def happen() -> None:
                self.times[position] = max(found.clock, enqueued)

            is_idle = not found.queue
            found.enqueue("", happen)
            if is_idle:
                found.run()

    def query(self) -> bool:
        """Whether it has happened. Each question lets one piece of the work before it run."""
        with self.cuda.lock:
            if self.cuda.is_stuck:
                return False
            self.cuda.waits.setdefault(len(self.cuda.log))
            if self.stream is None or self.position in self.times:
                if self.stream is not None:
                    self.cuda.now = max(self.cuda.now, self.times[self.position])
                return True
            self.stream.run(self.stream.done + 1)
            return False

    def wait(self, stream: Stream | None = None) -> None:
        (self.cuda.current_stream() if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        if self.stream is not None:
            with self.cuda.lock:
                self.stream.run(self.position)
                self.cuda.now = max(self.cuda.now, self.times[self.position])

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds, of which the simulation counts one for each unit of time."""
        if not (self.enable_timing and later.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return later.times[later.position] - self.times[self.position]


class Cuda:
    """In place of the module `torch.cuda`.

    Attributes:
      log: the work of all streams, in the order in which it was enqueued.
      now: the time of the host.
      host_cost: the time that enqueuing takes.
      costs: the time of work, by label; else 1.
      looks: the labels of operations for which the host waited at once, such as a look at an element.
      waits: the lengths of the log at which the host asked for events.
      is_stuck: whether no event happens any more.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.default = Stream(self, "compute")
        self._current = threading.local()
        self.host_cost = 0.1
        self.now = 0.0
        self.costs: dict[str, float] = {}
        self.made: list[Stream] = []
        self.reset()

    def reset(self) -> None:
        """Ends all work and forgets the log."""
        streams = (self.default, *self.made)
        for stream in streams:
            stream.run()
        self.now = max(stream.clock for stream in streams)
        for stream in streams:
            stream.clock = self.now
        self.log: list[Work] = []
        self.looks: list[str] = []
        self.waits: dict[int, None] = {}
        self.is_stuck = False
        self.costs.clear()

    def labels(self, stream: str = "") -> list[str]:
        """Labels in the log, of all streams or of one."""
        return [w.label for w in self.log if stream in ("", w.stream)]

    def finish(self) -> list[Work]:
        """Runs all work and returns the log, whose work then has its times."""
        for stream in (self.default, *self.made):
            stream.run()
        return self.log

    def enqueue(self, label: str, do: Callable[[], object]) -> None:
        """Enqueues work in the current stream."""
        with self.lock:
            self.current_stream().enqueue(label, do, self.costs.get(label, 1.0))

    # *** the part of `torch.cuda` ***

    def Stream(self, device: Any = None, priority: int = 0) -> Stream:
        names = ("in", "out")
        made = Stream(self, names[len(self.made)] if len(self.made) < 2 else f"stream {len(self.made)}")
        self.made.append(made)
        return made

    def Event(self, enable_timing: bool = False, blocking: bool = False) -> Event:
        return Event(self, enable_timing)

    def current_stream(self, device: Any = None) -> Stream:
        found: Stream = getattr(self._current, "stream", self.default)
        return found

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self._current.stream = stream
        try:
            with _Transfers(self):
                yield
        finally:
            self._current.stream = before

    def synchronize(self, device: Any = None) -> None:
        for stream in (self.default, *self.made):
            stream.synchronize()

    def is_current_stream_capturing(self) -> bool:
        return False


class _Block:
    """Memory of a tensor and of its views, from its allocation to its release."""

    def __init__(self, cuda: Cuda, real: torch.Tensor) -> None:
        self.cuda, self.real, self.stream = cuda, real, cuda.current_stream()
        self.recorded: dict[Stream, None] = {}

    def __del__(self) -> None:
        real = self.real
        for stream in self.recorded:
            self.stream.wait_event(stream.record_event())
        self.stream.enqueue("", lambda: spoil(real))


class Tensor(torch.Tensor):
    """A tensor of the simulated device: `elements` has its elements after its work has run."""

    elements: torch.Tensor
    block: _Block
    cuda: Cuda

    @staticmethod
    def of(cuda: Cuda, real: torch.Tensor, block: _Block | None = None) -> Tensor:
        """Returns the tensor with the elements of `real`; without a block its memory is new."""
        if block is None:
            spoil(real)
        out: Tensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            Tensor, real.size(), strides=real.stride(), storage_offset=real.storage_offset(), dtype=real.dtype
        )
        out.cuda, out.elements = cuda, real
        out.block = _Block(cuda, real) if block is None else block
        return out

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<simulated {self.dtype} tensor of shape {tuple(self.shape)}>"

    def record_stream(self, stream: Any) -> None:
        self.block.recorded[stream] = None

    def numpy(self, **kwargs: Any) -> Any:
        look(self.cuda, "numpy")
        return self.elements.clone().numpy(**kwargs)

    def tolist(self) -> Any:
        look(self.cuda, "tolist")
        return self.elements.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return enqueue(func, args, kwargs or {})


def spoil(real: torch.Tensor) -> None:
    """Writes garbage into a tensor."""
    if real.dtype.is_floating_point or real.dtype.is_complex:
        real.fill_(float("nan"))
    elif real.dtype is torch.bool:
        real.logical_not_()
    else:
        real.fill_(torch.iinfo(real.dtype).max // 3)


def look(cuda: Cuda, label: str) -> None:
    """Lets the host wait for the current stream."""
    cuda.looks.append(label)
    cuda.current_stream().synchronize()


#: Operations that look at elements: they give a number of Python, or tensors whose shapes depend on elements.
_LOOKS: Final = frozenset(
    {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount", "repeat_interleave"}
    | {"_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
)


def enqueue(func: Any, args: Any, kwargs: Any) -> Any:
    """Enqueues an operation of PyTorch in the current stream."""
    flat, spec = _pytree.tree_flatten((args, kwargs))
    ours = [a for a in flat if isinstance(a, Tensor)]
    cuda, label = ours[0].cuda, func._schema.name.removeprefix("aten::")
    reals = [a.elements if isinstance(a, Tensor) else a for a in flat]  # work that is enqueued keeps these alone

    def call(given: list[Any]) -> Any:
        positional, named = _pytree.tree_unflatten(given, spec)
        return func(*positional, **named)

    declared = [(a, a.alias_info) for a in func._schema.arguments]
    written = [a.name for a, info in declared if info is not None and info.is_write]
    if written:  # in place
        out = [kwargs[name] if name in kwargs else args[[a.name for a, _ in declared].index(name)] for name in written]
        if not all(isinstance(t, Tensor) for t in _pytree.tree_leaves(out)):
            look(cuda, label)  # a kernel made the tensor on the processor, where CUDA would have it on the device
            return call(reals)
        cuda.enqueue(label, lambda: call(reals))
        if not func._schema.returns:  # a function of lists
            return None
        return out[0] if len(func._schema.returns) == 1 else tuple(out)
    if any(info is not None for _, info in declared):  # a view
        block = ours[0].block
        return _pytree.tree_map_only(torch.Tensor, lambda t: Tensor.of(cuda, t, block), call(reals))
    masks = [t for t in reals if isinstance(t, torch.Tensor) and t.dtype in (torch.bool, torch.uint8)]
    if label in _LOOKS or (label == "index" and masks):
        return _looked(cuda, label, lambda: call(reals))
    is_integer = lambda t: isinstance(t, torch.Tensor) and not t.dtype.is_floating_point and not t.dtype.is_complex
    try:  # for the shapes; integers are 0, since they may be indices
        made = call([torch.zeros_like(t) if is_integer(t) else t for t in reals])
    except (RuntimeError, IndexError):  # the error depends on elements
        return _looked(cuda, label, lambda: call(reals))
    made = _pytree.tree_map_only(torch.Tensor, lambda t: Tensor.of(cuda, t), made)
    targets = [t.elements for t in _pytree.tree_leaves(made) if isinstance(t, Tensor)]

    def fill() -> None:
        found = [t for t in _pytree.tree_leaves(call(reals)) if isinstance(t, torch.Tensor)]
        for target, value in zip(targets, found, strict=True):
            target.copy_(value)

    cuda.enqueue(label, fill)
    return made


def _looked(cuda: Cuda, label: str, compute: Callable[[], Any]) -> Any:
    """The result of an operation for which the host waits."""
    look(cuda, label)
    return _pytree.tree_map_only(torch.Tensor, lambda t: Tensor.of(cuda, t, _Block(cuda, t)), compute())


class _Transfers(TorchFunctionMode):
    """Calls of PyTorch for pinned memory and CUDA devices, within `Cuda.stream`."""

    def __init__(self, cuda: Cuda) -> None:
        super().__init__()
        self.cuda = cuda

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.pin_memory:
            return args[0].clone()
        if func is torch.Tensor.to and isinstance(args[1], torch.device) and args[1].type == "cuda":
            source = args[0]
            out = Tensor.of(self.cuda, torch.empty_like(source))
            real = out.elements
            self.cuda.enqueue("copy", lambda: real.copy_(source))
            return out
        if func is torch.Tensor.copy_ and isinstance(args[1], Tensor) and not isinstance(args[0], Tensor):
            target, elements = args[0], args[1].elements
            self.cuda.enqueue("copy", lambda: target.copy_(elements))
            return target
        if kwargs.pop("pin_memory", False):
            source = args[0].elements if isinstance(args[0], Tensor) else args[0]
            out = func(source, *args[1:], **kwargs)
            spoil(out)
            return out
        return func(*args, **kwargs)


CUDA: Final = Cuda()
STREAMS: Final = Streams(CUDA, torch.device("cuda", 0))
IN, OUT = STREAMS.inward, STREAMS.outward


class Memory(TorchMemory):
    """The memory of the device."""

    def begin_get(self, value: DeviceArray) -> None:
        super().begin_get(_made_far(value))

    def get(self, value: DeviceArray, look: Callable[[], object] | None = None) -> Any:
        return super().get(_made_far(value), look)


def _made_far(value: DeviceArray) -> DeviceArray:
    """Moves the tensor of a value to the device if it is the processor's."""
    if type(value.array) is not Tensor:
        elements = value.array.clone()
        value.array = Tensor.of(CUDA, elements, _Block(CUDA, elements))
    return value


MEMORY: Final = Memory(FAR, 0, STREAMS)


class Device(TorchDevice):
    """The device."""

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        LocalDevice.__init__(self, spec, memory_limit)
        self.memory = MEMORY
        self.enqueues = True


def _register() -> None:
    device_types.register(FAR, Device)
    kernel.provide_namespace(FAR, _namespace, DTYPES, lambda index: MEMORY)
    for (op, device), found in list(kernel._overrides.items()):
        if device == TORCH:
            for o in found:
                kernel.override(op, FAR, o.constraints, o.kernel.form, notes=o.notes, xp=True)(o.kernel.factory)


_register()
Tensor.of(CUDA, torch.zeros(1)).sin()  # PyTorch then imports 500 modules, which would count as time of the first test
CUDA.reset()
