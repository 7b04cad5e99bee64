"""Conversions of the element type (Cast, Bitcast), and CheckNumerics, which rejects NaN and infinities.

Source: TensorFlow's ops of the same names. Casts follow C on x86-64, as TensorFlow's do: floats lose their fraction. A
value outside the range of a narrow integer wraps if it fits 32 bits. NaN, infinities and all other values become the
lowest int32 or int64 (for narrower integers: its low bits). Complex numbers lose their imaginary part.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.dtypes import COMPLEX, FLOATING, INEXACT, INTEGER, NUMERIC, QUANTIZED, SMALL, SMALL_INTEGER, DType
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, string_attr, type_attr
from headrace.opkit.batch_rules import in_step
from headrace.opkit.jvp_rules import linear, passed
from headrace.opkit.namespaces import converter, is_standard, real_and_imag
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import SHAPES, draw, unary
from headrace.shapes import Shape, show, with_rank_at_least

_CASTABLE = NUMERIC | {dtypes.bool_}

# bits of the mantissa that are stored, for `Truncate`
_MANTISSA = {dtypes.float64: 52, dtypes.float32: 23, dtypes.float16: 10, dtypes.bfloat16: 7}


def _lowest_for_overflow() -> bool:
    """Whether casts of unrepresentable floats give the lowest integer, as x86 instructions do."""
    with np.errstate(all="ignore"):
        strange = np.array([np.nan, np.inf, 1e20] * 8)
        return all(
            bool((strange.astype(f).astype(i) == np.iinfo(i).min).all())
            for f in (np.float32, np.float64)
            for i in (np.int32, np.int64)
        )


_X86 = _lowest_for_overflow()


def _to_integer(xp: Any, dst: DType) -> Callable[[Any], Any]:
    """The cast from a float to an integer type."""
    # narrow integers get the low bits of the cast to int32, unsigned wide ones those of the cast to int64
    via = dtypes.int32 if dst.size < 4 else dtypes.int64 if dst.is_unsigned else dst
    to_via, to_dst = converter(xp, via), converter(xp, dst)
    is_x86 = _X86 and not is_standard(xp)
    if is_x86 and dst == via:
        return to_dst
    if is_x86 and dst != dtypes.uint64:
        return lambda x: to_dst(to_via(x))
    to_float64 = converter(xp, dtypes.float64)
    limit = float(2 ** (8 * via.size - 1))

    def cast(x: Any) -> Any:
        wide = to_float64(x)
        low = to_via(xp.where(xp.abs(wide) < limit, wide, -limit))
        if dst != dtypes.uint64:
            return to_dst(low)
        fits = (wide >= limit) & (wide < 2 * limit)  # not int64, but uint64
        return xp.where(fits, to_dst(xp.where(fits, wide, 0.0)), to_dst(low))

    return cast


def _truncating(xp: Any, src: DType, dst: DType) -> Callable[[Any], Any]:
    """The cast to a float with a shorter mantissa, rounding towards zero."""
    to_dst = converter(xp, dst)
    if is_standard(xp):
        to_float64 = converter(xp, dtypes.float64)
        return lambda x: to_dst(_cut(xp, to_float64(x), _MANTISSA[dst]))
    integer = np.dtype(f"u{src.size}")
    mask = integer.type(2 ** (8 * src.size) - 2 ** (_MANTISSA[src] - _MANTISSA[dst]))

    def cast(x: Any) -> Any:
        cut = (np.asarray(x).view(integer) & mask).view(src.numpy)
        return to_dst(xp.where(xp.isnan(x), x, cut))

    return cast


def _cut(xp: Any, x: Any, bits: int) -> Any:
    """The first `bits` stored bits of the mantissa of float64 numbers.

    The standard cannot mask bits. Dekker's product with 2^k + 1 rounds to the nearest number of so few bits. If that
    one is too large, it becomes the next smaller one, to which its product with 1 - 2^-(bits + 1) is rounded.
    """
    factor = 2.0 ** (_MANTISSA[dtypes.float64] - bits) + 1

    def nearest(x: Any) -> Any:
        large = x * factor
        return large - (large - x)

    near = nearest(x)
    near = xp.where(abs(near) > abs(x), nearest(near * (1 - 2.0 ** -(bits + 1))), near)
    return xp.where(abs(x) < 2.0**900, near, x)  # larger numbers are infinite in shorter dtypes; the product is too


# Quantised numbers are cast as the whole numbers in their arrays.
_INTEGER_OF = {d: dtypes.from_numpy(d.numpy) for d in QUANTIZED}


def _cast(xp: Any, src: DType, dst: DType, truncate: bool) -> Callable[[Any], Any]:
    """The conversion between two dtypes, none of which is quantized."""
    if src == dst:
        return lambda x: x
    if src in SMALL:  # a wider dtype has all their numbers
        wide = dtypes.int32 if src in SMALL_INTEGER else dtypes.float32
        rest = _cast(xp, wide, dst, truncate)
        to_wide = converter(xp, wide)
        return lambda x: rest(to_wide(x))
    if src not in _CASTABLE or dst not in _CASTABLE | SMALL:

        def refuse(x: Any) -> Any:
            raise UnimplementedError(f"Cast {src.name} to {dst.name} is not supported")

        return refuse
    if dst in SMALL_INTEGER:
        whole, narrow = _cast(xp, src, dtypes.int32, truncate), converter(xp, dst)
        return lambda x: narrow(whole(x))
    if src in COMPLEX and dst not in COMPLEX:
        if dst in INTEGER:
            whole = _to_integer(xp, dst)
            return lambda x: whole(real_and_imag(xp, x)[0])
        if is_standard(xp):
            convert = converter(xp, dst)
            return lambda x: convert(xp.real(x))
        return lambda x: x.real.astype(dst.numpy)  # a copy, not a view of every second number
    if src in FLOATING and dst in INTEGER:
        return _to_integer(xp, dst)
    if truncate and src in (dtypes.float32, dtypes.float64) and _MANTISSA.get(dst, 99) < _MANTISSA[src]:
        return _truncating(xp, src, dst)
    return converter(xp, dst)


def _cast_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    src, dst = (_INTEGER_OF.get(d, d) for d in (attrs["SrcT"], attrs["DstT"]))
    return _cast(xp, src, dst, attrs["Truncate"])


def _cast_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    src, dst = n.attrs["SrcT"], n.attrs["DstT"]
    return [b.Cast(dy, DstT=src) if src in INEXACT and dst in INEXACT else None]


def _cast_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype not in _CASTABLE:
        return []
    every = [case(draw(rng, dtype, (2, 3), 0, 9), DstT=d) for d in sorted(_CASTABLE, key=str)]
    return every + [case(draw(rng, dtype, s, 0, 3), DstT=dtypes.float32) for s in SHAPES]


def _cast_oracle(x: np.ndarray, DstT: DType) -> np.ndarray:
    out = np.empty(x.size, DstT.numpy)
    for i, v in enumerate(x.ravel()):
        z = complex(v)
        if DstT is dtypes.bool_:
            out[i] = z.real != 0
        elif DstT in INTEGER:
            out[i] = math.trunc(z.real)
        else:
            out[i] = z if DstT in COMPLEX else z.real
    return out.reshape(x.shape)


op(
    "Cast",
    "x: SrcT",
    "y: DstT",
    {"SrcT": type_attr(), "DstT": type_attr(), "Truncate": False},
    shape=same_as(0),
    kernel=_cast_kernel,
    xp=True,
    grad=_cast_grad,
    jvp=linear("x"),
    facts=Facts(cost=flops_per_element(1), total=()),
    shape_value=lambda c: c.shape_value(0) if c.dtypes[0].is_integer else None,
    oracle=_cast_oracle,
    sample=_cast_samples,
    doc="The elements converted to another type.",
)


# *** Bitcast ***


def _bitcast_kernel(attrs: Mapping[str, Any]) -> Any:
    src, dst = attrs["T"], attrs["type"]
    to = dst.numpy
    if src.size == dst.size:
        return lambda x: x.view(to)
    if src.size > dst.size:
        return lambda x: np.asarray(x, order="C")[..., None].view(to)
    n = dst.size // src.size

    def join(x: Any) -> Any:
        if not x.ndim or x.shape[-1] != n:
            raise InvalidArgumentError(
                f"Cannot bitcast from {src.name} to {dst.name}: the last dimension of the input must be {n}, "
                f"the input's shape is {show(x.shape)}"
            )
        return np.asarray(x, order="C").view(to)[..., 0]

    return join


def _bitcast_shape(c: Inference) -> Sequence[Shape]:
    src, dst, shape = c.attrs["T"].size, c.attrs["type"].size, c.shapes[0]
    if src < dst:
        shape = with_rank_at_least(shape, 1)
        if shape is not None and shape[-1] not in (None, dst // src):
            raise ValueError(f"Cannot bitcast due to shape: {shape[-1]} is not {dst // src}, in {show(shape)}")
        return [None if shape is None else shape[:-1]]
    if shape is None or src == dst:
        return [shape]
    return [(*shape, src // dst)]


def _bitcast_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype in QUANTIZED:  # arrays of these dtypes are arrays of integers
        return []
    out = []
    for to in sorted(NUMERIC, key=str):
        tail = (to.size // dtype.size,) if to.size > dtype.size else ()
        out += [case(draw(rng, dtype, (*s, *tail)), type=to) for s in ((), (2, 3), (0,))]
    return out


def _bitcast_oracle(x: np.ndarray, type: DType) -> np.ndarray:
    shape = x.shape if type.size <= x.itemsize else x.shape[:-1]
    if type.size < x.itemsize:
        shape = (*shape, x.itemsize // type.size)
    return np.frombuffer(x.tobytes(), type.numpy).reshape(shape)


op(
    "Bitcast",
    "input: T",
    "output: type",
    {"T": type_attr(NUMERIC | QUANTIZED), "type": type_attr(NUMERIC | QUANTIZED)},
    shape=_bitcast_shape,
    kernel=_bitcast_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    batch=in_step,
    oracle=_bitcast_oracle,
    sample=_bitcast_samples,
    doc="The same bytes read as another type; a type of another size adds or removes the last dimension.",
)


# *** CheckNumerics ***


def _check_kernel(signed: bool) -> Any:
    """The kernel factory of the check; with `signed` its error names the sign of infinities."""

    def kinds(xp: Any, x: Any) -> list[tuple[str, Any]]:
        if signed:
            return [("-Inf", x == -xp.inf), ("+Inf", x == xp.inf), ("NaN", xp.isnan(x))]
        return [("Inf", xp.isinf(x)), ("NaN", xp.isnan(x))]

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        message = attrs["message"]
        every, some = map(operator.methodcaller, ("all", "any")) if xp is np else (xp.all, xp.any)

        def kernel(x: Any) -> Any:
            if not every(xp.isfinite(x)):
                *found, last = [name for name, bad in kinds(xp, x) if some(bad)]
                shown = f"{', '.join(found)} and {last}" if found else last
                raise InvalidArgumentError(f"{message} : Tensor had {shown} values")
            return x

        return kernel

    return factory


def _check_grad(type: str) -> Any:
    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        message = f"Not a number (NaN) or infinity (Inf) values detected in gradient. {n.attrs['message']}"
        return [b.make(type, [dy], {"message": message})]

    return rule


def _checked_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(*c.inputs, message="m") for c in unary()(rng, dtype)]


for _type, _signed in (("CheckNumerics", False), ("CheckNumericsV2", True)):
    op(
        _type,
        "tensor: T",
        "output: T",
        {"T": FLOATING, "message": string_attr()},
        shape=same_as(0),
        kernel=_check_kernel(_signed),
        xp=True,
        grad=_check_grad(_type),
        jvp=passed,
        batch=in_step,
        facts=Facts(cost=flops_per_element(1), checks=True),
        oracle=lambda x, message: x,
        sample=_checked_samples,
        doc="The input; NaN or infinity among its elements is an error"
        + (", which names the sign of infinities." if _signed else "."),
    )
