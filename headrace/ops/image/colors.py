"""Colours: RGBToHSV, HSVToRGB, AdjustContrast, AdjustHue and AdjustSaturation.

Source: TensorFlow's ops of the same names; hue, saturation and value are those of Smith, "Color Gamut Transform Pairs",
1978. Half precision is computed in float32. If several channels have the greatest or the least value, derivatives use
the first of the greatest and the last of the least, as in TensorFlow.
"""

from __future__ import annotations

import colorsys
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import FLOATING, DType, float16, float32, float64, int8, int16, int32, int64, uint8
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Case, Facts, case, flops_per_element, op, type_attr
from headrace.opkit.batch_rules import first_in_step, in_step
from headrace.opkit.elementwise import widened
from headrace.opkit.namespaces import converter
from headrace.opkit.testing.samples import draw
from headrace.opkit.window_arrays import size
from headrace.shapes import Shape, merge_dim, show, with_rank, with_rank_at_least

Array = np.ndarray

# *** Arrays ***


def _hue(xp: Any, x: Array, top: Array, span: Array) -> Array:
    """The hue in sixths of the circle, 0 for grey."""
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    hue = xp.where(r == top, (g - b) / span, xp.where(g == top, (b - r) / span + 2, (r - g) / span + 4))
    hue = xp.where(span > 0, hue, xp.zeros_like(hue))
    return xp.where(hue < 0, hue + 6, hue)


def _wheel(xp: Any, hue: Array) -> Array:
    """Shares of red, green and blue in a hue given in sixths of the circle."""
    shares = (xp.abs(hue - 3) - 1, 2 - xp.abs(hue - 2), 2 - xp.abs(hue - 4))
    return xp.clip(xp.stack(shares, axis=-1), 0, 1)


def _rgb_to_hsv(xp: Any, x: Array) -> Array:
    top = xp.max(x, axis=-1)
    span = top - xp.min(x, axis=-1)
    saturation = xp.where(top > 0, span / top, xp.zeros_like(top))
    return xp.stack([_hue(xp, x, top, span) / 6, saturation, top], axis=-1)


def _hsv_to_rgb(xp: Any, x: Array) -> Array:
    saturation, value = x[..., 1:2], x[..., 2:3]
    return ((1 - saturation) + saturation * _wheel(xp, x[..., 0] * 6)) * value


def _adjust_hue(xp: Any, x: Array, delta: Any) -> Array:
    top, low = xp.max(x, axis=-1), xp.min(x, axis=-1)
    shares = _wheel(xp, xp.remainder(_hue(xp, x, top, top - low) + delta * 6, 6))
    return low[..., None] + (top - low)[..., None] * shares


def _adjust_saturation(xp: Any, x: Array, scale: Any) -> Array:
    hsv = _rgb_to_hsv(xp, x)
    return _hsv_to_rgb(xp, xp.stack([hsv[..., 0], xp.clip(hsv[..., 1] * scale, 0, 1), hsv[..., 2]], axis=-1))


def _adjust_contrast(xp: Any, x: Array, factor: Any) -> Array:
    mean = xp.mean(x, axis=(-3, -2), keepdims=True) if size(x) else x[..., :1, :1, :]
    return (x - mean) * factor + mean


# *** Kernels ***


