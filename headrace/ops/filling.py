"""Ops that create arrays of a given shape: Fill, ZerosLike, OnesLike, Empty, Range, LinSpace, OneHot.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.dtypes import FLOATING, INDEX, INTEGER, NUMERIC, VALUE, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, type_attr
from headrace.opkit import forms, order_forms
from headrace.opkit.arrays import (
    axis_in,
    boxed,
    check_size,
    dims,
    entries,
    placed,
    scalar,
    shape_from,
    values_only,
    vector_of_unknowns,
    zeros,
)
from headrace.opkit.batch_rules import in_step
from headrace.opkit.batch_shapes import fill, one_hot
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, dtype_in, integers, is_standard, number
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape

_INDEX = type_attr(INDEX, dtypes.int32)


def _full(xp: Any, shape: tuple[int, ...], value: Any, dtype: DType) -> Any:
    """An array filled with one value; if large, a view of one element."""
    check_size(shape, dtype)
    if xp is not np or dtype in dtypes.OBJECT or math.prod(shape) > thresholds.WRITTEN_FILL_ELEMENTS:
        return xp.broadcast_to(value, shape)
    return xp.full(shape, value, dtype.numpy)


def _fill_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(shape: Any, value: Any) -> Any:
        sizes = dims(shape) if shape.ndim else integers(shape)  # the form in old graphs
        return _full(xp, sizes, scalar(value, "value"), dtype)

    return kernel


def _fill_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    v = c.value(0)
    if v is not None and v.size and v.min() < 0:
        raise ValueError(f"Fill dimensions must be >= 0, got {v.tolist()}")
    return [shape_from(c, 0)]


def _fill_value(c: Inference) -> Shape:
    shape, value = c.op.outputs[0].shape, c.shape_value(1)
    unknown = vector_of_unknowns(c, shape)
    return unknown if unknown is None or value is None else value * len(unknown)


def _all_axes(b: Any, x: Any) -> Any:
    if x.shape is not None:
        return b.const(np.arange(len(x.shape), dtype=np.int32))
    return b.Range(0, b.Rank(x), 1)


@values_only
def _likes(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s)) for s in ((), (3,), (2, 1, 3), (0, 2))]


@values_only
def _fills(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(np.array(s, np.int32), draw(rng, dtype, ())) for s in ((2, 3), (), (0, 2), (5000,))]


op(
    "Fill",
    "dims: index_type, value: T",
    "output: T",
    {"T": type_attr(), "index_type": _INDEX},
    shape=_fill_shape,
    kernel=boxed(_fill_kernel),
    xp=True,
    host=("dims",),
    grad=lambda b, n, dy: [None, b.Sum(dy, _all_axes(b, dy), keep_dims=False)],
    jvp=linear("value"),
    batch=fill,
    form=order_forms.fill,
    facts=Facts(total=("dims",), dynamic_shape=True),
    shape_value=_fill_value,
    oracle=lambda s, v: np.array([v[()]] * int(np.prod(s)), v.dtype).reshape(s),
    sample=_fills,
    doc="An array of shape `dims` whose elements are all `value`.",
)


def _constant_like(n: int) -> Any:
    """A kernel factory for ZerosLike (0) and OnesLike (1)."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        dtype = attrs["T"]
        if dtype is dtypes.variant:
            return lambda x: np.frompyfunc(lambda v: None if v is None else v.zeros_like(), 1, 1)(x)
        if dtype in dtypes.OBJECT:
            return lambda x: zeros(xp, x.shape, dtype)
        if is_standard(xp):
            return xp.ones_like if n else xp.zeros_like
        scalar = dtype.numpy.type(n)
        make = xp.ones if n else xp.zeros
        return lambda x: make(x.shape, dtype.numpy) if x.ndim else scalar

    return factory


