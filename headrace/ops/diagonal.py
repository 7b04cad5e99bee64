"""Ops on the diagonals of matrices: MatrixDiag*, MatrixDiagPart*, MatrixSetDiag*, MatrixBandPart, Diag, DiagPart.

Source: TensorFlow's ops of the same names. Diagonal d of a matrix holds the elements [r, r + d]. The V3 ops take a band
of diagonals, packed as the rows of a matrix, the highest diagonal first; `align` says for the diagonals above and below
the main one at which end a shorter one is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import COMPLEX, FLOATING, INDEX, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.arrays import check_size, entries, values_only, zeros
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, op, string_attr, type_attr
from headrace.ir.rules import same_as
from headrace.ir.samples import draw
from headrace.ir.tangents import linear
from headrace.shapes import Dim, Shape

_ALIGN = string_attr("RIGHT_LEFT", {"LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"})

# *** which element of a packed band is which element of the matrix ***


def _longest(rows: int, cols: int, low: int, high: int) -> int:
    """The length of the longest of the diagonals `low` to `high`."""
    return min(rows + min(high, 0), cols - max(low, 0))


def _check_band(rows: int, cols: int, low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    for name, d in (("lower", low), ("upper", high)):
        if not -rows < d < cols and d != 0:
            raise ValueError(f"{name}_diag_index is out of bound: {d}. It must be between {-rows} and {cols}")


def _band(k: Any) -> tuple[int, int]:
    """The lowest and highest diagonal that the input `k` names."""
    if k.ndim > 1 or k.size not in (1, 2):
        raise InvalidArgumentError(
            f"diag_index must be a scalar or a vector of one or two elements, received shape: {shapes.show(k.shape)}"
        )
    ds = np.ravel(k).tolist()
    return ds[0], ds[-1]


def _places(rows: int, cols: int, low: int, high: int, align: str) -> tuple[Any, ...]:
    """Four index vectors: rows and columns in the matrix, rows and columns in the packed band."""
    above, _, below = align.partition("_")
    longest = _longest(rows, cols, low, high)
    parts = []
    for d in range(high, low - 1, -1):
        r, c = max(0, -d), max(0, d)
        along = np.arange(max(0, min(rows - r, cols - c)))
        left = above == "LEFT" if d > 0 else below == "LEFT" if d < 0 else "LEFT" in align
        offset = 0 if left else longest - len(along)
        parts.append((along + r, along + c, np.full(len(along), high - d), along + offset))
    return tuple(np.concatenate(p) for p in zip(*parts))


def _pack_band(x: Any, low: int, high: int, padding: Any, align: str, dtype: DType) -> Any:
    """The diagonals of the matrices `x`; one diagonal is a vector, several are a matrix."""
    if x.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {shapes.show(x.shape)}")
    rows, cols = x.shape[-2:]
    _check_band(rows, cols, low, high)
    shape = (*x.shape[:-2], high - low + 1, max(_longest(rows, cols, low, high), 0))
    out = zeros(np, shape, dtype)
    if padding is not None:
        out[...] = padding
    r, c, i, j = _places(rows, cols, low, high, align)
    out[..., i, j] = x[..., r, c]
    return out if low != high else out[..., 0, :]


def _set_band(x: Any, band: Any, low: int, high: int, align: str) -> Any:
    """The matrices `x`, which may be written, with their diagonals replaced by the packed `band`."""
    rows, cols = x.shape[-2:]
    _check_band(rows, cols, low, high)
    want = (*x.shape[:-2], *((high - low + 1,) if low != high else ()), max(_longest(rows, cols, low, high), 0))
    if band.shape != want:
        raise InvalidArgumentError(
            f"the diagonals {low} to {high} of matrices of shape {shapes.show(x.shape)} have the shape "
            f"{shapes.show(want)}, got {shapes.show(band.shape)}"
        )
    r, c, i, j = _places(rows, cols, low, high, align)
    x[..., r, c] = band[..., i, j] if low != high else band[..., j]
    return x


# *** static shapes ***


def _known_band(c: Inference, i: int) -> tuple[int, int] | None:
    shapes.with_rank_at_most(c.shapes[i], 1)
    k = c.value(i)
    if k is None:
        return None
    if k.size not in (1, 2):
        raise ValueError(f"diag_index must have only one or two elements, received {k.size} elements")
    low, high = _band(k)
    if low > high:
        raise ValueError(f"lower_diag_index is greater than upper_diag_index: {low} > {high}")
    return low, high


def _band_shape(x: Shape, band: tuple[int, int] | None) -> Shape:
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


def _set_shape(c: Inference, band: tuple[int, int] | None) -> Sequence[Shape]:
    x, diagonal = c.shapes[0], shapes.with_rank_at_least(c.shapes[1], 1)
    shapes.merge(_band_shape(x, band), diagonal)
    if x is None and diagonal is not None and band is not None:
        return [(*diagonal[: -1 if band[0] == band[1] else -2], None, None)]
    return [x]


def _part_v3_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[2], 0)
    return [_band_shape(c.shapes[0], _known_band(c, 1))]


def _matrix_sides(longest: int, low: int, high: int, rows: int, cols: int) -> tuple[int, int]:
    """The number of rows and columns of a matrix with these diagonals, where -1 asks for the least that is enough."""
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


def _diag_v3_shape(c: Inference) -> Sequence[Shape]:
    x, band = shapes.with_rank_at_least(c.shapes[0], 1), _known_band(c, 1)
    for s in c.shapes[2:]:
        shapes.with_rank(s, 0)
    rows, cols = ((entries(c, i) or [None])[0] for i in (2, 3))
    if x is None or band is None:
        return [None]
    low, high = band
    if low != high:
        shapes.with_rank_at_least(x, 2)
        shapes.merge_dim(x[-2], high - low + 1)
    batch = x[: -1 if low == high else -2]
    longest = x[-1]
    if longest is None or rows is None or cols is None:
        return [(*batch, None, None)]
    return [(*batch, *_matrix_sides(longest, low, high, rows, cols))]


# *** kernels ***


def _diag_v3_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    align, dtype = attrs["align"], attrs["T"]

    def kernel(band: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any) -> Any:
        low, high = _band(k)
        count = high - low + 1
        if num_rows.ndim or num_cols.ndim or padding.ndim:
            raise InvalidArgumentError("num_rows, num_cols and padding_value must be scalars")
        if band.ndim < (1 if low == high else 2):
            raise InvalidArgumentError(f"diagonal must be at least 1-dim, received shape: {shapes.show(band.shape)}")
        if count < 1:
            raise InvalidArgumentError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
        if low != high and band.shape[-2] != count:
            raise InvalidArgumentError(
                f"The number of diagonals provided in the input does not match the lower_diag_index and "
                f"upper_diag_index range: {band.shape[-2]} rows for the diagonals {low} to {high}"
            )
        batch = band.shape[: -1 if low == high else -2]
        rows, cols = _matrix_sides(band.shape[-1], low, high, int(num_rows), int(num_cols))
        shape = (*batch, rows, cols)
        check_size(shape, dtype)
        out = np.empty(shape, dtype.numpy)
        out[...] = padding
        r, c, i, j = _places(rows, cols, low, high, align)
        out[..., r, c] = band[..., i, j] if low != high else band[..., j]
        return out

    return kernel


def _part_v3_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    align, dtype = attrs["align"], attrs["T"]
    return lambda x, k, padding: _pack_band(x, *_band(k), padding, align, dtype)


def _set_v3_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    align = attrs["align"]

    def kernel(x: Any, band: Any, k: Any) -> Any:
        if x.ndim < 2:
            raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {shapes.show(x.shape)}")
        return _set_band(np.array(x), band, *_band(k), align)

    return kernel


def _diag_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(diagonal: Any) -> Any:
        if not diagonal.ndim:
            raise InvalidArgumentError("input must be at least 1-dim, received shape: []")
        return _set_band(zeros(np, (*diagonal.shape, diagonal.shape[-1]), dtype), diagonal, 0, 0, "LEFT_LEFT")

    return kernel


def _set_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    set_v3 = _set_v3_kernel(xp, {"align": "LEFT_LEFT"})
    return lambda x, diagonal: set_v3(x, diagonal, np.int32(0))


# *** gradients ***


def _total(b: Any, x: Any) -> Any:
    axes = b.Range(0, b.Rank(x), 1) if x.shape is None else b.const(np.arange(len(x.shape), dtype=np.int32))
    return b.Sum(x, axes, keep_dims=False)


def _diag_v3_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    d = b.MatrixDiagPartV3(dy, n.k, 0, align=n.attrs["align"])
    return [d, None, None, None, b.Sub(_total(b, dy), _total(b, d))]


def _part_v3_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    d = b.MatrixSetDiagV3(b.ZerosLike(n.input), dy, n.k, align=n.attrs["align"])
    return [d, None, b.Sub(_total(b, dy), _total(b, d))]


def _set_v3_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    align = n.attrs["align"]
    cleared = b.MatrixSetDiagV3(dy, b.ZerosLike(n.diagonal), n.k, align=align)
    return [cleared, b.MatrixDiagPartV3(dy, n.k, 0, align=align), None]


# *** oracles and samples ***


def _model_places(shape: Sequence[int], k: Any, align: str) -> list[tuple[int, int, int, int]]:
    """(row, column, row in the band, column in the band) of each element of the band, found element by element."""
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


def _part_model(x: np.ndarray, k: Any, padding: Any, align: str = "RIGHT_LEFT") -> np.ndarray:
    places = _model_places(x.shape[-2:], k, align)
    size = (max(p[2] for p in places) + 1, max(p[3] for p in places) + 1)
    out = np.full((*x.shape[:-2], *size), padding, x.dtype)
    for r, c, i, j in places:
        out[..., i, j] = x[..., r, c]
    return out if np.ravel(k)[0] != np.ravel(k)[-1] else out[..., 0, :]


def _set_model(x: np.ndarray, band: np.ndarray, k: Any, align: str = "RIGHT_LEFT") -> np.ndarray:
    out = np.array(x)
    several = np.ravel(k)[0] != np.ravel(k)[-1]
    for r, c, i, j in _model_places(x.shape[-2:], k, align):
        out[..., r, c] = band[..., i, j] if several else band[..., j]
    return out


def _diag_model(shape: tuple[int, int]) -> Any:
    def model(band: np.ndarray, k: Any, rows: Any, cols: Any, padding: Any, align: str = "RIGHT_LEFT") -> np.ndarray:
        batch = band.shape[: -1 if np.ravel(k)[0] == np.ravel(k)[-1] else -2]
        return _set_model(np.full((*batch, *shape), padding, band.dtype), band, k, align)

    return model


_BANDS: tuple[tuple[tuple[int, ...], Any, str], ...] = (
    ((3, 3), 0, "RIGHT_LEFT"),
    ((2, 4), 1, "LEFT_RIGHT"),
    ((2, 3, 4), [-1, 2], "RIGHT_LEFT"),
    ((3, 2), [-2, 1], "LEFT_LEFT"),
    ((4, 3), [-1, 1], "RIGHT_RIGHT"),
    ((4, 3), [-2, 0], "LEFT_RIGHT"),
)


def _band_of(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], k: Any, align: str) -> np.ndarray:
    return draw(rng, dtype, _part_model(np.zeros(shape), k, 0, align).shape)


@values_only
def _parts(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s), np.array(k, np.int32), draw(rng, dtype, ()), align=a) for s, k, a in _BANDS]


@values_only
def _sets(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, s), _band_of(rng, dtype, s, k, a), np.array(k, np.int32), align=a) for s, k, a in _BANDS
    ]


@values_only
def _diags(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for s, k, align in _BANDS:
        band, padding = _band_of(rng, dtype, s, k, align), draw(rng, dtype, ())
        inputs = (band, np.array(k, np.int32), np.int32(s[-2]), np.int32(s[-1]), padding)
        out.append(case(*inputs, align=align, want=_diag_model((s[-2], s[-1]))(*inputs, align=align)))
    least = (draw(rng, dtype, (2,)), np.int32(-1), np.int32(-1), np.int32(-1), draw(rng, dtype, ()))
    return [*out, case(*least, want=_diag_model((3, 3))(*least))]


# *** records ***

_ANY: dict[str, Any] = {"T": type_attr()}
_COPY = Facts(dynamic_shape=True, cost=flops_per_element(1))

op(
    "MatrixDiagV3",
    "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T",
    "output: T",
    {**_ANY, "align": _ALIGN},
    shape=_diag_v3_shape,
    kernel=_diag_v3_kernel,
    grad=_diag_v3_grad,
    jvp=linear("diagonal", "padding_value"),
    facts=_COPY,
    sample=_diags,
    doc="Matrices with the given diagonals, and `padding_value` elsewhere.",
)
op(
    "MatrixDiagPartV3",
    "input: T, k: int32, padding_value: T",
    "diagonal: T",
    {**_ANY, "align": _ALIGN},
    shape=_part_v3_shape,
    kernel=_part_v3_kernel,
    grad=_part_v3_grad,
    jvp=linear("input", "padding_value"),
    facts=_COPY,
    oracle=_part_model,
    sample=_parts,
    doc="The diagonals k[0] to k[1] of matrices, the shorter ones padded with `padding_value`.",
)
op(
    "MatrixSetDiagV3",
    "input: T, diagonal: T, k: int32",
    "output: T",
    {**_ANY, "align": _ALIGN},
    shape=lambda c: _set_shape(c, _known_band(c, 2)),
    kernel=_set_v3_kernel,
    grad=_set_v3_grad,
    jvp=linear("input", "diagonal"),
    facts=_COPY,
    oracle=_set_model,
    sample=_sets,
    doc="Matrices with their diagonals k[0] to k[1] replaced.",
)
op(
    "MatrixDiag",
    "diagonal: T",
    "output: T",
    _ANY,
    shape=lambda c: [shapes.concatenate(shapes.with_rank_at_least(c.shapes[0], 1), (c.shapes[0] or (None,))[-1:])],
    kernel=_diag_kernel,
    grad=lambda b, n, dy: [b.MatrixDiagPart(dy)],
    jvp=linear("diagonal"),
    facts=_COPY,
    oracle=lambda x: _diag_model((x.shape[-1], x.shape[-1]))(x, 0, 0, 0, b"" if x.dtype == object else 0),
    sample=values_only(lambda rng, dtype: [case(draw(rng, dtype, s)) for s in ((3,), (2, 2), (1,))]),
    doc="Matrices with the given main diagonal, and zeros elsewhere.",
)
op(
    "MatrixDiagPart",
    "input: T",
    "diagonal: T",
    _ANY,
    shape=lambda c: [_band_shape(c.shapes[0], (0, 0))],
    kernel=lambda xp, attrs: lambda x: _pack_band(x, 0, 0, None, "LEFT_LEFT", attrs["T"]),
    grad=lambda b, n, dy: [b.MatrixSetDiag(b.ZerosLike(n.input), dy)],
    jvp=linear("input"),
    facts=_COPY,
    oracle=lambda x: _part_model(x, 0, 0),
    sample=values_only(lambda rng, dtype: [case(draw(rng, dtype, s)) for s in ((3, 3), (2, 2, 3), (3, 2))]),
    doc="The main diagonal of matrices.",
)
op(
    "MatrixSetDiag",
    "input: T, diagonal: T",
    "output: T",
    _ANY,
    shape=lambda c: _set_shape(c, (0, 0)),
    kernel=_set_kernel,
    grad=lambda b, n, dy: [b.MatrixSetDiag(dy, b.ZerosLike(n.diagonal)), b.MatrixDiagPart(dy)],
    jvp=linear("input", "diagonal"),
    facts=_COPY,
    oracle=lambda x, d: _set_model(x, d, 0),
    sample=values_only(
        lambda rng, dtype: [
            case(draw(rng, dtype, s), draw(rng, dtype, (*s[:-2], min(s[-2:])))) for s in ((3, 3), (2, 2, 3))
        ]
    ),
    doc="Matrices with their main diagonal replaced.",
)


def _band_part_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    zero = b"" if attrs["T"] is dtypes.string else attrs["T"].numpy.type(0)

    def kernel(x: Any, num_lower: Any, num_upper: Any) -> Any:
        if x.ndim < 2 or num_lower.ndim or num_upper.ndim:
            raise InvalidArgumentError(
                f"input must be at least 2-dim, received shape: {shapes.show(x.shape)}; num_lower and num_upper scalars"
            )
        rows, cols = x.shape[-2:]
        lower, upper = int(num_lower), int(num_upper)
        for name, n, least in (("lower", lower, rows), ("upper", upper, cols)):
            if n > least:
                raise InvalidArgumentError(f"num_{name} must be negative or less or equal to {least}, got: {n}")
        distance = xp.arange(rows)[:, None] - xp.arange(cols)
        inside = (distance <= (lower if lower >= 0 else rows)) & (-distance <= (upper if upper >= 0 else cols))
        return xp.where(inside, x, zero)

    return kernel


def _band_part_model(x: np.ndarray, lower: Any, upper: Any) -> np.ndarray:
    out = np.array(x)
    for r, c in np.ndindex(x.shape[-2:]):
        if (lower >= 0 and r - c > lower) or (upper >= 0 and c - r > upper):
            out[..., r, c] = b"" if x.dtype == object else 0
    return out


op(
    "MatrixBandPart",
    "input: T, num_lower: Tindex, num_upper: Tindex",
    "band: T",
    {**_ANY, "Tindex": type_attr(INDEX, dtypes.int64)},
    shape=same_as(0),
    kernel=_band_part_kernel,
    grad=lambda b, n, dy: [b.MatrixBandPart(dy, n.num_lower, n.num_upper), None, None],
    jvp=linear("input"),
    facts=Facts(cost=flops_per_element(3)),
    oracle=_band_part_model,
    sample=values_only(
        lambda rng, dtype: [
            case(draw(rng, dtype, (2, 3, 4)), np.int64(low), np.int64(high))
            for low, high in ((-1, 0), (1, 1), (0, -1), (-1, -1), (0, 0), (2, 1))
        ]
    ),
    doc="The input with zeros outside a band of `num_lower` diagonals below and `num_upper` above the main one.",
)


def _tensor_diag_shape(c: Inference) -> Sequence[Shape]:
    x = shapes.with_rank_at_least(c.shapes[0], 1)
    return [shapes.concatenate(x, x)]


def _tensor_diag_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any) -> Any:
        if not x.ndim:
            raise InvalidArgumentError("Input must be at least rank 1, got 0")
        out = zeros(np, x.shape + x.shape, attrs["T"])
        out.reshape(-1)[:: x.size + 1] = x.ravel()
        return out

    return kernel


def _tensor_diag_part_shape(c: Inference) -> Sequence[Shape]:
    x = c.shapes[0]
    if x is None:
        return [None]
    if len(x) % 2 or not x:
        raise ValueError(f"Input must have even and non-zero rank, input rank is {len(x)}")
    half = len(x) // 2
    return [shapes.merge(x[:half], x[half:])]


def _tensor_diag_part_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any) -> Any:
        half = x.ndim // 2
        shape = x.shape[:half]
        if not half or x.shape != shape + shape:
            raise InvalidArgumentError(
                f"The rank must be even and positive and both halves of the shape equal, got {shapes.show(x.shape)}"
            )
        n = int(np.prod(shape))
        return x.reshape(n, n).diagonal().reshape(shape)

    return kernel


def _tensor_diag_model(x: np.ndarray) -> np.ndarray:
    out = np.zeros(x.shape + x.shape, x.dtype)
    for i in np.ndindex(x.shape):
        out[i + i] = x[i]
    return out


_NUMBERS: dict[str, Any] = {"T": FLOATING | COMPLEX | {dtypes.int32, dtypes.int64}}

op(
    "Diag",
    "diagonal: T",
    "output: T",
    _NUMBERS,
    shape=_tensor_diag_shape,
    kernel=_tensor_diag_kernel,
    grad=lambda b, n, dy: [b.DiagPart(dy)],
    jvp=linear("diagonal"),
    facts=Facts(cost=flops_per_element(1)),
    oracle=_tensor_diag_model,
    sample=lambda rng, dtype: [case(draw(rng, dtype, s)) for s in ((3,), (2, 2), (0,))],
    doc="An array of twice the rank with the input at positions [i, i], and zeros elsewhere.",
)
op(
    "DiagPart",
    "input: T",
    "diagonal: T",
    _NUMBERS,
    shape=_tensor_diag_part_shape,
    kernel=_tensor_diag_part_kernel,
    grad=lambda b, n, dy: [b.Diag(dy)],
    jvp=linear("input"),
    oracle=lambda x: np.array([x[i + i] for i in np.ndindex(x.shape[: x.ndim // 2])], x.dtype).reshape(
        x.shape[: x.ndim // 2]
    ),
    sample=lambda rng, dtype: [case(draw(rng, dtype, s)) for s in ((3, 3), (2, 3, 2, 3), (0, 0))],
    doc="The elements of the input at positions [i, i].",
)
