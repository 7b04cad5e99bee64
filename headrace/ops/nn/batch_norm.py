"""Batch normalisation: FusedBatchNorm, its V2 and V3, their gradients, and the deprecated first op.

Source: TensorFlow's ops of the same names (Ioffe, Szegedy, "Batch Normalization", 2015). In training, the statistics
are those of the batch. The output variance has Bessel's correction, and the output statistics are moving averages if
`exponential_avg_factor` is not 1. In inference the statistics are inputs. As in TensorFlow, the output statistics have
no gradient. Arrays of every layout are viewed as [outer, channels, inner]; half precision is computed in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import thresholds
from headrace.dtypes import INTEGER, NUMERIC, DType, bfloat16, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    Case,
    Facts,
    bool_attr,
    case,
    float_attr,
    flops_per_input,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit.batch_rules import folding
from headrace.opkit.batch_windows import channelwise
from headrace.opkit.elementwise import HALF
from headrace.opkit.kernel_library import KernelLibrary, kernel_library
from headrace.opkit.namespaces import converter, dtype_in, is_standard, number
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, merge, merge_dim, show, with_rank

Array = np.ndarray


def _flat(xp: Any, x: Any, channels: int) -> Any:
    """`x` in float32 as [outer, channels, inner]."""
    outer, inner = math.prod(x.shape[:channels]), math.prod(x.shape[channels + 1 :])
    return xp.reshape(converter(xp, float32)(x), (outer, x.shape[channels], inner))


def _total(*factors: Array) -> Array:
    """Sums of products of arrays [outer, channels, inner] for each channel, [channels, 1]."""
    outer, channels, inner = factors[0].shape
    step = max(1, thresholds.CACHED_BYTES // max(1, channels * inner * factors[0].itemsize))
    total = np.zeros(channels, np.float64)
    for start in range(0, outer, step):
        block, *others = (f[start : start + step] for f in factors)
        for other in others:
            block = block * other
        # a product with ones is faster than a sum along the first axis
        total += block.sum(2).sum(0) if inner != 1 else np.ones(len(block), block.dtype) @ block[:, :, 0]
    return total.astype(factors[0].dtype)[:, None]


def _moments(x: Array, library: KernelLibrary) -> tuple[Array, Array]:
    """The mean and the variance of each channel."""
    found = library.moments(x)
    if found is not None:
        return found
    n = np.float32(x.shape[0] * x.shape[2])
    mean = _total(x) / n
    rest = x - mean
    return mean[:, 0], (_total(rest, rest) / n)[:, 0]


def _scaled(x: Array, mean: Array, factor: Array, offset: Array, out: Array, library: KernelLibrary) -> None:
    """Writes `(x - mean) * factor + offset`, with vectors of channels, to `out`."""
    if library.scaled(x, mean, factor, offset, out) is None:
        np.subtract(x, mean[:, None], out)
        out *= factor[:, None]
        out += offset[:, None]


def _products(g: Array, x: Array, mean: Array, library: KernelLibrary) -> tuple[Array, Array]:
    """The sums of `g` and of `g * (x - mean)` over each channel."""
    found = library.products(g, x, mean)
    return (_total(g)[:, 0], _total(g, x - mean[:, None])[:, 0]) if found is None else found


def _centred(
    g: Array, x: Array, mean: Array, slope: Array, shift: Array, factor: Array, out: Array, library: KernelLibrary
) -> None:
    """Writes `((x - mean) * slope + g - shift) * factor`, with vectors of channels, to `out`."""
    if library.centred(g, x, mean, slope, shift, factor, out) is None:
        np.subtract(x, mean[:, None], out)
        out *= slope[:, None]
        out += g
        out -= shift[:, None]
        out *= factor[:, None]


class _Channels:
    """Sums over the channels of arrays [outer, channels, inner], and arithmetic with vectors of them."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def moments(self, x: Any) -> tuple[Any, Any]:
        """The mean and the variance of each channel."""
        n = x.shape[0] * x.shape[2]
        mean = self._xp.sum(x, axis=(0, 2)) / n
        rest = x - mean[:, None]
        return mean, self._xp.sum(rest * rest, axis=(0, 2)) / n

    def scaled(self, x: Any, mean: Any, factor: Any, offset: Any) -> Any:
        """`(x - mean) * factor + offset`."""
        return (x - mean[:, None]) * factor[:, None] + offset[:, None]

    def products(self, g: Any, x: Any, mean: Any) -> tuple[Any, Any]:
        """The sums of `g` and of `g * (x - mean)` over each channel."""
        return self._xp.sum(g, axis=(0, 2)), self._xp.sum(g * (x - mean[:, None]), axis=(0, 2))

    def centred(self, g: Any, x: Any, mean: Any, slope: Any, shift: Any, factor: Any) -> Any:
        """`((x - mean) * slope + g - shift) * factor`."""
        return ((x - mean[:, None]) * slope[:, None] + g - shift[:, None]) * factor[:, None]


