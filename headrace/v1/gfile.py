"""TensorFlow 1's `tf.gfile`: local files and folders, with headrace's errors.

Only paths of the local file system are supported; there are no schemes such as "gs://".
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from headrace import public_names
from headrace.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.files import local

Path = local.Path


class FileStatistics(NamedTuple):
    """Result of `Stat`.

    Args:
      length: size in bytes.
      mtime_nsec: time of the last modification, in nanoseconds since 1970.
      is_directory: whether the path is a folder.
    """

    length: int
    mtime_nsec: int
    is_directory: bool


def Exists(filename: Path) -> bool:
    """Whether there is such a file or folder.

    Source: TensorFlow's `tf.gfile.Exists`.
    """
    return os.path.exists(local.text_of(filename))


def IsDirectory(dirname: Path) -> bool:
    """Whether there is such a folder.

    Source: TensorFlow's `tf.gfile.IsDirectory`.
    """
    return os.path.isdir(local.text_of(dirname))


def Glob(filename: Any) -> list[str]:
    """Returns the paths that match a pattern, or each of several patterns.

    Args:
      filename: a pattern, or a list of patterns.

    Source: TensorFlow's `tf.gfile.Glob`.
    """
    patterns = [filename] if isinstance(filename, (str, bytes, os.PathLike)) else list(filename)
    return [path for pattern in patterns for path in local.matching(pattern)]


def ListDirectory(dirname: Path) -> list[str]:
    """The names in a folder.

    Raises:
      NotFoundError: there is no such folder.

    Source: TensorFlow's `tf.gfile.ListDirectory`.
    """
    if not IsDirectory(dirname):
        raise NotFoundError(f"Could not find directory {local.text_of(dirname)}")
    with local.as_ours(dirname):
        return sorted(os.listdir(local.text_of(dirname)))


def MakeDirs(dirname: Path) -> None:
    """Makes a folder, and those around it; nothing if it is there.

    Source: TensorFlow's `tf.gfile.MakeDirs`.
    """
    local.made_folder(dirname)


def MkDir(dirname: Path) -> None:
    """Makes a folder.

    Raises:
      AlreadyExistsError: it is there. NotFoundError: the one around it is not.

    Source: TensorFlow's `tf.gfile.MkDir`.
    """
    name = local.text_of(dirname)
    if os.path.exists(name):
        raise AlreadyExistsError(f"{name}; File exists")
    with local.as_ours(dirname):
        os.mkdir(name)


def Remove(filename: Path) -> None:
    """Deletes a file.

    Raises:
      NotFoundError: there is none. FailedPreconditionError: it is a folder.

    Source: TensorFlow's `tf.gfile.Remove`.
    """
    name = local.text_of(filename)
    if os.path.isdir(name) and not os.path.islink(name):
        raise FailedPreconditionError(f"{name}; Is a directory; DeleteRecursively deletes those")
    with local.as_ours(filename):
        os.remove(name)


def DeleteRecursively(dirname: Path) -> None:
    """Deletes a folder and all that is in it.

    Raises:
      NotFoundError: there is none.

    Source: TensorFlow's `tf.gfile.DeleteRecursively`.
    """
    name = local.text_of(dirname)
    if not os.path.isdir(name):
        Remove(name)
        return
    with local.as_ours(dirname):
        shutil.rmtree(name)


def Rename(oldname: Path, newname: Path, overwrite: bool = False) -> None:
    """Gives a file or folder another path.

    Raises:
      AlreadyExistsError: there is something, and `overwrite` is not set. NotFoundError: there is no such file.

    Source: TensorFlow's `tf.gfile.Rename`.
    """
    _check_free(newname, overwrite)
    with local.as_ours(oldname):
        os.replace(local.text_of(oldname), local.text_of(newname))


def Copy(oldpath: Path, newpath: Path, overwrite: bool = False) -> None:
    """Copies a file.

    Raises:
      AlreadyExistsError: there is something, and `overwrite` is not set. NotFoundError: there is no such file.

    Source: TensorFlow's `tf.gfile.Copy`.
    """
    _check_free(newpath, overwrite)
    with local.opened(oldpath) as source, local.opened(newpath, "wb") as to, local.as_ours(newpath):
        shutil.copyfileobj(source, to)


def Stat(filename: Path) -> FileStatistics:
    """Returns the size, modification time and kind of a file or folder.

    Args:
      filename: the path.

    Raises:
      NotFoundError: the path does not exist.

    Source: TensorFlow's `tf.gfile.Stat`.
    """
    name = local.text_of(filename)
    with local.as_ours(filename):
        found = os.stat(name)
    return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(name))


def Walk(top: Path, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields (path, names of folders, names of files) for a folder and all folders below.

    Args:
      top: the folder. If it does not exist, nothing is yielded.
      in_order: whether a folder comes before those in it.

    Source: TensorFlow's `tf.gfile.Walk`.
    """
    for here, folders, files in os.walk(local.text_of(top), topdown=in_order):
        folders.sort()
        yield here, list(folders), sorted(files)


