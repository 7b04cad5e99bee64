"""Reductions of groups of rows: the Segment ops (sorted ids) and UnsortedSegment ops.

Source: TensorFlow's ops of the same names. The result of a sorted op has one row more than its last id; that of an
unsorted op (and of a Segment...V2, whose ids are sorted too) has `num_segments` rows and ignores rows with negative
ids. NaN makes the extremes of its segment NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from headrace.dtypes import FLOATING, INDEX, INTEGER, NUMERIC, REAL, DType, float32, int16, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.batch_indexing import unsorted_segments
from headrace.opkit.batch_rules import rows_in_step
from headrace.opkit.elementwise import HALF
from headrace.opkit.index_forms import segment_sum
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, is_near
from headrace.opkit.row_sums import by_place
from headrace.opkit.scatter import accumulated
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, compatible, merge, show, with_rank, with_rank_at_least


def _reduce_runs(f: Any, rows: np.ndarray, ids: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Reduces the rows of each id by the ufunc `f`, into `out[id]`; ids are sorted."""
    if ids.size:
        starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
        wide = rows.astype(out.dtype)
        if f in _BEFORE and wide.dtype.kind == "f" and np.isnan(wide).any():
            out[ids[starts]] = _extremes(_BEFORE[f], wide, starts)
        else:
            out[ids[starts]] = f.reduceat(wide, starts, axis=0, dtype=out.dtype)
    return out


_BEFORE: dict[Any, Any] = {np.maximum: np.greater, np.minimum: np.less}