class _NumpyChannels(_Channels):
    """The same on numpy's arrays, with fewer passes over the memory."""

    def __init__(self) -> None:
        super().__init__(np)
        self._library = kernel_library()

    def moments(self, x: Array) -> tuple[Array, Array]:
        return _moments(x, self._library)

    def scaled(self, x: Array, mean: Array, factor: Array, offset: Array) -> Array:
        out = np.empty(x.shape, np.float32)
        _scaled(x, mean, factor, offset, out, self._library)
        return out

    def products(self, g: Array, x: Array, mean: Array) -> tuple[Array, Array]:
        return _products(g, x, mean, self._library)

    def centred(self, g: Array, x: Array, mean: Array, slope: Array, shift: Array, factor: Array) -> Array:
        out = np.empty(x.shape, np.float32)
        _centred(g, x, mean, slope, shift, factor, out, self._library)
        return out


def _channels_in(xp: Any) -> _Channels:
    return _NumpyChannels() if xp is np else _Channels(xp)


def _copier(xp: Any, t: DType) -> Callable[[Any], Any]:
    """Returns a function that makes a new array of dtype `t`.

    Two results are never one array.
    """
    to = dtype_in(xp, t)
    return (lambda s: xp.astype(s, to)) if is_standard(xp) else lambda s: s.astype(to)


# *** The fused ops ***


def _require(x: Array, layout: str, vectors: Mapping[str, Array]) -> int:
    """Axis of the channels, after a check of the shapes.

    Raises `InvalidArgumentError` unless each vector has one element for each channel.
    """
    if x.ndim not in (4, 5):
        raise InvalidArgumentError(f"input must be 4 or 5-dimensional, got {show(x.shape)}")
    axis = 1 if layout[1] == "C" else x.ndim - 1
    for name, v in vectors.items():
        if v.ndim != 1:
            raise InvalidArgumentError(f"{name.split(', ')[-1]} must be 1-dimensional, got {show(v.shape)}")
        if v.shape[0] != x.shape[axis]:
            raise InvalidArgumentError(
                f"{name} must have the same number of elements as the channels of x, got {v.shape[0]} and "
                f"{x.shape[axis]}"
            )
    return axis


