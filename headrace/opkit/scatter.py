"""Multi-dimensional indices of ops that gather slices or scatter updates.

The last dimension of `indices` contains the leading coordinates of one element or slice. The module serves GatherNd,
ScatterNd, TensorScatter* and the ops that scatter into variables. `places` and `scatter` are for numpy, `flat_places`
and `scattered` for arrays of any namespace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import string_attr
from headrace.opkit.arrays import zeros
from headrace.opkit.kernel_library import kernel_library
from headrace.opkit.namespaces import converter, is_near, listed
from headrace.opkit.row_sums import by_place, first_true, last_rows
from headrace.shapes import Shape

POLICY: Final = string_attr("", {"", "DEFAULT", "ERROR", "IGNORE"})
_UNSIGNED: Final = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def all_in(indices: Any, n: int) -> bool:
    """Whether all indices are in [0, n)."""
    if not indices.size:
        return True
    bits = 8 * indices.dtype.itemsize - (indices.dtype.kind == "i")
    # as unsigned integers, negative numbers are the largest: one reduction instead of two
    return bool(indices.view(_UNSIGNED[indices.dtype.itemsize]).max() < min(n, 2**bits))


def first_in(xp: Any, mask: Any) -> tuple[int, ...]:
    """Returns the coordinates of the first true element of a mask that has one."""
    at = first_true(xp, xp.reshape(mask, (-1,)))
    assert at is not None
    out = []
    for n in reversed(mask.shape):
        at, i = divmod(at, n)
        out.append(i)
    return tuple(reversed(out))


def _check_depth(indices: Any, shape: Sequence[int]) -> None:
    depth = indices.shape[-1]
    if depth > len(shape):
        raise InvalidArgumentError(
            "The last dimension of indices must have at most as many elements as there are dimensions, "
            f"got {depth} for the shape {shapes.show(tuple(shape))}"
        )


def _bad_index(indices: Any, first: tuple[int, ...], shape: Sequence[int]) -> InvalidArgumentError:
    at = shapes.show(first) if first else ""
    return InvalidArgumentError(
        f"indices{at} = {listed(indices[(*first, ...)])} does not index into shape {shapes.show(tuple(shape))}"
    )


def places(indices: Any, shape: Sequence[int], ignore_bad: bool) -> tuple[tuple[Any, ...], Any]:
    """Returns index arrays for the leading dimensions of `shape`, and a mask.

    Args:
      indices: the indices.
      shape: the shape of the indexed array.
      ignore_bad: whether indices out of range are ignored.

    Returns:
      The index arrays, and the mask of those in range; None if all are in range.

    Raises:
      InvalidArgumentError: the indices have too many coordinates, or one is out of range and not ignored.
    """
    _check_depth(indices, shape)
    columns = tuple(indices[..., i] for i in range(indices.shape[-1]))
    if all(all_in(column, n) for column, n in zip(columns, shape)):
        return columns, None
    bad = np.zeros(indices.shape[:-1], bool)
    for column, n in zip(columns, shape):
        bad |= (column < 0) | (column >= n)
    if not ignore_bad:
        raise _bad_index(indices, first_in(np, bad), shape)
    return columns, ~bad


def flat_places(xp: Any, indices: Any, shape: Sequence[int], ignore_bad: bool) -> tuple[Any, Any]:
    """Returns positions along the indexed dimensions, made one, and a mask.

    It is `places` for any namespace.

    Args:
      xp: the array namespace.
      indices: the indices.
      shape: the shape of the indexed array.
      ignore_bad: whether indices out of range are ignored.

    Returns:
      An int64 vector with a position for each index, 0 for one out of range, and the mask of those in range; None if
      all are known to be in range.

    Raises:
      InvalidArgumentError: the indices have too many coordinates, or one is out of range and not ignored.
    """
    _check_depth(indices, shape)
    count, depth = math.prod(indices.shape[:-1]), indices.shape[-1]
    rows = converter(xp, dtypes.int64)(xp.reshape(indices, (count, depth)))
    out = zeros(xp, (count,), dtypes.int64, indices)
    bad = out != 0
    for k, n in enumerate(shape[:depth]):
        column = rows[:, k]
        bad = bad | (column < 0) | (column >= n)
        out = out * n + column
    if is_near(bad):
        if not xp.any(bad):
            return out, None
        if not ignore_bad:
            raise _bad_index(indices, first_in(xp, xp.reshape(bad, indices.shape[:-1])), shape)
    return xp.where(bad, xp.zeros_like(out), out), xp.logical_not(bad)


def check_updates(indices: Any, updates: Any, shape: Sequence[int]) -> None:
    """Raises `InvalidArgumentError` unless the shape of `updates` fits `indices` and `shape`."""
    for name, x in (("Indices", indices), ("Updates", updates)):
        if not x.ndim:
            raise InvalidArgumentError(f"{name} shape must have rank at least one. Found: []")
    want = indices.shape[:-1] + tuple(shape[indices.shape[-1] :])
    if updates.shape != want:
        raise InvalidArgumentError(
            f"Dimensions of updates must match indices and shape: with indices of shape {shapes.show(indices.shape)} "
            f"and shape {shapes.show(tuple(shape))} they are {shapes.show(want)}, got {shapes.show(updates.shape)}"
        )


def _all_of(updates: Any, out: Any) -> tuple[int, ...]:
    """Returns the axes of `updates` that number them, if each updates the whole of `out`."""
    return tuple(range(updates.ndim - out.ndim))


def accumulated(how: Literal["add", "subtract"], out: Any, where: tuple[Any, ...], updates: Any) -> bool:
    """Adds `updates` to `out[where]`, or subtracts them, by the library of the kernels.

    Args:
      how: the operation.
      out: the array to change.
      where: index arrays of one shape for the leading dimensions, in range.
      updates: the updates, [*shape of an index array, *other dimensions].

    Returns:
      Whether the library has a function for it; if not, `out` is as before.
    """
    depth, count = len(where), where[0].size
    if not count or not updates.size or not out.flags.c_contiguous:
        return False
    n = math.prod(out.shape[:depth])
    rows = where[0] if depth == 1 else np.ravel_multi_index(where, out.shape[:depth])
    flat = rows.reshape(count), updates.reshape(count, -1)
    return kernel_library().accumulated(how, out.reshape(n, -1), *flat) is not None


def add_at(out: Any, where: tuple[Any, ...], updates: Any) -> None:
    """Computes `out[where] += updates`, where updates of one place are added."""
    depth = len(where)
    if not depth:
        out += np.add.reduce(updates, _all_of(updates, out), out.dtype)
    elif accumulated("add", out, where, updates):
        return
    elif updates.ndim > where[0].ndim and where[0].size >= thresholds.SORTED_UPDATES:
        # whole slices: sorted by place, the updates of one place are summed in one call
        flat = np.ravel_multi_index([w.ravel() for w in where], out.shape[:depth])
        order = np.argsort(flat, kind="stable")
        flat = flat[order]
        starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
        sums = np.add.reduceat(updates.reshape(-1, *out.shape[depth:])[order], starts, 0, out.dtype)
        out[np.unravel_index(flat[starts], out.shape[:depth])] += sums
    else:
        np.add.at(out, where, updates)


def set_at(out: Any, where: tuple[Any, ...], updates: Any) -> None:
    """Computes `out[where] = updates`; the last update of a place remains."""
    out[where] = updates


def subtract_at(out: Any, where: tuple[Any, ...], updates: Any) -> None:
    """Computes `out[where] -= updates`, for each occurrence of a place."""
    if not where:
        out -= np.add.reduce(updates, _all_of(updates, out), out.dtype)
    elif not accumulated("subtract", out, where, updates):
        np.subtract.at(out, where, updates)


def extreme_at(ufunc: np.ufunc) -> Callable[[Any, tuple[Any, ...], Any], None]:
    """Returns a function that scatters updates by `np.minimum` or `np.maximum`.

    A NaN among the updates changes nothing, as in TensorFlow.
    """
    least = -np.inf if ufunc is np.maximum else np.inf

    def apply(out: Any, where: tuple[Any, ...], updates: Any) -> None:
        is_nan = updates != updates
        if np.any(is_nan):
            updates = np.where(is_nan, np.asarray(least, updates.dtype), updates)
        if where:
            ufunc.at(out, where, updates)
        else:
            out[...] = ufunc(out, ufunc.reduce(updates, _all_of(updates, out))) if updates.size else out

    return apply


def scatter(out: Any, indices: Any, updates: Any, put: Any, ignore_bad: bool) -> Any:
    """Scatters `updates` to `indices` of `out`, in place.

    Args:
      out: a writable array.
      indices: the indices.
      updates: the updates.
      put: the function that combines them: `add_at`, `set_at`, ...
      ignore_bad: whether indices out of range are ignored.

    Returns:
      `out`, as a numpy scalar if it has rank 0.

    Raises:
      InvalidArgumentError: the shapes do not fit, or an index is out of range and not ignored.
    """
    check_updates(indices, updates, out.shape)
    where, good = places(indices, out.shape, ignore_bad)
    if good is not None:
        where, updates = tuple(w[good] for w in where), updates[good]
    put(out, where, updates)
    return out if out.ndim or out.dtype == object else out[()]


def scattered(xp: Any, x: Any, indices: Any, updates: Any, how: str, ignore_bad: bool) -> Any:
    """Returns `x` with `updates` scattered to `indices`.

    It is `scatter` for any namespace. Updates of one place are combined in pairs (`row_sums.by_place`).

    Args:
      xp: the array namespace.
      x: the array.
      indices: the indices.
      updates: the updates.
      how: the function that combines an element with an update, "add", "subtract", "minimum" or "maximum"; "" replaces
        the element.
      ignore_bad: whether indices out of range are ignored.

    Raises:
      InvalidArgumentError: the shapes do not fit, or an index is out of range and not ignored.
    """
    shape = x.shape
    check_updates(indices, updates, shape)
    places, good = flat_places(xp, indices, shape, ignore_bad)
    depth = indices.shape[-1]
    n, rest = math.prod(shape[:depth]), shape[depth:]
    if good is not None:
        places = xp.where(good, places, n)
    old, rows = xp.reshape(x, (n, *rest)), xp.reshape(updates, (places.shape[0], *rest))
    if not how:
        return xp.reshape(last_rows(xp, rows, places, n, old), shape)
    combine, each, nothing = _combination(xp, how, x.dtype)
    if how in ("minimum", "maximum"):  # a NaN among the updates changes nothing
        rows = xp.where(rows != rows, nothing, rows)
    return xp.reshape(combine(old, by_place(xp, each, rows, places, n, nothing)), shape)


def _combination(xp: Any, how: str, dtype: Any) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """Functions that combine an element with updates and two updates, and a neutral update."""
    if xp.isdtype(dtype, "bool"):
        return xp.logical_or, xp.logical_or, False
    is_float = xp.isdtype(dtype, "real floating")
    if how in ("add", "subtract"):
        nothing = -0.0 if is_float and how == "add" else 0  # a sum with 0.0 would change -0.0
        return getattr(xp, how), xp.add, nothing
    f = getattr(xp, how)
    if is_float:
        return f, f, -math.inf if how == "maximum" else math.inf
    bounds = xp.iinfo(dtype)
    return f, f, bounds.min if how == "maximum" else bounds.max


def check_static(indices: Shape, updates: Shape, shape: Shape) -> None:
    """Checks the static shapes as far as they are known; see `check_updates`.

    Raises:
      ValueError: the shapes do not fit.
    """
    shapes.with_rank_at_least(indices, 1)
    shapes.with_rank_at_least(updates, 1)
    if indices is None or updates is None:
        return
    if len(updates) < len(indices) - 1:
        raise ValueError(f"updates {shapes.show(updates)} must start with the dimensions {shapes.show(indices[:-1])}")
    rest = None if shape is None or indices[-1] is None else shape[indices[-1] :]
    want = indices[:-1] + (updates[len(indices) - 1 :] if rest is None else rest)
    if not shapes.compatible(want, updates):
        raise ValueError(f"Dimensions of updates must be {shapes.show(want)}, got {shapes.show(updates)}")
