"""Fields of comma-separated records as values of given dtypes.

The records follow RFC 4180: a field may be quoted, and two quotes inside of it mean one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.dtypes import FLOATING, DType, string
from headrace.errors import InvalidArgumentError

_QUOTED = re.compile(rb'"([^"]*(?:""[^"]*)*)"')
_NOT_PLAIN = {True: re.compile(rb'["\r\n]'), False: re.compile(rb"[\r\n]")}


def fields(record: bytes, delimiter: bytes, quotes: bool) -> Iterator[bytes]:
    """Yields the fields of a record; an empty record has none."""
    at = 0
    while at < len(record):
        if quotes and record.startswith(b'"', at):
            found = _QUOTED.match(record, at)
            if found is None:
                raise InvalidArgumentError("Quoted field has to end with quote followed by delim or end")
            field, end = found[1].replace(b'""', b'"'), found.end()
            if end < len(record) and not record.startswith(delimiter, end):
                raise InvalidArgumentError("Quote inside a string has to be escaped by another quote")
        else:
            end = record.find(delimiter, at)
            end = len(record) if end < 0 else end
            field = record[at:end]
            if _NOT_PLAIN[quotes].search(field):
                raise InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
        yield field
        if end == len(record) - 1:
            yield b""  # behind the last delimiter
        at = end + 1


def number(text: bytes, t: DType) -> Any:
    """Parses a number of dtype `t`; white space around it is allowed.

    Raises:
      ValueError: `text` is no number of the dtype.
    """
    if b"_" in text:  # Python's own
        raise ValueError(text)
    stripped = text.strip().decode("ascii")
    try:
        if t not in FLOATING:
            return t.numpy.type(int(stripped))
        return t.numpy.type(float.fromhex(stripped) if "x" in stripped.lower() else float(stripped))
    except OverflowError as e:
        raise ValueError(str(e)) from None


class Columns:
    """Columns of records: their dtypes, and how fields are written.

    Args:
      types: the dtypes.
      columns: the numbers of the columns among the fields, ascending; (): all fields.
      delimiter: the text between fields, of one byte.
      missing: the text that stands for a missing field, other than "".
      quotes: whether fields may be quoted.
      excluded: the numbers of the fields that are no columns, in place of `columns`.

    Attributes:
      quotes: whether fields may be quoted.

    Raises:
      InvalidArgumentError: an argument is wrong.
    """

    def __init__(
        self,
        types: Sequence[DType],
        columns: Sequence[int],
        delimiter: bytes,
        missing: bytes,
        quotes: bool,
        excluded: Sequence[int] = (),
    ) -> None:
        self._excluded = frozenset(excluded)
        self._types, self._columns, self._delimiter, self._missing = tuple(types), tuple(columns), delimiter, missing
        self.quotes = quotes and delimiter != b'"'
        if len(delimiter) != 1:
            raise InvalidArgumentError(f"field_delim should be only 1 char, got {delimiter.decode(errors='replace')!r}")
        if columns and len(columns) != len(types):
            raise InvalidArgumentError(f"select_cols should match output size: {len(columns)} and {len(types)}")
        if any(c < 0 for c in columns):
            raise InvalidArgumentError(f"select_cols should be non-negative indices, got {list(columns)}")
        if any(b <= a for a, b in itertools.pairwise(columns)):
            raise InvalidArgumentError(f"select_cols should be strictly increasing indices, got {list(columns)}")

    def of(self, record: bytes, where: str) -> list[bytes]:
        """Returns the fields of the columns in a record.

        Args:
          record: the record.
          where: its name for messages.

        Raises:
          InvalidArgumentError: the record is malformed, or has another number of fields.
        """
        found, columns = [], self._columns
        for column, field in enumerate(fields(record, self._delimiter, self.quotes)):
            if column in self._excluded:
                continue
            if not columns or column in columns:
                found.append(field)
                if columns and len(found) == len(columns):
                    break
        if len(found) != len(self._types):
            raise InvalidArgumentError(f"Expect {len(self._types)} fields but have {len(found)} in {where}")
        return found

    def value(self, k: int, field: bytes, default: Any, where: str) -> Any:
        """Returns the value of a field of column `k`.

        Args:
          k: the number of the column.
          field: the text of the field.
          default: the value of a missing field, an array; an empty one: the field is required.
          where: the name of the record for messages.

        Raises:
          InvalidArgumentError: the field is required, or no number of its dtype.
        """
        t = self._types[k]
        if not field or field == self._missing:
            if not default.size:
                raise InvalidArgumentError(f"Field {k} is required but missing in {where}!")
            return default.reshape(-1)[0]
        if t is string:
            return field
        try:
            return number(field, t)
        except ValueError:
            shown = field.decode("utf-8", "replace")
            raise InvalidArgumentError(f"Field {k} in {where} is not a valid {t.name}: {shown}") from None
