"""Tridiagonal matrices: TridiagonalMatMul, TridiagonalSolve.

Source: TensorFlow's ops of the same names. Row i of a matrix has the elements subdiag[i], maindiag[i] and superdiag[i]
in the columns i - 1, i and i + 1; subdiag[0] and superdiag[-1] are not read. TridiagonalSolve takes the three as the
rows of a matrix, the superdiagonal first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex128, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op
from headrace.opkit.batch_rules import in_step
from headrace.opkit.elementwise import conj
from headrace.opkit.namespaces import is_near
from headrace.opkit.shape_rules import then
from headrace.opkit.testing.samples import draw
from headrace.ops.linalg.matrices import check_matrices, is_complex, small_for, some, transpose_of
from headrace.shapes import Shape, merge, merge_dim, show, with_rank_at_least

_TYPES = {"T": frozenset({float32, float64}) | COMPLEX}
_FULL = frozenset({float64, complex128})


# *** Products ***


def _multiply(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(above: Any, main: Any, below: Any, x: Any) -> Any:
        check_matrices(above, main, below, x)
        m = x.shape[-2]
        for name, d in (("superdiag", above), ("maindiag", main), ("subdiag", below)):
            if d.shape[-2:] != (1, m):
                raise InvalidArgumentError(f"{name} must have the shape [...,1,{m}], got {show(d.shape)}")
        above, main, below = (transpose_of(d, xp) for d in (above, main, below))
        out = main * x
        if m > 1:
            out[..., :-1, :] += above[..., :-1, :] * x[..., 1:, :]
            out[..., 1:, :] += below[..., 1:, :] * x[..., :-1, :]
        return out

    return kernel


def _multiply_shape(c: Inference) -> Sequence[Shape]:
    diagonals: Shape = None
    for s in c.shapes[:3]:
        diagonals = merge(diagonals, with_rank_at_least(s, 2))
    x = with_rank_at_least(c.shapes[3], 2)
    if diagonals is None or x is None:
        return [x]
    merge_dim(diagonals[-2], 1)
    batch = merge(diagonals[:-2], x[:-2])
    return [None if batch is None else (*batch, merge_dim(diagonals[-1], x[-2]), x[-1])]


def _adjoint(b: Any, above: Any, main: Any, below: Any) -> list[Any]:
    """The diagonals of the adjoint matrices, the superdiagonal first."""
    return [conj(b, b.Roll(below, -1, -1)), conj(b, main), conj(b, b.Roll(above, 1, -1))]


def _products(b: Any, g: Any, x: Any) -> list[Callable[[], Any]]:
    """Functions that make three diagonals of the matrices g·xᴴ, as vectors: the superdiagonal first."""

    @functools.cache
    def rows() -> tuple[Any, Any]:
        """The number of rows, and the number of each."""
        m = b.StridedSlice(b.Shape(x), [-2], [-1], [1], shrink_axis_mask=1)
        return m, b.Range(0, m, 1)

    def along(by: int) -> Any:
        d = b.Sum(b.Mul(g, conj(b, b.Roll(x, by, -2) if by else x)), [-1], keep_dims=False)
        if by == 0:
            return d
        m, i = rows()
        return b.Mul(d, b.Cast(b.Less(i, b.Sub(m, 1)) if by < 0 else b.Greater(i, 0), DstT=d.dtype.base))

    return [functools.partial(along, by) for by in (-1, 0, 1)]


def _multiply_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    by_diagonals = [then(d, lambda d: b.ExpandDims(d, -2)) for d in _products(b, dy, n.rhs)]
    return [*by_diagonals, lambda: b.TridiagonalMatMul(*_adjoint(b, n.superdiag, n.maindiag, n.subdiag), dy)]


def _matrices(above: np.ndarray, main: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The matrices written out."""
    m = main.shape[-1]
    out = np.zeros((*main.shape, m), main.dtype)
    for i in range(m):
        out[..., i, i] = main[..., i]
        if i:
            out[..., i, i - 1], out[..., i - 1, i] = below[..., i], above[..., i - 1]
    return out


def _multiply_oracle(above: np.ndarray, main: np.ndarray, below: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _matrices(*(d[..., 0, :] for d in (above, main, below))) @ x


def _multiply_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(*(draw(rng, dtype, (*s, 1, m)) for _ in range(3)), draw(rng, dtype, (*s, m, k)))
        for s, m, k in (((2,), 3, 2), ((), 1, 2), ((), 0, 2))
    ]


# *** Solutions ***


