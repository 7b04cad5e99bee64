"""Reductions of selected rows in segments: SparseSegmentSum, -Mean and -SqrtN, and their gradients.

Source: TensorFlow's ops of the same names. `indices[i]` is the row of data that goes into segment `segment_ids[i]`; the
ids ascend. Embedding lookups that combine several rows consist of these ops. So the kernel never gathers all rows at
once, but a few megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes, thresholds
from headrace.dtypes import FLOATING, INDEX, REAL, DType, float32, float64, int32
from headrace.errors import InvalidArgumentError
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, bool_attr, case, flops_per_input, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.elementwise import HALF
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter
from headrace.opkit.row_sums import any_true, distinct, first_true, row_sums
from headrace.opkit.testing.samples import draw
from headrace.ops.sparse.coordinates import runs
from headrace.shapes import Shape

Divisor = Callable[[Any, Any], Any]  # (xp, numbers of rows) -> what the sums are divided by
_DIVISORS: dict[str, Divisor | None] = {"Sum": None, "Mean": lambda xp, n: n, "SqrtN": lambda xp, n: xp.sqrt(n)}


def _wide(t: DType) -> DType:
    return float32 if t in HALF else t


def _check_vectors(indices: Any, ids: Any) -> None:
    for name, x in (("indices", indices), ("segment_ids", ids)):
        if x.ndim != 1:
            raise InvalidArgumentError(f"{name} should be a vector, got shape {shapes.show(x.shape)}")
    if indices.shape != ids.shape:
        raise InvalidArgumentError(
            f"segment_ids and indices should have same size: they have {ids.shape[0]} and {indices.shape[0]} elements"
        )


def _size(n: Any, name: str) -> int:
    if n.ndim:
        raise InvalidArgumentError(f"{name} should be a scalar, not shape {shapes.show(n.shape)}")
    size = int(n)
    if size < 0:
        raise InvalidArgumentError(f"Expected a non-negative size, got {name} = {size}")
    return size


def _add_rows(out: np.ndarray, to: np.ndarray, rows: Callable[[slice], np.ndarray]) -> None:
    """Adds `rows(part)` to the rows of `out` numbered `to[part]`, which ascend, part by part."""
    step = max(thresholds.SEGMENT_ELEMENTS // max(out[:1].size, 1), 1)
    for first in range(0, len(to), step):
        part = slice(first, first + step)
        starts = runs(to[part])
        out[to[part][starts]] += np.add.reduceat(rows(part), starts, axis=0, dtype=out.dtype)


def _counts(xp: Any, ids: Any, n: int, rank: int, t: DType) -> Any:
    """Number of rows of each segment, at least 1.

    The shape broadcasts along rows of `rank` - 1 dimensions.
    """
    if xp is np:
        counts = np.maximum(np.bincount(ids, minlength=n), 1)
    else:
        counts = row_sums(xp, xp.ones_like(ids), ids, n)
        counts = xp.maximum(counts, xp.ones_like(counts))
    return xp.reshape(converter(xp, t)(counts), (-1, *[1] * (rank - 1)))


# *** Forward ***


def _kernel(divisor: Divisor | None) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = attrs["T"]
        widen, narrow = converter(xp, _wide(t)), converter(xp, t)

        def kernel(data: Any, indices: Any, ids: Any, num_segments: Any = None) -> Any:
            _check_vectors(indices, ids)
            if not data.ndim:
                raise InvalidArgumentError("Shape must be at least rank 1: data is a scalar")
            if num_segments is not None and num_segments.ndim:
                raise InvalidArgumentError(
                    f"num_segments should be a scalar, not shape {shapes.show(num_segments.shape)}"
                )
            first, last = (int(ids[0]), int(ids[-1])) if ids.shape[0] else (0, -1)
            n = last + 1 if num_segments is None else int(num_segments)
            if n < 0 or first < 0:
                raise InvalidArgumentError("segment ids must be >= 0")
            if ids.shape[0] > 1 and any_true(xp, ids[1:] < ids[:-1]):
                raise InvalidArgumentError("segment ids are not increasing")
            if last >= n:
                raise InvalidArgumentError(f"segment ids must be < num_segments: {last} against {n}")
            i = first_true(xp, (indices < 0) | (indices >= data.shape[0]))
            if i is not None:
                raise InvalidArgumentError(f"Bad: indices[{i}] == {int(indices[i])} out of range [0, {data.shape[0]})")
            shape = (n, *data.shape[1:])
            check_size(shape, t)
            if xp is np:
                out = np.zeros(shape, _wide(t).numpy)
                _add_rows(out, ids, lambda part: data[indices[part]].astype(out.dtype, copy=False))
            else:
                out = row_sums(xp, widen(xp.take(data, indices, axis=0)), ids, n)
            if divisor is not None and n:
                out /= divisor(xp, _counts(xp, ids, n, out.ndim, _wide(t)))
            return narrow(out)

        return kernel

    return factory


def _shape(c: Inference) -> Sequence[Shape]:
    data = shapes.with_rank_at_least(c.shapes[0], 1)
    shapes.merge_dim(shapes.with_rank(c.shapes[1], 1)[0], shapes.with_rank(c.shapes[2], 1)[0])
    rows = c.scalar(3) if len(c.shapes) == 4 else None
    if rows is not None and rows < 0:
        raise ValueError(f"Cannot specify a negative value for num_segments: {rows}")
    return [None if data is None else (rows, *data[1:])]


def _grad(name: str) -> Any:
    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        rest = [None] * (len(n.inputs) - 1)
        shape = b.Shape(n.data)
        rows = b.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1)
        if not n.attrs["sparse_gradient"]:
            return [b.make(f"SparseSegment{name}Grad", [dy, n.indices, n.segment_ids, rows], {}), *rest]
        values, indices = b.make(f"SparseSegment{name}GradV2", [dy, n.indices, n.segment_ids, rows], {})
        return [IndexedSlices(values, indices, shape), *rest]

    return rule


def _model(divisor: Divisor | None) -> Any:
    def oracle(data: Any, indices: Any, ids: Any, num_segments: Any = None, **attrs: Any) -> np.ndarray:
        n = int(max(ids, default=-1)) + 1 if num_segments is None else int(num_segments)
        wide = data.astype(float) if data.dtype.kind != "i" and data.dtype.kind != "u" else data
        out = np.zeros((n, *data.shape[1:]), wide.dtype)
        for k in set(ids.tolist()):
            rows = [wide[i] for i, s in zip(indices, ids, strict=True) if s == k]
            out[k] = sum(rows) / (divisor(np, np.array(len(rows))) if divisor else 1)
        return out.astype(data.dtype)

    return oracle


def _samples(with_number: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        cases = []
        for shape, indices, ids, n in (
            ((4, 2), [0, 3, 3], [0, 0, 2], 4),
            ((3,), [2, 1, 0, 2], [0, 1, 1, 1], 2),
            ((2, 2, 2), [], [], 0),
        ):
            index = np.int64 if len(shape) == 1 else np.int32
            args = [draw(rng, dtype, shape), np.array(indices, index), np.array(ids, np.int32)]
            cases.append(case(*args, *[np.array(n, np.int32)] * with_number, sparse_gradient=len(shape) == 1))
        return cases if dtype is float64 else cases[:1]

    return sample


_IDS = {"Tidx": type_attr(INDEX, int32), "Tsegmentids": type_attr(INDEX, int32)}
for _name, _divisor in _DIVISORS.items():
    _what = {"Sum": "sums", "Mean": "means", "SqrtN": "sums, divided by the roots of how many there are,"}[_name]
    for _suffix, _more in (("", ""), ("WithNumSegments", ", num_segments: Tnumsegments")):
        op(
            f"SparseSegment{_name}{_suffix}",
            f"data: T, indices: Tidx, segment_ids: Tsegmentids{_more}",
            "output: T",
            {
                "T": REAL if _name == "Sum" else FLOATING,
                **_IDS,
                **({"Tnumsegments": type_attr(INDEX, int32)} if _more else {}),
                "sparse_gradient": bool_attr(False),
            },
            shape=_shape,
            kernel=_kernel(_divisor),
            xp=True,
            host=("num_segments",) if _more else (),
            grad=_grad(_name),
            jvp=linear("data"),
            facts=Facts(dynamic_shape=True, cost=flops_per_input(2)),
            oracle=_model(_divisor),
            sample=_samples(bool(_more)),
            doc=f"The {_what} of the selected rows of each segment.",
        )

# *** Gradients ***


def _scaled(xp: Any, dy: Any, ids: Any, divisor: Divisor | None, dtype: DType) -> np.ndarray:
    """The rows of `dy`, over the number of rows in their segments or its root."""
    n = dy.shape[0]
    low, high = (int(xp.min(ids)), int(xp.max(ids))) if ids.shape[0] else (0, -1)
    if low < 0 or high >= n:
        raise InvalidArgumentError(
            f"Invalid number of segments: segment_ids go from {low} to {high}, and grad has {n} rows"
        )
    wide = converter(xp, _wide(dtype))(dy)
    return wide if divisor is None else wide / divisor(xp, _counts(xp, ids, n, dy.ndim, _wide(dtype)))


def _check_rows(xp: Any, indices: Any, n: int) -> None:
    i = first_true(xp, (indices < 0) | (indices >= n))
    if i is not None:
        raise InvalidArgumentError(f"Index {int(indices[i])} out of range [0, {n}).")


def _backward(divisor: Divisor | None, is_sparse: bool) -> Any:
    """Kernel factory of a gradient, with all rows of data or (`is_sparse`) the selected ones.

    A sparse gradient has the numbers of its rows as a second output.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = attrs["T"]
        narrow = converter(xp, t)

        def kernel(dy: Any, indices: Any, ids: Any, rows: Any) -> Any:
            _check_vectors(indices, ids)
            if not dy.ndim:
                raise InvalidArgumentError("Shape must be at least rank 1: grad is a scalar")
            n = _size(rows, "dense_output_dim0" if is_sparse else "output_dim0")
            scaled = _scaled(xp, dy, ids, divisor, t)
            _check_rows(xp, indices, n)
            to = indices
            if is_sparse:
                unique, to = distinct(xp, indices)
                n = unique.shape[0]
            else:
                check_size((n, *dy.shape[1:]), t)
            if xp is np:
                order = np.argsort(indices, kind="stable")
                out = np.zeros((n, *dy.shape[1:]), scaled.dtype)
                _add_rows(out, to[order], lambda part: scaled[ids[order[part]]])
            else:
                out = row_sums(xp, xp.take(scaled, ids, axis=0), to, n)
            return (narrow(out), unique) if is_sparse else narrow(out)

        return kernel

    return factory


