"""Operators on 8-bit numbers with scales and zero points."""

from __future__ import annotations

from typing import Any

from headrace.api import arrays, math
from headrace.dtypes import float32, int32, uint8
from headrace.errors import UnimplementedError
from headrace.ir.tensor_type import Tensor
from headrace.onnx.element_types import dtype_of
from headrace.onnx.operators import Call, operator


def _along(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    """A scale or zero point in a shape that broadcasts along the axis."""
    if scale.shape in ((), (1,)):
        return arrays.reshape(scale, ())
    if call.get("block_size"):
        if scale.shape is None or x.shape is None or None in x.shape:
            raise UnimplementedError(f"the {call.node} has blocks and an input of unknown shape")
        axis = call.axis(x)
        from headrace.api.gathering import repeat

        return repeat(scale, call["block_size"], axis)[tuple([slice(None)] * axis + [slice(0, x.shape[axis])])]
    return arrays.reshape(scale, [-1 if k == call.axis(x) else 1 for k in range(call.rank(x))])


@operator("QuantizeLinear", since=10)
def quantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Returns round(x / scale) + zero, limited to the range of the dtype."""
    number = call.get("output_dtype")
    dtype = zero.dtype.base if zero is not None else dtype_of(number, call.node) if number else uint8
    if dtype.is_floating or dtype.size * 8 > 16 or dtype.name in ("int4", "uint4", "int2", "uint2"):
        raise UnimplementedError(f"the {call.node} quantizes to {dtype.name}; int8, uint8, int16 and uint16 are supported")
    wide = math.cast(x, float32) / math.cast(_along(call, x, scale), float32)
    levels = math.rint(wide)
    if zero is not None:
        levels = levels + math.cast(_along(call, x, zero), float32)
    return _limited(levels, dtype)


def _limited(x: Tensor, dtype: Any) -> Tensor:
    return math.cast(math.clip_by_value(x, float(dtype.min), float(dtype.max)), dtype)


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
    from headrace.onnx.products import product

    total = product(math.cast(a, int32) - math.cast(a_zero, int32), math.cast(b, int32) - math.cast(b_zero, int32))
    scales = [math.cast(s, float32) for s in (a_scale, b_scale, y_scale)]
    levels = math.rint(math.cast(total, float32) * (scales[0] * scales[1] / scales[2]))
    return _limited(levels + math.cast(y_zero, float32), y_zero.dtype.base)


