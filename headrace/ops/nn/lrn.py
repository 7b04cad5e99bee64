"""Local response normalisation: LRN and its gradient.

Source: TensorFlow's ops of the same names; Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep
Convolutional Neural Networks", 2012. Each element is divided by a power of the sum of squares of its neighbours within
`depth_radius` channels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.dtypes import DType, bfloat16, float16, float32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.batch_rules import folding
from headrace.opkit.elementwise import widened
from headrace.opkit.kernel_library import kernel_library
from headrace.opkit.namespaces import number
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, merge, show, with_rank

Array: TypeAlias = np.ndarray


def _near(x: Array, radius: int, xp: Any = np) -> Array:
    """Sums over the channels at a distance of at most `radius` from each."""
    channels = x.shape[-1]
    if xp is np and x.size >= thresholds.NATIVE_CHANNELS:
        found = kernel_library().neighbors(x, radius)
        if found is not None:
            return found
    if radius >= channels - 1:
        return xp.broadcast_to(xp.sum(x, axis=-1, keepdims=True, dtype=x.dtype), x.shape)
    out = xp.asarray(x, copy=True)
    for k in range(1, radius + 1):
        out[..., k:] += x[..., :-k]
        out[..., :-k] += x[..., k:]
    return out


def _check(attrs: Mapping[str, Any], *arrays: Array) -> None:
    radius = attrs["depth_radius"]
    if not 0 <= radius < 2**31:
        raise InvalidArgumentError(f"depth_radius = {radius} larger than int max, or negative")
    if any(a.ndim != 4 for a in arrays):
        raise InvalidArgumentError(f"inputs must be 4-dimensional, got {show(arrays[0].shape)}")
    if any(a.shape != arrays[0].shape for a in arrays):
        shapes = " and ".join(show(a.shape) for a in arrays)
        raise InvalidArgumentError(f"input_grads, input_image, and out_image should have the same shape, got {shapes}")


def _norm_of_squares(x: Array, radius: int, bias: Any, alpha: Any, xp: Any) -> Array:
    """The number by a power of which each element is divided, a new array."""
    norm: Array = alpha * _near(x * x, radius, xp)
    norm += bias
    return norm


def _raised(norm: Array, beta: Any, xp: Any) -> Array:
    """`norm ** -beta`, in place of `norm`."""
    if beta == 0.5:  # twice as fast as a power
        return np.divide(1, np.sqrt(norm, out=norm), out=norm) if xp is np else 1 / xp.sqrt(norm)
    norm **= -beta
    return norm


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    radius, bias, alpha, beta = (number(xp, attrs[a], float32) for a in _ATTRS)

    def normalised(x: Array) -> Array:
        scale = _raised(_norm_of_squares(x, int(radius), bias, alpha, xp), beta, xp)
        scale *= x
        return scale

    compute = widened(normalised, attrs["T"], xp)

    def kernel(x: Array) -> Array:
        _check(attrs, x)
        out: Array = compute(x)
        return out

    return kernel


def _grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    radius, bias, alpha, beta = (number(xp, attrs[a], float32) for a in _ATTRS)

    def gradient(g: Array, x: Array, y: Array) -> Array:
        norm = _norm_of_squares(x, int(radius), bias, alpha, xp)
        q = g * y
        q /= norm
        back = x * _near(q, int(radius), xp)
        back *= 2 * alpha * beta
        dx = _raised(norm, beta, xp)
        dx *= g
        dx -= back
        return dx

    compute = widened(gradient, attrs["T"], xp)

    def kernel(g: Array, x: Array, y: Array) -> Array:
        _check(attrs, g, x, y)
        out: Array = compute(g, x, y)
        return out

    return kernel


# *** Gradients ***

_ATTRS = ("depth_radius", "bias", "alpha", "beta")


def _same(n: Any) -> dict[str, Any]:
    return {k: n.attrs[k] for k in _ATTRS}


def _band(b: Any, n: Any, x: Any) -> Any:
    """Sum over the neighbouring channels of each channel.

    It consists of ops with gradients, for derivatives of higher order.
    """
    channels = b.StridedSlice(b.Shape(x), [3], [4], [1], shrink_axis_mask=1)
    ones = b.Fill(b.Pack([channels, channels]), b.const(np.ones((), n.attrs["T"].numpy)))
    radius = b.const(np.array(n.attrs["depth_radius"], np.int64))
    flat = b.Reshape(x, b.Pack([-1, channels]))
    return b.Reshape(b.MatMul(flat, b.MatrixBandPart(ones, radius, radius)), b.Shape(x))


def _norm(b: Any, n: Any, x: Any) -> Any:
    t = n.attrs["T"].numpy
    alpha, bias = (b.const(np.array(n.attrs[a], t)) for a in ("alpha", "bias"))
    return b.AddV2(bias, b.Mul(alpha, _band(b, n, b.Square(x))))


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.LRNGrad(dy, n.input, n.output, **_same(n))]


def _grad_grad(b: Any, n: Any, h: Any) -> list[Any]:
    """Gradient rule of LRNGrad.

    With N the norm, c = 2 alpha beta and near the sum over neighbouring channels, the op is `g N^-beta - c x near(g y /
    N)`, a function of three variables.
    """
    t = n.attrs["T"].numpy
    g, x, y = n.inputs
    alpha, beta = n.attrs["alpha"], n.attrs["beta"]
    c = b.const(np.array(2 * alpha * beta, t))
    norm = _norm(b, n, x)
    back = b.Neg(b.Mul(c, _band(b, n, b.Mul(h, x))))  # by q; near is its own transpose

    @functools.cache
    def power() -> Any:
        return b.Pow(norm, b.const(np.array(-beta, t)))

    def dx() -> Any:
        q = b.RealDiv(b.Mul(g, y), norm)
        of_power = b.Mul(b.const(np.array(-beta, t)), b.RealDiv(b.Mul(b.Mul(h, g), power()), norm))
        d_norm = b.Sub(of_power, b.RealDiv(b.Mul(back, q), norm))
        of_norm = b.Mul(b.Mul(b.const(np.array(2 * alpha, t)), x), _band(b, n, d_norm))
        return b.Sub(of_norm, b.Mul(b.Mul(c, h), _band(b, n, q)))

    return [
        lambda: b.AddV2(b.Mul(h, power()), b.RealDiv(b.Mul(back, y), norm)),
        dx,
        lambda: b.RealDiv(b.Mul(back, g), norm),
    ]


# *** How the tests exercise them ***


def _norm_of(x: Array, p: tuple[int, ...], attrs: Mapping[str, Any]) -> float:
    radius = attrs.get("depth_radius", 5)
    some = x[p[:-1]][max(0, p[-1] - radius) : p[-1] + radius + 1].astype(np.float64)
    return float(attrs.get("bias", 1) + attrs.get("alpha", 1) * (some**2).sum())


def _oracle(x: Array, **attrs: Any) -> Array:
    out = np.empty(x.shape, x.dtype)
    for p in np.ndindex(x.shape):
        out[p] = float(x[p]) / _norm_of(x, p, attrs) ** attrs.get("beta", 0.5)
    return out


def _grad_oracle(g: Array, x: Array, y: Array, **attrs: Any) -> Array:
    radius, alpha, beta = (attrs.get(k, d) for k, d in (("depth_radius", 5), ("alpha", 1), ("beta", 0.5)))
    out = np.zeros(x.shape, np.float64)
    for p in np.ndindex(x.shape):
        norm = _norm_of(x, p, attrs)
        out[p] += float(g[p]) * norm**-beta
        for c in range(max(0, p[-1] - radius), min(x.shape[-1], p[-1] + radius + 1)):
            out[*p[:-1], c] -= 2 * alpha * beta * float(x[*p[:-1], c]) * float(g[p]) * float(y[p]) / norm
    return out.astype(x.dtype)


def _samples(arrays: int) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        every: list[dict[str, Any]] = [
            {"depth_radius": 1, "bias": 2.0, "alpha": 0.5, "beta": 0.75},
            {},
            {"depth_radius": 0, "beta": 1.0},
        ]
        return [
            case(*(draw(rng, dtype, (1, 1, 2, 5)) for _ in range(arrays)), **attrs)
            for attrs in (every if dtype is float32 else every[:1])
        ]

    return sample


# *** Records ***


def _alike(c: Inference) -> list[Shape]:
    out: Shape = with_rank(None, 4)
    for s in c.shapes:
        out = merge(out, s)
    return [out]


_RECORD: dict[str, Any] = {"depth_radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5}
_FLOATS = type_attr(frozenset({float16, bfloat16, float32}), float32)

op(
    "LRN",
    "input: T",
    "output: T",
    {"T": _FLOATS} | _RECORD,
    shape=_alike,
    kernel=_kernel,
    xp=True,
    grad=_grad,
    batch=folding(0),
    facts=Facts(cost=flops_per_input(40), fresh=True),
    oracle=_oracle,
    sample=_samples(1),
    doc="Each element, divided by a power of the sum of squares of the channels near it.",
    differs="Computes bfloat16 too. NaN spreads to the neighbouring channels; in TensorFlow to all.",
)
op(
    "LRNGrad",
    "input_grads: T, input_image: T, output_image: T",
    "output: T",
    {"T": _FLOATS} | _RECORD,
    shape=_alike,
    kernel=_grad_kernel,
    xp=True,
    grad=_grad_grad,
    batch=folding(0, 1, 2),
    facts=Facts(cost=flops_per_input(40), fresh=True),
    oracle=_grad_oracle,
    sample=_samples(3),
    doc="The gradient of LRN.",
    differs="Computes bfloat16 too.",
)
