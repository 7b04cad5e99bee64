"""Vocabulary files: text with a key and a value on each line (InitializeTableFromTextFile)."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes
from headrace.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
)
from headrace.files import system
from headrace.records import record
from headrace.resources import values

if TYPE_CHECKING:
    from headrace.dtypes import DType

WHOLE_LINE: Final = -2
LINE_NUMBER: Final = -1
_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")
_REAL = re.compile(rb"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+|inf|infinity|nan)(e[+-]?[0-9]+)?\s*", re.IGNORECASE)


@record(frozen=True)
class Vocabulary:
    """Vocabulary file and the columns of keys and values.

    Attributes:
      path: The path of the file.
      key_index: The column of the keys, `WHOLE_LINE` or `LINE_NUMBER`.
      value_index: The column of the values, `WHOLE_LINE` or `LINE_NUMBER`.
      size: The number of lines to read; None for all.
      delimiter: The character between columns.
      offset: The number that is added to line numbers.
    """

    path: str
    key_index: int
    value_index: int
    size: int | None
    delimiter: str
    offset: int

    def read(self, key_dtype: DType, value_dtype: DType) -> tuple[np.ndarray, np.ndarray]:
        """Reads the keys and the values.

        Raises:
          InvalidArgumentError: The columns do not match the dtypes or the lines, or there are fewer lines than `size`.
          OutOfRangeError: There is no line to read.
          NotFoundError, FailedPreconditionError, PermissionDeniedError: The file cannot be read.
        """
        columns = (("Key", "key", self.key_index, key_dtype), ("Value", "value", self.value_index, value_dtype))
        taken = [self._column(what, of, index, dtype) for what, of, index, dtype in columns]
        if len(self.delimiter) != 1:
            raise InvalidArgumentError(f"delimiter should be only 1 char, got {self.delimiter!r}")
        found: tuple[list[Any], list[Any]] = ([], [])
        for i, line in enumerate(itertools.islice(self._lines(), self.size)):
            for column, take in zip(found, taken, strict=True):
                column.append(take(i, line))
        n = len(found[0])
        if not n:
            raise OutOfRangeError(f"Finished reading 0 of lines from {self.path}")
        if self.size is not None and n < self.size:
            raise InvalidArgumentError(f"Invalid vocab_size in {self.path}: expected {self.size} but got {n}")
        return _array(found[0], key_dtype), _array(found[1], value_dtype)

    def _lines(self) -> Iterator[bytes]:
        try:
            with system.stream(self.path, "rb") as file:
                for i, line in enumerate(file):
                    text = line.rstrip(b"\r\n")
                    if not text:
                        raise InvalidArgumentError(f"Invalid content in {self.path}: empty line found at position {i}.")
                    yield text
        except OSError as e:
            for python, ours in _CLASSES:
                if isinstance(e, python):
                    raise ours(f"{self.path}; {os.strerror(e.errno or 0)}") from e
            raise
        except ValueError as e:  # the path contains a zero byte
            raise InvalidArgumentError(f"{self.path!r} cannot be opened: {e}") from e

    def _column(self, what: str, of: str, index: int, dtype: DType) -> Callable[[int, bytes], Any]:
        """Returns a function that extracts a column of a line."""
        if index == LINE_NUMBER:
            if dtype is not dtypes.int64:
                raise InvalidArgumentError(
                    f"{what} index for line number requires table {of} dtype of int64, got {dtype.name}"
                )
            return lambda i, line: i + self.offset
        if index == WHOLE_LINE:
            if not (dtype.is_integer or dtype is dtypes.string):
                raise InvalidArgumentError(
                    f"{what} index for whole line requires table {of} dtype of integer or string, got {dtype.name}"
                )
            return lambda i, line: _parsed(line, dtype, i)
        least = max(self.key_index, self.value_index) + 1

        def field(i: int, line: bytes) -> Any:
            fields = line.split(self.delimiter.encode())
            if len(fields) < least:
                raise InvalidArgumentError(
                    f"Invalid number of columns in {self.path} line {i} ({line.decode('utf-8', 'replace')}) : "
                    f"expected at least {least} got {len(fields)}"
                )
            return _parsed(fields[index], dtype, i)

        return field


_CLASSES: Final = (
    (FileNotFoundError, NotFoundError),
    (NotADirectoryError, FailedPreconditionError),
    (IsADirectoryError, FailedPreconditionError),
    (PermissionError, PermissionDeniedError),
)


def _parsed(field: bytes, dtype: DType, i: int) -> Any:
    """Parses a field of line `i` as a value of `dtype`."""
    if dtype is dtypes.string:
        return field
    if dtype.is_floating and _REAL.fullmatch(field):
        return float(field)
    if dtype.is_integer and len(field) < 100 and _INTEGER.fullmatch(field):
        limits = np.iinfo(dtype.numpy)
        value = int(field)
        if limits.min <= value <= limits.max:
            return value
    raise InvalidArgumentError(f"Field {field.decode('utf-8', 'replace')} in line {i} is not a valid {dtype.name}.")


def _array(column: list[Any], dtype: DType) -> np.ndarray:
    out: np.ndarray = values.zeros(dtype, (len(column),))
    out[:] = column
    return out
