"""Ops that change the order along axes: Reverse, ReverseV2, ReverseSequence, Roll.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, NUMERIC, DType
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, int_attr, op, type_attr
from headrace.opkit.arrays import axis_in, bounds, boxed, dims, placed, values_only
from headrace.opkit.batch_rules import prefixing, shifting_axes
from headrace.opkit.forms import reverse
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, dtype_in, integers, is_near, listed
from headrace.opkit.order_forms import roll
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape

_INDEX = type_attr(INDEX, dtypes.int32)


def _flipped_axes(axes: Sequence[int], rank: int) -> list[int]:
    seen: list[int] = []
    for i, a in enumerate(axes):
        if not -rank <= a < rank:
            raise ValueError(f"'axis'[{i}] = {a} is out of valid range [0, {rank - 1}]")
        if a % rank in seen:
            raise ValueError(f"axis {a % rank} specified more than once.")
        seen.append(a % rank)
    return seen


def _reverse_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 1)
    axes = c.axes(1)
    if axes is not None and c.shapes[0] is not None:
        _flipped_axes(axes, len(c.shapes[0]))
    return [c.shapes[0]]


def _reverse_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any, axis: Any) -> Any:
        if not x.ndim or 0 in x.shape:
            return x  # for any axes, even invalid ones, as in TensorFlow
        axes = _flipped_axes(dims(axis), x.ndim)
        return xp.flip(x, axis=tuple(axes)) if axes else x

    return kernel


@values_only
def _reversals(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases: tuple[tuple[tuple[int, ...], list[int]], ...] = (
        ((3,), [0]),
        ((2, 3), [-1]),
        ((2, 3), [0, 1]),
        ((2, 0), [0]),
        ((2,), []),
        ((), []),
    )
    return [case(draw(rng, dtype, s), np.array(a, np.int32)) for s, a in cases]


op(
    "ReverseV2",
    "tensor: T, axis: Tidx",
    "output: T",
    {"T": NUMERIC | {dtypes.bool_, dtypes.string}, "Tidx": _INDEX},
    shape=_reverse_shape,
    kernel=_reverse_kernel,
    xp=True,
    host=("axis",),
    form=reverse,
    grad=lambda b, n, dy: [b.ReverseV2(dy, n.axis), None],
    jvp=linear("tensor"),
    batch=shifting_axes(1, 0),
    oracle=lambda x, axis: (
        x[np.ix_(*[range(n)[:: -1 if i in axis % x.ndim else 1] for i, n in enumerate(x.shape)])] if x.ndim else x
    ),
    sample=_reversals,
    doc="The input reversed along the given axes.",
)


def _chosen(flags: Sequence[bool], rank: int) -> tuple[int, ...]:
    """The axes that Reverse reverses."""
    if len(flags) != rank:
        raise ValueError(
            "'dims' must have the same number of values as 'input' has dimensions. "
            f"'input' has {rank}'dims' has {len(flags)} values"
        )
    return tuple(i for i, flag in enumerate(flags) if flag)


def _reverse_v1_shape(c: Inference) -> Sequence[Shape]:
    (n,) = shapes.with_rank(c.shapes[1], 1)
    x = c.shapes[0]
    if x is None:
        return [None if n is None else (None,) * n]
    if n is not None and n != len(x):
        _chosen([False] * n, len(x))
    return [x]


def _reverse_v1_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any, flags: Any) -> Any:
        if not x.ndim:
            return x  # for any flags, even invalid ones, as in TensorFlow
        if flags.ndim != 1:
            raise InvalidArgumentError(f"'dims' must be 1-dimension, not {flags.ndim}")
        axes = _chosen(listed(flags), x.ndim)
        if x.ndim > 8:
            raise UnimplementedError("reverse is not implemented for tensors of rank > 8.")
        return xp.flip(x, axis=axes) if axes else x

    return kernel


op(
    "Reverse",
    "tensor: T, dims: bool",
    "output: T",
    {"T": NUMERIC | {dtypes.bool_, dtypes.string}},
    shape=_reverse_v1_shape,
    kernel=_reverse_v1_kernel,
    xp=True,
    host=("dims",),
    grad=lambda b, n, dy: [b.Reverse(dy, n.dims), None],
    jvp=linear("tensor"),
    batch=prefixing(1, False),
    oracle=lambda x, flags: x[np.ix_(*[range(n)[:: -1 if f else 1] for n, f in zip(x.shape, flags)])] if x.ndim else x,
    sample=values_only(
        lambda rng, dtype: [
            case(draw(rng, dtype, s), np.array(f, np.bool_))
            for s, f in (((2, 3), [True, False]), ((2,), [False]), ((), []))
        ]
    ),
    doc="The input reversed along the axes whose flag is set.",
)


def _sequence_dims(attrs: Mapping[str, Any], rank: int) -> tuple[int, int]:
    """The dimensions of the sequence and of the batch in an array of a rank."""
    seq, batch = attrs["seq_dim"], attrs["batch_dim"]
    if not 0 <= seq < rank or not 0 <= batch < rank or seq == batch:
        raise ValueError(
            f"seq_dim = {seq} and batch_dim = {batch} must be two different dimensions, below the input rank {rank}"
        )
    return seq, batch


def _reverse_sequence_shape(c: Inference) -> Sequence[Shape]:
    (n,) = shapes.with_rank(c.shapes[1], 1)
    x = c.shapes[0]
    if x is None:
        return [None]
    _, batch = _sequence_dims(c.attrs, len(x))
    return [(*x[:batch], shapes.merge_dim(x[batch], n), *x[batch + 1 :])]


def _reverse_sequence_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    to_index, int64 = converter(xp, dtypes.int64), dtype_in(xp, dtypes.int64)

    def kernel(x: Any, lengths: Any) -> Any:
        seq, batch = _sequence_dims(attrs, x.ndim)
        if lengths.shape != (x.shape[batch],):
            raise InvalidArgumentError(
                f"Length of seq_lengths != input.dims({batch}), ({shapes.show(lengths.shape)} vs. {x.shape[batch]})"
            )
        n = x.shape[seq]
        if not is_near(lengths):
            lengths = xp.clip(lengths, 0, n)
        least, greatest = bounds(xp, lengths) if lengths.shape[0] and is_near(lengths) else (0, 0)
        if least < 0 or greatest > n:
            got = np.array(integers(lengths))
            raise InvalidArgumentError(f"seq_lengths must be in [0, {n}], the size of dimension {seq}, got {got}")
        here = placed(xp, x)
        place = xp.arange(n, dtype=int64, **here)
        last = to_index(lengths)[:, None] - 1
        place = xp.where(place <= last, last - place, place)
        first = xp.arange(x.shape[batch], dtype=int64, **here)[:, None]
        moved = xp.moveaxis(x, (batch, seq), (0, 1))
        if xp is np:
            rows = moved[first, place]
        else:
            rest = moved.shape[2:]
            flat = xp.reshape(moved, (moved.shape[0] * n, *rest))
            rows = xp.reshape(xp.take(flat, xp.reshape(first * n + place, (-1,)), axis=0), moved.shape)
        return xp.moveaxis(rows, (0, 1), (batch, seq))

    return kernel


@values_only
def _sequences(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(shape: Sequence[int], lengths: list[int], **attrs: int) -> Any:
        return case(draw(rng, dtype, shape), np.array(lengths, np.int64), **attrs)

    return [
        some((2, 4), [3, 0], seq_dim=1),
        some((3, 2, 2), [1, 3], seq_dim=0, batch_dim=1),
        some((2, 3, 2), [2, 2], seq_dim=2),
        some((0, 3), [], seq_dim=1),
    ]


def _reverse_sequence_model(x: np.ndarray, lengths: np.ndarray, seq_dim: int, batch_dim: int = 0) -> np.ndarray:
    out = np.array(x)
    for at in np.ndindex(x.shape):
        n = lengths[at[batch_dim]]
        if at[seq_dim] < n:
            out[at] = x[(*at[:seq_dim], n - 1 - at[seq_dim], *at[seq_dim + 1 :])]
    return out


op(
    "ReverseSequence",
    "input: T, seq_lengths: Tlen",
    "output: T",
    {"seq_dim": int_attr(), "batch_dim": 0, "T": type_attr(), "Tlen": type_attr(INDEX, dtypes.int64)},
    shape=_reverse_sequence_shape,
    kernel=_reverse_sequence_kernel,
    xp=True,
    grad=lambda b, n, dy: [
        b.ReverseSequence(dy, n.seq_lengths, seq_dim=n.attrs["seq_dim"], batch_dim=n.attrs["batch_dim"]),
        None,
    ],
    jvp=linear("input"),
    facts=Facts(cost=flops_per_element(2)),
    oracle=_reverse_sequence_model,
    sample=_sequences,
    doc="The input with the first `seq_lengths[i]` elements along `seq_dim` of entry i of the batch reversed.",
)


def _roll_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_least(c.shapes[0], 1)
    shapes.with_rank_at_most(shapes.merge(c.shapes[1], c.shapes[2]), 1)
    return [c.shapes[0]]


def _roll_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any, shift: Any, axis: Any) -> Any:
        if x.ndim < 1:
            raise InvalidArgumentError("input must be 1-D or higher")
        if shift.ndim > 1 or shift.shape != axis.shape:
            raise InvalidArgumentError(
                "shift and axis must be scalars or vectors of the same size, got shapes "
                f"{shapes.show(shift.shape)} and {shapes.show(axis.shape)}"
            )
        total = [0] * x.ndim
        if xp is np:
            axes, shifts = axis.ravel().tolist(), shift.ravel().tolist()
        else:
            axes, shifts = integers(axis), integers(shift)
        for a, s in zip(axes, shifts, strict=True):
            total[axis_in(a, x.ndim)] += s
        moved = [a for a, s in enumerate(total) if s and x.shape[a]]
        return xp.roll(x, tuple([total[a] % x.shape[a] for a in moved]), axis=tuple(moved)) if moved else x

    return kernel


@values_only
def _rolls(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases: tuple[tuple[Any, Any, Any], ...] = (
        ((5,), 2, 0),
        ((2, 3), [1, -4], [0, 1]),
        ((2, 3), [1, 1], [1, -1]),
        ((2, 0), [1], [1]),
    )
    return [case(draw(rng, dtype, s), np.array(n, np.int32), np.array(a, np.int64)) for s, n, a in cases]


def _rolled(x: np.ndarray, shift: np.ndarray, axis: np.ndarray) -> np.ndarray:
    for s, a in zip(np.ravel(shift), np.ravel(axis)):
        n = x.shape[a]
        x = np.take(x, [(i - s) % n for i in range(n)], a) if n else x
    return x


op(
    "Roll",
    "input: T, shift: Tshift, axis: Taxis",
    "output: T",
    {"T": type_attr(), "Tshift": INDEX, "Taxis": INDEX},
    shape=_roll_shape,
    kernel=boxed(_roll_kernel),
    xp=True,
    host=("shift", "axis"),
    grad=lambda b, n, dy: [b.Roll(dy, b.Neg(n.shift), n.axis), None, None],
    jvp=linear("input"),
    batch=shifting_axes(2, 0),
    form=roll,
    facts=Facts(cost=flops_per_element(1)),
    oracle=_rolled,
    sample=_rolls,
    doc="The input rotated by `shift` elements along each axis: elements shifted past the end move to the front.",
)
