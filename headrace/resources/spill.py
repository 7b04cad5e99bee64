"""A spill file: where arrays go that there is no room for in memory.

It has no name: it is unlinked as soon as it is open, so that nothing of it stays whatever ends the process. Only bytes
are in it. What array they are (`Layout`) is kept in memory, so nothing that is read from the file is interpreted.
Arrays are written from where they lie and read into fresh ones, by system calls which let other threads run meanwhile;
the file is never mapped, which would count as memory of the process.

**The same array comes back**, not one that is merely equal: its dimensions lie in the same order, with the same gaps
between them. The libraries that add and multiply take other ways through other layouts, and the last bits differ then.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import functools
import math
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from headrace import forking, thresholds

PAGE: Final = 4096  # slots are multiples of this


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory.

    Attributes:
      shape, dtype, strides: as numpy knows them.
      first: where its first element lies, in bytes from the lowest one.
      span: bytes from the lowest to the highest.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]
    first: int
    span: int

    @classmethod
    def of(cls, value: object) -> Layout | None:
        """The layout of `value`; None if it is not worth writing, or no plain array."""
        if not isinstance(value, np.ndarray) or value.nbytes < thresholds.SPILLED_BYTES or value.dtype.hasobject:
            return None
        return _layout(value.shape, value.dtype, value.strides)

    def array(self, buffer: np.ndarray) -> np.ndarray:
        """The array of this layout that lies in `buffer`, of `span` bytes."""
        return np.ndarray(self.shape, self.dtype, buffer, self.first, self.strides)

    def bytes_of(self, value: np.ndarray) -> memoryview:
        """The memory in which `value`, of this layout, lies. It must be held as long as this is used."""
        if value.flags.c_contiguous:
            return value.reshape(-1).view(np.uint8).data
        address = value.__array_interface__["data"][0] - self.first
        return memoryview((ctypes.c_char * self.span).from_address(address))


@functools.lru_cache(256)  # loops keep values of a few kinds, many of each
def _layout(shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...]) -> Layout | None:
    if any(n > 1 and not step for n, step in zip(shape, strides, strict=True)):
        return None  # it repeats itself without memory of its own
    steps = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    first = -sum(s for s in steps if s < 0)
    span = first + sum(s for s in steps if s > 0) + dtype.itemsize
    if span > thresholds.SPILL_SPAN * math.prod(shape) * dtype.itemsize:
        return None
    return Layout(shape, dtype, strides, first, span)


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """A place in the file."""

    offset: int
    size: int


class SpillFile:
    """See the module's text. Any thread may `write` and `read`; who calls `reserve` and `free` must hold a lock.

    Args:
      folder: where it is; "": where the system has temporary files.

    Attributes:
      used: bytes in slots that are not free.

    Raises:
      OSError: no file can be made there.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._open()
        self.used = 0
        self._end = 0
        self._free: dict[int, list[int]] = {}  # offsets of free slots, by size
        forking.register_at_fork(self)

    def _open(self) -> None:
        import tempfile  # brings much with it

        self._file = tempfile.TemporaryFile(buffering=0, prefix="headrace-", dir=self._folder or None)  # noqa: SIM115
        self.close = weakref.finalize(self, self._file.close)  # gives the disk its space back; may be called twice
        self._is_parents = False

    def _forked(self) -> None:
        """See `forking`: what is written from now on must not go into the parent's file."""
        self._is_parents = True

    @property
    def size(self) -> int:
        """How far the file reaches, in bytes."""
        return self._end

    def reserve(self, n: int) -> Slot:
        """A slot for `n` bytes.

        Raises:
          OSError: it would be the first in a forked process, and no file can be made.
        """
        if self._is_parents:
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
        """Lets `slot` be reserved again."""
        self.used -= slot.size
        if self.used:
            self._free.setdefault(slot.size, []).append(slot.offset)
        else:
            self._free.clear()
            self._end = 0

    def write(self, pieces: Sequence[tuple[Slot, Layout, np.ndarray]]) -> None:
        """Writes arrays of these layouts, those that lie beside each other in the file by one system call.

        Raises:
          OSError: the disk is full, or fails.
        """
        fd = self._number()
        for offset, data in _runs([(slot, layout.bytes_of(value)) for slot, layout, value in pieces]):
            while data:
                n = os.pwritev(fd, data, offset)
                offset, data = offset + n, _rest(data, n)

    def read(self, pieces: Sequence[tuple[Slot, np.ndarray]]) -> None:
        """Reads what was written to slots, each into an array of as many bytes.

        Raises:
          OSError: the disk fails.
        """
        fd = self._number()
        for offset, data in _runs([(slot, buffer.data) for slot, buffer in pieces]):
            while data:
                n = os.preadv(fd, data, offset)
                if not n:
                    raise OSError(errno.EIO, "the spill file has been cut short")
                offset, data = offset + n, _rest(data, n)

    def _number(self) -> int:
        if self._file.closed:
            raise OSError(errno.EBADF, "the spill file is closed")
        return self._file.fileno()


def _runs(pieces: Sequence[tuple[Slot, memoryview]]) -> Iterator[tuple[int, list[memoryview]]]:
    """The pieces of memory that belong into slots side by side: the offset of the first slot, and they."""
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
