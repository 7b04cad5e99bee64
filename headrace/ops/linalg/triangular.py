"""Systems of linear equations with triangular matrices: MatrixTriangularSolve, its Batch name, BandedTriangularSolve.

Source: TensorFlow's ops of the same names. The stacks of matrices and of right-hand sides broadcast. The diagonals of a
banded matrix are the rows of a matrix. For a lower triangular matrix the main diagonal is the first row, and element
[i, i - k] is in column i of row k. For an upper triangular one the main diagonal is the last row, and element [i, i +
k] is in column i of row -1 - k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, bfloat16, complex128, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import stacks
from headrace.opkit.elementwise import widened
from headrace.opkit.namespaces import is_near
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.matrices import (
    is_complex,
    lower_part,
    matrix_cost,
    mul,
    small_for,
    solve_triangular,
    some,
    square,
    sum_to,
    upper_part,
    well_conditioned,
)
from headrace.shapes import Shape, broadcast, merge_dim, show, with_rank_at_least

_NUMBERS = frozenset({float16, float32, float64}) | COMPLEX
_FULL = frozenset({float64, complex128})
_ADJOINTS = [(lower, adjoint) for lower in (True, False) for adjoint in (True, False)]


def _check_batches(a: Any, b: Any) -> None:
    for i, x in enumerate((a, b)):
        if x.ndim < 2:
            raise InvalidArgumentError(f"In[{i}] ndims must be >= 2: {x.ndim}")
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise InvalidArgumentError(
            f"In[0] and In[1] must have compatible batch dimensions: {show(a.shape)} vs. {show(b.shape)}"
        ) from None


def _broadcast(a: Shape, b: Shape) -> Sequence[Shape]:
    """The shape of the solutions for matrices and right-hand sides of these shapes."""
    if a is None or b is None:
        return [None]
    merge_dim(a[-1], b[-2])
    batch = broadcast(a[:-2], b[:-2])
    return [None if batch is None else (*batch, merge_dim(a[-1], b[-2]), b[-1])]


# *** Whole matrices ***


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    lower, adjoint = attrs["lower"], attrs["adjoint"]
    solve = widened(lambda a, b: solve_triangular(a, b, lower, adjoint, xp), attrs["T"], xp)

    def kernel(a: Any, b: Any) -> Any:
        _check_batches(a, b)
        n = a.shape[-2]
        if a.shape[-1] != n:
            raise InvalidArgumentError(
                f"In[0] matrices in the last dimensions must be square ({n} =/= {a.shape[-1]}): {show(a.shape)}"
            )
        if b.shape[-2] != n:
            raise InvalidArgumentError(
                f"In[0] mismatch In[1] shape: {n} vs. {b.shape[-2]}: {show(a.shape)} {show(b.shape)}"
            )
        return solve(a, b)

    return kernel


def _shape(c: Inference) -> Sequence[Shape]:
    return _broadcast(square(c.shapes[0]), with_rank_at_least(c.shapes[1], 2))


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    lower, adj = n.attrs["lower"], n.attrs["adjoint"]
    by_rhs = b.MatrixTriangularSolve(n.matrix, dy, lower=lower, adjoint=not adj)
    x = n.output

    def by_matrix() -> Any:
        outer = mul(b, x, by_rhs, adj_y=True) if adj else mul(b, by_rhs, x, adj_y=True)
        return sum_to(b, (lower_part if lower else upper_part)(b, b.Neg(outer)), n.matrix)

    return [by_matrix, lambda: sum_to(b, by_rhs, n.rhs)]


def _oracle(a: np.ndarray, b: np.ndarray, lower: bool, adjoint: bool) -> np.ndarray:
    """One unknown after the other, by substitution."""
    whole = (np.tril if lower else np.triu)(a).astype(np.complex128)
    if adjoint:
        whole = np.conj(np.swapaxes(whole, -1, -2))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.zeros((*batch, *b.shape[-2:]), np.complex128)
    order = range(b.shape[-2])
    for i in order if lower != adjoint else reversed(order):
        rest = b[..., i, :] - (whole[..., i, :, None] * x).sum(-2)
        x[..., i, :] = rest / whole[..., i, i, None]
    return x.astype(b.dtype) if b.dtype.kind == "c" else x.real.astype(b.dtype)


def _samples(stacks: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        return [
            case(well_conditioned(rng, dtype, (*s, n, n)), draw(rng, dtype, (*t, n, k)), lower=lower, adjoint=adjoint)
            for (s, t), (lower, adjoint), n, k in zip(stacks, _ADJOINTS, (3, 2, 2, 0), (2, 1, 3, 2), strict=False)
        ]

    return small_for(_FULL, sample)


_BOTH = {"lower": True, "adjoint": False}

for _type, _types, _stacks in (
    ("MatrixTriangularSolve", _NUMBERS | {bfloat16}, [((), ()), ((2,), (2,)), ((2, 1), (3,)), ((2,), ())]),
    ("BatchMatrixTriangularSolve", frozenset({float32, float64}), [((2,), (2,))]),
):
    op(
        _type,
        "matrix: T, rhs: T",
        "output: T",
        {**_BOTH, "T": _types},
        shape=_shape,
        kernel=_kernel,
        xp=True,
        grad=_grad,
        batch=stacks,
        facts=Facts(cost=matrix_cost(1), blas=True),
        oracle=_oracle,
        sample=_samples(_stacks),
        doc="Solutions of systems of linear equations with triangular matrices, or with their adjoints.",
    )


# *** Bands ***


def _elements(bands: Any, lower: bool) -> list[tuple[int, Any]]:
    """Distance of each diagonal from the main one, and its elements by matrix row."""
    count = bands.shape[-2]
    return [(k, bands[..., k if lower else count - 1 - k, :]) for k in range(count)]


def _substitute(xp: Any, bands: Any, b: Any, lower: bool, adjoint: bool) -> Any:
    n = b.shape[-2]
    diagonals = _elements(bands, lower)
    batch = np.broadcast_shapes(bands.shape[:-2], b.shape[:-2])
    x = xp.asarray(xp.broadcast_to(b, (*batch, *b.shape[-2:])), copy=True)
    if adjoint and is_complex(x, xp):
        diagonals = [(k, xp.conj(d)) for k, d in diagonals]
    forwards = lower != adjoint
    for i in range(n) if forwards else reversed(range(n)):
        for k, d in diagonals[1:]:
            j = i - k if forwards else i + k  # of the unknowns that are known already
            if 0 <= j < n:
                x[..., i, :] -= d[..., j if adjoint else i, None] * x[..., j, :]
        x[..., i, :] /= diagonals[0][1][..., i, None]
    return x


def _banded_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    lower, adjoint = attrs["lower"], attrs["adjoint"]
    solve = widened(lambda a, b: _substitute(xp, a, b, lower, adjoint), attrs["T"], xp)

    def kernel(a: Any, b: Any) -> Any:
        _check_batches(a, b)
        for i, x in enumerate((a, b)):
            if 0 in x.shape:
                raise InvalidArgumentError(f"In[{i}] must not be an empty tensor: its shape is {show(x.shape)}")
        if a.shape[-1] != b.shape[-2]:
            raise InvalidArgumentError(
                f"In[0] mismatch In[1] shape: {a.shape[-1]} vs. {b.shape[-2]}: {show(a.shape)} {show(b.shape)}"
            )
        if is_near(a) and some(a[..., 0 if lower else -1, :] == 0, xp):
            raise InvalidArgumentError("Input matrix is not invertible: there is a zero on its main diagonal.")
        return solve(a, b)

    return kernel


def _banded_shape(c: Inference) -> Sequence[Shape]:
    return _broadcast(with_rank_at_least(c.shapes[0], 2), with_rank_at_least(c.shapes[1], 2))


def _banded_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    lower, adj = n.attrs["lower"], n.attrs["adjoint"]
    by_rhs = b.BandedTriangularSolve(n.matrix, dy, lower=lower, adjoint=not adj)
    x = n.output

    def by_matrix() -> Any:
        outer = b.Neg(mul(b, x, by_rhs, adj_y=True) if adj else mul(b, by_rhs, x, adj_y=True))
        farthest = b.Sub(b.StridedSlice(b.Shape(n.matrix), [-2], [-1], [1], shrink_axis_mask=1), 1)
        ends = [b.Neg(farthest), 0] if lower else [0, farthest]
        # One diagonal comes back as a vector, which is as many elements.
        bands = b.MatrixDiagPartV3(outer, b.Pack(ends, axis=0), b.const(0, dy.dtype.base), align="LEFT_RIGHT")
        batch = b.StridedSlice(b.Shape(outer), [0], [-2], [1], begin_mask=1)
        last = b.StridedSlice(b.Shape(n.matrix), [-2], [0], [1], end_mask=1)
        return sum_to(b, b.Reshape(bands, b.ConcatV2([batch, last], 0)), n.matrix)

    return [by_matrix, lambda: sum_to(b, by_rhs, n.rhs)]


def _banded_oracle(a: np.ndarray, b: np.ndarray, lower: bool, adjoint: bool) -> np.ndarray:
    """The matrices written out."""
    count, n = a.shape[-2:]
    whole = np.zeros((*a.shape[:-2], n, n), a.dtype)
    for i, k in np.ndindex(n, count):
        if lower and i - k >= 0:
            whole[..., i, i - k] = a[..., k, i]
        elif not lower and i + k < n:
            whole[..., i, i + k] = a[..., count - 1 - k, i]
    return _oracle(whole, b, lower, adjoint)


def _banded_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for (s, t, count, n), (lower, adjoint) in zip(
        (((), (), 2, 3), ((2,), (2,), 2, 2), ((2, 1), (3,), 3, 4), ((), (2,), 1, 2)), _ADJOINTS, strict=True
    ):
        bands = draw(rng, dtype, (*s, count, n), -1, 1)
        bands[..., 0 if lower else -1, :] += 2
        out.append(case(bands, draw(rng, dtype, (*t, n, 2)), lower=lower, adjoint=adjoint))
    return out


op(
    "BandedTriangularSolve",
    "matrix: T, rhs: T",
    "output: T",
    {**_BOTH, "T": _NUMBERS},
    shape=_banded_shape,
    kernel=_banded_kernel,
    xp=True,
    grad=_banded_grad,
    batch=stacks,
    facts=Facts(cost=matrix_cost(2)),
    oracle=_banded_oracle,
    sample=small_for(_FULL, _banded_samples),
    doc="Solutions of systems of linear equations with triangular band matrices, or with their adjoints.",
)
