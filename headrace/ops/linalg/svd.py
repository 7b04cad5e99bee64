"""Svd: singular values and vectors of matrices, U·diag(s)·Vᴴ, and its Batch name.

Source: TensorFlow's ops of the same names; the gradient is that of Wan and Zhang, Automatic differentiation for complex
valued SVD (2019). In each column of V, the first element that is at least half as large as the largest is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex128, float16, float32, float64
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import in_step
from headrace.opkit.namespaces import converter, dtype_in
from headrace.ops.linalg.matrices import (
    adjoint,
    adjoint_of,
    check_matrices,
    columns,
    differences,
    if_finite,
    least,
    matrix_cost,
    mul,
    orthonormal,
    phases,
    real_part,
    safe_reciprocal,
    scale_columns,
    scale_rows,
    single_or_more,
    small_for,
)
from headrace.shapes import Shape, with_rank_at_least

_NUMBERS = frozenset({float32, float64}) | COMPLEX


def _shape(c: Inference) -> Sequence[Shape]:
    x = with_rank_at_least(c.shapes[0], 2)
    batch = None if x is None else x[:-2]
    m, n = (None, None) if x is None else x[-2:]
    k = least(m, n)
    s: Shape = None if batch is None else (*batch, k)
    if not c.attrs["compute_uv"]:
        return [s, (0,), (0,)]
    if batch is None:
        return [None, None, None]
    full = c.attrs["full_matrices"]
    return [s, (*batch, m, m if full else k), (*batch, n, n if full else k)]


def _turned(u: Any, v: Any, xp: Any = np) -> tuple[Any, Any]:
    """`u` and `v` with normalized phases.

    The columns of a pair are multiplied by the same factor; columns without a partner have their own.
    """
    by_v, by_u = phases(v, xp), phases(u, xp)
    k = min(by_u.shape[-1], by_v.shape[-1])
    by_u[..., :k] = by_v[..., :k]
    return u * by_u, v * by_v


def _kernel(xp: Any, attrs: Any) -> Any:
    t, full, vectors = attrs["T"], attrs["full_matrices"], attrs["compute_uv"]
    widen, back = converter(xp, single_or_more(t)), converter(xp, t)

    def decompose(x: Any) -> tuple[Any, ...]:
        if not vectors:
            return (back(xp.linalg.svdvals(x)),)
        u, s, vh = xp.linalg.svd(x, full_matrices=full)
        u, v = _turned(u, adjoint_of(vh, xp), xp)
        return back(s), back(u), back(v)

    def kernel(x: Any) -> Any:
        check_matrices(x)
        found = if_finite(decompose, widen(x), xp)
        if vectors:
            return found
        nothing = xp.zeros((0,), dtype=dtype_in(xp, t), device=x.device)
        return *found, nothing, nothing

    return kernel


def _grad(b: Any, n: Any, by_s: Any, by_u: Any, by_v: Any) -> list[Any]:
    """Gradient rule of Svd.

    With X = Uᴴ·dU, Y = Vᴴ·dV, S = diag(s) and F[i, j] = 1 / (s[j]² - s[i]²), the gradient is

    U·(diag(ds) + F∘(X - Xᴴ)·S + S·F∘(Y - Yᴴ) - S⁻¹·Im(diag(Y))·i)·Vᴴ + (dU - U·X)·S⁻¹·Vᴴ + U·S⁻¹·(dV - V·Y)ᴴ.
    """
    by_s = real_part(b, by_s)
    if not n.attrs["compute_uv"]:
        _, u, v = b.Svd(n.input)
        return [mul(b, scale_columns(b, u, by_s), v, adj_y=True)]
    s, u, v = n.s, n.u, n.v
    if n.attrs["full_matrices"]:
        k = b.StridedSlice(b.Shape(s), [-1], [0], [1], shrink_axis_mask=1, end_mask=1)
        (u, by_u), (v, by_v) = (_thin(b, x, dx, k) for x, dx in ((u, by_u), (v, by_v)))
    f, inverse = differences(b, b.Square(s)), safe_reciprocal(b, s)
    x, y = mul(b, u, by_u, adj_x=True), mul(b, v, by_v, adj_x=True)
    middle = b.Add(
        scale_columns(b, b.Mul(f, b.Sub(x, adjoint(b, x))), s), scale_rows(b, s, b.Mul(f, b.Sub(y, adjoint(b, y))))
    )
    diagonal = by_s
    if n.attrs["T"] in COMPLEX:
        turns = b.MatrixDiagPart(y)
        diagonal = b.Sub(by_s, b.Mul(inverse, b.Sub(turns, real_part(b, turns))))
    left = b.Add(mul(b, u, b.MatrixSetDiag(middle, diagonal)), scale_columns(b, b.Sub(by_u, mul(b, u, x)), inverse))
    right = scale_columns(b, b.Sub(by_v, mul(b, v, y)), inverse)
    return [b.Add(mul(b, left, v, adj_y=True), mul(b, u, right, adj_y=True))]


def _thin(b: Any, x: Any, dx: Any, k: Any) -> tuple[Any, Any]:
    """First `k` columns of `x`, and the gradient by them.

    The other columns R span the orthogonal complement of the first ones Q, so they depend on them: dR = -Q·dQᴴ·R.
    """
    first, others = columns(b, x, None, k), columns(b, x, k, None)
    turned = mul(b, others, mul(b, columns(b, dx, k, None), first, adj_x=True))
    return first, b.Sub(columns(b, dx, None, k), turned)


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    """Products of the factors that are to be found."""
    out = []
    for m, n, batch, full in ((3, 2, 2, False), (1, 2, 1, True), (0, 2, 2, False)):
        k = min(m, n)
        s = np.arange(k, 0, -1) * 1.5 - rng.uniform(0, 0.5, (batch, k))
        u, v = orthonormal(rng, dtype, (batch, m, k)), orthonormal(rng, dtype, (batch, n, k))
        if dtype.is_complex:
            # Its zeros keep the tests from moving single elements: as the vectors turn with their phases, only what
            # does not depend on those has a gradient.
            u[-1], v[-1] = np.eye(m, k), np.eye(n, k)
        x = (u * s[..., None, :]) @ np.conj(np.swapaxes(v, -1, -2))
        if full and m < n:  # the direction that is orthogonal to one of two elements
            v = np.concatenate([v, np.conj(v[..., ::-1, :]) * [[-1], [1]]], axis=-1)
        if k:
            u, v = _turned(u, v)
        want = tuple(a.astype(dtype.numpy) for a in (s, u, v))
        out.append(case(x.astype(dtype.numpy), full_matrices=full, want=want))
    return out


for _type, _types in (("Svd", _NUMBERS | {float16}), ("BatchSvd", _NUMBERS)):
    op(
        _type,
        "input: T",
        "s: T, u: T, v: T",
        {"compute_uv": True, "full_matrices": False, "T": _types},
        shape=_shape,
        kernel=_kernel,
        xp=True,
        grad=_grad,
        batch=in_step,
        facts=Facts(cost=matrix_cost(10), blas=True),
        sample=small_for(frozenset({float64, complex128}) if _type == "Svd" else frozenset(), _samples),
        doc="The singular values of matrices in descending order, and the singular vectors as columns.",
        differs=(
            "TensorFlow's singular vectors can differ by the sign (complex ones by a factor of absolute value 1). "
            "Without compute_uv they are empty vectors; TensorFlow returns undefined scalars."
        ),
    )