def _eliminate(xp: Any, diagonals: Any, b: Any, pivoting: bool, perturb: bool) -> Any:
    """Gauss's elimination, for all the matrices of the stack at once.

    Args:
      pivoting: rows are swapped where the next one has the larger element.
      perturb: pivots that are next to nothing become a little larger; else there is no solution (NaN) if one is 0.
    """
    n = b.shape[-2]
    above, main, below = (diagonals[..., i, :] for i in range(3))
    least = 0
    if perturb:
        least = xp.finfo(b.dtype).eps * xp.max(xp.abs(diagonals), axis=(-2, -1))
    real = xp.real if is_complex(b, xp) else lambda d: d
    nothing = xp.zeros(b.shape[:-2], dtype=b.dtype, device=b.device)
    rows: list[tuple[Any, ...]] = []  # of the triangular matrix: three elements, and what is on the right
    row = (main[..., 0], above[..., 0] if n > 1 else nothing, nothing, b[..., 0, :])
    failed = xp.zeros(b.shape[:-2], dtype=xp.bool, device=b.device)

    def pivot_of(d: Any) -> Any:
        nonlocal failed
        if perturb:
            d = xp.where(xp.abs(d) <= least, xp.where(real(d) >= 0, least, -least), d)
        failed = failed | (d == 0)
        return d

    for i in range(1, n):
        below_it = (below[..., i], main[..., i], above[..., i] if i + 1 < n else nothing, b[..., i, :])
        if pivoting:
            swap = xp.abs(below_it[0]) > xp.abs(row[0])
            masks = swap, swap, swap, swap[..., None]
            row, below_it = (
                tuple(xp.where(m, y, x) for m, x, y in zip(masks, row, below_it, strict=True)),
                tuple(xp.where(m, x, y) for m, x, y in zip(masks, row, below_it, strict=True)),
            )
        d = pivot_of(row[0])
        rows.append((d, *row[1:]))
        f = below_it[0] / d
        row = (
            below_it[1] - f * row[1],
            below_it[2] - f * row[2],
            nothing,
            below_it[3] - f[..., None] * row[3],
        )
    rows.append((pivot_of(row[0]), *row[1:]))
    out = xp.empty_like(b)
    one = two = xp.zeros_like(b[..., 0, :])  # the solutions after this one
    for i in reversed(range(n)):
        d, e, f, right = rows[i]
        out[..., i, :] = (right - e[..., None] * one - f[..., None] * two) / d[..., None]
        one, two = out[..., i, :], one
    if perturb or (is_near(failed) and not some(failed, xp)):
        return out
    return xp.where(failed[..., None, None], math.nan, out)


def _solve_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    pivoting, perturb = attrs["partial_pivoting"], attrs["perturb_singular"]

    def kernel(diagonals: Any, b: Any) -> Any:
        if perturb and not pivoting:
            raise InvalidArgumentError("Setting perturb_singular requires partial_pivoting.")
        check_matrices(diagonals, b)
        if diagonals.shape[-2] != 3:
            raise InvalidArgumentError(f"Expected diagonals of shape [...,3,m], got {show(diagonals.shape)}")
        if diagonals.shape[-1] != b.shape[-2]:
            raise InvalidArgumentError(
                f"The diagonals {show(diagonals.shape)} and right-hand sides {show(b.shape)} differ in size"
            )
        return _eliminate(xp, diagonals, b, pivoting, perturb) if 0 not in b.shape else xp.zeros_like(b)

    return kernel


def _solve_shape(c: Inference) -> Sequence[Shape]:
    d, b = (with_rank_at_least(s, 2) for s in c.shapes)
    if d is not None:
        merge_dim(d[-2], 3)
    if d is None or b is None:
        return [b]
    batch = merge(d[:-2], b[:-2])
    return [None if batch is None else (*batch, merge_dim(d[-1], b[-2]), b[-1])]


def _solve_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    three = b.Unpack(n.diagonals, num=3, axis=-2)
    by_rhs = b.make(n.op.type, [b.Pack(_adjoint(b, *three), axis=-2), dy], dict(n.attrs))
    return [lambda: b.Neg(b.Pack([d() for d in _products(b, by_rhs, n.output)], axis=-2)), by_rhs]


def _solve_oracle(diagonals: np.ndarray, b: np.ndarray, partial_pivoting: bool) -> np.ndarray:
    whole = _matrices(*(diagonals[..., i, :] for i in range(3)))
    out: np.ndarray = np.linalg.solve(whole.astype(np.complex128), b)
    return (out if b.dtype.kind == "c" else out.real).astype(b.dtype)


def _solve_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for s, m, k, pivoting in (((), 4, 2, True), ((2,), 3, 1, False), ((), 1, 1, True)):
        d = draw(rng, dtype, (*s, 3, m), -1, 1)
        d[..., 0 if pivoting and m > 2 else 1, :] += 3  # with pivots: above, so that rows are swapped
        out.append(case(d, draw(rng, dtype, (*s, m, k)), partial_pivoting=pivoting))
    return out


op(
    "TridiagonalMatMul",
    "superdiag: T, maindiag: T, subdiag: T, rhs: T",
    "output: T",
    _TYPES,
    shape=_multiply_shape,
    kernel=_multiply,
    xp=True,
    grad=_multiply_grad,
    batch=in_step,
    facts=Facts(cost=flops_per_input(30)),
    oracle=_multiply_oracle,
    sample=small_for(_FULL, _multiply_samples),
    doc="Products of tridiagonal matrices, given by their diagonals, with others.",
)
op(
    "TridiagonalSolve",
    "diagonals: T, rhs: T",
    "output: T",
    {"partial_pivoting": True, "perturb_singular": False, **_TYPES},
    shape=_solve_shape,
    kernel=_solve_kernel,
    xp=True,
    grad=_solve_grad,
    batch=in_step,
    facts=Facts(cost=flops_per_input(100)),
    oracle=_solve_oracle,
    sample=small_for(_FULL, _solve_samples),
    doc="Solutions of systems of linear equations with tridiagonal matrices, NaN where there is none.",
)
