"""Spill files: storage for arrays for which memory has no room.

A spill file has no name: it is unlinked as soon as it is open, so nothing of it remains when the process ends for any
reason. It contains only bytes. The layout of each array (`Layout`) is kept in memory, so bytes from the file are never
interpreted. Arrays are written from their memory and read into new arrays, by system calls during which other threads
run. The file is never mapped, because a mapping would count as memory of the process.

**The layout is preserved**, and not only the values: the dimensions have the same order and the same gaps in memory.
The libraries that add and multiply use other algorithms for other layouts, so that the last bits would differ.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final

import numpy as np

from headrace import flags, forking, thresholds
from headrace.device_arrays import ArrayMemory, is_host, to_host
from headrace.memo import cached
from headrace.records import record

if TYPE_CHECKING:
    from headrace.resources.values import Value

PAGE: Final = 4096  # the size of a slot is a multiple of this


@record(frozen=True, slots=True)
class Layout:
    """Layout of an array in memory.

    Attributes:
      shape: The shape.
      dtype: The dtype.
      strides: The strides in bytes, as in numpy.
      first: The position of the first element, in bytes from the lowest one.
      span: The number of bytes from the lowest to the highest one.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]
    first: int
    span: int

    @classmethod
    def of(cls, value: object) -> Layout | None:
        """The layout of `value`; None if too small, too sparse or no array of numbers."""
        if not isinstance(value, np.ndarray) or value.nbytes < thresholds.SPILLED_BYTES or value.dtype.hasobject:
            return None
        return layout(value.shape, value.dtype, value.strides)

    def array(self, buffer: np.ndarray) -> np.ndarray:
        """The array of this layout in `buffer`, which has `span` bytes."""
        return np.ndarray(self.shape, self.dtype, buffer, self.first, self.strides)

    def bytes_of(self, value: np.ndarray) -> memoryview:
        """The memory of `value`, which has this layout and must outlive the result."""
        if value.flags.c_contiguous:
            return value.reshape(-1).view(np.uint8).data
        address = value.__array_interface__["data"][0] - self.first
        return memoryview((ctypes.c_char * self.span).from_address(address))


@cached(256, "layouts of arrays")  # loops keep many values of a few layouts
def layout(shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...]) -> Layout | None:
    """Returns the layout of arrays; None if it is too sparse.

    Args:
      shape: the shape.
      dtype: the dtype.
      strides: the strides in bytes.
    """
    if any(n > 1 and not step for n, step in zip(shape, strides, strict=True)):
        return None  # a broadcast array, whose elements share memory
    steps = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    first = -sum(s for s in steps if s < 0)
    span = first + sum(s for s in steps if s > 0) + dtype.itemsize
    if span > thresholds.SPILL_SPAN * math.prod(shape) * dtype.itemsize:
        return None
    return Layout(shape, dtype, strides, first, span)


@record(frozen=True, slots=True)
class Slot:
    """Place in the file.

    Attributes:
      offset: Its position in bytes.
      size: Its size in bytes.
    """

    offset: int
    size: int


