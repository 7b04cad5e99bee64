"""Ops by rank: TopK*, ApproxTopK, NthElement, InTopK*, and ops that TensorFlow has for TPUs.

Source: TensorFlow's ops of the same names. Of equal elements the first one ranks first. The rank of NaN follows from
TensorFlow's comparisons, which are false for NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import FLOATING, INDEX, REAL, DType, bfloat16, float16, float32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, int_attr, op, type_attr
from headrace.opkit.arrays import axis_in, values_only
from headrace.opkit.batch_rules import first_in_step, folding, shifting_attr
from headrace.opkit.cpp_sorting import largest
from headrace.opkit.elementwise import widened
from headrace.opkit.namespaces import constant, converter, is_near
from headrace.opkit.order_forms import top
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape

# *** TopK ***


def _top(xp: Any, t: DType, index: DType = dtypes.int32) -> Callable[[Any, int], tuple[Any, Any]]:
    """Returns a function of rows of dtype `t` and `k`.

    It finds the `k` largest elements and their indices.
    """
    order_of, to_index = _order if xp is np else _portable_order, converter(xp, index)
    may_be_nan = t in FLOATING

    def top(x: Any, k: int) -> tuple[Any, Any]:
        if x.ndim < 1:
            raise InvalidArgumentError("input must be >= 1-D, got shape []")
        n = x.shape[-1]
        if not 0 <= k <= n:
            raise InvalidArgumentError(
                f"input must have at least k columns. Had {n}, needed {k} (k must not be negative)"
            )
        order = order_of(xp, x, k, may_be_nan)
        return xp.take_along_axis(x, order, axis=-1), to_index(order)

    return top


def _order(xp: Any, x: Any, k: int, may_be_nan: bool) -> Any:
    # reversing before and after a stable sort puts the first of equal elements first
    order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :k]
    if may_be_nan:
        for at in map(tuple, np.argwhere(np.isnan(x).any(-1))):
            order[at] = largest(x[at].tolist(), k)
    return order


def _portable_order(xp: Any, x: Any, k: int, may_be_nan: bool) -> Any:
    order = xp.argsort(x, axis=-1, descending=True, stable=True)[..., :k]
    if may_be_nan and is_near(x) and xp.any(xp.isnan(x)):
        n, lead = x.shape[-1], math.prod(x.shape[:-1])
        shape, rows, order = order.shape, xp.reshape(x, (lead, n)), xp.reshape(order, (lead, k))
        spoilt = xp.any(xp.isnan(rows), axis=-1)
        for i in range(lead):
            if spoilt[i]:
                found = largest([float(rows[i, j]) for j in range(n)], k)
                order[i, ...] = constant(xp, found, dtypes.int64, x)
        order = xp.reshape(order, shape)
    return order


def _top_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    k, top = attrs["k"], _top(xp, attrs.get("T", float32))
    return lambda x: top(x, k)


def _top_v2_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    top = _top(xp, attrs["T"], attrs["index_type"])

    def kernel(x: Any, k: Any) -> Any:
        if k.ndim:
            raise InvalidArgumentError(f"k must be scalar, got shape {shapes.show(k.shape)}")
        return top(x, int(k))

    return kernel


def _top_shape(c: Inference, k: Dim) -> Sequence[Shape]:
    x = shapes.with_rank_at_least(c.shapes[0], 1)
    if k is not None and k < 0:
        raise ValueError(f"Need k >= 0, got {k}")
    if x is None:
        return [None, None]
    n = x[-1]
    if n is not None and k is not None and n < k:
        raise ValueError(f"input must have last dimension >= k = {k} but is {n}")
    return [(*x[:-1], k)] * 2


def _top_grad(b: Any, n: Any, dy: Any, _: Any) -> list[Any]:
    x, indices = n.input, n.indices
    if indices.dtype.base not in INDEX:
        indices = b.Cast(indices, DstT=dtypes.int32)
    index = indices.dtype.base
    none = [None] * (len(n.inputs) - 1)
    if x.shape is not None and len(x.shape) == 1:
        return [b.ScatterNd(b.ExpandDims(indices, -1), dy, b.Shape(x, out_type=index)), *none]
    # with the rows concatenated, column j of row i is element i * columns + j
    shape = b.Shape(x, out_type=index)
    columns = b.StridedSlice(shape, [-1], [0], [1], shrink_axis_mask=1)
    lead = b.StridedSlice(shape, [0], [-1], [1], begin_mask=1)
    rows = b.Prod(lead, 0, keep_dims=False)
    starts = b.Mul(b.Range(b.const(np.zeros((), index.numpy)), rows, b.const(np.ones((), index.numpy))), columns)
    starts = b.Reshape(starts, b.ConcatV2([lead, b.const(np.ones(1, index.numpy))], 0))
    where = b.Reshape(b.AddV2(indices, starts), [-1, 1])
    flat = b.ScatterNd(where, b.Reshape(dy, [-1]), b.ExpandDims(b.Mul(rows, columns), 0))
    return [b.Reshape(flat, shape), *none]


@values_only
def _tops(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s), np.int32(k)) for s, k in (((5,), 2), ((2, 4), 4), ((2, 1, 3), 1), ((2, 3), 0))]


def _top_model(x: np.ndarray, k: Any) -> tuple[np.ndarray, np.ndarray]:
    where = np.zeros((*x.shape[:-1], int(k)), np.int32)
    for at in np.ndindex(x.shape[:-1]):
        where[at] = sorted(range(x.shape[-1]), key=lambda j: (-float(x[at][j]), j))[: int(k)]
    return np.take_along_axis(x, where.astype(np.int64), -1), where


_ORDER = "The elements are sorted even without `sorted`; TensorFlow then returns them in the order of its heap."

op(
    "TopK",
    "input: T",
    "values: T, indices: int32",
    {"k": int_attr(minimum=0), "sorted": True, "T": REAL},
    shape=lambda c: _top_shape(c, c.attrs["k"]),
    kernel=_top_kernel,
    xp=True,
    grad=_top_grad,
    form=top,
    batch=first_in_step(0),
    facts=Facts(cost=flops_per_input(30)),
    oracle=_top_model,
    sample=lambda rng, dtype: [case(x.inputs[0], k=int(x.inputs[1])) for x in _tops(rng, dtype)],
    differs=_ORDER,
    doc="The `k` largest elements of each row in descending order, and their indices; always sorted.",
)
op(
    "TopKV2",
    "input: T, k: Tk",
    "values: T, indices: index_type",
    {
        "sorted": True,
        "T": REAL,
        "Tk": type_attr(INDEX | {dtypes.int16}, dtypes.int32),
        "index_type": type_attr(INDEX | {dtypes.int16}, dtypes.int32),
    },
    shape=lambda c: _top_shape(c, c.scalar(1)),
    kernel=_top_v2_kernel,
    xp=True,
    host=("k",),
    grad=_top_grad,
    form=top,
    batch=first_in_step(0),
    facts=Facts(dynamic_shape=True, cost=flops_per_input(30)),
    oracle=_top_model,
    sample=_tops,
    differs=_ORDER,
    doc="The `k` largest elements of each row in descending order, and their indices; always sorted.",
)


# *** ApproxTopK ***


def _approx_axis(attrs: Mapping[str, Any], rank: int) -> int:
    if not 0 < attrs["recall_target"] <= 1:
        raise ValueError(f"recall_target must be in (0, 1], got {attrs['recall_target']}")
    if not rank:
        raise ValueError("input must be >= 1-D, got shape []")
    return axis_in(attrs["reduction_dimension"], rank)


def _approx_shape(c: Inference) -> Sequence[Shape]:
    x, k = c.shapes[0], c.attrs["k"]
    if x is None:
        return [None, None]
    at = _approx_axis(c.attrs, len(x))
    n = x[at]
    if n is not None and n < k:
        raise ValueError(f"input must have last dimension >= k = {k} but is {n}")
    return [(*x[:at], k, *x[at + 1 :])] * 2


def _approx_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    k, largest, top = attrs["k"], attrs["is_max_k"], _top(xp, attrs["T"])

    def kernel(x: Any) -> Any:
        at = _approx_axis(attrs, x.ndim)
        rows = xp.moveaxis(x, at, -1)
        values, indices = top(rows if largest else -rows, k)
        return xp.moveaxis(values if largest else -values, -1, at), xp.moveaxis(indices, -1, at)

    return kernel


def _approx_grad(b: Any, n: Any, dy: Any, _: Any) -> list[Any]:
    """The gradient of ApproxTopK, by one-hot vectors along the reduced dimension."""
    x = n.input
    if x.shape is None:
        raise LookupError("ApproxTopK has no gradient where the rank of its input is not known")
    at = _approx_axis(n.attrs, len(x.shape))
    size = b.StridedSlice(b.Shape(x), [at], [at + 1], [1], shrink_axis_mask=1)
    one, zero = (b.const(v, x.dtype.base) for v in (1, 0))
    # [..., k, ...] picks become [..., k, size, ...]
    picked = b.OneHot(n.indices, size, one, zero, axis=at + 1 if at + 1 < len(x.shape) else -1)
    return [b.Sum(b.Mul(picked, b.ExpandDims(dy, at + 1)), at, keep_dims=False)]


def _approx_model(x: np.ndarray, k: int, reduction_dimension: int = -1, is_max_k: bool = True) -> Any:
    rows = np.moveaxis(x, reduction_dimension, -1)
    values, indices = _top_model(rows if is_max_k else -rows, k)
    values = values if is_max_k else -values
    return np.moveaxis(values, -1, reduction_dimension), np.moveaxis(indices, -1, reduction_dimension)


op(
    "ApproxTopK",
    "input: T",
    "values: T, indices: int32",
    {
        "k": int_attr(minimum=0),
        "reduction_dimension": -1,
        "recall_target": 0.95,
        "is_max_k": True,
        "reduction_input_size_override": -1,
        "aggregate_to_topk": True,
        "T": {float16, bfloat16, float32},
    },
    shape=_approx_shape,
    kernel=_approx_kernel,
    xp=True,
    grad=_approx_grad,
    batch=shifting_attr("reduction_dimension"),
    facts=Facts(cost=flops_per_input(30)),
    oracle=_approx_model,
    sample=lambda rng, dtype: [
        case(draw(rng, dtype, s), k=k, **attrs)
        for s, k, attrs in (
            ((5,), 2, {}),
            ((2, 4), 1, {"reduction_dimension": 0}),
            ((2, 4), 3, {"is_max_k": False, "reduction_dimension": -1}),
        )
    ],
    differs="It supports any `reduction_dimension` and the least elements, which TensorFlow's CPU kernel does not. "
    "The result is exact, as in TensorFlow's CPU kernel.",
    doc="The `k` largest (or least) elements along a dimension, and their indices.",
)

# *** NthElement ***


def _nth_shape(c: Inference) -> Sequence[Shape]:
    x, n = shapes.with_rank_at_least(c.shapes[0], 1), c.scalar(1)
    if n is not None and n < 0:
        raise ValueError(f"n must be non-negative but is {n}")
    if x is None:
        return [None]
    if n is not None and x[-1] is not None and x[-1] <= n:
        raise ValueError(f"Input must have last dimension > n = {n} but is {x[-1]}")
    return [x[:-1]]


def _nth_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    reverse = attrs["reverse"]

    def kernel(x: Any, count: Any) -> Any:
        if count.ndim:
            raise InvalidArgumentError(f"N must be scalar but has rank {count.ndim}")
        n = int(count)
        if n < 0:
            raise InvalidArgumentError(f"n must be non-negative but is {n}")
        if not x.ndim:
            raise InvalidArgumentError("Input must be at least rank 1 but is rank 0")
        size = x.shape[-1]
        if size <= n:
            raise InvalidArgumentError(f"Input must have last dimension > n = {n}, got shape {shapes.show(x.shape)}")
        at = size - 1 - n if reverse else n
        if xp is np:
            return widened(lambda rows: np.partition(rows, at, axis=-1)[..., at], attrs["T"])(x)
        return xp.sort(x, axis=-1)[..., at]

    return kernel


def _nth_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of NthElement, divided evenly among the elements equal to the result."""
    winners = b.Cast(b.Equal(n.input, b.ExpandDims(n.outputs[0], -1)), DstT=n.attrs["T"])
    shared = b.RealDiv(b.ExpandDims(dy, -1), b.Sum(winners, -1, keep_dims=True))
    return [b.Mul(winners, shared), None]


