"""Determinants: MatrixDeterminant, LogMatrixDeterminant and the Batch name of the first.

Source: TensorFlow's ops of the same names. The sign of a complex determinant is the point of the unit circle at its
angle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex128, float16, float32, float64
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import in_step
from headrace.opkit.elementwise import conj
from headrace.opkit.namespaces import converter
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.matrices import check_square, matrix_cost, single_or_more, small_for, some, square
from headrace.shapes import Shape

_FLOATS = frozenset({float32, float64})


def _stack(c: Inference) -> Sequence[Shape]:
    """One number, or one of each kind, for each matrix."""
    x = square(c.shapes[0])
    return [None if x is None else x[:-2]] * len(c.op.outputs)


def _spoilt(xp: Any, x: Any) -> Any:
    """Whether there is a NaN in a matrix: LAPACK may take no notice of it."""
    return some(xp.isnan(x), xp, axis=(-2, -1))


def _det_kernel(xp: Any, attrs: Any) -> Any:
    widen, back = converter(xp, single_or_more(attrs["T"])), converter(xp, attrs["T"])

    def kernel(x: Any) -> Any:
        check_square(x)
        return back(xp.where(_spoilt(xp, x), math.nan, xp.linalg.det(widen(x))))

    return kernel


def _log_det_kernel(xp: Any, attrs: Any) -> Any:
    widen, back = converter(xp, single_or_more(attrs["T"])), converter(xp, attrs["T"])

    def kernel(x: Any) -> Any:
        check_square(x)
        sign, size = xp.linalg.slogdet(widen(x))
        size = xp.where(_spoilt(xp, x), math.nan, size)
        return back(xp.where(xp.isnan(size), math.nan, sign)), back(size)

    return kernel


def _over_matrices(b: Any, x: Any) -> Any:
    """Numbers, one for each matrix, with two dimensions of 1 appended."""
    return b.ExpandDims(b.ExpandDims(x, -1), -1)


def _det_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """dy·conj(det(A))·A⁻ᴴ."""
    size = b.Mul(dy, conj(b, n.output))
    return [b.Mul(_over_matrices(b, size), b.MatrixInverse(n.input, adjoint=True))]


def _log_det_grad(b: Any, n: Any, by_sign: Any, by_log: Any) -> list[Any]:
    """Gradient rule of LogMatrixDeterminant: the derivative of log(det(A)) is A⁻¹.

    Its real part changes the logarithm, and its imaginary part rotates the sign.
    """
    inverse = b.MatrixInverse(n.input, adjoint=True)
    if n.attrs["T"] not in COMPLEX:  # the sign is constant
        return [b.Mul(_over_matrices(b, by_log), inverse)]
    turn = b.Mul(by_sign, b.Conj(n.sign))
    moved = b.Add(by_log, b.Conj(by_log))
    turned = b.Sub(turn, b.Conj(turn))
    half = b.const(0.5, n.attrs["T"])
    return [b.Mul(_over_matrices(b, b.Mul(half, b.Add(moved, turned))), inverse)]


def _det(x: np.ndarray) -> Any:
    """Laplace's formula along the first row."""
    if not x.shape[-1]:
        return np.ones(x.shape[:-2])
    minors = (np.delete(x[..., 1:, :], i, axis=-1) for i in range(x.shape[-1]))
    return sum((-1) ** i * x[..., 0, i] * _det(m) for i, m in enumerate(minors))


def _det_oracle(x: np.ndarray) -> np.ndarray:
    det = _det(x.astype(np.complex128))
    return (det if x.dtype.kind == "c" else det.real).astype(x.dtype)


def _log_det_oracle(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    det = _det(x.astype(np.complex128))
    sign = np.where(det == 0, 0, det / abs(det))
    return (sign if x.dtype.kind == "c" else sign.real).astype(x.dtype), np.log(abs(det)).astype(x.dtype)


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    flat = np.array([[1, 0], [2, 0]], dtype.numpy)  # it has no inverse for a gradient
    return [*(case(draw(rng, dtype, s)) for s in ((3, 3), (2, 2, 2), (2, 0, 0))), case(flat)]


for _type, _outs, _types, _kernel, _grad, _oracle, _doc in (
    (
        "MatrixDeterminant",
        "output: T",
        COMPLEX | _FLOATS | {float16},
        _det_kernel,
        _det_grad,
        _det_oracle,
        "Determinants.",
    ),
    ("BatchMatrixDeterminant", "output: T", COMPLEX | _FLOATS, _det_kernel, _det_grad, _det_oracle, "Determinants."),
    (
        "LogMatrixDeterminant",
        "sign: T, log_abs_determinant: T",
        COMPLEX | _FLOATS | {float16},
        _log_det_kernel,
        _log_det_grad,
        _log_det_oracle,
        "The signs of determinants, and the logarithms of their absolute values.",
    ),
):
    op(
        _type,
        "input: T",
        _outs,
        {"T": _types},
        shape=_stack,
        kernel=_kernel,
        xp=True,
        grad=_grad,
        batch=in_step,
        facts=Facts(cost=matrix_cost(1), blas=True),
        oracle=_oracle,
        sample=small_for(frozenset() if _type.startswith("Batch") else frozenset({float64, complex128}), _samples),
        doc=_doc,
    )
