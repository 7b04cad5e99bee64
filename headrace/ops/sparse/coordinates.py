"""Sparse tensors as coordinates, and helpers of the kernels of this folder.

A sparse tensor is three arrays: *indices* `[n, rank]`, the coordinates of its elements; *values* `[n]`; and its dense
*shape* `[rank]`, whose product may exceed memory (or 64 bits). Most ops require sorted coordinates without duplicates.
Coordinates are compared as rows and never combined into one number, so shapes of any size work. The functions take
arrays of any namespace of the array API standard.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from headrace import shapes
from headrace.dtypes import INTEGER, DType, float32, int8, int64
from headrace.errors import InvalidArgumentError, OpError
from headrace.ir.infer import Inference
from headrace.opkit.elementwise import HALF, widened
from headrace.opkit.namespaces import constant, converter, integers, is_near
from headrace.opkit.row_sums import any_true, by_place, first_true
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
    if values is not None and values.shape[0] != indices.shape[0]:
        raise InvalidArgumentError(
            f"Number of values must match first dimension of indices: {what} has {values.shape[0]} values and indices "
            f"of shape {shapes.show(indices.shape)}"
        )
    if shape.shape[0] != indices.shape[1]:
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
    return checked_dims(integers(shape))


def checked_dims(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of a sparse tensor.

    Raises:
      InvalidArgumentError: one is negative, or their product overflows.
    """
    if min(dims, default=0) < 0:
        raise InvalidArgumentError(f"Expected shape dimensions to be non-negative, got {min(dims)}")
    product = 1
    for d in dims:
        if product * d >= 2**63:
            raise InvalidArgumentError(f"Encountered overflow when multiplying {product} with {d}, in the shape {dims}")
        product *= d
    return dims


def outside(indices: Any, dims: Sequence[int], xp: Any = np) -> Any:
    """Bools for the coordinates that are not in the shape, [n, rank]."""
    return (indices < 0) | (indices >= constant(xp, dims, int64, indices))


def check_bounds(indices: Any, dims: Sequence[int], error: type[OpError] = InvalidArgumentError, xp: Any = np) -> None:
    """Raises `error` unless all coordinates lie in the shape."""
    wrong = outside(indices, dims, xp)
    if any_true(xp, wrong):
        i = first_true(xp, xp.any(wrong, axis=1))
        assert i is not None
        raise error(f"indices[{i}] = {_show(indices[i, ...])} is out of bounds: need 0 <= index < {_show(dims)}")


def check_sorted(indices: Any, dims: Sequence[int], xp: Any = np) -> None:
    """Raises `InvalidArgumentError` unless the coordinates lie in the shape, ascend and do not repeat."""
    check_bounds(indices, dims, xp=xp)
    steps = step_signs(indices, xp)
    i = first_true(xp, steps <= 0)
    if i is not None:
        why = (
            "is repeated"
            if not steps[i]
            else "is out of order. Many sparse ops require sorted indices: reorder the tensor first (SparseReorder)"
        )
        raise InvalidArgumentError(f"indices[{i + 1}] = {_show(indices[i + 1, ...])} {why}")


def _show(row: Any) -> str:
    return "[" + ",".join(map(str, row if isinstance(row, tuple) else integers(row))) + "]"


# *** Rows of coordinates ***


def selecting(rows: np.ndarray) -> tuple[Any, ...]:
    """Index that selects the elements at these coordinates of `array[None]`.

    With the added axis the index is valid for scalars too.
    """
    return np.zeros(len(rows), np.int64), *rows.T


def places_in(xp: Any, rows: Any, dims: Sequence[int]) -> Any:
    """Coordinates in a shape as numbers of its elements."""
    out = xp.zeros(rows.shape[0], dtype=xp.int64, device=rows.device)
    for k, d in enumerate(dims):
        out = out * d + rows[:, k]
    return out


def step_signs(rows: Any, xp: Any = np) -> Any:
    """Order of each row after the first, compared with the row before it.

    An element is 1 if the row is greater, 0 if it is equal and -1 if it is less.
    """
    n, rank = rows.shape
    if n < 2 or not rank:
        return xp.zeros(max(n - 1, 0), dtype=xp.int8, device=rows.device)
    ahead, behind, to_small = rows[1:, :], rows[:-1, :], converter(xp, int8)
    signs = to_small(ahead > behind) - to_small(ahead < behind)
    if xp is np:
        return signs[np.arange(n - 1), (signs != 0).argmax(axis=1)]
    first = xp.argmax(xp.abs(signs), axis=1)
    return signs[xp.arange(n - 1, device=rows.device), first]


def ordering(rows: Any, xp: Any = np) -> Any:
    """The permutation that sorts the rows; equal ones stay in order."""
    n, rank = rows.shape
    order = xp.arange(n, dtype=xp.int64, device=rows.device)
    if not rank or (is_near(rows) and not any_true(xp, step_signs(rows, xp) < 0)):
        return order
    if xp is np:
        return np.lexsort(rows.T[::-1])
    for k in reversed(range(rank)):
        order = xp.take(order, xp.argsort(xp.take(rows[:, k], order, axis=0), stable=True), axis=0)
    return order


def numbered(rows: Any, xp: Any = np) -> Any:
    """Ranks of the rows in lexicographic order: 0, 1, 2, ... without gaps."""
    order = ordering(rows, xp)
    if xp is not np:
        steps = xp.astype(step_signs(xp.take(rows, order, axis=0), xp) != 0, xp.int64)
        ranks = xp.cumulative_sum(steps, include_initial=True)[: rows.shape[0]]
        return xp.take(ranks, xp.argsort(order, stable=True), axis=0)
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = np.concatenate(([0], np.cumsum(step_signs(rows[order]) != 0)))[: len(rows)]
    return numbers


def runs(numbers: np.ndarray) -> np.ndarray:
    """Starts of the runs of equal elements in a sorted vector."""
    if not len(numbers):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))


def reduced_runs(f: Any, values: Any, numbers: Any, t: DType, xp: Any = np) -> Any:
    """Reduces the values of each number by a function.

    Half precision is reduced in float32.

    Args:
      f: numpy's ufunc, of which the namespace has a function of the same name, or `fmax`.
      values: the values.
      numbers: their numbers, without gaps.
      t: their dtype.
      xp: the namespace.
    """
    if xp is not np:
        combine = functools.partial(_fmax, xp) if f is np.fmax and t not in INTEGER else getattr(xp, _NAMES[f])
        n = int(xp.max(numbers)) + 1 if numbers.shape[0] else 0
        return widened(lambda x: by_place(xp, combine, x, numbers, n, 0), t, xp)(values)
    order = np.argsort(numbers, kind="stable")
    starts = runs(numbers[order])
    if not len(starts):
        return values[:0]
    wide = np.dtype(np.float32) if values.dtype.itemsize == 2 and values.dtype.kind in "fV" else values.dtype
    return np.asarray(f.reduceat(values[order].astype(wide), starts, dtype=wide).astype(values.dtype))


_NAMES: Final = {np.add: "add", np.fmax: "maximum", np.maximum: "maximum"}


def _fmax(xp: Any, a: Any, b: Any) -> Any:
    return xp.where(xp.isnan(a), b, xp.where(xp.isnan(b), a, xp.maximum(a, b)))


def spread(rank: int, axes: Any) -> list[int]:
    """Distinct axes in ascending order, counted from the front.

    Raises `InvalidArgumentError` for an axis outside of `rank`.
    """
    given = integers(axes)
    for a in given:
        if not -rank <= a < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension {a}, for input with {rank} dimensions.")
    return sorted({a % rank for a in given})


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
