"""Conversions of quantised numbers: QuantizeV2, Dequantize, Requantize, RequantizationRange,
QuantizeDownAndShrinkRange.

Source: TensorFlow's ops of the same names, with their exact arithmetic where it determines the level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import QUANTIZED, DType, bfloat16, float32, qint8, qint32, quint8
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, string_attr, type_attr
from headrace.opkit.testing.samples import draw, meant_as
from headrace.ops.quantized.levels import F32, F64, away, clipped, from_float, limits, to_float
from headrace.ops.quantized.levels import scalar as one
from headrace.shapes import Shape, merge, show, with_rank, with_rank_at_least

_COST = Facts(cost=flops_per_element(10))
_HUGE = np.finfo(np.float32).max


def _channels(x: Any, low: Any, high: Any, axis: int) -> tuple[Any, Any]:
    """The range, with dimensions to broadcast it along the channels if it has some."""
    if axis < -1 or axis >= x.ndim:
        raise InvalidArgumentError(
            "Axis is on a zero-based index, so its value must always be less than number of input's dims, "
            f"but given axis value was {axis} and input's dims was {x.ndim}"
        )
    n = 1 if axis == -1 else x.shape[axis]
    for name, v in (("min_range", low), ("max_range", high)):
        if v.size != n or (axis != -1 and v.ndim != 1):
            where = "must contain a single float element" if axis == -1 else f"must be a vector of {n} elements"
            raise InvalidArgumentError(f"{name} {where} for the axis {axis}, got shape {show(v.shape)}")
    shape = () if axis == -1 else [n if a == axis else 1 for a in range(x.ndim)]
    return low.reshape(shape), high.reshape(shape)


# *** QuantizeV2 ***


def _combined(x: Any, low: Any, high: Any, t: DType) -> Any:
    least, greatest = limits(t)
    scale = (F32(greatest) - F32(least)) / (high - low)
    shifted = (np.maximum(np.minimum(x, high), low) - low) * scale
    if least == 0:
        return np.floor(shifted + F32(0.5))
    return away(shifted - F32((float(greatest) - float(least) + 1) / 2))


def _min_first(x: Any, low: Any, high: Any, t: DType) -> Any:
    least, greatest = limits(t)
    steps = float(greatest - least + 1)
    scale = F32(steps / (F64(high - low) * (steps / (steps - 1))))
    first = away(low * scale) - F32(least)
    found = away(np.maximum(np.minimum(x, high), low) * scale) - first
    return np.clip(found, F32(least), min(F32(greatest), F32(2147483520)))


def _to_integers(x: Any, t: DType) -> Any:
    """Converts to integers by way of 64 bits.

    A value slightly too large for 32 bits wraps around, as on common processors.
    """
    return np.nan_to_num(x, nan=0.0).astype(np.int64).astype(t.numpy)


def _quantize_kernel(attrs: Mapping[str, Any]) -> Any:
    t, mode, axis, narrow = attrs["T"], attrs["mode"], attrs["axis"], attrs["narrow_range"]
    half_even, ensured = attrs["round_mode"] == "HALF_TO_EVEN", F32(attrs["ensure_minimum_range"])
    least, greatest = (F32(v) for v in limits(t))
    if half_even and mode != "SCALED":
        raise InvalidArgumentError(f"Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{mode}'.")

    def scaled(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        first = least + F32(narrow)
        scale = np.minimum(
            np.where(first * low > 0, first / low, _HUGE), np.where(greatest * high > 0, greatest / high, _HUGE)
        ).astype(F32)
        low, high = first / scale, greatest / scale
        found = np.maximum(np.minimum(x, high), low) * scale
        return np.rint(found) if half_even else away(found), low, high

    def kernel(x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        shape = () if axis == -1 else low.shape
        low, high = _channels(x, low, high, axis)
        if (low > high).any():
            raise InvalidArgumentError("input_max_range must be larger than input_min_range.")
        if mode == "MIN_FIRST" and axis != -1:
            raise UnimplementedError("MIN_FIRST mode is not implemented for Quantize with axis != -1.")
        reach = np.maximum(F32(1), np.maximum(np.abs(low), np.abs(high))) * ensured
        low = np.fmin(low, F32(0))
        high = np.maximum(np.maximum(high, low + reach), F32(0))
        x = np.where(np.isnan(x), F32(0) if mode == "SCALED" else low, x)
        if mode == "SCALED":
            found, low, high = scaled(x, low, high)
        else:
            found = (_combined if mode == "MIN_COMBINED" else _min_first)(x, low, high, t)
        return _to_integers(found, t), *(np.asarray(v, F32).reshape(shape) for v in (low, high))

    return kernel


# *** Dequantize ***


def _dequantize_kernel(attrs: Mapping[str, Any]) -> Any:
    t, mode, axis, out = attrs["T"], attrs["mode"], attrs["axis"], attrs["dtype"]
    least, greatest = limits(t)
    if out is bfloat16 and mode != "MIN_COMBINED":
        raise InvalidArgumentError(f"When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '{mode}'")

    def kernel(q: Any, low: Any, high: Any) -> Any:
        low, high = _channels(q, low, high, axis)
        if mode == "MIN_FIRST" and axis != -1:
            raise UnimplementedError("MIN_FIRST mode is not implemented for Dequantize with axis != -1.")
        if mode == "MIN_FIRST":
            return to_float(q, t, low, high)
        wide = q.astype(F32)
        if mode == "MIN_COMBINED":
            half = F32(0 if least == 0 else (float(greatest) - float(least) + 1) / 2)
            found = (wide + half) * ((high - low) / (F32(greatest) - F32(least))) + low
        else:
            first = F32(least + attrs["narrow_range"])
            by_high = high / F32(greatest)
            found = wide * (by_high if least == 0 else np.maximum(low / first, by_high))
        return found.astype(out.numpy)

    return kernel


def _range_shape(c: Inference) -> Shape:
    """The shape of a range, which is one number, or one for each channel."""
    axis = c.attrs["axis"]
    if axis < -1:
        raise ValueError(f"axis should be at least -1, got {axis}")
    if axis == -1:
        return ()
    n = with_rank(merge(c.shapes[1], c.shapes[2]), 1)
    x = with_rank_at_least(c.shapes[0], axis + 1)
    return n if x is None else merge(n, x[axis : axis + 1])


# *** Requantize ***

_FRACTION = 16  # bits, of the fixed-point numbers of the conversion from 32 to 8 bits


def _requantized(q: Any, low: Any, high: Any, new_low: Any, new_high: Any, t: DType) -> Any:
    """Numbers of qint32 in the range `low` to `high` as numbers of `t` in another."""
    if t is not quint8:
        return clipped(from_float(to_float(q, qint32, low, high), t, new_low, new_high), t)
    width = F32(new_high) - F32(new_low)
    if width == 0:
        return np.zeros(q.shape, t.numpy)
    unit = float(1 << _FRACTION)
    scale = int(255.0 * unit * float(high - low) / float(width))
    offset = int(float((low + high) / F32(2)) * float(F32(255.0) / width) * unit)
    offset -= int(unit * (float(new_low) * 255.0) / float(width))
    if abs(scale) >= 1 << 31 or abs(offset) >= 1 << 61:
        wide = (q.astype(object) * scale >> 32) + offset + (1 << _FRACTION - 1) >> _FRACTION
        return np.clip(wide, 0, 255).astype(t.numpy)
    shifted = (q.astype(np.int64) * scale >> 32) + offset + (1 << _FRACTION - 1)
    return np.clip(shifted >> _FRACTION, 0, 255).astype(t.numpy)


def _only(attrs: Mapping[str, Any], outs: frozenset[DType]) -> DType:
    """The dtype of the output, if TensorFlow has a kernel for it."""
    given, out = attrs["Tinput"], attrs.get("out_type", quint8)
    if given is not qint32 or out not in outs:
        raise UnimplementedError(f"only qint32 can be requantized, to {sorted(map(str, outs))}, not {given} to {out}")
    return out


def _range_in(low: Any, high: Any, names: Sequence[str]) -> tuple[Any, Any]:
    low, high = one(low, names[0]), one(high, names[1])
    if not np.isfinite(low) or not np.isfinite(high):
        raise InvalidArgumentError(f"{names[0]} and {names[1]} must be finite, got {low} and {high}")
    return low, high


_INPUT = ("input_min", "input_max")
_REQUESTED = ("requested_output_min", "requested_output_max")


def _requantize_kernel(attrs: Mapping[str, Any]) -> Any:
    t = _only(attrs, frozenset({qint8, quint8}))

    def kernel(q: Any, low: Any, high: Any, new_low: Any, new_high: Any) -> tuple[Any, Any, Any]:
        low, high = _range_in(low, high, _INPUT)
        new_low, new_high = _range_in(new_low, new_high, _REQUESTED)
        if new_low > 0:
            raise InvalidArgumentError(f"requested_output_min must be <= 0, but got {new_low}")
        if new_high < new_low:
            raise InvalidArgumentError(
                f"requested_output_max must be >= requested_output_min, but got {new_high} and {new_low}"
            )
        return _requantized(q, low, high, new_low, new_high, t), np.asarray(new_low), np.asarray(new_high)

    return kernel


def _used(q: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The range of what occurs, and of 0 if that is more than all."""
    ends = np.array([q.min(initial=2**31 - 1), q.max(initial=-(2**31))], np.int64)
    first, last = to_float(ends, qint32, low, high)
    return np.minimum(first, F32(0)), last


