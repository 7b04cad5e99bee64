"""Eigenvalues and eigenvectors: SelfAdjointEigV2, Eig, and the old names of the first.

Source: TensorFlow's ops of the same names; the gradients are those of Giles, An extended collection of matrix
derivative results (2008), and of Boeddeker et al., On the computation of complex-valued gradients (2017). Only the
lower half of a self-adjoint matrix is read, and only this half gets a gradient. An eigenvector has the length 1, and
the first of its elements that is at least half as large as the largest is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex64, complex128, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit.batch_rules import in_step
from headrace.opkit.elementwise import conj
from headrace.opkit.namespaces import converter, dtype_in
from headrace.ops.linalg.matrices import (
    adjoint,
    adjoint_of,
    are_finite,
    check_square,
    differences,
    drawn,
    every,
    halved_lower,
    matrix_cost,
    mul,
    orthonormal,
    phases,
    real_part,
    scale_columns,
    single_or_more,
    small_for,
    square,
)
from headrace.shapes import Dim, Shape

_OLD = frozenset({float32, float64})
_NUMBERS = _OLD | COMPLEX | {float16}
_VECTORS = (
    "TensorFlow's eigenvectors can differ by the sign (complex ones by a factor of absolute value 1). Without "
    "compute_v they are an empty vector; TensorFlow returns an undefined scalar."
)


def _shape(c: Inference) -> Sequence[Shape]:
    x = square(c.shapes[0])
    if not c.attrs["compute_v"]:
        return [None if x is None else x[:-1], (0,)]
    return [None if x is None else x[:-1], x]


# *** Self-adjoint matrices ***


def _self_adjoint(xp: Any, t: DType, vectors: bool) -> Any:
    widen, back = converter(xp, single_or_more(t)), converter(xp, t)

    def decompose(x: Any) -> tuple[Any, Any]:
        check_square(x)
        x = widen(x)
        lower = xp.tril(x)
        if not every(are_finite(lower, xp), xp):
            raise InvalidArgumentError(
                "Self-adjoint eigen decomposition was not successful. The input might not be valid."
            )
        if xp is not np:  # the standard leaves open which half is read
            x = lower + adjoint_of(xp.tril(x, k=-1), xp)
        if not vectors:
            return back(xp.linalg.eigvalsh(x)), xp.zeros((0,), dtype=dtype_in(xp, t), device=x.device)
        e, v = xp.linalg.eigh(x)
        return back(e), back(v * phases(v, xp))

    return decompose


def _self_adjoint_kernel(xp: Any, attrs: Any) -> Any:
    return _self_adjoint(xp, attrs["T"], attrs["compute_v"])


def _joined_kernel(xp: Any, attrs: Any) -> Any:
    decompose = _self_adjoint(xp, attrs["T"], True)

    def kernel(x: Any) -> Any:
        e, v = decompose(x)
        return xp.concat([e[..., None, :], v], axis=-2)

    return kernel


def _joined_shape(c: Inference) -> Sequence[Shape]:
    x = square(c.shapes[0])
    if x is None:
        return [None]
    n: Dim = x[-1]
    return [(*x[:-2], None if n is None else n + 1, n)]


def _pulled_back(b: Any, e: Any, v: Any, by_e: Any, by_v: Any) -> Any:
    """V·(diag(de) + F∘(Vᴴ·dV))·Vᴴ, of which both halves go into the lower one."""
    middle = b.Mul(differences(b, e), mul(b, v, by_v, adj_x=True))
    whole = mul(b, mul(b, v, b.MatrixSetDiag(middle, by_e)), v, adj_y=True)
    return halved_lower(b, b.Add(whole, adjoint(b, whole)))


def _self_adjoint_grad(b: Any, n: Any, by_e: Any, by_v: Any) -> list[Any]:
    if n.attrs["compute_v"]:
        return [_pulled_back(b, n.e, n.v, by_e, by_v)]
    _, v = b.SelfAdjointEigV2(n.input)
    whole = mul(b, scale_columns(b, v, by_e), v, adj_y=True)
    return [halved_lower(b, b.Add(whole, adjoint(b, whole)))]


def _joined_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    def row(x: Any) -> Any:
        masks = {"ellipsis_mask": 1, "shrink_axis_mask": 2, "begin_mask": 4, "end_mask": 4}
        return b.StridedSlice(x, [0, 0, 0], [0, 1, 0], [1, 1, 1], **masks)

    def rows(x: Any) -> Any:
        return b.StridedSlice(x, [0, 1, 0], [0, 0, 0], [1, 1, 1], ellipsis_mask=1, begin_mask=4, end_mask=6)

    y = n.output
    return [_pulled_back(b, row(y), rows(y), row(dy), rows(dy))]


# *** Any square matrices ***


def _eig_kernel(attrs: Any) -> Any:
    t, vectors = attrs["Tout"].numpy, attrs["compute_v"]

    def kernel(x: Any) -> Any:
        check_square(x)
        if not are_finite(x).all():
            raise InvalidArgumentError("Eigen decomposition was not successful. The input might not be valid.")
        if not vectors:
            return np.linalg.eigvals(x).astype(t), np.zeros((0,), t)
        e, v = np.linalg.eig(x)
        return e.astype(t), (v * phases(v)).astype(t)

    return kernel


def _eig_grad(b: Any, n: Any, by_e: Any, by_v: Any) -> list[Any]:
    """V⁻ᴴ·(diag(de) + conj(F)∘(Vᴴ·dV - Vᴴ·V·diag(Re(Vᴴ·dV))))·Vᴴ.

    The component that would change the length of an eigenvector is removed.
    """
    if n.attrs["compute_v"]:
        e, v = n.e, n.v
        along = mul(b, v, by_v, adj_x=True)
        kept = scale_columns(b, mul(b, v, v, adj_x=True), real_part(b, b.MatrixDiagPart(along)))
        middle = b.MatrixSetDiag(b.Mul(conj(b, differences(b, e)), b.Sub(along, kept)), by_e)
        whole = mul(b, middle, v, adj_y=True)
    else:
        _, v = b.Eig(n.input, Tout=n.attrs["Tout"])
        whole = adjoint(b, scale_columns(b, v, conj(b, by_e)))
    by_input = b.MatrixSolve(v, whole, adjoint=True)
    return [by_input if n.attrs["T"] in COMPLEX else b.Real(by_input, Tout=n.attrs["T"])]


# *** Tests: matrices made of the vectors and values that are to be found ***


def _of(values: Any, v: np.ndarray) -> np.ndarray:
    out: np.ndarray = (v * values) @ np.conj(np.swapaxes(v, -1, -2))
    return out


def _self_adjoint_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for s in ((3, 3), (2, 2, 2), (0, 2, 2), (2, 0, 0)):
        values = np.arange(s[-1]) * 1.5 - 1 + rng.uniform(0, 0.5, s[:-1])
        v = orthonormal(rng, dtype, s)
        v = v * phases(v)
        x = _of(values[..., None, :], v)
        # The upper half is not read. A complex matrix gets a 0 there, for no test here may move its elements: as the
        # vectors turn with their phases, only what does not depend on those has a gradient.
        x = np.tril(x) + (np.triu(np.ones(s), 1) if not dtype.is_complex else 0)
        out.append(case(x.astype(dtype.numpy), want=(values.astype(dtype.numpy), v.astype(dtype.numpy))))
    return out


def _joined_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    found = _self_adjoint_samples(rng, dtype)
    return [case(*c.inputs, want=np.concatenate([c.want[0][..., None, :], c.want[1]], axis=-2)) for c in found[:2]]


def _eig_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    """Triangular matrices, whose eigenvalues are known, in this order; each vector by substitution."""
    out = []
    tout = complex64 if dtype in (float32, complex64) else complex128
    for s in ((3, 3), (2, 2, 2), (0, 2, 2), (2, 0, 0)):
        n = s[-1]
        x = np.triu(drawn(rng, dtype, s), 1) + np.eye(n) * (np.arange(n) - 1.5)
        v = np.zeros(s, complex)
        for i in range(n):
            v[..., i, i] = 1
            for j in reversed(range(i)):
                rest = (x[..., j, j + 1 :] * v[..., j + 1 :, i]).sum(-1)
                v[..., j, i] = rest / (x[..., i, i] - x[..., j, j])
        v /= np.sqrt((abs(v) ** 2).sum(-2, keepdims=True))
        values = np.diagonal(x, axis1=-2, axis2=-1)
        want = (values.astype(tout.numpy), (v * phases(v)).astype(tout.numpy))
        out.append(case(x.astype(dtype.numpy), Tout=tout, want=want))
    return out


_FULL = frozenset({float64, complex128})
_FACTS = Facts(cost=matrix_cost(10), blas=True)

for _type, _types in (("SelfAdjointEigV2", _NUMBERS), ("BatchSelfAdjointEigV2", _OLD)):
    op(
        _type,
        "input: T",
        "e: T, v: T",
        {"compute_v": True, "T": _types},
        shape=_shape,
        kernel=_self_adjoint_kernel,
        xp=True,
        grad=_self_adjoint_grad,
        batch=in_step,
        facts=_FACTS,
        sample=small_for(_FULL if _type == "SelfAdjointEigV2" else frozenset(), _self_adjoint_samples),
        doc="The eigenvalues of self-adjoint matrices in ascending order, and their eigenvectors as columns.",
        differs=_VECTORS,
    )

for _type, _types in (("SelfAdjointEig", _OLD | {float16}), ("BatchSelfAdjointEig", _OLD)):
    op(
        _type,
        "input: T",
        "output: T",
        {"T": _types},
        shape=_joined_shape,
        kernel=_joined_kernel,
        xp=True,
        grad=_joined_grad,
        batch=in_step,
        facts=_FACTS,
        sample=small_for(frozenset(), _joined_samples),
        doc="The eigenvalues of self-adjoint matrices as a row, and below it the eigenvectors as columns.",
    )

op(
    "Eig",
    "input: T",
    "e: Tout, v: Tout",
    {"compute_v": True, "T": _OLD | COMPLEX, "Tout": COMPLEX},
    shape=_shape,
    kernel=_eig_kernel,
    xp=False,  # the standard has no eigenvalues of matrices that are not self-adjoint
    grad=_eig_grad,
    batch=in_step,
    facts=Facts(cost=matrix_cost(25), blas=True),
    sample=small_for(_FULL, _eig_samples),
    doc="The eigenvalues of square matrices, in no order, and their eigenvectors as columns.",
    differs=_VECTORS + " The order of the eigenvalues can differ.",
)