op(
    "ZerosLike",
    "x: T",
    "y: T",
    {"T": type_attr()},
    shape=same_as(0),
    kernel=boxed(_constant_like(0)),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=in_step,
    facts=Facts(shape_only=True, total=()),
    oracle=lambda x: np.full(x.shape, b"" if x.dtype == object else 0, x.dtype),
    sample=_likes,
    doc="Zeros of the shape and type of the input (empty strings; a list of zeros).",
)
op(
    "OnesLike",
    "x: T",
    "y: T",
    {"T": NUMERIC | {dtypes.bool_}},
    shape=same_as(0),
    kernel=_constant_like(1),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=in_step,
    facts=Facts(shape_only=True, total=()),
    oracle=lambda x: np.full(x.shape, 1, x.dtype),
    sample=_likes,
    doc="Ones of the shape and type of the input.",
)
op(
    "Empty",
    "shape: int32",
    "output: dtype",
    {"dtype": type_attr(), "init": False},
    shape=lambda c: [shape_from(c, 0)],
    kernel=boxed(lambda xp, attrs: lambda shape: zeros(xp, dims(shape), attrs["dtype"], shape)),
    xp=True,
    host=("shape",),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    oracle=lambda s, dtype, **_: np.full(s, b"" if dtype is dtypes.string else 0, dtype.numpy),
    sample=values_only(
        lambda rng, dtype: [case(np.array(s, np.int32), dtype=dtype) for s in ((2, 3), (), (0,))],
    ),
    doc="An array of the given shape; its elements are zeros, whether or not `init` asks for that.",
)


def _range_size(start: Any, limit: Any, delta: Any) -> int:
    """Number of elements of a Range.

    The arguments are Python ints, or numpy floats, in whose dtype the count is computed as in TensorFlow.
    """
    if delta == 0:
        raise ValueError(f"Requires delta != 0: {delta}")
    if delta > 0 and start > limit:
        raise ValueError(f"Requires start <= limit when delta > 0: {start}/{limit}")
    if delta < 0 and start < limit:
        raise ValueError(f"Requires start >= limit when delta < 0: {start}/{limit}")
    if isinstance(delta, int):
        return -((start - limit) // delta)
    with np.errstate(all="ignore"):
        n = float(np.ceil(np.abs((limit - start) / delta)))
    if not n < 2.0**63:
        raise ValueError(f"Requires ((limit - start) / delta) < 2**63: ({limit} - {start}) / {delta}")
    return int(n)


def _range_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes:
        shapes.with_rank(s, 0)
    if c.dtypes[0].base in INTEGER:
        values: list[Any] = [(entries(c, i) or [None])[0] for i in range(3)]
    else:
        values = [None if v is None else v[()] for v in map(c.value, range(3))]
    return [(None,)] if None in values else [(_range_size(*values),)]


def _range_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["Tidx"]
    is_integer = dtype in INTEGER
    convert, to = converter(xp, dtype), dtype_in(xp, dtype)

    def value(x: Any) -> Any:
        return x[()] if xp is np else dtype.numpy.type(float(x))

    def kernel(start: Any, limit: Any, delta: Any) -> Any:
        start, limit, delta = scalar(start, "start"), scalar(limit, "limit"), scalar(delta, "delta")
        like = placed(xp, start)
        if is_integer:
            a, z, step = int(start), int(limit), int(delta)
            n = _range_size(a, z, step)
            check_size((n,), dtype)
            if is_standard(xp) and dtype is not dtypes.uint64:  # some libraries refuse ends near those of int64
                return convert(xp.arange(n, dtype=xp.int64, **like) * step + a)
            return xp.arange(a, z, step, dtype=to, **like)
        n = _range_size(value(start), value(limit), value(delta))
        check_size((n,), dtype)
        if xp is not np:  # the scalars may be on the host
            start, delta = float(start), float(delta)
        return convert(xp.arange(n, **like)) * delta + start

    return kernel


def _range_sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
    ranges: list[tuple[float, float, float]] = [(0, 5, 1), (2, 9, 3), (1, 1, 2), (3, 4, 7)]
    if dtype not in dtypes.UNSIGNED:
        ranges += [(5, -2, -2), (-3, 0, 1)]
    if dtype in FLOATING:
        ranges += [(0.5, 2.75, 0.25), (1, -1, -0.5)]
    return [case(*(np.array(v, dtype.numpy) for v in r)) for r in ranges]


op(
    "Range",
    "start: Tidx, limit: Tidx, delta: Tidx",
    "output: Tidx",
    {"Tidx": type_attr(FLOATING | INTEGER - {dtypes.uint8}, dtypes.int32)},
    shape=_range_shape,
    kernel=_range_kernel,
    xp=True,
    host=("start", "limit", "delta"),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(2)),
    oracle=lambda a, z, d: np.arange(float(a), float(z), float(d)).astype(a.dtype),
    sample=_range_sample,
    doc="The numbers from `start` up to but excluding `limit`, in steps of `delta`.",
)


def _lin_space_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes:
        shapes.with_rank(s, 0)
    n = c.scalar(2)
    if n is not None and n <= 0:
        raise ValueError(f"Requires num > 0: {n}")
    return [(n,)]


