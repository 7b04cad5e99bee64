"""Descriptions of ragged tensors, also as parts of the elements of datasets."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.api import scopes
from headrace.api.data import structure
from headrace.api.data.structure import VariantSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.graph import Tensor
from headrace.v1.ragged.ragged_tensor import RaggedTensor
from headrace.v1.tensor_shape import TensorShape


class RaggedTensorSpec(VariantSpec):
    """Description of a ragged tensor.

    Args:
      shape: the shape; ragged dimensions are None.
      dtype: the dtype of the values.
      ragged_rank: the number of ragged axes; None: all but the first one.
      row_splits_dtype: int32 or int64.
      flat_values_spec: must be None.

    Source: TensorFlow's `tf.RaggedTensorSpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.RaggedTensorSpec([2, None], tf.int32)
      RaggedTensorSpec(TensorShape([2, None]), int32, 1, int64)
    """

    __slots__ = ("dtype", "ragged_rank", "row_splits_dtype", "shape")

    component_shape = None  # a batch is a vector of variants

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = dtypes.int64,
        flat_values_spec: Any = None,
    ) -> None:
        if flat_values_spec is not None:
            raise ValueError("`flat_values_spec` is not supported; give `dtype`")
        self.shape = shapes.as_shape(TensorShape(shape).as_list() if TensorShape(shape).ndims is not None else None)
        if ragged_rank is None:
            if self.shape is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            ragged_rank = len(self.shape) - 1
        if self.shape is not None and ragged_rank >= max(len(self.shape), 1):
            raise ValueError(f"Argument `ragged_rank` ({ragged_rank}) must be less than rank ({len(self.shape)}).")
        self.ragged_rank = ragged_rank
        self.dtype = dtypes.as_dtype(dtype)
        self.row_splits_dtype = dtypes.as_dtype(row_splits_dtype)
        if self.row_splits_dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"`row_splits_dtype` must be int32 or int64, got {self.row_splits_dtype.name}")

    @property
    def value_type(self) -> type:
        """The class of the tensors that this describes."""
        return RaggedTensor if self.ragged_rank else Tensor

    @property
    def flat_values_spec(self) -> None:
        """None: `dtype` describes the values."""
        return None

    @staticmethod
    def from_value(value: Any) -> RaggedTensorSpec:
        """Returns the description of a ragged tensor."""
        splits = value.nested_row_splits
        return RaggedTensorSpec(value.shape, value.dtype, len(splits), splits[0].dtype.base)

    def __repr__(self) -> str:
        return (
            f"RaggedTensorSpec(TensorShape({None if self.shape is None else list(self.shape)}), {self.dtype.name}, "
            f"{self.ragged_rank}, {self.row_splits_dtype.name})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedTensorSpec) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.ragged_rank, self.row_splits_dtype

    def _leaf(self, t: Any, dataset: Any) -> Any:
        attrs = {
            "input_ragged_rank": -1,
            "output_ragged_rank": self.ragged_rank,
            "Tvalues": self.dtype,
            "Tsplits": self.row_splits_dtype,
        }
        made = scopes.builder(t).make("RaggedTensorFromVariant", (t,), attrs)
        *splits, values = made if isinstance(made, (list, tuple)) else [made]
        if isinstance(values, Tensor) and self.shape is not None:
            inner = self.shape[self.ragged_rank + 1 :]
            values.refine((None, *inner) if self.ragged_rank else self.shape)
            if splits and self.shape[0] is not None:
                splits[0].refine((self.shape[0] + 1,))
        return RaggedTensor(values, splits) if splits else values

    def _batched(self, size: int | None) -> RaggedTensorSpec:
        shape = None if self.shape is None else (size, *self.shape)
        return RaggedTensorSpec(shape, self.dtype, self.ragged_rank + 1, self.row_splits_dtype)

    def _joined(self, other: Any) -> RaggedTensorSpec:
        if self._parts()[1:] != other._parts()[1:]:
            raise TypeError(f"Incompatible types of datasets: elements are {self} and {other}")
        return RaggedTensorSpec(shapes.join(self.shape, other.shape), *self._parts()[1:])


def to_variant(values: Any, splits: Any, rows: bool, row_splits_dtype: Any = dtypes.int64) -> Any:
    """Returns a ragged tensor as a variant; with `rows`, its rows as a vector of variants."""
    attrs = {"batched_input": rows, "Tsplits": splits[0].dtype.base if splits else row_splits_dtype}
    return scopes.builder(values).make("RaggedTensorToVariant", (list(splits), values), attrs)


class _Row:
    """Dense tensor as a row of a batch that is ragged.

    Args:
      value: the tensor.
      row_splits_dtype: that of the batch.
    """

    def __init__(self, value: Any, row_splits_dtype: Any) -> None:
        self._value, self._dtype = value, row_splits_dtype

    def _component(self, b: Any) -> tuple[Any, Any]:
        shape = shapes.as_shape(self._value.shape)
        assert shape is not None
        rank = max(i for i, d in enumerate(shape) if d is None)
        spec = RaggedTensorSpec(shape, self._value.dtype.base, rank, self._dtype)
        if not rank:
            return to_variant(self._value, [], False, self._dtype), spec
        made = RaggedTensor.from_tensor(self._value, ragged_rank=rank, row_splits_dtype=self._dtype)
        return to_variant(made.flat_values, made.nested_row_splits, False), spec


def as_rows(dataset: Any, row_splits_dtype: Any) -> Any:
    """Returns a dataset whose tensors of variable shape become ragged tensors when they are batched."""
    wanted = dtypes.as_dtype(row_splits_dtype)

    def varies(spec: Any) -> bool:
        return isinstance(spec, TensorSpec) and spec.shape is not None and None in spec.shape

    is_row = [varies(s) for s in structure.flatten(dataset.element_spec)]
    if not any(is_row):
        return dataset

    def change(*parts: Any) -> Any:
        element = parts if type(dataset.element_spec) is tuple else parts[0]
        leaves = structure.flatten(element)
        return structure.pack(element, [_Row(x, wanted) if r else x for x, r in zip(leaves, is_row, strict=True)])

    return dataset.map(change)
