"""Atomic replacement of files: a reader finds the old file or the new one.

The bytes are written to a temporary file in the same folder, reach the disk (fsync), and get the final name in one step
(rename). Then the folder is synchronized, because it contains the name. A program that is killed before that leaves the
old file unchanged, and perhaps a temporary file: `.NAME.0123456789abcdef.headrace-tmp`. Its writer holds a lock on it,
which the system releases when the writer ends for any reason. So `sweep` can distinguish leftovers from files that are
being written.
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

from headrace.files import system
from headrace.files.regular import check_path, named

_SUFFIX: Final = "headrace-tmp"
_LEFTOVER: Final = re.compile(r"\.(.*)\.[0-9a-f]{16}\." + _SUFFIX, re.DOTALL)
_MOST_OF_NAME: Final = 80  # characters of the file's name in that of its temporary file, as names have a limit


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Opens a file that replaces `path` when the block ends, unless the block raises.

    Args:
      path: The path of the file. Its folder must exist.

    Yields:
      A binary file, open for writing; it supports seeking and reading.

    Raises:
      NotFoundError, PermissionDeniedError, ResourceExhaustedError: The system refused an operation.

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
            system.replace(file.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                system.unlink(file.name)
            raise
        finally:
            with suppress(OSError):  # a failed write was already reported
                file.close()
        sync_folder(folder)


def move(source: str, path: str) -> None:
    """Renames the file `source`, which may not be on the disk yet, to `path`."""
    with named(source):
        fd = system.descriptor(source, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        system.replace(source, path)


def sync_folder(folder: str) -> None:
    """Writes the names in `folder` to the disk."""
    with named(folder):
        fd = system.descriptor(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def folder_of(path: str) -> str:
    """The folder of `path`."""
    return os.path.dirname(path) or os.curdir


def ready(prefix: str, makes: bool = True) -> str:
    """The folder of a checkpoint, made if its parent exists, as TensorFlow does.

    Args:
      prefix: The prefix of the checkpoint.
      makes: Whether to make the folder.

    Returns:
      The path of the folder.

    Raises:
      ValueError: The prefix is empty, or its folder does not exist, cannot be made or is a file.
    """
    if not prefix:
        raise ValueError("no path specified: the prefix of a checkpoint is empty; give a path, as 'folder/model'")
    folder = os.path.dirname(prefix) or os.curdir
    try:
        if makes:
            with suppress(FileExistsError):
                system.mkdir(folder)
    except OSError as e:
        raise ValueError(f"Parent directory of {prefix} doesn't exist, can't save: {e.strerror}") from e
    if not system.isdir(folder):
        raise ValueError(f"Parent directory of {prefix} doesn't exist, can't save: {folder!r} is no folder")
    return folder


def sweep(folder: str, name: str | None = None) -> list[str]:
    """Deletes the temporary files that killed writers left.

    Args:
      folder: The folder; subfolders are not searched.
      name: The name of the file whose temporary files are deleted; None for any.

    Returns:
      The paths of the deleted files. Files that a process of this machine writes are kept.

    Raises:
      NotFoundError, PermissionDeniedError: The folder cannot be read.
    """
    swept = []
    with named(folder):
        for entry in sorted(system.listdir(folder)):
            found = _LEFTOVER.fullmatch(entry)
            if found is None or (name is not None and found[1] != name[:_MOST_OF_NAME]):
                continue
            path = os.path.join(folder, entry)
            if _swept(path):
                swept.append(path)
    return swept


def _swept(path: str) -> bool:
    """Deletes the temporary file `path` unless a living process writes it; returns whether it did."""
    try:
        fd = system.descriptor(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:  # it is gone, inaccessible, or not a file
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        system.unlink(path)  # while the lock keeps writers out
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _temporary(path: str) -> BinaryIO:
    """A new temporary file next to `path`, locked by this process."""
    folder, name = os.path.split(path)
    while True:
        temporary = os.path.join(folder, f".{name[:_MOST_OF_NAME]}.{secrets.token_hex(8)}.{_SUFFIX}")
        fd = system.descriptor(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a sweep in another process locked it first
            os.close(fd)
            continue
        except OSError:  # a file system without locks, on which nothing is swept
            pass
        if os.fstat(fd).st_nlink:
            return _Named(temporary, fd)
        os.close(fd)  # a sweep deleted it before it was locked


class _Named(io.BufferedRandom):
    """Buffered file of a descriptor, with a name."""

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(io.FileIO(fd, "r+b"), 2**20)
        self._path = path

    @property
    def name(self) -> str:
        return self._path
