"""Features of a batch: tensors by name, and the tensors that columns make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import dtypes
from headrace.api.sparse_tensor import SparseTensor
from headrace.v1 import array_ops, math_ops, sparse


class Features:
    """Transforms features on first use.

    Args:
      tensors: tensors or sparse tensors by name, [batch] or [batch, ...].
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._made: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """Returns the feature of a name, or the tensor that a column makes.

        A feature has a rank of 2 or more.

        Args:
          key: a name, or a column.

        Raises:
          ValueError: no feature has this name, or the feature is a scalar.
        """
        if key not in self._made:
            self._made[key] = self._batch(key) if isinstance(key, str) else key.transform(self)
        return self._made[key]

    def _batch(self, key: str) -> Any:
        if key not in self._tensors:
            raise ValueError(f"Feature {key} is not in features dictionary.")
        t = sparse.convert_to_tensor_or_sparse_tensor(self._tensors[key])
        rank = t.get_shape().ndims
        if rank == 0:
            raise ValueError(f"Feature (key: {key}) cannot have rank 0. Given: {t}")
        if rank != 1:
            return t
        if isinstance(t, SparseTensor):
            return sparse.reshape(t, array_ops.stack([t.dense_shape[0], 1]))
        return array_ops.expand_dims(t, -1)


def as_ids(t: Any) -> SparseTensor:
    """Converts a feature to a sparse tensor.

    Empty strings and the integer -1 stand for missing values.
    """
    if isinstance(t, SparseTensor):
        return t
    missing = array_ops.constant("" if t.dtype is dtypes.string else -1, t.dtype)
    indices = array_ops.where(math_ops.not_equal(t, missing))
    return SparseTensor(indices, array_ops.gather_nd(t, indices), array_ops.shape(t, out_type=dtypes.int64))
