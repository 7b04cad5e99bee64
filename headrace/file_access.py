"""File access: the folder whose files the kernels of a worker may use.

    with limited(FileAccess(folder)):
        check("model.index")             # raises PermissionDeniedError if it is outside of the folder

Kernels of a session in this process may use all files. A worker of a cluster limits the kernels of steps whose client
is in another process. The limit belongs to the context (`contextvars`) of the thread that runs the kernels. The pools
of threads pass it on with each piece of work (`carried`), so a kernel cannot leave it behind by the use of a thread.

`files.system` makes all system calls of kernels that take a path, and each of them calls `check` before. A path is
resolved (links, "..", the working folder) before it is compared. The check comes before the system call, so it trusts
the programs of this machine that can write into the folder: one of them could replace a file by a link in between. No
kernel makes links.
"""

from __future__ import annotations

import contextvars
import functools
import os
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.errors import InvalidArgumentError, PermissionDeniedError

T = TypeVar("T")

_LONGEST: Final = 4096  # bytes of a resolved path; links beyond the limit of the system would stay unresolved


class FileAccess:
    """Files that kernels may use: those of one folder and its subfolders, or none.

    Args:
      folder: the folder; None: no files.

    Attributes:
      folder: the folder without links, or None.

    Raises:
      ValueError: the folder does not exist.

    Example:
      >>> with limited(FileAccess()):
      ...     check("/etc/passwd")
      Traceback (most recent call last):
      headrace.errors.PermissionDeniedError: /etc/passwd: ...
    """

    __slots__ = ("_prefix", "folder")

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder: str | None = None
        self._prefix = ""
        if folder is not None:
            if not os.path.isdir(folder):
                raise ValueError(f"files={os.fspath(folder)!r}: there is no such folder")
            self.folder = os.path.realpath(folder)
            self._prefix = os.path.join(self.folder, "")

    def check(self, path: str, is_changed: bool = False) -> None:
        """Checks that kernels may use a path.

        Args:
          path: the path, which need not exist.
          is_changed: whether the entry at this path is made, replaced or removed. The folder itself may only be read.

        Raises:
          PermissionDeniedError: it is outside of the folder.
          InvalidArgumentError: no file can have this path.
        """
        if self.folder is None:
            raise PermissionDeniedError(
                f"{path}: this worker uses no files for clients in other processes. Start it with "
                "`headrace worker --files FOLDER`, or Server(files=FOLDER), to let them use the files of one folder"
            )
        try:
            real = os.path.realpath(path)
            is_short = len(os.fsencode(real)) < _LONGEST
        except (OSError, ValueError) as e:  # a zero byte, or a character that the system does not have
            raise InvalidArgumentError(f"{path!r} is no path: {e}") from e
        if not is_short:
            raise InvalidArgumentError(f"{path[:200]}... is too long for a path")
        if not real.startswith(self._prefix) and (is_changed or real != self.folder):
            raise PermissionDeniedError(
                f"{path} is not in {self.folder}, the only folder whose files this worker uses for clients in other "
                "processes (`headrace worker --files`, or Server(files=...))"
            )

    def __repr__(self) -> str:
        return f"FileAccess({self.folder!r})"


_current: Final[contextvars.ContextVar[FileAccess | None]] = contextvars.ContextVar(
    "headrace_file_access", default=None
)


class limited:
    """Limits the files that kernels may use in a `with` block of this thread.

    Args:
      access: the files; None: all.
    """

    __slots__ = ("_access", "_before")

    def __init__(self, access: FileAccess | None) -> None:
        self._access = access

    def __enter__(self) -> None:
        self._before = _current.set(self._access)

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._before)


def current() -> FileAccess | None:
    """Returns the files that kernels may use in this thread; None: all."""
    return _current.get()


def check(path: str, is_changed: bool = False) -> None:
    """Checks that the kernels of this thread may use a path, see `FileAccess.check`."""
    access = _current.get()
    if access is not None:
        access.check(path, is_changed)


def carried(work: Callable[[], T]) -> Callable[[], T]:
    """Returns `work` with the file access of this thread, for a call in another thread."""
    access = _current.get()
    return work if access is None else functools.partial(_limited_call, access, work)


def _limited_call(access: FileAccess, work: Callable[[], T]) -> T:
    with limited(access):
        return work()
