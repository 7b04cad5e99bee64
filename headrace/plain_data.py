"""Frozen records as plain data: lists, texts, numbers and None, for messages to other processes.

A record is a frozen dataclass. Its fields have the types str, int, float, bool, another record, `tuple[X, ...]` of one
of these, or `X | None`. A field of type Any is for this process, and is None in a record that is encoded. `encode`
returns a list with the value of each field, which any codec of plain data can store. `decode` checks all it reads,
because the data may come from anywhere.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Final, TypeVar

from headrace.memo import cached

R = TypeVar("R")

MOST_CHARACTERS: Final = 1 << 16  # of one text
MOST_ITEMS: Final = 1 << 12  # of one tuple


def encode(record: Any) -> list[Any]:
    """Returns the values of the fields of a frozen dataclass as plain data.

    A text beyond `MOST_CHARACTERS` is cut, and says so; of a tuple the first `MOST_ITEMS` are kept.

    Raises:
      TypeError: A field has an object of this process.

    Example:
      >>> from headrace.diagnosis import OpRef
      >>> encode(OpRef("sum", "AddV2"))
      ['sum', 'AddV2', '']
    """
    return [_encoded(getattr(record, f.name)) for f in dataclasses.fields(record)]


def decode(kind: type[R], data: object) -> R:
    """Returns the record of class `kind` that `encode` converted to `data`.

    Raises:
      ValueError: `data` is not the data of such a record, or exceeds a limit.

    Example:
      >>> from headrace.diagnosis import OpRef
      >>> decode(OpRef, ["sum", "AddV2", ""])
      OpRef(name='sum', type='AddV2', source='')
    """
    fields = _fields(kind)
    if not isinstance(data, (list, tuple)) or len(data) != len(fields):
        raise ValueError(f"{kind.__name__}: expected a list of {len(fields)} values, got {_brief(data)}")
    return kind(*[_decoded(t, x, f"{kind.__name__}.{name}") for (name, t), x in zip(fields, data, strict=True)])


@cached(64, "fields of plain records")
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Name and type of each field of a record class."""
    hints = typing.get_type_hints(kind)
    return tuple((f.name, hints[f.name]) for f in dataclasses.fields(kind))


def _encoded(value: Any) -> Any:
    if isinstance(value, str):
        more = len(value) - MOST_CHARACTERS
        return value if more <= 0 else f"{value[: MOST_CHARACTERS - 40]}... ({more + 40} more characters)"
    if isinstance(value, tuple):
        return [_encoded(v) for v in value[:MOST_ITEMS]]
    if value is None or isinstance(value, (int, float)):
        return value
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"{value!r} is an object of this process, and cannot be encoded")
    return encode(value)


def _decoded(t: Any, value: object, what: str) -> Any:
    origin = typing.get_origin(t)
    if origin is types.UnionType:
        (t,) = (a for a in typing.get_args(t) if a is not types.NoneType)
        return None if value is None else _decoded(t, value, what)
    if origin is tuple:
        if not isinstance(value, (list, tuple)) or len(value) > MOST_ITEMS:
            raise ValueError(f"{what}: expected a list of at most {MOST_ITEMS} values, got {_brief(value)}")
        item = typing.get_args(t)[0]
        return tuple([_decoded(item, v, what) for v in value])
    if t is Any:
        if value is not None:
            raise ValueError(f"{what}: expected None, got {_brief(value)}")
        return None
    if dataclasses.is_dataclass(t):
        return decode(typing.cast(type, t), value)
    if type(value) is not t:
        raise ValueError(f"{what}: expected {t.__name__}, got {_brief(value)}")
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        raise ValueError(f"{what}: a text of {len(value)} characters; at most {MOST_CHARACTERS} are allowed")
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError(f"{what}: an integer of {value.bit_length()} bits; at most 63 are allowed")
    return value


def _brief(value: object) -> str:
    size = f" of length {len(value)}" if isinstance(value, (list, tuple, dict, str, bytes)) else ""
    return type(value).__name__ + size
