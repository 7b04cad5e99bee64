"""Reductions of sparse tensors (SparseReduceSum, SparseReduceMax and the ...Sparse ones) and SparseSoftmax.

Source: TensorFlow's ops of the same names. Missing elements are ignored and do not count as zeros: the maximum of a row
with one negative number is that number. Rows without elements are zero, or missing in a sparse result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import NUMERIC, REAL, DType, float16, float32, float64, int64
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, missing, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.elementwise import computed_in
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, converter
from headrace.opkit.row_sums import firsts, row_sums
from headrace.ops.sparse.coordinates import (
    check_bounds,
    checked,
    collected,
    drawn,
    filled,
    numbered,
    parts,
    places_in,
    reduced_runs,
    selecting,
    sparse_out,
    spread,
    widely,
)
from headrace.shapes import Shape

_ARGS = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32"


def _reduced(
    xp: Any, f: Any, indices: Any, values: Any, shape: Any, axes: Any, keep_dims: bool, t: DType
) -> tuple[Any, Any, list[int]]:
    """Coordinates, values and shape of the reduction as a sparse tensor."""
    dims = checked(indices, values, shape)
    if axes.ndim > 1:
        raise InvalidArgumentError(f"reduction_axes must be a scalar or a vector, got shape {shapes.show(axes.shape)}")
    gone = spread(len(dims), axes)
    check_bounds(indices, dims, InternalError, xp)
    kept = [k for k in range(len(dims)) if k not in gone]
    numbers = numbered(_columns(xp, indices, [indices[:, k] for k in kept]), xp)
    found = reduced_runs(f, values, numbers, t, xp)
    places = xp.take(indices, firsts(xp, numbers, found.shape[0]), axis=0)
    shown = range(len(dims)) if keep_dims else kept
    columns = [xp.zeros_like(places[:, k]) if k in gone else places[:, k] for k in shown]
    return _columns(xp, places, columns), found, [1 if k in gone else dims[k] for k in shown]


def _columns(xp: Any, like: Any, columns: list[Any]) -> Any:
    """Columns as a matrix, which may have none."""
    if not columns:
        return xp.zeros((like.shape[0], 0), dtype=like.dtype, device=like.device)
    return xp.stack(columns, axis=1)


def _kernel(f: Any, is_sparse: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        keep_dims, dtype = attrs["keep_dims"], attrs["T"]

        def kernel(indices: Any, values: Any, shape: Any, axes: Any) -> Any:
            places, sums, dims = _reduced(xp, f, indices, values, shape, axes, keep_dims, dtype)
            if is_sparse:
                return places, sums, constant(xp, dims, int64, indices)
            check_size(dims, dtype)
            if xp is not np:
                return xp.reshape(row_sums(xp, sums, places_in(xp, places, dims), math.prod(dims)), tuple(dims))
            out = np.zeros(dims, dtype.numpy)
            out[None][selecting(places)] = sums
            return out

        return kernel

    return factory


def _dense_shape(c: Inference) -> Sequence[Shape]:
    _, rank = parts(c, 0, ranks="")
    known = c.shape_value(2) if c.shapes[2] is None or len(c.shapes[2]) == 1 else None
    if known is None and rank is not None:
        known = (None,) * rank
    axes = c.axes(3)
    if known is None or axes is None or any(not -len(known) <= a < len(known) for a in axes):
        return [shapes.reduced(known, None, c.attrs["keep_dims"])]
    return [shapes.reduced(known, axes, c.attrs["keep_dims"])]


def _sparse_shape(c: Inference) -> Sequence[Shape]:
    dense = _dense_shape(c)[0]
    return sparse_out(None, None if dense is None else len(dense))


def _places(b: Any, n: Any) -> tuple[Any, Any]:
    """Shape of the result with reduced dimensions kept, and coordinates of each element in it."""
    rank = b.Size(n.input_shape)
    axes = b.Reshape(b.FloorMod(b.AddV2(n.reduction_axes, rank), rank), [-1])
    ones = b.Fill(b.Shape(axes), b.const(1, int64))
    every = b.Range(0, rank, 1)
    whole = b.DynamicStitch([every, axes], [n.input_shape, ones])
    kept = b.DynamicStitch([every, axes], [b.OnesLike(n.input_shape), b.ZerosLike(ones)])
    return whole, b.Mul(n.input_indices, kept)


def _sum_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    whole, places = _places(b, n)
    return [None, b.GatherNd(b.Reshape(dy, whole), places), None, None]


def _max_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Shared evenly by the elements that equal the result."""
    whole, places = _places(b, n)
    wins = b.Equal(n.input_values, b.GatherNd(b.Reshape(n.output, whole), places))
    share = b.Cast(wins, DstT=n.attrs["T"])
    count = b.SparseReduceSum(n.input_indices, share, n.input_shape, n.reduction_axes, keep_dims=n.attrs["keep_dims"])
    return [None, b.Mul(share, b.GatherNd(b.Reshape(b.DivNoNan(dy, count), whole), places)), None, None]


