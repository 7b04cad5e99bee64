"""Rounding of floats to quantised values: the FakeQuant ops, and their gradients.

Source: TensorFlow's ops FakeQuantWithMinMaxArgs, ...Vars, ...VarsPerChannel and their Gradient ops (Jacob et al.,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018). The range is
shifted slightly, so that 0 is one of its values; gradients flow to the elements inside of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dtypes import DType, float32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.elementwise import alike
from headrace.opkit.namespaces import converter, dtype_in, number
from headrace.opkit.shape_rules import same_as
from headrace.shapes import Shape, merge, show, with_rank, with_rank_at_least

_F32 = np.float32
_COST = Facts(cost=flops_per_element(8))
_ATTRS = {"num_bits": 8, "narrow_range": False}
_LIMITS = {"min": -6.0, "max": 6.0}


class _Range(NamedTuple):
    """Representable numbers `low`, `low + scale`, ..., `high`.

    Each field is a number, or an array with one element for each channel.

    Attributes:
      low, high, scale: see above.
      inverse: the inverse of `scale`.
      zero: the position of 0 among the numbers.
      is_empty: whether `low` and `high` are 0, so that all results are.
    """

    low: Any
    high: Any
    scale: Any
    inverse: Any
    zero: Any
    is_empty: Any


def _levels(attrs: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the greatest quantised number."""
    bits = attrs["num_bits"]
    if not 2 <= bits <= 16:
        raise InvalidArgumentError(f"num_bits must be between 2 and 16, inclusive, got {bits}")
    return int(attrs["narrow_range"]), (1 << bits) - 1


def _nudged(xp: Any, low: Any, high: Any, levels: tuple[int, int]) -> _Range:
    """The range of `low` to `high`, moved so that 0 is in it."""
    least, greatest = (number(xp, v, float32) for v in levels)
    one, half = number(xp, 1, float32), number(xp, 0.5, float32)
    scale = (high - low) / (greatest - least)
    zero = least - low / scale
    away = xp.trunc(zero + xp.copysign(half, zero))  # rounded, halves away from 0
    at = converter(xp, float32)(xp.where(zero < least, least, xp.where(zero > greatest, greatest, away)))
    first, last, inverse = (least - at) * scale, (greatest - at) * scale, one / scale
    return _Range(first, last, scale, inverse, xp.floor(-first * inverse + half), (low == 0) & (high == 0))


def _rounded(xp: Any, x: Any, r: _Range) -> Any:
    shifted = xp.maximum(xp.minimum(x, r.high), r.low) - r.low
    return xp.floor(shifted * r.inverse - r.zero + number(xp, 0.5, float32)) * r.scale


def _parts(xp: Any, g: Any, *conditions: Any) -> list[Any]:
    """The products of `g` and 1 where a condition holds, elsewhere of `g` and 0.

    The latter are NaN where `g` is infinite.
    """
    to_float32 = converter(xp, float32)
    with np.errstate(invalid="ignore"):
        return [g * to_float32(c) for c in conditions]


def _inside(x: Any, r: _Range) -> Any:
    return (x >= r.low) & (x <= r.high)


# *** Kernels ***


def _fixed_range(xp: Any, attrs: Mapping[str, Any]) -> _Range:
    low, high = _F32(attrs["min"]), _F32(attrs["max"])
    if not low < high:
        raise InvalidArgumentError(f"min has to be smaller than max, was: {low} >= {high}")
    with np.errstate(all="ignore"):
        r = _nudged(np, low, high, _levels(attrs))
    first, last, scale, inverse, zero = (number(xp, v, float32) for v in r[:5])
    return _Range(first, last, scale, inverse, zero, False)


def _check_limits(x: Any, low: Any, high: Any, channels: bool) -> None:
    if not channels:
        if low.ndim or high.ndim:
            raise InvalidArgumentError(
                f"`min` and `max` must be rank 0 but are of the shapes {show(low.shape)} and {show(high.shape)}"
            )
        return
    if not x.ndim:
        raise InvalidArgumentError("inputs must be at least rank 1, got a scalar")
    for name, limit in (("min", low), ("max", high)):
        if limit.shape != x.shape[-1:]:
            raise InvalidArgumentError(f"{name} has incorrect size, expected {x.shape[-1]} was {show(limit.shape)}")


