"""Ops that find elements by value: Where, Unique*, ListDiff, LowerBound, UpperBound.

Source: TensorFlow's ops of the same names. Ops that find them by rank are in `ranking`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, NUMERIC, REAL, VALUE, DType
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
    def kernel(x: Any) -> Any:
        if not x.ndim:
            raise InvalidArgumentError("WhereOp : Unhandled input dimensions: 0")
        return xp.argwhere(x).astype(np.int64, copy=False)

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


def _unique_kernel(with_axis: bool, with_counts: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        index = attrs["out_idx"].numpy

        def kernel(x: Any, axis: Any = None) -> Any:
            if axis is None or axis.size == 0:
                if x.ndim != 1 or (axis is not None and axis.ndim != 1):
                    raise InvalidArgumentError(f"unique expects a 1D vector, got shape {shapes.show(x.shape)}")
                y, which, counts = _unique(x, index)
            else:
                if axis.shape != (1,):
                    raise InvalidArgumentError(f"axis must be a vector of at most one element, got {axis.tolist()}")
                at = axis_in(int(axis[0]), x.ndim)
                y, which, counts = _unique(np.moveaxis(x, at, 0), index)
                y = np.moveaxis(y, 0, at)
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
            kernel=_unique_kernel(_axis, _counts),
            grad=_ARBITRARY,
            facts=_OPEN,
            oracle=_unique_model(_counts),
            sample=_with_axis if _axis else _with_repeats,
            doc="The distinct elements (or slices along an axis) in order of appearance, and which of them each one is"
            + (", and how often each occurs." if _counts else "."),
        )


def _list_diff_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    index = attrs["out_idx"].numpy

    def kernel(x: Any, y: Any) -> Any:
        if x.ndim != 1 or y.ndim != 1:
            raise InvalidArgumentError(
                f"x and y should be 1D vectors, got shapes {shapes.show(x.shape)} and {shapes.show(y.shape)}"
            )
        unwanted = set(_hashable(y))
        left = [i for i, key in enumerate(_hashable(x)) if key not in unwanted]
        return x[left], np.array(left, index)

    return kernel


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
        out = attrs["out_type"].numpy

        def kernel(rows: Any, values: Any) -> Any:
            if rows.ndim != 2 or values.ndim != 2 or len(rows) != len(values):
                raise InvalidArgumentError(
                    "sorted_inputs and values must be matrices. Leading dim_size of both tensors must match: got "
                    f"{shapes.show(rows.shape)} and {shapes.show(values.shape)}"
                )
            if rows.dtype.kind == "V":  # bfloat16: numpy does not sort its NaNs last
                rows, values = rows.astype(np.float32), values.astype(np.float32)
            found = [np.searchsorted(r, v, side) for r, v in zip(rows, values)]
            if side == "left":  # nothing is less than NaN; numpy sorts it last instead
                found = [np.where(v == v, f, 0) for f, v in zip(found, values)]
            return np.array(found, out).reshape(values.shape)

        return kernel

    return factory


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
        grad=NOT_DIFFERENTIABLE,
        batch=folding(0, 1),
        facts=Facts(cost=flops_per_input(2)),
        oracle=_bound_model(_less),
        sample=_bounds(REAL),
        doc=f"The {'first' if _side == 'left' else 'last'} place at which each value could enter a sorted row.",
    )
