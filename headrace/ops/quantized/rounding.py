"""Quantisation followed by dequantisation: QuantizeAndDequantize and its later versions.

Source: TensorFlow's ops of the same names. A range of numbers, given or that of the input, is divided into levels, of
which 0 is one. Gradients pass unchanged; in version 4 they flow only to the elements inside of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import DType, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, op, string_attr
from headrace.opkit.namespaces import constant, converter, dtype_in, is_near, is_standard, number
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, merge, show, with_rank, with_rank_at_least

_COST = Facts(cost=flops_per_element(8))


def _axis_of(attrs: Mapping[str, Any], x: Any) -> int | None:
    """The axis of the channels; None if all elements share a range."""
    axis: int = attrs.get("axis", -1)
    if axis < -1:
        raise InvalidArgumentError(f"Axis should be at least -1. Provided value: {axis}")
    if axis >= x.ndim:
        raise InvalidArgumentError(f"Shape must be at least rank {axis + 1} but is rank {x.ndim}")
    return None if axis == -1 else axis


def _along(v: Any, axis: int | None, rank: int) -> Any:
    """A vector of channels, to broadcast along them."""
    return v if axis is None else v[:, *[None] * (rank - 1 - axis)]


def _check_range(x: Any, low: Any, high: Any, axis: int | None) -> None:
    wanted = () if axis is None else (x.shape[axis],)
    for name, v in (("input_min", low), ("input_max", high)):
        if v.shape != wanted:
            raise InvalidArgumentError(f"{name} has the shape {show(v.shape)}, expected {show(wanted)}")


def _levels(bits: int, signed: bool, narrow: bool) -> tuple[float, float]:
    most = 62 if signed else 63
    if not 0 < bits <= most:
        raise InvalidArgumentError(f"num_bits is out of range: {bits} with signed_input {signed}")
    if not signed:
        return 0.0, float((1 << bits) - 1)
    return float(-(1 << bits - 1) + narrow), float((1 << bits - 1) - 1)


def _quantized(
    xp: Any, dtype: DType, x: Any, low: Any, high: Any, levels: tuple[float, float], clamp: bool, up: bool
) -> Any:
    convert = converter(xp, dtype)
    least, greatest = (number(xp, v, dtype) for v in levels)
    huge = number(xp, np.finfo(dtype.numpy).max, dtype)
    by_low = convert(xp.where(least * low > 0, least / low, huge))
    by_high = convert(xp.where(greatest * high > 0, greatest / high, huge))
    lower = by_low < by_high
    scale = xp.where(lower, by_low, by_high)
    inverse = convert(xp.where(lower, low / least, high / greatest))
    if clamp:
        low, high = xp.where(lower, low, least * inverse), xp.where(lower, greatest * inverse, high)
        x = xp.minimum(xp.maximum(x, low), high)
    scaled = x * scale
    if up:
        return xp.floor(scaled + number(xp, 0.5, dtype)) * inverse
    return (xp.round if is_standard(xp) else xp.rint)(scaled) * inverse


def _limit(xp: Any, dtype: DType, v: Any, like: Any) -> Any:
    """A given end of the range as an array of the namespace.

    An end that is an attribute is an array of numpy.
    """
    if not is_standard(xp):
        return np.asarray(v, dtype.numpy)
    return constant(xp, v.tolist(), dtype, like) if isinstance(v, np.ndarray) else v


def _factory(read: Callable[[Mapping[str, Any], Sequence[Any]], tuple[Any, Any, int]]) -> Any:
    """Kernel factory of the rounding ops.

    `read(attrs, rest)` returns the range and the number of bits; `rest` are the inputs after the first.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        signed, given, narrow = attrs["signed_input"], attrs["range_given"], attrs.get("narrow_range", False)
        up, to = attrs.get("round_mode") == "HALF_UP", dtype_in(xp, attrs["T"])

        def kernel(x: Any, *rest: Any) -> Any:
            axis = _axis_of(attrs, x)
            low, high, bits = read(attrs, rest)
            levels = _levels(bits, signed, narrow)
            if given:
                _check_range(x, low, high, axis)
                low, high = (_limit(xp, attrs["T"], v, x) for v in (low, high))
                if is_near(low) and bool(xp.any(low > high)):
                    raise InvalidArgumentError(f"Invalid range: input_min {low} > input_max {high}")
            elif 0 in x.shape:
                return x
            else:
                others = None if axis is None else tuple(a for a in range(x.ndim) if a != axis)
                low, high = xp.min(x, axis=others), xp.max(x, axis=others)
            low, high = (_along(v, axis, x.ndim) for v in (low, high))
            return xp.asarray(_quantized(xp, attrs["T"], x, low, high, levels, given, up), dtype=to)

        return kernel

    return factory


