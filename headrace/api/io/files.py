"""Whole files as strings: `hr.io.read_file` and related functions."""

from __future__ import annotations

from typing import Any

from headrace.api import scopes
from headrace.ir.tensor_type import Tensor


def read_file(filename: Any, name: str | None = None) -> Tensor:
    """Reads a file.

    Args:
      filename: a string scalar.
      name: name of the operation; "ReadFile" if None.

    Returns:
      A string scalar.

    Raises (when it runs):
      NotFoundError, FailedPreconditionError, PermissionDeniedError: the file cannot be read.

    Source: TensorFlow's `tf.io.read_file`.

    Example:
      >>> import headrace as hr
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = pathlib.Path(folder, "a.txt").write_text("cat")
      ...     data = hr.io.read_file(f"{folder}/a.txt").numpy()
      >>> data
      b'cat'
    """
    return scopes.builder(filename).make("ReadFile", (filename,), {}, name)


def write_file(filename: Any, contents: Any, name: str | None = None) -> Any:
    """Writes a file and creates its missing folders; an existing file is replaced.

    Args:
      filename, contents: string scalars.
      name: name of the operation; "WriteFile" if None.

    Returns:
      The operation; None outside of graphs, where it has run.

    Source: TensorFlow's `tf.io.write_file`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> path = os.path.join(tempfile.mkdtemp(), "greeting")
      >>> hr.io.write_file(path, "hello")
      >>> hr.io.read_file(path).numpy()
      b'hello'
    """
    return scopes.builder(filename, contents).make("WriteFile", (filename, contents), {}, name)


def matching_files(pattern: Any, name: str | None = None) -> Tensor:
    """Finds the paths that match patterns, sorted.

    Args:
      pattern: a pattern such as "data/*.csv", or a vector of them. `*` and `?` match characters other than "/", `[...]`
        matches one character of a set.
      name: name of the operation; "MatchingFiles" if None.

    Returns:
      A vector of strings.

    Source: TensorFlow's `tf.io.matching_files`.

    Example:
      >>> import headrace as hr
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = pathlib.Path(folder, "a.txt").write_text("cat")
      ...     found = hr.io.matching_files(f"{folder}/*.txt").numpy()
      >>> [name.rpartition(b"/")[2] for name in found]
      [b'a.txt']
    """
    return scopes.builder(pattern).make("MatchingFiles", (pattern,), {}, name)
