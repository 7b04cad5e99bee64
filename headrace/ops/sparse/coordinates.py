"""Sparse tensors as coordinates, and helpers of the kernels of this folder.

A sparse tensor is three arrays: *indices* `[n, rank]`, the coordinates of its elements; *values* `[n]`; and its dense
*shape* `[rank]`, whose product may exceed memory (or 64 bits). Most ops require sorted coordinates without duplicates.
Coordinates are compared as rows and never combined into one number, so shapes of any size work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import DType, float32
from headrace.errors import InvalidArgumentError, OpError
from headrace.ir.infer import Inference
from headrace.opkit.elementwise import HALF
from headrace.opkit.namespaces import converter
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape

# *** Checks ***


def checked(indices: Any, values: Any, shape: Any, what: str = "input") -> tuple[int, ...]:
    """Dense shape of a sparse tensor, after a check of its three arrays.

    The values of the coordinates are not checked.

    Raises:
      InvalidArgumentError: they do not, or a dimension is negative, or there are 2**63 elements.
    """
    check_parts(indices, values, shape, what)
    return dense_shape(shape)


def check_parts(indices: Any, values: Any, shape: Any, what: str = "input") -> None:
    """Checks the shapes of the three arrays of a sparse tensor; `values` may be None.

    Raises `InvalidArgumentError` unless they are those of one tensor.
    """
    if indices.ndim != 2:
        raise InvalidArgumentError(
            f"{what}_indices must be a matrix: expected rank 2, received shape {shapes.show(indices.shape)}"
        )
    if values is not None and values.ndim != 1:
        raise InvalidArgumentError(
            f"{what}_values must be a vector: expected rank 1, received shape {shapes.show(values.shape)}"
        )
    if shape.ndim != 1:
        raise InvalidArgumentError(
            f"{what}_shape must be a vector: expected rank 1, received shape {shapes.show(shape.shape)}"
        )
    if values is not None and len(values) != len(indices):
        raise InvalidArgumentError(
            f"Number of values must match first dimension of indices: {what} has {len(values)} values and indices of "
            f"shape {shapes.show(indices.shape)}"
        )
    if len(shape) != indices.shape[1]:
        raise InvalidArgumentError(
            f"Number of dimensions must match second dimension of indices: {what} has shape {_show(shape)} and "
            f"indices of shape {shapes.show(indices.shape)}"
        )


def dense_shape(shape: Any) -> tuple[int, ...]:
    """The dimensions that a vector of integers says.

    Raises:
      InvalidArgumentError: one is negative, or their product overflows.
    """
    if shape.ndim != 1:
        raise InvalidArgumentError(f"a shape must be a vector: expected rank 1, received {shapes.show(shape.shape)}")
    dims = tuple(shape.tolist())
    if min(dims, default=0) < 0:
        raise InvalidArgumentError(f"Expected shape dimensions to be non-negative, got {min(dims)}")
    product = 1
    for d in dims:
        if product * d >= 2**63:
            raise InvalidArgumentError(f"Encountered overflow when multiplying {product} with {d}, in the shape {dims}")
        product *= d
    return dims


def check_bounds(indices: np.ndarray, dims: Sequence[int], error: type[OpError] = InvalidArgumentError) -> None:
    """Raises `error` unless all coordinates lie in the shape."""
    wrong = ((indices < 0) | (indices >= np.array(dims, np.int64))).any(axis=1)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise error(f"indices[{i}] = {_show(indices[i])} is out of bounds: need 0 <= index < {_show(dims)}")


def check_sorted(indices: np.ndarray, dims: Sequence[int]) -> None:
    """Raises `InvalidArgumentError` unless the coordinates lie in the shape, ascend and do not repeat."""
    check_bounds(indices, dims)
    steps = step_signs(indices)
    if (steps <= 0).any():
        i = int(np.argmax(steps <= 0))
        why = (
            "is repeated"
            if not steps[i]
            else "is out of order. Many sparse ops require sorted indices: reorder the tensor first (SparseReorder)"
        )
        raise InvalidArgumentError(f"indices[{i + 1}] = {_show(indices[i + 1])} {why}")


def _show(row: Any) -> str:
    return "[" + ",".join(map(str, row)) + "]"


# *** Rows of coordinates ***


def selecting(rows: np.ndarray) -> tuple[Any, ...]:
    """Index that selects the elements at these coordinates of `array[None]`.

    With the added axis the index is valid for scalars too.
    """
    return np.zeros(len(rows), np.int64), *rows.T


def step_signs(rows: np.ndarray) -> np.ndarray:
    """Order of each row after the first, compared with the row before it.

    An element is 1 if the row is greater, 0 if it is equal and -1 if it is less.
    """
    n, rank = rows.shape
    if n < 2 or not rank:
        return np.zeros(max(n - 1, 0), np.int8)
    ahead, behind = rows[1:], rows[:-1]
    signs = (ahead > behind).astype(np.int8) - (ahead < behind)
    first = (signs != 0).argmax(axis=1)
    return np.asarray(signs[np.arange(n - 1), first])


def ordering(rows: np.ndarray) -> np.ndarray:
    """The permutation that sorts the rows; equal ones stay in order."""
    if not rows.shape[1] or (step_signs(rows) >= 0).all():
        return np.arange(len(rows))
    return np.lexsort(rows.T[::-1])


def numbered(rows: np.ndarray) -> np.ndarray:
    """Ranks of the rows in lexicographic order: 0, 1, 2, ... without gaps."""
    order = ordering(rows)
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = np.concatenate(([0], np.cumsum(step_signs(rows[order]) != 0)))[: len(rows)]
    return numbers


def runs(numbers: np.ndarray) -> np.ndarray:
    """Starts of the runs of equal elements in a sorted vector."""
    if not len(numbers):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))


def reduced_runs(f: Any, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Reduces the values of each number by the ufunc `f`.

    Half precision is reduced in float32.
    """
    order = np.argsort(numbers, kind="stable")
    starts = runs(numbers[order])
    if not len(starts):
        return values[:0]
    wide = np.dtype(np.float32) if values.dtype.itemsize == 2 and values.dtype.kind in "fV" else values.dtype
    return np.asarray(f.reduceat(values[order].astype(wide), starts, dtype=wide).astype(values.dtype))


