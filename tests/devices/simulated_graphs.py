"""A simulation of the CUDA graphs of PyTorch on the processor.

`Cuda` is in place of `torch.cuda` in `devices.torch.graphs`. A capture records the operations of PyTorch; a replay runs
them again on the same tensors, and writes into the results of the capture. As on a device:

* A capture computes nothing: its results are NaN, or large integers, until the first replay.
* The graphs of a pool share memory, so that a replay destroys the results of all other graphs.
* A read of an element on the host cannot be captured, and ends the capture with an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

_READS = ("__bool__", "__float__", "__int__", "cpu", "item", "nonzero", "numpy", "tolist")


class SimulatedStream:
    """A stream, whose work is done at once.

    Attributes:
      waited: the streams that it waited for.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.waited: list[str] = []

    def wait_stream(self, other: SimulatedStream) -> None:
        self.waited.append(other.name)


class _Recorder(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is not typed for mypy
    """Records the functions of PyTorch that a capture calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []
        self.is_broken = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in _READS:
            self.is_broken = True
            raise RuntimeError("operation not permitted when stream is capturing")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, _tensors(out)))
        return out


class Graph:
    """A graph, see `torch.cuda.CUDAGraph`."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._recorder = _Recorder()
        self._made: list[torch.Tensor] = []  # in the memory of the graph

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        assert pool is self._cuda.pool
        assert capture_error_mode == "thread_local"
        assert self._cuda.streams[-1].waited, "the stream of the capture waits for the work before"
        self._recorder.__enter__()

    def capture_end(self) -> None:
        self._recorder.__exit__(None, None, None)
        if self._recorder.is_broken:
            raise RuntimeError("operation failed due to a previous error during capture")
        self._cuda.captures += 1
        self._cuda.graphs.append(self)
        known: set[int] = set()  # memory from outside
        for _, args, kwargs, made in self._recorder.calls:
            known.update(_memory(t) for t in _tensors((args, kwargs)) if not any(t is m for m in self._made))
            self._made += [t for t in made if _memory(t) not in known]
        self.destroy()

    def destroy(self) -> None:
        """Writes garbage into the memory of the graph."""
        for t in self._made:
            if t.dtype.is_floating_point or t.dtype.is_complex:
                t.fill_(float("nan"))
            elif t.dtype is not torch.bool:
                t.fill_(torch.iinfo(t.dtype).max)

    def replay(self) -> None:
        self._cuda.replays += 1
        self._cuda.before_replay()
        for other in self._cuda.graphs:
            other.destroy()
        for func, args, kwargs, made in self._recorder.calls:
            for old, new in zip(made, _tensors(func(*args, **kwargs)), strict=True):
                if _memory(old) != _memory(new):
                    old.copy_(new)


class Cuda:
    """The part of `torch.cuda` that `devices.torch.graphs` uses.

    Attributes:
      captures, replays: how many there were.
      before_replay: called at the beginning of each replay.
      streams: the default stream and those that were entered, innermost last.
    """

    def __init__(self) -> None:
        self.captures = self.replays = 0
        self.before_replay: Callable[[], object] = lambda: None
        self.graphs: list[Graph] = []
        self.pool = object()
        self.streams = [SimulatedStream("default")]

    def CUDAGraph(self) -> Graph:
        return Graph(self)

    def graph_pool_handle(self) -> object:
        return self.pool

    def Stream(self, device: torch.device) -> SimulatedStream:
        return SimulatedStream("side")

    @contextlib.contextmanager
    def stream(self, stream: SimulatedStream) -> Iterator[None]:
        self.streams.append(stream)
        try:
            yield
        finally:
            self.streams.pop()

    def current_stream(self, device: torch.device) -> SimulatedStream:
        return self.streams[-1]

    def default_stream(self, device: torch.device) -> SimulatedStream:
        return self.streams[0]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [t for t in tree_iter(values) if isinstance(t, torch.Tensor)]


def _memory(t: torch.Tensor) -> int:
    found: int = t.untyped_storage().data_ptr()
    return found
