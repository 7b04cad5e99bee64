"""Convolutions with resizing and mirror padding of the input: FusedPadConv2D, FusedResizeAndPadConv2D.

Source: TensorFlow's ops of the same names. One image at a time is resized and padded, so the larger arrays never exist
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.dtypes import FLOATING, DType, bfloat16, float32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, list_attr, missing, op, string_attr
from headrace.opkit.arrays import check_size, dims
from headrace.opkit.elementwise import HALF
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.namespaces import constant, converter
from headrace.opkit.window_arrays import size as size_of
from headrace.opkit.windows import Sliding, sliding
from headrace.ops.nn.conv_samples import drawn, oracle
from headrace.ops.nn.conv_samples import in_groups as by_groups
from headrace.ops.nn.convolving import convolution, geometry, products, refuse_others
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

Array: TypeAlias = np.ndarray

# *** Images, in front of the convolution ***


def _margins(paddings: Array, x: tuple[int, ...], edge: int) -> list[tuple[int, int]]:
    """Checked paddings of each axis: the numbers of elements before and behind.

    Mirroring adds at most the size of the axis less `edge`.
    """
    if paddings.shape != (4, 2):
        raise InvalidArgumentError(
            f"paddings must be a matrix with 2 columns, the first dimension of which is the rank of inputs, 4: "
            f"got the shape {show(paddings.shape)}"
        )
    pairs = [(int(paddings[i, 0]), int(paddings[i, 1])) for i in range(4)]
    for what, i in (("batches", 0), ("channels", 3)):
        if any(pairs[i]):
            raise InvalidArgumentError(f"Fused mirror padding only support spatial padding, not {what}: {pairs}")
    for pair, n in zip(pairs, x, strict=True):
        if min(pair) < 0:
            raise InvalidArgumentError(f"paddings must be non-negative: {pair[0]} {pair[1]}")
        if max(pair) > n - edge and any(pair):
            raise InvalidArgumentError(
                f"paddings must be less than the dimension size: {pair[0]}, {pair[1]} not less than {n + 1 - edge}"
            )
    return pairs


def _between(xp: Any, length: int, out: int, align: bool, t: DType, like: Any) -> tuple[Any, Any, Any]:
    """Neighbours of `out` positions along an axis, and the weight of the second one."""
    one_less = 1 if align and out > 1 else 0
    scale = np.float32(length - one_less) / np.float32(out - one_less)
    at = np.arange(out, dtype=np.float32) * scale
    first = np.floor(at)
    low = first.astype(np.int64)
    return (
        constant(xp, low.tolist(), int64, like),
        constant(xp, np.minimum(low + 1, length - 1).tolist(), int64, like),
        constant(xp, (at - first).tolist(), t, like),
    )


def _resized(xp: Any, x: Any, size: tuple[int, int], align: bool, t: DType) -> Any:
    """`x`, of the wanted rows and columns by linear interpolation between those that it has."""
    left, right, along = _between(xp, x.shape[2], size[1], align, t, x)
    top, bottom, down = _between(xp, x.shape[1], size[0], align, t, x)
    rows = []
    for some in (top, bottom):
        y = xp.take(x, some, axis=1)
        before = xp.take(y, left, axis=2)
        rows.append(before + (xp.take(y, right, axis=2) - before) * along[:, None])
    return rows[0] + (rows[1] - rows[0]) * down[:, None, None]


def _mirrored_at_edges(xp: Any, x: Any, pairs: Sequence[tuple[int, int]], mode: str) -> Any:
    """`x`, padded by its mirror images."""
    if xp is np:
        return np.pad(x, pairs, mode)  # type: ignore[call-overload]
    edge = 1 if mode == "reflect" else 0
    for axis, (before, behind) in enumerate(pairs):
        if before or behind:
            n, lead = x.shape[axis], (slice(None),) * axis
            front = xp.flip(x[*lead, edge : edge + before, ...], axis=axis)
            back = xp.flip(x[*lead, n - edge - behind : n - edge, ...], axis=axis)
            x = xp.concat([front, x, back], axis=axis)
    return x


# *** Kernels ***


def _prepared(xp: Any, resize: bool, attrs: Mapping[str, Any], t: DType) -> Callable[..., Any]:
    """Returns `prepare(x, *rest)`, which pads and resizes the images for the convolution.

    `prepare` returns the shape of the prepared images, and a function that prepares a block of `x`.

    Args:
      xp: the array namespace.
      resize: whether `rest` is the size and the paddings, or the paddings alone.
      attrs: of the op.
      t: the dtype of the blocks.
    """
    mode, edge = attrs["mode"].lower(), 1 if attrs["mode"] == "REFLECT" else 0

    def prepare(x: Array, *rest: Array) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
        if x.ndim != 4:
            raise InvalidArgumentError(f"input must be 4-dimensional: {show(x.shape)}")
        if not size_of(x):
            raise InvalidArgumentError(f"Input tensor can't be empty, got {show(x.shape)}")
        rows, columns = x.shape[1:3]
        if resize:
            size = dims(rest[0])
            if len(size) != 2:
                raise InvalidArgumentError(f"size must have two elements, got {list(size)}")
            if min(size) < 1:
                raise InvalidArgumentError(f"output dimensions must be positive, got {list(size)}")
            rows, columns = size
        shape = (x.shape[0], rows, columns, x.shape[3])
        pairs = _margins(rest[-1], shape, edge)
        whole = tuple(n + sum(pair) for n, pair in zip(shape, pairs, strict=True))

        def make(some: Array) -> Array:
            images = _resized(xp, some, (rows, columns), attrs["resize_align_corners"], t) if resize else some
            return _mirrored_at_edges(xp, images, pairs, mode) if any(map(any, pairs)) else images

        return whole, make

    return prepare


def _kernel(type: str, resize: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = _sliding(type, attrs), attrs["T"]
        wide = float32 if t in HALF else t
        prepare, of = _prepared(xp, resize, attrs, wide), products(xp, wide)
        widen, narrow = converter(xp, wide), converter(xp, t)

        def kernel(x: Array, *rest: Array) -> Array:
            *others, w = rest
            whole, make = prepare(x, *others)
            refuse_others(s)
            if w.ndim != 4 or w.shape[2] != whole[3]:
                raise InvalidArgumentError(
                    f"filter must be 4-dimensional, and input and filter must have the same depth: {whole[3]} vs "
                    f"{show(w.shape)}"
                )
            y = geometry(s, whole, w.shape)[2]
            check_size(y, t)
            check_size(whole[1:], t)
            images = [x[i : i + 1, ...] for i in range(x.shape[0])]
            w = widen(w)
            return xp.concat([narrow(convolution(s, make(widen(image)), w, of)) for image in images])

        return kernel

    return factory


def _sliding(type: str, attrs: Mapping[str, Any]) -> Sliding:
    return sliding(type, {"strides": attrs["strides"], "padding": attrs["padding"]})


# *** Shapes ***


def _shape(type: str, resize: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        s = _sliding(type, c.attrs)
        x, w = with_rank(c.shapes[0], 4), with_rank(c.shapes[-1], 4)
        paddings = c.value(len(c.shapes) - 2)
        with_rank(c.shapes[-2], 2)
        assert x is not None
        assert w is not None
        merge_dim(x[3], w[2])
        lengths: list[Dim] = [x[1], x[2]]
        if resize:
            size = c.shape_value(1)
            lengths = [None, None] if size is None or len(size) != 2 else list(size)
        y: list[Dim] = []
        for i, length in enumerate(lengths, 1):
            if length is None or paddings is None or paddings.shape != (4, 2):
                y.append(None)
            else:
                y.append(s.dim(i, length + int(paddings[i].sum()), w[i - 1]))
        return [(x[0], *y, w[3])]

    return rule


def _cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    w, y = ins[-1], outs[0]
    if w is None or y is None or None in (*w, *y):
        return None
    return 2.0 * float(np.prod([float(d or 0) for d in (*y, *w[:3])]))


# *** Gradients ***


def _pad_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    attrs = {"strides": n.attrs["strides"], "padding": n.attrs["padding"]}
    mode = n.attrs["mode"]
    padded = b.MirrorPad(n.input, n.paddings, mode=mode)

    def by_input() -> Any:
        dx = b.Conv2DBackpropInput(b.Shape(padded), n.filter, dy, **attrs)
        return b.MirrorPadGrad(dx, n.paddings, mode=mode)

    return [by_input, None, lambda: b.Conv2DBackpropFilter(padded, b.Shape(n.filter), dy, **attrs)]


# *** How the tests exercise them ***


def _mirrored(x: Array, paddings: Array, mode: str) -> Array:
    edge = 1 if mode == "REFLECT" else 0
    for axis in (1, 2):
        n, (before, behind) = x.shape[axis], paddings[axis]
        places = (
            [edge + before - 1 - i for i in range(before)] + list(range(n)) + [n - 1 - edge - i for i in range(behind)]
        )
        x = np.stack([x.take(p, axis) for p in places], axis)
    return x


def _interpolated(x: Array, size: Array, align: bool) -> Array:
    out = np.empty((len(x), *size, x.shape[3]), np.float64)
    for i, j in np.ndindex(*size):
        at = []
        for p, n, m in zip((i, j), x.shape[1:3], size, strict=True):
            scale = np.float32(n - 1) / np.float32(m - 1) if align and m > 1 else np.float32(n) / np.float32(m)
            place = np.float32(p) * scale
            at.append((int(place), min(int(place) + 1, n - 1), float(place - np.floor(place))))
        (top, bottom, down), (left, right, along) = at
        rows = [x[:, r, left] * (1 - along) + x[:, r, right].astype(np.float64) * along for r in (top, bottom)]
        out[:, i, j] = rows[0] * (1 - down) + rows[1] * down
    return out


def _oracle(resize: bool) -> Any:
    def made(x: Array, *rest: Array, mode: str, resize_align_corners: bool = False, **attrs: Any) -> Array:
        *size, paddings, w = rest
        images = x.astype(np.float64)
        if resize:
            images = _interpolated(images, size[0], resize_align_corners)
        out = oracle("y", by_groups, lambda w: w[-1])(_mirrored(images, paddings, mode), w.astype(np.float64), **attrs)
        return np.asarray(out).astype(x.dtype)

    return made


_PADDINGS = np.array([[0, 0], [1, 2], [2, 0], [0, 0]], np.int32)


def _samples(resize: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for mode, padding, strides in (("REFLECT", "VALID", (1, 1, 2, 1)), ("SYMMETRIC", "SAME", (1, 1, 1, 1))):
            sizes = [np.array([3, 5], np.int32)] if resize else []
            attrs: dict[str, Any] = {"mode": mode, "padding": padding, "strides": strides}
            if resize and mode == "REFLECT":
                attrs["resize_align_corners"] = True
            images, weights = drawn(rng, dtype, (1, 4, 3, 2)), drawn(rng, dtype, (2, 3, 2, 2))
            out.append(case(images, *sizes, _PADDINGS, weights, **attrs))
        return out

    return sample


# *** Records ***

_ATTRS: dict[str, Any] = {
    "mode": string_attr(allowed=("REFLECT", "SYMMETRIC")),
    "strides": list_attr("int"),
    "padding": string_attr(allowed=("SAME", "VALID")),
}

_DIFFERS = "Convolves each image of a batch separately; TensorFlow's results for several images differ."

op(
    "FusedPadConv2D",
    "input: T, paddings: int32, filter: T",
    "output: T",
    {"T": FLOATING} | _ATTRS,
    shape=_shape("FusedPadConv2D", False),
    kernel=_kernel("FusedPadConv2D", False),
    xp=True,
    host=("paddings",),
    grad=_pad_grad,
    jvp=multilinear("input", "filter"),
    facts=Facts(cost=_cost, blas=True, fresh=True),
    oracle=_oracle(False),
    sample=_samples(False),
    doc="The convolution of images that are mirrored at their edges.",
    differs=_DIFFERS,
)
op(
    "FusedResizeAndPadConv2D",
    "input: T, size: int32, paddings: int32, filter: T",
    "output: T",
    {"T": FLOATING - {bfloat16}, "resize_align_corners": False} | _ATTRS,
    shape=_shape("FusedResizeAndPadConv2D", True),
    kernel=_kernel("FusedResizeAndPadConv2D", True),
    xp=True,
    host=("size", "paddings"),
    grad=missing("it fuses ops with gradients for inference only; TensorFlow has none either"),
    jvp=multilinear("input", "filter"),
    facts=Facts(cost=_cost, blas=True, fresh=True),
    oracle=_oracle(True),
    sample=_samples(True),
    doc="The convolution of images that are resized by linear interpolation and mirrored at their edges.",
    differs=_DIFFERS,
)