def spread(rank: int, axes: Any) -> list[int]:
    """Distinct axes in ascending order, counted from the front.

    Raises `InvalidArgumentError` for an axis outside of `rank`.
    """
    for a in axes.ravel().tolist():
        if not -rank <= a < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension {a}, for input with {rank} dimensions.")
    return sorted({a % rank for a in axes.ravel().tolist()})


# *** Static shapes ***


def parts(c: Inference, at: int, values: bool = True, ranks: str = "ivs") -> tuple[Dim, Dim]:
    """Number of elements and rank of the sparse tensor that begins at input `at`.

    Of the arrays the rank is checked that `ranks` names (indices, values, shape), as TensorFlow does in this op; all
    else is checked when the op runs.
    """
    found: list[tuple[Dim, ...]] = []
    for k, (name, rank) in enumerate((("i", 2), ("v", 1), ("s", 1)) if values else (("i", 2), ("s", 1))):
        shape = c.shapes[at + k]
        known = name in ranks or shape is None or len(shape) == rank
        found.append(shapes.with_rank(shape, rank) if known else (None,) * rank)
    (n, columns), (rank_of,) = found[0], found[-1]
    return either(n, found[1][0]) if values else n, either(columns, rank_of)


def either(a: Dim, b: Dim) -> Dim:
    """The one that is known."""
    return b if a is None else a


def sparse_out(n: Dim, rank: Dim) -> list[Shape]:
    """The shapes of the three arrays of a sparse tensor."""
    return [(n, rank), (n,), (rank,)]


# *** Samples and oracles ***


def drawn(
    rng: np.random.Generator, dtype: DType, shape: Sequence[int], n: int, low: float = -3.0, high: float = 3.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random sparse tensor with `n` elements in [low, high), sorted and without repeats."""
    flat = np.sort(rng.choice(math.prod(shape), n, replace=False)) if n else np.zeros(0, np.int64)
    indices = np.stack(np.unravel_index(flat, tuple(shape)), axis=1).astype(np.int64)
    return indices, draw(rng, dtype, (n,), low, high), np.array(shape, np.int64)


def filled(indices: np.ndarray, values: np.ndarray, shape: Any) -> dict[tuple[int, ...], Any]:
    """For oracles: coordinate → value."""
    return dict(zip(map(tuple, indices.tolist()), values))


def collected(elements: dict[tuple[int, ...], Any], dtype: np.dtype, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The sorted indices and the values of `filled`."""
    places = sorted(elements)
    values = np.empty(len(places), dtype)
    for i, p in enumerate(places):
        values[i] = elements[p]
    return np.array(places, np.int64).reshape(len(places), rank), values


def widely(t: DType, xp: Any = np) -> Callable[[Any], Any]:
    """Brings an array of dtype `t` to the dtype that arithmetic is done in."""
    return converter(xp, float32) if t in HALF else lambda x: x
