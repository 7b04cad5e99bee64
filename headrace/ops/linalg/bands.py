"""Bands of matrices for the ops of `diagonal.py`: positions in the packed band.

The module registers no ops. Diagonal d of a matrix contains the elements [r, r + d]. A band of diagonals is packed as
the rows of a matrix, the highest diagonal first; For the diagonals above and below the main one, `align` states the end
at which a shorter diagonal is padded. A single diagonal is packed as a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.opkit.arrays import check_size, zeros
from headrace.opkit.namespaces import constant, integers
from headrace.shapes import Dim, Shape

# *** Which element of a packed band is which element of the matrix ***


def _longest(rows: int, cols: int, low: int, high: int) -> int:
    """The length of the longest of the diagonals `low` to `high`."""
    return min(rows + min(high, 0), cols - max(low, 0))


def _check_band(rows: int, cols: int, low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    for name, d in (("lower", low), ("upper", high)):
        if not -rows < d < cols and d != 0:
            raise ValueError(f"{name}_diag_index is out of bound: {d}. It must be between {-rows} and {cols}")


def band_of(k: Any) -> tuple[int, int]:
    """The lowest and highest diagonal that the input `k` names."""
    if k.ndim > 1 or math.prod(k.shape) not in (1, 2):
        raise InvalidArgumentError(
            f"diag_index must be a scalar or a vector of one or two elements, received shape: {shapes.show(k.shape)}"
        )
    ds = integers(k)
    return ds[0], ds[-1]


class Diagonal(NamedTuple):
    """Diagonal of a matrix.

    Attributes:
      row, column: the place of its first element.
      length: the number of elements.
      packed: its row in the packed band.
      offset: the place of its first element there.
    """

    row: int
    column: int
    length: int
    packed: int
    offset: int


def diagonals(rows: int, cols: int, low: int, high: int, align: str) -> Iterator[Diagonal]:
    """Yields the diagonals of a band, the highest first."""
    above, _, below = align.partition("_")
    longest = _longest(rows, cols, low, high)
    for d in range(high, low - 1, -1):
        r, c = max(0, -d), max(0, d)
        length = max(0, min(rows - r, cols - c))
        left = above == "LEFT" if d > 0 else below == "LEFT" if d < 0 else "LEFT" in align
        yield Diagonal(r, c, length, high - d, 0 if left else longest - length)


def places(rows: int, cols: int, low: int, high: int, align: str) -> tuple[Any, ...]:
    """Index vectors of the band: rows and columns in the matrix and in packed form."""
    parts = []
    for d in diagonals(rows, cols, low, high, align):
        along = np.arange(d.length)
        parts.append((along + d.row, along + d.column, np.full(d.length, d.packed), along + d.offset))
    return tuple(np.concatenate(p) for p in zip(*parts))


def pack_band(xp: Any, x: Any, low: int, high: int, padding: Any, align: str, dtype: DType) -> Any:
    """The diagonals of the matrices `x`; one diagonal is a vector, several are a matrix.

    Args:
      xp: the array namespace.
      x: the matrices.
      low, high: the lowest and the highest diagonal.
      padding: the value after or before a shorter diagonal; None for zero.
      align: the ends of the shorter diagonals.
      dtype: the dtype of the elements.
    """
    if x.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {shapes.show(x.shape)}")
    rows, cols = x.shape[-2:]
    _check_band(rows, cols, low, high)
    shape = (*x.shape[:-2], high - low + 1, max(_longest(rows, cols, low, high), 0))
    r, c, i, j = places(rows, cols, low, high, align)
    if xp is np:
        out = zeros(np, shape, dtype)
        if padding is not None:
            out[...] = padding
        out[..., i, j] = x[..., r, c]
    else:
        check_size(shape, dtype)
        source = np.full(shape[-2:], -1)
        source[i, j] = r * cols + c
        padding = zeros(xp, (), dtype, x) if padding is None else padding
        out = _arranged(xp, xp.reshape(x, (*x.shape[:-2], rows * cols)), source, padding)
    return out if low != high else out[..., 0, :]


def set_band(xp: Any, x: Any, band: Any, low: int, high: int, align: str) -> Any:
    """The matrices `x`, writable if of numpy, with diagonals replaced by `band`."""
    rows, cols = x.shape[-2:]
    _check_band(rows, cols, low, high)
    want = (*x.shape[:-2], *((high - low + 1,) if low != high else ()), max(_longest(rows, cols, low, high), 0))
    if band.shape != want:
        raise InvalidArgumentError(
            f"the diagonals {low} to {high} of matrices of shape {shapes.show(x.shape)} have the shape "
            f"{shapes.show(want)}, got {shapes.show(band.shape)}"
        )
    return spread_band(xp, band, x, low, high, align)


def spread_band(xp: Any, band: Any, out: Any, low: int, high: int, align: str) -> Any:
    """`set_band` without a check of the shapes."""
    rows, cols = out.shape[-2:]
    r, c, i, j = places(rows, cols, low, high, align)
    if xp is np:
        out[..., r, c] = band[..., i, j] if low != high else band[..., j]
        return out
    source = np.full((rows, cols), -1)
    source[r, c] = i * band.shape[-1] + j
    return _arranged(xp, xp.reshape(band, (*out.shape[:-2], (high - low + 1) * band.shape[-1])), source, out)


def _arranged(xp: Any, x: Any, source: np.ndarray, otherwise: Any) -> Any:
    """The elements of `x` at `source`, along its last axis, and `otherwise` for -1."""
    shape = (*x.shape[:-1], *source.shape)
    is_taken = source >= 0
    if not is_taken.any():
        return xp.broadcast_to(otherwise, shape)
    at = constant(xp, np.maximum(source, 0).ravel().tolist(), dtypes.int64, x)
    mask = xp.reshape(constant(xp, is_taken.ravel().tolist(), dtypes.bool_, x), source.shape)
    return xp.where(mask, xp.reshape(xp.take(x, at, axis=-1), shape), otherwise)


# *** Static shapes ***


def known_band(c: Inference, i: int) -> tuple[int, int] | None:
    shapes.with_rank_at_most(c.shapes[i], 1)
    k = c.value(i)
    if k is None:
        return None
    if k.size not in (1, 2):
        raise ValueError(f"diag_index must have only one or two elements, received {k.size} elements")
    low, high = band_of(k)
    if low > high:
        raise ValueError(f"lower_diag_index is greater than upper_diag_index: {low} > {high}")
    return low, high


def band_shape(x: Shape, band: tuple[int, int] | None) -> Shape:
    """The shape of the packed diagonals of matrices of shape `x`."""
    shapes.with_rank_at_least(x, 2)
    if x is None or band is None:
        return None
    low, high = band
    rows, cols = x[-2:]
    longest: Dim = None
    if rows is not None and cols is not None:
        _check_band(rows, cols, low, high)
        longest = max(_longest(rows, cols, low, high), 0)
    return (*x[:-2], *((high - low + 1,) if low != high else ()), longest)


def matrix_sides(longest: int, low: int, high: int, rows: int, cols: int) -> tuple[int, int]:
    """Rows and columns of a matrix with these diagonals; -1 asks for the minimum."""
    least_rows, least_cols = longest - min(high, 0), longest + max(low, 0)
    if rows == cols == -1:
        rows = cols = max(least_rows, least_cols)
    rows = least_rows if rows == -1 else rows
    cols = least_cols if cols == -1 else cols
    if rows < least_rows:
        raise ValueError(f"The number of rows is too small: {rows}, and the diagonals need {least_rows}")
    if cols < least_cols:
        raise ValueError(f"The number of columns is too small: {cols}, and the diagonals need {least_cols}")
    if rows != least_rows and cols != least_cols:
        raise ValueError(
            "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal: "
            f"{rows} x {cols} for diagonals of {longest} elements, {low} to {high}"
        )
    return rows, cols


# *** Oracles ***


def _model_places(shape: Sequence[int], k: Any, align: str) -> list[tuple[int, int, int, int]]:
    """Positions of each element of the band, found element by element.

    An entry is (row, column, row in the band, column in the band).
    """
    low, high = int(np.ravel(k)[0]), int(np.ravel(k)[-1])
    rows, cols = shape
    diagonals = {d: [(r, r + d) for r in range(rows) if 0 <= r + d < cols] for d in range(low, high + 1)}
    longest = max(map(len, diagonals.values()))
    above, below = align.split("_")
    out = []
    for d, elements in diagonals.items():
        shift = longest - len(elements) if (above if d > 0 else below) == "RIGHT" else 0
        out += [(r, c, high - d, i + shift) for i, (r, c) in enumerate(elements)]
    return out


def part_model(x: np.ndarray, k: Any, padding: Any, align: str = "RIGHT_LEFT") -> np.ndarray:
    places = _model_places(x.shape[-2:], k, align)
    size = (max(p[2] for p in places) + 1, max(p[3] for p in places) + 1)
    out = np.full((*x.shape[:-2], *size), padding, x.dtype)
    for r, c, i, j in places:
        out[..., i, j] = x[..., r, c]
    return out if np.ravel(k)[0] != np.ravel(k)[-1] else out[..., 0, :]


def set_model(x: np.ndarray, band: np.ndarray, k: Any, align: str = "RIGHT_LEFT") -> np.ndarray:
    out = np.array(x)
    several = np.ravel(k)[0] != np.ravel(k)[-1]
    for r, c, i, j in _model_places(x.shape[-2:], k, align):
        out[..., r, c] = band[..., i, j] if several else band[..., j]
    return out


def diag_model(shape: tuple[int, int]) -> Any:
    def model(band: np.ndarray, k: Any, rows: Any, cols: Any, padding: Any, align: str = "RIGHT_LEFT") -> np.ndarray:
        batch = band.shape[: -1 if np.ravel(k)[0] == np.ravel(k)[-1] else -2]
        return set_model(np.full((*batch, *shape), padding, band.dtype), band, k, align)

    return model
