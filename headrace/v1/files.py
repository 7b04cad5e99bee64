"""TensorFlow 1's `tf.io.gfile`: the functions of `tf.gfile` under TensorFlow 2's names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.files import local
from headrace.v1 import gfile
from headrace.v1.gfile import GFile as GFile

Path = local.Path


def copy(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Copies a file. Source: TensorFlow's `tf.io.gfile.copy`; see `tf.gfile.Copy`."""
    gfile.Copy(src, dst, overwrite)


def exists(path: Path) -> bool:
    """Whether there is such a file or folder. Source: TensorFlow's `tf.io.gfile.exists`."""
    return gfile.Exists(path)


def glob(pattern: Any) -> list[str]:
    """Returns the paths that match patterns. Source: TensorFlow's `tf.io.gfile.glob`; see `tf.gfile.Glob`."""
    return gfile.Glob(pattern)


def isdir(path: Path) -> bool:
    """Whether there is such a folder. Source: TensorFlow's `tf.io.gfile.isdir`."""
    return gfile.IsDirectory(path)


def join(path: Path, *paths: Path) -> str:
    """Returns the path of a part below a folder.

    Args:
      path: the folder.
      paths: further parts.

    Source: TensorFlow's `tf.io.gfile.join`.

    >>> join("a", "b", "c.txt")
    'a/b/c.txt'
    """
    return os.path.join(local.text_of(path), *map(local.text_of, paths))


def listdir(path: Path) -> list[str]:
    """Returns the names in a folder. Source: TensorFlow's `tf.io.gfile.listdir`; see `tf.gfile.ListDirectory`."""
    return gfile.ListDirectory(path)


def makedirs(path: Path) -> None:
    """Makes a folder and those around it. Source: TensorFlow's `tf.io.gfile.makedirs`; see `tf.gfile.MakeDirs`."""
    gfile.MakeDirs(path)


def mkdir(path: Path) -> None:
    """Makes a folder. Source: TensorFlow's `tf.io.gfile.mkdir`; see `tf.gfile.MkDir`."""
    gfile.MkDir(path)


def remove(path: Path) -> None:
    """Deletes a file. Source: TensorFlow's `tf.io.gfile.remove`; see `tf.gfile.Remove`."""
    gfile.Remove(path)


def rename(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Gives a file another path. Source: TensorFlow's `tf.io.gfile.rename`; see `tf.gfile.Rename`."""
    gfile.Rename(src, dst, overwrite)


def rmtree(path: Path) -> None:
    """Deletes a folder and its contents. Source: TensorFlow's `tf.io.gfile.rmtree`."""
    gfile.DeleteRecursively(path)


def stat(path: Path) -> gfile.FileStatistics:
    """Returns the size, time and kind of a file. Source: TensorFlow's `tf.io.gfile.stat`; see `tf.gfile.Stat`."""
    return gfile.Stat(path)


def walk(
    top: Path, topdown: bool = True, onerror: Callable[[OSError], Any] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields (path, names of folders, names of files) for a folder and all folders below.

    Args:
      top: the folder.
      topdown: whether a folder comes before those in it.
      onerror: called with the error of a folder that cannot be read; None: the folder is left out.

    Source: TensorFlow's `tf.io.gfile.walk`.
    """
    for here, folders, files in os.walk(local.text_of(top), topdown, onerror):
        folders.sort()
        yield here, list(folders), sorted(files)


def get_registered_schemes() -> list[str]:
    """Returns the prefixes of paths: that of local files.

    Source: TensorFlow's `tf.io.gfile.get_registered_schemes`.
    """
    return [""]


# fmt: off
__all__ = [
    "GFile", "copy", "exists", "get_registered_schemes", "glob", "isdir", "join", "listdir", "makedirs", "mkdir",
    "remove", "rename", "rmtree", "stat", "walk",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
