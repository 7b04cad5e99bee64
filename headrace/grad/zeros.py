"""Tensors with gradients: dtypes and shapes of gradients, and zero gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import dtypes, shapes
from headrace.ir.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor
    from headrace.shapes import Shape


def carries(dtype: DType) -> bool:
    """Whether values of `dtype` have gradients.

    They are floats and complex numbers, lists and tuples of them (variant), and handles of variables. The gradient of a
    handle is that of the variable's value.
    """
    return dtype.base.number in _CARRIERS


_CARRIERS: Final = frozenset(d.number for d in (*dtypes.FLOATING, *dtypes.COMPLEX, dtypes.variant, dtypes.resource))


def gradient_dtype(x: Tensor) -> DType:
    """Dtype of gradients with respect to `x`; for a handle, that of its variable."""
    if x.dtype.base is dtypes.resource:
        return x.handle[0].base if x.handle is not None else dtypes.float32
    return x.dtype.base


def gradient_shape(x: Tensor) -> Shape:
    """Static shape of gradients with respect to `x`."""
    if x.dtype.base is dtypes.resource:
        return x.handle[1] if x.handle is not None else None
    return x.static_shape


def shape_of_gradient(b: Builder, x: Tensor) -> Tensor:
    """Returns the shape of gradients with respect to `x`, an int32 vector."""
    static = gradient_shape(x)
    if static is not None and shapes.is_full(static):
        return b.const(static, dtypes.int32, "Shape")
    out: Tensor = b.VariableShape(x) if x.dtype.base is dtypes.resource else b.Shape(x)
    return out


def zeros_for(b: Builder, x: Tensor) -> Tensor:
    """Returns zeros like the gradient with respect to `x`, a tensor or a list."""
    out: Tensor
    if x.dtype.base is not dtypes.resource:
        out = b.ZerosLike(x)
    else:
        out = b.Fill(shape_of_gradient(b, x), b.const(0, gradient_dtype(x)))
    return out


def no_slices(b: Builder, x: Tensor, like: IndexedSlices) -> IndexedSlices:
    """Returns an empty `IndexedSlices` of `x`, with the dtypes of `like`."""
    shape = shape_of_gradient(b, x)
    rows = b.StridedSlice(shape, [1], [0], [1], end_mask=1)
    values = b.Fill(b.ConcatV2([[0], rows], 0), b.const(0, like.values.dtype.base))
    return IndexedSlices(values, b.const([], like.indices.dtype.base), shape)
