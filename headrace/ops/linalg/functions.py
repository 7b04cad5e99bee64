"""Functions of matrices: MatrixExponential, MatrixLogarithm, MatrixSquareRoot.

Source: TensorFlow's ops of the same names; Higham, Functions of Matrices (2008): roots of triangular factors by the
recurrence of Björck and Hammarling, logarithms by repeated roots and Gauss's quadrature. (SciPy's functions for these
print estimates of their errors.) All three have the same gradient rule, a block of the function of a larger matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex128, float16, float32, float64
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import in_step
from headrace.ops.linalg.matrices import (
    adjoint,
    check_square,
    drawn,
    each_matrix,
    if_finite,
    matrix_cost,
    small_for,
    square_matrices,
)

_NEAR = 0.25  # the distance from 1 in which seven points give a logarithm to the last digit
_MOST_ROOTS = 100


def _exponential(x: Any) -> Any:
    from scipy.linalg import expm

    return expm(x) if x.size else x


def _triangular(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Extends a function of triangular matrices to all matrices by Schur decomposition.

    The result is NaN if it is complex and the matrix is real.
    """

    def of_one(x: Any) -> Any:
        from scipy.linalg import schur

        t, z = schur(x.astype(np.complex128), output="complex")
        out = z @ f(t) @ z.conj().T
        if x.dtype.kind == "c":
            return out
        aside = abs(out.imag).max() > np.sqrt(np.finfo(np.float64).eps) * abs(out.real).max()
        return np.full(x.shape, np.nan) if aside else out.real

    return lambda x: each_matrix(of_one, x, to=x.shape[-2:])


def _root(t: Any) -> Any:
    """The square root of an upper triangular matrix, one column after the other, upwards."""
    r = np.diag(np.sqrt(np.diagonal(t)))
    for j in range(len(t)):
        for i in reversed(range(j)):
            r[i, j] = (t[i, j] - r[i, i + 1 : j] @ r[i + 1 : j, j]) / (r[i, i] + r[j, j])
    return r


def _logarithm(t: Any) -> Any:
    """Logarithm of a triangular matrix by inverse scaling and squaring.

    log(t) = 2ᵏ·log(1 + x), with 1 + x the 2ᵏth root of t. log(1 + x) is the integral of x/(1 + s·x) over s from 0 to 1.
    """
    if (np.diagonal(t) == 0).any():
        return np.full_like(t, np.nan)
    one = np.eye(len(t))
    scale = 1.0
    for _ in range(_MOST_ROOTS):
        if not np.linalg.norm(t - one, 1) > _NEAR:
            break
        t, scale = _root(t), 2 * scale
    x = t - one
    points, weights = np.polynomial.legendre.leggauss(7)
    parts = (w * np.linalg.solve(one + (s + 1) / 2 * x, x) for s, w in zip(points, weights, strict=True))
    return scale / 2 * sum(parts)


def _kernel(f: Callable[[Any], Any]) -> Any:
    def factory(attrs: Any) -> Any:
        t = attrs["T"].numpy

        def kernel(x: Any) -> Any:
            check_square(x)
            return if_finite(f, x.astype(np.float32) if t == np.float16 else x).astype(t, copy=False)

        return kernel

    return factory


def _along(b: Any, type: str, x: Any, direction: Any) -> Any:
    """Directional derivative of a matrix function f at x.

    It is the upper right block of f([[x, d], [0, x]]) for the direction d (Higham, theorem 3.6).
    """
    lower = b.ConcatV2([b.ZerosLike(x), x], -1)
    whole = b.make(type, [b.ConcatV2([b.ConcatV2([x, direction], -1), lower], -2)], {})
    size = b.StridedSlice(b.Shape(x), [-1], [0], [1], end_mask=1)
    begin, end = b.ConcatV2([[0, 0], size], 0), b.ConcatV2([[0], size, [0]], 0)
    return b.StridedSlice(whole, begin, end, [1, 1, 1], ellipsis_mask=1, begin_mask=2, end_mask=4)


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The adjoint of the derivative at x is the derivative at xᴴ."""
    return [_along(b, n.op.type, adjoint(b, n.input), dy)]


def _jvp(b: Any, n: Any, dx: Any) -> list[Any]:
    return [_along(b, n.op.type, n.input, dx)]


# *** Tests: a matrix, and what is its root or logarithm ***


def _powers(x: np.ndarray) -> np.ndarray:
    """The sum of xᵏ/k!."""
    term = out = np.broadcast_to(np.eye(x.shape[-1]), x.shape).astype(x.dtype)
    for k in range(1, 40):
        term = term @ x / k
        out = out + term
    return out


def _near_one(x: np.ndarray) -> np.ndarray:
    return x / 2 + 2 * np.eye(x.shape[-1])


def _samples(argument: Callable[[np.ndarray], Any], value: Callable[[np.ndarray], Any]) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for s in ((3, 3), (2, 2, 2), (0, 2, 2), (2, 0, 0)):
            x = drawn(rng, dtype, s)
            out.append(case(argument(x).astype(dtype.numpy), want=value(x).astype(dtype.numpy)))
        return out

    return small_for(frozenset({float64, complex128}), sample)


_ALL = frozenset({float16, float32, float64}) | COMPLEX

for _type, _types, _f, _sample, _doc in (
    ("MatrixExponential", _ALL, _exponential, _samples(lambda x: x, _powers), "Exponentials of matrices."),
    (
        "MatrixLogarithm",
        COMPLEX,
        _triangular(_logarithm),
        _samples(_powers, lambda x: x),
        "Logarithms of matrices, of whose eigenvalues the imaginary parts are above -π and at most π.",
    ),
    (
        "MatrixSquareRoot",
        _ALL,
        _triangular(_root),
        _samples(lambda x: _near_one(x) @ _near_one(x), _near_one),
        "Square roots of matrices, of whose eigenvalues no real part is negative.",
    ),
):
    op(
        _type,
        "input: T",
        "output: T",
        {"T": _types},
        shape=square_matrices,
        kernel=_kernel(_f),
        xp=False,  # by functions of SciPy
        grad=_grad,
        jvp=_jvp,
        batch=in_step,
        facts=Facts(cost=matrix_cost(40), blas=True),
        sample=_sample,
        doc=_doc,
    )
