"""Shapes of the elements of tensor lists: parsing, merging and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes
from headrace.device_arrays import computed
from headrace.errors import InvalidArgumentError
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    import numpy as np

    from headrace.resources.values import Value
    from headrace.shapes import Shape


def element_shape_of(value: Value) -> Shape:
    """Parses an element shape given as a tensor.

    The tensor is a vector with -1 for unknown dimensions, or the scalar -1 for an unknown rank.

    Raises:
      InvalidArgumentError: The tensor is neither.
    """
    if value.ndim == 1:
        try:
            dims = tuple(value.tolist())
        except AttributeError:  # of a namespace without this method
            dims = tuple([int(value[i]) for i in range(value.shape[0])])
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
            f"The only valid scalar shape tensor is the fully unknown shape specified as -1, got {int(value)}."
        )
    return None


def merge(a: Shape, b: Shape) -> Shape:
    """Merges two shapes; raises `InvalidArgumentError` if they are incompatible."""
    if a == b:
        return a
    try:
        return shapes.merge(a, b)
    except ValueError:
        what = "ranks" if a is not None and b is not None and len(a) != len(b) else "shapes"
        raise InvalidArgumentError(f"Incompatible {what} during merge: {shapes.show(a)} vs. {shapes.show(b)}") from None


def if_full(shape: Shape) -> tuple[int, ...] | None:
    """`shape` if its rank and all dimensions are known; else None."""
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
    """Text of the shape of an array."""
    return shapes.show(array.shape)


def pieces(tensor: np.ndarray, lengths: np.ndarray, element_shape: Shape) -> list[np.ndarray]:
    """Splits `tensor` into consecutive pieces, `lengths[k]` rows each.

    Raises:
      InvalidArgumentError: The sum of the lengths is not the number of rows, or the pieces do not fit `element_shape`.
    """
    if element_shape == ():
        raise InvalidArgumentError("TensorListSplit requires element_shape to be at least of rank 1, but saw: []")
    check_vector(tensor)
    if lengths.ndim != 1:
        raise InvalidArgumentError(f"Expected lengths to be a vector, received shape: {show(lengths)}")
    if not shapes.compatible(tensor.shape[1:], None if element_shape is None else element_shape[1:]):
        raise InvalidArgumentError(
            f"tensor shape {show(tensor)} is not compatible with element_shape {shapes.show(element_shape)}"
        )
    bounds = []
    start, rows = 0, tensor.shape[0]
    for length in lengths.tolist():
        if length < 0:
            raise InvalidArgumentError(f"Invalid value in lengths: {length}; a length must not be negative")
        end = start + length
        if end > rows:
            raise InvalidArgumentError(
                f"Attempting to slice [{start}, {end}] from tensor with length {rows}: "
                "the lengths add up to more than that"
            )
        bounds.append((start, end))
        start = end
    if start != rows:
        raise InvalidArgumentError(f"Unused values in tensor. Length of tensor: {rows} Values used: {start}")
    return list(computed(lambda xp, x: [x[i:j, ...] for i, j in bounds], tensor))
