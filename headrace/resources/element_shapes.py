"""Shapes of the elements of tensor lists: as they are given, put together, and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    import numpy as np

    from headrace.resources.values import Value
    from headrace.shapes import Shape


def element_shape_of(value: Value) -> Shape:
    """An element shape given as a tensor: a vector with -1 for unknown dimensions, or the scalar -1 for any rank.

    Raises:
      InvalidArgumentError: it is neither.
    """
    if value.ndim == 1:
        dims = tuple(value.tolist())
        if not dims or min(dims) >= 0:
            return dims
        if min(dims) < -1:
            raise InvalidArgumentError(f"Dimension {min(dims)} must be >= -1 in an element_shape, got {dims}")
        return tuple(None if d < 0 else d for d in dims)
    if value.ndim > 1:
        raise InvalidArgumentError(
            f"element_shape must be at most rank 1 but has the shape of {shapes.show(value.shape)}"
        )
    if value != -1:
        raise InvalidArgumentError(
            f"The only valid scalar shape tensor is the fully unknown shape specified as -1, got {value}."
        )
    return None


def merge(a: Shape, b: Shape) -> Shape:
    """The shape that is both `a` and `b`; raises `InvalidArgumentError` if there is none."""
    if a == b:
        return a
    try:
        return shapes.merge(a, b)
    except ValueError:
        what = "ranks" if a is not None and b is not None and len(a) != len(b) else "shapes"
        raise InvalidArgumentError(f"Incompatible {what} during merge: {shapes.show(a)} vs. {shapes.show(b)}") from None


def if_full(shape: Shape) -> tuple[int, ...] | None:
    """`shape`, if rank and all dimensions are known."""
    if shape is None:
        return None
    dims = tuple(d for d in shape if d is not None)
    return dims if len(dims) == len(shape) else None


def check_vector(tensor: np.ndarray) -> None:
    """Raises `InvalidArgumentError` for a scalar, which has no rows."""
    if not shape_of(tensor):
        raise InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")


def check_rows(tensor: np.ndarray, element_shape: Shape) -> None:
    """Raises `InvalidArgumentError` unless the rows of `tensor` fit `element_shape`."""
    check_vector(tensor)
    if not shapes.fits(tensor.shape[1:], element_shape):
        raise InvalidArgumentError(
            f"Specified a list with shape {shapes.show(element_shape)} from a tensor with shape "
            f"{shapes.show(tensor.shape[1:])}"
        )


def show(array: np.ndarray) -> str:
    """The shape of an array as text."""
    return shapes.show(array.shape)
