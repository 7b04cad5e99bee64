"""Dense tensors as rows of ragged batches of a dataset."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.api.data import structure
from headrace.api.tensor_spec import TensorSpec
from headrace.v1.ragged.ragged_tensor import RaggedTensor, RaggedTensorSpec, to_variant


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
