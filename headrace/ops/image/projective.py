"""Projective transformations of images: ImageProjectiveTransformV2 and V3.

Source: TensorFlow's ops of the same names. A pixel (x, y) of the result is read at (a0 x + a1 y + a2, b0 x + b1 y + b2)
/ (c0 x + c1 y + 1), with the eight numbers in this order. The mode determines the values outside of the image.
Positions are computed in float32, a block of rows at a time. As in TensorFlow, the gradient applies the inverse
transformation to the output gradient, which is the transpose only if no pixel is interpolated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import thresholds
from headrace.dtypes import FLOATING, DType, bfloat16, float16, float32, float64, int32, int64, uint8
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Case, Facts, case, flops_per_element, op, string_attr
from headrace.opkit.arrays import check_size, shape_from
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, integers, number
from headrace.opkit.testing.samples import draw
from headrace.opkit.window_arrays import full
from headrace.opkit.window_arrays import size as size_of
from headrace.ops.image.taps import rounded
from headrace.shapes import Shape, merge_dim, show, with_rank

_BLACK = np.float32(0)
_FAR = 2.0**40  # outside of any image

Array = np.ndarray
F32 = np.float32


# *** Positions beyond the edge ***


def _reflected(xp: Any, at: Any, length: int) -> Any:
    """[dcba|abcd|dcba], counted from the middle."""
    if length <= 1:
        return xp.zeros_like(at)
    period = number(xp, 2 * length, float32)
    below = at + period * xp.trunc(-at / period)
    below = xp.where(below < -length, below + period, -below - 1)
    above = at - period * xp.trunc(at / period)
    above = xp.where(above >= length, period - above - 1, above)
    return xp.where(at < 0, below, xp.where(at > length - 1, above, at))


def _wrapped(xp: Any, at: Any, length: int) -> Any:
    """Positions wrapped around, as in [abcd|abcd|abcd]."""
    if length <= 1:
        return xp.zeros_like(at)
    period, last = number(xp, length, float32), number(xp, length - 1, float32)
    below = at + period * (xp.trunc(-at / last) + 1)
    above = at - period * xp.trunc(at / last)
    return xp.where(at < 0, below, xp.where(at > last, above, at))


_MODES: dict[str, Callable[[Any, Any, int], Any] | None] = {
    "CONSTANT": None,
    "REFLECT": _reflected,
    "WRAP": _wrapped,
    "NEAREST": lambda xp, at, length: at,
}


def _mapped(xp: Any, at: Any, length: int, mode: str) -> Any:
    """Positions to read in place of `at`, by the fill mode."""
    f = _MODES[mode]
    if f is None:
        return at
    return xp.clip(f(xp, at, length), number(xp, 0, float32), number(xp, length - 1, float32))


# *** Kernels ***


def _read(xp: Any, image: Any, y: Any, x: Any, fill: Any) -> Any:
    """The pixels at integer positions, `fill` outside."""
    height, width, channels = image.shape
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    if xp is not np:
        if not size_of(image):
            return xp.asarray(xp.broadcast_to(fill, (*y.shape, channels)), copy=True)
        at = xp.where(inside, y * width + x, xp.zeros_like(y))
        found = xp.take(xp.reshape(image, (height * width, channels)), xp.reshape(at, (-1,)), axis=0)
        return xp.where(inside[..., None], xp.reshape(found, (*y.shape, channels)), fill)
    if not image.size:
        return np.full((*y.shape, image.shape[2]), fill, image.dtype)
    found = image[np.where(inside, y, 0), np.where(inside, x, 0)]
    return found if inside.all() else np.where(inside[..., None], found, fill)


def _sampled(xp: Any, image: Any, y: Any, x: Any, bilinear: bool, fill: Any, t: DType) -> Any:
    y, x = (xp.clip(at, -_FAR, _FAR) for at in (y, x))
    if not bilinear:
        return _read(xp, image, rounded(y, xp), rounded(x, xp), fill)
    to_place, to_float = converter(xp, int64), converter(xp, float32)
    top, left = xp.floor(y), xp.floor(x)
    down, along = (y - top)[..., None], (x - left)[..., None]
    i, j = to_place(top), to_place(left)
    (a, b), (c, d) = ([to_float(_read(xp, image, i + v, j + h, fill)) for h in (0, 1)] for v in (0, 1))
    upper = (1 - along) * a + along * b
    lower = (1 - along) * c + along * d
    return converter(xp, t)((1 - down) * upper + down * lower)


def _transform(xp: Any, attrs: Mapping[str, Any]) -> Any:
    method, mode, t = attrs["interpolation"], attrs["fill_mode"], attrs["dtype"]

    def kernel(images: Array, transforms: Array, size: Array, value: Any = _BLACK) -> Array:
        if method not in ("NEAREST", "BILINEAR"):
            raise InvalidArgumentError(f"interpolation must be NEAREST or BILINEAR, got {method}")
        if mode not in _MODES:
            raise InvalidArgumentError(f"fill_mode must be one of {', '.join(_MODES)}, got {mode}")
        if images.ndim != 4:
            raise InvalidArgumentError(f"Input images must have rank 4, got {show(images.shape)}")
        count = images.shape[0]
        if transforms.ndim != 2 or transforms.shape[1] != 8 or transforms.shape[0] not in (1, count):
            raise InvalidArgumentError(
                f"Input transform should be num_images x 8 or 1 x 8, got {show(transforms.shape)} for {count} images"
            )
        if size.ndim != 1:
            raise InvalidArgumentError(f"output shape must be 1-dimensional, got {show(size.shape)}")
        if size.shape[0] != 2:
            raise InvalidArgumentError(f"output shape must have two elements, got {show(size.shape)}")
        if value.ndim:
            raise InvalidArgumentError(f"fill_value must be a scalar, got {show(value.shape)}")
        height, width = integers(size)
        if height <= 0 or width <= 0:
            raise InvalidArgumentError(f"output dimensions must be positive, got {[height, width]}")
        shape = (count, height, width, images.shape[3])
        check_size(shape, t)
        if xp is not np:
            fill = full(xp, (), 0, images) if value is _BLACK else converter(xp, t)(value)
            out = xp.asarray(xp.broadcast_to(fill, shape), copy=True)
            rows = xp.arange(height, dtype=xp.float32, device=images.device)
            for n in range(count):
                matrix = transforms[n if transforms.shape[0] > 1 else 0, :]
                at_y, at_x, known = _positions(xp, images.shape[1:3], width, matrix, rows, mode)
                at_y, at_x = (xp.where(known, at, xp.zeros_like(at)) for at in (at_y, at_x))
                found = _sampled(xp, images[n, ...], at_y, at_x, method == "BILINEAR", fill, t)
                out[n, ...] = xp.where(known[..., None], found, fill)
            return out
        fill = value.astype(t.numpy)
        out = np.full(shape, fill, t.numpy)
        for n, image in enumerate(images):
            matrix = transforms[n if len(transforms) > 1 else 0]
            step = max(1, thresholds.PROJECTED_PIXELS // width)
            for top in range(0, height, step):
                rows = np.arange(top, min(top + step, height), dtype=F32)
                at_y, at_x, known = _positions(np, image.shape, width, matrix, rows, mode)
                found = _sampled(np, image, at_y[known], at_x[known], method == "BILINEAR", fill, t)
                out[n, top : top + step][known] = found
        return out

    return kernel


def _positions(xp: Any, lengths: Sequence[int], width: int, matrix: Any, rows: Any, mode: str) -> tuple[Any, Any, Any]:
    """Positions of the pixels of rows, and a mask of those known."""
    x, y = xp.arange(width, dtype=xp.float32, device=rows.device)[None, :], rows[:, None]
    a0, a1, a2, b0, b1, b2, c0, c1 = [matrix[i] for i in range(8)]
    depth = c0 * x + c1 * y + 1
    at_x = _mapped(xp, (a0 * x + a1 * y + a2) / depth, lengths[1], mode)
    at_y = _mapped(xp, (b0 * x + b1 * y + b2) / depth, lengths[0], mode)
    return at_y, at_x, (depth != 0) & ~xp.isnan(at_x) & ~xp.isnan(at_y)


def _shape(c: Inference) -> Sequence[Shape]:
    images = with_rank(c.shapes[0], 4)
    merge_dim(with_rank(c.shapes[1], 2)[1], 8)
    height, width = with_rank(shape_from(c, 2), 2)
    for scalar in c.shapes[3:]:
        with_rank(scalar, 0)
    return [(images[0], height, width, images[3])]


def _rule(b: Any, n: Any, dy: Any) -> list[Any]:
    nothing = [None] * (len(n.inputs) - 1)
    if n.attrs["dtype"] not in FLOATING or not n.wants("images"):
        return [None, *nothing]
    count = b.StridedSlice(b.Shape(n.transforms), [0], [1], [1])
    whole = b.ConcatV2([n.transforms, b.Fill(b.ConcatV2([count, [1]], 0), 1.0)], 1)
    inverse = b.Reshape(b.MatrixInverse(b.Reshape(whole, [-1, 3, 3])), [-1, 9])
    scaled = b.RealDiv(inverse, b.Slice(inverse, [0, 8], [-1, 1]))
    size = b.StridedSlice(b.Shape(n.images), [1], [3], [1])
    attrs = {k: n.attrs[k] for k in ("interpolation", "fill_mode")}
    args = [dy, b.Slice(scaled, [0, 0], [-1, 8]), size]
    return [b.make(n.op.type, args + [0.0] * (len(n.inputs) - 3), attrs), *nothing]


# *** Oracle and samples ***


def _beyond(at: float, length: int, mode: str) -> float:
    """Position to read, by definition of the fill mode.

    A position between two copies of the image is read at the nearer edge.
    """
    if mode == "REFLECT":
        at = (at + 0.5) % (2 * length)
        at = (2 * length - at if at > length else at) - 0.5
    return at if mode == "CONSTANT" else min(max(at, 0.0), length - 1.0)


def _oracle(
    images: Array,
    transforms: Array,
    size: Array,
    value: Any = 0.0,
    interpolation: str = "NEAREST",
    fill_mode: str = "CONSTANT",
) -> Array:
    n, height, width, channels = images.shape
    out = np.empty((n, *size, channels), images.dtype)
    for i, y, x in np.ndindex(out.shape[:3]):
        a0, a1, a2, b0, b1, b2, c0, c1 = map(float, transforms[i % len(transforms)])
        depth = c0 * x + c1 * y + 1
        u = _beyond((a0 * x + a1 * y + a2) / depth, width, fill_mode)
        v = _beyond((b0 * x + b1 * y + b2) / depth, height, fill_mode)
        p, q = int(np.floor(v)), int(np.floor(u))
        around = [(p, q), (p, q + 1), (p + 1, q), (p + 1, q + 1)]
        if interpolation == "NEAREST":
            around = [min(reversed(around), key=lambda at: abs(at[0] - v) + abs(at[1] - u))]
        total = np.zeros(channels)
        for p, q in around:
            pixel = images[i, p, q].astype(float) if 0 <= p < height and 0 <= q < width else float(value)
            total += pixel * ((1 - abs(v - p)) * (1 - abs(u - q)) if len(around) > 1 else 1)
        out[i, y, x] = total
    return out


def _samples(fills: Sequence[Any]) -> Any:
    """In double precision only moves by whole pixels, of which the gradient is exact."""
    moves = np.array([[1, 0, 1, 0, 1, -1, 0, 0], [0, 1, 0, 1, 0, 0, 0, 0]], np.float32)
    turns = np.array([[0.75, 0.25, -1.125, 0.125, 1.25, 0.25, 0, 0.0625]], np.float32)

    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        images, size = draw(rng, dtype, (2, 3, 3, 2), 0, 9), np.array([3, 3], np.int32)
        if dtype is not float32:
            return [case(images, moves, size, *fills, interpolation="NEAREST")]
        return [
            case(images, m, np.array(s, np.int32), *fills, interpolation=i, fill_mode=f)
            for m, s, i, f in (
                (moves, (3, 3), "NEAREST", "CONSTANT"),
                (turns, (3, 4), "BILINEAR", "CONSTANT"),
                (turns, (4, 3), "BILINEAR", "REFLECT"),
                (turns, (2, 4), "NEAREST", "NEAREST"),
            )
        ]

    return sample


for _version, _fill_arg, _fills, _doc in (
    (2, "", (), "Images as a projective transformation shows them."),
    (3, ", fill_value: float32", (np.float32(2),), "ImageProjectiveTransformV2 with another fill value than 0."),
):
    op(
        f"ImageProjectiveTransformV{_version}",
        f"images: dtype, transforms: float32, output_shape: int32{_fill_arg}",
        "transformed_images: dtype",
        {
            "dtype": {uint8, int32, int64, float16, bfloat16, float32, float64},
            "interpolation": string_attr(),
            "fill_mode": "CONSTANT",
        },
        shape=_shape,
        kernel=_transform,
        xp=True,
        host=("output_shape",),
        grad=_rule,
        jvp=linear("images") if _version == 2 else None,
        facts=Facts(cost=flops_per_element(40)),
        oracle=_oracle,
        sample=_samples(_fills),
        doc=_doc,
        differs="Unknown names of interpolations and fill modes are refused.",
    )
