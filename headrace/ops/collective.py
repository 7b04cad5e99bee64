"""Collectives: joint computations of a group of participants, each with its own tensor.

    y0, y1, y2 = _AllReduce([x0, x1, x2], reduction="sum")      # each of the ys is x0 + x1 + x2

A collective is *one* operation with an input and an output for each participant. On one device its kernel computes the
result. If the participants are on several devices, `lower/collectives.py` replaces the operation by operations on each
device, which compute the result together. So gradients, loops and passes have one simple operation, and only the last
stage uses rings and trees.

The gradients are collectives too. The gradient of a sum is the sum of the gradients; gathering and reduce-scattering
are each other's gradients; and the gradient of a broadcast is the sum of the gradients of its outputs.

Floats are added pairwise in a tree, ((x0 + x1) + (x2 + x3)) + x4. The additions of small tensors that are sent between
devices have the same order, so both give the same bits.

Source: TensorFlow's `nccl_ops`, and the collectives of MPI and NCCL, whose conventions for shapes are kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.dtypes import COMPLEX, NUMERIC, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, int_attr, list_attr, missing, op, shape_attr, string_attr
from headrace.opkit.arrays import HANDLES, add_dims, copied, reshaper, single
from headrace.opkit.elementwise import alike, conj
from headrace.opkit.jvp_rules import linear
from headrace.opkit.testing.samples import draw
from headrace.opkit.tree_reduction import tree_reduce
from headrace.shapes import Shape, show

_UFUNCS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_VALUES = frozenset(dtypes.ALL) - HANDLES  # a handle is valid on its own device only

# the device of each participant's part ("": that of its input); empty: that of the input for all
_DEVICES = list_attr("string", ())


def _total(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    """The cost: one operation for each element of the inputs and outputs."""
    n = add_dims(map(shapes.size, (*ins, *outs)))
    return None if n is None else float(n)


_FACTS = Facts(cost=_total, total=())


def _check_devices(c: Inference) -> None:
    devices = c.attrs["devices"]
    if len(devices) not in (0, c.attrs["N"]):
        raise ValueError(f"'devices' must name one for each of the {c.attrs['N']} participants, got {list(devices)}")


def _require_alike(arrays: Sequence[Any], what: str, rank: int = 0) -> None:
    """Checks that all arrays have one shape, with at least `rank` dimensions.

    Raises:
      InvalidArgumentError: a shape differs from the first one, or its rank is too small.
    """
    first = arrays[0].shape
    if len(first) < rank:
        raise InvalidArgumentError(f"{what} needs tensors of rank {rank} or more, got the shape {show(first)}")
    for i, x in enumerate(arrays):
        if x.shape != first:
            raise InvalidArgumentError(
                f"Inputs to operation {what} must have the same size and shape. Input 0: {show(first)} != input {i}: "
                f"{show(x.shape)}"
            )


def _copies(xp: Any, x: Any, n: int) -> tuple[Any, ...]:
    """A copy of `x` for each of `n` participants."""
    return (x, *(x.copy() if xp is np else copied(xp, x) for _ in range(n - 1)))


def _in_pairs(f: Callable[[Any, Any], Any], arrays: Sequence[Any]) -> Any:
    return tree_reduce(lambda i, x, y: f(x, y), arrays)


def _made(b: Any, n: Any, type: str, tensors: Sequence[Any], **attrs: Any) -> list[Any]:
    """Outputs of a collective of the participants of `n`."""
    out = b.make(type, (list(tensors),), {"devices": n.attrs["devices"], **attrs}, None)
    return nest.as_list(out)


# *** _AllReduce ***


def _all_reduce_shape(c: Inference) -> Sequence[Shape]:
    _check_devices(c)
    if c.attrs["reduction"] in ("max", "min") and c.attrs["T"] in COMPLEX:
        raise ValueError(f"complex numbers have no order, so there is no {c.attrs['reduction']} of them")
    return alike(c) * c.attrs["N"]


def _all_reduce(xp: Any, attrs: Mapping[str, Any]) -> Any:
    n, f = attrs["N"], getattr(xp, _UFUNCS[attrs["reduction"]])

    def kernel(*arrays: Any) -> tuple[Any, ...]:
        _require_alike(arrays, "_AllReduce")
        return _copies(xp, _in_pairs(f, arrays), n)

    return single(kernel, n)


def _slopes(b: Any, n: Any) -> list[Any]:
    """Derivatives of the result by each wanted input; None stands for 1.

    The derivative of a product is the product of the other inputs, those before times those after, without a division
    by zero. The derivative of a maximum is 1, divided evenly among equal inputs.
    """
    xs = list(n.inputs)
    if n.attrs["reduction"] == "sum" or len(xs) == 1:
        return [None] * len(xs)
    if n.attrs["reduction"] == "prod":
        wanted = [i for i, want in enumerate(n.wanted) if want]
        before, after = _running(b, xs[: wanted[-1]]), _running(b, xs[: wanted[0] : -1])
        out: list[Any] = [None] * len(xs)
        for i in wanted:
            parts = [*before[i - 1 : i], *after[len(xs) - 2 - i : len(xs) - 1 - i]]
            out[i] = b.Mul(*parts) if len(parts) == 2 else parts[0]
        return out
    ties = [b.Cast(b.Equal(x, y), DstT=n.attrs["T"]) for x, y in zip(xs, n.outputs, strict=True)]
    counts = _made(b, n, "_AllReduce", ties)
    return [b.RealDiv(*pair) if want else None for pair, want in zip(zip(ties, counts, strict=True), n.wanted)]


def _running(b: Any, xs: Sequence[Any]) -> list[Any]:
    """The products of the first, of the first two, ... of `xs`."""
    out = list(xs[:1])
    for x in xs[1:]:
        out.append(b.Mul(out[-1], x))
    return out


def _all_reduce_grad(b: Any, n: Any, *dys: Any) -> list[Any]:
    sums = _made(b, n, "_AllReduce", dys)
    pairs = zip(_slopes(b, n), sums, strict=True)
    return [dy if s is None or not want else b.Mul(conj(b, s), dy) for (s, dy), want in zip(pairs, n.wanted)]


def _all_reduce_jvp(b: Any, n: Any, *dxs: Any) -> list[Any]:
    moved = [b.ZerosLike(x) if dx is None else dx for x, dx in zip(n.inputs, dxs, strict=True)]
    return _made(b, n, "_AllReduce", [d if s is None else b.Mul(s, d) for s, d in zip(_slopes(b, n), moved)])


def _reductions(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case([draw(rng, dtype, s, *((1, 3) if how == "prod" else (-3, 3))) for _ in range(n)], reduction=how)
        for how in (("sum", "prod") if dtype in COMPLEX else _UFUNCS)
        for n, s in ((1, (2,)), (2, ()), (3, (2, 3)), (5, (0, 2)), (5, (3,)))
    ]


_ORACLES: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: x + y,
    "prod": lambda x, y: x * y,
    "max": np.fmax,
    "min": np.fmin,
}


def _reduced(arrays: Sequence[np.ndarray], reduction: str = "sum") -> np.ndarray:
    wide = {"c": np.complex128, "i": np.int64, "u": np.uint64}.get(arrays[0].dtype.kind, np.float64)
    out: np.ndarray = arrays[0].astype(wide)
    for x in arrays[1:]:
        out = _ORACLES[reduction](out, x.astype(wide))
    return out.astype(arrays[0].dtype)


op(
    "_AllReduce",
    "inputs: N * T",
    "outputs: N * T",
    {
        "N": int_attr(minimum=1),
        "T": NUMERIC,
        "reduction": string_attr("sum", set(_UFUNCS)),
        "devices": _DEVICES,
    },
    shape=_all_reduce_shape,
    kernel=_all_reduce,
    xp=True,
    grad=_all_reduce_grad,
    jvp=_all_reduce_jvp,
    facts=_FACTS,
    oracle=lambda xs, **attrs: (_reduced(xs, **attrs),) * len(xs),
    sample=_reductions,
    doc="The elementwise sum, product, maximum or minimum of all inputs, for each participant.",
)


# *** _Broadcast ***


def _broadcast_shape(c: Inference) -> Sequence[Shape]:
    _check_devices(c)
    return [c.shapes[0]] * c.attrs["N"]


op(
    "_Broadcast",
    "input: T",
    "outputs: N * T",
    {"N": int_attr(minimum=1), "T": _VALUES, "devices": _DEVICES},
    shape=_broadcast_shape,
    kernel=lambda xp, attrs: single(lambda x: _copies(xp, x, attrs["N"]), attrs["N"]),
    xp=True,
    grad=lambda b, n, *dys: [b.AddN(list(dys))],
    jvp=linear("input"),
    facts=_FACTS,
    oracle=lambda x, N: (x,) * N,
    sample=lambda rng, dtype: [case(draw(rng, dtype, s), N=n) for n, s in ((1, (2,)), (3, ()), (4, (2, 3)))],
    doc="The input, for each participant.",
)


# *** _AllGather, _ReduceScatter ***


def _all_gather_shape(c: Inference) -> Sequence[Shape]:
    _check_devices(c)
    x = shapes.with_rank_at_least(alike(c)[0], 1)
    return [None if x is None else (None if x[0] is None else x[0] * len(c.shapes), *x[1:])] * len(c.shapes)


def _all_gather(xp: Any, attrs: Mapping[str, Any]) -> Any:
    n = attrs["N"]

    def kernel(*arrays: Any) -> tuple[Any, ...]:
        _require_alike(arrays, "_AllGather", 1)
        return _copies(xp, xp.concat(arrays), n)

    return single(kernel, n)


def _groups(*shapes: tuple[int, ...]) -> Any:
    """Cases of several participants, each with an array of the same shape."""
    return lambda rng, dtype: [case([draw(rng, dtype, s) for _ in range(s[0])]) for s in shapes]


op(
    "_AllGather",
    "inputs: N * T",
    "outputs: N * T",
    {"N": int_attr(minimum=1), "T": _VALUES, "devices": _DEVICES},
    shape=_all_gather_shape,
    kernel=_all_gather,
    xp=True,
    grad=lambda b, n, *dys: _made(b, n, "_ReduceScatter", dys),
    jvp=linear("inputs"),
    facts=_FACTS,
    oracle=lambda xs: (np.concatenate(xs),) * len(xs),
    sample=_groups((1,), (2, 3), (3, 0), (3, 1, 2)),
    doc="All inputs concatenated along the first axis, for each participant.",
)


def _rows(x: Shape, n: int, what: str) -> Shape:
    """The shape of one of `n` equal parts of `x` along the first axis."""
    x = shapes.with_rank_at_least(x, 1)
    if x is None or x[0] is None:
        return None if x is None else (None, *x[1:])
    if x[0] % n:
        raise ValueError(f"{what} cuts the first dimension into {n} equal parts, which {x[0]} is not divisible into")
    return (x[0] // n, *x[1:])


def _reduce_scatter_shape(c: Inference) -> Sequence[Shape]:
    _check_devices(c)
    return [_rows(alike(c)[0], c.attrs["N"], "_ReduceScatter")] * c.attrs["N"]


def _parts(x: Any, n: int) -> tuple[Any, ...]:
    """Views of `n` nearly equal parts of `x` along the first axis, larger ones last."""
    ends = [x.shape[0] * i // n for i in range(n + 1)]
    return tuple(x[a:b, ...] for a, b in itertools.pairwise(ends))


def _reduce_scatter(xp: Any, attrs: Mapping[str, Any]) -> Any:
    n = attrs["N"]

    def kernel(*arrays: Any) -> tuple[Any, ...]:
        _require_alike(arrays, "_ReduceScatter", 1)
        _rows(arrays[0].shape, n, "_ReduceScatter")
        return _parts(_in_pairs(xp.add, arrays), n)

    return single(kernel, n)


op(
    "_ReduceScatter",
    "inputs: N * T",
    "outputs: N * T",
    {"N": int_attr(minimum=1), "T": NUMERIC, "devices": _DEVICES},
    shape=_reduce_scatter_shape,
    kernel=_reduce_scatter,
    xp=True,
    grad=lambda b, n, *dys: _made(b, n, "_AllGather", dys),
    jvp=linear("inputs"),
    facts=_FACTS,
    oracle=lambda xs: tuple(np.split(_reduced(xs), len(xs))),
    sample=_groups((1, 2), (2, 3), (3,), (3, 0)),
    doc="For each participant one of equal parts, along the first axis, of the sum of all inputs.",
)


# *** operations that replace collectives in a partitioned step ***

_MADE_LATE = missing("lowering makes it, after gradients are built")


def _cut_shape(c: Inference) -> Sequence[Shape]:
    n, x = c.attrs["N"], c.shapes[0]
    if not c.attrs["flat"]:
        return [_rows(x, n, "_Cut")] * n
    size = shapes.size(x)
    return [(None,)] * n if size is None else [(size * (i + 1) // n - size * i // n,) for i in range(n)]


def _cut(xp: Any, attrs: Mapping[str, Any]) -> Any:
    n, is_flat = attrs["N"], attrs["flat"]

    def kernel(x: Any) -> tuple[Any, ...]:
        if is_flat:
            return _parts(x.reshape(-1) if xp is np else xp.reshape(x, (-1,)), n)
        _rows(x.shape, n, "_Cut")
        return _parts(x, n)

    return single(kernel, n)


def _cut_oracle(x: np.ndarray, N: int, flat: bool = False) -> tuple[np.ndarray, ...]:
    x = x.ravel() if flat else x
    owner = np.array([max(i for i in range(N) if len(x) * i // N <= k) for k in range(len(x))], int)
    return tuple(x[owner == i] for i in range(N))


op(
    "_Cut",
    "input: T",
    "parts: N * T",
    {"N": int_attr(minimum=1), "T": _VALUES, "flat": False},
    shape=_cut_shape,
    kernel=_cut,
    xp=True,
    grad=_MADE_LATE,
    facts=Facts(total=()),
    oracle=_cut_oracle,
    sample=lambda rng, dtype: [
        *(case(draw(rng, dtype, s), N=n) for n, s in ((1, (2,)), (2, (4, 3)), (3, (0, 2)))),
        *(case(draw(rng, dtype, s), N=n, flat=True) for n, s in ((1, ()), (2, (2, 3)), (3, (1, 4)), (4, (2,)))),
    ],
    doc="Equal parts along the first axis; with `flat`, nearly equal parts of the flattened input.",
)


def _join_shape(c: Inference) -> Sequence[Shape]:
    to = c.attrs["shape"]
    if shapes.is_full(to):
        size = add_dims(map(shapes.size, c.shapes))
        if size not in (None, math.prod(to)):
            raise ValueError(f"parts of {size} elements cannot be joined to the shape {show(to)}")
        return [to]
    rest: Shape = None
    for s in c.shapes:
        s = shapes.with_rank_at_least(s, 1)
        rest = shapes.merge(rest, None if s is None else (None, *s[1:]))
    if rest is None or any(s is None for s in c.shapes):
        return [rest]
    return [(add_dims(s[0] for s in c.shapes if s), *rest[1:])]


def _join(xp: Any, attrs: Mapping[str, Any]) -> Any:
    to, reshape = attrs["shape"] if shapes.is_full(attrs["shape"]) else None, reshaper(xp)

    def kernel(*parts: Any) -> Any:
        x = xp.concat(parts)
        return x if to is None else reshape(x, to)

    return kernel


op(
    "_Join",
    "parts: N * T",
    "output: T",
    {"N": int_attr(minimum=1), "T": _VALUES, "shape": shape_attr(None)},
    shape=_join_shape,
    kernel=_join,
    xp=True,
    grad=_MADE_LATE,
    facts=Facts(cost=flops_per_element(1), total=()),
    oracle=lambda xs, shape=None: np.concatenate(xs).reshape(shape or (-1, *xs[0].shape[1:])),
    sample=lambda rng, dtype: [
        case([draw(rng, dtype, (2,)), draw(rng, dtype, (4,))], shape=(2, 3)),
        case([draw(rng, dtype, (1, 3)), draw(rng, dtype, (2, 3)), draw(rng, dtype, (0, 3))]),
        case([draw(rng, dtype, (2,))]),
    ],
    doc="The parts concatenated along the first axis, reshaped to `shape` if that is known.",
)
