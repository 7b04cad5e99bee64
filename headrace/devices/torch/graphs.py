"""CUDA graphs: segments of a step whose kernels a CUDA device starts with one call.

The host takes a few microseconds to start a kernel, often longer than the kernel runs. A *CUDA graph* is the kernels of
a function as they were started once, with their addresses. It is *captured* while the function is called, and
*replayed* by one call. `Replayed` calls the function of a segment (`schedule.segments`), and replays graphs of it after
a few calls of the same *form*: the dtypes and shapes of its tensors, and its values on the host.

* **Inputs.** A graph reads the addresses of its capture. An input that was the same tensor in each call before, such as
  a variable or a loop constant, is read where it is, as long as calls get this tensor. The graph holds it weakly. Any
  other input has a buffer, into which each call copies the tensor. If another tensor comes in place of the same one,
  the function is captured again with a buffer for it.
* **Outputs** are copied, because values never change and the next replay writes into the same memory.
* **Memory.** The graphs of a device have one memory pool, so that they use the same memory one after the other. Hence a
  lock: threads enqueue the copies and the replay without those of another thread in between, in one stream. A call in
  another stream than the device's default stream runs without a graph.
* **Refusals.** A copy or replay is a call too, so a segment with few kernels runs without a graph. The same holds after
  a failed capture: kernels that read elements on the host, or copy from it, cannot be captured. The logger
  `headrace.compile` gets a record with the error.

No part of this module was run on a CUDA device. The tests simulate the part of `torch.cuda` that it uses (`Cuda`).
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch

from headrace import forking, notices, thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

_Function: TypeAlias = "Callable[[list[Any]], Any]"


class CudaStream(Protocol):
    """A stream of `torch.cuda`."""

    def wait_stream(self, other: Any) -> None: ...


class CudaGraph(Protocol):
    """A graph of `torch.cuda`."""

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...


class Cuda(Protocol):
    """The part of `torch.cuda` that graphs use."""

    def CUDAGraph(self) -> CudaGraph: ...
    def graph_pool_handle(self) -> Any: ...
    def Stream(self, device: torch.device) -> CudaStream: ...
    def stream(self, stream: Any) -> AbstractContextManager[Any]: ...
    def current_stream(self, device: torch.device) -> CudaStream: ...
    def default_stream(self, device: torch.device) -> CudaStream: ...


class CaptureError(Exception):
    """Failure of a capture; the text is that of PyTorch."""


class Graphs:
    """Pool, stream and lock of the graphs of a CUDA device.

    Args:
      cuda: `torch.cuda`.
      place: the device.

    Attributes:
      lock: held while the work of a graph is enqueued.
    """

    def __init__(self, cuda: Cuda, place: torch.device) -> None:
        self._cuda = cuda
        self._place = place
        self._pool: Any = None
        self._stream: Any = None
        self.lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self.lock = threading.Lock()

    @property
    def can_replay(self) -> bool:
        """Whether the thread enqueues work in the device's default stream."""
        return self._cuda.current_stream(self._place) == self._cuda.default_stream(self._place)

    def capture(self, f: _Function, inputs: Sequence[Any]) -> tuple[CudaGraph, Any]:
        """Captures the work of a function.

        Args:
          f: the function. It is called twice, because libraries allocate memory in the first call of a stream.
          inputs: its inputs; the graph reads the addresses of the tensors.

        Returns:
          The graph, and the tensors into which it writes.

        Raises:
          CaptureError: the second call cannot be captured.
          Exception: the first call failed.
        """
        if self._stream is None:
            self._stream, self._pool = self._cuda.Stream(self._place), self._cuda.graph_pool_handle()
        compute = self._cuda.current_stream(self._place)
        self._stream.wait_stream(compute)
        graph = self._cuda.CUDAGraph()
        try:
            with self._cuda.stream(self._stream):
                f(list(inputs))
                return graph, self._recorded(graph, f, inputs)
        finally:
            compute.wait_stream(self._stream)

    def _recorded(self, graph: CudaGraph, f: _Function, inputs: Sequence[Any]) -> Any:
        """Captures the work of a call; returns its results."""
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                return f(list(inputs))
            finally:
                graph.capture_end()
        except RuntimeError as e:  # the class of all errors of PyTorch
            raise CaptureError(str(e)) from e


