"""Cholesky's decomposition: Cholesky, CholeskyGrad and their Batch names.

Source: TensorFlow's ops of the same names; the gradient is that of Murray, Differentiation of the Cholesky
decomposition (2016). Only the lower halves of matrices are read, but the gradient is symmetric, as in TensorFlow: it is
correct if both halves change together. A matrix that is not positive definite has a factor of NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex128, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import in_step
from headrace.opkit.elementwise import widened
from headrace.opkit.namespaces import is_near
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.matrices import (
    adjoint,
    check_matrices,
    check_square,
    drawn,
    every,
    halved_lower,
    is_complex,
    lower_part,
    matrix_cost,
    mul,
    small_for,
    solve_triangular,
    some,
    square,
    square_matrices,
    transpose_of,
)
from headrace.shapes import Shape, merge, show

_NUMBERS = frozenset({float16, float32, float64}) | COMPLEX
_OLD = frozenset({float32, float64})
_FULL = frozenset({float64, complex128})


_SMALL = 32  # rows up to which TensorFlow computes column by column


def _factor(x: Any, xp: Any = np) -> Any:
    """Cholesky factors.

    Small matrices are factored in TensorFlow's order of operations, because its roundings are visible in the factors of
    nearly singular matrices.
    """
    if x.shape[-1] > _SMALL and xp is np:
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            if x.ndim > 2:
                return np.stack([_factor(m) for m in x])
            return np.tril(np.full_like(x, np.nan))
    conj, real = (xp.conj, xp.real) if is_complex(x, xp) else (lambda y: y, lambda y: y)
    total = np.add.reduce if xp is np else xp.sum
    out = xp.tril(x)
    for k in range(x.shape[-1]):
        row, rest = out[..., k, :k], out[..., k + 1 :, :k]
        turned = conj(row)
        pivot = xp.sqrt(real(out[..., k, k]) - total(real(row * turned), axis=-1))
        column = out[..., k + 1 :, k] - (rest @ turned[..., None])[..., 0]
        out[..., k, k] = pivot
        out[..., k + 1 :, k] = column / pivot[..., None]
    failed = ~every(real(xp.linalg.diagonal(out)) > 0, xp, axis=-1)
    if not is_near(failed) or some(failed, xp):
        nothing = xp.tril(xp.full(x.shape[-2:], math.nan, dtype=x.dtype, device=x.device))
        out = xp.where(failed[..., None, None], nothing, out)
    return out


def _kernel(xp: Any, attrs: Any) -> Any:
    factor = widened(lambda x: _factor(x, xp), attrs["T"], xp)

    def kernel(x: Any) -> Any:
        check_square(x)
        return factor(x)

    return kernel


def _pulled_back(b: Any, factor: Any, dy: Any) -> Any:
    """L⁻ᴴ·P·L⁻¹ with P the halved lower part of Lᴴ·dy.

    The gradient is its symmetric part.
    """
    p = halved_lower(b, mul(b, factor, dy, adj_x=True))
    left = b.MatrixTriangularSolve(factor, p, adjoint=True)
    return adjoint(b, b.MatrixTriangularSolve(factor, adjoint(b, left), adjoint=True))


def _symmetric(b: Any, x: Any) -> Any:
    return b.Mul(b.Add(x, adjoint(b, x)), b.const(0.5, x.dtype.base))


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_symmetric(b, _pulled_back(b, n.output, dy))]


# *** CholeskyGrad ***


def _pull_back(xp: Any, factor: Any, dy: Any) -> Any:
    p = xp.tril(transpose_of(factor, xp) @ xp.tril(dy))
    p = p * (1 - 0.5 * xp.eye(p.shape[-1], dtype=p.dtype, device=p.device))
    left = solve_triangular(factor, p, lower=True, adjoint=True, xp=xp)
    whole = solve_triangular(factor, transpose_of(left, xp), lower=True, adjoint=True, xp=xp)
    return (whole + transpose_of(whole, xp)) * 0.5


def _grad_kernel(xp: Any, attrs: Any) -> Any:
    pull_back = widened(lambda factor, dy: _pull_back(xp, xp.tril(factor), dy), attrs["T"], xp)

    def kernel(factor: Any, dy: Any) -> Any:
        check_matrices(factor, dy)
        check_square(factor)
        if factor.shape != dy.shape:
            raise InvalidArgumentError(f"Inputs must have the same shape: {show(factor.shape)} and {show(dy.shape)}")
        return pull_back(factor, dy)

    return kernel


def _grad_shape(c: Inference) -> list[Shape]:
    return [merge(square(c.shapes[0]), square(c.shapes[1]))]


def _grad_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule of CholeskyGrad.

    With D the symmetric part of dy, K the halved lower part of L⁻¹·D·L⁻ᵀ and G the output, the gradient by `grad` is
    L·K. The gradient by L is the lower part of grad·Kᵀ - 2·G·D·L⁻ᵀ.
    """
    factor, d = lower_part(b, n.l), _symmetric(b, dy)
    right = adjoint(b, b.MatrixTriangularSolve(factor, d))  # D·L⁻ᵀ
    k = halved_lower(b, b.MatrixTriangularSolve(factor, right))

    def by_factor() -> Any:
        less = mul(b, b.Add(n.output, n.output), right)
        return lower_part(b, b.Sub(mul(b, lower_part(b, n.grad), k, adj_y=True), less))

    return [by_factor, lambda: mul(b, factor, k)]