def _nth_model(x: np.ndarray, n: Any, reverse: bool = False) -> np.ndarray:
    out = np.zeros(x.shape[:-1], x.dtype)
    for at in np.ndindex(out.shape):
        out[at] = sorted(x[at], reverse=reverse)[int(n)]
    return out


op(
    "NthElement",
    "input: T, n: int32",
    "values: T",
    {"reverse": False, "T": REAL},
    shape=_nth_shape,
    kernel=_nth_kernel,
    xp=True,
    host=("n",),
    grad=_nth_grad,
    batch=first_in_step(0),
    facts=Facts(cost=flops_per_input(10)),
    oracle=_nth_model,
    sample=lambda rng, dtype: [
        case(draw(rng, dtype, (2, 5)), np.int32(1)),
        case(draw(rng, dtype, (4,)), np.int32(0), reverse=True),
    ],
    doc="The element of rank `n` in the ascending (with `reverse`, descending) order of each row.",
)

# *** InTopK ***


def _in_top(xp: Any, predictions: Any, targets: Any, k: int) -> Any:
    if predictions.ndim != 2 or targets.ndim != 1:
        raise InvalidArgumentError(
            "predictions must be 2-dimensional and targets must be 1-dimensional, got shapes "
            f"{shapes.show(predictions.shape)} and {shapes.show(targets.shape)}"
        )
    rows, classes = predictions.shape
    if targets.shape[0] != rows:
        raise InvalidArgumentError(
            f"First dimension of predictions {rows} must match length of targets {targets.shape[0]}"
        )
    known = (targets >= 0) & (targets < classes)
    if not classes:
        return known
    # np.all and np.count_nonzero add two microseconds to the calls of these
    every, count = (np.logical_and.reduce, np.add.reduce) if xp is np else (xp.all, xp.count_nonzero)
    numbers = xp.arange(rows, dtype=targets.dtype, device=targets.device)
    aimed = predictions[numbers, xp.where(known, targets, 0)][:, None]
    # a row with NaN or infinity has no ranks, as in TensorFlow
    return known & every(xp.isfinite(predictions), axis=1) & (count(predictions > aimed, axis=1) < k)


