"""Access to files of this machine, with headrace's error classes.

Paths are text, bytes or path objects, as in TensorFlow; relative ones start at the working folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager
from typing import IO, Any, Final, TypeAlias

from headrace import thresholds
from headrace.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from headrace.files import system
from headrace.files.regular import check_path, named

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

MOST_BYTES: Final = 1 << 31  # of one read: no tensor of one string is larger


def text_of(path: Path) -> str:
    """A path as text, in which bytes that are not UTF-8 become surrogate escapes.

    Raises:
      InvalidArgumentError: The path contains a zero byte.
    """
    text = os.fsdecode(os.fspath(path))
    if "\0" in text:
        raise InvalidArgumentError(f"{text!r} is no path: it has a zero byte")
    return text


def as_ours(path: Path) -> AbstractContextManager[None]:
    """Context in which errors of the system about `path` become headrace's errors."""
    return named(text_of(path))


def opened(path: Path, mode: str = "rb") -> IO[Any]:
    """Opens the regular file at `path` in a binary mode.

    Raises:
      NotFoundError, PermissionDeniedError: The file cannot be opened.
      FailedPreconditionError: The path is a folder, a pipe or a device.
    """
    name = check_path(text_of(path))
    with named(name):
        file = system.stream(name, mode, waits=False)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise FailedPreconditionError(f"{name} is no regular file; a file of data is wanted here")
        return file


def whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """Reads the bytes of a file.

    Raises:
      ResourceExhaustedError: The file has more than `most` bytes.
      NotFoundError, FailedPreconditionError, PermissionDeniedError, UnknownError: The file cannot be read.
    """
    with opened(path) as file, as_ours(path):
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ResourceExhaustedError(f"{text_of(path)} has {size} bytes; at most {most} are read at once")
        content = taken(file, most + 1)
    if len(content) > most:  # it grew, or the system does not report the size of such files
        raise ResourceExhaustedError(f"{text_of(path)} has more than {most} bytes; so many are read at once at most")
    return content


def taken(file: IO[bytes], n: int) -> bytes:
    """Reads at most `n` bytes; memory grows with the data that arrives, not with `n`."""
    if n <= thresholds.READ_BYTES:
        return file.read(n)
    pieces = []
    while n > 0:
        piece = file.read(min(n, thresholds.READ_BYTES))
        if not piece:
            break
        pieces.append(piece)
        n -= len(piece)
    return b"".join(pieces)


def made_folder(path: Path) -> str:
    """Makes a folder and its parents if needed; returns its path as text.

    Raises:
      FailedPreconditionError: A file has this path.
      PermissionDeniedError, UnknownError: The folder cannot be made.
    """
    name = text_of(path)
    with as_ours(path):
        try:
            system.makedirs(name)
        except FileExistsError as e:
            raise FailedPreconditionError(f"{name} is not a directory") from e
    return name


def written(path: Path, content: bytes) -> None:
    """Writes a file, which replaces an existing one, and makes its parent folders.

    Raises:
      FailedPreconditionError, PermissionDeniedError, UnknownError: The file cannot be written.
    """
    name = text_of(path)
    if folder := os.path.dirname(name):
        made_folder(folder)
    with opened(path, "wb") as file, as_ours(path):
        file.write(content)


def matching(pattern: Path) -> list[str]:
    """Paths that match a pattern, sorted.

    `*` and `?` match characters of one name, and `[...]` one of several characters. A `*` does not match a path
    separator. Names that begin with a dot match too, as in TensorFlow.

    Raises:
      InvalidArgumentError: The pattern contains a zero byte.
    """
    return sorted(system.glob(text_of(pattern)))
