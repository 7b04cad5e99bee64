"""Matrices in compressed rows (CSR) as variants, and helpers of their ops.

Source: TensorFlow's CSRSparseMatrix. One value is a matrix or a batch of them; the arithmetic is SciPy's. A stored
element belongs to the matrix even if it is zero, so that gradients have the same elements as their matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType, complex64, complex128, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.opkit.arrays import check_size
from headrace.records import record

TYPES = frozenset({float32, float64, complex64, complex128})


@record(frozen=True, slots=True, eq=False)
class CSRMatrix:
    """A sparse matrix or a batch of them. Immutable.

    Attributes:
      dtype: of the elements.
      shape: rows and columns, after the size of the batch, if it is one.
      blocks: the matrices, each a `scipy.sparse.csr_array` of sorted columns.
    """

    dtype: DType
    shape: tuple[int, ...]
    blocks: tuple[Any, ...]

    def zeros_like(self) -> CSRMatrix:
        """The matrix of the same shape without elements."""
        return empty(self.dtype, self.shape)

    def add(self, other: CSRMatrix) -> CSRMatrix:
        """The sum; it has the elements of both."""
        check_alike(self, other)
        return self.mapped(lambda a, b: union(a, b, 1, 1), self.shape, other)

    def mapped(self, f: Callable[..., Any], shape: tuple[int, ...], *others: CSRMatrix) -> CSRMatrix:
        """The matrix of `shape` whose blocks are `f(block, blocks of the others)`."""
        blocks = zip(self.blocks, *(o.blocks for o in others), strict=True)
        return CSRMatrix(self.dtype, shape, tuple(f(*same) for same in blocks))

    @property
    def is_batch(self) -> bool:
        return len(self.shape) == 3

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(b.data.nbytes + b.indices.nbytes + b.indptr.nbytes for b in self.blocks)


def matrix(value: Any, dtype: DType | None = None) -> CSRMatrix:
    """The matrix that the value of a variant is.

    Raises:
      InvalidArgumentError: it is something else, or has elements of another dtype.
    """
    if not isinstance(value, CSRMatrix):
        raise InvalidArgumentError(f"expected a variant that holds a CSRSparseMatrix, got {type(value).__name__}")
    if dtype is not None and value.dtype is not dtype:
        raise InvalidArgumentError(
            f"Asked for a CSRSparseMatrix of type {dtype.name} but saw dtype: {value.dtype.name}"
        )
    return value


def check_shape(shape: Sequence[int], dtype: DType) -> None:
    """Raises unless a batch of matrices of this shape is valid and fits into memory.

    Only the row pointers are counted, which empty matrices have too.
    """
    if len(shape) not in (2, 3):
        raise InvalidArgumentError(f"SparseTensor must have rank 2 or 3; but its shape is {shapes.show(tuple(shape))}")
    if max(shape) >= 2**31 or min(shape) < 0:
        raise InvalidArgumentError(f"Dimensions must be >= 0 and fit in int32, got {shapes.show(tuple(shape))}")
    check_size((*shape[:-2], shape[-2] + 1), dtypes.int32)


def from_elements(dtype: DType, shape: tuple[int, ...], indices: np.ndarray, values: np.ndarray) -> CSRMatrix:
    """Matrix of this shape with these elements at these coordinates.

    Repeated elements are kept.
    """
    from scipy import sparse

    check_shape(shape, dtype)
    order = np.lexsort(indices.T[::-1])
    indices, values = indices[order], values[order]
    batch = indices[:, 0] if len(shape) == 3 else np.zeros(len(indices), np.int64)
    ends = np.searchsorted(batch, np.arange((shape[0] if len(shape) == 3 else 1) + 1))
    blocks = []
    for start, end in zip(ends.tolist(), ends[1:].tolist()):
        rows, columns = indices[start:end, -2:].T
        counts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[-2]))]).astype(np.int32)
        blocks.append(sparse.csr_array((values[start:end], columns.astype(np.int32), counts), shape=shape[-2:]))
    return CSRMatrix(dtype, shape, tuple(blocks))


def empty(dtype: DType, shape: tuple[int, ...]) -> CSRMatrix:
    """A matrix without elements."""
    return from_elements(dtype, shape, np.zeros((0, len(shape)), np.int64), np.zeros(0, dtype.numpy))


def rows_of(block: Any) -> np.ndarray:
    """The row of each element of a block."""
    return np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))


def coordinates(m: CSRMatrix) -> np.ndarray:
    """The coordinates of all elements."""
    parts = []
    for i, block in enumerate(m.blocks):
        columns = [rows_of(block), block.indices]
        if m.is_batch:
            columns.insert(0, np.full(block.nnz, i))
        parts.append(np.stack(columns, axis=1).astype(np.int64))
    return np.concatenate(parts) if parts else np.zeros((0, len(m.shape)), np.int64)


def elements(m: CSRMatrix) -> np.ndarray:
    """The values of all elements."""
    return np.concatenate([b.data for b in m.blocks]) if m.blocks else np.zeros(0, m.dtype.numpy)


def check_alike(a: CSRMatrix, b: CSRMatrix) -> None:
    """Raises `InvalidArgumentError` unless the two have the same shape and dtype."""
    if a.shape != b.shape or a.dtype is not b.dtype:
        raise InvalidArgumentError(
            f"Shapes and types of a and b must match: {a.dtype.name}{shapes.show(a.shape)} vs. "
            f"{b.dtype.name}{shapes.show(b.shape)}"
        )


def union(a: Any, b: Any, alpha: Any, beta: Any) -> Any:
    """`alpha * a + beta * b`, of blocks, with the elements of both (SciPy's sum leaves out zeros)."""
    from scipy import sparse

    rows, columns = np.concatenate([rows_of(a), rows_of(b)]), np.concatenate([a.indices, b.indices])
    values = np.concatenate([a.data * alpha, b.data * beta]).astype(a.dtype)
    return sparse.csr_array((values, (rows, columns)), shape=a.shape)


def turned(block: Any, conjugate: bool = False) -> Any:
    """The transposed block, in compressed rows again."""
    out = block.T.tocsr()
    return out.conj() if conjugate else out
