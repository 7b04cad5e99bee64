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
from headrace.opkit.testing.samples import draw
from headrace.ops.image.taps import rounded
from headrace.shapes import Shape, merge_dim, show, with_rank

_BLACK = np.float32(0)
_FAR = 2.0**40  # outside of any image

Array = np.ndarray
F32 = np.float32


# *** Positions beyond the edge ***


def _reflected(at: Array, length: int) -> Array:
    """[dcba|abcd|dcba], counted from the middle."""
    if length <= 1:
        return np.zeros_like(at)
    period = F32(2 * length)
    below = at + period * np.trunc(-at / period)
    below = np.where(below < -length, below + period, -below - 1)
    above = at - period * np.trunc(at / period)
    above = np.where(above >= length, period - above - 1, above)
    return np.where(at < 0, below, np.where(at > length - 1, above, at))


def _wrapped(at: Array, length: int) -> Array:
    """Positions wrapped around, as in [abcd|abcd|abcd]."""
    if length <= 1:
        return np.zeros_like(at)
    period, last = F32(length), F32(length - 1)
    below = at + period * (np.trunc(-at / last) + 1)
    above = at - period * np.trunc(at / last)
    return np.where(at < 0, below, np.where(at > last, above, at))


_MODES: dict[str, Callable[[Array, int], Array] | None] = {
    "CONSTANT": None,
    "REFLECT": _reflected,
    "WRAP": _wrapped,
    "NEAREST": lambda at, length: at,
}


def _mapped(at: Array, length: int, mode: str) -> Array:
    """Positions to read in place of `at`, by the fill mode."""
    f = _MODES[mode]
    return at if f is None else np.clip(f(at, length), F32(0), F32(length - 1))


# *** Kernels ***


def _read(image: Array, y: Array, x: Array, fill: Any) -> Array:
    """The pixels at integer positions, `fill` outside."""
    height, width = image.shape[:2]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    if not image.size:
        return np.full((*y.shape, image.shape[2]), fill, image.dtype)
    found = image[np.where(inside, y, 0), np.where(inside, x, 0)]
    return found if inside.all() else np.where(inside[..., None], found, fill)


def _sampled(image: Array, y: Array, x: Array, bilinear: bool, fill: Any) -> Array:
    y, x = (np.clip(at, -_FAR, _FAR) for at in (y, x))
    if not bilinear:
        return _read(image, rounded(y), rounded(x), fill)
    top, left = np.floor(y), np.floor(x)
    down, along = (y - top)[..., None], (x - left)[..., None]
    i, j = top.astype(np.int64), left.astype(np.int64)
    (a, b), (c, d) = ([_read(image, i + v, j + h, fill).astype(F32) for h in (0, 1)] for v in (0, 1))
    upper = (1 - along) * a + along * b
    lower = (1 - along) * c + along * d
    return ((1 - down) * upper + down * lower).astype(image.dtype)


def _transform(xp: Any, attrs: Mapping[str, Any]) -> Any:
    method, mode, t = attrs["interpolation"], attrs["fill_mode"], attrs["dtype"]

    def kernel(images: Array, transforms: Array, size: Array, value: Any = _BLACK) -> Array:
        if method not in ("NEAREST", "BILINEAR"):
            raise InvalidArgumentError(f"interpolation must be NEAREST or BILINEAR, got {method}")
        if mode not in _MODES:
            raise InvalidArgumentError(f"fill_mode must be one of {', '.join(_MODES)}, got {mode}")
        if images.ndim != 4:
            raise InvalidArgumentError(f"Input images must have rank 4, got {show(images.shape)}")
        if transforms.ndim != 2 or transforms.shape[1] != 8 or len(transforms) not in (1, len(images)):
            raise InvalidArgumentError(
                f"Input transform should be num_images x 8 or 1 x 8, got {show(transforms.shape)} "
                f"for {len(images)} images"
            )
        if size.ndim != 1:
            raise InvalidArgumentError(f"output shape must be 1-dimensional, got {show(size.shape)}")
        if len(size) != 2:
            raise InvalidArgumentError(f"output shape must have two elements, got {show(size.shape)}")
        if value.ndim:
            raise InvalidArgumentError(f"fill_value must be a scalar, got {show(value.shape)}")
        height, width = size.tolist()
        if height <= 0 or width <= 0:
            raise InvalidArgumentError(f"output dimensions must be positive, got {size.tolist()}")
        check_size((len(images), height, width, images.shape[3]), t)
        fill = value.astype(t.numpy)
        out = np.full((len(images), height, width, images.shape[3]), fill, t.numpy)
        for n, image in enumerate(images):
            matrix = transforms[n if len(transforms) > 1 else 0]
            step = max(1, thresholds.PROJECTED_PIXELS // width)
            for top in range(0, height, step):
                rows = np.arange(top, min(top + step, height), dtype=F32)
                _fill(out[n, top : top + step], image, matrix, rows, method == "BILINEAR", mode, fill)
        return out

    return kernel


def _fill(out: Array, image: Array, matrix: Array, rows: Array, bilinear: bool, mode: str, fill: Any) -> None:
    """Writes the rows of the result that map to a position of the image."""
    x, y = np.arange(out.shape[1], dtype=F32)[None, :], rows[:, None]
    a0, a1, a2, b0, b1, b2, c0, c1 = matrix
    depth = c0 * x + c1 * y + F32(1)
    at_x = _mapped((a0 * x + a1 * y + a2) / depth, image.shape[1], mode)
    at_y = _mapped((b0 * x + b1 * y + b2) / depth, image.shape[0], mode)
    known = (depth != 0) & ~np.isnan(at_x) & ~np.isnan(at_y)
    out[known] = _sampled(image, at_y[known], at_x[known], bilinear, fill)


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
        grad=_rule,
        jvp=linear("images") if _version == 2 else None,
        facts=Facts(cost=flops_per_element(40)),
        oracle=_oracle,
        sample=_samples(_fills),
        doc=_doc,
        differs="Unknown names of interpolations and fill modes are refused.",
    )
