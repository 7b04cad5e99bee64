"""Copies between the host and a CUDA device, on streams of their own.

A CUDA device does the work of one *stream* in order, and the work of several streams at the same time. A kernel is
*enqueued* in a stream: the call returns at once, and the device computes later. `Streams` has three streams:

    in       ──copy──┐         copies to the device
    compute  ────────┴─kernel──kernel─┬─kernel──      PyTorch's current stream
    out                               └─copy──        copies to the host

*Events* order them. An event is recorded in a stream, and has happened when the work before it is done. Another stream
can wait for it, which costs the host nothing, or the host can.

* A copy to the device starts from *pinned* memory, which the device reads by itself. The host first copies the array
  there, so that the array may change or go. Compute waits for the copy when its result is first read (`Copy.arrived`),
  and not before: kernels in between run during the copy.
* A copy to the host waits for what compute has enqueued so far, and goes to pinned memory, while compute goes on. The
  host waits for its end (`Copy.wait`).

**Lifetimes.** PyTorch's allocator gives the memory of a tensor to later work of the stream in which it was allocated.
`record_stream` tells it of another stream that reads or writes the tensor, so that the memory is kept until this
stream has done what it had in its queue when the tensor was freed. Pinned memory needs no such call: its allocator
knows the copies that it takes part in.

**Threads.** PyTorch has one current stream for each thread, which is the default stream of the device unless the thread
entered another one (`torch.cuda.stream`). The streams of this module follow the thread that begins the copy or first
reads its result. Threads that pass tensors to one another must have the same current stream, as they do by default.
"""

from __future__ import annotations

import functools
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from headrace import flags, step_events, thresholds
from headrace.errors import DeadlineExceededError, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

IN: Final = "in"
OUT: Final = "out"


class CudaEvent(Protocol):
    """An event of `torch.cuda`."""

    def record(self, stream: Any) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, later: Any) -> float: ...


class CudaStream(Protocol):
    """A stream of `torch.cuda`."""

    def wait_event(self, event: Any) -> None: ...


class Cuda(Protocol):
    """The part of `torch.cuda` that `Streams` uses."""

    def Stream(self, device: torch.device) -> CudaStream: ...
    def Event(self, enable_timing: bool) -> CudaEvent: ...
    def current_stream(self, device: torch.device) -> CudaStream: ...
    def stream(self, stream: Any) -> AbstractContextManager[Any]: ...


class TracedStep(Protocol):
    """The part of a step that `Streams.trace` uses (`execute.step.Step`)."""

    id: int
    listener: step_events.Listener | None
    cancelled: BaseException | None

    def look(self, doing: str = "") -> None: ...


class Copy:
    """A copy that was begun.

    Attributes:
      tensor: the destination. Its elements are undefined until the end of the copy.
      way: `IN` or `OUT`.
      began: the event of its beginning, if a trace needs its times; else None.
      ended: the event of its end.
    """

    __slots__ = ("_streams", "began", "ended", "tensor", "way")

    def __init__(
        self, streams: Streams, tensor: torch.Tensor, way: str, began: CudaEvent | None, ended: CudaEvent
    ) -> None:
        self._streams = streams
        self.tensor = tensor
        self.way = way
        self.began = began
        self.ended = ended

    @property
    def is_done(self) -> bool:
        """Whether the copy is done. The answer takes no wait."""
        return self.ended.query()

    def arrived(self) -> torch.Tensor:
        """Returns the destination of a copy to the device.

        Kernels that are enqueued from now on may read it. The current stream waits for the copy; the host does not.
        """
        stream = self._streams.compute
        stream.wait_event(self.ended)
        self.tensor.record_stream(stream)
        return self.tensor

    def wait(self, look: Callable[[], object] | None = None) -> torch.Tensor:
        """Returns the destination of a copy to the host, after a wait for its end.

        The wait asks for the event again and again, because a wait in CUDA could not be cancelled. After a short time
        it sleeps in between, for a part of the time that it has waited, so that it ends late by that part at most.

        Args:
          look: raises if the wait must end; None: nothing ends it before its limit.

        Raises:
          DeadlineExceededError: it has taken `flags.WAIT_LIMIT` seconds.
          RuntimeError: the device has failed.
        """
        start, limit = time.monotonic(), flags.WAIT_LIMIT.value
        while not self.ended.query():
            if look is not None:
                look()
            waited = time.monotonic() - start
            if waited > limit:
                raise DeadlineExceededError(
                    f"{self._streams.place} has not finished a copy to the host in {limit:g} s; raise "
                    "HEADRACE_WAIT_LIMIT if its kernels take that long"
                )
            if waited > thresholds.EVENT_SPIN:
                time.sleep(min(waited * thresholds.EVENT_SLEEP, thresholds.COPY_POLL))
        return self.tensor


