"""Files of this machine, opened so that what goes wrong is one of headrace's errors.

Paths come in as TensorFlow hands them around: text, bytes or path objects, relative ones from the working folder.
"""

from __future__ import annotations

import glob
import os
import stat
from contextlib import AbstractContextManager
from typing import IO, Any, Final, TypeAlias

from headrace.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from headrace.files.regular import check_path, named

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

MOST_BYTES: Final = 1 << 31  # that are read at once: no tensor of one string is larger
PIECE: Final = 1 << 20  # bytes taken at a time of what only claims to be long


def text_of(path: Path) -> str:
    """A path as text, with bytes that are no UTF-8 kept as Python keeps them.

    Raises:
      InvalidArgumentError: it has a zero byte.
    """
    text = os.fsdecode(os.fspath(path))
    if "\0" in text:
        raise InvalidArgumentError(f"{text!r} is no path: it has a zero byte")
    return text


def as_ours(path: Path) -> AbstractContextManager[None]:
    """Whatever the system refuses in the block about `path` is raised as an error of headrace's."""
    return named(text_of(path))


def opened(path: Path, mode: str = "rb") -> IO[Any]:
    """The file at `path`, opened in a binary mode; only regular files are.

    Raises:
      NotFoundError, PermissionDeniedError, ...: it cannot be opened.
      FailedPreconditionError: it is a folder, a pipe or a device.
    """
    name = check_path(text_of(path))
    with named(name):
        file = open(name, mode, opener=_at_once)  # noqa: SIM115 - whoever asked closes it
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise FailedPreconditionError(f"{name} is no regular file; a file of data is wanted here")
        return file


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting, which a pipe would have one do."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file.

    Raises:
      ResourceExhaustedError: it has more than `most` bytes.
      NotFoundError, FailedPreconditionError, PermissionDeniedError, UnknownError: it cannot be read.
    """
    with opened(path) as file, as_ours(path):
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ResourceExhaustedError(f"{text_of(path)} has {size} bytes; at most {most} are read at once")
        content: bytes = file.read(most + 1)
    if len(content) > most:  # it grew, or the system does not tell the size of such files
        raise ResourceExhaustedError(f"{text_of(path)} has more than {most} bytes; so many are read at once at most")
    return content


def taken(file: IO[bytes], n: int) -> bytes:
    """The next `n` bytes of a file, or as many as there are; memory is taken as they come, not as `n` claims."""
    if n <= PIECE:
        return file.read(n)
    pieces = []
    while n > 0:
        piece = file.read(min(n, PIECE))
        if not piece:
            break
        pieces.append(piece)
        n -= len(piece)
    return b"".join(pieces)


def made_folder(path: Path) -> str:
    """Makes a folder, and those that it lies in, if they are not there; its path as text.

    Raises:
      FailedPreconditionError: a file is in its place. PermissionDeniedError, UnknownError: it cannot be made.
    """
    name = text_of(path)
    with as_ours(path):
        try:
            os.makedirs(name, exist_ok=True)
        except FileExistsError as e:
            raise FailedPreconditionError(f"{name} is not a directory") from e
    return name


def written(path: Path, content: bytes) -> None:
    """Makes a file of these bytes, and the folders that it lies in; what was there is replaced.

    Raises:
      FailedPreconditionError, PermissionDeniedError, UnknownError: it cannot be written.
    """
    name = text_of(path)
    if folder := os.path.dirname(name):
        made_folder(folder)
    with opened(path, "wb") as file, as_ours(path):
        file.write(content)


def matching(pattern: Path) -> list[str]:
    """The paths that a pattern stands for, sorted: `*` and `?` for characters of one name, `[...]` for one of some.

    A `*` never goes across a folder's end, and names that begin with a dot match too, as in TensorFlow.

    Raises:
      InvalidArgumentError: it has a zero byte.
    """
    return sorted(glob.glob(text_of(pattern), include_hidden=True))
