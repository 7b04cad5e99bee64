"""Descriptions of tensors: `TensorSpec`."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.shapes import Shape


class TensorSpec:
    """Description of a tensor: its shape, dtype and name.

    Source: TensorFlow's `tf.TensorSpec`.

    >>> TensorSpec((None, 3), "float32")
    TensorSpec(shape=[?,3], dtype=float32)
    """

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, shape: Any = None, dtype: Any = dtypes.float32, name: str | None = None) -> None:
        self.shape: Shape = shapes.as_shape(shape)
        self.dtype = dtypes.as_dtype(dtype)
        self.name = name

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"TensorSpec(shape={shapes.show(self.shape)}, dtype={self.dtype.name}{name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))