def _in_top_v2_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(predictions: Any, targets: Any, k: Any) -> Any:
        if k.ndim:
            raise InvalidArgumentError(f"k must be 0-D, got shape {shapes.show(k.shape)}")
        return _in_top(xp, predictions, targets, int(k))

    return kernel


def _in_top_shape(c: Inference) -> Sequence[Shape]:
    predictions, targets = shapes.with_rank(c.shapes[0], 2), shapes.with_rank(c.shapes[1], 1)
    return [(shapes.merge_dim(predictions[0], targets[0]),)]


def _in_top_model(predictions: np.ndarray, targets: np.ndarray, k: Any) -> np.ndarray:
    found = [
        0 <= t < len(row) and bool(np.isfinite(row).all()) and sum(v > row[t] for v in row) < k
        for row, t in zip(predictions, targets)
    ]
    return np.array(found, bool)


def _in_tops(rng: np.random.Generator, dtype: DType) -> list[Any]:
    scores = draw(rng, float32, (5, 4))
    scores[3, 1] = np.nan
    targets = np.array([0, 3, 7, 2, -1], dtype.numpy)
    return [case(scores, targets, dtype.numpy.type(k)) for k in (2, 0, 9)] + [case(scores[:0], targets[:0], targets[0])]


_RANKED = Facts(cost=flops_per_input(3))

