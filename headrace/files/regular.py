"""Reading of untrusted files.

The file must be a regular one, because a reader of a pipe could wait without end. Every position and length is compared
with the file's size before memory is allocated, and an `OSError` becomes one of headrace's errors.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)
from headrace.files import system

if TYPE_CHECKING:
    from types import TracebackType

_CLASSES: Final[dict[int, type[OpError]]] = {
    errno.ENOENT: NotFoundError,
    errno.ENOTDIR: FailedPreconditionError,
    errno.EISDIR: FailedPreconditionError,
    errno.ENOTEMPTY: FailedPreconditionError,
    errno.ENXIO: FailedPreconditionError,
    errno.EROFS: PermissionDeniedError,
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
    errno.ENOSPC: ResourceExhaustedError,
    errno.EDQUOT: ResourceExhaustedError,
    errno.EFBIG: ResourceExhaustedError,
    errno.EMFILE: ResourceExhaustedError,
    errno.ENOMEM: ResourceExhaustedError,
    errno.ENFILE: ResourceExhaustedError,
    errno.EIO: DataLossError,
    errno.ENAMETOOLONG: InvalidArgumentError,
    errno.EINVAL: InvalidArgumentError,
    errno.ELOOP: InvalidArgumentError,
}


@contextmanager
def named(path: str) -> Iterator[None]:
    """Context in which an `OSError` becomes one of headrace's errors, with `path` in its text."""
    try:
        yield
    except OSError as e:
        kind = _CLASSES.get(e.errno or 0, UnavailableError)
        raise kind(f"{path}; {os.strerror(e.errno) if e.errno else e}") from e


def check_path(path: str, what: str = "path") -> str:
    """Returns `path` if a file can have that name.

    Raises:
      InvalidArgumentError: The path is empty or contains a zero byte.
    """
    if not path or "\0" in path:
        why = "has a zero byte" if path else "is empty"
        raise InvalidArgumentError(f"{what} {path!r} names no file: it {why}")
    return path


class RegularFile:
    """Regular file, open for reading at any position. A context manager.

    Args:
      path: The path of the file.

    Attributes:
      path: The path of the file.
      size: The size in bytes at the time of opening.

    Raises:
      NotFoundError, PermissionDeniedError: The file cannot be opened.
      FailedPreconditionError: The path is a folder, a pipe or a device.
    """

    def __init__(self, path: str) -> None:
        self.path = check_path(path)
        with named(path):
            # without O_NONBLOCK, the open call would wait for a pipe
            self._fd = system.descriptor(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise FailedPreconditionError(f"{path} is no regular file; a file of data is wanted here")
        self.size = status.st_size

    def __enter__(self) -> RegularFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    def read(self, offset: int, n: int, what: str = "data") -> bytes:
        """Reads `n` bytes from `offset` on.

        Raises:
          DataLossError: The file is too short.
        """
        return self.read_array(offset, n, what).tobytes()

    def read_array(self, offset: int, n: int, what: str = "data") -> np.ndarray:
        """Reads `n` bytes from `offset` on into a new uint8 vector; errors as in `read`."""
        _check_range(self.path, self.size, offset, n, what)
        out = np.empty(n, np.uint8)
        view, at = memoryview(out), offset  # type: ignore[arg-type]
        while view:
            with named(self.path):
                got = os.preadv(self._fd, [view], at)
            if not got:
                raise DataLossError(f"{self.path}: the file became shorter while {what} was read")
            view, at = view[got:], at + got
        return out

    def mapped(self) -> MappedFile | None:
        """Maps the file into memory; None if its file system cannot."""
        try:
            return MappedFile(self.path, self._fd, self.size)
        except OSError as e:
            if e.errno == errno.ENODEV:
                return None
            with named(self.path):
                raise


class MappedFile:
    """Regular file in memory.

    The system reads a page of it at the first use. The pages are private, so a change of an array does not reach the
    file. They are there as long as an array refers to them, also after the file is deleted, or replaced by another one
    of its name. The bytes of the file must not change: a page that was not used yet would have the new ones, and the
    use of a page that the file no longer has ends the process (SIGBUS). headrace's own writers replace files.

    Args:
      path: The path of the file.
      fd: Its descriptor, which is not needed after the construction.
      size: Its size.

    Raises:
      OSError: The system cannot map the file.
      DataLossError: The file became shorter.
    """

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path, self.size = path, size
        self._bytes = np.empty(0, np.uint8)
        if size:
            try:
                self._bytes = np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_COPY), np.uint8)
            except ValueError as e:
                raise DataLossError(f"{path}: the file became shorter while it was opened") from e

    def read_array(self, offset: int, n: int, what: str = "data") -> np.ndarray:
        """Returns `n` bytes from `offset` on as a uint8 vector, not a copy.

        Errors are those of `RegularFile.read`.
        """
        _check_range(self.path, self.size, offset, n, what)
        return self._bytes[offset : offset + n]


def _check_range(path: str, size: int, offset: int, n: int, what: str) -> None:
    """Raises `DataLossError` unless a file of `size` bytes has `n` bytes at `offset`."""
    if offset < 0 or n < 0 or offset + n > size:
        raise DataLossError(
            f"{path}: {what} should be {n} bytes at {offset}, but the file has {size}; it was cut short or damaged"
        )


def check_apart(ranges: Iterable[tuple[int, int, str]], path: str) -> None:
    """Raises `DataLossError` if two ranges share bytes.

    Otherwise a small file could claim any amount of data by naming the same bytes several times.

    Args:
      ranges: The offset, size and name of each range.
      path: The path of the file, for the error.
    """
    end, last = 0, ""
    for offset, size, name in sorted(r for r in ranges if r[1]):
        if offset < end:
            raise DataLossError(f"{path}: {last!r} and {name!r} claim the same bytes; the file is damaged")
        end, last = offset + size, name


def delete(paths: Iterable[str]) -> None:
    """Deletes files, except those that do not exist."""
    for path in paths:
        with named(path):
            try:
                system.unlink(path)
            except FileNotFoundError:
                continue
