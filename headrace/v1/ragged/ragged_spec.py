"""Descriptions of ragged tensors: `RaggedTensorSpec`."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.dtypes import as_dtype
from headrace.ir.graph import Tensor
from headrace.v1.ragged.ragged_tensor import RaggedTensor
from headrace.v1.tensor_shape import TensorShape


class RaggedTensorSpec:
    """The static shape, dtype and ragged rank of a `RaggedTensor`.

    Args:
      shape: the shape, with None for ragged axes; None: any shape.
      dtype: dtype of the values.
      ragged_rank: number of ragged axes; None: the rank minus 1.
      row_splits_dtype: int64 or int32.
      flat_values_spec: a description of the innermost values, of the same dtype; None: they are a tensor.

    Raises:
      ValueError: the ragged rank is unknown, or not below the rank; or the dtypes differ.

    Source: TensorFlow's `tf.RaggedTensorSpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> spec = tf.RaggedTensorSpec([None, None], tf.int32)
      >>> spec.ragged_rank
      1
      >>> with tf.Graph().as_default():
      ...     spec.is_compatible_with(tf.ragged.constant([[1], []]))
      True
    """

    __slots__ = ("dtype", "flat_values_spec", "ragged_rank", "row_splits_dtype", "shape")

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = dtypes.int64,
        flat_values_spec: Any = None,
    ) -> None:
        self.shape = TensorShape(shape)
        self.row_splits_dtype = as_dtype(row_splits_dtype)
        if flat_values_spec is not None:
            if dtype is not None and as_dtype(dtype) != flat_values_spec.dtype:
                raise ValueError("dtype must be the same as flat_values_spec.dtype")
            dtype = flat_values_spec.dtype
        self.dtype, self.flat_values_spec = as_dtype(dtype), flat_values_spec
        rank = self.shape.ndims
        if ragged_rank is None:
            if rank is None:
                raise ValueError("Must specify ragged_rank or a shape with known rank.")
            ragged_rank = rank - 1
        elif not isinstance(ragged_rank, int):
            raise TypeError(f"Argument `ragged_rank` must be an int. Received {ragged_rank}.")
        if rank is not None and ragged_rank >= rank:
            raise ValueError(
                f"Argument `ragged_rank` ({ragged_rank}) must be less than rank ({rank}) of shape {self.shape}."
            )
        self.ragged_rank = ragged_rank

    @classmethod
    def from_value(cls, value: Any) -> RaggedTensorSpec:
        """Describes a ragged tensor."""
        return cls(value.shape, value.dtype, value.ragged_rank, value.row_splits.dtype)

    @property
    def value_type(self) -> Any:
        """Class of the values that it describes."""
        return RaggedTensor if self.ragged_rank else Tensor

    def _key(self) -> Any:
        dims = None if self.shape.ndims is None else tuple(self.shape.as_list())
        return dims, self.dtype, self.ragged_rank, self.row_splits_dtype

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a description, or a ragged tensor, can have a common value with this one."""
        is_ragged = isinstance(spec_or_value, RaggedTensor)
        other = self.from_value(spec_or_value) if is_ragged else spec_or_value
        return (
            isinstance(other, RaggedTensorSpec)
            and self._key()[1:] == other._key()[1:]
            and self.shape.is_compatible_with(other.shape)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedTensorSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"RaggedTensorSpec({self.shape!r}, {self.dtype!r}, {self.ragged_rank}, {self.row_splits_dtype!r})"