def _backward_shape(c: Inference) -> Sequence[Shape]:
    dy = shapes.with_rank_at_least(c.shapes[0], 1)
    shapes.merge_dim(shapes.with_rank(c.shapes[1], 1)[0], shapes.with_rank(c.shapes[2], 1)[0])
    n = c.scalar(3)
    if c.op.type.endswith("V2"):
        return [None if dy is None else (None, *dy[1:]), (None,)]
    if n is not None and n < 0:
        raise ValueError(f"Cannot specify a negative value for output_dim0: {n}")
    return [None if dy is None else (n, *dy[1:])]


def _second(name: str, is_sparse: bool) -> Any:
    """Gradient rule of a gradient: the segment reduction `name` of the incoming rows.

    The number of segments is that of the forward op.
    """

    def rule(b: Any, n: Any, d: Any, d_unique: Any = None) -> list[Any]:
        segments = b.StridedSlice(b.Shape(n.grad), [0], [1], [1], shrink_axis_mask=1)
        at = n.indices
        if is_sparse:  # the places of the rows among those that were selected
            unique = b.ExpandDims(n.sorted_unique_indices, 0)
            at = b.Squeeze(b.LowerBound(unique, b.ExpandDims(at, 0)), squeeze_dims=(0,))
        inputs = [d, at, n.segment_ids, segments]
        return [b.make(f"SparseSegment{name}WithNumSegments", inputs, {}), None, None, None]

    return rule


