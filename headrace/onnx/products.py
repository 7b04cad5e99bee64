"""Products of matrices and sums of products."""

from __future__ import annotations

from headrace.api import arrays, linalg, math, tensors
from headrace.dtypes import int32
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


def product(x: Tensor, y: Tensor) -> Tensor:
    """Returns the matrix product of numpy's `matmul`, with vectors and batches."""
    if x.shape is None or y.shape is None:
        return linalg.matmul(x, y)
    a = arrays.expand_dims(x, 0) if len(x.shape) == 1 else x
    b = arrays.expand_dims(y, 1) if len(y.shape) == 1 else y
    out = linalg.matmul(a, b)
    if len(y.shape) == 1:
        out = arrays.squeeze(out, [-1])
    return arrays.squeeze(out, [-2 if len(y.shape) > 1 else -1]) if len(x.shape) == 1 else out


@operator("MatMul")
def mat_mul(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """Returns the product of matrices."""
    return product(x, y)


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Returns alpha · A · B + beta · C."""
    out = linalg.matmul(a, b, bool(call["transA"]), bool(call["transB"]))
    if call["alpha"] != 1:
        out = out * tensors.constant(call["alpha"], out.dtype.base)
    if c is None:
        return out
    return out + (c if call["beta"] == 1 else c * tensors.constant(call["beta"], c.dtype.base))


@operator("MatMulInteger", since=10)
def mat_mul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """Returns the product of matrices of 8-bit integers, less their zero points."""
    return product(_centered(a, a_zero, -1), _centered(b, b_zero, None))


def _centered(x: Tensor, zero: Tensor | None, axis: int | None) -> Tensor:
    x = math.cast(x, int32)
    if zero is None:
        return x
    zero = math.cast(zero, int32)
    if axis is not None and zero.shape is not None and len(zero.shape) == 1 and zero.shape[0] != 1:
        zero = arrays.expand_dims(zero, axis)
    return x - zero


@operator("Einsum", since=12)
def einsum(call: Call, *values: Tensor) -> Tensor:
    """Returns a sum of products by an equation."""
    return linalg.einsum(call["equation"].replace(" ", ""), *values)