def _convert(f: Callable[[Any, Array], Array]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        formula = widened(lambda x: f(xp, x), attrs["T"], xp)

        def kernel(images: Array) -> Array:
            if not images.ndim:
                raise InvalidArgumentError("input must be at least 1D, got a scalar")
            if images.shape[-1] != 3:
                raise FailedPreconditionError(
                    f"input must have 3 channels but input only has {images.shape[-1]} channels: {show(images.shape)}"
                )
            return formula(images)

        return kernel

    return factory


def _adjust(f: Callable[[Any, Array, Any], Array], name: str, channels: int | None) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        formula = widened(lambda x, factor: f(xp, x, factor), attrs["T"], xp)

        def kernel(images: Array, factor: Any) -> Array:
            _require_images(images, channels, **{name: factor})
            return formula(images, factor)

        return kernel

    return factory


def _adjust_in_limits(xp: Any, attrs: Mapping[str, Any]) -> Any:
    to_float = converter(xp, float32)

    def kernel(images: Array, factor: Any, low: Any, high: Any) -> Array:
        _require_images(images, None, contrast_factor=factor, min_value=low, max_value=high)
        return xp.clip(_adjust_contrast(xp, to_float(images), factor), low, high)

    return kernel


def _require_images(images: Array, channels: int | None, **scalars: Any) -> None:
    if images.ndim < 3:
        raise InvalidArgumentError(f"input must be at least 3-D, got shape{show(images.shape)}")
    for name, x in scalars.items():
        if x.ndim:
            raise InvalidArgumentError(f"{name} must be scalar: {show(x.shape)}")
    if channels is not None and images.shape[-1] != channels:
        raise InvalidArgumentError(
            f"input must have {channels} channels but instead has {images.shape[-1]} channels: {show(images.shape)}"
        )


def _converted_shape(c: Inference) -> Sequence[Shape]:
    images = with_rank_at_least(c.shapes[0], 1)
    if images is None:
        return [None]
    merge_dim(images[-1], 3)
    return [(*images[:-1], 3)]


def _adjusted_shape(c: Inference) -> Sequence[Shape]:
    for scalar in c.shapes[1:]:
        with_rank(scalar, 0)
    return [with_rank_at_least(c.shapes[0], 3)]


# *** Gradients ***


def _apart(b: Any, x: Any) -> list[Any]:
    return list(b.Unpack(x, num=3, axis=-1))


def _together(b: Any, channels: Sequence[Any]) -> Any:
    return b.Pack(list(channels), axis=-1)


def _where(b: Any, condition: Any, t: Any) -> Any:
    return b.Cast(condition, DstT=t.dtype)


def _total(b: Any, terms: Sequence[Any]) -> Any:
    return b.AddN(list(terms))


def _back_to_rgb(b: Any, rgb: Sequence[Any], dh: Any, ds: Any, dv: Any, dlow: Any = None) -> Any:
    """Gradient of the channels from those of hue, saturation, and the greatest and least channel.

    The hue is in units of the whole circle.

    Args:
      ds, dlow: None where there is none.
    """
    red, green, blue = rgb
    r = _where(b, b.LogicalAnd(b.GreaterEqual(red, green), b.GreaterEqual(red, blue)), red)
    g = b.Mul(_where(b, b.GreaterEqual(green, blue), red), b.Sub(1.0, r))
    greatest = [r, g, b.Sub(b.Sub(1.0, r), g)]
    last = _where(b, b.LogicalAnd(b.LessEqual(blue, red), b.LessEqual(blue, green)), red)
    middle = b.Mul(_where(b, b.LessEqual(green, red), red), b.Sub(1.0, last))
    least = [b.Sub(b.Sub(1.0, last), middle), middle, last]
    top = _total(b, [b.Mul(m, x) for m, x in zip(greatest, rgb, strict=True)])
    low = _total(b, [b.Mul(m, x) for m, x in zip(least, rgb, strict=True)])
    # the hue is (p - q) / 6 (top - low) and a constant, with p and q the channels behind the greatest, in turn
    signs = [b.Sub(greatest[i - 1], greatest[i - 2]) for i in range(3)]
    inverse = b.DivNoNan(b.OnesLike(top), b.Sub(top, low))
    difference = _total(b, [b.Mul(s, x) for s, x in zip(signs, rgb, strict=True)])
    sixth = b.Mul(b.Mul(dh, inverse), 1 / 6)
    by_span = b.Neg(b.Mul(sixth, b.Mul(difference, inverse)))
    by_top, by_low = b.Add(dv, by_span), b.Neg(by_span)
    if ds is not None:
        over_top = b.Mul(b.DivNoNan(ds, top), _where(b, b.Greater(top, 0.0), top))
        by_top = b.Add(by_top, b.Mul(over_top, b.DivNoNan(low, top)))
        by_low = b.Sub(by_low, over_top)
    if dlow is not None:
        by_low = b.Add(by_low, dlow)
    return _together(
        b,
        [
            _total(b, [b.Mul(s, sixth), b.Mul(m, by_top), b.Mul(k, by_low)])
            for s, m, k in zip(signs, greatest, least, strict=True)
        ],
    )


def _ramps(b: Any, hue: Any) -> list[tuple[float, Any, Any]]:
    """Shares of the channels in a hue given in sixths, before limitation to [0, 1].

    Returns:
      For each channel: a sign, the distance d of the hue from the centre of the channel, and the share, which is a
      constant plus the sign times |d|.
    """
    found = []
    for centre, sign in ((3.0, 1.0), (2.0, -1.0), (4.0, -1.0)):
        away = b.Sub(hue, centre)
        found.append((sign, away, b.Sub(b.Abs(away), 1.0) if sign > 0 else b.Sub(2.0, b.Abs(away))))
    return found


def _shares(b: Any, ramps: Sequence[tuple[float, Any, Any]]) -> list[Any]:
    """Share of each channel."""
    return [b.Minimum(b.Maximum(raw, 0.0), 1.0) for _, _, raw in ramps]


def _slopes(b: Any, ramps: Sequence[tuple[float, Any, Any]]) -> list[Any]:
    """Derivatives of the shares by the hue."""
    found = []
    for sign, away, raw in ramps:
        inside = _where(b, b.LogicalAnd(b.Greater(raw, 0.0), b.Less(raw, 1.0)), away)
        found.append(b.Mul(b.Mul(b.Sign(away), sign), inside))
    return found


def _weighted(b: Any, dys: Sequence[Any], factors: Sequence[Any]) -> Any:
    return _total(b, [b.Mul(d, f) for d, f in zip(dys, factors, strict=True)])


def _back_to_hsv(b: Any, h: Any, s: Callable[[], Any], v: Any, dy: Sequence[Any]) -> list[Callable[[], Any]]:
    """Functions that make the gradients of HSVToRGB by hue, saturation `s()` and value."""
    ramps = _ramps(b, b.Mul(h, 6.0))

    @functools.cache
    def lost() -> Any:
        return _weighted(b, dy, [b.Sub(share, 1.0) for share in _shares(b, ramps)])

    def by_hue() -> Any:
        return b.Mul(b.Mul(_weighted(b, dy, _slopes(b, ramps)), 6.0), b.Mul(s(), v))

    return [by_hue, lambda: b.Mul(lost(), v), lambda: b.Add(_total(b, dy), b.Mul(s(), lost()))]


def _rgb_to_hsv_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_back_to_rgb(b, _apart(b, n.images), *_apart(b, dy))]


