"""Putting a file in its place so that whoever looks finds the old one or the new one, whole, whatever happens.

The bytes go to a temporary file in the same folder, reach the disk (fsync), and get the final name in one step
(rename); then the folder reaches the disk as well, for the name is kept there. A program that is killed on the way
leaves the old file as it was, and perhaps a temporary file: `.NAME.0123456789abcdef.headrace-tmp`. Its writer holds a
lock on it, which the system lets go when the writer ends, however it ends: so `sweep` can tell what is left over from
what is being written.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

from headrace.files.regular import check_path, named

_SUFFIX: Final = "headrace-tmp"
_LEFTOVER: Final = re.compile(r"\.(.*)\.[0-9a-f]{16}\." + _SUFFIX, re.DOTALL)
_MOST_OF_NAME: Final = 80  # characters of the file's name in that of its temporary file: names have a limit


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` when the block ends, and not at all if it raises.

    Args:
      path: where it is to be. Its folder must be there.

    Yields:
      A binary file, open for writing; it may seek and read as well.

    Raises:
      NotFoundError, PermissionDeniedError, ResourceExhaustedError, ...: as the system says.

    Example:
      >>> import os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with replacing(os.path.join(folder, "a")) as file:
      ...         _ = file.write(b"whole")
      ...     os.listdir(folder)
      ['a']
    """
    folder = folder_of(check_path(path))
    with named(path):
        file = _temporary(path)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise
        finally:
            with suppress(OSError):  # what could not be written is told already
                file.close()
        sync_folder(folder)


def move(source: str, path: str) -> None:
    """Gives the file `source`, which another one may have left unsynced, the name `path`."""
    with named(source):
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(source, path)


def sync_folder(folder: str) -> None:
    """Brings the names in `folder` to the disk."""
    with named(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def folder_of(path: str) -> str:
    """The folder that `path` is in."""
    return os.path.dirname(path) or os.curdir


def ready(prefix: str, makes: bool = True) -> str:
    """The folder that the files of a checkpoint go into, made if all around it is there, as TensorFlow does.

    Args:
      prefix: the checkpoint's.
      makes: whether to make the folder.

    Raises:
      ValueError: the prefix is empty, or its folder is not there, cannot be made or is a file.
    """
    if not prefix:
        raise ValueError("no path specified: the prefix of a checkpoint is empty; give a path, as 'folder/model'")
    folder = os.path.dirname(prefix) or os.curdir
    try:
        if makes:
            with suppress(FileExistsError):
                os.mkdir(folder)
    except OSError as e:
        raise ValueError(f"Parent directory of {prefix} doesn't exist, can't save: {e.strerror}") from e
    if not os.path.isdir(folder):
        raise ValueError(f"Parent directory of {prefix} doesn't exist, can't save: {folder!r} is no folder")
    return folder


def sweep(folder: str, name: str | None = None) -> list[str]:
    """Deletes the temporary files that writers left who were killed.

    Args:
      folder: where to look; not in folders within.
      name: only those of the file of this name; None: of any.

    Returns:
      The paths of what was deleted. What is being written, by this process or another one of this machine, stays.

    Raises:
      NotFoundError, PermissionDeniedError, ...: the folder cannot be read.
    """
    swept = []
    with named(folder):
        for entry in sorted(os.listdir(folder)):
            found = _LEFTOVER.fullmatch(entry)
            if found is None or (name is not None and found[1] != name[:_MOST_OF_NAME]):
                continue
            path = os.path.join(folder, entry)
            if _swept(path):
                swept.append(path)
    return swept


def _swept(path: str) -> bool:
    """Deletes the temporary file `path` unless a living process writes it; whether it did."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:  # gone, not ours, or no file at all
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)  # while no writer can lock it
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _temporary(path: str) -> BinaryIO:
    """A new file beside `path`, locked by this process."""
    folder, name = os.path.split(path)
    while True:
        temporary = os.path.join(folder, f".{name[:_MOST_OF_NAME]}.{secrets.token_hex(8)}.{_SUFFIX}")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another one sweeps, and was here first
            os.close(fd)
            continue
        except OSError:  # a file system without locks: nothing is swept there
            pass
        if os.fstat(fd).st_nlink:
            return _Named(temporary, fd)
        os.close(fd)  # it was swept before it was locked


class _Named(io.BufferedRandom):
    """A file of a descriptor that knows its name."""

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(io.FileIO(fd, "r+b"), 2**20)
        self._path = path

    @property
    def name(self) -> str:
        return self._path
