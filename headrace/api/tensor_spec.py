"""Descriptions of tensors: `TensorSpec`."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.ir.tensor_type import Tensor
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

    @property
    def value_type(self) -> type:
        """Class of the tensors."""
        return Tensor

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """Describes a tensor.

        Args:
          tensor: the tensor.
          name: the name of the description; None: that of the tensor's operation.
        """
        op = None if name is not None else getattr(tensor, "op", None)
        return cls(tensor.shape, tensor.dtype.base, name if op is None else op.name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """Returns a description with the shape and dtype of another one.

        Args:
          spec: the other description.
          name: its name; None: that of `spec`.
        """
        return cls(spec.shape, spec.dtype, name or getattr(spec, "name", None))

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a description, or a tensor, has the dtype and a shape that fits.

        Args:
          spec_or_value: the description, tensor or array.
        """
        if not isinstance(spec_or_value, (TensorSpec, Tensor, np.ndarray, np.generic)):
            return False
        dtype, shape = dtypes.as_dtype(spec_or_value.dtype).base, shapes.as_shape(spec_or_value.shape)
        return dtype == self.dtype and shapes.compatible(self.shape, shape)

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"TensorSpec(shape={shapes.show(self.shape)}, dtype={self.dtype.name}{name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))
