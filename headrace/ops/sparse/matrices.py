"""Matrices in compressed rows: conversion to and from tensors, components, and transposition.

Source: TensorFlow's DenseToCSRSparseMatrix, SparseTensorToCSRSparseMatrix, CSRSparseMatrixToDense,
CSRSparseMatrixToSparseTensor, CSRSparseMatrixComponents, SparseMatrixNNZ, SparseMatrixZeros and SparseMatrixTranspose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, flops_per_input, op
from headrace.opkit.arrays import check_size
from headrace.opkit.jvp_rules import linear
from headrace.ops.sparse.compressed import (
    TYPES,
    CSRMatrix,
    check_shape,
    coordinates,
    elements,
    empty,
    from_elements,
    matrix,
    rows_of,
    turned,
)
from headrace.ops.sparse.coordinates import checked, parts, sparse_out
from headrace.shapes import Dim, Shape

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(10))


def _matrix_shape(shape: Shape) -> Shape:
    """A shape that must be that of a matrix or a batch of them."""
    return shapes.with_rank_at_most(shapes.with_rank_at_least(shape, 2), 3)


def _held(c: Inference, i: int) -> Shape:
    """The shape of the matrix in input `i`, as far as it is known."""
    known = c.handle(i)
    return None if known is None else known[1]


# *** Into compressed rows ***


def _from_dense_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(dense: Any, indices: Any) -> Any:
        check_shape(dense.shape, dtype)
        if indices.ndim != 2 or indices.shape[1] != dense.ndim:
            raise InvalidArgumentError(
                f"indices.shape[1] must be equal to the rank of params, but saw: indices of shape "
                f"{shapes.show(indices.shape)} vs. rank {dense.ndim}"
            )
        wrong = ((indices < 0) | (indices >= np.array(dense.shape))).any(axis=1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InvalidArgumentError(
                f"indices[{i}] = {indices[i].tolist()} does not index into param shape {shapes.show(dense.shape)}"
            )
        return from_elements(dtype, dense.shape, indices, dense[tuple(indices.T)])

    return kernel


def _from_dense_shape(c: Inference) -> Sequence[Shape]:
    c.set_handle(0, c.attrs["T"], _matrix_shape(c.shapes[0]))
    shapes.with_rank(c.shapes[1], 2)
    return [()]


def _from_dense_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    d = b.CSRSparseMatrixToDense(dy, type=n.attrs["T"])
    return [b.ScatterNd(n.indices, b.GatherNd(d, n.indices), b.Shape(d, out_type=n.indices.dtype)), None]


op(
    "DenseToCSRSparseMatrix",
    "dense_input: T, indices: int64",
    "sparse_output: variant",
    {"T": TYPES},
    shape=_from_dense_shape,
    kernel=_from_dense_kernel,
    xp=False,
    grad=_from_dense_grad,
    jvp=linear("dense_input"),
    facts=_FACTS,
    doc="The matrix in compressed rows of the elements of a dense one at some coordinates.",
)


def _from_sparse_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        dims = checked(indices, values, shape)
        check_shape(dims, dtype)
        wrong = ((indices < 0) | (indices >= np.array(dims))).any(axis=1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InvalidArgumentError(f"Sparse index tuple indices[{i}, :] = {indices[i].tolist()} is out of bounds")
        return from_elements(dtype, dims, indices, values)

    return kernel


def _from_sparse_shape(c: Inference) -> Sequence[Shape]:
    parts(c, 0)
    c.set_handle(0, c.attrs["T"], _matrix_shape(c.shape_value(2)))
    return [()]


def _from_sparse_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [None, b.GatherNd(b.CSRSparseMatrixToDense(dy, type=n.attrs["T"]), n.indices), None]


op(
    "SparseTensorToCSRSparseMatrix",
    "indices: int64, values: T, dense_shape: int64",
    "sparse_matrix: variant",
    {"T": TYPES},
    shape=_from_sparse_shape,
    kernel=_from_sparse_kernel,
    xp=False,
    grad=_from_sparse_grad,
    jvp=linear("values"),
    facts=_FACTS,
    doc="A sparse tensor of rank 2 or 3 as a matrix in compressed rows or a batch of them.",
    differs="The indices may be in any order.",
)


def _zeros_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["type"]

    def kernel(shape: Any) -> Any:
        if shape.ndim != 1:
            raise InvalidArgumentError(f"dense_shape must be a vector, got shape {shapes.show(shape.shape)}")
        return empty(dtype, tuple(shape.tolist()))

    return kernel


def _zeros_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 1)
    c.set_handle(0, c.attrs["type"], _matrix_shape(c.shape_value(0)))
    return [()]


op(
    "SparseMatrixZeros",
    "dense_shape: int64",
    "sparse_matrix: variant",
    {"type": TYPES},
    shape=_zeros_shape,
    kernel=_zeros_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    doc="A matrix in compressed rows, or a batch of them, without elements.",
)

# *** Out of compressed rows ***


def _to_dense_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["type"]

    def kernel(value: Any) -> Any:
        m = matrix(value, dtype)
        check_size(m.shape, dtype)
        out = np.zeros(m.shape, dtype.numpy)
        for block, part in zip(m.blocks, out if m.is_batch else [out], strict=True):
            part[rows_of(block), block.indices] = block.data
        return out

    return kernel


def _to_dense_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    indices, _, shape = b.CSRSparseMatrixToSparseTensor(n.sparse_input, type=n.attrs["type"])
    return [b.SparseTensorToCSRSparseMatrix(indices, b.GatherNd(dy, indices), shape)]


op(
    "CSRSparseMatrixToDense",
    "sparse_input: variant",
    "dense_output: type",
    {"type": TYPES},
    shape=lambda c: [_held(c, 0)],
    kernel=_to_dense_kernel,
    xp=False,
    grad=_to_dense_grad,
    jvp=linear("sparse_input"),
    facts=_FACTS,
    doc="A matrix in compressed rows, or a batch of them, as a dense one.",
)


def _to_sparse_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(value: Any) -> Any:
        m = matrix(value, attrs["type"])
        return coordinates(m), elements(m), np.array(m.shape, np.int64)

    return kernel


def _to_sparse_shape(c: Inference) -> Sequence[Shape]:
    held = _held(c, 0)
    rank: Dim = None if held is None else len(held)
    return sparse_out(None, rank)


op(
    "CSRSparseMatrixToSparseTensor",
    "sparse_matrix: variant",
    "indices: int64, values: type, dense_shape: int64",
    {"type": TYPES},
    shape=_to_sparse_shape,
    kernel=_to_sparse_kernel,
    xp=False,
    grad=lambda b, n, di, dv, ds: [b.SparseTensorToCSRSparseMatrix(n.indices, dv, n.dense_shape)],
    jvp=lambda b, n, dx: [None, b.CSRSparseMatrixToSparseTensor(dx, type=n.attrs["type"])[1], None],
    facts=_FACTS,
    doc="A matrix in compressed rows, or a batch of them, as a sparse tensor.",
)


def _components_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(value: Any, index: Any) -> Any:
        m = matrix(value, attrs["type"])
        if index.ndim:
            raise InvalidArgumentError(f"index should be a scalar, but saw the shape {shapes.show(index.shape)}")
        if not 0 <= index < len(m.blocks):
            raise InvalidArgumentError(f"index ({index}) not in [0, {len(m.blocks)})")
        block = m.blocks[int(index)]
        return block.indptr.astype(np.int32), block.indices.astype(np.int32), block.data

    return kernel


op(
    "CSRSparseMatrixComponents",
    "csr_sparse_matrix: variant, index: int32",
    "row_ptrs: int32, col_inds: int32, values: type",
    {"type": TYPES},
    shape=lambda c: [(None,)] * 3,
    kernel=_components_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    doc="Where the rows of one matrix of a batch begin, and the columns and the values of its elements.",
)


def _count_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(value: Any) -> Any:
        m = matrix(value)
        counts = np.array([block.nnz for block in m.blocks], np.int32)
        return counts if m.is_batch else counts[0]

    return kernel


def _count_shape(c: Inference) -> Sequence[Shape]:
    held = _held(c, 0)
    return [None if held is None else held[:-2]]


op(
    "SparseMatrixNNZ",
    "sparse_matrix: variant",
    "nnz: int32",
    shape=_count_shape,
    kernel=_count_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    doc="How many elements the matrix, or each of a batch, has.",
)

# *** SparseMatrixTranspose ***


def _transpose_kernel(attrs: Mapping[str, Any]) -> Any:
    conjugate, dtype = attrs["conjugate"], attrs["type"]

    def kernel(value: Any) -> CSRMatrix:
        m = matrix(value, dtype)
        *batch, rows, columns = m.shape
        check_shape((*batch, columns, rows), dtype)
        return m.mapped(lambda block: turned(block, conjugate), (*batch, columns, rows))

    return kernel


def _transpose_shape(c: Inference) -> Sequence[Shape]:
    held = _held(c, 0)
    c.set_handle(0, c.attrs["type"], None if held is None else (*held[:-2], held[-1], held[-2]))
    return [()]


def _transpose_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.SparseMatrixTranspose(dy, conjugate=n.attrs["conjugate"], type=n.attrs["type"])]


op(
    "SparseMatrixTranspose",
    "input: variant",
    "output: variant",
    {"type": TYPES, "conjugate": False},
    shape=_transpose_shape,
    kernel=_transpose_kernel,
    xp=False,
    grad=_transpose_grad,
    jvp=linear("input"),
    facts=_FACTS,
    doc="The transposed matrix, or each of a batch; conjugated, if asked.",
)
