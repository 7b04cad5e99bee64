"""Rounding of floats to quantised values: the FakeQuant ops, and their gradients.

Source: TensorFlow's ops FakeQuantWithMinMaxArgs, ...Vars, ...VarsPerChannel and their Gradient ops (Jacob et al.,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018). The range is
shifted slightly, so that 0 is one of its values; gradients flow to the elements inside of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.elementwise import alike
from headrace.opkit.shape_rules import same_as
from headrace.shapes import Shape, merge, show, with_rank, with_rank_at_least

_F32 = np.float32
_COST = Facts(cost=flops_per_element(8))
_ATTRS = {"num_bits": 8, "narrow_range": False}
_LIMITS = {"min": -6.0, "max": 6.0}


class _Range(NamedTuple):
    """Representable numbers `low`, `low + scale`, ..., `high`.

    Each field is a number, or an array with one element for each channel.
    """

    low: Any
    high: Any
    scale: Any


def _levels(attrs: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the greatest quantised number."""
    bits = attrs["num_bits"]
    if not 2 <= bits <= 16:
        raise InvalidArgumentError(f"num_bits must be between 2 and 16, inclusive, got {bits}")
    return int(attrs["narrow_range"]), (1 << bits) - 1


def _nudged(low: Any, high: Any, levels: tuple[int, int]) -> _Range:
    """The range of `low` to `high`, moved so that 0 is in it."""
    least, greatest = map(_F32, levels)
    scale = (high - low) / (greatest - least)
    zero = least - low / scale
    away = np.trunc(zero + np.copysign(_F32(0.5), zero))  # rounded, halves away from 0
    at = np.where(zero < least, least, np.where(zero > greatest, greatest, away)).astype(_F32)
    return _Range((least - at) * scale, (greatest - at) * scale, scale)


def _rounded(x: Any, r: _Range) -> Any:
    inverse = _F32(1) / r.scale
    zero = np.floor(-r.low * inverse + _F32(0.5))
    shifted = np.maximum(np.minimum(x, r.high), r.low) - r.low
    return np.floor(shifted * inverse - zero + _F32(0.5)) * r.scale


def _fake(x: Any, low: Any, high: Any, levels: tuple[int, int]) -> Any:
    out = _rounded(x, _nudged(low, high, levels))
    return np.where((low == 0) & (high == 0), _F32(0), out).astype(_F32)


def _passed(g: Any, x: Any, low: Any, high: Any, levels: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Parts of `g` where `x` is inside the range, below it and above it.

    A part is `g` times 0 elsewhere, which is NaN where `g` is infinite.
    """
    r, none = _nudged(low, high, levels), (low == 0) & (high == 0)
    below, above = (x < r.low) & ~none, (x > r.high) & ~none
    inside = ((x >= r.low) & (x <= r.high)) | none
    with np.errstate(invalid="ignore"):
        passed, under, over = (g * part.astype(_F32) for part in (inside, below, above))
    zero = _F32(0)
    return passed, np.where(none, zero, under), np.where(none, zero, over)


# *** Kernels ***


def _fixed_limits(attrs: Mapping[str, Any]) -> tuple[Any, Any]:
    low, high = _F32(attrs["min"]), _F32(attrs["max"])
    if not low < high:
        raise InvalidArgumentError(f"min has to be smaller than max, was: {low} >= {high}")
    return low, high


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
    limits, levels = _fixed_limits(attrs), _levels(attrs)
    return lambda x: _fake(x, *limits, levels)


def _args_gradient_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    limits, levels = _fixed_limits(attrs), _levels(attrs)

    def kernel(g: Any, x: Any) -> Any:
        _check_gradients(g, x)
        return _passed(g, x, *limits, levels)[0]

    return kernel


def _vars_kernel(channels: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        levels = _levels(attrs)

        def kernel(x: Any, low: Any, high: Any) -> Any:
            _check_limits(x, low, high, channels)
            return _fake(x, low, high, levels)

        return kernel

    return factory


def _vars_gradient_kernel(channels: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        levels = _levels(attrs)

        def kernel(g: Any, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
            _check_gradients(g, x)
            _check_limits(x, low, high, channels)
            inside, below, above = _passed(g, x, low, high, levels)
            axes = tuple(range(x.ndim - 1 if channels else x.ndim))
            return inside, below.sum(axes, _F32), above.sum(axes, _F32)

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
        grad=NOT_DIFFERENTIABLE,
        facts=_COST,
        oracle=_gradient_oracle,
        sample=_vars_samples(_channels, gradient=True),
        doc=f"The gradients of {_type}: passed to the element if it lies in the range, else to the limit it exceeds.",
    )
