"""Ops that return or change shapes: Shape, Reshape, Squeeze, BroadcastTo, ...

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    int_attr,
    list_attr,
    op,
    shape_attr,
    type_attr,
)
from headrace.opkit import forms
from headrace.opkit.arrays import (
    axis_in,
    bounds,
    boxed,
    check_size,
    dims,
    shape_from,
    single,
    values_only,
    vector_of_unknowns,
    zeros,
)
from headrace.opkit.batch_node import SameForAll
from headrace.opkit.batch_rules import shifting_axes
from headrace.opkit.batch_shapes import (
    broadcast_to,
    ensure_shape,
    rank_of_example,
    reshape,
    shape_of_example,
    size_of_example,
    squeeze,
)
from headrace.opkit.jvp_rules import linear, passed
from headrace.opkit.namespaces import constant, is_near, listed
from headrace.opkit.shape_rules import scalars
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape

_INDEX = type_attr(INDEX, dtypes.int32)


# *** shapes of the inputs ***


def _fits(numbers: Any, dtype: DType) -> np.ndarray:
    """The integers as an array of `dtype`.

    Raises:
      InvalidArgumentError: an integer is too large for `dtype`.
    """
    try:
        return np.array(numbers, dtype.numpy)
    except OverflowError:
        raise InvalidArgumentError(
            f"Number of elements was larger than representable by 32-bit output type: {numbers}; use out_type=int64"
        ) from None


def _shape_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    out = attrs["out_type"]
    if xp is np:
        return lambda x: _fits(x.shape, out)
    return lambda x: constant(xp, _fits(x.shape, out).tolist(), out, x)


def _shape_n_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    shape_of = _shape_kernel(xp, attrs)
    return single(lambda *xs: tuple(map(shape_of, xs)), attrs["N"])


def _size_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    out = attrs["out_type"]
    if xp is np:
        return lambda x: _fits(x.size, out)[()]
    return lambda x: constant(xp, _fits(math.prod(x.shape), out).tolist(), out, x)


def _rank_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if xp is np:
        return lambda x: np.int32(x.ndim)
    return lambda x: constant(xp, x.ndim, dtypes.int32, x)


def _rank_of(shape: Shape) -> Shape:
    return (None,) if shape is None else (len(shape),)


@values_only
def _any_shape(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s)) for s in ((), (3,), (2, 1, 3), (0, 2))]


@values_only
def _two_shapes(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case([draw(rng, dtype, ()), draw(rng, dtype, (2, 3))]), case([draw(rng, dtype, (0, 4))])]


op(
    "Shape",
    "input: T",
    "output: out_type",
    {"T": type_attr(), "out_type": _INDEX},
    shape=lambda c: [_rank_of(c.shapes[0])],
    kernel=boxed(_shape_kernel),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=SameForAll(shape_of_example),
    facts=Facts(shape_only=True, total=()),
    shape_value=lambda c: c.shapes[0],
    oracle=lambda x: np.array(np.shape(x), np.int32),
    sample=_any_shape,
    doc="The shape of the input as a vector.",
)
op(
    "ShapeN",
    "input: N * T",
    "output: N * out_type",
    {"N": int_attr(minimum=1), "T": type_attr(), "out_type": _INDEX},
    shape=lambda c: [_rank_of(s) for s in c.shapes],
    kernel=boxed(_shape_n_kernel),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=SameForAll(shape_of_example),
    facts=Facts(shape_only=True, total=()),
    oracle=lambda xs: tuple(np.array(np.shape(x), np.int32) for x in xs),
    sample=_two_shapes,
    doc="The shape of each input as a vector.",
)
op(
    "Size",
    "input: T",
    "output: out_type",
    {"T": type_attr(), "out_type": _INDEX},
    shape=scalars,
    kernel=boxed(_size_kernel),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=SameForAll(size_of_example),
    facts=Facts(shape_only=True, total=()),
    shape_value=lambda c: (shapes.size(c.shapes[0]),),
    oracle=lambda x: np.int32(np.size(x)),
    sample=_any_shape,
    doc="The number of elements of the input.",
)
op(
    "Rank",
    "input: T",
    "output: int32",
    {"T": type_attr()},
    shape=scalars,
    kernel=boxed(_rank_kernel),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=SameForAll(rank_of_example),
    facts=Facts(shape_only=True, total=()),
    shape_value=lambda c: _rank_of(c.shapes[0]),
    oracle=lambda x: np.int32(np.ndim(x)),
    sample=_any_shape,
    doc="The number of dimensions of the input.",
)

# *** the same elements in another shape ***


def _back_to_input(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.Reshape(dy, b.Shape(n.inputs[0]))] + [None] * (len(n.inputs) - 1)


def _same_elements(c: Inference) -> Shape:
    """The `shape_value` of an op that keeps the elements in order.

    It is known if the input and the output have rank 0 or 1.
    """
    shape = c.op.outputs[0].shape
    if c.shapes[0] is not None and len(c.shapes[0]) <= 1 and shape is not None and len(shape) <= 1:
        return c.shape_value(0)
    return vector_of_unknowns(c, shape)


def _reshape_shape(c: Inference) -> Sequence[Shape]:
    wanted = shape_from(c, 1)
    have = shapes.size(c.shapes[0])
    if wanted is None or have is None:
        return [wanted]
    known = math.prod(d for d in wanted if d is not None)
    unknown = wanted.count(None)
    if unknown == 0 and known != have:
        raise ValueError(
            f"Cannot reshape a tensor with {have} elements to shape {shapes.show(wanted)} ({known} elements)"
        )
    if unknown and (have % known if known else have):
        raise ValueError(f"Cannot reshape a tensor with {have} elements to shape {shapes.show(wanted)}")
    if unknown == 1 and known:
        wanted = tuple(have // known if d is None else d for d in wanted)
    return [wanted]


def _reshape_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    is_numpy = xp is np

    def kernel(x: Any, shape: Any) -> Any:
        if shape.ndim > 1:
            raise InvalidArgumentError(f"sizes input must be 1-D, not {shapes.show(shape.shape)}")
        if not shape.ndim:
            wanted = [int(shape)]  # a scalar is accepted as a vector of one element
        else:
            wanted = shape.tolist() if is_numpy else listed(shape)
        try:
            if is_numpy and (not wanted or min(wanted) >= -1):  # numpy infers the size for any negative number
                return x.reshape(wanted)
        except ValueError:
            pass
        return xp.reshape(x, _fitting(x.shape, wanted))

    return kernel


def _fitting(shape: tuple[int, ...], wanted: list[int]) -> tuple[int, ...]:
    """The shape that `wanted` stands for, of an array of the shape `shape`.

    Raises:
      InvalidArgumentError: the shape does not fit the elements.
    """
    free = [i for i, d in enumerate(wanted) if d == -1]
    bad = [i for i, d in enumerate(wanted) if d < -1]
    if bad:
        raise InvalidArgumentError(f"Size {bad[0]} must be non-negative, not {wanted[bad[0]]}")
    if len(free) > 1:
        raise InvalidArgumentError(f"Only one input size may be -1, not both {free[0]} and {free[1]}")
    size, n = math.prod(shape), math.prod(d for d in wanted if d != -1)
    left = -1  # the size for -1
    if free and n and not size % n:
        left = size // n
    elif free and not n and not size:
        # any size fits an empty tensor: TensorFlow infers it from the dimensions that are not 0
        left = math.prod(d for d in shape if d) // math.prod(d for d in wanted if d > 0)
    elif free or n != size:
        needs = f"requires a multiple of {n}" if free and n else f"has {n}"
        raise InvalidArgumentError(
            f"Input to reshape is a tensor with {size} values, but the requested shape {wanted} {needs}"
        )
    return tuple([left if d == -1 else d for d in wanted])


@values_only
def _reshapes(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (2, 3)), np.array([3, -1], np.int32)),
        case(draw(rng, dtype, (6,)), np.array([1, 2, 3], np.int64)),
        case(draw(rng, dtype, ()), np.array([1, 1], np.int32)),
        case(draw(rng, dtype, (1,)), np.array([], np.int32)),
        case(draw(rng, dtype, (0, 3)), np.array([-1, 3], np.int32)),
    ]


op(
    "Reshape",
    "tensor: T, shape: Tshape",
    "output: T",
    {"T": type_attr(), "Tshape": _INDEX},
    shape=_reshape_shape,
    kernel=boxed(_reshape_kernel),
    xp=True,
    host=("shape",),
    grad=_back_to_input,
    jvp=linear("tensor"),
    batch=reshape,
    form=forms.reshape,
    facts=Facts(total=("shape",), dynamic_shape=True),
    shape_value=_same_elements,
    oracle=lambda x, s: np.array(x).reshape(s),
    sample=_reshapes,
    doc="The elements of the input, in order, in another shape.",
)


def _expand_shape(c: Inference) -> Sequence[Shape]:
    x = c.shapes[0]
    if x is None:
        return [None]
    if shapes.size(c.shapes[1]) not in (None, 1):
        raise ValueError(f"'dim' input must be a tensor with a single value, got shape {shapes.show(c.shapes[1])}")
    at = c.axes(1)
    if at is None:
        return [(None,) * (len(x) + 1)]
    a = axis_in(at[0], len(x) + 1, "dim")
    return [(*x[:a], 1, *x[a:])]


def _expand_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any, dim: Any) -> Any:
        if dim.ndim and math.prod(dim.shape) != 1:
            raise InvalidArgumentError(f"'dim' must have a single value, got shape {shapes.show(dim.shape)}")
        old = x.shape
        at = int(dim) if dim.ndim == 0 else int(dim[(0,) * dim.ndim])
        n = len(old) + 1
        if not -n <= at < n:
            raise InvalidArgumentError(f"Tried to expand dim index {at} for tensor with {n - 1} dimensions.")
        at %= n
        return x.reshape((*old[:at], 1, *old[at:])) if xp is np else xp.expand_dims(x, axis=at)

    return kernel


@values_only
def _expansions(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (2, 3)), np.int32(-1)),
        case(draw(rng, dtype, (2, 3)), np.int64(1)),
        case(draw(rng, dtype, ()), np.array([0], np.int32)),
        case(draw(rng, dtype, (0,)), np.int32(0)),
    ]


op(
    "ExpandDims",
    "input: T, dim: Tdim",
    "output: T",
    {"T": type_attr(), "Tdim": _INDEX},
    shape=_expand_shape,
    kernel=boxed(_expand_kernel),
    xp=True,
    host=("dim",),
    grad=_back_to_input,
    jvp=linear("input"),
    batch=shifting_axes(1, 0),
    form=forms.reshape,
    facts=Facts(total=("dim",), dynamic_shape=True),
    shape_value=_same_elements,
    oracle=lambda x, d: np.expand_dims(x, int(np.ravel(d)[0])),
    sample=_expansions,
    doc="The input with a dimension of size 1 at `dim`.",
)


def _squeezed(wanted: Sequence[int], rank: int) -> set[int]:
    gone = set()
    for d in wanted:
        if not -rank <= d < rank:
            raise ValueError(f"Tried to squeeze dim index {d} for tensor with {rank} dimensions.")
        gone.add(d % rank)
    return gone


def _squeeze_shape(c: Inference) -> Sequence[Shape]:
    x = c.shapes[0]
    wanted = c.attrs["squeeze_dims"]
    if x is None or (not wanted and None in x):  # which of the unknown dimensions are 1?
        return [None]
    if not wanted:
        return [tuple(d for d in x if d != 1)]
    gone = _squeezed(wanted, len(x))
    for i in gone:
        if x[i] not in (1, None):
            raise ValueError(f"Can not squeeze dim[{i}], expected a dimension of 1, got {x[i]}")
    return [tuple(d for i, d in enumerate(x) if i not in gone)]


def _squeeze_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    wanted = attrs["squeeze_dims"]
    if not wanted:
        if xp is np:
            return lambda x: x.reshape([d for d in x.shape if d != 1])
        return lambda x: xp.reshape(x, tuple([d for d in x.shape if d != 1]))

    def kernel(x: Any) -> Any:
        old = x.shape
        gone = _squeezed(wanted, len(old))
        for i in gone:
            if old[i] != 1:
                raise InvalidArgumentError(f"Can not squeeze dim[{i}], expected a dimension of 1, got {old[i]}")
        left = tuple([d for i, d in enumerate(old) if i not in gone])
        return x.reshape(left) if xp is np else xp.reshape(x, left)

    return kernel


@values_only
def _squeezes(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (1, 3, 1))),
        case(draw(rng, dtype, (1, 3, 1)), squeeze_dims=(-1,)),
        case(draw(rng, dtype, (1, 1)), squeeze_dims=(0, 1)),
        case(draw(rng, dtype, ())),
    ]


op(
    "Squeeze",
    "input: T",
    "output: T",
    {"T": type_attr(), "squeeze_dims": list_attr("int", ())},
    shape=_squeeze_shape,
    kernel=boxed(_squeeze_kernel),
    xp=True,
    grad=_back_to_input,
    jvp=linear("input"),
    batch=squeeze,
    form=forms.reshape,
    facts=Facts(total=()),
    shape_value=_same_elements,
    oracle=lambda x, squeeze_dims=None: np.squeeze(x, squeeze_dims),
    sample=_squeezes,
    doc="The input without its dimensions of size 1, or without those in `squeeze_dims`.",
)


def _ensure_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    wanted = attrs["shape"]

    def kernel(x: Any) -> Any:
        if not shapes.fits(x.shape, wanted):
            raise InvalidArgumentError(
                f"Shape of tensor input {shapes.show(x.shape)} is not compatible with expected shape "
                f"{shapes.show(wanted)}."
            )
        return x

    return kernel


op(
    "EnsureShape",
    "input: T",
    "output: T",
    {"shape": shape_attr(), "T": type_attr()},
    shape=lambda c: [shapes.merge(c.shapes[0], c.attrs["shape"])],
    kernel=boxed(_ensure_kernel),
    xp=True,
    grad=lambda b, n, dy: [dy],
    jvp=passed,
    batch=ensure_shape,
    form=forms.reshape,
    facts=Facts(checks=True),
    shape_value=lambda c: c.shape_value(0),
    oracle=lambda x, shape: x,
    sample=values_only(
        lambda rng, dtype: [
            case(draw(rng, dtype, (2, 3)), shape=(2, None)),
            case(draw(rng, dtype, ()), shape=()),
            case(draw(rng, dtype, (2,)), shape=None),
        ]
    ),
    doc="The input, after a check that its shape is compatible with `shape`.",
)

# *** broadcasting ***


def _broadcast_to_shape(c: Inference) -> Sequence[Shape]:
    x, wanted = c.shapes[0], shape_from(c, 1)
    if x is None or wanted is None:
        return [wanted]
    if len(x) > len(wanted):
        raise ValueError(f"Rank of input ({len(x)}) must be no greater than rank of output shape ({len(wanted)})")
    out = list(wanted)
    for i, have in enumerate(x, len(wanted) - len(x)):
        if have not in (1, None):
            out[i] = shapes.merge_dim(have, out[i])
    return [tuple(out)]


def _broadcast_to_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(x: Any, shape: Any) -> Any:
        wanted = dims(shape)
        check_size(wanted, dtype)
        if x.ndim > len(wanted):
            raise InvalidArgumentError(
                f"Rank of input ({x.ndim}) must be no greater than rank of output shape ({len(wanted)})."
            )
        try:
            if x.shape == wanted:
                return x
            if xp is not np:  # whose functions raise errors of other classes
                shapes.merge(shapes.broadcast(x.shape, wanted), wanted)
            return xp.broadcast_to(x, wanted)
        except ValueError:
            raise InvalidArgumentError(
                f"Incompatible shapes: {shapes.show(x.shape)} vs. {shapes.show(wanted)}"
            ) from None

    return kernel


def _broadcast_to_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    axes, _ = b.BroadcastGradientArgs(b.Shape(n.input), b.Shape(dy))
    return [b.Reshape(b.Sum(dy, axes, keep_dims=False), b.Shape(n.input)), None]


@values_only
def _broadcasts(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (2, 1)), np.array([3, 2, 4], np.int32)),
        case(draw(rng, dtype, ()), np.array([2], np.int64)),
        case(draw(rng, dtype, (3,)), np.array([3], np.int32)),
        case(draw(rng, dtype, (1,)), np.array([0], np.int32)),
    ]


op(
    "BroadcastTo",
    "input: T, shape: Tidx",
    "output: T",
    {"T": type_attr(), "Tidx": _INDEX},
    shape=_broadcast_to_shape,
    kernel=boxed(_broadcast_to_kernel),
    xp=True,
    host=("shape",),
    form=forms.broadcast,
    grad=_broadcast_to_grad,
    jvp=linear("input"),
    batch=broadcast_to,
    facts=Facts(total=("shape",), dynamic_shape=True),
    oracle=lambda x, s: np.array(np.broadcast_to(x, s)),
    sample=_broadcasts,
    doc="The input broadcast to `shape`.",
)


def _broadcast_args_shape(c: Inference) -> Sequence[Shape]:
    (n,), (m,) = shapes.with_rank(c.shapes[0], 1), shapes.with_rank(c.shapes[1], 1)
    return [(None if n is None or m is None else max(n, m),)]


def _broadcast_args_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(x: Any, y: Any) -> Any:
        try:
            out = shapes.broadcast(dims(x), dims(y)) or ()
            return np.array(out, dtype.numpy) if xp is np else constant(xp, out, dtype, x)
        except ValueError as e:
            raise InvalidArgumentError(f"Incompatible shapes for broadcasting: {e}") from None

    return kernel


op(
    "BroadcastArgs",
    "s0: T, s1: T",
    "r0: T",
    {"T": _INDEX},
    shape=_broadcast_args_shape,
    kernel=_broadcast_args_kernel,
    xp=True,
    host=("s0", "s1"),
    grad=NOT_DIFFERENTIABLE,
    shape_value=lambda c: shapes.broadcast(c.shape_value(0), c.shape_value(1)),
    oracle=lambda a, b: np.array(np.broadcast_shapes(tuple(a), tuple(b)), a.dtype),
    sample=lambda rng, dtype: [
        case(np.array(a, dtype.numpy), np.array(b, dtype.numpy))
        for a, b in (((2, 1), (3,)), ((), (2, 3)), ((1,), (0,)), ((4, 1, 3), (4, 2, 1)))
    ],
    doc="The shape that two shapes broadcast to.",
)


def _unravel_shape(c: Inference) -> Sequence[Shape]:
    (rank,) = shapes.with_rank(c.shapes[1], 1)
    indices = shapes.with_rank_at_most(c.shapes[0], 1)
    return [None if indices is None else (rank, *indices)]


def _unravel_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    index = attrs["Tidx"]

    def kernel(indices: Any, shape: Any) -> Any:
        if indices.ndim > 1 or shape.ndim != 1:
            raise InvalidArgumentError(
                "The indices can only be scalar or vector, and dims a vector: got shapes "
                f"{shapes.show(indices.shape)} and {shapes.show(shape.shape)}"
            )
        sizes = listed(shape)
        for i, d in enumerate(sizes):
            if d <= 0:
                kind = "be negative" if d < 0 else "contain a dim of zero"
                raise InvalidArgumentError(f"Input dims cannot {kind}. Got dim = {d} at index {i}")
        if 0 in indices.shape:
            raise InvalidArgumentError("received empty tensor indices")
        if math.prod(sizes) > np.iinfo(index.numpy).max:
            raise InvalidArgumentError(f"Input dims product is causing integer overflow: {sizes}")
        least, greatest = bounds(xp, indices) if is_near(indices) else (0, 0)
        if least < 0 or greatest >= math.prod(sizes):
            raise InvalidArgumentError(f"index is out of bound as with dims {sizes}: got {listed(indices)}")
        if not sizes:  # numpy gives no coordinates an empty shape
            return zeros(xp, (0, *indices.shape), index, indices)
        if xp is np:
            return np.array(np.unravel_index(indices, sizes), index.numpy)
        steps = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        return xp.stack([indices // step % d for step, d in zip(steps, sizes, strict=True)])

    return kernel


def _unravelled(indices: np.ndarray, shape: np.ndarray) -> np.ndarray:
    steps = [(math.prod(shape[k + 1 :].tolist()), d) for k, d in enumerate(shape.tolist())]
    found = [[i // step % d for step, d in steps] for i in np.ravel(indices).tolist()]
    return np.array(found, shape.dtype).T.reshape(len(shape), *indices.shape)


op(
    "UnravelIndex",
    "indices: Tidx, dims: Tidx",
    "output: Tidx",
    {"Tidx": _INDEX},
    shape=_unravel_shape,
    kernel=_unravel_kernel,
    xp=True,
    host=("dims",),
    grad=NOT_DIFFERENTIABLE,
    oracle=_unravelled,
    sample=lambda rng, dtype: [
        case(np.array(i, dtype.numpy), np.array(s, dtype.numpy)) for i, s in (([5, 23, 0], (2, 3, 4)), (7, (3, 4)))
    ],
    differs="A negative index is an error; TensorFlow returns negative coordinates.",
    doc="The coordinates of the elements with these flat indices in an array of shape `dims`.",
)
