"""Ops that find elements by value: Where, Unique*, ListDiff, LowerBound, UpperBound.

Source: TensorFlow's ops of the same names. Ops that find them by rank are in `ranking`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import COMPLEX, FLOATING, INDEX, NUMERIC, REAL, VALUE, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    Sample,
    case,
    flops_per_input,
    missing,
    op,
    type_attr,
)
from headrace.opkit.arrays import axis_in, values_only
from headrace.opkit.batch_rules import folding
from headrace.opkit.elementwise import HALF
from headrace.opkit.namespaces import converter, dtype_in, integers
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape

_ARBITRARY = missing(
    "a result may come from any of several equal elements; gather it by its index (GatherV2), and compute the index "
    "by this op on hr.stop_gradient of the tensor"
)
_INDEX = type_attr(INDEX, dtypes.int32)
_OPEN = Facts(dynamic_shape=True, cost=flops_per_input(20))


def _where_shape(c: Inference) -> Sequence[Shape]:
    return [(None, None if c.shapes[0] is None else len(c.shapes[0]))]


def _where_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    to_int64 = converter(xp, dtypes.int64)
    find: Any = np.argwhere if xp is np else lambda x: xp.stack(xp.nonzero(x), axis=-1)

    def kernel(x: Any) -> Any:
        if not x.ndim:
            raise InvalidArgumentError("WhereOp : Unhandled input dimensions: 0")
        return to_int64(find(x))

    return kernel


def _where_model(x: np.ndarray) -> np.ndarray:
    found = [at for at in np.ndindex(x.shape) if x[at] != 0]
    return np.array(found, np.int64).reshape(len(found), x.ndim)


op(
    "Where",
    "input: T",
    "index: int64",
    {"T": type_attr(NUMERIC | {dtypes.bool_}, dtypes.bool_)},
    shape=_where_shape,
    kernel=_where_kernel,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_OPEN,
    oracle=_where_model,
    sample=lambda rng, dtype: [case(draw(rng, dtype, s, -1, 2)) for s in ((4,), (2, 3), (0, 2), (2, 1, 2))],
    doc="The positions of the nonzero elements, one in each row.",
)

# *** Unique, ListDiff ***


def _hashable(x: Any) -> list[Any]:
    """Rows of `x` as keys of a dict; NaNs are distinct keys."""
    if x.ndim == 1:
        keys: list[Any] = x.tolist()
        return keys
    return [tuple(row.ravel().tolist()) for row in x]


def _unique(x: Any, index: np.dtype) -> tuple[Any, Any, Any]:
    """Distinct rows of `x` in order of first appearance, with indices and counts.

    Returns the distinct rows, for each row of `x` the index of its distinct row, and the number of occurrences of each.
    """
    numbers: dict[Any, int] = {}
    which = [numbers.setdefault(key, len(numbers)) for key in _hashable(x)]
    first = np.full(len(numbers), len(x), np.int64)
    np.minimum.at(first, which, np.arange(len(x)))
    counts = np.bincount(which, minlength=len(numbers)) if which else np.zeros(0)
    return x[first], np.array(which, index), counts.astype(index)


def _portable_unique(xp: Any, attrs: Mapping[str, Any]) -> Callable[[Any], tuple[Any, Any, Any]]:
    """Returns a function like `_unique`, by functions of the standard.

    Equal rows are neighbours once they are sorted.
    """
    t, to_index, to_int64 = attrs["T"], converter(xp, attrs["out_idx"]), converter(xp, dtypes.int64)
    sortable: Any = converter(xp, dtypes.uint8) if t is dtypes.bool_ else lambda x: x

    def unique(x: Any) -> tuple[Any, Any, Any]:
        n, width = x.shape[0], math.prod(x.shape[1:])
        rows = sortable(xp.reshape(x, (n, width)))
        order = xp.arange(n, dtype=xp.int64, device=x.device)
        for part in (xp.real(rows), xp.imag(rows)) if t in COMPLEX else (rows,):
            for j in range(width):
                order = xp.take(order, xp.argsort(xp.take(part[:, j], order), stable=True))
        is_first = xp.ones((n,), dtype=xp.bool, device=x.device)
        if n:
            rows = xp.take(rows, order, axis=0)
            is_first[1:] = xp.any(rows[1:, :] != rows[:-1, :], axis=1)
        starts = xp.nonzero(is_first)[0]
        first = xp.take(order, starts)  # of equal rows: the sorts are stable
        appearance = xp.argsort(first)
        number = xp.take(xp.argsort(appearance), xp.cumulative_sum(to_int64(is_first)) - 1)
        ends = xp.concat([starts, xp.full((1,), n, dtype=starts.dtype, device=x.device)])[1:]
        return (
            xp.take(x, xp.take(first, appearance), axis=0),
            to_index(xp.take(number, xp.argsort(order))),
            to_index(xp.take(ends - starts, appearance)),
        )

    return unique


def _unique_kernel(with_counts: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        index = attrs["out_idx"].numpy
        unique: Any = (lambda x: _unique(x, index)) if xp is np else _portable_unique(xp, attrs)

        def kernel(x: Any, axis: Any = None) -> Any:
            if axis is None or 0 in axis.shape:
                if x.ndim != 1 or (axis is not None and axis.ndim != 1):
                    raise InvalidArgumentError(f"unique expects a 1D vector, got shape {shapes.show(x.shape)}")
                y, which, counts = unique(x)
            else:
                if axis.shape != (1,):
                    raise InvalidArgumentError(
                        f"axis must be a vector of at most one element, got {list(integers(axis))}"
                    )
                at = axis_in(int(axis[0]), x.ndim)
                y, which, counts = unique(xp.moveaxis(x, at, 0))
                y = xp.moveaxis(y, 0, at)
            return (y, which, counts) if with_counts else (y, which)

        return kernel

    return factory


def _unique_shape(with_axis: bool, with_counts: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        counts = [(None,)] if with_counts else []
        if not with_axis:
            return [(None,), shapes.with_rank(c.shapes[0], 1), *counts]
        (n,), axis, x = shapes.with_rank(c.shapes[1], 1), c.axes(1), c.shapes[0]
        if n == 0:
            return [(None,), shapes.with_rank(x, 1), *counts]
        if x is None or not axis:
            return [None if x is None else (None,) * len(x), (None,), *counts]
        at = axis_in(axis[0], len(x))
        return [(*x[:at], None, *x[at + 1 :]), (x[at],), *counts]

    return rule


def _unique_model(with_counts: bool) -> Any:
    def model(x: np.ndarray, axis: Any = ()) -> tuple[np.ndarray, ...]:
        at = int(axis[0]) if len(axis) else 0
        rows = [x.take(i, at) for i in range(x.shape[at])]
        places: list[int] = []
        which = []
        for i, row in enumerate(rows):
            same = [k for k, p in enumerate(places) if np.array_equal(rows[p], row)]
            if not same:
                places.append(i)
            which.append(same[0] if same else len(places) - 1)
        out = (x.take(places, at), np.array(which, np.int32))
        return (*out, np.array([which.count(k) for k in range(len(places))], np.int32)) if with_counts else out

    return model


@values_only
def _with_repeats(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, (n,), -2, 3)) for n in (9, 1, 0)]


@values_only
def _with_axis(rng: np.random.Generator, dtype: DType) -> list[Any]:
    rows = draw(rng, dtype, (2, 3))[[0, 1, 1, 0]]
    return [
        case(draw(rng, dtype, (6,), -2, 3), np.array([], np.int64)),
        case(rows, np.array([0], np.int32)),
        case(rows.T, np.array([-1], np.int64)),
    ]


for _axis in (False, True):
    for _counts in (False, True):
        op(
            f"Unique{'WithCounts' if _counts else ''}{'V2' if _axis else ''}",
            "x: T, axis: Taxis" if _axis else "x: T",
            "y: T, idx: out_idx, count: out_idx" if _counts else "y: T, idx: out_idx",
            {
                "T": type_attr(VALUE),
                **({"Taxis": type_attr(INDEX, dtypes.int64)} if _axis else {}),
                "out_idx": _INDEX,
            },
            shape=_unique_shape(_axis, _counts),
            kernel=_unique_kernel(_counts),
            xp=True,
            host=("axis",) if _axis else (),
            grad=_ARBITRARY,
            facts=_OPEN,
            oracle=_unique_model(_counts),
            sample=_with_axis if _axis else _with_repeats,
            doc="The distinct elements (or slices along an axis) in order of appearance, and which of them each one is"
            + (", and how often each occurs." if _counts else "."),
        )


def _list_diff_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    index = attrs["out_idx"].numpy
    among = _membership(xp, attrs["T"]) if xp is not np else None
    to_index = converter(xp, attrs["out_idx"])

    def kernel(x: Any, y: Any) -> Any:
        if x.ndim != 1 or y.ndim != 1:
            raise InvalidArgumentError(
                f"x and y should be 1D vectors, got shapes {shapes.show(x.shape)} and {shapes.show(y.shape)}"
            )
        if among is not None:
            wanted = ~among(x, y)
            return x[wanted], to_index(xp.nonzero(wanted)[0])
        unwanted = set(_hashable(y))
        left = [i for i, key in enumerate(_hashable(x)) if key not in unwanted]
        return x[left], np.array(left, index)

    return kernel


def _membership(xp: Any, t: DType) -> Callable[[Any, Any], Any]:
    """Returns a function that finds which elements of a vector are in another one.

    NaN never is.
    """
    if t in COMPLEX:
        return lambda x, y: xp.any(x[:, None] == y[None, :], axis=1)
    sortable = converter(xp, dtypes.uint8) if t is dtypes.bool_ else lambda x: x

    def among(x: Any, y: Any) -> Any:
        x, y = sortable(x), sortable(y)
        y = xp.sort(y[y == y])
        if not y.shape[0]:
            return xp.zeros(x.shape, dtype=xp.bool, device=x.device)
        at = xp.searchsorted(y, x)
        return xp.take(y, xp.where(at < y.shape[0], at, 0)) == x

    return among


def _list_diff_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes:
        shapes.with_rank(s, 1)
    return [(None,), (None,)]


def _list_diff_model(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = np.array([i for i in range(len(x)) if not any(x[i] == v for v in y)], np.int32)
    return x[left], left


op(
    "ListDiff",
    "x: T, y: T",
    "out: T, idx: out_idx",
    {"T": type_attr(VALUE), "out_idx": _INDEX},
    shape=_list_diff_shape,
    kernel=_list_diff_kernel,
    xp=True,
    grad=_ARBITRARY,
    facts=_OPEN,
    oracle=_list_diff_model,
    sample=values_only(
        lambda rng, dtype: [
            case(draw(rng, dtype, (n,), -2, 3), draw(rng, dtype, (m,), -2, 3)) for n, m in ((7, 2), (3, 0), (0, 2))
        ]
    ),
    doc="The elements of `x` that are not in `y`, in order, and their indices in `x`.",
)

# *** LowerBound, UpperBound ***


def _bound_kernel(side: Any) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t, to_out = attrs["T"], converter(xp, attrs["out_type"])
        sortable = converter(xp, dtypes.float32) if t in HALF else lambda x: x  # numpy sorts no NaN of bfloat16 last
        if xp is not np and t is dtypes.bool_:
            sortable = converter(xp, dtypes.uint8)
        search: Any = lambda row, v: xp.searchsorted(row, v, side=side)
        if xp is not np and t in FLOATING | COMPLEX:
            search = (_search_numbers if t in FLOATING else _count_before)(xp, side)

        def kernel(rows: Any, values: Any) -> Any:
            if rows.ndim != 2 or values.ndim != 2 or rows.shape[0] != values.shape[0]:
                raise InvalidArgumentError(
                    "sorted_inputs and values must be matrices. Leading dim_size of both tensors must match: got "
                    f"{shapes.show(rows.shape)} and {shapes.show(values.shape)}"
                )
            rows, values = sortable(rows), sortable(values)
            if not rows.shape[0]:
                return xp.zeros(values.shape, dtype=dtype_in(xp, attrs["out_type"]), device=values.device)
            found = xp.stack([search(rows[i, :], values[i, :]) for i in range(rows.shape[0])])
            if side == "left":  # nothing is less than NaN, which is sorted last instead
                found = xp.where(values == values, found, 0)
            return to_out(found)

        return kernel

    return factory


def _search_numbers(xp: Any, side: Any) -> Callable[[Any, Any], Any]:
    """Returns numpy's `searchsorted` of floats, for which NaN is greater than all numbers."""

    def search(row: Any, values: Any) -> Any:
        is_none, n = xp.isnan(values), row.shape[0]
        found = xp.searchsorted(xp.where(xp.isnan(row), math.inf, row), xp.where(is_none, 0.0, values), side=side)
        numbers = xp.count_nonzero(~xp.isnan(row))
        return xp.where(is_none, n, xp.where(found < numbers, found, numbers))

    return search