# *** Tests ***


def _lower(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Lower triangular matrices with a positive diagonal."""
    n = shape[-1]
    return np.tril(drawn(rng, dtype, shape), -1) + rng.uniform(1, 2, (*shape[:-1], 1)) * np.eye(n)


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    """Products L·Lᴴ, with L as the expected result.

    An element above the diagonal, which the op does not read, is 0. It keeps the tests from perturbing single elements,
    for which no gradient is defined.
    """
    out = []
    for s in ((3, 3), (2, 2, 2), (0, 2, 2), (2, 0, 0)):
        factor = _lower(rng, dtype, s)
        x = (factor @ np.conj(np.swapaxes(factor, -1, -2))).astype(dtype.numpy)
        if x.size:
            x[..., 0, -1] = 0
        out.append(case(x, want=factor.astype(dtype.numpy)))
    return out


def _grad_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(_lower(rng, dtype, s).astype(dtype.numpy), draw(rng, dtype, s)) for s in ((3, 3), (2, 2, 2), (1, 1))]


def _grad_oracle(factor: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Gradient from the derivative of the factor, dL = L·P(L⁻¹·dA·L⁻ᵀ).

    The derivative is evaluated in each symmetric direction.
    """
    n = factor.shape[-1]
    inverse = np.linalg.inv(factor.astype(np.float64))
    half = np.tril(np.ones((n, n)), -1) + 0.5 * np.eye(n)
    out = np.zeros(factor.shape)
    for i, j in np.ndindex(n, n):
        direction = np.zeros((n, n))
        direction[i, j] += 0.5
        direction[j, i] += 0.5
        moved = factor @ (half * (inverse @ direction @ np.swapaxes(inverse, -1, -2)))
        out[..., i, j] = (np.tril(dy) * moved).sum((-2, -1))
    return out.astype(dy.dtype)


for _prefix, _types, _grad_types in (("", _NUMBERS, frozenset({float16}) | _OLD), ("Batch", _OLD, _OLD)):
    op(
        _prefix + "Cholesky",
        "input: T",
        "output: T",
        {"T": _types},
        shape=square_matrices,
        kernel=_kernel,
        xp=True,
        grad=_grad,
        batch=in_step,
        facts=Facts(cost=matrix_cost(1), blas=True, total=()),
        sample=small_for(_FULL if not _prefix else frozenset(), _samples),
        doc="Lower triangular factors L of positive definite matrices L·Lᴴ.",
    )
    op(
        _prefix + "CholeskyGrad",
        "l: T, grad: T",
        "output: T",
        {"T": _grad_types},
        shape=_grad_shape,
        kernel=_grad_kernel,
        xp=True,
        grad=_grad_grad,
        batch=in_step,
        facts=Facts(cost=matrix_cost(4), blas=True),
        oracle=_grad_oracle,
        sample=small_for(_FULL if not _prefix else frozenset(), _grad_samples),
        doc="The gradient of Cholesky, from the factor `l` and the gradient by it.",
    )