op(
    "InTopK",
    "predictions: float32, targets: T",
    "precision: bool",
    {"k": int_attr(), "T": type_attr(INDEX, dtypes.int32)},
    shape=_in_top_shape,
    kernel=lambda xp, attrs: lambda predictions, targets: _in_top(xp, predictions, targets, attrs["k"]),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=folding(0, 1),
    facts=_RANKED,
    oracle=_in_top_model,
    sample=lambda rng, dtype: [case(*c.inputs[:2], k=int(c.inputs[2])) for c in _in_tops(rng, dtype)],
    doc="Whether fewer than `k` elements of each row are above the element of its target.",
)
op(
    "InTopKV2",
    "predictions: float32, targets: T, k: T",
    "precision: bool",
    {"T": type_attr(INDEX, dtypes.int32)},
    shape=_in_top_shape,
    kernel=_in_top_v2_kernel,
    xp=True,
    host=("k",),
    grad=NOT_DIFFERENTIABLE,
    batch=folding(0, 1),
    facts=_RANKED,
    oracle=_in_top_model,
    sample=_in_tops,
    doc="Whether fewer than `k` elements of each row are above the element of its target.",
)

# *** TPUs ***


def _matrix(x: Any) -> Any:
    if x.ndim != 2:
        raise InvalidArgumentError(f"input must be a matrix, got shape {shapes.show(x.shape)}")
    return x


