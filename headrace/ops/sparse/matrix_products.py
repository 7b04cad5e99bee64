"""Sums, products and the softmax of matrices in compressed rows.

Source: TensorFlow's SparseMatrixAdd, SparseMatrixMul, SparseMatrixMatMul, SparseMatrixSparseMatMul, SparseMatrixSoftmax
and SparseMatrixSoftmaxGrad. The gradient with respect to a matrix has exactly the elements of the matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import float32, float64, variant
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, op
from headrace.opkit.arrays import check_size
from headrace.opkit.elementwise import conj
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.shape_rules import unbroadcast
from headrace.ops.sparse.compressed import TYPES, CSRMatrix, check_alike, check_shape, matrix, rows_of, turned, union
from headrace.shapes import Shape

_FACTS = Facts(dynamic_shape=True, cost=lambda ins, outs: 1e6)  # nothing is known of how many elements there are


def _held(c: Inference, i: int) -> Shape:
    known = c.handle(i)
    return None if known is None else known[1]


def _like_first(c: Inference) -> Sequence[Shape]:
    known = c.handle(0)
    if known is not None:
        c.set_handle(0, *known)
    return [()]


def _pruned(b: Any, dense: Any, like: Any, t: Any) -> Any:
    """The elements of a dense gradient that the matrix `like` has."""
    indices, _, shape = b.CSRSparseMatrixToSparseTensor(like, type=t)
    return b.SparseTensorToCSRSparseMatrix(indices, b.GatherNd(dense, indices), shape)


def _dense(b: Any, x: Any, t: Any) -> Any:
    return b.CSRSparseMatrixToDense(x, type=t)


# *** SparseMatrixAdd, SparseMatrixMul ***


def _add_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any, y: Any, alpha: Any, beta: Any) -> CSRMatrix:
        a, b = matrix(x, attrs["T"]), matrix(y, attrs["T"])
        if a.shape != b.shape:
            check_alike(a, b)
        for name, scale in (("alpha", alpha), ("beta", beta)):
            if scale.ndim:
                raise InvalidArgumentError(f"{name} must be a scalar, got shape {shapes.show(scale.shape)}")
        return a.mapped(lambda p, q: union(p, q, alpha, beta), a.shape, b)

    return kernel


def _add_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    t = n.attrs["T"]
    whole = _dense(b, dy, t)
    every = functools.cache(lambda: b.Range(0, b.Rank(whole), 1))

    def by_matrix(x: Any, scale: Any) -> Any:
        return b.SparseMatrixMul(_pruned(b, whole, x, t), conj(b, scale))

    def by_scale(x: Any) -> Any:
        return b.Sum(b.Mul(whole, conj(b, _dense(b, x, t))), every(), keep_dims=False)

    return [
        lambda: by_matrix(n.a, n.alpha),
        lambda: by_matrix(n.b, n.beta),
        lambda: by_scale(n.a),
        lambda: by_scale(n.b),
    ]


op(
    "SparseMatrixAdd",
    "a: variant, b: variant, alpha: T, beta: T",
    "c: variant",
    {"T": TYPES},
    shape=_like_first,
    kernel=_add_kernel,
    xp=False,
    grad=_add_grad,
    facts=_FACTS,
    doc="The sum `alpha * a + beta * b` of two matrices.",
    differs="TensorFlow has a kernel for GPUs only, and no gradients by alpha and beta.",
)


def _mul_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(value: Any, b: Any) -> CSRMatrix:
        a = matrix(value, attrs["T"])
        missing = len(a.shape) - b.ndim
        if missing < 0 or any(x not in (1, d) for x, d in zip(b.shape, a.shape[missing:], strict=True)):
            raise InvalidArgumentError(
                f"b must be broadcastable to the shape of a: {shapes.show(b.shape)} vs. {shapes.show(a.shape)}"
            )
        factors = np.broadcast_to(b, a.shape)
        blocks = []
        for i, block in enumerate(a.blocks):
            out = block.copy()
            out.data = block.data * (factors[i] if a.is_batch else factors)[rows_of(block), block.indices]
            blocks.append(out)
        return CSRMatrix(a.dtype, a.shape, tuple(blocks))

    return kernel


def _mul_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    t = n.attrs["T"]

    def by_b() -> Any:
        whole = b.Mul(_dense(b, dy, t), conj(b, _dense(b, n.a, t)))
        return unbroadcast(b, n.b, whole, whole, None)[0]

    return [lambda: b.SparseMatrixMul(dy, conj(b, n.b)), by_b]


op(
    "SparseMatrixMul",
    "a: variant, b: T",
    "output: variant",
    {"T": TYPES},
    shape=_like_first,
    kernel=_mul_kernel,
    xp=False,
    grad=_mul_grad,
    jvp=multilinear("a", "b"),
    facts=_FACTS,
    doc="The elements of a matrix, each times the one of a dense tensor that is broadcast to its shape.",
    differs="TensorFlow has it on GPUs only, for scalars and one factor for each matrix of a batch, without gradients.",
)

# *** Products of matrices ***


def _check_flags(attrs: Mapping[str, Any]) -> None:
    for side in "ab":
        if attrs[f"adjoint_{side}"] and attrs[f"transpose_{side}"]:
            raise InvalidArgumentError(f"Only one of adjoint_{side} and transpose_{side} may be true.")


def _check_products(a: tuple[int, ...], b: tuple[int, ...], transpose_a: bool, transpose_b: bool) -> tuple[int, ...]:
    """The shape of the product of (batches of) matrices."""
    if len(a) != len(b):
        raise InvalidArgumentError(f"Ranks of a and b must match, saw: {len(a)} vs. {len(b)}.")
    if a[:-2] != b[:-2]:
        raise InvalidArgumentError(f"Batch sizes of A and B do not agree: {a[0]} vs. {b[0]}")
    rows, inner = a[-2:][::-1] if transpose_a else a[-2:]
    same, columns = b[-2:][::-1] if transpose_b else b[-2:]
    if inner != same:
        raise InvalidArgumentError(
            f"Inner product dimensions of A and B do not agree. Shapes are: {shapes.show(a)} vs. {shapes.show(b)}"
        )
    return *a[:-2], rows, columns


def _matmul_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]
    transpose_a, transpose_b = (attrs[f"transpose_{s}"] or attrs[f"adjoint_{s}"] for s in "ab")

    def kernel(value: Any, b: Any) -> Any:
        _check_flags(attrs)
        a = matrix(value)
        if a.dtype is not dtype:
            raise InvalidArgumentError(
                f"Input types don't match.  a.dtype == {a.dtype.name} vs. b.dtype == {dtype.name}"
            )
        shape = _check_products(a.shape, b.shape, transpose_a, transpose_b)
        check_size(shape, dtype)
        out = np.empty(shape, dtype.numpy)
        for i, block in enumerate(a.blocks):
            x = turned(block, attrs["adjoint_a"]) if transpose_a else block
            y = b[i] if a.is_batch else b
            y = y.swapaxes(-1, -2) if transpose_b else y
            out[i if a.is_batch else ...] = x @ (np.conj(y) if attrs["adjoint_b"] else y)
        out = out.swapaxes(-1, -2) if attrs["transpose_output"] else out
        return np.conj(out) if attrs["conjugate_output"] else out

    return kernel


def _matmul_shape(c: Inference) -> Sequence[Shape]:
    _check_flags(c.attrs)
    a, b = _held(c, 0), shapes.with_rank_at_most(shapes.with_rank_at_least(c.shapes[1], 2), 3)
    if a is None or b is None or len(a) != len(b):
        return [None]
    rows = a[-1] if c.attrs["transpose_a"] or c.attrs["adjoint_a"] else a[-2]
    columns = b[-2] if c.attrs["transpose_b"] or c.attrs["adjoint_b"] else b[-1]
    return [(*a[:-2], *((columns, rows) if c.attrs["transpose_output"] else (rows, columns)))]


def _turned(b: Any, x: Any, transpose: bool, adjoint: bool, t: Any) -> Any:
    """Operand `x` of a product, transposed or conjugated as the flags ask.

    It is a matrix in a variant or a dense one.
    """
    if not (transpose or adjoint):
        return x
    if x.dtype is variant:
        return b.SparseMatrixTranspose(x, conjugate=adjoint, type=t)
    rank = b.Rank(x)
    order = b.ConcatV2([b.Range(0, b.Sub(rank, 2), 1), b.Pack([b.Sub(rank, 1), b.Sub(rank, 2)])], 0)
    return (b.ConjugateTranspose if adjoint and t.is_complex else b.Transpose)(x, order)


def _operand(n: Any, side: str) -> tuple[bool, bool]:
    return n.attrs[f"transpose_{side}"], n.attrs[f"adjoint_{side}"]


def _matmul_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    t = n.attrs["T"]
    dy = conj(b, dy) if n.attrs["conjugate_output"] else dy
    dy = _turned(b, dy, n.attrs["transpose_output"], False, t)

    def by_a() -> Any:
        y = _turned(b, n.b, *_operand(n, "b"), t)
        dx = b.BatchMatMulV2(dy, _turned(b, y, False, True, t))
        return _pruned(b, _turned(b, dx, *_operand(n, "a"), t), n.a, t)

    def by_b() -> Any:
        x = _turned(b, n.a, *_operand(n, "a"), t)
        return _turned(b, b.SparseMatrixMatMul(_turned(b, x, False, True, t), dy), *_operand(n, "b"), t)

    return [by_a, by_b]


_FLAGS = {"transpose_a": False, "transpose_b": False, "adjoint_a": False, "adjoint_b": False}
op(
    "SparseMatrixMatMul",
    "a: variant, b: T",
    "output: T",
    {"T": TYPES, **_FLAGS, "transpose_output": False, "conjugate_output": False},
    shape=_matmul_shape,
    kernel=_matmul_kernel,
    xp=False,
    grad=_matmul_grad,
    facts=_FACTS,
    doc="The product of a matrix in compressed rows and a dense one, each or the result transposed, if asked.",
)


def _sparse_matmul_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["type"]
    transpose_a, transpose_b = (attrs[f"transpose_{s}"] or attrs[f"adjoint_{s}"] for s in "ab")

    def kernel(x: Any, y: Any) -> CSRMatrix:
        _check_flags(attrs)
        a, b = matrix(x, dtype), matrix(y, dtype)
        shape = _check_products(a.shape, b.shape, transpose_a, transpose_b)
        check_shape(shape, dtype)

        def product(p: Any, q: Any) -> Any:
            p = turned(p, attrs["adjoint_a"]) if transpose_a else p
            q = turned(q, attrs["adjoint_b"]) if transpose_b else q
            out = p @ q
            out.sort_indices()
            return out

        return a.mapped(product, shape, b)

    return kernel


def _sparse_matmul_shape(c: Inference) -> Sequence[Shape]:
    _check_flags(c.attrs)
    a, b = _held(c, 0), _held(c, 1)
    shape: Shape = None
    if a is not None and b is not None:
        rows = a[-1] if c.attrs["transpose_a"] or c.attrs["adjoint_a"] else a[-2]
        columns = b[-2] if c.attrs["transpose_b"] or c.attrs["adjoint_b"] else b[-1]
        shape = (*a[:-2], rows, columns)
    c.set_handle(0, c.attrs["type"], shape)
    return [()]


def _sparse_matmul_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    t = n.attrs["type"]

    def by(side: str, operand: Any, d: Any) -> Any:
        return _pruned(b, _dense(b, _turned(b, d, *_operand(n, side), t), t), operand, t)

    def by_a() -> Any:
        y = _turned(b, n.b, *_operand(n, "b"), t)
        return by("a", n.a, b.SparseMatrixSparseMatMul(dy, y, adjoint_b=True, type=t))

    def by_b() -> Any:
        x = _turned(b, n.a, *_operand(n, "a"), t)
        return by("b", n.b, b.SparseMatrixSparseMatMul(x, dy, adjoint_a=True, type=t))

    return [by_a, by_b]


op(
    "SparseMatrixSparseMatMul",
    "a: variant, b: variant",
    "c: variant",
    {"type": TYPES, **_FLAGS},
    shape=_sparse_matmul_shape,
    kernel=_sparse_matmul_kernel,
    xp=False,
    grad=_sparse_matmul_grad,
    facts=_FACTS,
    doc="The product of two matrices in compressed rows, each of which may be transposed.",
)

# *** SparseMatrixSoftmax ***


def _by_row(f: Any, block: Any, values: np.ndarray) -> np.ndarray:
    """Reduces the values of each row of a block by the ufunc `f`.

    The result of a row is repeated for each of its elements.
    """
    filled = np.diff(block.indptr) > 0
    if not filled.any():
        return values
    rows = f.reduceat(values, block.indptr[:-1][filled])
    return np.repeat(rows, np.diff(block.indptr)[filled])


def _softmax_kernel(attrs: Mapping[str, Any]) -> Any:
    def softmax(block: Any) -> Any:
        out = block.copy()
        e = np.exp(block.data - _by_row(np.maximum, block, block.data))
        out.data = e / _by_row(np.add, block, e)
        return out

    def kernel(value: Any) -> CSRMatrix:
        m = matrix(value, attrs["type"])
        return m.mapped(softmax, m.shape)

    return kernel


def _softmax_grad_kernel(attrs: Mapping[str, Any]) -> Any:
    def backward(y: Any, dy: Any) -> Any:
        out = y.copy()
        d = np.asarray(dy[rows_of(y), y.indices]).reshape(-1) if y.nnz else y.data
        out.data = y.data * (d - _by_row(np.add, y, d * y.data))
        return out

    def kernel(y: Any, dy: Any) -> CSRMatrix:
        a, b = matrix(y, attrs["type"]), matrix(dy, attrs["type"])
        check_alike(a, b)
        return a.mapped(backward, a.shape, b)

    return kernel


def _softmax_second(b: Any, n: Any, d: Any) -> list[Any]:
    t = n.attrs["type"]

    def by_softmax() -> Any:
        y, dy, d_out = (_dense(b, x, t) for x in (n.softmax, n.grad_softmax, d))
        sums = [b.Sum(b.Mul(y, x), [-1], keep_dims=True) for x in (dy, d_out)]
        by_y = b.Sub(b.Mul(d_out, b.Sub(dy, sums[0])), b.Mul(dy, sums[1]))
        return _pruned(b, by_y, n.softmax, t)

    return [by_softmax, lambda: b.SparseMatrixSoftmaxGrad(n.softmax, d, type=t)]


op(
    "SparseMatrixSoftmax",
    "logits: variant",
    "softmax: variant",
    {"type": {float32, float64}},
    shape=_like_first,
    kernel=_softmax_kernel,
    xp=False,
    grad=lambda b, n, dy: [b.SparseMatrixSoftmaxGrad(n.softmax, dy, type=n.attrs["type"])],
    jvp=lambda b, n, dx: [b.SparseMatrixSoftmaxGrad(n.softmax, dx, type=n.attrs["type"])],
    facts=_FACTS,
    doc="The softmax over the elements of each row of a matrix.",
    differs="TensorFlow has a kernel for GPUs only.",
)
op(
    "SparseMatrixSoftmaxGrad",
    "softmax: variant, grad_softmax: variant",
    "gradient: variant",
    {"type": {float32, float64}},
    shape=_like_first,
    kernel=_softmax_grad_kernel,
    xp=False,
    grad=_softmax_second,
    facts=_FACTS,
    doc="The gradient of SparseMatrixSoftmax.",
    differs="TensorFlow has a kernel for GPUs only.",
)
