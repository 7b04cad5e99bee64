"""Lu: the decomposition of square matrices into triangular factors, with partial pivoting.

Source: TensorFlow's op of the same name. Row i of L·U is row p[i] of the matrix; U is the upper half of `lu`, and L
without its diagonal of ones is below it. The pivot is the element of largest absolute value. For complex numbers LAPACK
uses another measure, so this module decomposes complex matrices by Toledo's recursion over columns (Locality of
reference in LU decomposition with partial pivoting, 1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.dtypes import COMPLEX, INDEX, DType, complex128, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op, type_attr
from headrace.opkit.batch_rules import in_step
from headrace.ops.linalg.matrices import (
    adjoint,
    check_square,
    drawn,
    lower_part,
    matrix_cost,
    mul,
    small_for,
    solve_triangular,
    square,
    upper_part,
)
from headrace.shapes import Shape


def _shape(c: Inference) -> Sequence[Shape]:
    x = square(c.shapes[0])
    return [x, None if x is None else x[:-1]]


def _decompose(x: np.ndarray, rows: np.ndarray) -> None:
    """Decomposes the matrix `x` in place and permutes `rows` with its rows.

    `x` has at least as many rows as columns.
    """
    columns = x.shape[1]
    if columns == 1:
        pivot = int(np.argmax(np.abs(x[:, 0])))
        if pivot:
            x[[0, pivot]] = x[[pivot, 0]]
            rows[[0, pivot]] = rows[[pivot, 0]]
        if x[0, 0] != 0:
            x[1:, 0] /= x[0, 0]
        return
    half = columns // 2
    left, right = x[:, :half], x[:, half:]
    order = np.arange(len(x))
    _decompose(left, order)
    right[:] = right[order]
    right[:half] = _below(left[:half], right[:half])
    right[half:] -= left[half:] @ right[:half]
    rows[:] = rows[order]
    order = np.arange(len(x) - half)
    _decompose(right[half:], order)
    left[half:] = left[half:][order]
    rows[half:] = rows[half:][order]


def _below(factor: np.ndarray, x: np.ndarray) -> np.ndarray:
    """L⁻¹·x of the factor L that has ones in place of the diagonal."""
    whole = factor.copy()
    np.fill_diagonal(whole, 1)
    return solve_triangular(whole, x, lower=True, adjoint=False)


def _by_lapack(x: np.ndarray, rows: np.ndarray) -> None:
    from scipy.linalg import lapack

    (getrf,) = lapack.get_lapack_funcs(("getrf",), (x,))
    x[:], swaps, _ = getrf(x)
    for i, j in enumerate(swaps.tolist()):
        rows[i], rows[j] = rows[j], rows[i]


def _kernel(attrs: Any) -> Any:
    t, index = attrs["T"].numpy, attrs["output_idx_type"].numpy
    decompose = _decompose if t.kind == "c" else _by_lapack

    def kernel(x: Any) -> Any:
        check_square(x)
        lu = np.array(x, np.float32 if t == np.float16 else None)
        p = np.empty(x.shape[:-1], index)
        p[...] = np.arange(x.shape[-1])
        if lu.size:
            for i in np.ndindex(x.shape[:-2]):
                decompose(lu[i], p[i])
            if (np.diagonal(lu, axis1=-2, axis2=-1) == 0).any():
                raise InvalidArgumentError("Input is not invertible.")
        return lu.astype(t, copy=False), p

    return kernel


def _grad(b: Any, n: Any, dy: Any, _: Any) -> list[Any]:
    """Pᵀ·L⁻ᴴ·(the strict lower part of Lᴴ·dL + the upper part of dU·Uᴴ)·U⁻ᴴ."""
    ones = b.OnesLike(b.MatrixDiagPart(n.lu))
    lower, upper = b.MatrixSetDiag(lower_part(b, n.lu), ones), upper_part(b, n.lu)
    by_upper = upper_part(b, dy)
    by_lower = b.Sub(dy, by_upper)
    left, right = mul(b, lower, by_lower, adj_x=True), mul(b, by_upper, upper, adj_y=True)
    middle = b.Add(b.Sub(left, upper_part(b, left)), upper_part(b, right))
    x = b.MatrixTriangularSolve(lower, middle, lower=True, adjoint=True)
    size = b.StridedSlice(b.Shape(n.p), [-1], [0], [1], shrink_axis_mask=1, end_mask=1)
    one, zero = (b.const(v, dy.dtype.base) for v in (1, 0))
    permuted = mul(b, x, b.OneHot(n.p, size, one, zero, axis=-1), adj_x=True)
    return [adjoint(b, b.MatrixTriangularSolve(upper, permuted, lower=False))]


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    """Products of factors with permuted rows; the factors are the expected results.

    The elements of L below its diagonal are at most 1/2, which determines the pivots.
    """
    out = []
    for s, index in (
        ((3, 3), dtypes.int32),
        ((2, 4, 4), dtypes.int64),
        ((0, 2, 2), dtypes.int32),
        ((2, 0, 0), dtypes.int32),
    ):
        n = s[-1]
        lower, upper = np.tril(drawn(rng, dtype, s), -1) / 3, np.triu(drawn(rng, dtype, s))
        upper = upper + 2 * np.eye(n)
        p = np.empty(s[:-1], index.numpy)
        x = np.empty(s, dtype.numpy)
        for i in np.ndindex(s[:-2]):
            p[i] = rng.permutation(n)
            x[i][p[i]] = (lower[i] + np.eye(n)) @ upper[i]
        out.append(case(x, output_idx_type=index, want=((lower + upper).astype(dtype.numpy), p)))
    return out


op(
    "Lu",
    "input: T",
    "lu: T, p: output_idx_type",
    {"T": frozenset({float16, float32, float64}) | COMPLEX, "output_idx_type": type_attr(INDEX, dtypes.int32)},
    shape=_shape,
    kernel=_kernel,
    xp=False,  # the standard has no such decomposition
    grad=_grad,
    batch=in_step,
    facts=Facts(cost=matrix_cost(1), blas=True),
    sample=small_for(frozenset({float64, complex128}), _samples),
    doc="The triangular factors of square matrices with their rows in another order, and that order.",
)
