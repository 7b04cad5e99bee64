"""Sizes of a cell's states and outputs.

A *size* is the shape of one example's state: a number for a vector, or a shape (`hr.TensorSpec`, or TensorFlow 1's
class for shapes). A cell with several states has a structure of sizes. Tuples and lists are structures here, so a shape
is never written as a tuple or list.
"""

from __future__ import annotations

import math
from typing import Any

from headrace import nest, shapes
from headrace.api import arrays, scopes, tensors
from headrace.errors import ShapeError


def dims_of(size: Any) -> tuple[int | None, ...]:
    """Returns the shape of one example for a size.

    >>> dims_of(3)
    (3,)

    Raises:
      ShapeError: the rank is unknown.
    """
    value = getattr(size, "value", size)  # a Dimension
    if hasattr(value, "__index__"):
        return (value.__index__(),)
    dims = shapes.as_shape(getattr(size, "shape", size))
    if dims is None:
        raise ShapeError(f"a size of a state or output is a number or a shape of known rank, got {size!r}")
    return dims


def width(size: Any) -> int:
    """Returns the number of columns of a state when states are joined.

    Raises:
      ShapeError: a dimension is unknown.
    """
    dims = dims_of(size)
    known = [d for d in dims if d is not None]
    if len(known) < len(dims):
        raise ShapeError(f"the size of a state must be known, got {shapes.show(dims)}")
    return math.prod(known)


def batch_size(x: Any, axis: int) -> Any:
    """Returns the size of an axis: an int if known, else a scalar."""
    known = x.shape
    if known is not None and len(known) > axis and known[axis] is not None:
        return known[axis]
    with scopes.name_scope(None, "batch_size", [x]):
        return arrays.shape(x)[axis]


def joined(batch: Any, size: Any) -> list[Any]:
    """Returns the shape of a batch of examples, as ints and scalars."""
    return [batch, *dims_of(size)]


def static(batch: Any, size: Any) -> tuple[int | None, ...]:
    """Returns the static shape of a batch of examples."""
    return (batch if isinstance(batch, int) else None, *dims_of(size))


def zeros(batch: Any, sizes: Any, dtype: Any) -> Any:
    """Returns zeros for a structure of sizes.

    Args:
      batch: number of examples: an int or an int32 scalar.
      sizes: a structure of sizes, as the module describes them.
      dtype: dtype of all tensors.
    """
    if hasattr(batch, "__index__") and not tensors.is_tensor(batch):
        batch = batch.__index__()

    def one(size: Any) -> Any:
        made = arrays.zeros(joined(batch, size), dtype)
        tensors.narrow(made, static(batch, size))
        return made

    return nest.map_leaves(one, sizes)
