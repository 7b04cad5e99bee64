"""Ops on the diagonals of matrices: MatrixDiag*, MatrixDiagPart*, MatrixSetDiag*, MatrixBandPart, Diag, DiagPart.

Source: TensorFlow's ops of the same names. The V3 ops take a band of diagonals as `bands.py` describes it; V2 is V3
with all diagonals padded at their end. The Batch names are older than the support for stacks of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import COMPLEX, FLOATING, INDEX, VALUE, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, op, string_attr, type_attr
from headrace.opkit.arrays import check_size, entries, placed, values_only, zeros
from headrace.opkit.batch_rules import first_in_step, in_step
from headrace.opkit.batch_shapes import diagonal_part, diagonal_tensor
from headrace.opkit.jvp_rules import linear
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.band_forms import band_part, diagonal_form
from headrace.ops.linalg.bands import (
    band_of,
    band_shape,
    diag_model,
    known_band,
    matrix_sides,
    pack_band,
    part_model,
    set_band,
    set_model,
    spread_band,
)
from headrace.ops.linalg.matrices import small_for
from headrace.shapes import Shape

_ALIGN = string_attr("RIGHT_LEFT", {"LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"})

# *** static shapes ***


def _set_shape(c: Inference, band: tuple[int, int] | None) -> Sequence[Shape]:
    x, diagonal = c.shapes[0], shapes.with_rank_at_least(c.shapes[1], 1)
    shapes.merge(band_shape(x, band), diagonal)
    if x is None and diagonal is not None and band is not None:
        return [(*diagonal[: -1 if band[0] == band[1] else -2], None, None)]
    return [x]


def _part_banded_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[2], 0)
    return [band_shape(c.shapes[0], known_band(c, 1))]


def _diag_banded_shape(c: Inference) -> Sequence[Shape]:
    x, band = shapes.with_rank_at_least(c.shapes[0], 1), known_band(c, 1)
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
    return [(*batch, *matrix_sides(longest, low, high, rows, cols))]


# *** kernels ***


def _diag_banded_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    align, dtype = attrs.get("align", "LEFT_LEFT"), attrs["T"]

    def kernel(band: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any) -> Any:
        low, high = band_of(k)
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
        rows, cols = matrix_sides(band.shape[-1], low, high, int(num_rows), int(num_cols))
        shape = (*batch, rows, cols)
        check_size(shape, dtype)
        if xp is np:
            out = np.empty(shape, dtype.numpy)
            out[...] = padding
        else:
            out = xp.broadcast_to(padding, shape)
        return spread_band(xp, band, out, low, high, align)

    return kernel


def _part_banded_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    align, dtype = attrs.get("align", "LEFT_LEFT"), attrs["T"]
    return lambda x, k, padding: pack_band(xp, x, *band_of(k), padding, align, dtype)


def _set_banded_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    align = attrs.get("align", "LEFT_LEFT")

    def kernel(x: Any, band: Any, k: Any) -> Any:
        if x.ndim < 2:
            raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {shapes.show(x.shape)}")
        return set_band(xp, np.array(x) if xp is np else x, band, *band_of(k), align)

    return kernel


def _diag_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(diagonal: Any) -> Any:
        if not diagonal.ndim:
            raise InvalidArgumentError("input must be at least 1-dim, received shape: []")
        out = zeros(xp, (*diagonal.shape, diagonal.shape[-1]), dtype, diagonal)
        return set_band(xp, out, diagonal, 0, 0, "LEFT_LEFT")

    return kernel


def _set_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    set_banded = _set_banded_kernel(xp, {"align": "LEFT_LEFT"})
    return lambda x, diagonal: set_banded(x, diagonal, np.int32(0))


# *** gradients ***


def _total(b: Any, x: Any) -> Any:
    axes = b.Range(0, b.Rank(x), 1) if x.shape is None else b.const(np.arange(len(x.shape), dtype=np.int32))
    return b.Sum(x, axes, keep_dims=False)


def _version(n: Any) -> tuple[str, dict[str, Any]]:
    """Suffix of the op types of the version of `n`, and their attributes."""
    return n.op.type[-2:], {"align": n.attrs["align"]} if "align" in n.attrs else {}


def _diag_banded_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    version, attrs = _version(n)
    d = b.make("MatrixDiagPart" + version, [dy, n.k, 0], attrs)
    return [d, None, None, None, lambda: b.Sub(_total(b, dy), _total(b, d))]


def _part_banded_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    version, attrs = _version(n)
    d = b.make("MatrixSetDiag" + version, [b.ZerosLike(n.input), dy, n.k], attrs)
    return [d, None, lambda: b.Sub(_total(b, dy), _total(b, d))]


def _set_banded_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    version, attrs = _version(n)
    return [
        lambda: b.make("MatrixSetDiag" + version, [dy, b.ZerosLike(n.diagonal), n.k], attrs),
        lambda: b.make("MatrixDiagPart" + version, [dy, n.k, 0], attrs),
        None,
    ]


# *** samples ***

_BANDS: tuple[tuple[tuple[int, ...], Any, str], ...] = (
    ((3, 3), 0, "RIGHT_LEFT"),
    ((2, 4), 1, "LEFT_RIGHT"),
    ((2, 3, 4), [-1, 2], "RIGHT_LEFT"),
    ((3, 2), [-2, 1], "LEFT_LEFT"),
    ((4, 3), [-1, 1], "RIGHT_RIGHT"),
    ((4, 3), [-2, 0], "LEFT_RIGHT"),
)


def _band_like(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], k: Any, align: str) -> np.ndarray:
    return draw(rng, dtype, part_model(np.zeros(shape), k, 0, align).shape)


def _aligned(has_align: bool) -> list[tuple[tuple[int, ...], Any, str, dict[str, Any]]]:
    """The bands, as of V2 without `has_align`: shape, diagonals, alignment, attributes."""
    return [(s, k, a, {"align": a}) if has_align else (s, k, "LEFT_LEFT", {}) for s, k, a in _BANDS]


def _parts(has_align: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for s, k, align, attrs in _aligned(has_align):
            inputs = draw(rng, dtype, s), np.array(k, np.int32), draw(rng, dtype, ())
            out.append(case(*inputs, **attrs, want=part_model(*inputs, align)))
        return out

    return values_only(sample)


def _sets(has_align: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for s, k, align, attrs in _aligned(has_align):
            inputs = draw(rng, dtype, s), _band_like(rng, dtype, s, k, align), np.array(k, np.int32)
            out.append(case(*inputs, **attrs, want=set_model(*inputs, align)))
        return out

    return values_only(sample)


def _diags(has_align: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for s, k, align, attrs in _aligned(has_align):
            band, padding = _band_like(rng, dtype, s, k, align), draw(rng, dtype, ())
            inputs = band, np.array(k, np.int32), np.int32(s[-2]), np.int32(s[-1]), padding
            out.append(case(*inputs, **attrs, want=diag_model((s[-2], s[-1]))(*inputs, align)))
        least = draw(rng, dtype, (2,)), np.int32(-1), np.int32(-1), np.int32(-1), draw(rng, dtype, ())
        return [*out, case(*least, want=diag_model((3, 3))(*least))]

    return values_only(sample)


def _of_shapes(found: Any) -> Any:
    """A sampler of cases with inputs of these shapes."""
    return values_only(lambda rng, dtype: [case(*(draw(rng, dtype, s) for s in each)) for each in found])


# *** records ***

_ANY: dict[str, Any] = {"T": type_attr(VALUE)}
_FULL = frozenset({dtypes.float64})  # for which V2 is tested with all cases
_COPY = Facts(dynamic_shape=True, cost=flops_per_element(1))
_BANDED_FORMS = {
    "MatrixDiag": diagonal_form(-1, 0, 1, fill=4),
    "MatrixDiagPart": diagonal_form(0, 0, 1, fill=2),
    "MatrixSetDiag": diagonal_form(-1, 1, 2, base=0),
}
_MAIN_FORMS = {
    "MatrixDiag": diagonal_form(-1, 0, None),
    "MatrixDiagPart": diagonal_form(0, 0, None),
    "MatrixSetDiag": diagonal_form(-1, 1, None, base=0),
}

# fmt: off
for _version_name, _attrs in (("V3", {**_ANY, "align": _ALIGN}), ("V2", _ANY)):
    for _type, _ins, _outs, _shape, _kernel, _grad, _moved, _sample, _doc in (
        ("MatrixDiag", "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T", "output: T",
         _diag_banded_shape, _diag_banded_kernel, _diag_banded_grad, ("diagonal", "padding_value"), _diags,
         "Matrices with the given diagonals, and `padding_value` elsewhere."),
        ("MatrixDiagPart", "input: T, k: int32, padding_value: T", "diagonal: T",
         _part_banded_shape, _part_banded_kernel, _part_banded_grad, ("input", "padding_value"), _parts,
         "The diagonals k[0] to k[1] of matrices, the shorter ones padded with `padding_value`."),
        ("MatrixSetDiag", "input: T, diagonal: T, k: int32", "output: T",
         lambda c: _set_shape(c, known_band(c, 2)), _set_banded_kernel, _set_banded_grad, ("input", "diagonal"), _sets,
         "Matrices with their diagonals k[0] to k[1] replaced."),
    ):
        op(
            _type + _version_name,
            _ins,
            _outs,
            _attrs,
            shape=_shape,
            kernel=_kernel,
            xp=True,
            host=("k", "num_rows", "num_cols") if _type == "MatrixDiag" else ("k",),
            grad=_grad,
            jvp=linear(*_moved), batch=first_in_step(*((0, 1) if _type == "MatrixSetDiag" else (0,))),
            form=_BANDED_FORMS[_type],
            facts=_COPY,
            sample=_sample(True) if "align" in _attrs else small_for(_FULL, _sample(False)),
            doc=_doc,
        )

for _prefix in ("", "Batch"):
    for _type, _ins, _outs, _shape, _kernel, _grad, _along, _oracle, _shapes, _doc in (
        ("MatrixDiag", "diagonal: T", "output: T",
         lambda c: [shapes.concatenate(shapes.with_rank_at_least(c.shapes[0], 1), (c.shapes[0] or (None,))[-1:])],
         _diag_kernel, lambda b, n, dy: [b.MatrixDiagPart(dy)], ["diagonal"],
         lambda x: diag_model((x.shape[-1], x.shape[-1]))(x, 0, 0, 0, b"" if x.dtype == object else 0),
         (((3,),), ((2, 2),), ((1,),)),
         "Matrices with the given main diagonal, and zeros elsewhere."),
        ("MatrixDiagPart", "input: T", "diagonal: T",
         lambda c: [band_shape(c.shapes[0], (0, 0))],
         lambda xp, attrs: lambda x: pack_band(xp, x, 0, 0, None, "LEFT_LEFT", attrs["T"]),
         lambda b, n, dy: [b.MatrixSetDiag(b.ZerosLike(n.input), dy)], ["input"],
         lambda x: part_model(x, 0, 0),
         (((3, 3),), ((2, 2, 3),), ((3, 2),)),
         "The main diagonal of matrices."),
        ("MatrixSetDiag", "input: T, diagonal: T", "output: T",
         lambda c: _set_shape(c, (0, 0)),
         _set_kernel,
         lambda b, n, dy: [lambda: b.MatrixSetDiag(dy, b.ZerosLike(n.diagonal)), lambda: b.MatrixDiagPart(dy)],
         ["input", "diagonal"],
         lambda x, d: set_model(x, d, 0),
         (((3, 3), (3,)), ((2, 2, 3), (2, 2))),
         "Matrices with their main diagonal replaced."),
    ):
        op(
            _prefix + _type,
            _ins,
            _outs,
            _ANY,
            shape=_shape,
            kernel=_kernel,
            xp=True,
            grad=_grad,
            jvp=linear(*_along), batch=in_step,
            form=_MAIN_FORMS[_type],
            facts=_COPY,
            oracle=_oracle,
            sample=small_for(frozenset(), _of_shapes(_shapes)) if _prefix else _of_shapes(_shapes),
            doc=_doc,
        )
# fmt: on


def _band_part_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]
    zero = b"" if dtype is dtypes.string else dtype.numpy.type(0)

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
        here = placed(xp, x)
        distance = xp.arange(rows, **here)[:, None] - xp.arange(cols, **here)
        inside = (distance <= (lower if lower >= 0 else rows)) & (-distance <= (upper if upper >= 0 else cols))
        return xp.where(inside, x, zero if xp is np else zeros(xp, (), dtype, x))

    return kernel


def _band_part_model(x: np.ndarray, lower: Any, upper: Any) -> np.ndarray:
    out = np.array(x)
    for r, c in np.ndindex(x.shape[-2:]):
        if (lower >= 0 and r - c > lower) or (upper >= 0 and c - r > upper):
            out[..., r, c] = b"" if x.dtype == object else 0
    return out


for _type, _index, _attrs in (
    ("MatrixBandPart", "Tindex", {**_ANY, "Tindex": type_attr(INDEX, dtypes.int64)}),
    ("BatchMatrixBandPart", "int64", _ANY),
):
    op(
        _type,
        f"input: T, num_lower: {_index}, num_upper: {_index}",
        "band: T",
        _attrs,
        shape=same_as(0),
        kernel=_band_part_kernel,
        xp=True,
        host=("num_lower", "num_upper"),
        grad=lambda b, n, dy: [b.MatrixBandPart(dy, n.num_lower, n.num_upper), None, None],
        jvp=linear("input"),
        batch=first_in_step(0),
        form=band_part,
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
    dtype = attrs["T"]

    def kernel(x: Any) -> Any:
        if not x.ndim:
            raise InvalidArgumentError("Input must be at least rank 1, got 0")
        n, shape = math.prod(x.shape), x.shape + x.shape
        if xp is np:
            out = zeros(np, shape, dtype)
            out.reshape(-1)[:: n + 1] = x.ravel()
            return out
        check_size(shape, dtype)
        out = zeros(xp, (n * n,), dtype, x)
        out[:: n + 1] = xp.reshape(x, (n,))
        return xp.reshape(out, shape)

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
        n = math.prod(shape)
        return xp.reshape(xp.reshape(x, (n * n,))[:: n + 1], shape)

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
    xp=True,
    grad=lambda b, n, dy: [b.DiagPart(dy)],
    jvp=linear("diagonal"),
    batch=diagonal_tensor,
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
    xp=True,
    grad=lambda b, n, dy: [b.Diag(dy)],
    jvp=linear("input"),
    batch=diagonal_part,
    oracle=lambda x: np.array([x[i + i] for i in np.ndindex(x.shape[: x.ndim // 2])], x.dtype).reshape(
        x.shape[: x.ndim // 2]
    ),
    sample=lambda rng, dtype: [case(draw(rng, dtype, s)) for s in ((3, 3), (2, 3, 2, 3), (0, 0))],
    doc="The elements of the input at positions [i, i].",
)
