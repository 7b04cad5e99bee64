"""TensorFlow 1's `tf.compat`: text and bytes, kinds of numbers. Its `v1` is `headrace.v1`."""

from __future__ import annotations

import contextlib
import datetime
import numbers
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import public_names
from headrace.v1.tensor_shape import dimension_at_index as dimension_at_index
from headrace.v1.tensor_shape import dimension_value as dimension_value


def as_bytes(bytes_or_text: str | bytes, encoding: str = "utf-8") -> bytes:
    """Text as bytes.

    Source: TensorFlow's `tf.compat.as_bytes`.
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


def as_text(bytes_or_text: str | bytes, encoding: str = "utf-8") -> str:
    """Bytes as text.

    Source: TensorFlow's `tf.compat.as_text`.
    """
    return bytes_or_text if isinstance(bytes_or_text, str) else as_bytes(bytes_or_text).decode(encoding)


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Anything as text.

    Source: TensorFlow's `tf.compat.as_str_any`.
    """
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: Any) -> Any:
    """A path object as text; any other object unchanged.

    Source: TensorFlow's `tf.compat.path_to_str`.
    """
    return as_str_any(os.fspath(path)) if hasattr(path, "__fspath__") else path


def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether graphs may have what TensorFlow reads since a date.

    Args:
      year, month, day: the date.

    Source: TensorFlow's `tf.compat.forward_compatible`.

    >>> forward_compatible(2019, 1, 1)
    True
    """
    return datetime.date(year, month, day) < _horizon[-1]


@contextlib.contextmanager
def forward_compatibility_horizon(year: int, month: int, day: int) -> Iterator[None]:
    """Returns a context in which `forward_compatible` compares with another date.

    Args:
      year, month, day: the date.

    Source: TensorFlow's `tf.compat.forward_compatibility_horizon`.
    """
    _horizon.append(datetime.date(year, month, day))
    try:
        yield
    finally:
        _horizon.pop()


# The date up to which graphs are written as TensorFlow 2.21 does, whose `GraphDef` version headrace writes.
_horizon = [datetime.date(2026, 1, 1)]

bytes_or_text_types = (bytes, str)
integral_types = (numbers.Integral, np.integer)
real_types = (numbers.Real, np.integer, np.floating)
complex_types = (numbers.Complex, np.number)

# fmt: off
__all__ = [
    "as_bytes", "as_str", "as_str_any", "as_text", "bytes_or_text_types", "complex_types", "dimension_at_index",
    "dimension_value", "forward_compatibility_horizon", "forward_compatible", "integral_types", "path_to_str",
    "real_types", "v1",
]
# fmt: on

if TYPE_CHECKING:
    v1: Any
else:
    __getattr__, __dir__ = public_names.of(__name__, __all__, {"v1": "headrace.v1"})
