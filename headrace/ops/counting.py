"""Counting: occurrences of integers, and numbers in intervals.

Source: TensorFlow's Bincount, DenseBincount, SparseBincount, RaggedBincount, *CountSparseOutput, Bucketize and
HistogramFixedWidth. A bincount has a row for each row of the input, with a column for each integer below `size`; a
sparse count lists the integers that occur. With weights, both sum the weights instead of counting. The rows are those
of a matrix, a sparse matrix or a ragged one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import INDEX, DType, float32, float64, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    bool_attr,
    case,
    flops_per_input,
    int_attr,
    list_attr,
    missing,
    op,
    type_attr,
)
from headrace.opkit.arrays import check_size, placed, reshaper
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.namespaces import constant, converter, dtype_in, is_near, is_standard
from headrace.opkit.row_sums import any_true
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape

_COUNTED = INDEX | {float32, float64}
_WEIGHTED = missing(
    "only a run determines whether there are weights; for differentiable sums of weights use UnsortedSegmentSum"
)


# *** rows of integers ***


def _dense(values: Any) -> tuple[Any, Any, int | None]:
    """Integers of a vector or matrix, their row numbers, and the number of rows.

    The number of rows is None for a vector.
    """
    if values.ndim > 2:
        raise InvalidArgumentError(f"Shape must be at most rank 2 but is rank {values.ndim}")
    if values.ndim < 2:
        return values.reshape(-1), np.zeros(values.size, np.int64), None
    rows, columns = values.shape
    return values.reshape(-1), np.repeat(np.arange(rows), columns), rows


def _sparse(indices: Any, values: Any, dense_shape: Any) -> tuple[Any, Any, int | None]:
    """Integers of a sparse tensor, their row numbers, and the number of rows.

    The first of several dimensions numbers the rows. The number of rows is None for a vector.
    """
    if (
        indices.ndim != 2
        or values.ndim != 1
        or dense_shape.ndim != 1
        or indices.shape != (*values.shape, *dense_shape.shape)
    ):
        raise InvalidArgumentError(
            "indices must be a matrix, with a row for each of values and a column for each of dense_shape: got "
            f"shapes {shapes.show(indices.shape)}, {shapes.show(values.shape)} and {shapes.show(dense_shape.shape)}"
        )
    if not dense_shape.size or (dense_shape < 0).any():
        raise InvalidArgumentError(f"dense_shape must be a vector of sizes >= 0, got {dense_shape.tolist()}")
    bad = (indices < 0) | (indices >= dense_shape)
    if bad.any():
        at = int(np.argmax(bad.any(axis=1)))
        raise InvalidArgumentError(
            f"Index value at dimension {int(np.argmax(bad[at]))} is out of bounds: indices[{at}] = "
            f"{indices[at].tolist()}, dense_shape {dense_shape.tolist()}"
        )
    if len(dense_shape) == 1:
        return values, np.zeros(len(values), np.int64), None
    return values, indices[:, 0], int(dense_shape[0])


def _ragged(splits: Any, values: Any) -> tuple[Any, Any, int]:
    """Integers of a ragged matrix, their row numbers, and the number of rows."""
    splits, values = splits.reshape(-1), values.reshape(-1)
    if not splits.size or splits[0] != 0 or splits[-1] != len(values):
        raise InvalidArgumentError(
            "Splits must start with 0 and end with the number of values, "
            f"got {splits.tolist()} and {len(values)} values"
        )
    rows = np.searchsorted(np.maximum.accumulate(splits), np.arange(len(values)), "right") - 1
    return values, rows, len(splits) - 1


_ROWS: dict[str, tuple[str, Any]] = {
    "Dense": ("values: T", _dense),
    "Sparse": ("indices: int64, values: T, dense_shape: int64", _sparse),
    "Ragged": ("splits: int64, values: T", _ragged),
}


def _check_values(values: Any, weights: Any) -> None:
    if weights.size and weights.size != values.size:
        raise InvalidArgumentError(
            "Weights and values must be of one shape, or weights empty: got "
            f"{shapes.show(weights.shape)} for {values.size} values"
        )
    if values.size and values.min() < 0:
        raise InvalidArgumentError(f"Input arr must be non-negative, got {values.min()}")


# *** bincounts: a column for each integer ***


def _size(size: Any, rows: int | None, dtype: DType) -> tuple[int, ...]:
    if size.ndim:
        raise InvalidArgumentError(f"Shape must be rank 0 but is rank {size.ndim}: size should be a scalar")
    if size < 0:
        raise InvalidArgumentError(f"size ({int(size)}) must be non-negative")
    shape = (int(size),) if rows is None else (rows, int(size))
    check_size(shape, dtype)
    return shape


def _binned(values: Any, rows: Any, shape: tuple[int, ...], weights: Any, binary: bool, dtype: DType) -> Any:
    """Counts, or sums of weights, of the integers of each row.

    The result has the shape `shape`; its last dimension is indexed by the integers, and larger integers are dropped.
    """
    out = np.zeros(shape, dtype.numpy)
    inside = values < shape[-1]
    flat = (rows * shape[-1] + values)[inside]
    if binary:
        out.reshape(-1)[flat] = 1
    elif weights.size:
        np.add.at(out.reshape(-1), flat, weights.reshape(-1)[inside])
    else:
        counts = np.bincount(flat, minlength=out.size) if out.size else np.zeros(0)
        out = counts.reshape(shape).astype(dtype.numpy)
    return out


def _bincount_kernel(read: Any) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        binary, dtype = attrs.get("binary_output", False), attrs["T"]

        def kernel(*inputs: Any) -> Any:
            *found, size, weights = inputs
            values, rows, n = read(*found)
            _check_values(values, weights)
            return _binned(values, rows, _size(size, n, dtype), weights, binary, dtype)

        return kernel

    return factory


def _columns(c: Inference, i: int) -> Dim:
    size = c.scalar(i)
    if size is not None and size < 0:
        raise ValueError(f"size ({size}) must be non-negative")
    return size


def _dense_rows(c: Inference) -> tuple[Dim, ...] | None:
    if c.shapes[0] is None:
        return None
    if len(c.shapes[0]) > 2:
        raise ValueError(f"Shape must be at most rank 2 but is rank {len(c.shapes[0])}")
    return c.shapes[0][:1] if len(c.shapes[0]) == 2 else ()


def _sparse_rows(c: Inference) -> tuple[Dim, ...] | None:
    dense_shape = c.shape_value(2)
    if dense_shape is None:
        return None
    return dense_shape[:1] if len(dense_shape) > 1 else ()


def _ragged_rows(c: Inference) -> tuple[Dim, ...]:
    (n,) = shapes.with_rank(c.shapes[0], 1)
    return (None if n is None else max(n - 1, 0),)


def _bincount_shape(rows: Any, size_at: int) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        size, leading = _columns(c, size_at), rows(c)
        return [None if leading is None else (*leading, size)]

    return rule


# The oracles' form of the inputs: for each row a list of pairs of an integer and its weight.


def _pairs_dense(values: Any, weights: Any) -> list[list[Any]]:
    values = np.atleast_1d(values)
    weights = weights if weights.size else np.ones(values.shape, weights.dtype)
    if values.ndim == 1:
        values, weights = values[None], weights[None]
    return [list(zip(v.tolist(), w.tolist())) for v, w in zip(values, weights)]


def _pairs_sparse(indices: Any, values: Any, dense_shape: Any, weights: Any) -> list[list[Any]]:
    weights = weights if weights.size else np.ones(values.shape, weights.dtype)
    rows: list[list[Any]] = [[] for _ in range(int(dense_shape[0]) if len(dense_shape) > 1 else 1)]
    for at, v, w in zip(indices.tolist(), values.tolist(), weights.tolist()):
        rows[at[0] if len(dense_shape) > 1 else 0].append((v, w))
    return rows


def _pairs_ragged(splits: Any, values: Any, weights: Any) -> list[list[Any]]:
    weights = weights if weights.size else np.ones(values.shape, weights.dtype)
    pairs = list(zip(values.tolist(), weights.tolist()))
    return [pairs[a:b] for a, b in itertools.pairwise(splits)]


def _vector(inputs: Sequence[Any]) -> bool:
    """Whether the first inputs of a case are a vector."""
    return len(inputs[2]) == 1 if len(inputs) == 3 else len(inputs) == 1 and inputs[0].ndim < 2


def _bincount_model(pairs: Any) -> Any:
    def model(*inputs: Any, binary_output: bool = False) -> np.ndarray:
        *found, size, weights = inputs
        rows = pairs(*found, weights)
        out = np.zeros((len(rows), int(size)), weights.dtype)
        for i, row in enumerate(rows):
            for v, w in row:
                if v < size:
                    out[i, v] = 1 if binary_output else out[i, v] + w
        return out[0] if _vector(found) else out

    return model


def _some(form: str, rng: np.random.Generator, t: np.dtype) -> list[tuple[Any, ...]]:
    """Sample inputs of dtype `t` in one of the three forms: dense, sparse or ragged."""
    values = rng.integers(0, 6, 6).astype(t)
    if form == "Dense":
        return [(values,), (values.reshape(2, 3),), (values[:0].reshape(2, 0),)]
    if form == "Sparse":
        at = np.array([[0, 1], [0, 3], [1, 0], [1, 2], [1, 4], [3, 0]])
        return [(np.arange(6)[:, None], values, np.array([7])), (at, values, np.array([4, 5]))]
    return [(np.array([0, 2, 2, 6]), values), (np.array([0]), values[:0])]


def _bincounts(form: str, with_binary: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        """Sample calls; `dtype` is that of the integers, or without `form` of the weights."""
        kinds = [float32, int32] if form else [dtype]
        out = []
        for inputs in _some(form or "Dense", rng, (dtype if form else int32).numpy):
            values = inputs[min(1, len(inputs) - 1)]
            size = np.asarray(5, values.dtype)
            for t in kinds:
                out.append(case(*inputs, size, draw(rng, t, values.shape)))
                out.append(
                    case(*inputs, size, np.zeros(0, t.numpy), **({"binary_output": True} if with_binary else {}))
                )
        return out if dtype is int32 or dtype is float32 else out[:2]

    return sample


_BINNED = Facts(dynamic_shape=True, cost=flops_per_input(6))

op(
    "Bincount",
    "arr: int32, size: int32, weights: T",
    "bins: T",
    {"T": _COUNTED},
    shape=lambda c: [(_columns(c, 1),)],
    kernel=_bincount_kernel(lambda arr: _dense(arr.reshape(-1))),
    xp=False,
    grad=_WEIGHTED,
    facts=_BINNED,
    oracle=lambda arr, size, weights: _bincount_model(_pairs_dense)(arr.ravel(), size, weights.ravel()),
    sample=_bincounts("", False),
    doc="The number of occurrences in `arr` of each integer below `size`, or the sum of their weights.",
)
for _form, _rows, _pairs in (
    ("Dense", _dense_rows, _pairs_dense),
    ("Sparse", _sparse_rows, _pairs_sparse),
    ("Ragged", _ragged_rows, _pairs_ragged),
):
    _ins, _read = _ROWS[_form]
    _ins = _ins.replace("values: T", "input: Tidx" if _form == "Dense" else "values: Tidx")
    op(
        f"{_form}Bincount",
        f"{_ins}, size: Tidx, weights: T",
        "output: T",
        {"Tidx": INDEX, "T": _COUNTED, "binary_output": False},
        shape=_bincount_shape(_rows, _ins.count(":")),
        kernel=_bincount_kernel(_read),
        xp=False,
        grad=_WEIGHTED,
        facts=_BINNED,
        oracle=_bincount_model(_pairs),
        sample=_bincounts(_form, True),
        differs="A negative integer in a sparse matrix is an error; TensorFlow writes outside of its output."
        if _form == "Sparse"
        else "",
        doc="How often each integer below `size` occurs in each row, or the sums of the weights there; with "
        "`binary_output`, 1 if it occurs.",
    )


# *** counts of the distinct integers ***


def _listed(values: Any, rows: Any, weights: Any, binary: bool, dtype: DType) -> tuple[Any, Any, Any]:
    """Sorted distinct integers of each row, their row numbers, and their counts or weights."""
    order = np.lexsort((values, rows))
    values, rows = values[order], rows[order]
    new = np.ones(len(values), bool)
    new[1:] = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
    starts = np.flatnonzero(new)
    if binary or not starts.size:
        sums = np.ones(len(starts), dtype.numpy)
    elif weights.size:
        sums = np.add.reduceat(weights.reshape(-1)[order], starts, dtype=dtype.numpy)
    else:
        sums = np.diff(starts, append=len(values)).astype(dtype.numpy)
    return values[starts], rows[starts], sums


def _count_kernel(form: str) -> Any:
    read = _ROWS[form][1]

    def factory(attrs: Mapping[str, Any]) -> Any:
        low, high = attrs["minlength"], attrs["maxlength"]
        binary, dtype = attrs["binary_output"], attrs["output_type"]

        def kernel(*inputs: Any) -> Any:
            *found, weights = inputs
            if form == "Dense" and not found[0].ndim:
                raise InvalidArgumentError("Input must be a 1 or 2-dimensional tensor. Got: a scalar")
            values, rows, n = read(*found)
            if n == 0 and form != "Dense":
                raise InvalidArgumentError("Must provide at least one row of values (a split after the first one)")
            given = found[0 if form == "Dense" else 1]
            if weights.size and weights.shape != given.shape:
                raise InvalidArgumentError(
                    "Weights and values must have the same shape. "
                    f"Weight shape: {shapes.show(weights.shape)}; values shape: {shapes.show(given.shape)}"
                )
            _check_values(values, weights)
            width = high if high >= 0 else max(int(values.max(initial=0)) + 1, low)
            if high >= 0:
                kept = values < high
                values, rows, weights = values[kept], rows[kept], weights.reshape(-1)[kept] if weights.size else weights
            numbers, of, sums = _listed(values, rows, weights, binary, dtype)
            numbers = numbers.astype(np.int64)
            if n is None:
                return numbers[:, None], sums, np.array([width], np.int64)
            return np.stack([of, numbers], axis=1), sums, np.array([n, width], np.int64)

        return kernel

    return factory


def _count_shape(rank: Any) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        r = rank(c)
        return [(None, r), (None,), (r,)]

    return rule


def _count_model(pairs: Any) -> Any:
    def model(
        *inputs: Any, binary_output: bool, output_type: DType, minlength: int = -1, maxlength: int = -1
    ) -> tuple[Any, ...]:
        *found, weights = inputs
        rows = pairs(*found, weights)
        alone = _vector(found)
        indices, sums = [], []
        for i, row in enumerate(rows):
            total: Counter[int] = Counter()
            for v, w in row:
                total[v] += w
            for v in sorted(total):
                if maxlength < 0 or v < maxlength:
                    indices.append([v] if alone else [i, v])
                    sums.append(1 if binary_output else total[v])
        longest = max((v + 1 for row in rows for v, _ in row), default=1)
        width = maxlength if maxlength >= 0 else max(longest, minlength)
        rank = 1 if alone else 2
        return (
            np.array(indices, np.int64).reshape(-1, rank),
            np.array(sums, output_type.numpy),
            np.array([width] if alone else [len(rows), width], np.int64),
        )

    return model


def _counts(form: str) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for inputs in _some(form, rng, dtype.numpy):
            values = inputs[min(1, len(inputs) - 1)]
            if form == "Ragged" and not values.size:
                continue
            weights, none = draw(rng, float32, values.shape), np.zeros(0, np.int64)
            out += [
                case(*inputs, weights, binary_output=False, output_type=float32),
                case(*inputs, none, binary_output=True, minlength=9, output_type=int64),
                case(*inputs, weights, binary_output=False, maxlength=3, output_type=float32),
            ]
        return out

    return sample


def _sparse_rank(c: Inference) -> Dim:
    shapes.with_rank(c.shapes[0], 2)
    (n,) = shapes.with_rank(c.shapes[2], 1)
    return None if n is None else min(n, 2)


for _form, _rank, _pairs in (
    ("Dense", lambda c: None if c.shapes[0] is None else len(c.shapes[0]), _pairs_dense),
    ("Sparse", _sparse_rank, _pairs_sparse),
    ("Ragged", lambda c: 2, _pairs_ragged),
):
    op(
        f"{_form}CountSparseOutput",
        f"{_ROWS[_form][0]}, weights: output_type",
        "output_indices: int64, output_values: output_type, output_dense_shape: int64",
        {
            "T": INDEX,
            "minlength": int_attr(-1, minimum=-1),
            "maxlength": int_attr(-1, minimum=-1),
            "binary_output": bool_attr(),
            "output_type": type_attr(_COUNTED),
        },
        shape=_count_shape(_rank),
        kernel=_count_kernel(_form),
        xp=False,
        grad=_WEIGHTED,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(20)),
        oracle=_count_model(_pairs),
        sample=_counts(_form),
        doc="The distinct integers of each row with their counts or sums of weights, as a sparse tensor.",
    )


# *** intervals ***


def _bucketize_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    boundaries = np.array(attrs["boundaries"], np.float32)
    if (boundaries[1:] < boundaries[:-1]).any():
        raise InvalidArgumentError("Expected sorted boundaries")
    if is_standard(xp):
        dtype = float64 if attrs["T"] is float64 else float32
        to_float, to_int32, numbers = converter(xp, dtype), converter(xp, int32), boundaries.tolist()
        return lambda x: to_int32(xp.searchsorted(constant(xp, numbers, dtype, x), to_float(x), side="right"))

    def kernel(x: Any) -> Any:
        # integers are compared in float32, the dtype of the boundaries
        seen = x.astype(np.float32) if x.dtype.kind == "i" else x
        return np.asarray(np.searchsorted(boundaries, seen, "right")).astype(np.int32)

    return kernel


def _bucketize_model(x: np.ndarray, boundaries: Sequence[float]) -> np.ndarray:
    found = [sum(float(v) >= float(np.float32(b)) for b in boundaries) for v in x.ravel()]
    return np.array(found, np.int32).reshape(x.shape)


op(
    "Bucketize",
    "input: T",
    "output: int32",
    {"T": _COUNTED, "boundaries": list_attr("float")},
    shape=lambda c: [c.shapes[0]],
    kernel=_bucketize_kernel,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=first_in_step(0),
    facts=Facts(cost=flops_per_input(8)),
    oracle=_bucketize_model,
    sample=lambda rng, dtype: [
        case(draw(rng, dtype, s, -5, 5), boundaries=b)
        for s, b in (((3, 4), (-2.5, 0.0, 0.0, 2.0)), ((), ()), ((0,), (1.0,)))
    ],
    doc="The interval of each element: the number of boundaries that are not above it.",
)


def _histogram_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype, is_float = attrs["dtype"], attrs["T"].is_floating
    histogram, to_float64, reshape = _counts_of_numbers(xp, dtype), converter(xp, float64), reshaper(xp)

    def kernel(values: Any, value_range: Any, nbins: Any) -> Any:
        if value_range.shape != (2,):
            raise InvalidArgumentError(
                f"value_range should be a vector of 2 elements, got the shape {shapes.show(value_range.shape)}"
            )
        if nbins.ndim:
            raise InvalidArgumentError(f"nbins should be a scalar, got the shape {shapes.show(nbins.shape)}")
        n = int(nbins)
        low, high = map(float if is_float else int, (value_range[0], value_range[1]))
        if not low < high:
            ends = ", ".join(str(attrs["T"].numpy.type(x)) for x in (low, high))
            raise InvalidArgumentError(
                f"value_range should satisfy value_range[0] < value_range[1], but got '[{ends}]'"
            )
        if n <= 0:
            raise InvalidArgumentError(f"nbins should be a positive number, but got '{n}'")
        check_size((n,), dtype)
        if is_float and is_near(values) and any_true(xp, xp.isnan(values)):
            raise InvalidArgumentError("Histogram values must not contain NaN")
        step = (high - low) / n
        # clipping first avoids overflow; a value at the upper end is in the last interval, also where ∞/∞ makes it NaN
        clipped = xp.clip(reshape(values, (-1,)), low, high)
        return histogram((to_float64(clipped) - low) / step, n)

    return kernel


def _counts_of_numbers(xp: Any, dtype: DType) -> Any:
    """The function `(positions, n)` that counts the positions in each of n intervals.

    A position is in the interval of its whole part; those behind the last interval, and NaN, are in the last one.
    """
    convert, to_int64 = converter(xp, dtype), converter(xp, int64)
    if xp is np:
        return lambda at, n: convert(np.bincount(to_int64(np.fmin(at, n - 1)), minlength=n))

    def by_sorting(at: Any, n: int) -> Any:
        last = xp.where(at < n - 1, at, n - 1.0)
        ends = xp.searchsorted(xp.sort(to_int64(last)), xp.arange(n + 1, dtype=dtype_in(xp, int64), **placed(xp, at)))
        return convert(ends[1:] - ends[:-1])

    return by_sorting


def _histogram_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 1)
    n = c.scalar(2)
    if n is not None and n <= 0:
        raise ValueError(f"Requires nbins > 0, got {n}")
    return [(n,)]


def _histogram_model(values: np.ndarray, value_range: np.ndarray, nbins: Any) -> np.ndarray:
    low, high = map(float, value_range)
    n = int(nbins)
    out = np.zeros(n, np.int32)
    for v in values.ravel():
        out[min(max(int((float(v) - low) / (high - low) * n), 0), n - 1)] += 1
    return out


op(
    "HistogramFixedWidth",
    "values: T, value_range: T, nbins: int32",
    "out: dtype",
    {"T": _COUNTED, "dtype": type_attr(INDEX, int32)},
    shape=_histogram_shape,
    kernel=_histogram_kernel,
    xp=True,
    host=("value_range", "nbins"),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(10)),
    oracle=_histogram_model,
    sample=lambda rng, dtype: [
        case(draw(rng, dtype, s, -9, 9), np.array(r, dtype.numpy), np.int32(n))
        for s, r, n in (((20,), (-5, 5), 4), ((2, 3), (0, 3), 7), ((0,), (0, 1), 2))
    ],
    doc="The number of values in each of `nbins` equal intervals; values out of range count in the outer ones.",
)