def _check_free(path: Path, overwrite: bool) -> None:
    if not overwrite and Exists(path):
        raise AlreadyExistsError(f"file already exists: {local.text_of(path)}; overwrite=True replaces it")


class GFile:
    """A file. A context manager, and an iterator over its lines.

    Args:
      name: its path.
      mode: "r", "w", "a", "r+", "w+" or "a+", each with "b" for bytes instead of text (UTF-8). It is opened when it is
        first used.

    Raises (when it is used):
      NotFoundError, FailedPreconditionError, PermissionDeniedError: it cannot be opened.

    Source: TensorFlow's `tf.gfile.GFile`.

    Example:
      >>> import headrace.v1 as tf, os, tempfile
      >>> path = os.path.join(tempfile.mkdtemp(), "greeting")
      >>> with tf.gfile.GFile(path, "w") as f:
      ...     f.write("hello")
      >>> tf.gfile.GFile(path).read()
      'hello'
    """

    def __init__(self, name: Path, mode: str = "r") -> None:
        if mode.replace("b", "", 1) not in ("r", "w", "a", "r+", "w+", "a+"):
            raise InvalidArgumentError(f"mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+', got {mode!r}")
        self._name = name
        self._mode = mode
        self._file: IO[Any] | None = None

    @property
    def name(self) -> Path:
        """Path of the file."""
        return self._name

    @property
    def mode(self) -> str:
        """Mode of the file."""
        return self._mode

    def size(self) -> int:
        """Returns the size in bytes."""
        return Stat(self._name).length

    def read(self, n: int = -1) -> Any:
        """Reads the rest of the file, or at most `n` bytes or characters.

        Args:
          n: largest number of bytes or characters. -1: no limit.
        """
        with local.as_ours(self._name):
            return self._open().read(n)

    def readline(self) -> Any:
        """Reads the next line with its line end, or an empty one at the end."""
        with local.as_ours(self._name):
            return self._open().readline()

    def readlines(self) -> list[Any]:
        """Reads the remaining lines."""
        return list(self)

    def write(self, file_content: Any) -> None:
        """Adds bytes or text."""
        with local.as_ours(self._name):
            self._open().write(file_content)

    def seek(self, offset: int, whence: int = 0) -> None:
        """Goes to a byte: from the beginning (0), here (1) or the end (2)."""
        with local.as_ours(self._name):
            self._open().seek(offset, whence)

    def tell(self) -> int:
        """Returns the position in the file."""
        return self._open().tell()

    def flush(self) -> None:
        """Hands what was written to the system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the file. May be called again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> GFile:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def _open(self) -> IO[Any]:
        if self._file is None:
            binary = self._mode.replace("b", "", 1) + "b"
            raw = local.opened(self._name, binary)
            self._file = raw if "b" in self._mode else io.TextIOWrapper(raw, "utf-8", newline="")
        return self._file


FastGFile = Open = GFile

# fmt: off
__all__ = [
    "Copy", "DeleteRecursively", "Exists", "FastGFile", "FileStatistics", "GFile", "Glob", "IsDirectory",
    "ListDirectory", "MakeDirs", "MkDir", "Open", "Path", "Remove", "Rename", "Stat", "Walk",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