def _check_gradients(g: Any, x: Any) -> None:
    if g.shape != x.shape:
        raise InvalidArgumentError(f"gradient and input must be the same size, got {show(g.shape)} and {show(x.shape)}")


def _args_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    r = _fixed_range(xp, attrs)
    return lambda x: _rounded(xp, x, r)


def _args_gradient_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    r = _fixed_range(xp, attrs)

    def kernel(g: Any, x: Any) -> Any:
        _check_gradients(g, x)
        return _parts(xp, g, _inside(x, r))[0]

    return kernel


def _vars_kernel(channels: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        levels, zero = _levels(attrs), number(xp, 0, float32)

        def kernel(x: Any, low: Any, high: Any) -> Any:
            _check_limits(x, low, high, channels)
            r = _nudged(xp, low, high, levels)
            return xp.where(r.is_empty, zero, _rounded(xp, x, r))

        return kernel

    return factory


def _vars_gradient_kernel(channels: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        levels, zero, to = _levels(attrs), number(xp, 0, float32), dtype_in(xp, float32)

        def kernel(g: Any, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
            _check_gradients(g, x)
            _check_limits(x, low, high, channels)
            r = _nudged(xp, low, high, levels)
            some = ~r.is_empty
            passed, *outside = _parts(xp, g, _inside(x, r) | r.is_empty, (x < r.low) & some, (x > r.high) & some)
            axes = tuple(range(x.ndim - 1 if channels else x.ndim))
            below, above = (xp.sum(xp.where(r.is_empty, zero, part), axis=axes, dtype=to) for part in outside)
            return passed, below, above

        return kernel

    return factory


# *** Shapes ***


def _vars_shape(channels: bool, gradient: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        x = merge(c.shapes[0], c.shapes[1]) if gradient else c.shapes[0]
        limits = c.shapes[2:] if gradient else c.shapes[1:]
        if not channels:
            for s in limits:
                with_rank(s, 0)
            return [x, (), ()] if gradient else [x]
        x = with_rank_at_least(x, 1)
        n: Shape = (None,) if x is None else x[-1:]
        for s in limits:
            n = merge(n, with_rank(s, 1))
        if x is not None and n is not None:
            x = (*x[:-1], *n)
        return [x, n, n] if gradient else [x]

    return rule


# *** Gradients ***


def _settings(n: Any, *names: str) -> dict[str, Any]:
    return {name: n.attrs[name] for name in (*names, *_ATTRS)}


def _args_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.FakeQuantWithMinMaxArgsGradient(dy, n.inputs[-1], **_settings(n, *_LIMITS))]


def _vars_grad(type: str) -> Callable[..., list[Any]]:
    return lambda b, n, dy: list(b.make(type, [dy, n.inputs[0], n.min, n.max], _settings(n)))


# *** How the tests exercise them ***


def _by_definition(x: Any, low: Any, high: Any, bits: int, narrow: bool) -> tuple[float, int]:
    """Rounded number, and the side of the range where `x` is, in single precision.

    The side is -1 below the range, 0 in it and 1 above it.
    """
    if low == high == 0:
        return 0.0, 0
    least, greatest = int(narrow), 2**bits - 1
    scale = _F32(high - low) / _F32(greatest - least)
    zero = min(max(round(float(least - low / scale)), least), greatest)
    first, last = (least - zero) * scale, (greatest - zero) * scale
    side = -1 if x < first else 1 if x > last else 0
    level = round(float((min(max(x, first), last) - first) / scale))
    return float((level + least - zero) * scale), side


def _along(x: np.ndarray, low: Any, high: Any, attrs: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    bits, narrow = attrs.get("num_bits", 8), attrs.get("narrow_range", False)
    lows, highs = np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)
    values, sides = np.empty(x.shape, _F32), np.empty(x.shape, np.int32)
    for i in np.ndindex(x.shape):
        values[i], sides[i] = _by_definition(x[i], lows[i], highs[i], bits, narrow)
    return values, sides


def _oracle(x: Any, low: Any = None, high: Any = None, **attrs: Any) -> Any:
    limits = (attrs.get("min", -6.0), attrs.get("max", 6.0)) if low is None else (low, high)
    return _along(x, _F32(limits[0]), _F32(limits[1]), attrs)[0]


def _gradient_oracle(g: Any, x: Any, low: Any = None, high: Any = None, **attrs: Any) -> Any:
    limits = (attrs.get("min", -6.0), attrs.get("max", 6.0)) if low is None else (low, high)
    sides = _along(x, _F32(limits[0]), _F32(limits[1]), attrs)[1]
    inside = np.where(sides == 0, g, _F32(0))
    if low is None:
        return inside
    parts = [np.where(sides == side, g, _F32(0)) for side in (-1, 1)]
    axes = tuple(range(x.ndim - np.ndim(low)))
    return (inside, *(p.sum(axes, dtype=_F32) for p in parts))


_X = np.array([[-7.1, -0.26, 0.0], [0.13, 1.3, 9.0]], _F32)


def _args_samples(gradient: bool) -> Any:
    first = [_X * _F32(0.7)] if gradient else []
    return lambda rng, dtype: [
        case(*first, _X),
        case(*first, _X, min=0.5, max=3.0, num_bits=4, narrow_range=True),
        case(*first, _X, min=-3.0, max=-1.0),
    ]


def _vars_samples(channels: bool, gradient: bool) -> Any:
    first = [_X * _F32(0.7)] if gradient else []

    def limits(low: float, high: float) -> list[np.ndarray]:
        if channels:
            return [np.array(v, _F32) for v in ([low, 0, 1], [high, 0, 4])]
        return [np.array(low, _F32), np.array(high, _F32)]

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        return [
            case(*first, _X, *limits(-0.1, 1.4)),
            case(*first, _X, *limits(-6, -0.5), num_bits=3, narrow_range=True),
            case(*first, _X, *limits(0, 0)),
        ]

    return sample


# *** Records ***

op(
    "FakeQuantWithMinMaxArgs",
    "inputs: float32",
    "outputs: float32",
    _LIMITS | _ATTRS,
    shape=same_as(0),
    kernel=_args_kernel,
    xp=True,
    grad=_args_grad,
    facts=_COST,
    oracle=_oracle,
    sample=_args_samples(gradient=False),
    doc="Each element rounded to one of the quantised numbers of a fixed range.",
)
op(
    "FakeQuantWithMinMaxArgsGradient",
    "gradients: float32, inputs: float32",
    "backprops: float32",
    _LIMITS | _ATTRS,
    shape=alike,
    kernel=_args_gradient_kernel,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    oracle=_gradient_oracle,
    sample=_args_samples(gradient=True),
    doc="The gradient of FakeQuantWithMinMaxArgs: passed where the element lies in the range.",
)

for _type, _channels, _which in (
    ("FakeQuantWithMinMaxVars", False, "a range"),
    ("FakeQuantWithMinMaxVarsPerChannel", True, "the range of its channel"),
):
    op(
        _type,
        "inputs: float32, min: float32, max: float32",
        "outputs: float32",
        _ATTRS,
        shape=_vars_shape(_channels, gradient=False),
        kernel=_vars_kernel(_channels),
        xp=True,
        grad=_vars_grad(f"{_type}Gradient"),
        batch=first_in_step(0),
        facts=_COST,
        oracle=_oracle,
        sample=_vars_samples(_channels, gradient=False),
        doc=f"Each element rounded to one of the quantised numbers of {_which}.",
    )
    op(
        f"{_type}Gradient",
        "gradients: float32, inputs: float32, min: float32, max: float32",
        "backprops_wrt_input: float32, backprop_wrt_min: float32, backprop_wrt_max: float32",
        _ATTRS,
        shape=_vars_shape(_channels, gradient=True),
        kernel=_vars_gradient_kernel(_channels),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_COST,
        oracle=_gradient_oracle,
        sample=_vars_samples(_channels, gradient=True),
        doc=f"The gradients of {_type}: passed to the element if it lies in the range, else to the limit it exceeds.",
    )