def _extremes(before: Any, rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Extremes of runs of rows that contain NaN, as TensorFlow computes them.

    A row replaces the current extreme unless `before(extreme, row)` holds.
    """
    out = rows[starts]
    for i, (start, stop) in enumerate(zip(starts, [*starts[1:], len(rows)], strict=True)):
        for row in rows[start + 1 : stop]:
            out[i] = np.where(before(out[i], row), out[i], row)
    return out


def _summed(rows: np.ndarray, ids: np.ndarray, out: np.ndarray) -> bool:
    """Adds each row to `out[id]` by the library of the kernels; False if it cannot."""
    return accumulated("add", out, (ids,), rows.astype(out.dtype, copy=False))


def _wide(t: DType) -> DType:
    return float32 if t in HALF else t


def _filled(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> np.ndarray:
    return np.full(shape, value, dtype) if value else np.zeros(shape, dtype)  # takes zeroed pages of the system


def _by_numpy(f: np.ufunc, t: DType, first: Any, is_sorted: bool) -> Callable[[Any, Any, int], Any]:
    """Returns a function of rows, ids and the number of segments.

    It reduces the rows of each id.

    Args:
      f: the reduction.
      t: the dtype of the rows; half precision is reduced in float32, and so is the result.
      first: the elements of segments without rows.
      is_sorted: whether the ids are sorted; if not, rows of negative ids are dropped.
    """
    wide = _wide(t).numpy

    def reduced(rows: Any, ids: Any, n: int) -> Any:
        out = _filled((n, *rows.shape[1:]), first, wide)
        if not is_sorted and ids.size and np.minimum.reduce(ids) < 0:
            rows, ids = rows[ids >= 0], ids[ids >= 0]
        if f is not np.add or not _summed(rows, ids, out):
            if not is_sorted:
                order = np.argsort(ids, kind="stable")
                rows, ids = rows[order], ids[order]
            _reduce_runs(f, rows, ids, out)
        return out

    return reduced


def _portable(xp: Any, f: np.ufunc, t: DType, first: Any, is_sorted: bool) -> Callable[[Any, Any, int], Any]:
    """Returns what `_by_numpy` does, by functions of the standard."""
    combine, widen = getattr(xp, f.__name__), converter(xp, _wide(t))
    fill, worst = (int(first) if t in INTEGER else float(first)), -math.inf if f is np.maximum else math.inf

    def extremes(rows: Any, ids: Any, n: int) -> Any:
        """Extremes of rows that contain NaN.

        They are those of the elements after the last NaN of a segment, as in `_extremes`.
        """
        ones = (1,) * (rows.ndim - 1)
        numbers = xp.reshape(xp.arange(rows.shape[0], dtype=xp.int64, device=rows.device), (-1, *ones))
        none = by_place(xp, xp.maximum, xp.where(xp.isnan(rows), numbers, -1), ids, n, -1)
        last = by_place(xp, xp.maximum, numbers, ids, n, -1)
        counted = xp.where(numbers <= xp.take(none, ids, axis=0), worst, rows)
        found = by_place(xp, combine, counted, ids, n, fill)
        return xp.where((none == last) & (last >= 0), math.nan, found)

    def reduced(rows: Any, ids: Any, n: int) -> Any:
        rows = widen(rows)
        if not is_sorted and is_near(ids) and xp.any(ids < 0):
            rows, ids = rows[ids >= 0], ids[ids >= 0]
        if f in _BEFORE and t in FLOATING and n and xp.any(xp.isnan(rows)):
            return extremes(rows, ids, n)
        return by_place(xp, combine, rows, ids, n, fill)

    return reduced


def _reduction(xp: Any, f: np.ufunc, t: DType, first: Any, is_sorted: bool) -> Callable[[Any, Any, int], Any]:
    return _by_numpy(f, t, first, is_sorted) if xp is np else _portable(xp, f, t, first, is_sorted)


# *** Sorted ids ***


def _check_sorted(xp: Any, data: Any, ids: Any) -> int:
    """Checks sorted segment ids and returns the number of segments."""
    if not data.ndim:
        raise InvalidArgumentError("input must be at least rank 1, got a scalar")
    if ids.ndim != 1:
        raise InvalidArgumentError(f"segment_ids should be a vector, got the shape {show(ids.shape)}")
    if ids.shape[0] != data.shape[0]:
        raise InvalidArgumentError(
            f"segment_ids should be the same size as dimension 0 of input: {ids.shape[0]} against {show(data.shape)}"
        )
    if not ids.shape[0]:
        return 0
    least = np.minimum.reduce(ids) if xp is np else xp.min(ids)
    if least < 0:
        raise InvalidArgumentError(f"segment ids must be >= 0, got {int(least)}")
    _check_order(xp, ids)
    return int(ids[-1]) + 1


def _check_order(xp: Any, ids: Any) -> None:
    some = np.logical_or.reduce if xp is np else xp.any  # np.any adds a microsecond to the calls of this
    if ids.shape[0] and is_near(ids) and some(ids[1:] < ids[:-1]):
        raise InvalidArgumentError("segment ids are not increasing")


def _sorted_kernel(f: np.ufunc, fill: int, mean: bool = False) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = attrs["T"]
        reduce, back = _reduction(xp, f, t, fill, is_sorted=True), converter(xp, t)
        to_counts = converter(xp, _wide(t))

        def kernel(data: Any, ids: Any) -> Any:
            n = _check_sorted(xp, data, ids)
            shape = (n, *data.shape[1:])
            check_size(shape, t)
            out = reduce(data, ids, n)
            if mean and 0 not in shape:
                count = to_counts(xp.reshape(_count(xp, ids, n), (n, *[1] * (data.ndim - 1))))
                out = _whole_quotient(xp, out, count) if t in INTEGER else out / count
            return back(out)

        return kernel

    return factory


def _count(xp: Any, ids: Any, n: int) -> Any:
    """The number of rows of each segment, or 1."""
    if xp is np:
        return np.maximum(np.bincount(ids), 1)
    ids = converter(xp, int64)(ids)
    return by_place(xp, xp.add, xp.ones_like(ids), ids, n, 1)


def _whole_quotient(xp: Any, x: Any, n: Any) -> Any:
    """`x / n` without its fraction; `n` is positive."""
    below = x // n
    return xp.where((x < 0) & (below * n != x), below + 1, below)


def _sorted_shape(c: Inference) -> Sequence[Shape]:
    data = with_rank_at_least(c.shapes[0], 1)
    with_rank(c.shapes[1], 1)
    if data is None:
        return [None]
    ids = c.value(1)
    rows = None if ids is None else int(ids[-1]) + 1 if ids.size and ids[-1] >= 0 else 0 if not ids.size else None
    return [(rows, *data[1:])]


def _rows_of(b: Any, g: Any, ids: Any) -> Any:
    return b.GatherV2(g, ids, 0)


def _like_rows(b: Any, counts: Any, like: Any) -> Any:
    """Appends dimensions of size 1 to `counts`, to broadcast along rows of `like`."""
    if counts.shape is not None and like.shape is not None:
        for _ in range(len(like.shape) - len(counts.shape)):
            counts = b.ExpandDims(counts, -1)
        return counts
    missing = b.Sub(b.Rank(like), b.Rank(counts))
    ones = b.Fill(b.Reshape(missing, [1]), 1)
    return b.Reshape(counts, b.ConcatV2([b.Shape(counts), ones], 0))


def _counts(b: Any, n: Any) -> Any:
    """Number of rows of each segment, at least 1."""
    counts = b.SegmentSum(b.OnesLike(n.segment_ids), n.segment_ids)
    return b.Cast(b.Maximum(counts, 1), DstT=n.attrs["T"])


def _segment_sum_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_rows_of(b, dy, n.segment_ids), None]


def _segment_mean_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_rows_of(b, b.RealDiv(dy, _like_rows(b, _counts(b, n), dy)), n.segment_ids), None]


def _segment_extreme_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of an extreme, divided evenly among the elements equal to the result."""
    ids = n.segment_ids
    winners = b.Cast(b.Equal(n.data, _rows_of(b, n.output, ids)), DstT=n.attrs["T"])
    shared = b.DivNoNan(dy, b.SegmentSum(winners, ids))
    return [b.Mul(winners, _rows_of(b, shared, ids)), None]


def _segment_prod_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    rows = b.StridedSlice(b.Shape(dy), [0], [1], [1], shrink_axis_mask=1)
    return [_product_grad(b, n, dy, rows, n.segment_ids), None]


# *** Any ids ***


def _finite(t: DType) -> Any:
    return np.iinfo(t.numpy) if t in INTEGER else ml_dtypes.finfo(t.numpy)


def _unsorted_kernel(f: np.ufunc, fill: Callable[[DType], Any]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = attrs["T"]
        reduce, back = _reduction(xp, f, t, fill(t), is_sorted=False), converter(xp, t)

        def kernel(data: Any, ids: Any, num_segments: Any) -> Any:
            if num_segments.ndim:
                raise InvalidArgumentError(f"num_segments should be a scalar, not shape {show(num_segments.shape)}")
            n = int(num_segments)
            if n < 0:
                raise InvalidArgumentError(f"Input num_segments == {n} must not be negative.")
            if data.shape[: ids.ndim] != ids.shape:
                raise InvalidArgumentError(
                    f"data.shape = {show(data.shape)} does not start with segment_ids.shape = {show(ids.shape)}"
                )
            rest = data.shape[ids.ndim :]
            count = math.prod(ids.shape)
            flat = xp.reshape(ids, (count,)) if ids.ndim != 1 else ids
            if count and is_near(flat) and (np.maximum.reduce(flat) if xp is np else xp.max(flat)) >= n:
                at = int(xp.nonzero(flat >= n)[0][0])
                raise InvalidArgumentError(f"segment_ids[{at}] = {int(flat[at])} is out of range [0, {n})")
            check_size((n, *rest), t)
            rows = xp.reshape(data, (count, *rest)) if ids.ndim != 1 else data
            return back(reduce(rows, flat, n))

        return kernel

    return factory


def _with_sorted_ids(unsorted: Any) -> Any:
    """The kernel factory of the unsorted op, with a check that the ids are sorted."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        f = unsorted(xp, attrs)

        def kernel(data: Any, ids: Any, num_segments: Any) -> Any:
            if ids.ndim != 1:
                raise InvalidArgumentError(f"segment_ids should be a vector, got the shape {show(ids.shape)}")
            _check_order(xp, ids)
            return f(data, ids, num_segments)

        return kernel

    return factory


def _unsorted_shape(c: Inference) -> Sequence[Shape]:
    data, ids = c.shapes[0], c.shapes[1]
    n = c.scalar(2)
    if n is not None and n < 0:
        raise ValueError(f"Input num_segments == {n} must not be negative.")
    if data is None or ids is None:
        return [None]
    with_rank_at_least(data, len(ids))
    if not compatible(data[: len(ids)], ids):
        merge(data[: len(ids)], ids)
    return [(n, *data[len(ids) :])]


def _kept(b: Any, n: Any, g: Any) -> tuple[Any, Any]:
    """The row of `g` for each row of data, and the mask of kept rows.

    The op drops rows with a negative id: their row of `g` is 0 and their mask is false.
    """
    ids = n.segment_ids
    kept = b.GreaterEqual(ids, 0)
    rows = _rows_of(b, g, b.Maximum(ids, 0))
    kept = _like_rows(b, kept, rows)
    return b.SelectV2(kept, rows, b.ZerosLike(rows)), kept


def _unsorted_sum_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_kept(b, n, dy)[0], None, None]


def _unsorted_extreme_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    rows, kept = _kept(b, n, n.output)
    winners = b.Cast(b.LogicalAnd(b.Equal(n.data, rows), kept), DstT=n.attrs["T"])
    count = b.UnsortedSegmentSum(winners, n.segment_ids, n.num_segments)
    return [b.Mul(winners, _kept(b, n, b.DivNoNan(dy, count))[0]), None, None]


def _product_grad(b: Any, n: Any, dy: Any, segments: Any, ids: Any) -> Any:
    """For each element the product of the others of its segment, without division by zero.

    In a segment without zeros it is the product of the segment divided by the element. In a segment with one zero, the
    zero gets the product of the others, and the others get 0. In a segment with several zeros all elements get 0.
    """
    x, t = n.data, n.attrs["T"]
    zero = b.ZerosLike(x)
    is_zero = b.Equal(x, zero)
    zeros = b.UnsortedSegmentSum(b.Cast(is_zero, DstT=int32), ids, segments)
    nonzero = b.UnsortedSegmentProd(b.SelectV2(is_zero, b.OnesLike(x), x), ids, segments)
    if t in NUMERIC - REAL:
        x, nonzero = b.Conj(x), b.Conj(nonzero)
    with_none = _kept(b, n, b.Mul(dy, b.Cast(b.Equal(zeros, 0), DstT=t)))[0]
    with_one = _kept(b, n, b.Mul(dy, b.Cast(b.Equal(zeros, 1), DstT=t)))[0]
    product = _kept(b, n, nonzero)[0]
    others = b.SelectV2(is_zero, product, b.DivNoNan(product, x))
    return b.Mul(others, b.SelectV2(is_zero, with_one, with_none))


def _unsorted_prod_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_product_grad(b, n, dy, n.num_segments, n.segment_ids), None, None]


# *** Oracles and samples ***


def _grouping(f: Callable[[list[Any]], Any], empty: Callable[[np.dtype], Any]) -> Any:
    """The oracle that applies `f` to the list of numbers of each segment."""

    def oracle(data: np.ndarray, ids: np.ndarray, num_segments: Any = None) -> np.ndarray:
        rest = data.shape[ids.ndim :]
        n = int(ids.max(initial=-1)) + 1 if num_segments is None else int(num_segments)
        out = np.empty((n, *rest), data.dtype)
        for i in np.ndindex(out.shape):
            group = [data[(*j, *i[1:])] for j in np.ndindex(ids.shape) if ids[j] == i[0]]
            values = [int(v) if data.dtype.kind in "iu" else complex(v) for v in group]
            v = f([z.real for z in values] if data.dtype.kind not in "iuc" else values) if group else empty(data.dtype)
            out[i] = np.array(v % 2**64, np.uint64).astype(data.dtype) if isinstance(v, int) else v
        return out

    return oracle


def _mean_of(values: list[Any]) -> Any:
    return math.trunc(sum(values) / len(values)) if isinstance(values[0], int) else sum(values) / len(values)


def _limit(which: str) -> Callable[[np.dtype], Any]:
    return lambda d: int(getattr(np.iinfo(d), which)) if d.kind in "iu" else getattr(ml_dtypes.finfo(d), which)


def _sorted_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, s, 1, 4), np.array(ids, i))
        for s, ids, i in (
            ((4,), [0, 0, 1, 1], np.int32),
            ((3, 2), [0, 2, 2], np.int64),
            ((2, 2, 2), [1, 1], np.int32),
            ((0, 2), [], np.int32),
            ((2, 0), [0, 1], np.int32),
        )
    ]


def _unsorted_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, s, 1, 4), np.array(ids, i), np.array(n, np.int32 if i != np.int32 else np.int64))
        for s, ids, n, i in (
            ((4,), [1, 0, -1, 1], 3, np.int32),
            ((3, 2), [2, 0, 2], 4, np.int64),
            ((2, 2, 2), [[0, 1], [-1, 0]], 2, np.int32),
            ((2,), 1, 2, np.int32),
            ((0, 2), [], 2, np.int32),
        )
    ]


def _sized_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, s, 1, 4), np.array(ids, np.int32), np.int32(n))
        for s, ids, n in (((4, 2), [-1, 0, 2, 2], 4), ((0, 2), [], 2))
    ]


_LINEAR = linear("data")
_ZERO: Callable[[np.dtype], Any] = lambda d: 0
_ONE: Callable[[np.dtype], Any] = lambda d: 1

# fmt: off
for _type, _types, _kernel, _grad, _jvp, _oracle, _doc in (
    ("Sum", NUMERIC, _sorted_kernel(np.add, 0), _segment_sum_grad, _LINEAR, _grouping(sum, _ZERO), "The sums"),
    ("Mean", NUMERIC, _sorted_kernel(np.add, 0, mean=True), _segment_mean_grad, _LINEAR, _grouping(_mean_of, _ZERO),
     "The means"),
    ("Prod", NUMERIC, _sorted_kernel(np.multiply, 1), _segment_prod_grad, None, _grouping(math.prod, _ONE),
     "The products"),
    ("Max", REAL, _sorted_kernel(np.maximum, 0), _segment_extreme_grad, None, _grouping(max, _ZERO),
     "The greatest elements"),
    ("Min", REAL, _sorted_kernel(np.minimum, 0), _segment_extreme_grad, None, _grouping(min, _ZERO),
     "The least elements"),
):
    op(
        "Segment" + _type,
        "data: T, segment_ids: Tindices",
        "output: T",
        {"T": type_attr(_types), "Tindices": INDEX},
        shape=_sorted_shape,
        kernel=_kernel,
        xp=True,
        grad=_grad,
        jvp=_jvp, batch=rows_in_step(0),
        facts=Facts(dynamic_shape=True, cost=flops_per_input(2)),
        oracle=_oracle,
        sample=_sorted_samples,
        doc=f"{_doc} of runs of rows with the same id.",
    )

for _type, _types, _kernel, _grad, _jvp, _oracle, _doc in (
    ("Sum", NUMERIC, _unsorted_kernel(np.add, lambda t: 0), _unsorted_sum_grad, _LINEAR, _grouping(sum, _ZERO),
     "The sums"),
    ("Prod", NUMERIC, _unsorted_kernel(np.multiply, lambda t: 1), _unsorted_prod_grad, None, _grouping(math.prod, _ONE),
     "The products"),
    ("Max", REAL, _unsorted_kernel(np.maximum, lambda t: _finite(t).min), _unsorted_extreme_grad, None,
     _grouping(max, _limit("min")), "The greatest elements"),
    ("Min", REAL, _unsorted_kernel(np.minimum, lambda t: _finite(t).max), _unsorted_extreme_grad, None,
     _grouping(min, _limit("max")), "The least elements"),
):
    for _name, _sorted in ((f"UnsortedSegment{_type}", False), (f"Segment{_type}V2", True)):
        op(
            _name,
            "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
            "output: T",
            {
                "T": type_attr(_types),
                "Tindices": INDEX | {int16} if _name == "UnsortedSegmentSum" else INDEX,
                "Tnumsegments": type_attr(INDEX, int32),
            },
            shape=_unsorted_shape,
            kernel=_with_sorted_ids(_kernel) if _sorted else _kernel,
            xp=True,
            host=("num_segments",),
            grad=_grad,
            jvp=_jvp, batch=rows_in_step(0) if _sorted else unsorted_segments,
            form=segment_sum if _name == "UnsortedSegmentSum" else None,
            facts=Facts(dynamic_shape=True, cost=flops_per_input(4), rounds_once=_name == "UnsortedSegmentSum"),
            oracle=_oracle,
            sample=_sized_samples if _sorted else _unsorted_samples,
            differs="TensorFlow supports it only under XLA." if _sorted else "",
            doc=f"{_doc} of the rows with the same id{', sorted' if _sorted else ''}; rows with negative ids are "
            "dropped.",
        )
# fmt: on
