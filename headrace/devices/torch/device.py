"""The device types "TORCH" and "GPU": memory, copies and namespace of PyTorch's tensors."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from headrace import dtypes, flags
from headrace.device_arrays import DeviceArray
from headrace.devices.torch import updates
from headrace.devices.torch.allocator import Allocator
from headrace.devices.torch.graphs import Graphs, Replayed
from headrace.devices.torch.pinned import PinnedStore
from headrace.devices.torch.streams import Copy, Streams
from headrace.devices.torch.tensors import array_of, copied, has_order, is_private, tensor_of
from headrace.errors import HeadraceError, InvalidArgumentError, ResourceExhaustedError
from headrace.execute.devices import LocalDevice, device_types
from headrace.execute.entered import limit_in_steps
from headrace.ir.device import GPU, TORCH
from headrace.ir.kernel import override, provide_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableSet, Sequence

    from headrace.device_arrays import Holders
    from headrace.execute.step import Step
    from headrace.ir.device import DeviceSpec

#: Dtypes that tensors of the device have. PyTorch has the other unsigned integers, and few functions of them.
DTYPES: Final = frozenset(
    {
        dtypes.bool_,
        *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8),
        *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
        *(dtypes.complex64, dtypes.complex128),
    }
)
_NUMPY: Final = {getattr(torch, d.name): d.numpy for d in DTYPES}
_KEPT: Final = frozenset(_NUMPY.values())


class TorchMemory:
    """The memory of a device, see `device_arrays.ArrayMemory`.

    Args:
      type: the type of the device.
      index: its number.
      streams: the streams of a CUDA device; None: it is the memory of the processor.
      allocator: the allocator of a CUDA device; None: its limit and figures are not used.
      graphs: the pool of its CUDA graphs; None: it has none.

    Attributes:
      type: the type of the device.
      name: the name.
      place: PyTorch's device.
      streams: the streams of a CUDA device; None for the memory of the processor.
      is_near: whether it is the memory of the processor.
      allocator: the allocator of a CUDA device, or None.
      accounts: the accounts of open sessions.
    """

    def __init__(
        self,
        type: str,
        index: int,
        streams: Streams | None = None,
        allocator: Allocator | None = None,
        graphs: Graphs | None = None,
    ) -> None:
        self.type = type
        self.name = f"{type}:{index}"
        self.place = torch.device("cpu") if streams is None else streams.place
        self.streams = streams
        self.is_near = streams is None
        self.allocator = allocator
        self.accounts: MutableSet[Holders] = weakref.WeakSet()
        self._graphs = graphs

    @property
    def namespace(self) -> Any:
        """PyTorch's functions of the array API standard."""
        return _namespace()

    def error_of(self, error: RuntimeError) -> Exception:
        """Returns the error of the runtime for one of PyTorch, which has one class."""
        if isinstance(error, HeadraceError):
            return error
        if isinstance(error, torch.cuda.OutOfMemoryError):
            return ResourceExhaustedError(self._exhausted(error))
        return InvalidArgumentError(str(error))

    def placed(self, array: torch.Tensor) -> torch.Tensor:
        """Returns a tensor in this memory with the elements of `array`."""
        return array if self.streams is None else self.streams.to_device(array).arrived()

    def _exhausted(self, error: RuntimeError) -> str:
        """Returns the text about an allocation that failed."""
        now, most = self.figures()
        held = "; ".join(text for account in self.accounts if (text := account.holders()))
        kept = f"Of these, sessions with a memory limit hold {held}" if held else "No session lists its values"
        return (
            f"OOM on {self.name}: {error} All tensors of this process have {now:,} bytes there, at most {most:,} so "
            f"far. {kept}. Let a step compute less at a time (a smaller batch), let loops keep less "
            "(while_loop(..., save=hr.recompute('sqrt'))) or swap (while_loop(..., swap_memory=True), in an "
            "hr.Session(memory_limit=...)), or raise the limits of the sessions of this process"
        )

    def figures(self) -> tuple[int, int]:
        """Returns the bytes of all tensors of the process there, now and at most."""
        return (0, 0) if self.allocator is None else self.allocator.figures()

    def store(self) -> PinnedStore | None:
        """Returns a new store in pinned memory; None for the memory of the processor."""
        return None if self.streams is None else PinnedStore(self, self.streams)

    def captured(self, f: Callable[[list[Any]], Any], name: str, kernels: int) -> Callable[[list[Any]], Any]:
        """Returns a function of tensors that replays CUDA graphs, or the function."""
        if self._graphs is None or flags.CUDA_GRAPHS.value == "off":
            return f
        return Replayed(f, self._graphs, name, kernels)

    def has(self, value: Any) -> bool:
        """Returns whether a value is a tensor."""
        return isinstance(value, torch.Tensor)

    def dtype_of(self, array: torch.Tensor) -> np.dtype:
        """Returns numpy's dtype for a tensor."""
        return _NUMPY[array.dtype]

    def update(self, rule: str, attrs: Mapping[str, Any], numbers: Sequence[Any]) -> Callable[..., object] | None:
        """Returns PyTorch's function for a rule of an optimizer, or None."""
        return updates.find(rule, attrs, numbers)

    def may_change(self, value: DeviceArray, like: DeviceArray) -> bool:
        """Returns whether the tensor of a value may be written to; see `device_arrays.ArrayMemory.may_change`.

        A copy to the host that was begun, and not waited for, may still read it. Kernels that were enqueued before read
        it before it is written to.
        """
        return value.departure is None and is_private(value.array) and has_order(value.array, like.array)

    def copied(self, value: DeviceArray, like: DeviceArray) -> DeviceArray:
        """Returns a copy of a value with the order of elements of `like`."""
        try:
            return DeviceArray(copied(value.array, like.array), self)
        except RuntimeError as e:
            raise self.error_of(e) from e

    def put(self, value: Any) -> Any:
        """Returns a value in this memory, or the value itself if tensors lack its dtype."""
        if getattr(value, "dtype", None) not in _KEPT:
            return value
        found = tensor_of(value)
        if self.streams is None:
            return DeviceArray(found, self)
        try:
            return DeviceArray.arriving(self.streams.to_device(found), self)
        except RuntimeError as e:
            raise self.error_of(e) from e

    def begin_get(self, value: DeviceArray) -> None:
        """Begins the copy of a value to the host, if this memory is far."""
        if self.streams is not None and value.departure is None:
            value.departure = self._begun(self.streams, value)

    def get(self, value: DeviceArray, look: Callable[[], object] | None = None) -> Any:
        """Returns the elements of a value in this memory as an array of numpy.

        Pinned memory is for the copy alone: the array has other memory, because pages that are pinned for long cannot
        serve other processes.
        """
        if value.memory is not self:
            raise InvalidArgumentError(f"{value!r} is not in the memory of {self.name}")
        if self.streams is None:
            return array_of(value.array)
        departure = value.departure or self._begun(self.streams, value)
        value.departure = None
        try:
            return array_of(departure.wait(look)).copy()
        except RuntimeError as e:
            raise self.error_of(e) from e

    def _begun(self, streams: Streams, value: DeviceArray) -> Copy:
        """Begins the copy of a value to the host."""
        try:
            return streams.to_host(value.array)
        except RuntimeError as e:
            raise self.error_of(e) from e