def _norm(version: int) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        layout, training, t, u = attrs["data_format"], attrs["is_training"], attrs["T"], attrs.get("U", attrs["T"])
        epsilon, factor = (number(xp, attrs[a], float32) for a in ("epsilon", "exponential_avg_factor"))
        channels, wide = _channels_in(xp), converter(xp, float32)
        back, copied = converter(xp, t), _copier(xp, u)

        def kernel(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[Any, ...]:
            given = {"scale": scale, "offset": offset}
            if not training:
                given |= {"When is_training=false, mean": mean, "When is_training=false, variance": variance}
            elif factor != 1:
                when = "When exponential_avg_factor != 1, "
                given |= {f"{when}mean": mean, f"{when}variance": variance}
            axis = _require(x, layout, given)
            for name, v in (("mean", mean), ("variance", variance)):  # also where they do not count
                if v.ndim != 1:
                    raise InvalidArgumentError(f"{name} must be 1-dimensional, got {show(v.shape)}")
            y = flat = _flat(xp, x, axis)
            n = flat.shape[0] * flat.shape[2]
            if 0 in x.shape:
                nothing = xp.full((flat.shape[1],), math.nan, dtype=flat.dtype, device=flat.device)
                statistics: tuple[Any, ...] = (nothing,) * 4
            else:
                m, v = channels.moments(flat) if training else (wide(mean), wide(variance))
                y = channels.scaled(flat, m, wide(scale) / xp.sqrt(v + epsilon), wide(offset))
                batch: tuple[Any, ...] = (m, v * number(xp, n / max(n - 1, 1), float32) if training else v)
                if training and factor != 1:
                    batch = tuple(
                        (1 - factor) * wide(old) + factor * new
                        for old, new in zip((mean, variance), batch, strict=True)
                    )
                statistics = (*batch, m, v)
            out = back(xp.reshape(y, x.shape)), *map(copied, statistics)
            return (*out, xp.zeros((), dtype=dtype_in(xp, u), device=flat.device)) if version == 3 else out

        return kernel

    return factory


def _norm_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    layout, training, t, u = attrs["data_format"], attrs["is_training"], attrs["T"], attrs.get("U", attrs["T"])
    epsilon, channels, wide = number(xp, attrs["epsilon"], float32), _channels_in(xp), converter(xp, float32)
    back, copied = converter(xp, t), _copier(xp, u)

    def kernel(
        dy: Array, x: Array, scale: Array, mean: Array, variance: Array, reserved: Any = None
    ) -> tuple[Any, ...]:
        if dy.shape != x.shape:
            raise InvalidArgumentError(
                f"x and y_backprop must have same shape, but x has shape {show(x.shape)} and "
                f"y_backprop has shape {show(dy.shape)}"
            )
        axis = _require(x, layout, {"scale": scale, "reserve_space_1": mean, "reserve_space_2": variance})
        g, flat, mean = _flat(xp, dy, axis), _flat(xp, x, axis), wide(mean)
        n = number(xp, max(1, g.shape[0] * g.shape[2]), float32)
        inverse = 1 / xp.sqrt(wide(variance) + epsilon)
        by_offset, moment = channels.products(g, flat, mean)
        by_scale, factor = moment * inverse, wide(scale) * inverse
        if training:
            dx = channels.centred(g, flat, mean, -inverse * by_scale / n, by_offset / n, factor)
        else:
            dx = g * factor[:, None]
        empty = (xp.zeros((0,), dtype=dtype_in(xp, u), device=g.device) for _ in range(2))
        return back(xp.reshape(dx, x.shape)), copied(by_scale), copied(by_offset), *empty

    return kernel


def _channels(c: Inference, images: Sequence[int], vectors: Sequence[int]) -> tuple[Shape, Shape]:
    """Merged shape of the images among the inputs, and shape of the vectors of channels."""
    layout = c.attrs["data_format"]
    axis = layout.index("C")
    x: Shape = (None,) * len(layout)
    for i in images:
        x = merge(x, with_rank(c.shapes[i], len(layout)))
    assert x is not None
    channels = x[axis]
    for i in vectors:
        channels = merge_dim(channels, with_rank(c.shapes[i], 1)[0])
    return (*x[:axis], channels, *x[axis + 1 :]), (channels,)


def _norm_shape(c: Inference) -> Sequence[Shape]:
    x, vector = _channels(c, [0], [1, 2] if c.attrs["is_training"] else [1, 2, 3, 4])
    return [x, *[vector] * 4, ()][: len(c.op.outputs)]


def _norm_grad_shape(c: Inference) -> Sequence[Shape]:
    x, vector = _channels(c, [0, 1], [2, 3, 4])
    return [x, vector, vector, (0,), (0,)]


def _norm_rule(suffix: str) -> Any:
    def rule(b: Any, n: Any, dy: Any, *statistics: Any) -> list[Any]:
        if not n.wants("x", "scale", "offset"):
            return [None] * len(n.inputs)
        saved = [n.reserve_space_1, n.reserve_space_2] if n.attrs["is_training"] else [n.mean, n.variance]
        more = [n.reserve_space_3] if suffix == "V3" else []
        attrs = {k: n.attrs[k] for k in ("epsilon", "data_format", "is_training")}
        made = b.make(f"FusedBatchNormGrad{suffix}", [dy, n.x, n.scale, *saved, *more], attrs)
        return [*made[:3], None, None]

    return rule


def _norm_grad_rule(b: Any, n: Any, u: Any, v: Any, w: Any, *empty: Any) -> list[Any]:
    """The derivative of `<u, dx> + <v, dscale> + <w, doffset>`.

    With x̂ the normalised x, r one over its deviation and the symmetric map P(t) = t - mean(t) - x̂ mean(t x̂), these
    are dx = scale r P(dy), dscale = Σ dy x̂ and doffset = Σ dy; and the gradient of x̂ by x is r P.
    """
    t, layout = n.attrs["T"], n.attrs["data_format"]
    others = np.array([i for i, axis in enumerate(layout) if axis != "C"], np.int32)
    spread = [-1, *[1] * (len(layout) - 1 - layout.index("C"))]  # the shape in which vectors broadcast

    def wide(x: Any) -> Any:
        return x if x.dtype is float32 else b.Cast(x, DstT=float32)

    def along(x: Any) -> Any:
        return wide(x) if len(spread) == 1 else b.Reshape(wide(x), spread)

    def mean(x: Any) -> Any:
        return b.Mean(x, others, keep_dims=True)

    if not n.wants("y_backprop", "x", "scale"):
        return [None] * len(n.inputs)
    x = wide(n.x)
    training = n.attrs["is_training"]

    @functools.cache
    def centred() -> Any:
        return b.Sub(x, mean(x) if training else along(n.reserve_space_1))

    variance = mean(b.Square(centred())) if training else along(n.reserve_space_2)
    r = b.Rsqrt(b.Add(variance, n.attrs["epsilon"]))

    @functools.cache
    def normal() -> Any:
        return b.Mul(centred(), r)

    @functools.cache
    def slope() -> Any:
        return b.Mul(along(n.scale), r)

    def projected(t: Any) -> Any:
        return b.Sub(b.Sub(t, mean(t)), b.Mul(normal(), mean(b.Mul(t, normal())))) if training else t

    u = wide(u)

    @functools.cache
    def g() -> Any:
        return wide(n.y_backprop)

    @functools.cache
    def wide_v() -> Any:
        return along(v)

    @functools.cache
    def both() -> Any:
        return b.Mul(u, projected(g()))

    if n.wants("y_backprop") or (training and n.wants("x")):
        slope()
    if n.wants("scale") or (training and n.wants("x")):
        both()  # reads y_backprop before its shape is read

    def by_g() -> Any:
        terms = [b.Mul(slope(), projected(u)), b.Mul(wide_v(), normal()), b.BroadcastTo(along(w), b.Shape(u))]
        return b.Cast(b.AddN(terms), DstT=t)

    def by_x() -> Any:
        terms = [b.Mul(r, projected(b.Mul(wide_v(), g())))]
        if training:
            moved = b.Add(b.Mul(u, mean(b.Mul(g(), normal()))), b.Mul(g(), mean(b.Mul(u, normal()))))
            terms.append(b.Neg(b.Mul(r, projected(b.Mul(slope(), moved)))))
            terms.append(b.Neg(b.Mul(b.Mul(slope(), mean(both())), b.Mul(r, normal()))))
        return b.Cast(b.AddN(terms), DstT=t)

    def by_scale() -> Any:
        return b.Cast(b.Reshape(b.Sum(b.Mul(both(), r), others, keep_dims=True), [-1]), DstT=n.scale.dtype)

    return [by_g, by_x, by_scale, *[None] * (len(n.inputs) - 3)]


# *** The op of long ago ***


def _global_norm(xp: Any, attrs: Mapping[str, Any]) -> Any:
    scaled, back = attrs["scale_after_normalization"], converter(xp, attrs["T"])
    widen, epsilon = _wide(xp, attrs)

    def kernel(x: Array, m: Array, v: Array, beta: Array, gamma: Array) -> Array:
        _require_vectors(x, mean=m, var=v, beta=beta, gamma=gamma)
        x, m, v, beta, gamma = map(widen, (x, m, v, beta, gamma))
        factor = 1 / xp.sqrt(v + epsilon)
        return back((x - m) * (factor * gamma if scaled else factor) + beta)

    return kernel


def _wide(xp: Any, attrs: Mapping[str, Any]) -> tuple[Callable[[Any], Any], Any]:
    """Returns the converter to the dtype of the computation, and the epsilon."""
    t = float32 if attrs["T"] in HALF else attrs["T"]
    epsilon = number(xp, attrs["variance_epsilon"], t)
    # the standard has no roots of integers
    return converter(xp, float64 if t in INTEGER and xp is not np else t), epsilon


def _global_norm_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    scaled, back = attrs["scale_after_normalization"], converter(xp, attrs["T"])
    widen, epsilon = _wide(xp, attrs)
    total = _total if xp is np else lambda *factors: xp.sum(math.prod(factors), axis=(0, 2))[:, None]

    def kernel(x: Array, m: Array, v: Array, gamma: Array, dy: Array) -> tuple[Any, ...]:
        _require_vectors(x, mean=m, var=v, gamma=gamma)
        if dy.shape != x.shape:
            raise InvalidArgumentError(f"backprop must have the shape of t: {show(dy.shape)} != {show(x.shape)}")
        x, m, v, gamma, dy = map(widen, (x, m, v, gamma, dy))
        inverse = 1 / xp.sqrt(v + epsilon)
        factor = inverse * gamma if scaled else inverse
        g = xp.reshape(dy, (math.prod(x.shape[:-1]), x.shape[-1], 1))
        by_offset = total(g)[:, 0]
        moment = total(g, xp.reshape(x - m, g.shape))[:, 0]
        by_scale = moment * inverse if scaled else xp.zeros_like(moment)
        out = (dy * factor, -by_offset * factor, -moment * factor * inverse**2 / 2, by_offset, by_scale)
        return tuple(map(back, out))

    return kernel


def _require_vectors(x: Array, **vectors: Array) -> None:
    if x.ndim != 4:
        raise InvalidArgumentError(f"input must be 4-dimensional, got {show(x.shape)}")
    for name, v in vectors.items():
        if v.shape != x.shape[-1:]:
            raise InvalidArgumentError(
                f"{name} must be 1-dimensional with {x.shape[-1]} elements, one a channel, got {show(v.shape)}"
            )


def _global_shape(c: Inference) -> Sequence[Shape]:
    x = with_rank(c.shapes[0], 4)
    last = x[3]
    for shape in c.shapes[1:]:
        last = merge_dim(last, with_rank(shape, 1)[0])
    return [(*x[:3], last)]


def _global_grad_shape(c: Inference) -> Sequence[Shape]:
    x = with_rank(merge(with_rank(c.shapes[0], 4), c.shapes[4]), 4)
    last = x[3]
    for shape in c.shapes[1:4]:
        last = merge_dim(last, with_rank(shape, 1)[0])
    return [(*x[:3], last), *[(last,)] * 4]


_GLOBAL = ("variance_epsilon", "scale_after_normalization")


def _global_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    attrs = {k: n.attrs[k] for k in _GLOBAL}
    dx, dm, dv, db, dg = b.BatchNormWithGlobalNormalizationGrad(n.t, n.m, n.v, n.gamma, dy, **attrs)
    return [dx, dm, dv, db, dg]


def _global_grad_rule(b: Any, n: Any, a: Any, cm: Any, cv: Any, cb: Any, cg: Any) -> list[Any]:
    """Gradient rule of BatchNormWithGlobalNormalizationGrad.

    All outputs are linear in `backprop`. The gradients of the outputs therefore combine to one factor of it, whose
    derivative is taken here.
    """
    scaled, g = n.attrs["scale_after_normalization"], n.backprop
    if not scaled and not n.wants("t", "m", "v", "backprop"):
        return [None] * 5  # gamma has no effect
    r = b.Rsqrt(b.Add(n.v, n.attrs["variance_epsilon"]))
    r3 = b.Mul(r, b.Square(r))
    half = b.Mul(cv, 0.5)
    if not scaled:
        cg = b.ZerosLike(n.gamma)

    def scale(x: Any) -> Any:
        return b.Mul(x, n.gamma) if scaled else x

    def total(x: Any) -> Any:
        return b.Sum(x, [0, 1, 2], keep_dims=False)

    @functools.cache
    def centred() -> Any:
        return b.Sub(n.t, n.m)

    @functools.cache
    def first() -> Any:
        return b.Sub(a, cm)

    @functools.cache
    def unscaled() -> Any:
        return b.Sub(b.Mul(first(), r), b.Mul(b.Mul(half, r3), centred()))

    @functools.cache
    def by_t() -> Any:
        return b.Mul(g, b.Sub(b.Mul(cg, r), scale(b.Mul(half, r3))))

    def by_v() -> Any:
        by_centred = b.Mul(b.Mul(half, b.Mul(r3, b.Square(r))), b.Mul(centred(), 1.5))
        slope = b.Sub(by_centred, b.Mul(b.Mul(first(), r3), 0.5))
        return total(b.Mul(g, b.Sub(scale(slope), b.Mul(b.Mul(centred(), b.Mul(cg, r3)), 0.5))))

    return [
        by_t,
        lambda: b.Neg(total(by_t())),
        by_v,
        (lambda: total(b.Mul(g, unscaled()))) if scaled else None,
        lambda: b.Add(b.Add(scale(unscaled()), cb), b.Mul(centred(), b.Mul(cg, r))),
    ]


# *** Oracles and samples ***


def _each_channel(
    f: Callable[..., tuple[Any, ...]], layout: str, images: Sequence[Array], vectors: Sequence[Array]
) -> list[list[Any]]:
    """Applies `f` to the elements of each channel, in double precision.

    The results are lists over the channels, one for each output of `f`.
    """
    axis = layout.index("C")
    found = [
        f(*(np.moveaxis(x, axis, 0)[i].astype(float) for x in images), *(float(v[i]) for v in vectors))
        for i in range(images[0].shape[axis])
    ]
    return [list(values) for values in zip(*found, strict=True)]


def _norm_oracle(version: int) -> Any:
    def oracle(
        x: Array,
        scale: Array,
        offset: Array,
        mean: Array,
        variance: Array,
        epsilon: float = 1e-4,
        exponential_avg_factor: float = 1.0,
        data_format: str = "NHWC",
        is_training: bool = True,
    ) -> tuple[Any, ...]:
        def one(e: Array, gamma: float, beta: float, old_m: float, old_v: float) -> tuple[Any, ...]:
            m, v = (np.mean(e), np.var(e)) if is_training else (old_m, old_v)
            f = exponential_avg_factor
            unbiased = np.var(e, ddof=1) if is_training else v
            y = (e - m) / np.sqrt(v + epsilon) * gamma + beta
            return y, (1 - f) * old_m + f * m, (1 - f) * old_v + f * unbiased, m, v

        y, *rest = _each_channel(one, data_format, [x], [scale, offset, mean, variance])
        out = [np.stack(y, data_format.index("C")).astype(x.dtype), *(np.array(s, scale.dtype) for s in rest)]
        return (*out, np.zeros((), scale.dtype)) if version == 3 else tuple(out)

    return oracle


def _norm_grad_oracle(
    dy: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    reserved: Any = None,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[Any, ...]:
    def one(g: Array, e: Array, gamma: float, m: float, v: float) -> tuple[Any, ...]:
        normal = (e - m) / np.sqrt(v + epsilon)
        inner = g - np.mean(g) - normal * np.mean(g * normal) if is_training else g
        return gamma / np.sqrt(v + epsilon) * inner, np.sum(g * normal), np.sum(g)

    dx, dscale, doffset = _each_channel(one, data_format, [dy, x], [scale, mean, variance])
    empty = np.zeros(0, scale.dtype)
    sums = (np.array(s, scale.dtype) for s in (dscale, doffset))
    return np.stack(dx, data_format.index("C")).astype(x.dtype), *sums, empty, empty


def _norm_samples(version: int, grad: bool) -> Any:
    layouts = ("NHWC", "NCHW", "NDHWC", "NCDHW")[: 4 if version == 3 else 2]

    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        out = []
        for i, layout in enumerate(layouts if dtype is float32 else layouts[:1]):
            shape = [2, 3, 4, 2][: len(layout) - 1]
            shape.insert(layout.index("C"), 3)
            images = [draw(rng, dtype, shape) for _ in range(2 if grad else 1)]
            vectors = [draw(rng, float32, (3,), 0.5, 2.0) for _ in range(3 if grad else 4)]
            attrs: dict[str, Any] = {"data_format": layout}
            if grad:
                # NCHW is computed for training alone, in TensorFlow
                attrs |= {"is_training": i != 2, "epsilon": 0.01}
                vectors += [np.zeros((), np.float32)] * (version == 3)
            elif i == 1:
                attrs |= {"exponential_avg_factor": 0.25, "epsilon": 0.01}
            out.append(case(*images, *vectors, **attrs))
        return out

    return sample


def _global_oracle(
    x: Array, m: Array, v: Array, beta: Array, gamma: Array, variance_epsilon: float, scale_after_normalization: bool
) -> Array:
    y = _each_channel(
        lambda e, m, v, b, s: ((e - m) / (v + variance_epsilon) ** 0.5 * (s if scale_after_normalization else 1) + b,),
        "NHWC",
        [x],
        [m, v, beta, gamma],
    )[0]
    return np.stack(y, 3).astype(x.dtype)


def _global_grad_oracle(
    x: Array, m: Array, v: Array, gamma: Array, dy: Array, variance_epsilon: float, scale_after_normalization: bool
) -> tuple[Any, ...]:
    def one(e: Array, g: Array, m: float, v: float, s: float) -> tuple[Any, ...]:
        deviation = (v + variance_epsilon) ** 0.5
        s, by_scale = (s, np.sum(g * (e - m)) / deviation) if scale_after_normalization else (1.0, 0.0)
        dx = g * s / deviation
        return dx, -np.sum(dx), -0.5 * np.sum(g * (e - m)) * s / deviation**3, np.sum(g), by_scale

    dx, *rest = _each_channel(one, "NHWC", [x, dy], [m, v, gamma])
    return np.stack(dx, 3).astype(x.dtype), *(np.array(s, x.dtype) for s in rest)


def _global_samples(grad: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        if dtype not in {float16, float32, float64}:
            return []
        out = []
        for scaled in (True, False) if dtype is float64 else (True,):
            x, dy = draw(rng, dtype, (2, 1, 2, 3)), draw(rng, dtype, (2, 1, 2, 3))
            vectors = [draw(rng, dtype, (3,), 0.5, 2.0) for _ in range(3 if grad else 4)]
            attrs = {"variance_epsilon": 0.25, "scale_after_normalization": scaled}
            out.append(case(x, *vectors, *[dy] * grad, **attrs))
        return out

    return sample


# *** Records ***

_HALVES = {float16, bfloat16, float32}
_TYPES: dict[int, dict[str, Any]] = {
    1: {"T": type_attr({float32})},
    2: {"T": _HALVES, "U": type_attr({float32})},
    3: {"T": _HALVES, "U": type_attr({float32, bfloat16})},
}
_STATISTICS = "batch_mean: {0}, batch_variance: {0}, reserve_space_1: {0}, reserve_space_2: {0}"
for _version, _suffix in ((1, ""), (2, "V2"), (3, "V3")):
    _u = "T" if _version == 1 else "U"
    _types = _TYPES[_version]
    _layouts = ("NHWC", "NCHW", "NDHWC", "NCDHW")[: 4 if _version == 3 else 2]
    _attrs = {"epsilon": 1e-4, "data_format": string_attr("NHWC", _layouts), "is_training": True}
    op(
        f"FusedBatchNorm{_suffix}",
        f"x: T, scale: {_u}, offset: {_u}, mean: {_u}, variance: {_u}",
        f"y: T, {_STATISTICS.format(_u)}" + (", reserve_space_3: U" if _version == 3 else ""),
        _types | _attrs | {"exponential_avg_factor": 1.0},
        shape=_norm_shape,
        kernel=_norm(_version),
        xp=True,
        grad=_norm_rule(_suffix),
        batch=channelwise(0),
        facts=Facts(cost=flops_per_input(8)),
        oracle=_norm_oracle(_version),
        sample=_norm_samples(_version, grad=False),
        doc="Each channel with the mean of `offset` and the deviation of `scale`; and its statistics.",
        differs="Without training, the reserve spaces are the given statistics; TensorFlow's are uninitialized.",
    )
    if _version == 3:
        _types = {"T": _HALVES, "U": type_attr({float32})}
    op(
        f"FusedBatchNormGrad{_suffix}",
        f"y_backprop: T, x: T, scale: {'T' if _version == 1 else 'float32'}, "
        f"reserve_space_1: {_u}, reserve_space_2: {_u}" + (", reserve_space_3: U" if _version == 3 else ""),
        f"x_backprop: T, scale_backprop: {_u}, offset_backprop: {_u}, "
        + (
            "reserve_space_4: U, reserve_space_5: U"
            if _version == 3
            else f"reserve_space_3: {_u}, reserve_space_4: {_u}"
        ),
        _types | _attrs,
        shape=_norm_grad_shape,
        kernel=_norm_grad,
        xp=True,
        grad=_norm_grad_rule,
        batch=channelwise(0, 1),
        facts=Facts(cost=flops_per_input(10)),
        oracle=_norm_grad_oracle,
        sample=_norm_samples(_version, grad=True),
        doc=f"The gradient of FusedBatchNorm{_suffix} by `x`, `scale` and `offset`.",
        differs="Accepts the layout NCHW with is_training=False too.",
    )

op(
    "BatchNormWithGlobalNormalization",
    "t: T, m: T, v: T, beta: T, gamma: T",
    "result: T",
    {"T": NUMERIC, "variance_epsilon": float_attr(), "scale_after_normalization": bool_attr()},
    shape=_global_shape,
    kernel=_global_norm,
    xp=True,
    grad=_global_rule,
    batch=folding(0),
    facts=Facts(cost=flops_per_input(4)),
    oracle=_global_oracle,
    sample=_global_samples(grad=False),
    doc="Each channel moved by `m` and divided by the root of `v`, multiplied by `gamma` if asked, plus `beta`.",
)
op(
    "BatchNormWithGlobalNormalizationGrad",
    "t: T, m: T, v: T, gamma: T, backprop: T",
    "dx: T, dm: T, dv: T, db: T, dg: T",
    {"T": NUMERIC, "variance_epsilon": float_attr(), "scale_after_normalization": bool_attr()},
    shape=_global_grad_shape,
    kernel=_global_norm_grad,
    xp=True,
    grad=_global_grad_rule,
    facts=Facts(cost=flops_per_input(8)),
    oracle=_global_grad_oracle,
    sample=_global_samples(grad=True),
    doc="The gradient of BatchNormWithGlobalNormalization by all its inputs.",
)
