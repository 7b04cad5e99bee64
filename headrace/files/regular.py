"""Reading of untrusted files.

The file must be a regular one, because a reader of a pipe could wait without end. Every position and length is compared
with the file's size before memory is allocated, and an `OSError` becomes one of headrace's errors.
"""

from __future__ import annotations

import errno
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
        if offset < 0 or n < 0 or offset + n > self.size:
            raise DataLossError(
                f"{self.path}: {what} should be {n} bytes at {offset}, but the file has {self.size}; it was "
                "cut short or damaged"
            )
        out = np.empty(n, np.uint8)
        view, at = memoryview(out), offset  # type: ignore[arg-type]
        while view:
            with named(self.path):
                got = os.preadv(self._fd, [view], at)
            if not got:
                raise DataLossError(f"{self.path}: the file became shorter while {what} was read")
            view, at = view[got:], at + got
        return out


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