@functools.cache
def memory(type: str, index: int) -> TorchMemory:
    """Returns the memory of a device in this process."""
    if type == TORCH:
        return TorchMemory(type, index)
    place = torch.device("cuda", index)
    streams, graphs = Streams(torch.cuda, place), Graphs(torch.cuda, place)
    return TorchMemory(type, index, streams, Allocator(torch.cuda, index), graphs)


class TorchDevice(LocalDevice):
    """A device whose values are PyTorch's tensors.

    Args:
      spec: the full name of the device.
      memory_limit: bytes that values on it may take; None: no limit.

    Raises:
      InvalidArgumentError: PyTorch finds no such device.
    """

    _is_counted = False  # whether the allocator has its limit

    def __init__(self, spec: DeviceSpec, memory_limit: int | None = None) -> None:
        super().__init__(spec, memory_limit)
        index = spec.index or 0
        if self.type == GPU and index >= torch.cuda.device_count():
            raise InvalidArgumentError(
                f"{self.name}: PyTorch finds {torch.cuda.device_count()} CUDA devices on this machine; "
                'devices={"TORCH": 1} has the same kernels on the processor'
            )
        self.memory = memory(self.type, index)
        self.enqueues = self.type == GPU
        if self.memory.allocator is not None:
            self.memory.allocator.open(memory_limit)
            self._is_counted = True

    def close(self) -> None:
        super().close()
        was_counted, self._is_counted = self._is_counted, False
        if was_counted and self.memory.allocator is not None:
            self.memory.allocator.close(self.memory_limit)

    def put(self, array: Any) -> Any:
        return self.memory.put(array)

    def trace(self, step: Step) -> Callable[[], object]:
        streams = self.memory.streams
        return super().trace(step) if streams is None else streams.trace(self.name, step).end

    def get(self, value: Any) -> Any:
        return self.memory.get(value) if type(value) is DeviceArray else value


def register() -> None:
    """Registers the device types and the namespace of their arrays."""
    limit_in_steps(torch.get_num_threads, torch.set_num_threads)
    for type in (TORCH, GPU):
        device_types.register(type, TorchDevice)
        provide_namespace(type, _namespace, DTYPES, functools.partial(memory, type))
        override("Const", type, {"dtype": DTYPES})(_constant)


def _constant(attrs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    value = tensor_of(attrs["value"])
    return lambda: value


def _namespace() -> Any:
    import array_api_compat.torch as xp

    return xp