class SpillFile:
    """Spill file, a `device_arrays.Store`; see the module's text. It is made on first use.

    Any thread may call `write` and `read`. A caller of `reserve` and `free` must hold a lock.

    Args:
      place: The near memory of a device whose values it stores; None for arrays of numpy.

    Attributes:
      name: Its name in messages.
      remedy: How a user gives it more room.
      used: The bytes in slots that are not free.
    """

    name: Final = "the spill file"
    remedy: Final = "let HEADRACE_SPILL_FOLDER name a folder with more room"

    def __init__(self, place: ArrayMemory | None = None) -> None:
        self._place = place
        self._file: IO[bytes] | None = None
        self._is_opened_next = True  # whether the next reservation makes a file
        self.used = 0
        self._end = 0
        self._free: dict[int, list[int]] = {}  # offsets of free slots, by size
        forking.register_at_fork(self)

    def _open(self) -> None:
        import tempfile  # imports many modules

        folder = flags.SPILL_FOLDER.value or None
        self._file = tempfile.TemporaryFile(buffering=0, prefix="headrace-", dir=folder)  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # frees the disk space
        self._is_opened_next = False

    def _forked(self) -> None:
        """Detaches a forked child from the file of its parent; see `forking`."""
        self._is_opened_next = True

    def close(self) -> None:
        """Frees the disk space. Further calls have no effect."""
        self._is_opened_next = False
        if self._file is not None:
            self._file.close()

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._end

    def reserve(self, n: int) -> Slot:
        """Reserves a slot for `n` bytes.

        Raises:
          OSError: It is the first slot of this process, and the file cannot be made.
        """
        if self._is_opened_next:
            self.close()
            self._open()
        size = math.ceil(n / PAGE) * PAGE
        free = self._free.get(size)
        if free:
            offset = free.pop()
        else:
            offset, self._end = self._end, self._end + size
        self.used += size
        return Slot(offset, size)

    def free(self, slot: Slot) -> None:
        """Frees `slot`, so that it can be reserved again."""
        self.used -= slot.size
        if self.used:
            self._free.setdefault(slot.size, []).append(slot.offset)
        else:
            self._free.clear()
            self._end = 0

    def layout_of(self, value: Value) -> Layout | None:
        """The layout of `value`; None if it is not to be stored, see `Layout.of`."""
        return Layout.of(to_host(value)) if is_host(value) is (self._place is None) else None

    def write(self, pieces: Sequence[tuple[Slot, Layout, Value]]) -> None:
        """Writes arrays, those with adjacent slots by one system call.

        Args:
          pieces: The slot, the layout and the array of each.

        Raises:
          OSError: The disk is full or fails.
        """
        fd = self._number()
        there = [(slot, layout, to_host(value)) for slot, layout, value in pieces]  # they outlive the bytes
        for offset, data in _runs([(slot, layout.bytes_of(array)) for slot, layout, array in there]):
            while data:
                n = os.pwritev(fd, data, offset)
                offset, data = offset + n, _rest(data, n)

    def buffer(self, layout: Layout) -> np.ndarray:
        """New memory for the bytes of an array."""
        return np.empty(layout.span, np.uint8)

    def read(self, pieces: Sequence[tuple[Slot, Layout, np.ndarray]]) -> list[Value]:
        """Reads arrays.

        Args:
          pieces: The slot, the layout and the `buffer` of each.

        Returns:
          The arrays, in the buffers.

        Raises:
          OSError: The disk fails.
        """
        fd = self._number()
        for offset, data in _runs([(slot, buffer.data) for slot, _, buffer in pieces]):
            while data:
                n = os.preadv(fd, data, offset)
                if not n:
                    raise OSError(errno.EIO, "the spill file has been cut short")
                offset, data = offset + n, _rest(data, n)
        arrays = [layout.array(buffer) for _, layout, buffer in pieces]
        return arrays if self._place is None else list(map(self._place.put, arrays))

    def _number(self) -> int:
        if self._file is None or self._file.closed:
            raise OSError(errno.EBADF, "the spill file is closed")
        return self._file.fileno()


def _runs(pieces: Sequence[tuple[Slot, memoryview]]) -> Iterator[tuple[int, list[memoryview]]]:
    """Groups pieces of memory with adjacent slots; yields the first offset and the pieces."""
    run: list[memoryview] = []
    start = end = -1
    for slot, data in sorted(pieces, key=lambda p: p[0].offset):
        if slot.offset != end or len(run) == thresholds.SPILL_BUFFERS:
            if run:
                yield start, run
            run, start = [], slot.offset
        run.append(data)
        end = slot.offset + len(data)
    if run:
        yield start, run


def _rest(data: list[memoryview], n: int) -> list[memoryview]:
    """`data` without its first `n` bytes."""
    while data and n >= len(data[0]):
        n -= len(data[0])
        data = data[1:]
    return [data[0][n:], *data[1:]] if n else data
