"""Operators on 8-bit numbers with scales and zero points."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from headrace.api import arrays, math
from headrace.api.gathering import repeat
from headrace.dtypes import float32, float64, int32, uint8
from headrace.errors import UnimplementedError
from headrace.ir.tensor_type import Tensor
from headrace.onnx.element_types import dtype_of
from headrace.onnx.normalization import by_channel
from headrace.onnx.operators import Call, operator
from headrace.onnx.products import product
from headrace.onnx.windows import convolved


def _along(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    """A scale or zero point in a shape that broadcasts along the axis."""
    if scale.shape in ((), (1,)):
        return arrays.reshape(scale, ())
    if call.get("block_size"):
        if scale.shape is None or x.shape is None or None in x.shape:
            raise UnimplementedError(f"the {call.node} has blocks and an input of unknown shape")
        axis = call.axis(x)
        return repeat(scale, call["block_size"], axis)[tuple([slice(None)] * axis + [slice(0, x.shape[axis])])]
    return arrays.reshape(scale, [-1 if k == call.axis(x) else 1 for k in range(call.rank(x))])


@operator("QuantizeLinear", since=10)
def quantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Returns round(x / scale) + zero, limited to the range of the dtype."""
    number = call.get("output_dtype")
    dtype = zero.dtype.base if zero is not None else dtype_of(number, call.node) if number else uint8
    wide = math.cast(x, float32) / math.cast(_along(call, x, scale), float32)
    levels = wide if dtype.is_floating else math.rint(wide)
    if zero is not None:
        levels = levels + math.cast(_along(call, x, zero), float32)
    return _limited(levels, dtype)


def _limited(x: Tensor, dtype: Any) -> Tensor:
    info: Any = ml_dtypes.finfo(dtype.numpy) if dtype.is_floating else ml_dtypes.iinfo(dtype.numpy)
    return math.cast(math.clip_by_value(x, float(info.min), float(info.max)), dtype)


@operator("DequantizeLinear", since=10)
def dequantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Returns (x - zero) · scale."""
    wide = math.cast(x, float32)
    if zero is not None:
        wide = wide - math.cast(_along(call, x, zero), float32)
    return math.cast(wide * math.cast(_along(call, x, scale), float32), scale.dtype.base)


@operator("QLinearMatMul", since=10)
def q_linear_mat_mul(
    call: Call, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    """Returns the product of quantized matrices, quantized."""
    total = product(math.cast(a, int32) - math.cast(a_zero, int32), math.cast(b, int32) - math.cast(b_zero, int32))
    scales = [math.cast(s, float32) for s in (a_scale, b_scale, y_scale)]
    levels = math.rint(math.cast(total, float32) * (scales[0] * scales[1] / scales[2]))
    return _limited(levels + math.cast(y_zero, float32), y_zero.dtype.base)


def _by_output(zero: Tensor | None, x: Tensor, rank: int) -> Any:
    """Filters of integers less their zero points, one for all outputs or one for each."""
    wide = math.cast(x, float64)
    if zero is None:
        return wide
    zero = math.cast(zero, float64)
    return wide - (zero if zero.shape in ((), (1,)) else arrays.reshape(zero, [-1, *[1] * (rank - 1)]))


def _sums(call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Tensor:
    """The convolution of integers, which float64 holds exactly."""
    wide = math.cast(x, float64) if x_zero is None else math.cast(x, float64) - math.cast(x_zero, float64)
    return convolved(call, wide, _by_output(w_zero, w, call.rank(w)))


@operator("ConvInteger", since=10)
def conv_integer(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """Returns the convolution of 8-bit integers."""
    return math.cast(_sums(call, x, w, x_zero, w_zero), int32)


@operator("QLinearConv", since=10)
def q_linear_conv(
    call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, b: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the convolution of quantized tensors, quantized."""
    total = _sums(call, x, w, x_zero, w_zero)
    rank = call.rank(x)
    if b is not None:
        total = total + by_channel(math.cast(b, float64), rank)
    factor = math.cast(x_scale, float64) * math.cast(w_scale, float64) / math.cast(y_scale, float64)
    if factor.shape not in ((), (1,)):
        factor = by_channel(factor, rank)
    return _limited(math.rint(total * factor) + math.cast(y_zero, float64), y_zero.dtype.base)