def _hsv_to_rgb_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    h, s, v = _apart(b, n.images)
    return [_together(b, [by() for by in _back_to_hsv(b, h, lambda: s, v, _apart(b, dy))])]


def _all(b: Any, x: Any) -> Any:
    """The sum of all elements, in float32."""
    x = x if x.dtype is float32 else b.Cast(x, DstT=float32)
    return b.Sum(x, b.Range(0, b.Rank(x), 1), keep_dims=False)


def _scalar(b: Any, x: Any, like: Any) -> Any:
    return x if x.dtype is like.dtype else b.Cast(x, DstT=like.dtype)


def _hue_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    rgb, dys = _apart(b, n.images), _apart(b, dy)
    top = b.Maximum(b.Maximum(rgb[0], rgb[1]), rgb[2])
    low = b.Minimum(b.Minimum(rgb[0], rgb[1]), rgb[2])
    hue = b.Mul(b.Add(_apart(b, b.RGBToHSV(n.images))[0], _scalar(b, n.delta, n.images)), 6.0)
    ramps = _ramps(b, b.FloorMod(hue, 6.0))
    by_hue = b.Mul(b.Mul(_weighted(b, dys, _slopes(b, ramps)), 6.0), b.Sub(top, low))

    def by_images() -> Any:
        by_top = _weighted(b, dys, _shares(b, ramps))
        return _back_to_rgb(b, rgb, by_hue, None, by_top, b.Sub(_total(b, dys), by_top))

    return [by_images, lambda: _all(b, by_hue)]


def _saturation_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    h, s, v = _apart(b, b.RGBToHSV(n.images))
    scale = _scalar(b, n.scale, n.images)
    wanted = b.Mul(s, scale)
    limited = functools.cache(lambda: b.Minimum(b.Maximum(wanted, 0.0), 1.0))
    by_hue, by_saturation, by_value = _back_to_hsv(b, h, limited, v, _apart(b, dy))
    ds = b.Mul(by_saturation(), _where(b, b.LogicalAnd(b.Greater(wanted, 0.0), b.Less(wanted, 1.0)), s))
    return [
        lambda: _back_to_rgb(b, _apart(b, n.images), by_hue(), b.Mul(ds, scale), by_value()),
        lambda: _all(b, b.Mul(ds, s)),
    ]


def _contrast_by_images(b: Any, factor: Any, dy: Any) -> Any:
    mean = b.Mean(dy, [-3, -2], keep_dims=True)
    return b.Add(b.Mul(b.Sub(dy, mean), _scalar(b, factor, dy)), mean)


def _contrast_by_factor(b: Any, images: Any, dy: Any) -> Any:
    return _all(b, b.Mul(dy, b.Sub(images, b.Mean(images, [-3, -2], keep_dims=True))))


def _contrast_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    return [
        lambda: _contrast_by_images(b, n.contrast_factor, dy),
        lambda: _contrast_by_factor(b, n.images, dy),
    ]


def _limited_contrast_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    t = n.attrs["T"]

    @functools.cache
    def low() -> Any:
        return _where(b, b.LessEqual(n.output, n.min_value), dy)

    @functools.cache
    def high() -> Any:
        return _where(b, b.GreaterEqual(n.output, n.max_value), dy)

    @functools.cache
    def inside() -> Any:
        return b.Mul(dy, b.Sub(b.Sub(1.0, low()), high()))

    def by_images() -> Any:
        return b.Cast(_contrast_by_images(b, n.contrast_factor, inside()), DstT=t)

    return [
        by_images if t in FLOATING else None,
        lambda: _contrast_by_factor(b, b.Cast(n.images, DstT=float32), inside()),
        lambda: _all(b, b.Mul(dy, low())),
        lambda: _all(b, b.Mul(dy, high())),
    ]


