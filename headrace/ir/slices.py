"""Sparse gradients: rows of a tensor."""

from __future__ import annotations

import dataclasses

from headrace.ir.graph import Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class IndexedSlices:
    """Rows `values` at `indices` of a tensor of shape `dense_shape`."""

    values: Tensor
    indices: Tensor
    dense_shape: Tensor
