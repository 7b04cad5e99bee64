"""Systems of linear equations, exactly and by least squares: MatrixSolve, MatrixSolveLs, MatrixInverse, Batch names.

Source: TensorFlow's ops of the same names; the matrices of a stack are independent. The fast method for least squares
solves the normal equations with a regularizer l: x = (Aᴴ·A + l)⁻¹·Aᴴ·b, or Aᴴ·(A·Aᴴ + l)⁻¹·b if A has more columns than
rows. The slow method uses the singular values of A and ignores l; of the solutions with the best fit it returns the one
of least norm.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import COMPLEX, DType, complex128, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.elementwise import conj, widened
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.matrices import (
    adjoint_of,
    check_matrices,
    check_square,
    if_finite,
    matrix_cost,
    mul,
    refusing,
    small_for,
    solutions,
    solve_triangular,
    square_matrices,
    well_conditioned,
)
from headrace.shapes import Shape, show

_NUMBERS = frozenset({float16, float32, float64}) | COMPLEX
_OLD = frozenset({float32, float64})
_FULL = frozenset({float64, complex128})


def _check_rows(a: Any, b: Any) -> None:
    if a.shape[-2] != b.shape[-2]:
        raise InvalidArgumentError(f"Input matrix and rhs are incompatible: {show(a.shape)} and {show(b.shape)}")


def _solved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Oracle: Gauss-Jordan elimination with pivots, of stacks, in double precision."""
    out = np.empty((*a.shape[:-1], b.shape[-1]), b.dtype)
    for at in np.ndindex(a.shape[:-2]):
        n = a.shape[-1]
        m = np.concatenate([a[at], b[at]], axis=1).astype(np.complex128)
        for i in range(n):
            pivot = i + int(np.argmax(abs(m[i:, i])))
            m[[i, pivot]] = m[[pivot, i]]
            m[i] /= m[i, i]
            for j in range(n):
                if j != i:
                    m[j] -= m[j, i] * m[i]
        out[at] = m[:, n:] if b.dtype.kind == "c" else m[:, n:].real
    return out


# *** MatrixSolve ***


def _solve_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    adjoint = attrs["adjoint"]

    def of_finite(a: Any, b: Any) -> Any:
        return xp.linalg.solve(adjoint_of(a, xp) if adjoint else a, b)

    solve = widened(lambda a, b: if_finite(lambda a: of_finite(a, b), a, xp), attrs["T"], xp)
    solve = refusing(solve, "Input matrix is not invertible.")

    def kernel(a: Any, b: Any) -> Any:
        check_matrices(a, b)
        if a.shape[-1] != a.shape[-2]:
            raise InvalidArgumentError(f"First input (lhs) must be a square matrix, got the shape {show(a.shape)}")
        _check_rows(a, b)
        return solve(a, b)

    return kernel


def _solve_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    adj, x = n.attrs["adjoint"], n.output
    by_rhs = b.make(n.op.type, [n.matrix, dy], {"adjoint": not adj})
    return [lambda: b.Neg(mul(b, x, by_rhs, adj_y=True) if adj else mul(b, by_rhs, x, adj_y=True)), by_rhs]


def _solve_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(well_conditioned(rng, dtype, (*s, n, n)), draw(rng, dtype, (*s, n, k)), adjoint=adjoint)
        for s, n, k, adjoint in (((), 3, 2, False), ((2,), 2, 1, True), ((1, 2), 2, 2, False), ((), 0, 2, True))
    ]


def _solve_oracle(a: np.ndarray, b: np.ndarray, adjoint: bool) -> np.ndarray:
    return _solved(np.conj(np.swapaxes(a, -1, -2)) if adjoint else a, b)


# *** MatrixInverse ***


def _inverse_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    adjoint = attrs["adjoint"]
    invert = widened(lambda x: if_finite(xp.linalg.inv, adjoint_of(x, xp) if adjoint else x, xp), attrs["T"], xp)
    invert = refusing(invert, "Input is not invertible.")

    def kernel(x: Any) -> Any:
        check_square(x)
        return invert(x)

    return kernel


