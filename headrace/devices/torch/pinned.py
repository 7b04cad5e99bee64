"""Pinned memory: the store of values for which a CUDA device has no room.

`resources.memory` moves the values that loops keep. A copy out begins when compute has done what was enqueued so far,
and the copy stream waits for its end; then the memory of the device is freed. A copy in is enqueued ahead of use. The
host does not wait for it, and compute waits when the value is first read (`streams.Copy.arrived`).

A value is copied as it lies: the elements from the lowest to the highest one, in one copy. So its strides are kept, by
which kernels choose their algorithms. A value that spans much more memory than it has elements stays on the device, and
so does one whose elements share memory.

The machine cannot use pinned memory for anything else, so `flags.pinned_limit` bounds all stores of a process together.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import flags, forking, thresholds
from headrace.device_arrays import DeviceArray
from headrace.errors import HeadraceError
from headrace.records import record

if TYPE_CHECKING:
    import torch

    from headrace.device_arrays import ArrayMemory, Arrival
    from headrace.devices.torch.streams import Streams


@record(frozen=True, slots=True)
class Layout:
    """Layout of a tensor in memory.

    Attributes:
      shape: the shape.
      strides: the strides, in elements.
      elements: the number of elements from the lowest to the highest one.
      span: the number of bytes of these.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    elements: int
    span: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout | None:
        """Returns the layout of a tensor; None if it is too small or too sparse."""
        size = tensor.numel()
        if size * tensor.itemsize < thresholds.SPILLED_BYTES or tensor.is_conj() or tensor.is_neg():
            return None
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        dims = [(n, step) for n, step in zip(shape, strides, strict=True) if n > 1]
        elements = 1 + sum((n - 1) * step for n, step in dims)
        if any(not step for _, step in dims) or elements > thresholds.SPILL_SPAN * size:
            return None
        return cls(shape, strides, elements, elements * tensor.itemsize)

    def flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the memory of a tensor with this layout as a vector."""
        return tensor.as_strided((self.elements,), (1,))

    def tensor(self, flat: torch.Tensor) -> torch.Tensor:
        """Inverse of `flat`."""
        return flat.as_strided(self.shape, self.strides)


class _Coming:
    """A value that was begun to be copied to the device, see `device_arrays.Arrival`."""

    __slots__ = ("_copy", "_layout")

    def __init__(self, copy: Arrival, layout: Layout) -> None:
        self._copy, self._layout = copy, layout

    def arrived(self) -> torch.Tensor:
        return self._layout.tensor(self._copy.arrived())


class Slot:
    """Pinned memory of one value.

    Attributes:
      size: the bytes that are counted for it.
      flat: the elements; None before they were written.
    """

    __slots__ = ("flat", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.flat: torch.Tensor | None = None


class Bound:
    """Count of the pinned memory of all stores of this process. Thread-safe.

    Attributes:
      held: the bytes.
    """

    def __init__(self) -> None:
        self.held = 0
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.Lock()

    def change(self, n: int) -> None:
        """Adds `n` bytes; raises OSError if there would be too many."""
        limit = flags.pinned_limit()
        with self._lock:
            if n > 0 and self.held + n > limit:
                raise OSError(
                    errno.ENOMEM,
                    f"the limit is {limit:,} bytes of pinned memory, of which {self.held:,} are in use, and a value "
                    f"needs {n:,}",
                )
            self.held += n


_bound: Final = Bound()


class PinnedStore:
    """Values of a CUDA device in pinned memory of the host; see `device_arrays.Store`.

    Args:
      memory: the memory of the device.
      streams: its streams.
      bound: the count of pinned memory.

    Attributes:
      name: its name in messages.
      remedy: how a user gives it more room.
      used: the bytes in slots that are not free.
    """

    name: Final = "pinned memory of the host"
    remedy: Final = "raise HEADRACE_PINNED_LIMIT, if the machine has the memory"

    def __init__(self, memory: ArrayMemory, streams: Streams, bound: Bound = _bound) -> None:
        self._memory, self._streams, self._bound = memory, streams, bound
        self._is_closed = False
        self.used = 0

    def layout_of(self, value: Any) -> Layout | None:
        """Returns the layout of a value; None if the value stays where it is."""
        return Layout.of(value.array) if type(value) is DeviceArray and value.memory is self._memory else None

    def reserve(self, n: int) -> Slot:
        """Returns a slot for `n` bytes; raises OSError if there is no room."""
        self._bound.change(n)
        self.used += n
        return Slot(n)

    def free(self, slot: Slot) -> None:
        """Frees a slot.

        PyTorch keeps its memory until the copies from it that were begun have ended.
        """
        self._bound.change(-slot.size)
        self.used -= slot.size

    def write(self, pieces: Sequence[tuple[Slot, Layout, DeviceArray]]) -> None:
        """Copies values to slots and waits for the copies; raises OSError if the device fails."""
        try:
            copies = [self._streams.to_host(layout.flat(value.array)) for _, layout, value in pieces]
            for (slot, _, _), copy in zip(pieces, copies, strict=True):
                slot.flat = copy.wait()
        except (RuntimeError, HeadraceError) as e:
            raise OSError(errno.EIO, str(e)) from e

    def buffer(self, layout: Layout) -> None:
        """Returns None: `read` allocates memory of the device."""

    def read(self, pieces: Sequence[tuple[Slot, Layout, None]]) -> list[DeviceArray]:
        """Begins copies to the device and returns the values, which arrive later.

        Raises:
          OSError: the store is closed.
          ResourceExhaustedError: the device has no memory for a value.
        """
        out = []
        for slot, layout, _ in pieces:
            if slot.flat is None or self._is_closed:
                raise OSError(errno.EBADF, "the session of the value is closed")
            try:
                copy = self._streams.to_device(slot.flat)
            except RuntimeError as e:
                raise self._memory.error_of(e) from e
            out.append(DeviceArray.arriving(_Coming(copy, layout), self._memory))
        return out

    def close(self) -> None:
        """Refuses further reads."""
        self._is_closed = True