def _lin_space_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]
    convert = converter(xp, dtype)

    def kernel(start: Any, stop: Any, num: Any) -> Any:
        if start.ndim or stop.ndim or num.ndim:
            got = ", ".join(shapes.show(x.shape) for x in (start, stop, num))
            raise InvalidArgumentError(f"start, stop and num must be scalars, got shapes {got}")
        n = int(num)
        if n <= 0:
            raise InvalidArgumentError(f"Requires num > 0: {n}")
        check_size((n,), dtype)
        if n == 1:
            return xp.reshape(start, (1,))
        step = (stop - start) / number(xp, n - 1, dtype)
        body = convert(xp.arange(n - 1, **placed(xp, start))) * step + start
        return xp.concat([body, xp.reshape(stop, (1,))])  # the last one is exactly `stop`

    return kernel


op(
    "LinSpace",
    "start: T, stop: T, num: Tidx",
    "output: T",
    {"T": FLOATING, "Tidx": _INDEX},
    shape=_lin_space_shape,
    kernel=_lin_space_kernel,
    xp=True,
    host=("num",),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(2)),
    oracle=lambda a, z, n: np.linspace(float(a), float(z), int(n)).astype(a.dtype),
    sample=lambda rng, dtype: [
        case(np.array(a, dtype.numpy), np.array(z, dtype.numpy), np.int32(n))
        for a, z, n in ((0, 4, 5), (1, 2, 3), (3, -1, 1), (2, -2, 2))
    ],
    doc="`num` evenly spaced numbers from `start` to `stop`, both included.",
)


def _one_hot_shape(c: Inference) -> Sequence[Shape]:
    depth, x = c.scalar(1), c.shapes[0]
    if depth is not None and depth < 0:
        raise ValueError(f"depth must be non-negative, got: {depth}")
    if x is None:
        return [None]
    at = axis_in(c.attrs["axis"], len(x) + 1)
    return [(*x[:at], depth, *x[at:])]


def _one_hot_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    axis, dtype = attrs["axis"], attrs["T"]

    def kernel(indices: Any, depth: Any, on: Any, off: Any) -> Any:
        if depth.ndim or on.ndim or off.ndim:
            got = ", ".join(shapes.show(x.shape) for x in (depth, on, off))
            raise InvalidArgumentError(f"depth, on_value and off_value must be scalars, got shapes {got}")
        n = int(depth)
        if n < 0:
            raise InvalidArgumentError(f"depth must be non-negative, got: {n}")
        at = axis_in(axis, indices.ndim + 1)
        shape = (*indices.shape[:at], n, *indices.shape[at:])
        check_size(shape, dtype)
        if xp is np and not indices.size:
            return zeros(xp, shape, dtype)
        places = xp.arange(n, **placed(xp, indices))[:, *[None] * (indices.ndim - at)]
        return xp.where(xp.expand_dims(indices, axis=at) == places, on, off)

    return kernel


@values_only
def _one_hots(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(indices: Any, index: Any, depth: int, **attrs: int) -> Any:
        return case(np.array(indices, index), np.int32(depth), draw(rng, dtype, ()), draw(rng, dtype, ()), **attrs)

    return [
        some([0, 2, -1, 5], np.int64, 3),
        some([[0, 1], [2, 0]], np.int32, 3, axis=0),
        some([[0, 1], [2, 0]], np.uint8, 2, axis=1),
        some(1, np.int8, 2),
        some([], np.int32, 2),
        some([1], np.int32, 0),
    ]


def _one_hot_model(indices: Any, depth: Any, on: Any, off: Any, axis: int = -1) -> np.ndarray:
    out = np.full((*indices.shape, int(depth)), off[()], on.dtype)
    for at in np.ndindex(indices.shape):
        if 0 <= indices[at] < depth:
            out[(*at, int(indices[at]))] = on[()]
    return np.moveaxis(out, -1, axis)


op(
    "OneHot",
    "indices: TI, depth: int32, on_value: T, off_value: T",
    "output: T",
    {"axis": -1, "T": type_attr(VALUE), "TI": type_attr(INDEX | {dtypes.uint8, dtypes.int8}, dtypes.int64)},
    shape=_one_hot_shape,
    kernel=_one_hot_kernel,
    xp=True,
    host=("depth",),
    grad=NOT_DIFFERENTIABLE,
    batch=one_hot,
    form=forms.one_hot,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(2)),
    oracle=_one_hot_model,
    sample=_one_hots,
    doc="`on_value` at the position of each index along a new axis, `off_value` elsewhere.",
)