def _of_attributes(attrs: Mapping[str, Any], rest: Sequence[Any]) -> tuple[Any, Any, int]:
    return np.array(attrs["input_min"]), np.array(attrs["input_max"]), attrs["num_bits"]


def _of_inputs(attrs: Mapping[str, Any], rest: Sequence[Any]) -> tuple[Any, Any, int]:
    return rest[0], rest[1], attrs["num_bits"]


def _of_inputs_all(attrs: Mapping[str, Any], rest: Sequence[Any]) -> tuple[Any, Any, int]:
    if rest[2].ndim:
        raise InvalidArgumentError(f"num_bits must be a scalar, got the shape {show(rest[2].shape)}")
    return rest[0], rest[1], int(rest[2])


def _gradient_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    zero = number(xp, 0, attrs["T"])

    def kernel(g: Any, x: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        if g.shape != x.shape:
            raise InvalidArgumentError(
                f"gradient and input must be the same size, got {show(g.shape)}, {show(x.shape)}"
            )
        axis = _axis_of(attrs, x)
        _check_range(x, low, high, axis)
        least, greatest = (_along(v, axis, x.ndim) for v in (low, high))
        inside = (x >= least) & (x <= greatest)
        return xp.where(inside, g, zero), xp.zeros_like(low), xp.zeros_like(high)

    return kernel


# *** Shapes and gradients ***


def _shape(c: Inference) -> Sequence[Shape]:
    axis = c.attrs.get("axis", -1)
    if axis < -1:
        raise ValueError(f"axis should be at least -1, got {axis}")
    low = merge(c.shapes[1], c.shapes[2])
    if axis == -1:
        with_rank(low, 0)
        return [c.shapes[0]]
    x = with_rank_at_least(c.shapes[0], axis + 1)
    n = with_rank(low, 1)
    if x is not None:
        merge(x[axis : axis + 1], n)
    return [x]


def _gradient_shape(c: Inference) -> Sequence[Shape]:
    return [merge(c.shapes[0], c.shapes[1]), *[merge(c.shapes[2], c.shapes[3])] * 2]


def _straight(b: Any, n: Any, dy: Any) -> list[Any]:
    return [dy, *[None] * (len(n.inputs) - 1)]


def _v4_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return list(b.QuantizeAndDequantizeV4Grad(dy, n.input, n.input_min, n.input_max, axis=n.attrs["axis"]))


def _v4_gradient_grad(b: Any, n: Any, dx: Any, dlow: Any, dhigh: Any) -> list[Any]:
    """Gradient rule of QuantizeAndDequantizeV4Grad.

    The op is linear in its first input; the gradients by the ends of the range are 0.
    """

    def by_first() -> Any:
        args = [dx, n.input, n.input_min, n.input_max]
        return b.make("QuantizeAndDequantizeV4Grad", args, {"axis": n.attrs["axis"]})[0]

    return [by_first, None, None, None]


# *** How the tests exercise them ***


def _by_definition(x: Any, low: Any, high: Any, bits: Any, attrs: Mapping[str, Any]) -> np.ndarray:
    """The nearest level, in Python numbers."""
    axis, given = attrs.get("axis", -1), attrs.get("range_given", False)
    signed, narrow = attrs.get("signed_input", True), attrs.get("narrow_range", False)
    least = (-(2 ** (bits - 1)) + narrow) if signed else 0
    greatest = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    out = np.empty(x.shape, x.dtype)
    for i in np.ndindex(x.shape):
        peers = x if axis == -1 else x.take(i[axis], axis)
        first, last = (
            (np.ravel(v)[0 if axis == -1 else i[axis]] for v in (low, high)) if given else (peers.min(), peers.max())
        )
        steps = [float(last) / greatest] if last > 0 else []
        steps += [float(first) / least] if least * first > 0 else []
        step = max(steps)
        level = float(x[i]) / step
        level = np.floor(level + 0.5) if attrs.get("round_mode") == "HALF_UP" else round(level)
        out[i] = (min(max(level, least), greatest) if given else level) * step
    return out


def _oracle(x: Any, low: Any, high: Any, bits: Any = None, **attrs: Any) -> np.ndarray:
    return _by_definition(x, low, high, int(bits) if bits is not None else attrs.get("num_bits", 8), attrs)


def _oracle_of_attributes(x: Any, **attrs: Any) -> np.ndarray:
    return _by_definition(x, attrs.get("input_min", 0), attrs.get("input_max", 0), attrs.get("num_bits", 8), attrs)


def _gradient_oracle(g: Any, x: Any, low: Any, high: Any, axis: int = -1) -> Any:
    dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        k = () if axis == -1 else (i[axis],)
        if low[k] <= x[i] <= high[k]:
            dx[i] = g[i]
    return dx, np.zeros_like(low), np.zeros_like(high)


def _samples(*extra: Any, modes: bool) -> Any:
    """Test cases of the versions whose range is an input.

    They vary the rounding mode if `modes` is set, and otherwise have a range for each channel.
    """

    def sample(rng: np.random.Generator, t: DType) -> list[Any]:
        x = draw(rng, t, (3, 2), -2, 2)
        zero, one = np.array(-1.1, t.numpy), np.array(1.7, t.numpy)
        lows, highs = np.array([-1.0, -0.3], t.numpy), np.array([0.4, 1.5], t.numpy)
        rounding = {"round_mode": "HALF_UP"} if modes else {}
        return [
            case(x, zero, one, *extra, range_given=True),
            case(x, zero, one, *extra, range_given=False, signed_input=True, narrow_range=True, **rounding),
            *([] if modes else [case(x, lows, highs, *extra, range_given=True, axis=1, narrow_range=True)]),
            case(np.abs(x), lows, highs, *extra, range_given=False, axis=1, signed_input=False),
        ]

    return sample


def _gradient_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    g, x = draw(rng, t, (3, 2), -2, 2), draw(rng, t, (3, 2), -2, 2)
    return [
        case(g, x, np.array(-0.8, t.numpy), np.array(0.9, t.numpy)),
        case(g, x, np.array([-0.8, 0.1], t.numpy), np.array([0.9, 0.7], t.numpy), axis=1),
    ]


# *** Records ***

_FLOATS = {"T": {float32, float64}}
_SIGNED = {"signed_input": True}
_GIVEN = {"range_given": False}
_BITS = {"num_bits": 8}
_ROUND = {"round_mode": string_attr("HALF_TO_EVEN", {"HALF_TO_EVEN", "HALF_UP"})}
_CHANNELS = {"narrow_range": False, "axis": -1}

op(
    "QuantizeAndDequantize",
    "input: T",
    "output: T",
    _SIGNED | _BITS | _GIVEN | {"input_min": 0.0, "input_max": 0.0} | _FLOATS,
    shape=same_as(0),
    kernel=_factory(_of_attributes),
    xp=True,
    grad=_straight,
    facts=_COST,
    oracle=_oracle_of_attributes,
    sample=lambda rng, t: [
        case(draw(rng, t, (2, 2), -2, 2)),
        case(draw(rng, t, (2, 2), -2, 2), range_given=True, input_min=-0.5, input_max=1.5, num_bits=4),
    ],
    doc="Each element rounded to one of the levels of a range.",
)
for _version, _read, _inputs, _attrs, _extra, _grad in (
    ("V2", _of_inputs, "", _SIGNED | _BITS | _GIVEN | _FLOATS | _ROUND | _CHANNELS, (), _straight),
    (
        "V3",
        _of_inputs_all,
        ", num_bits: int32",
        _SIGNED | {"range_given": True} | _FLOATS | _CHANNELS,
        (np.array(5, np.int32),),
        _straight,
    ),
    ("V4", _of_inputs, "", _SIGNED | _BITS | _GIVEN | _FLOATS | _ROUND | _CHANNELS, (), _v4_grad),
):
    op(
        f"QuantizeAndDequantize{_version}",
        f"input: T, input_min: T, input_max: T{_inputs}",
        "output: T",
        _attrs,
        shape=_shape,
        kernel=_factory(_read),
        xp=True,
        host=("num_bits",) if _version == "V3" else (),
        grad=_grad,
        facts=_COST,
        oracle=_oracle,
        sample=_samples(*_extra, modes=_version != "V3"),
        doc="Each element rounded to one of the levels of a range, which is an input or that of the elements.",
        differs="" if _version == "V3" else "Takes a range for each channel, which TensorFlow 2.21 refuses.",
    )
op(
    "QuantizeAndDequantizeV4Grad",
    "gradients: T, input: T, input_min: T, input_max: T",
    "input_backprop: T, input_min_backprop: T, input_max_backprop: T",
    _FLOATS | {"axis": -1},
    shape=_gradient_shape,
    kernel=_gradient_kernel,
    xp=True,
    grad=_v4_gradient_grad,
    facts=_COST,
    oracle=_gradient_oracle,
    sample=_gradient_samples,
    doc="The gradients of QuantizeAndDequantizeV4: to an element in the range; to the limits, which do not move, 0.",
)
