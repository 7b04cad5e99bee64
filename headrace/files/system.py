"""System calls that take a path, each after a check of the file access (`file_access`).

The kernels of all ops reach files by this module alone: `tests/files/test_file_access.py` finds other calls in
`files`, `ops`, `opkit` and `resources`. The functions are those of `os` with the same names; they raise the same
`OSError`s, and `PermissionDeniedError` for a path outside of the folder that the kernels of this thread may use.
"""

from __future__ import annotations

import glob as _glob
import os
import re
from collections.abc import Iterator
from typing import IO, Any, Final

from headrace import file_access
from headrace.errors import PermissionDeniedError
from headrace.file_access import check

_MAGIC: Final = re.compile(r"[*?\[]")
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def descriptor(path: str, flags: int, mode: int = 0o666) -> int:
    """Opens a file, as `os.open`; child processes do not inherit the descriptor."""
    check(path, is_changed=bool(flags & _WRITES))
    return os.open(path, flags | os.O_CLOEXEC, mode)


def stream(path: str, mode: str, buffering: int = -1, waits: bool = True) -> IO[Any]:
    """Opens a file, as Python's `open`; in UTF-8 unless `mode` is binary.

    Args:
      path: the path.
      mode: the mode.
      buffering: the size of the buffer.
      waits: whether the call waits for the other end of a pipe.
    """
    check(path, is_changed=mode.rstrip("bt") != "r")
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, buffering, encoding=encoding, opener=None if waits else _without_waiting)


def listdir(folder: str) -> list[str]:
    """Returns the names in a folder."""
    check(folder)
    return os.listdir(folder)


def scandir(folder: str) -> Iterator[os.DirEntry[str]]:
    """Returns the entries of a folder."""
    check(folder)
    return os.scandir(folder)


def stat(path: str) -> os.stat_result:
    """Returns the status of a file or folder."""
    check(path)
    return os.stat(path)


def exists(path: str) -> bool:
    """Whether a file or folder exists."""
    check(path)
    return os.path.exists(path)


def lexists(path: str) -> bool:
    """Whether an entry exists, possibly a link to nothing."""
    check(path)
    return os.path.lexists(path)


def isfile(path: str) -> bool:
    """Whether a regular file exists."""
    check(path)
    return os.path.isfile(path)


def isdir(path: str) -> bool:
    """Whether a folder exists."""
    check(path)
    return os.path.isdir(path)


def mkdir(path: str) -> None:
    """Makes a folder."""
    check(path)  # an existing folder is no error of most callers, so the folder of all files may be named
    os.mkdir(path)


def makedirs(path: str) -> None:
    """Makes a folder and its parents, unless they exist."""
    check(path)
    os.makedirs(path, exist_ok=True)


def rmdir(path: str) -> None:
    """Removes an empty folder."""
    check(path, is_changed=True)
    os.rmdir(path)


def unlink(path: str) -> None:
    """Removes a file."""
    check(path, is_changed=True)
    os.unlink(path)


def replace(source: str, path: str) -> None:
    """Renames a file; it replaces a file at `path`."""
    check(source, is_changed=True)
    check(path, is_changed=True)
    os.replace(source, path)


def glob(pattern: str) -> list[str]:
    """Returns the paths that match a pattern, in any order.

    Names that begin with a dot match too.

    With limited file access the part before the first wildcard must be in the folder, and ".." may not follow a
    wildcard. Paths that lead out of the folder by a link are left out.
    """
    access = file_access.current()
    if access is None:
        return _glob.glob(pattern, include_hidden=True)
    found = _MAGIC.search(pattern)
    at = len(pattern) if found is None else found.start()
    base = os.path.dirname(pattern[:at]) if found is not None else pattern
    check(base or os.curdir)
    if os.pardir in pattern[at:].split(os.sep):
        raise PermissionDeniedError(f"{pattern}: '..' after a wildcard may lead out of {access.folder}")
    return [path for path in _glob.glob(pattern, include_hidden=True) if _is_allowed(path)]


def _is_allowed(path: str) -> bool:
    try:
        check(path)
    except PermissionDeniedError:
        return False
    return True


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
