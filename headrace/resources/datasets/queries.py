"""Datasets of the rows of a query of a database file, by sqlite3."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, thresholds
from headrace.errors import InvalidArgumentError, OpError, UnknownError
from headrace.files import local, system
from headrace.resources.datasets.base import Dataset, Element, Iterator, Pass
from headrace.resources.datasets.state import Saved, State

if TYPE_CHECKING:
    from headrace.dtypes import DType

_TYPES: Final = frozenset(
    {
        *(dtypes.string, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16),
        *(dtypes.bool_, dtypes.float64),
    }
)
_NUMBER: Final = re.compile(r"\s*([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)")


class Query(Dataset):
    """Dataset of the rows of a query, in the order of the database.

    Args:
      driver: the kind of the database, "sqlite".
      path: its file, which is only read.
      query: the query, in SQL.
      types: the dtypes of the columns.

    Raises:
      InvalidArgumentError: the driver or a dtype is not supported.
    """

    def __init__(self, driver: str, path: str, query: str, types: Sequence[DType]) -> None:
        if driver != "sqlite":
            raise InvalidArgumentError(
                f"The database type, {driver}, is not supported by SqlDataset. The set of supported databases is: "
                "{'sqlite'}."
            )
        for t in types:
            if t not in _TYPES:
                raise InvalidArgumentError(
                    f"Each element of `output_types` must be one of string, int8, int16, int32, int64, uint8, uint16, "
                    f"bool, float64; got {t.name}"
                )
        self._path, self._query, self._types = path, query, tuple(types)

    def iterator(self, run: Pass) -> Iterator:
        return _QueryIterator(run, self._path, self._query, [_converter(t) for t in self._types])


class _QueryIterator(Iterator):
    __slots__ = ("_at", "_columns", "_cursor", "_path", "_query")

    def __init__(self, run: Pass, path: str, query: str, columns: Sequence[Callable[[Any], Any]]) -> None:
        super().__init__(run)
        self._path, self._query, self._columns = path, query, columns
        self._cursor: sqlite3.Cursor | None = None
        self._at = 0

    def __del__(self) -> None:
        cursor = getattr(self, "_cursor", None)
        if cursor is not None:
            cursor.connection.close()

    def next(self) -> Element | None:
        try:
            row = self._opened().fetchone()
        except (sqlite3.Error, sqlite3.Warning) as e:
            self.run.check()  # which raises if the query was interrupted
            raise UnknownError(f"{self._path}: the query {self._query!r} failed: {e}") from e
        if row is None:
            return None
        self._at += 1
        if len(row) != len(self._columns):
            raise InvalidArgumentError(
                f"The number of columns in query ({len(row)}) must match the number of elements in output_types "
                f"({len(self._columns)})."
            )
        return tuple([f(x) for f, x in zip(self._columns, row, strict=True)])

    def _opened(self) -> sqlite3.Cursor:
        if self._cursor is None:
            with local.as_ours(self._path):
                system.stat(self._path)  # which checks the access, as SQLite does not
            name = "file:" + os.path.abspath(self._path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            made = sqlite3.connect(f"{name}?mode=ro", uri=True, check_same_thread=False)
            made.text_factory = bytes
            run = self.run
            made.set_progress_handler(lambda: _is_cancelled(run), thresholds.SQL_STEPS)
            try:
                self._cursor = made.execute(self._query)
            except BaseException:
                made.close()
                raise
        return self._cursor

    def save(self) -> State:
        return {"at": self._at}

    def restore(self, saved: Saved) -> None:
        for _ in range(saved.number("at")):
            if self.next() is None:
                break


def _is_cancelled(run: Pass) -> bool:
    try:
        run.check()
    except OpError:  # which `next` raises again, from its own call of `check`
        return True
    return False


def _converter(dtype: DType) -> Callable[[Any], Any]:
    """Returns the function from a value of the database to a component, with SQLite's conversions."""
    if dtype is dtypes.string:
        return lambda x: np.array(_text(x), object)
    if dtype is dtypes.float64:
        return lambda x: np.float64(_number(x))
    if dtype is dtypes.bool_:
        return lambda x: np.bool_(int(_number(x)) != 0)
    bits = dtype.numpy.itemsize * 8
    kind = dtype.numpy.type
    signed = 1 << (bits - 1) if dtype.numpy.kind == "i" else 0
    return lambda x: kind((int(_number(x)) + signed) % (1 << bits) - signed)


def _text(x: Any) -> bytes:
    return b"" if x is None else x if isinstance(x, bytes) else repr(x).encode()


def _number(x: Any) -> int | float:
    """Returns a value as a number; 0 without one."""
    if isinstance(x, (int, float)):
        return x
    found = None if x is None else _NUMBER.match(x.decode(errors="replace"))
    if found is None:
        return 0
    return int(found[1]) if found[1].lstrip("+-").isdecimal() else float(found[1])