def _first_moves(b: Any, n: Any, *dxs: Any) -> list[Any]:
    return [*linear("grad")(b, n, *dxs)[:1], None]


def _backward_model(divisor: Divisor | None, is_sparse: bool) -> Any:
    def oracle(dy: Any, indices: Any, ids: Any, rows: Any) -> Any:
        out = np.zeros((int(rows), *dy.shape[1:]), float)
        for i, s in zip(indices.tolist(), ids.tolist(), strict=True):
            out[i] += dy[s].astype(float) / (divisor(np, np.array(ids.tolist().count(s))) if divisor else 1)
        unique = np.array(sorted(set(indices.tolist())), indices.dtype)
        return (out[unique].astype(dy.dtype), unique) if is_sparse else out.astype(dy.dtype)

    return oracle


def _backward_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = [
        case(draw(rng, dtype, shape), np.array(indices, index), np.array(ids, np.int32), np.array(n, np.int32))
        for shape, indices, ids, n, index in (
            ((3, 2), [3, 0, 3], [0, 0, 2], 4, np.int32),
            ((2,), [2, 1, 2], [0, 1, 1], 3, np.int64),
            ((0, 2), [], [], 0, np.int32),
        )
    ]
    return cases if dtype is float64 else cases[:1]


for _name, _divisor in _DIVISORS.items():
    for _suffix, _size_name, _more in (
        ("Grad", "output_dim0", ""),
        ("GradV2", "dense_output_dim0", ", sorted_unique_indices: Tidx"),
    ):
        op(
            f"SparseSegment{_name}{_suffix}",
            f"grad: T, indices: Tidx, segment_ids: Tsegmentids, {_size_name}: int32",
            f"output: T{_more}",
            {"T": FLOATING, **_IDS},
            shape=_backward_shape,
            kernel=_backward(_divisor, bool(_more)),
            xp=True,
            host=(_size_name,),
            grad=_second(_name, bool(_more)),
            jvp=_first_moves if _more else linear("grad"),
            facts=Facts(dynamic_shape=True, cost=flops_per_input(4)),
            oracle=_backward_model(_divisor, bool(_more)),
            sample=_backward_samples,
            doc=f"The gradient of SparseSegment{_name} by the data"
            + (": the rows that were selected, and their numbers." if _more else "."),
        )