class _Form:
    """Calls with equal dtypes and shapes of tensors, and equal values on the host.

    Args:
      values: the inputs of the first call.

    Attributes:
      calls: the number of calls without a graph.
      fixed: the positions of inputs that were the same tensor in all calls.
      graph: the graph; None before its capture.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.calls = 0
        self.fixed = {i for i, v in enumerate(values) if isinstance(v, torch.Tensor)}
        self.graph: CudaGraph | None = None
        self._seen = {i: weakref.ref(values[i]) for i in self.fixed}
        self._buffers: dict[int, torch.Tensor] = {}
        self._out: Any = None

    def keep_fixed(self, values: Sequence[Any]) -> bool:
        """Removes inputs from `fixed` that are other tensors; returns whether there are none."""
        others = [i for i in self.fixed if self._seen[i]() is not values[i]]
        self.fixed.difference_update(others)
        return not others

    def capture(self, f: _Function, graphs: Graphs, values: Sequence[Any]) -> int:
        """Captures `f` for these inputs and those of later calls.

        Returns:
          The number of copies for each replay.
        """
        self.graph = self._out = None  # its memory is free for the new graph
        self._buffers = {i: values[i].clone() for i in self._seen if i not in self.fixed}
        self.graph, self._out = graphs.capture(f, [self._buffers.get(i, v) for i, v in enumerate(values)])
        return len(self._buffers) + (len(self._out) if type(self._out) is tuple else 1)

    def replay(self, values: list[Any]) -> Any:
        """Replays the graph for other inputs."""
        assert self.graph is not None
        for i, buffer in self._buffers.items():
            buffer.copy_(values[i])
        values.clear()
        self.graph.replay()
        out = self._out
        return tuple([t.clone() for t in out]) if type(out) is tuple else out.clone()


class Replayed:
    """A function of a list of tensors and host values, with graphs of it.

    Args:
      f: the function; it is pure.
      graphs: the pool of the device's graphs.
      name: the name of the function in records.
      kernels: the number of kernels that it calls.
    """

    def __init__(self, f: _Function, graphs: Graphs, name: str, kernels: int) -> None:
        self._f = f
        self._graphs = graphs
        self._name = name
        self._kernels = kernels
        self._forms: dict[Hashable, _Form] = {}
        self._is_refused = False

    def __call__(self, values: list[Any]) -> Any:
        if self._is_refused or not self._graphs.can_replay:
            return self._f(values)
        key = _key(values)
        if key is None:
            return self._f(values)
        with self._graphs.lock:
            form = self._form(key, values)
            if form is not None and self._has_graph(form, values):
                return form.replay(values)
        return self._f(values)

    def _form(self, key: Hashable, values: Sequence[Any]) -> _Form | None:
        """The form of a call; None if there are too many."""
        found = self._forms.get(key)
        if found is None and sum(form.graph is not None for form in self._forms.values()) < thresholds.GRAPHS:
            if len(self._forms) >= thresholds.GRAPH_FORMS:
                self._forms = {k: form for k, form in self._forms.items() if form.graph is not None}
            found = self._forms[key] = _Form(values)
        return found

    def _has_graph(self, form: _Form, values: Sequence[Any]) -> bool:
        """Whether a form has a graph for these inputs; captures it in time."""
        are_same = form.keep_fixed(values)
        if form.graph is not None and are_same:
            return True
        form.calls += 1
        if self._is_refused or form.calls < thresholds.GRAPH_CALLS:
            return False
        try:
            copies = form.capture(self._f, self._graphs, values)
        except CaptureError as e:
            self._refuse(str(e))
            return False
        if self._kernels <= copies + 1:
            self._refuse(f"a replay has {copies} copies, in place of {self._kernels} kernels")
        return not self._is_refused

    def _refuse(self, why: str) -> None:
        self._is_refused = True
        self._forms.clear()
        notices.inform("compile", [f"the segment of '{self._name}' runs without CUDA graphs: {why}"])


def _key(values: Sequence[Any]) -> Hashable:
    """The form of inputs; None if a value on the host is large."""
    parts: list[Hashable] = []
    for v in values:
        if isinstance(v, torch.Tensor):
            parts.append((v.dtype, v.shape))
        elif isinstance(v, (np.ndarray, np.generic)) and v.dtype != object and v.nbytes <= thresholds.GRAPH_HOST_BYTES:
            parts.append((v.dtype, v.shape, v.tobytes()))
        else:
            return None
    return tuple(parts)