class Streams:
    """Streams of one CUDA device; see the module's text. Thread-safe.

    Copies of several threads share the streams, and may follow one another in any order. The streams are made at their
    first use, since they take memory of the device.

    Args:
      cuda: the module `torch.cuda`, or an object with this part of it.
      place: PyTorch's device.

    Attributes:
      place: PyTorch's device.
    """

    def __init__(self, cuda: Cuda, place: torch.device) -> None:
        self._cuda = cuda
        self.place = place
        self._traces: weakref.WeakSet[CopyTrace] = weakref.WeakSet()

    @functools.cached_property
    def inward(self) -> CudaStream:
        """The stream of copies to the device."""
        return self._cuda.Stream(self.place)

    @functools.cached_property
    def outward(self) -> CudaStream:
        """The stream of copies to the host."""
        return self._cuda.Stream(self.place)

    @property
    def compute(self) -> CudaStream:
        """The stream in which this thread enqueues kernels."""
        return self._cuda.current_stream(self.place)

    def mark(self, stream: CudaStream, is_timed: bool = False) -> CudaEvent:
        """Returns an event that is recorded in a stream now."""
        event = self._cuda.Event(enable_timing=is_timed)
        event.record(stream)
        return event

    def to_device(self, source: torch.Tensor) -> Copy:
        """Begins a copy to the device.

        Args:
          source: a tensor of the host. If it is not pinned, it may be written to as soon as this function returns.

        Returns:
          The copy; `Copy.arrived` is its result.
        """
        is_timed = bool(self._traces)
        with self._cuda.stream(self.inward):
            pinned = source.pin_memory()
            began = self.mark(self.inward, True) if is_timed else None
            tensor = pinned.to(self.place, non_blocking=True)
            return self._noted(Copy(self, tensor, IN, began, self.mark(self.inward, is_timed)))

    def to_host(self, source: torch.Tensor) -> Copy:
        """Begins a copy to pinned memory of the host.

        Args:
          source: a tensor of the device, whose kernels have been enqueued in the compute stream.

        Returns:
          The copy; `Copy.wait` returns its result.
        """
        is_timed = bool(self._traces)
        source = source.resolve_conj().resolve_neg()  # else PyTorch would do it to the result, before the copy ends
        self.outward.wait_event(self.mark(self.compute))
        with self._cuda.stream(self.outward):
            began = self.mark(self.outward, True) if is_timed else None
            tensor = torch.empty_like(source, device="cpu", pin_memory=True)
            tensor.copy_(source, non_blocking=True)
            source.record_stream(self.outward)
            return self._noted(Copy(self, tensor, OUT, began, self.mark(self.outward, is_timed)))

    def trace(self, device: str, step: TracedStep) -> CopyTrace:
        """Returns a trace of the copies from now on; see `CopyTrace`."""
        origin = self.mark(self._cuda.Stream(self.place), is_timed=True)
        trace = CopyTrace(device, step, origin)
        self._traces.add(trace)
        return trace

    def _noted(self, copy: Copy) -> Copy:
        """Returns a copy, after adding it to the traces."""
        for trace in tuple(self._traces):
            trace.copies.append(copy)
        return copy


class CopyTrace:
    """The copies of a device while a step runs, for the listener of the step.

    They are the copies of all steps that run meanwhile. Their times are those of the device, related to the clock of
    the host by an event in a stream that has no other work. A trace that is dropped ends.

    Args:
      device: the name of the device in events.
      step: the step.
      origin: a timed event that happens now.

    Attributes:
      copies: the copies so far.
    """

    def __init__(self, device: str, step: TracedStep, origin: CudaEvent) -> None:
        self._device, self._step, self._origin = device, step, origin
        self._start = time.perf_counter_ns()
        self.copies: list[Copy] = []

    def end(self) -> None:
        """Tells the listener of the copies, after a wait if the step goes on."""
        copies, self.copies = self.copies, []
        for copy in copies:
            try:
                if self._step.cancelled is None:
                    copy.wait(self._step.look)
                elif not copy.is_done:
                    continue
            except (HeadraceError, RuntimeError):  # the step or the device has failed, which the step reports
                return
            self._tell(copy)

    def _tell(self, copy: Copy) -> None:
        step = self._step
        if copy.began is None or step.listener is None:  # another thread began it before the trace
            return
        tensor, stream = copy.tensor, f"copy {copy.way}"
        name = f"{stream}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        nbytes = tensor.numel() * tensor.element_size()
        began, ended = self._at(copy.began), self._at(copy.ended)
        step.listener(step_events.StreamSpan(began, ended, step.id, self._device, stream, name, nbytes))

    def _at(self, event: CudaEvent) -> int:
        """The time of an event on the clock of the host, in nanoseconds."""
        return self._start + int(self._origin.elapsed_time(event) * 1e6)