def _model(f: Callable[[list[Any]], Any], is_sparse: bool) -> Any:
    def oracle(indices: Any, values: Any, shape: Any, axes: Any, keep_dims: bool = False) -> Any:
        rank = len(shape)
        gone = {int(a) % rank for a in np.ravel(axes)}
        groups: dict[tuple[int, ...], list[Any]] = {}
        for p, v in filled(indices, values, shape).items():
            place = [0 if k in gone else x for k, x in enumerate(p) if keep_dims or k not in gone]
            groups.setdefault(tuple(place), []).append(v)
        dims = np.array([1 if k in gone else d for k, d in enumerate(shape) if keep_dims or k not in gone], np.int64)
        found = {p: f(v) for p, v in groups.items()}
        if is_sparse:
            return *collected(found, values.dtype, len(dims)), dims
        out = np.zeros(tuple(dims), values.dtype)
        for p, v in found.items():
            out[p] = v
        return out

    return oracle


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = [
        case(*drawn(rng, dtype, s, n, 0.5, 4), np.array(axes, np.int32), keep_dims=keep)
        for s, n, axes, keep in (
            ((2, 3), 4, [1], False),
            ((2, 3, 2), 7, [0, -1], True),
            ((3, 2), 3, 0, False),
            ((2, 3), 5, [0, 1], False),
            ((2, 2), 0, [1], False),
        )
    ]
    return cases if dtype is float64 else cases[:1]


def _total(values: list[Any]) -> Any:
    return np.sum(np.array(values), dtype=values[0].dtype)


for _name, _f, _types, _grad, _jvp, _of in (
    ("Sum", np.add, NUMERIC, _sum_grad, linear("input_values"), _total),
    ("Max", np.fmax, REAL, _max_grad, None, max),
):
    op(
        f"SparseReduce{_name}",
        _ARGS,
        "output: T",
        {"T": type_attr(_types), "keep_dims": False},
        shape=_dense_shape,
        kernel=_kernel(_f, is_sparse=False),
        xp=True,
        host=("input_shape", "reduction_axes"),
        grad=_grad,
        jvp=_jvp,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(40)),
        oracle=_model(_of, is_sparse=False),
        sample=_samples,
        doc=f"The {_name.lower()} of a sparse tensor's elements along some axes, dense.",
        differs="All coordinates must be in bounds, those along the reduced axes too.",
    )
    op(
        f"SparseReduce{_name}Sparse",
        _ARGS,
        "output_indices: int64, output_values: T, output_shape: int64",
        {"T": type_attr(_types), "keep_dims": False},
        shape=_sparse_shape,
        kernel=_kernel(_f, is_sparse=True),
        xp=True,
        host=("input_shape", "reduction_axes"),
        grad=missing(f"TensorFlow has none either; SparseReduce{_name}, whose result is dense, has one"),
        facts=Facts(dynamic_shape=True, cost=flops_per_input(40)),
        oracle=_model(_of, is_sparse=True),
        sample=_samples,
        doc=f"The {_name.lower()} of a sparse tensor's elements along some axes, sparse.",
        differs="Coordinates out of bounds are refused.",
    )

# *** SparseSoftmax ***


def _softmax_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    widen, narrow = widely(t, xp), converter(xp, t)
    wide = computed_in(t)

    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        dims = checked(indices, values, shape, "sp")
        if len(dims) < 2:
            raise InvalidArgumentError(f"Input should have rank >= 2, but received shape: {shapes.show(dims)}")
        if not values.shape[0]:
            return xp.asarray(values, copy=True)
        check_bounds(indices, dims, xp=xp)
        rows = numbered(indices[:, :-1], xp)
        x = widen(values)
        e = xp.exp(x - xp.take(reduced_runs(np.maximum, x, rows, wide, xp), rows, axis=0))
        return narrow(e / xp.take(reduced_runs(np.add, e, rows, wide, xp), rows, axis=0))

    return kernel


def _softmax_shape(c: Inference) -> Sequence[Shape]:
    return [(parts(c, 0)[0],)]


def _softmax_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """y * (dy - Σ dy y), summed over each row."""
    y = n.output
    total = b.SparseReduceSum(n.sp_indices, b.Mul(y, dy), n.sp_shape, [-1], keep_dims=True)
    return [None, b.Mul(y, b.SparseDenseCwiseAdd(n.sp_indices, dy, n.sp_shape, b.Neg(total))), None]


def _softmax_model(indices: np.ndarray, values: np.ndarray, shape: np.ndarray) -> np.ndarray:
    e = {p: np.exp(np.float64(v)) for p, v in filled(indices, values, shape).items()}
    return np.array([v / sum(w for q, w in e.items() if q[:-1] == p[:-1]) for p, v in e.items()], values.dtype)


op(
    "SparseSoftmax",
    "sp_indices: int64, sp_values: T, sp_shape: int64",
    "output: T",
    {"T": {float16, float32, float64}},
    shape=_softmax_shape,
    kernel=_softmax_kernel,
    xp=True,
    host=("sp_shape",),
    grad=_softmax_grad,
    facts=Facts(cost=flops_per_input(40)),
    oracle=_softmax_model,
    sample=lambda rng, dtype: [case(*drawn(rng, dtype, s, n)) for s, n in (((2, 3), 4), ((2, 2, 3), 8), ((2, 2), 0))],
    doc="The softmax over the elements of each row of a sparse tensor (its last dimension).",
    differs="Values keep the order of unsorted coordinates; coordinates out of bounds are refused.",
)