def _inverse_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    y = n.output
    if n.attrs["adjoint"]:
        return [b.Neg(mul(b, y, mul(b, dy, y, adj_x=True)))]
    return [b.Neg(mul(b, y, mul(b, dy, y, adj_y=True), adj_x=True))]


def _inverse_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(well_conditioned(rng, dtype, s), adjoint=adjoint)
        for s, adjoint in (((3, 3), False), ((2, 2, 2), True), ((0, 2, 2), False), ((2, 0, 0), True))
    ]


def _inverse_oracle(x: np.ndarray, adjoint: bool) -> np.ndarray:
    return _solve_oracle(x, np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape), adjoint)


# *** MatrixSolveLs ***


def _check_regularizer(l2: Any) -> None:
    if l2.ndim:
        raise InvalidArgumentError(f"l2_regularizer must be scalar, got shape {show(l2.shape)}")
    if not l2 >= 0:
        raise InvalidArgumentError(f"l2_regularizer must be >= 0, got {l2}.")


def _by_normal_equations(xp: Any, a: Any, b: Any, l2: float) -> Any:
    if 0 in a.shape or 0 in b.shape:  # the least x there is
        return xp.zeros((*a.shape[:-2], a.shape[-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    flat = a.shape[-2] < a.shape[-1]
    h = adjoint_of(a, xp)
    gramian = a @ h if flat else h @ a
    gramian = gramian + l2 * xp.eye(gramian.shape[-1], dtype=a.dtype, device=a.device)

    def solve(gramian: Any) -> Any:
        factor = xp.linalg.cholesky(gramian)
        y = solve_triangular(factor, b if flat else h @ b, lower=True, adjoint=False, xp=xp)
        return solve_triangular(factor, y, lower=True, adjoint=True, xp=xp)

    why = (
        "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide a larger "
        f"l2_regularizer > 0; it was {l2}."
    )
    y = refusing(lambda x: if_finite(solve, x, xp), why)(gramian)
    return h @ y if flat else y


def _by_singular_values(xp: Any, a: Any, b: Any, l2: float) -> Any:
    smallest = xp.finfo(a.dtype).eps * max(a.shape[-2:], default=1)
    return xp.linalg.pinv(a, rtol=smallest) @ b


def _least_squares_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    ways = _by_normal_equations, _by_singular_values
    fast = ways[0 if attrs["fast"] else 1]

    def kernel(a: Any, b: Any, l2: Any) -> Any:
        check_matrices(a, b)
        _check_rows(a, b)
        _check_regularizer(l2)
        return widened(lambda a, b: fast(xp, a, b, float(l2)), attrs["T"], xp)(a, b)

    return kernel


def _least_squares_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[2], 0)
    return solutions(c, is_square=False)


def _least_squares_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    a, x, t = n.matrix, n.output, n.attrs["T"]
    sides = (None, None) if a.shape is None else a.shape[-2:]
    if sides[0] is None or sides[1] is None:
        raise LookupError(
            f"the gradient of MatrixSolveLs ({n.op.name}) needs to know the rows and columns of its matrices"
        )
    if not n.wants("matrix", "rhs") and not n.attrs["fast"]:
        return [None] * 3
    flat = sides[0] < sides[1]
    gramian = mul(b, a, a, adj_x=not flat, adj_y=flat)
    if n.attrs["fast"]:
        l2 = b.Cast(n.l2_regularizer, DstT=t)
        gramian = b.MatrixSetDiag(gramian, b.Add(b.MatrixDiagPart(gramian), l2))
    z = b.MatrixSolve(gramian, mul(b, a, dy) if flat else dy)

    @functools.cache
    def y() -> Any:  # if flat, x = Aᴴ·y
        return b.MatrixSolve(gramian, n.rhs) if flat else x

    @functools.cache
    def by_rhs() -> Any:
        return z if flat else mul(b, a, z)

    def by_matrix() -> Any:
        if flat:
            rest = b.Sub(dy, mul(b, a, z, adj_x=True))
            return b.Sub(mul(b, y(), rest, adj_y=True), mul(b, z, x, adj_y=True))
        rest = b.Sub(n.rhs, mul(b, a, x))
        return b.Sub(mul(b, rest, z, adj_y=True), mul(b, by_rhs(), x, adj_y=True))

    def by_l2() -> Any:
        product = b.Mul(y(), conj(b, z))
        if t in COMPLEX:
            product = b.Real(product, Tout=float64 if t is complex128 else float32)
        every = b.Range(0, b.Rank(product), 1)
        return b.Neg(b.Sum(b.Cast(product, DstT=float64), every, keep_dims=False))

    return [by_matrix, by_rhs, by_l2 if n.attrs["fast"] else None]


def _least_squares_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for s, m, n, k, l2, fast in (
        ((), 3, 2, 2, 0.5, True),
        ((2,), 2, 3, 1, 0.5, True),
        ((2,), 3, 2, 1, 0.0, True),
        ((), 2, 3, 2, 0.0, False),
    ):
        a = draw(rng, dtype, (*s, m, n), -1, 1)
        a[..., range(min(m, n)), range(min(m, n))] += 2
        out.append(case(a, draw(rng, dtype, (*s, m, k)), np.float64(l2), fast=fast))
    return out


def _least_squares_oracle(a: np.ndarray, b: np.ndarray, l2: Any, fast: bool) -> np.ndarray:
    h = np.conj(np.swapaxes(a, -1, -2)).astype(np.complex128)
    regular = (l2 if fast else 0) * np.eye(min(a.shape[-2:]))
    flat = a.shape[-2] < a.shape[-1]
    x = h @ _solved(a @ h + regular, b + 0j) if flat else _solved(h @ a + regular, h @ b)
    return (x if b.dtype.kind == "c" else x.real).astype(b.dtype)


# *** Records ***

_INVERSE = "Inverses of matrices, or of their adjoints."
_SOLVE = "Solutions of systems of linear equations, or of those with the adjoint matrices."
_LEAST_SQUARES = "Solutions of systems of linear equations by least squares."

# fmt: off
for _type, _ins, _attrs, _shape, _kernel, _grad, _cost, _oracle, _sample, _doc in (
    ("MatrixSolve", "matrix: T, rhs: T", {"adjoint": False, "T": _NUMBERS}, solutions, _solve_kernel, _solve_grad, 1,
     _solve_oracle, _solve_samples, _SOLVE),
    ("BatchMatrixSolve", "matrix: T, rhs: T", {"adjoint": False, "T": _OLD}, solutions, _solve_kernel, _solve_grad, 1,
     _solve_oracle, _solve_samples, _SOLVE),
    ("MatrixInverse", "input: T", {"adjoint": False, "T": _NUMBERS}, square_matrices, _inverse_kernel, _inverse_grad,
     2, _inverse_oracle, _inverse_samples, _INVERSE),
    ("BatchMatrixInverse", "input: T", {"adjoint": False, "T": _OLD}, square_matrices, _inverse_kernel, _inverse_grad,
     2, _inverse_oracle, _inverse_samples, _INVERSE),
    ("MatrixSolveLs", "matrix: T, rhs: T, l2_regularizer: double", {"T": _NUMBERS, "fast": True}, _least_squares_shape,
     _least_squares_kernel, _least_squares_grad, 4, _least_squares_oracle, _least_squares_samples, _LEAST_SQUARES),
    ("BatchMatrixSolveLs", "matrix: T, rhs: T, l2_regularizer: double", {"T": _OLD, "fast": True}, _least_squares_shape,
     _least_squares_kernel, _least_squares_grad, 4, _least_squares_oracle, _least_squares_samples, _LEAST_SQUARES),
):
    op(
        _type,
        _ins,
        "output: T",
        _attrs,
        shape=_shape,
        kernel=_kernel,
        xp=True,
        host=("l2_regularizer",) if _kernel is _least_squares_kernel else (),
        grad=_grad, batch=first_in_step(0, 1),
        facts=Facts(cost=matrix_cost(_cost), blas=True),
        oracle=_oracle,
        sample=small_for(frozenset() if _type.startswith("Batch") else _FULL, _sample),
        doc=_doc,
    )
# fmt: on