def _made_unique(x: Any) -> Any:
    """Makes the elements of each row of `x` distinct.

    The lowest bits of each element become its column number; 0 is first replaced by the least normal number.
    """
    columns = _matrix(x).shape[1]
    low = np.int32((1 << max(columns - 1, 0).bit_length()) - 1)
    bits = np.where(x == 0, np.copysign(np.finfo(np.float32).tiny, x), x).view(np.int32)
    return ((bits & ~low) | np.arange(columns, dtype=np.int32)).view(np.float32)


def _kth_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    k, top = attrs["k"], _top(xp, float32)
    return lambda x: top(_matrix(x), k)[0][:, k - 1]


def _top_unique_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    top = _top_kernel(xp, attrs)
    return lambda x: top(_matrix(x))


def _top_with_unique_kernel(attrs: Mapping[str, Any]) -> Any:
    top = _top_kernel(np, attrs)
    return lambda x: top(_made_unique(x))


def _tpu_shape(rule: Any) -> Any:
    def shape(c: Inference) -> Sequence[Shape]:
        rows, columns = shapes.with_rank(c.shapes[0], 2)
        k = c.attrs.get("k")
        if k is not None and columns is not None and not 0 < k <= columns:
            raise ValueError(f"k must be in [1, {columns}], the size of the last dimension, got {k}")
        found: Sequence[Shape] = rule(rows, columns, k)
        return found

    return shape


def _distinct(rng: np.random.Generator, dtype: DType, **attrs: Any) -> list[Any]:
    return [case(rng.permutation(np.arange(-4, 6)).reshape(2, 5).astype(np.float32) + np.float32(0.5), **attrs)]


def _unique_model(x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        bits = int.from_bytes(x[at].tobytes(), "little")
        out[at] = np.frombuffer((bits // 8 * 8 + at[1]).to_bytes(4, "little"), np.float32)[0]
    return out


op(
    "KthOrderStatistic",
    "input: float32",
    "output: float32",
    {"k": int_attr()},
    shape=_tpu_shape(lambda rows, columns, k: [(rows,)]),
    kernel=_kth_kernel,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=folding(0),
    facts=_RANKED,
    oracle=lambda x, k: np.array([sorted(row)[-k] for row in x]),
    sample=lambda rng, dtype: _distinct(rng, dtype, k=2),
    doc="The `k`-th largest element of each row.",
)
op(
    "MakeUnique",
    "input: float32",
    "output: float32",
    shape=_tpu_shape(lambda rows, columns, k: [(rows, columns)]),
    kernel=lambda attrs: _made_unique,
    xp=False,  # the standard has no bits of floats
    grad=NOT_DIFFERENTIABLE,
    batch=folding(0),
    facts=_RANKED,
    oracle=_unique_model,
    sample=_distinct,
    doc="The elements with their column number in the lowest bits, so that those of a row are distinct.",
)
_kernel: Any
for _type, _kernel, _is_made_unique, _doc in (
    (
        "TopKUnique",
        _top_unique_kernel,
        False,
        "The `k` largest elements of each row, which must be distinct, and their indices.",
    ),
    (
        "TopKWithUnique",
        _top_with_unique_kernel,
        True,
        "The `k` largest elements of each row after MakeUnique, and their indices.",
    ),
):
    op(
        _type,
        "input: float32",
        "topk: float32, topk_indices: int32",
        {"k": int_attr()},
        shape=_tpu_shape(lambda rows, columns, k: [(rows, k)] * 2),
        kernel=_kernel,
        xp=not _is_made_unique,
        grad=NOT_DIFFERENTIABLE,
        batch=folding(0),
        facts=_RANKED,
        oracle=lambda x, k, f=(_unique_model if _is_made_unique else np.asarray): _top_model(f(x), k),
        sample=lambda rng, dtype: _distinct(rng, dtype, k=3),
        doc=_doc,
    )