def _range_kernel(attrs: Mapping[str, Any]) -> Any:
    _only(attrs, frozenset({quint8}))

    def kernel(q: Any, low: Any, high: Any) -> tuple[Any, Any]:
        first, last = _used(q, *_range_in(low, high, _INPUT))
        return np.asarray(first), np.asarray(last)

    return kernel


def _shrink_kernel(attrs: Mapping[str, Any]) -> Any:
    t = _only(attrs, frozenset({quint8}))

    def kernel(q: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        low, high = _range_in(low, high, _INPUT)
        first, last = _used(q, low, high)
        return _requantized(q, low, high, first, last, t), np.asarray(first), np.asarray(last)

    return kernel


def _scalar_inputs(c: Inference) -> Sequence[Shape]:
    for s in c.shapes[1:]:
        with_rank(s, 0)
    return [*([c.shapes[0]] if len(c.op.outputs) == 3 else []), (), ()]


# *** How the tests exercise them ***


def _scalars(*values: float) -> list[np.ndarray]:
    return [np.array(v, F32) for v in values]


_X = np.array([[-1.5, -0.26, 0.0], [0.125, 1.0, 3.0]], F32)


def _nearest(x: Any, low: float, high: float, axis: int, t: DType) -> np.ndarray:
    """MIN_COMBINED by its definition: the nearest of the levels from `low` to `high`."""
    least, greatest = limits(t)
    exact = (np.clip(x.astype(F64), low, high) - low) / (high - low) * (greatest - least)
    return (np.rint(exact) + least).astype(t.numpy)


def _quantizations(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is qint32:  # more levels than single precision has
        x, want = np.array([-0.5, 0.0, 0.25], F32), np.array([-(2**30), 0, 2**29], np.int32)
        return [case(x, *_scalars(-1, 1), T=t, mode="SCALED", want=(want, *_scalars(-1, 1)))]
    ends = _scalars(-1, 2)
    return [
        case(_X, *ends, T=t, want=(_nearest(_X, -1, 2, -1, t), *ends)),
        case(_X, *ends, T=t, mode="MIN_FIRST", want=(_nearest(_X, -1, 2, -1, t), *ends)),
        case(_X[0] * F32(0.5), *_scalars(-1, 1), T=t, mode="SCALED", narrow_range=True, want=_scaled_wants(t)),
    ]


def _scaled_wants(t: DType) -> tuple[Any, ...]:
    least, greatest = limits(t)
    scale = min(greatest, -(least + 1)) if least else greatest
    low, high = F32((least + 1) / scale), F32(greatest / scale)
    x = _X[0].astype(F64) * 0.5
    return np.rint(np.clip(x, low, high) * scale).astype(t.numpy), *_scalars(float(low), float(high))


def _dequantizations(rng: np.random.Generator, t: DType) -> list[Any]:
    least, greatest = limits(t)
    q = draw(rng, t, (2, 3), 0, 100).astype(t.numpy)
    if t is qint32:
        return [case(meant_as(q << 20, t), *_scalars(-1, 1), mode="SCALED", want=(q / F64(2**11)).astype(F32))]
    exact = (q.astype(F64) - least) / (greatest - least) * 3 - 1
    return [
        case(meant_as(q, t), *_scalars(-1, 2), want=exact.astype(F32)),
        case(meant_as(q, t), *_scalars(-1, 2), mode="MIN_FIRST", want=_min_first_value(q, t)),
        case(
            meant_as(q[:, :2], t),
            *(np.array(v, F32) for v in ([-1, 0], [2, 3])),
            mode="SCALED",
            axis=1,
            want=(q[:, :2].astype(F64) / greatest * [2, 3]).astype(F32),
        ),
    ]


def _min_first_value(q: Any, t: DType) -> np.ndarray:
    """Values in the mode MIN_FIRST, by definition.

    The first level is the multiple of the distance between levels that is nearest to the end of the range.
    """
    least, greatest = limits(t)
    level = 3 / (greatest - least)
    return ((q.astype(F64) - least + round(-1 / level)) * level).astype(F32)


def _requantizations(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not qint32:
        return []
    q = meant_as(np.array([-(2**30), 0, 2**29, 2**30], np.int32), t)
    return [
        case(q, *_scalars(-4, 4), *_scalars(-1, 2), out_type=quint8, want=(np.array([0, 85, 170, 255], np.uint8),
                                                                           *_scalars(-1, 2))),
        case(q, *_scalars(-4, 4), *_scalars(-1, 2), out_type=qint8, want=(np.array([-128, -43, 42, 127], np.int8),
                                                                          *_scalars(-1, 2))),
    ]  # fmt: skip


def _ranges(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not qint32:
        return []
    q = meant_as(np.array([-(2**30), 0, 2**29], np.int32), t)
    return [case(q, *_scalars(-4, 4), want=tuple(_scalars(-2, 1)))]


def _shrinkings(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not qint32:
        return []
    q = meant_as(np.array([[-(2**30), 0], [2**29, 2**28]], np.int32), t)
    want = np.array([[0, 170], [255, 213]], np.uint8)
    return [case(q, *_scalars(-4, 4), out_type=quint8, want=(want, *_scalars(-2, 1)))]


# *** Records ***

_MODE = {"mode": string_attr("MIN_COMBINED", {"MIN_COMBINED", "MIN_FIRST", "SCALED"})}

op(
    "QuantizeV2",
    "input: float32, min_range: float32, max_range: float32",
    "output: T, output_min: float32, output_max: float32",
    {"T": QUANTIZED}
    | _MODE
    | {
        "round_mode": string_attr("HALF_AWAY_FROM_ZERO", {"HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"}),
        "narrow_range": False,
        "axis": -1,
        "ensure_minimum_range": 0.01,
    },
    shape=lambda c: [c.shapes[0], *[_range_shape(c)] * 2],
    kernel=_quantize_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_quantizations,
    doc="Each element as the quantised number of a range that is nearest to it; and the range, which has 0 in it.",
)


def _dequantize_shape(c: Inference) -> Sequence[Shape]:
    _range_shape(c)
    return [c.shapes[0]]


op(
    "Dequantize",
    "input: T, min_range: float32, max_range: float32",
    "output: dtype",
    {"T": QUANTIZED} | _MODE | {"narrow_range": False, "axis": -1, "dtype": type_attr({float32, bfloat16}, float32)},
    shape=_dequantize_shape,
    kernel=_dequantize_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_dequantizations,
    doc="The number that each quantised one stands for.",
)
op(
    "Requantize",
    "input: Tinput, input_min: float32, input_max: float32, requested_output_min: float32, "
    "requested_output_max: float32",
    "output: out_type, output_min: float32, output_max: float32",
    {"Tinput": QUANTIZED, "out_type": QUANTIZED},
    shape=_scalar_inputs,
    kernel=_requantize_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_requantizations,
    doc="Quantised numbers of 32 bits as such of 8 bits in another range.",
)
op(
    "RequantizationRange",
    "input: Tinput, input_min: float32, input_max: float32",
    "output_min: float32, output_max: float32",
    {"Tinput": QUANTIZED},
    shape=_scalar_inputs,
    kernel=_range_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_ranges,
    doc="The range of the numbers that occur.",
)
op(
    "QuantizeDownAndShrinkRange",
    "input: Tinput, input_min: float32, input_max: float32",
    "output: out_type, output_min: float32, output_max: float32",
    {"Tinput": QUANTIZED, "out_type": QUANTIZED},
    shape=_scalar_inputs,
    kernel=_shrink_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_shrinkings,
    doc="Quantised numbers of 32 bits as such of 8 bits in the range of those that occur.",
)