# *** Oracles and samples ***


def _each_pixel(f: Callable[..., Any], images: Array, *args: Any) -> Array:
    out = np.empty_like(images)
    for i in np.ndindex(images.shape[:-1]):
        out[i] = f(*map(float, images[i]), *map(float, args))
    return out


def _turned(r: float, g: float, b: float, delta: float) -> tuple[float, float, float]:
    h, s, v = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb((h + delta) % 1, s, v)


def _saturated(r: float, g: float, b: float, scale: float) -> tuple[float, float, float]:
    h, s, v = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb(h, min(max(s * scale, 0.0), 1.0), v)


def _contrasted(images: Array, factor: Any, low: Any = -np.inf, high: Any = np.inf) -> Array:
    t = np.dtype(np.float32) if np.isfinite(low) else images.dtype
    out = np.empty(images.shape, t)
    for i in np.ndindex(*images.shape[:-3], images.shape[-1]):
        plane = images[(*i[:-1], slice(None), slice(None), i[-1])].astype(float)
        mean = sum(plane.ravel()) / plane.size
        out[(*i[:-1], slice(None), slice(None), i[-1])] = np.minimum(
            np.maximum(plane * factor + mean * (1 - factor), low), high
        )
    return out


def _colors(*factors: float) -> Any:
    """Images of colours in [0.05, 1), and a factor where there is one."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        shapes = ((2, 2, 3), (1, 2, 1, 3)) if dtype is float32 else ((1, 2, 3),)
        scalars = [[np.float32(f)] for f in factors] or [[]]
        return [case(draw(rng, dtype, s, 0.05, 1.0), *more) for s in shapes for more in scalars]

    return sample


def _limited(rng: np.random.Generator, dtype: DType) -> list[Case]:
    return [case(draw(rng, dtype, (2, 3, 2), 0, 9), np.float32(1.5), np.float32(1), np.float32(6.5))]


# *** Records ***

_HALVES = type_attr({float16, float32}, float32)

# fmt: off
for _type, _formula, _grad, _oracle, _doc in (
    ("RGBToHSV", _rgb_to_hsv, _rgb_to_hsv_grad, colorsys.rgb_to_hsv,
     "Colours given by red, green and blue (the last axis) as hue, saturation and value."),
    ("HSVToRGB", _hsv_to_rgb, _hsv_to_rgb_grad, colorsys.hsv_to_rgb,
     "Colours given by hue, saturation and value (the last axis) as red, green and blue."),
):
    op(
        _type,
        "images: T",
        "output: T",
        {"T": type_attr(FLOATING, float32)},
        shape=_converted_shape,
        kernel=_convert(_formula),
        xp=True,
        grad=_grad, batch=in_step,
        facts=Facts(cost=flops_per_element(12)),
        oracle=lambda images, f=_oracle: _each_pixel(f, images),
        sample=_colors(),
        doc=_doc,
    )

for _type, _factor, _change, _channels, _grad, _meaning, _factors, _doc in (
    ("AdjustContrastv2", "contrast_factor", _adjust_contrast, None, _contrast_rule, _contrasted, (0.5, 2.0),
     "Each channel of each image with the distance from its mean multiplied."),
    ("AdjustHue", "delta", _adjust_hue, 3, _hue_rule, lambda x, d: _each_pixel(_turned, x, d), (0.3, -1.4),
     "Colours with their hue turned by a part of the circle."),
    ("AdjustSaturation", "scale", _adjust_saturation, 3, _saturation_rule,
     lambda x, s: _each_pixel(_saturated, x, s), (0.5, 3.0),
     "Colours with their saturation multiplied, and kept within 0 and 1."),
):
    op(
        _type,
        f"images: T, {_factor}: float32",
        "output: T",
        {"T": _HALVES},
        shape=_adjusted_shape,
        kernel=_adjust(_change, _factor, _channels),
        xp=True,
        grad=_grad, batch=first_in_step(0),
        facts=Facts(cost=flops_per_element(20)),
        oracle=_meaning,
        sample=_colors(*_factors),
        doc=_doc,
    )
# fmt: on
op(
    "AdjustContrast",
    "images: T, contrast_factor: float32, min_value: float32, max_value: float32",
    "output: float32",
    {"T": type_attr({uint8, int8, int16, int32, int64, float32, float64})},
    shape=_adjusted_shape,
    kernel=_adjust_in_limits,
    xp=True,
    grad=_limited_contrast_rule,
    batch=first_in_step(0),
    facts=Facts(cost=flops_per_element(6)),
    oracle=_contrasted,
    sample=_limited,
    doc="AdjustContrastv2 in float32, and the result kept within limits.",
)