def _count_before(xp: Any, side: Any) -> Callable[[Any, Any], Any]:
    """Returns a function like `searchsorted` for complex numbers, which the standard does not sort."""

    def search(row: Any, values: Any) -> Any:
        x, v = row[None, :], values[:, None]
        tie, real, imag = xp.real(x) == xp.real(v), xp.real(x) < xp.real(v), xp.imag(x) < xp.imag(v)
        before = real | (tie & (imag if side == "left" else xp.imag(x) <= xp.imag(v)))
        return xp.count_nonzero(before, axis=1)

    return search


def _bound_shape(c: Inference) -> Sequence[Shape]:
    rows, values = shapes.with_rank(c.shapes[0], 2), shapes.with_rank(c.shapes[1], 2)
    return [(shapes.merge_dim(rows[0], values[0]), values[1])]


def _bounds(allowed: frozenset[DType]) -> Sample:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        if dtype not in allowed:
            return []
        return [
            case(np.sort(draw(rng, dtype, (n, k)), axis=1), draw(rng, dtype, (n, m)))
            for n, k, m in ((1, 5, 4), (3, 4, 2), (2, 0, 2), (1, 3, 0))
        ]

    return sample


def _bound_model(less: Callable[[Any, Any], bool]) -> Any:
    def model(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        found = [[sum(bool(less(x, v)) for x in row) for v in vs] for row, vs in zip(rows, values)]
        return np.array(found, np.int32).reshape(values.shape)

    return model


for _name, _side, _less in (
    ("LowerBound", "left", lambda x, v: x < v),
    ("UpperBound", "right", lambda x, v: x <= v),
):
    op(
        _name,
        "sorted_inputs: T, values: T",
        "output: out_type",
        {"T": type_attr(VALUE), "out_type": _INDEX},
        shape=_bound_shape,
        kernel=_bound_kernel(_side),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        batch=folding(0, 1),
        facts=Facts(cost=flops_per_input(2)),
        oracle=_bound_model(_less),
        sample=_bounds(REAL),
        doc=f"The {'first' if _side == 'left' else 'last'} place at which each value could enter a sorted row.",
    )
