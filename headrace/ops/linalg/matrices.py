"""Helpers of this folder: stacks of matrices in kernels, shape rules, gradients and samples.

An array of rank r is a stack of matrices in its last two dimensions; the other r - 2 dimensions are the position in the
stack.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import DType, complex64, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.opkit.namespaces import is_near
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank_at_least

# *** Kernels ***


def single_or_more(t: DType) -> DType:
    """The dtype in which matrices of `t` are decomposed: float32 for float16."""
    return float32 if t is float16 else t


# np.isdtype, np.all, np.any and np.matrix_transpose add one or two microseconds to the calls of these


def is_complex(x: Any, xp: Any = np) -> bool:
    """Whether an array has complex numbers."""
    found: bool = x.dtype.kind == "c" if xp is np else xp.isdtype(x.dtype, "complex floating")
    return found


def every(x: Any, xp: Any = np, axis: Any = None) -> Any:
    """Whether all elements along axes are true."""
    return np.logical_and.reduce(x, axis=axis) if xp is np else xp.all(x, axis=axis)


def some(x: Any, xp: Any = np, axis: Any = None) -> Any:
    """Whether some element along axes is true."""
    return np.logical_or.reduce(x, axis=axis) if xp is np else xp.any(x, axis=axis)


def transpose_of(x: Any, xp: Any = np) -> Any:
    """The transposes of the matrices `x`."""
    return x.swapaxes(-1, -2) if xp is np else xp.matrix_transpose(x)


def adjoint_of(x: Any, xp: Any = np) -> Any:
    """The conjugate transposes of the matrices `x`."""
    turned = transpose_of(x, xp)
    return xp.conj(turned) if is_complex(x, xp) else turned


def check_matrices(*arrays: Any) -> None:
    """Raises `InvalidArgumentError` unless all arrays have equal ranks and batch dimensions.

    The rank is at least 2; the last two dimensions may differ.
    """
    first = arrays[0]
    if first.ndim < 2:
        raise InvalidArgumentError(f"Input tensor 0 must have rank >= 2, got {first.ndim}")
    for x in arrays[1:]:
        if x.ndim != first.ndim:
            raise InvalidArgumentError(
                f"All input tensors must have the same rank: {show(first.shape)}, {show(x.shape)}"
            )
        if x.shape[:-2] != first.shape[:-2]:
            raise InvalidArgumentError(
                f"All input tensors must have the same outer dimensions: {show(first.shape)}, {show(x.shape)}"
            )


def check_square(x: Any) -> None:
    """Raises `InvalidArgumentError` unless `x` is a stack of square matrices."""
    check_matrices(x)
    if x.shape[-1] != x.shape[-2]:
        raise InvalidArgumentError(f"Input matrix must be square, got the shape {show(x.shape)}")


def each_matrix(f: Callable[..., Any], *arrays: Any, to: tuple[int, int]) -> np.ndarray:
    """Applies `f`, a function of single matrices, to each matrix of the stacks.

    With several arrays, `f` takes one matrix of each.

    Args:
      f: returns a matrix of the shape `to`, or a vector where that has a dimension of -1: then the other one is left.
      arrays: they broadcast, except in the last two dimensions.
      to: the shape of each result.
    """
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    out = np.empty((*batch, *to), arrays[0].dtype)
    if out.size:
        whole = [np.broadcast_to(x, batch + x.shape[-2:]) for x in arrays]
        for i in np.ndindex(batch):
            out[i] = f(*(x[i] for x in whole))
    return out


def solve_triangular(a: Any, b: Any, lower: bool, adjoint: bool, xp: Any = np) -> Any:
    """Solves a·x = b, or the adjoint system, for a triangular matrix `a`.

    Only one side of the diagonal is read.

    As in TensorFlow a zero on the diagonal is divided by.
    """
    if xp is not np:
        return _substituted(a, b, lower, adjoint, xp)
    from scipy.linalg import blas

    (trsm,) = blas.get_blas_funcs(("trsm",), (a, b))

    def solve(a: np.ndarray, b: np.ndarray) -> Any:
        return trsm(1.0, a, b, lower=lower, trans_a=2 if adjoint else 0)

    return each_matrix(solve, a, b, to=b.shape[-2:])


def _substituted(a: Any, b: Any, lower: bool, adjoint: bool, xp: Any) -> Any:
    """Solves triangular systems by substitution, one row of the unknowns after the other."""
    n = b.shape[-2]
    rest, pivots = (xp.tril(a, k=-1) if lower else xp.triu(a, k=1)), xp.linalg.diagonal(a)
    if adjoint:
        rest = adjoint_of(rest, xp)
        pivots = xp.conj(pivots) if is_complex(a, xp) else pivots
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = xp.zeros((*batch, *b.shape[-2:]), dtype=b.dtype, device=b.device)
    for i in range(n) if lower != adjoint else reversed(range(n)):
        known = (rest[..., i : i + 1, :] @ x)[..., 0, :]  # the unknowns that are not known yet are 0
        x[..., i, :] = (b[..., i, :] - known) / pivots[..., i, None]
    return x


def refusing(f: Callable[..., Any], message: str) -> Callable[..., Any]:
    """Returns `f` with an `InvalidArgumentError` for matrices that have no result."""

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        try:
            return f(*args)
        except Exception as e:
            if type(e).__name__ != "LinAlgError":  # each library has its own class of this name
                raise
            raise InvalidArgumentError(message) from None

    return call


def are_finite(x: Any, xp: Any = np) -> Any:
    """Mask of the matrices of a stack that have neither NaN nor infinities."""
    return every(xp.isfinite(x), xp, axis=(-2, -1))


def if_finite(f: Callable[[Any], Any], x: Any, xp: Any = np) -> Any:
    """Applies `f` to a stack of matrices, with NaN for matrices that are not finite.

    LAPACK reports such matrices as singular or does not terminate, so `f` receives identity matrices in their place.
    `f` returns an array or a tuple of arrays.
    """
    finite = are_finite(x, xp)
    if is_near(finite) and every(finite, xp):
        return f(x)
    out = f(xp.where(finite[..., None, None], x, xp.eye(*x.shape[-2:], dtype=x.dtype, device=x.device)))

    def spoilt(a: Any) -> Any:
        mask = xp.reshape(finite, (*finite.shape, *[1] * (a.ndim - finite.ndim)))
        return xp.where(mask, a, math.nan)

    return tuple(map(spoilt, out)) if isinstance(out, tuple) else spoilt(out)


def phases(v: Any, xp: Any = np) -> Any:
    """Factors of absolute value 1 that normalize the columns of the matrices `v`.

    They make the first large element of each column positive.

    Eigenvectors and singular vectors are known up to such a factor. With it they do not depend on the algorithm.
    """
    size = xp.abs(v)
    if 0 in v.shape:
        return xp.ones((*v.shape[:-2], 1, v.shape[-1]), dtype=v.dtype, device=v.device)
    greatest = np.maximum.reduce if xp is np else xp.max
    is_large = size > 0.5 * greatest(size, axis=-2, keepdims=True)
    first = xp.argmax(is_large if xp is np else xp.astype(is_large, xp.uint8), axis=-2, keepdims=True)
    at, length = (xp.take_along_axis(x, first, axis=-2) for x in (v, size))
    if is_complex(v, xp):
        at = xp.conj(at)
    return at / xp.where(length == 0, 1.0, length)


# *** Shape rules ***


def square(s: Shape) -> Shape:
    """Shape of square matrices, with the last two dimensions merged."""
    s = with_rank_at_least(s, 2)
    if s is None:
        return None
    n = merge_dim(s[-2], s[-1])
    return (*s[:-2], n, n)


def square_matrices(c: Inference) -> Sequence[Shape]:
    """The rule of an op from square matrices to such of the same size."""
    return [square(c.shapes[0])]


def least(m: Dim, n: Dim) -> Dim:
    """The smaller of two dimensions, as far as it is known."""
    return 0 if 0 in (m, n) else None if m is None or n is None else min(m, n)


def solutions(c: Inference, is_square: bool = True) -> Sequence[Shape]:
    """The rule of an op that solves matrix·x = rhs, whose other dimensions are equal."""
    a, b = with_rank_at_least(c.shapes[0], 2), with_rank_at_least(c.shapes[1], 2)
    if is_square:
        a = square(a)
    batch = shapes.merge(None if a is None else a[:-2], None if b is None else b[:-2])
    if a is not None and b is not None:
        merge_dim(a[-2], b[-2])
    rows: Dim = a[-1] if a is not None else b[-2] if is_square and b is not None else None
    columns = None if b is None else b[-1]
    return [None if batch is None else (*batch, rows, columns)]


def matrix_cost(factor: float) -> Any:
    """Cost of about `factor`·m·n·min(m, n) operations for each m by n input matrix."""

    def cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
        n = shapes.size(ins[0])
        if n is None or ins[0] is None or len(ins[0]) < 2:
            return None
        return factor * n * float(min(ins[0][-2:]))  # type: ignore[type-var, arg-type]

    return cost


# *** Gradients ***


def mul(b: Any, x: Any, y: Any, adj_x: bool = False, adj_y: bool = False) -> Any:
    """Products of the matrices `x` and `y`, or of their adjoints."""
    return b.BatchMatMulV2(x, y, adj_x=adj_x, adj_y=adj_y)


def adjoint(b: Any, x: Any) -> Any:
    """The adjoints of the matrices `x`."""
    if x.shape is None:
        rank = b.Rank(x)
        last = b.Pack([b.Sub(rank, 1), b.Sub(rank, 2)], axis=0)
        return b.ConjugateTranspose(x, b.ConcatV2([b.Range(0, b.Sub(rank, 2), 1), last], 0))
    n = len(x.shape)
    return b.ConjugateTranspose(x, np.array([*range(n - 2), n - 1, n - 2], np.int32))


def lower_part(b: Any, x: Any) -> Any:
    """The elements of the matrices `x` on the diagonal and below it, zeros above."""
    return b.MatrixBandPart(x, np.int64(-1), np.int64(0))


def upper_part(b: Any, x: Any) -> Any:
    """The elements of the matrices `x` on the diagonal and above it, zeros below."""
    return b.MatrixBandPart(x, np.int64(0), np.int64(-1))


def halved_lower(b: Any, x: Any) -> Any:
    """The lower part of the square matrices `x`, with half of their diagonals."""
    return b.MatrixSetDiag(lower_part(b, x), b.Mul(b.MatrixDiagPart(x), b.const(0.5, x.dtype.base)))


def scale_rows(b: Any, s: Any, x: Any) -> Any:
    """diag(s)·x."""
    return b.Mul(b.ExpandDims(s, -1), x)


def scale_columns(b: Any, x: Any, s: Any) -> Any:
    """x·diag(s)."""
    return b.Mul(x, b.ExpandDims(s, -2))


def safe_reciprocal(b: Any, x: Any) -> Any:
    """1/x, and nearly 0 where `x` is nearly 0.

    With it, gradients at repeated eigenvalues stay finite.
    """
    return b.Mul(x, b.Reciprocal(b.Add(b.Square(x), b.const(1e-20, x.dtype.base))))


def differences(b: Any, s: Any) -> Any:
    """Reciprocals of the differences of values: 1 / (s[j] - s[i]) in row i.

    The diagonal is 0.
    """
    f = safe_reciprocal(b, b.Sub(b.ExpandDims(s, -2), b.ExpandDims(s, -1)))
    return b.MatrixSetDiag(f, b.ZerosLike(s))


def real_part(b: Any, x: Any) -> Any:
    """`x` with imaginary parts of 0, in its own type."""
    t = x.dtype.base
    return b.Cast(b.Real(x, Tout=float32 if t is complex64 else float64), DstT=t) if t.is_complex else x


def columns(b: Any, x: Any, begin: Any, end: Any) -> Any:
    """Columns `begin` to `end` of the matrices `x`; None for the first and last."""
    ellipsis = b.const([0])

    def bound(at: Any) -> Any:
        return b.ConcatV2([ellipsis, b.Reshape(0 if at is None else at, [1])], 0)

    return b.StridedSlice(
        x,
        bound(begin),
        bound(end),
        [1, 1],
        ellipsis_mask=1,
        begin_mask=2 if begin is None else 0,
        end_mask=2 if end is None else 0,
    )


def sum_to(b: Any, g: Any, x: Any) -> Any:
    """`g` summed over the dimensions in which `x` was stretched to its shape."""
    if g.shape is not None and g.shape == x.shape and shapes.is_full(x.shape):
        return g
    axes = b.BroadcastGradientArgs(b.Shape(x), b.Shape(g))[0]
    return b.Reshape(b.Sum(g, axes, keep_dims=False), b.Shape(x))


# *** Samples: matrices made of what a decomposition is to find ***


def wide(dtype: DType) -> type:
    """The widest type of numbers like those of `dtype`."""
    return np.complex128 if dtype.is_complex else np.float64


def drawn(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Random elements in [-1, 1), in the widest type of numbers like those of `dtype`."""
    x = rng.uniform(-1, 1, shape)
    return x + 1j * rng.uniform(-1, 1, shape) if dtype.is_complex else x


def orthonormal(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Random matrices with orthonormal columns, by the method of Gram and Schmidt."""
    x = drawn(rng, dtype, shape)
    for i in range(shape[-1]):
        for j in range(i):
            for _ in range(2):  # twice is enough (Kahan)
                x[..., i] -= x[..., j] * (x[..., j].conj() * x[..., i]).sum(-1, keepdims=True)
        x[..., i] /= np.sqrt((abs(x[..., i]) ** 2).sum(-1, keepdims=True))
    return x


def well_conditioned(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Random square matrices with a large diagonal."""
    x = draw(rng, dtype, shape, -1, 1)
    return (x + (shape[-1] + 1) * np.eye(shape[-1])).astype(dtype.numpy)


def small_for(dtypes: frozenset[DType], sample: Callable[..., Any]) -> Any:
    """Sampler with all cases of `sample` for `dtypes`, and one for other dtypes."""

    @functools.wraps(sample)
    def some(rng: np.random.Generator, dtype: DType) -> list[Any]:
        found = list(sample(rng, dtype))
        return found if dtype in dtypes else found[:1]

    return some
