"""Qr: the factorization into orthonormal columns and an upper triangular matrix.

Source: TensorFlow's op of the same name; the gradient is that of Seeger et al., Auto-differentiating linear algebra
(2017), and of Liao et al., Differentiable programming tensor networks (2019), for matrices with more columns than rows.
The signs are those of Householder's reflections: an element of the diagonal of R is real, and its sign is opposite to
that of the element that the reflection maps to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex128, float16, float32, float64
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import in_step
from headrace.opkit.namespaces import converter
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.matrices import (
    adjoint,
    check_matrices,
    columns,
    least,
    lower_part,
    matrix_cost,
    mul,
    real_part,
    single_or_more,
    small_for,
)
from headrace.shapes import Shape, with_rank_at_least


def _shape(c: Inference) -> Sequence[Shape]:
    x = with_rank_at_least(c.shapes[0], 2)
    if x is None:
        return [None, None]
    m, n = x[-2:]
    between = m if c.attrs["full_matrices"] else least(m, n)
    return [(*x[:-2], m, between), (*x[:-2], between, n)]


def _kernel(xp: Any, attrs: Any) -> Any:
    widen, back = converter(xp, single_or_more(attrs["T"])), converter(xp, attrs["T"])
    mode = "complete" if attrs["full_matrices"] else "reduced"

    def kernel(x: Any) -> Any:
        check_matrices(x)
        q, r = xp.linalg.qr(widen(x), mode=mode)
        return back(q), back(r)

    return kernel


def _hermitian(b: Any, x: Any) -> Any:
    """Hermitian matrices from the lower parts of `x` and real diagonals."""
    strict = lower_part(b, x)
    diagonal = real_part(b, b.MatrixDiagPart(x))
    strict = b.MatrixSetDiag(strict, b.ZerosLike(diagonal))
    return b.MatrixSetDiag(b.Add(strict, adjoint(b, strict)), diagonal)


def _grad(b: Any, n: Any, by_q: Any, by_r: Any) -> list[Any]:
    """Gradient rule of Qr.

    The first min(m, n) columns X of the matrix are Q·U and the other columns Y are Q·V, so V is Qᴴ·Y. With the
    contribution of V added to dQ, the gradient by X is (dQ + Q·hermitian(U·dUᴴ - dQᴴ·Q))·U⁻ᴴ.
    """
    x, q, r = n.input, n.q, n.r
    m, count = (None, None) if x.shape is None else x.shape[-2:]
    if n.attrs["full_matrices"] and m != count and (m is None or count is None or m > count):
        raise LookupError(
            f"the gradient of Qr ({n.op.name}) with full_matrices=True is known for matrices with no more rows than "
            f"columns, not for the shape {x.shape}"
        )
    k = b.StridedSlice(b.Shape(q), [-1], [0], [1], shrink_axis_mask=1, end_mask=1)
    u, by_u, by_v = columns(b, r, None, k), columns(b, by_r, None, k), columns(b, by_r, k, None)
    by_q = b.Add(by_q, mul(b, columns(b, x, k, None), by_v, adj_y=True))
    inner = b.Sub(mul(b, u, by_u, adj_y=True), mul(b, by_q, q, adj_x=True))
    whole = b.Add(by_q, mul(b, q, _hermitian(b, inner)))
    first = adjoint(b, b.MatrixTriangularSolve(u, adjoint(b, whole), lower=False))
    return [b.ConcatV2([first, mul(b, q, by_v)], -1)]


def _oracle(x: np.ndarray, full_matrices: bool) -> tuple[np.ndarray, np.ndarray]:
    """Householder's reflections, one column after the other."""
    m, n = x.shape[-2:]
    k = m if full_matrices else min(m, n)
    qs, rs = np.empty((*x.shape[:-2], m, k), x.dtype), np.empty((*x.shape[:-2], k, n), x.dtype)
    for at in np.ndindex(x.shape[:-2]):
        r, q = x[at].astype(complex), np.eye(m, dtype=complex)
        for i in range(min(m, n)):
            alpha, rest = r[i, i], np.sum(abs(r[i + 1 :, i]) ** 2)
            if rest == 0 and alpha.imag == 0:
                continue
            beta = -np.copysign(np.sqrt(abs(alpha) ** 2 + rest), alpha.real)
            v = r[i:, i] / (alpha - beta)
            v[0] = 1
            reflection = np.eye(m, dtype=complex)
            reflection[i:, i:] -= np.outer(v, v.conj()) * (beta - alpha).conj() / beta
            r, q = reflection @ r, q @ reflection.conj().T
        r = np.triu(r)
        qs[at], rs[at] = (q[:, :k], r[:k]) if x.dtype.kind == "c" else (q[:, :k].real, r[:k].real)
    return qs, rs


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = (((3, 2), False), ((2, 2, 3), True), ((2, 0), False), ((0, 2), True))
    tall = np.array([[0], [2], [1]], dtype.numpy)  # for which there is no gradient: hence the 0
    return [*(case(draw(rng, dtype, s), full_matrices=full) for s, full in cases), case(tall, full_matrices=True)]


op(
    "Qr",
    "input: T",
    "q: T, r: T",
    {"full_matrices": False, "T": frozenset({float16, float32, float64}) | COMPLEX},
    shape=_shape,
    kernel=_kernel,
    xp=True,
    grad=_grad,
    batch=in_step,
    facts=Facts(cost=matrix_cost(4), blas=True),
    oracle=_oracle,
    sample=small_for(frozenset({float64, complex128}), _samples),
    doc="Matrices with orthonormal columns and upper triangular ones, whose products are the input.",
)
