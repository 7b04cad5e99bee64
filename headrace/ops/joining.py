"""Ops that concatenate and split arrays: Pack, Unpack, Concat, ConcatV2, Split, SplitV and related ops.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference, constant_value
from headrace.ir.op_roles import SplitRole
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, int_attr, op, shape_attr, type_attr
from headrace.opkit import forms
from headrace.opkit.arrays import (
    add_dims,
    axis_in,
    boxed,
    entries,
    scalar,
    single,
    values_only,
    vector_of_unknowns,
)
from headrace.opkit.batch_rules import shifting_attr, shifting_axes
from headrace.opkit.batch_shapes import concat, concat_axis_first
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, listed
from headrace.opkit.testing.samples import draw
from headrace.resources import values as stored
from headrace.shapes import Dim, Shape

_INDEX = type_attr(INDEX, dtypes.int32)

# *** Pack, Unpack ***


def _pack_shape(c: Inference) -> Sequence[Shape]:
    x: Shape = None
    for s in c.shapes:
        x = shapes.merge(x, s)
    if x is None:
        return [None]
    at = axis_in(c.attrs["axis"], len(x) + 1)
    return [(*x[:at], c.attrs["N"], *x[at:])]


def _pack_value(c: Inference) -> Shape:
    out: list[Dim] = []
    for i, s in enumerate(c.shapes):
        known = c.shape_value(i) if s == () else None
        out.append(known[0] if known else None)
    return tuple(out) if c.op.outputs[0].shape == (len(out),) else vector_of_unknowns(c, c.op.outputs[0].shape)


def _pack_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    axis, dtype = attrs["axis"], attrs["T"]

    def kernel(*arrays: Any) -> Any:
        shape = arrays[0].shape
        for i, a in enumerate(arrays):
            if a.shape != shape:
                raise InvalidArgumentError(
                    f"Shapes of all inputs must match: values[0].shape = {shapes.show(shape)} != "
                    f"values[{i}].shape = {shapes.show(a.shape)}"
                )
        at = axis_in(axis, len(shape) + 1)
        return stored.stack(arrays, dtype, shape) if xp is np and not at else xp.stack(arrays, axis=at)

    return kernel


def _unpacked(b: Any, n: Any, dy: Any) -> list[Any]:
    parts = b.Unpack(dy, num=n.attrs["N"], axis=n.attrs["axis"])
    return list(parts) if n.attrs["N"] > 1 else [parts]


@values_only
def _packs(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(n: int, shape: Sequence[int], **attrs: int) -> Any:
        return case([draw(rng, dtype, shape) for _ in range(n)], **attrs)

    return [some(3, ()), some(1, (2,)), some(2, (2, 3), axis=1), some(2, (3,), axis=-1), some(2, (0, 2))]


op(
    "Pack",
    "values: N * T",
    "output: T",
    {"N": int_attr(minimum=1), "T": type_attr(), "axis": 0},
    shape=_pack_shape,
    kernel=boxed(_pack_kernel),
    xp=True,
    grad=_unpacked,
    jvp=linear("values"),
    batch=shifting_attr("axis"),
    form=forms.pack,
    facts=Facts(cost=flops_per_element(1), total=()),
    shape_value=_pack_value,
    oracle=lambda xs, axis=0: np.stack(xs, axis),
    sample=_packs,
    doc="Arrays of one shape stacked along a new axis.",
)


def _unpack_shape(c: Inference) -> Sequence[Shape]:
    x, num = c.shapes[0], c.attrs["num"]
    if x is None:
        return [None] * num
    at = axis_in(c.attrs["axis"], len(x))
    if x[at] not in (None, num):
        raise ValueError(f"Dimension must be {num} but is {x[at]}: axis {at} of {shapes.show(x)} has to be unpacked")
    return [x[:at] + x[at + 1 :]] * num


def _unpack_value(c: Inference) -> Shape:
    known = c.shape_value(0) if c.shapes[0] is not None and len(c.shapes[0]) == 1 else None
    if known is None:
        return vector_of_unknowns(c, c.op.outputs[c.output].shape)
    return (known[c.output],)


def _unpack_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    axis, num, dtype = attrs["axis"], attrs["num"], attrs["T"]

    def kernel(x: Any) -> Any:
        at = axis_in(axis, x.ndim)
        if x.shape[at] != num:
            raise InvalidArgumentError(f"Input shape axis {at} must equal {num}, got shape {shapes.show(x.shape)}")
        x = xp.moveaxis(x, at, 0) if at else x
        return tuple(stored.rows(x, dtype)) if xp is np else tuple([x[i, ...] for i in range(num)])

    return single(kernel, num)


@values_only
def _unpacks(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (3,)), num=3),
        case(draw(rng, dtype, (2, 3)), num=2),
        case(draw(rng, dtype, (2, 3)), num=3, axis=-1),
        case(draw(rng, dtype, (1, 2)), num=1),
    ]


op(
    "Unpack",
    "value: T",
    "output: num * T",
    {"num": int_attr(minimum=0), "T": type_attr(), "axis": 0},
    shape=_unpack_shape,
    kernel=boxed(_unpack_kernel),
    xp=True,
    grad=lambda b, n, *dys: [b.Pack(list(dys), axis=n.attrs["axis"])] if dys else [b.ZerosLike(n.value)],
    jvp=linear("value"),
    batch=shifting_attr("axis"),
    form=forms.unpack,
    facts=Facts(total=()),
    shape_value=_unpack_value,
    oracle=lambda x, num, axis=0: tuple(np.array(x.take(i, axis), x.dtype) for i in range(num)),
    sample=_unpacks,
    doc="The slices of an array along an axis.",
)

# *** concatenation ***


def _concat_shape(c: Inference, parts: Sequence[Shape], axis: int | None) -> Sequence[Shape]:
    known = [shapes.with_rank_at_least(s, 1) for s in parts]
    rank = next((len(s) for s in known if s is not None), None)
    if rank is None:
        return [None]
    full = [shapes.with_rank(s, rank) for s in known]
    if axis is None:
        return [(None,) * rank]
    at = axis_in(axis, rank, "concat_dim")
    rest: Shape = (None,) * rank
    for s in full:
        rest = shapes.merge(rest, (*s[:at], None, *s[at + 1 :]))
    out = list(rest or ())
    out[at] = add_dims(s[at] for s in full)
    return [tuple(out)]


def _concat_value(c: Inference, parts: range) -> Shape:
    out: list[Dim] = []
    if c.op.outputs[0].shape is not None and len(c.op.outputs[0].shape) == 1:
        for i in parts:
            known = c.shape_value(i)
            if known is None:
                return vector_of_unknowns(c, c.op.outputs[0].shape)
            out += known
        return tuple(out)
    return None


def _concat(xp: Any, arrays: Sequence[Any], axis: Any) -> Any:
    at = int(scalar(axis, "concat_dim"))
    rank = arrays[0].ndim
    if not -rank <= at < rank:  # numpy reads the least int32 as axis=None, which would flatten the arrays
        raise InvalidArgumentError(
            f"ConcatOp : Expected concatenating dimensions in the range [{-rank}, {rank}), but got {at}"
        )
    try:
        if xp is not np:  # whose functions raise errors of other classes
            rest: Shape = (None,) * rank
            for a in arrays:
                rest = shapes.merge(rest, (*a.shape[:at], None, *a.shape[at:][1:]))
        return xp.concat(arrays, axis=at)
    except ValueError as e:
        got = ", ".join(shapes.show(a.shape) for a in arrays)
        raise InvalidArgumentError(f"ConcatOp: cannot join the shapes {got} along axis {axis}: {e}") from None


def _split_back(b: Any, arrays: Sequence[Any], axis: Any, dy: Any) -> list[Any]:
    """Parts of `dy` that belong to each of the arrays."""
    at = constant_value(axis)
    rank = next((len(a.shape) for a in arrays if a.shape is not None), None)
    if at is not None and rank is not None:
        a = int(at) % rank
        sizes = [None if x.shape is None else x.shape[a] for x in arrays]
        if None not in sizes:
            return list(b.SplitV(dy, b.const(np.array(sizes, np.int32)), a, num_split=len(arrays)))
        where = b.const(np.int32(a))
    else:
        where = b.FloorMod(axis if axis.dtype.base is dtypes.int32 else b.Cast(axis, DstT=dtypes.int32), b.Rank(dy))
    lengths = b.Pack([b.GatherV2(b.Shape(x), where, 0) for x in arrays])
    return list(b.SplitV(dy, lengths, where, num_split=len(arrays)))


@values_only
def _concats(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(axis: Any, *parts: Sequence[int]) -> Any:
        return case([draw(rng, dtype, s) for s in parts], axis)

    return [
        some(np.int32(0), (2,), (3,)),
        some(np.int32(-1), (2, 1), (2, 2), (2, 0)),
        some(np.int64(1), (2, 3, 1), (2, 1, 1)),
    ]


op(
    "Concat",
    "concat_dim: int32, values: N * T",
    "output: T",
    {"N": int_attr(minimum=2), "T": type_attr()},
    shape=lambda c: _concat_shape(c, c.shapes[1:], c.scalar(0)),
    kernel=boxed(lambda xp, attrs: lambda axis, *arrays: _concat(xp, arrays, axis)),
    xp=True,
    host=("concat_dim",),
    grad=lambda b, n, dy: [None, *_split_back(b, n.values, n.concat_dim, dy)],
    jvp=linear("values"),
    batch=concat_axis_first,
    facts=Facts(total=("concat_dim",), dynamic_shape=True, cost=flops_per_element(1)),
    shape_value=lambda c: _concat_value(c, range(1, len(c.shapes))),
    oracle=lambda axis, xs: np.concatenate(xs, int(axis)),
    sample=lambda rng, dtype: [case(k.inputs[1].astype(np.int32), k.inputs[0]) for k in _concats(rng, dtype)],
    doc="The concatenation of arrays along an axis.",
)
op(
    "ConcatV2",
    "values: N * T, axis: Tidx",
    "output: T",
    {"N": int_attr(minimum=2), "T": type_attr(), "Tidx": _INDEX},
    shape=lambda c: _concat_shape(c, c.shapes[:-1], c.scalar(len(c.shapes) - 1)),
    kernel=boxed(lambda xp, attrs: lambda *args: _concat(xp, args[:-1], args[-1])),
    xp=True,
    host=("axis",),
    grad=lambda b, n, dy: [*_split_back(b, n.values, n.axis, dy), None],
    jvp=linear("values"),
    batch=concat,
    form=forms.concat,
    facts=Facts(total=("axis",), dynamic_shape=True, cost=flops_per_element(1)),
    shape_value=lambda c: _concat_value(c, range(len(c.shapes) - 1)),
    oracle=lambda xs, axis: np.concatenate(xs, int(axis)),
    sample=_concats,
    doc="The concatenation of arrays along an axis.",
)


def _concat_offset_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype, is_numpy = attrs["shape_type"], xp is np

    def kernel(concat_dim: Any, *parts: Any) -> Any:
        first = parts[0]
        if concat_dim.ndim or first.ndim != 1:
            raise InvalidArgumentError("concat_dim must be a scalar and the shapes vectors")
        wanted = listed(first)
        axis = axis_in(int(concat_dim), len(wanted), "concat_dim")
        out, at = [], 0
        for i, s in enumerate(parts):
            if s.shape != first.shape:
                raise InvalidArgumentError(f"input {i} should contain {len(wanted)} elements, got {math.prod(s.shape)}")
            shape = listed(s)
            if any(a != b for d, (a, b) in enumerate(zip(shape, wanted)) if d != axis):
                raise InvalidArgumentError(
                    f"All dimensions except {axis} must match. Input {i} has shape {shape} "
                    f"and doesn't match input 0 with shape {wanted}."
                )
            out.append([at if d == axis else 0 for d in range(len(wanted))])
            at += shape[axis]
        return tuple([np.array(v, dtype.numpy) if is_numpy else constant(xp, v, dtype, first) for v in out])

    return kernel


op(
    "ConcatOffset",
    "concat_dim: int32, shape: N * shape_type",
    "offset: N * shape_type",
    {"N": int_attr(minimum=2), "shape_type": _INDEX},
    shape=lambda c: c.shapes[1:],
    kernel=_concat_offset_kernel,
    xp=True,
    host=("concat_dim", "shape"),
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda axis, parts: tuple(
        np.array([sum(q[d] for q in parts[:i]) if d == axis % len(p) else 0 for d in range(len(p))], p.dtype)
        for i, p in enumerate(parts)
    ),
    sample=lambda rng, dtype: [
        case(np.int32(a), [np.array(s, dtype.numpy) for s in parts])
        for a, parts in ((1, [(2, 2, 7), (2, 3, 7), (2, 9, 7)]), (-1, [(2, 1), (2, 4)]), (0, [(5,), (0,)]))
    ],
    doc="The offset of each array in the concatenation of arrays of the given shapes.",
)


def _parallel_concat_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(*arrays: Any) -> Any:
        for a in arrays:
            if a.ndim < 1 or a.shape != (1, *arrays[0].shape[1:]):
                raise InvalidArgumentError(
                    f"each of the values must be one row of the same shape, got {shapes.show(a.shape)}"
                )
        return xp.concat(arrays)

    return kernel


def _parallel_concat_shape(c: Inference) -> Sequence[Shape]:
    shape = c.attrs["shape"]
    if not shapes.is_full(shape):
        raise ValueError(f"shape attr must be fully defined, got {shapes.show(shape)}")
    row: Shape = (1, *shape[1:])
    for s in c.shapes:
        shapes.merge(row, s)
    return [shapes.merge(shape, (len(c.shapes), *shape[1:]))]


op(
    "ParallelConcat",
    "values: N * T",
    "output: T",
    {"N": int_attr(minimum=1), "T": type_attr(), "shape": shape_attr()},
    shape=_parallel_concat_shape,
    kernel=boxed(_parallel_concat_kernel),
    xp=True,
    grad=lambda b, n, dy: [functools.partial(b.GatherV2, dy, [i], 0) for i in range(n.attrs["N"])],
    jvp=linear("values"),
    facts=Facts(cost=flops_per_element(1)),
    oracle=lambda xs, shape: np.concatenate(xs),
    sample=values_only(
        lambda rng, dtype: [
            case([draw(rng, dtype, (1, 3)), draw(rng, dtype, (1, 3))], shape=(2, 3)),
            case([draw(rng, dtype, (1,))], shape=(1,)),
        ]
    ),
    doc="The concatenation of single rows.",
)

# *** Split, SplitV ***


def _pieces(x: Any, sizes: Sequence[int], axis: int) -> tuple[Any, ...]:
    """Consecutive parts of `x` along `axis`, as views."""
    before = (slice(None),) * axis
    out, start = [], 0
    for n in sizes:
        out.append(x[(*before, slice(start, start + n), ...)])
        start += n
    return tuple(out)


def _split_axis(split_dim: Any, x: Any) -> int:
    if split_dim.ndim:
        raise InvalidArgumentError(f"split_dim must be a scalar but has rank {split_dim.ndim}")
    return axis_in(int(split_dim), x.ndim, "split_dim")


def _known_axis(c: Inference, i: int, x: Shape) -> int | None:
    """The axis of a split of shape `x`, or None if it is unknown."""
    axis = c.scalar(i)
    if x is None:
        return None
    if not x:
        raise ValueError("Can't split scalars")
    return 0 if axis is None and len(x) == 1 else None if axis is None else axis_in(axis, len(x), "split_dim")


def _split_shape(c: Inference) -> Sequence[Shape]:
    num, x, at = c.attrs["num_split"], c.shapes[1], _known_axis(c, 0, c.shapes[1])
    if x is None or at is None:
        return [None if x is None else (None,) * len(x)] * num
    dim = x[at]
    if dim is not None and dim % num:
        raise ValueError(
            f"Dimension size must be evenly divisible by {num} but is {dim}: axis {at} of {shapes.show(x)}"
        )
    return [(*x[:at], None if dim is None else dim // num, *x[at + 1 :])] * num


def _split_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    num = attrs["num_split"]

    def kernel(split_dim: Any, x: Any) -> Any:
        axis = _split_axis(split_dim, x)
        n = x.shape[axis]
        if n % num:
            raise InvalidArgumentError(
                "Number of ways to split should evenly divide the split dimension, but got "
                f"split_dim {axis} (size = {n}) and num_split {num}"
            )
        return _pieces(x, [n // num] * num, axis)

    return single(kernel, num)


def _join(b: Any, dys: Sequence[Any], axis: Any) -> Any:
    return b.ConcatV2(list(dys), axis) if len(dys) > 1 else dys[0]


@values_only
def _splits(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(np.int32(0), draw(rng, dtype, (4,)), num_split=2),
        case(np.int32(-1), draw(rng, dtype, (2, 3)), num_split=3),
        case(np.int32(1), draw(rng, dtype, (2, 3, 1)), num_split=1),
        case(np.int32(0), draw(rng, dtype, (0, 2)), num_split=2),
    ]


op(
    "Split",
    "split_dim: int32, value: T",
    "output: num_split * T",
    {"num_split": int_attr(minimum=1), "T": type_attr()},
    shape=_split_shape,
    kernel=boxed(_split_kernel),
    xp=True,
    host=("split_dim",),
    grad=lambda b, n, *dys: [None, _join(b, dys, n.split_dim)],
    jvp=linear("value"),
    batch=shifting_axes(0, 1),
    form=forms.split,
    facts=Facts(total=("split_dim",), dynamic_shape=True, split=SplitRole(value=1, axis=0)),
    shape_value=lambda c: _piece_value(c, 1),
    oracle=lambda axis, x, num_split: tuple(np.split(x, num_split, int(axis))),
    sample=_splits,
    doc="The input split into `num_split` equal parts along an axis.",
)


def _piece_value(c: Inference, value: int) -> Shape:
    """`shape_value` of one of the consecutive pieces of input `value`, a vector."""
    whole, sizes = c.shapes[value], [t.shape for t in c.op.outputs]
    known = c.shape_value(value) if whole is not None and len(whole) == 1 else None
    if known is None or not all(shapes.is_full(s) for s in sizes):
        return vector_of_unknowns(c, sizes[c.output])
    start = sum(shapes.size(s) or 0 for s in sizes[: c.output])
    return known[start : start + (shapes.size(sizes[c.output]) or 0)]


def _split_sizes(sizes: Sequence[int | None], total: Dim) -> list[Dim]:
    """Sizes of the parts; a size of -1 becomes the rest of `total`.

    Raises:
      ValueError: the sizes do not add up to `total`, one is below -1, or several are -1.
    """
    free = [i for i, n in enumerate(sizes) if n == -1]
    if len(free) > 1:
        raise ValueError(f"There can only be one -1 in the input, got {list(sizes)}")
    for i, n in enumerate(sizes):
        if n is not None and n < -1:
            raise ValueError(f"Split size at index {i} must be >= 0. Got: {n}")
    given = add_dims(n for n in sizes if n != -1)
    if given is not None and total is not None and (given > total if free else given != total):
        raise ValueError(
            "Determined shape must either match input shape along split_dim exactly if fully specified, or be less "
            f"than the size of the input along split_dim if not fully specified. Got: {given} for a size of {total}"
        )
    rest = None if given is None or total is None else total - given
    return [rest if n == -1 else n for n in sizes]


def _split_v_shape(c: Inference) -> Sequence[Shape]:
    num, x, at = c.attrs["num_split"], c.shapes[0], _known_axis(c, 2, c.shapes[0])
    (count,) = shapes.with_rank(c.shapes[1], 1)
    shapes.merge_dim(count, num)
    sizes = entries(c, 1) or [None] * num
    if x is None or at is None:
        return [None if x is None else (None,) * len(x)] * num
    found: list[Dim] = [x[at]] if num == 1 else _split_sizes(sizes, x[at])
    return [(*x[:at], n, *x[at + 1 :]) for n in found]


def _split_v_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    num = attrs["num_split"]

    def kernel(x: Any, sizes: Any, split_dim: Any) -> Any:
        axis = _split_axis(split_dim, x)
        if sizes.shape != (num,):
            raise InvalidArgumentError(
                f"shape of the split_tensor must be [{num}], the number of outputs, but is {shapes.show(sizes.shape)}"
            )
        found = _split_sizes(listed(sizes), x.shape[axis])
        return _pieces(x, [n for n in found if n is not None], axis)

    return single(kernel, num)


@values_only
def _splits_v(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (5,)), np.array([2, 0, 3], np.int64), np.int32(0), num_split=3),
        case(draw(rng, dtype, (2, 4)), np.array([1, -1], np.int32), np.int32(-1), num_split=2),
        case(draw(rng, dtype, (2, 4)), np.array([2], np.int32), np.int32(0), num_split=1),
    ]


def _split_v_model(x: np.ndarray, sizes: np.ndarray, axis: Any, num_split: int) -> tuple[np.ndarray, ...]:
    left = x.shape[axis] - sum(n for n in sizes if n >= 0)
    ends = np.cumsum([left if n < 0 else n for n in sizes])
    return tuple(np.split(x, ends[:-1], axis))


op(
    "SplitV",
    "value: T, size_splits: Tlen, split_dim: int32",
    "output: num_split * T",
    {
        "num_split": int_attr(minimum=1),
        "T": type_attr(),
        "Tlen": type_attr(INDEX | {dtypes.int8}, dtypes.int64),
    },
    shape=_split_v_shape,
    kernel=boxed(_split_v_kernel),
    xp=True,
    host=("size_splits", "split_dim"),
    grad=lambda b, n, *dys: [_join(b, dys, n.split_dim), None, None],
    jvp=linear("value"),
    batch=shifting_axes(2, 0),
    form=forms.split_v,
    facts=Facts(total=("size_splits", "split_dim"), dynamic_shape=True, split=SplitRole(value=0, axis=2)),
    shape_value=lambda c: _piece_value(c, 0),
    oracle=_split_v_model,
    sample=_splits_v,
    doc="The input split into parts of the given sizes along an axis; a size of -1 is the rest.",
)
