"""Products of sparse and dense matrices: SparseTensorDenseMatMul, and SparseMatMul of dense matrices with many zeros.

Source: TensorFlow's ops of the same names. The first uses SciPy's compressed rows; arrays of other namespaces than
numpy are multiplied element by element and summed by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import COMPLEX, INDEX, INTEGER, NUMERIC, DType, bfloat16, float32, float64, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op, type_attr
from headrace.opkit.arrays import check_size, zeros
from headrace.opkit.elementwise import conj
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.namespaces import converter, integers, is_near
from headrace.opkit.row_sums import first_true, row_sums
from headrace.opkit.testing.samples import draw
from headrace.opkit.window_arrays import size
from headrace.ops.sparse.coordinates import drawn, parts, widely
from headrace.shapes import Dim, Shape

# *** SparseTensorDenseMatMul ***


def _matmul_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype, adjoint_a, adjoint_b = attrs["T"], attrs["adjoint_a"], attrs["adjoint_b"]
    widen, narrow, to_places = widely(dtype, xp), converter(xp, dtype), converter(xp, int64)

    def kernel(indices: Any, values: Any, shape: Any, b: Any) -> Any:
        _check_operands(indices, values, shape, b)
        m, k = integers(shape)
        places = to_places(indices)
        rows, columns = places[:, 0], places[:, 1]
        if adjoint_a:
            m, k, rows, columns, values = k, m, columns, rows, xp.conj(values) if dtype in COMPLEX else values
        if adjoint_b:
            b = xp.conj(b.T) if dtype in COMPLEX else b.T
        if k != b.shape[0]:
            raise InvalidArgumentError(
                f"Cannot multiply A and B because inner dimension does not match: {k} vs. {b.shape[0]}.  Did you "
                f"forget a transpose?  Dimensions of A: [{m}, {k}).  Dimensions of B: {shapes.show(b.shape)}"
            )
        if not is_near(places):
            columns, values = xp.clip(columns, 0, max(k - 1, 0)), xp.where((columns >= 0) & (columns < k), values, 0)
        for what, limit, at in (("m", m, rows), ("k", k, columns)) if is_near(places) else ():
            i = first_true(xp, (at < 0) | (at >= limit))
            if i is not None:
                raise InvalidArgumentError(
                    f"{what} ({int(at[i])}) from index[{i},{int((what == 'k') != adjoint_a)}] out of bounds (>={limit})"
                )
        check_size((m, b.shape[1]), dtype)
        check_size((m + 1,), int64)
        if not values.shape[0] or not size(b):
            return zeros(xp, (m, b.shape[1]), dtype, b)
        if xp is not np:
            return narrow(row_sums(xp, xp.take(widen(b), columns, axis=0) * widen(values)[:, None], rows, m))
        from scipy import sparse

        a = sparse.csr_array((widen(values), (rows, columns)), shape=(m, k))
        return np.asarray(a @ widen(b)).astype(dtype.numpy)

    return kernel


def _check_operands(indices: Any, values: Any, shape: Any, b: Any) -> None:
    for name, x, rank in (("b", b, 2), ("a_shape", shape, 1), ("a_indices", indices, 2), ("a_values", values, 1)):
        if x.ndim != rank:
            raise InvalidArgumentError(
                f"Tensor '{name}' is not a {'matrix' if rank == 2 else 'vector'}: its shape is {shapes.show(x.shape)}"
            )
    if shape.shape[0] != 2:
        raise InvalidArgumentError(f"Tensor 'a_shape' must have 2 elements, not {shape.shape[0]}")
    if values.shape[0] != indices.shape[0]:
        raise InvalidArgumentError(
            f"Number of rows of a_indices does not match number of entries in a_values: {indices.shape[0]} vs. "
            f"{values.shape[0]}"
        )
    if indices.shape[1] != 2:
        raise InvalidArgumentError(
            f"Number of columns of a_indices does not match number of entries in a_shape: {indices.shape[1]} vs. 2"
        )
    if min(integers(shape)) < 0:
        raise InvalidArgumentError(f"Expected shape dimensions to be non-negative, got {min(integers(shape))}")


def _matmul_shape(c: Inference) -> Sequence[Shape]:
    parts(c, 0)
    shape, b = c.shape_value(2), shapes.with_rank(c.shapes[3], 2)
    a: tuple[Dim, ...] = (None, None) if shape is None else shapes.with_rank(shape, 2)
    rows, inner = a[::-1] if c.attrs["adjoint_a"] else a
    same, columns = b[::-1] if c.attrs["adjoint_b"] else b
    shapes.merge_dim(inner, same)
    return [(rows, columns)]


def _matmul_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    adjoint_a, adjoint_b = n.attrs["adjoint_a"], n.attrs["adjoint_b"]

    def by_values() -> Any:
        rows, columns = b.Unpack(n.a_indices, num=2, axis=1)
        if adjoint_a:
            rows, columns = columns, rows
        factors = b.GatherV2(n.b, columns, 1 if adjoint_b else 0)
        factors = b.Transpose(factors, [1, 0]) if adjoint_b else conj(b, factors)
        da = b.Sum(b.Mul(b.GatherV2(dy, rows, 0), factors), [1], keep_dims=False)
        return conj(b, da) if adjoint_a else da

    def by_dense() -> Any:
        db = b.SparseTensorDenseMatMul(n.a_indices, n.a_values, n.a_shape, dy, adjoint_a=not adjoint_a)
        return conj(b, b.Transpose(db, [1, 0])) if adjoint_b else db

    return [None, by_values, None, by_dense]


def _matmul_model(
    indices: np.ndarray,
    values: np.ndarray,
    shape: np.ndarray,
    b: np.ndarray,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> np.ndarray:
    wide = np.dtype(object if values.dtype.kind in "iu" else complex if values.dtype.kind == "c" else float)
    a = np.zeros(tuple(shape), wide)
    for (i, j), v in zip(indices.tolist(), values.astype(wide), strict=True):
        a[i, j] += v
    x, y = (np.conj(m.astype(wide)).T if t else m.astype(wide) for m, t in ((a, adjoint_a), (b, adjoint_b)))
    return np.asarray(x @ y).astype(values.dtype)


def _matmul_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype not in NUMERIC:
        return []
    cases = []
    for shape, n, columns, adjoint_a, adjoint_b in (
        ((2, 3), 4, 2, False, False),
        ((3, 2), 3, 2, True, False),
        ((2, 3), 4, 3, False, True),
        ((2, 2), 4, 1, True, True),
        ((3, 2), 0, 2, False, False),
    ):
        b_shape = (shape[0] if adjoint_a else shape[1], columns)
        low = 1 if dtype in INTEGER else -3
        indices, values, dims = drawn(rng, dtype, shape, n, low)
        b = draw(rng, dtype, b_shape[::-1] if adjoint_b else b_shape, low)
        cases.append(case(indices, values, dims, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b))
    first = cases[0]
    cases.append(case(np.repeat(first.inputs[0][:2].astype(np.int32), 2, 0), *first.inputs[1:]))
    return cases if dtype is float64 or dtype in COMPLEX else cases[:1]


op(
    "SparseTensorDenseMatMul",
    "a_indices: Tindices, a_values: T, a_shape: int64, b: T",
    "product: T",
    {"T": type_attr(), "Tindices": type_attr(INDEX, int64), "adjoint_a": False, "adjoint_b": False},
    shape=_matmul_shape,
    kernel=_matmul_kernel,
    xp=True,
    host=("a_shape",),
    grad=_matmul_grad,
    facts=Facts(dynamic_shape=True, cost=lambda ins, outs: _flops(ins)),
    oracle=_matmul_model,
    sample=_matmul_samples,
    doc="The product of a sparse matrix, whose elements may be in any order, and a dense one.",
    differs="Integers of every width.",
)


def _flops(ins: Sequence[Shape]) -> float | None:
    values, b = ins[1], ins[3]
    if not values or values[0] is None or b is None or None in b:
        return None
    return 4.0 * values[0] * max(b)  # type: ignore[type-var, operator]


# *** SparseMatMul ***


def _dense_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    transpose_a, transpose_b = attrs["transpose_a"], attrs["transpose_b"]
    widen = converter(xp, float32)

    def kernel(a: Any, b: Any) -> Any:
        for name, x in (("a", a), ("b", b)):
            if x.ndim != 2:
                raise InvalidArgumentError(f"{name} is not a matrix: its shape is {shapes.show(x.shape)}")
        x, y = a.T if transpose_a else a, b.T if transpose_b else b
        if x.shape[1] != y.shape[0]:
            raise InvalidArgumentError(
                f"Matrix size incompatible: a: {shapes.show(a.shape)}, b: {shapes.show(b.shape)}"
            )
        check_size((x.shape[0], y.shape[1]), float32)
        return widen(x) @ widen(y)

    return kernel


def _dense_shape(c: Inference) -> Sequence[Shape]:
    a, b = (shapes.with_rank(s, 2) for s in c.shapes)
    rows, inner = a[::-1] if c.attrs["transpose_a"] else a
    same, columns = b[::-1] if c.attrs["transpose_b"] else b
    shapes.merge_dim(inner, same)
    return [(rows, columns)]


def _dense_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    ta, tb = n.attrs["transpose_a"], n.attrs["transpose_b"]
    sparse = {"a": n.attrs["a_is_sparse"], "b": n.attrs["b_is_sparse"], "dy": False}
    terms = {"a": n.a, "b": n.b, "dy": dy}

    def product(x: str, y: str, transpose_x: bool, transpose_y: bool, like: Any) -> Any:
        out = b.SparseMatMul(
            terms[x],
            terms[y],
            transpose_a=transpose_x,
            transpose_b=transpose_y,
            a_is_sparse=sparse[x],
            b_is_sparse=sparse[y],
        )
        return b.Cast(out, DstT=like.dtype) if like.dtype != out.dtype else out

    return [
        lambda: product("b", "dy", tb, True, n.a) if ta else product("dy", "b", False, not tb, n.a),
        lambda: product("dy", "a", True, ta, n.b) if tb else product("a", "dy", not ta, False, n.b),
    ]


def _dense_model(a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False) -> np.ndarray:
    x, y = (m.astype(np.float64).T if t else m.astype(np.float64) for m, t in ((a, transpose_a), (b, transpose_b)))
    out = [[sum(p * q for p, q in zip(row, column, strict=True)) for column in y.T] for row in x]
    return np.array(out, np.float32).reshape(x.shape[0], y.shape[1])


op(
    "SparseMatMul",
    "a: Ta, b: Tb",
    "product: float32",
    {
        "transpose_a": False,
        "transpose_b": False,
        "a_is_sparse": False,
        "b_is_sparse": False,
        "Ta": type_attr({float32, bfloat16}, float32),
        "Tb": type_attr({float32, bfloat16}, float32),
    },
    shape=_dense_shape,
    kernel=_dense_kernel,
    xp=True,
    grad=_dense_grad,
    jvp=multilinear("a", "b"),
    facts=Facts(blas=True, cost=lambda ins, outs: _dense_flops(ins)),
    oracle=_dense_model,
    sample=lambda rng, dtype: [
        case(draw(rng, dtype, (2, 3)), draw(rng, float32, (3, 2))),
        case(draw(rng, dtype, (3, 2)), draw(rng, dtype, (4, 3)), transpose_a=True, transpose_b=True),
        case(draw(rng, dtype, (0, 2)), draw(rng, dtype, (2, 2))),
    ],
    doc="The product of two dense matrices with many zeros, in float32.",
)


def _dense_flops(ins: Sequence[Shape]) -> float | None:
    sizes = [shapes.size(s) for s in ins]
    if None in sizes or not all(ins):
        return None
    return 2.0 * sizes[0] * max(d or 0 for d in ins[1] or ())  # type: ignore[operator]
