"""TensorFlow 1's `tf.compat`: text and bytes. Its `v1` is `headrace.v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names


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


# fmt: off
__all__ = [
    "as_bytes", "as_str", "as_str_any", "as_text", "v1",
]
# fmt: on

if TYPE_CHECKING:
    v1: Any
else:
    __getattr__, __dir__ = public_names.of(__name__, __all__, {"v1": "headrace.v1"})
