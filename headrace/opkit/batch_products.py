"""Batching rules of products of matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.opkit.batch_node import BatchNode, NoBatchRule, with_ones

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor


def matmul(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `MatMul(a, b)`.

    If only the left factor differs between examples, its rows are those of a single product. Products with one common
    column and row are outer products, and made without the library of matrix products.
    """
    adjoint = tuple(_adjoint(n, name) for name in ("a", "b"))
    x, y = n.inputs
    a_shape, b_shape = n.shape(0), n.shape(1)
    if a_shape is None or b_shape is None:
        raise NoBatchRule("the rank of a factor is unknown")
    if n.batched == [True, False] and not adjoint[0]:
        return _one_product(b, n, x, y)
    inner = a_shape[-2] if adjoint[0] else a_shape[-1]
    if all(n.batched) and inner == 1 and not x.dtype.is_complex:
        column = b.Reshape(x, _dims(n, a_shape, -1, 1)) if adjoint[0] else x
        row = b.Reshape(y, _dims(n, b_shape, 1, -1)) if adjoint[1] else y
        return [b.Mul(column, row)]
    return [b.BatchMatMulV2(_turned(b, x, n, "a"), _turned(b, y, n, "b"), **_flags(n))]


def _adjoint(n: BatchNode, side: str) -> bool:
    return bool(n.attrs.get(f"transpose_{side}"))


def _flags(n: BatchNode) -> dict[str, bool]:
    """Returns the attributes of the batched product; a complex factor is transposed before, without conjugation."""
    if n.inputs[0].dtype.is_complex:
        return {"adj_x": False, "adj_y": False}
    return {"adj_x": _adjoint(n, "a"), "adj_y": _adjoint(n, "b")}


def _turned(b: Builder, t: Tensor, n: BatchNode, side: str) -> Tensor:
    if not t.dtype.is_complex or not _adjoint(n, side):
        return t
    is_batch = n.batched[0 if side == "a" else 1]
    out: Tensor = b.Transpose(t, np.array([0, 2, 1] if is_batch else [1, 0], np.int32))
    return out


def _dims(n: BatchNode, shape: shapes.Shape, rows: int, columns: int) -> Any:
    first = n.static_size
    return np.array([first, rows, columns], np.int32) if first is not None else n.prefixed(np.array([rows, columns]))


def _one_product(b: Builder, n: BatchNode, x: Tensor, y: Tensor) -> list[Tensor]:
    """Returns [n, i, k] @ [k, j], as a product of two matrices."""
    i, k = n.shape(0) or (None, None)
    j = (n.op.outputs[0].shape or (None, None))[1]
    if k is None or j is None or k == 0 or j == 0 or (i is None and n.static_size is None):
        return [b.BatchMatMulV2(x, _turned(b, y, n, "b"), **_flags(n))]
    (flat,) = n.make(b.Reshape(x, np.array([-1, k], np.int32)), y)
    size = n.static_size
    dims = np.array([-1 if size is None else size, -1 if i is None else i, j], np.int32)
    return [b.Reshape(flat, dims)]


def batch_matmul(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `BatchMatMulV2(x, y)`, whose dimensions in front broadcast, and its relatives."""
    rank = max(n.rank(0), n.rank(1))
    x, y = (with_ones(b, t, rank - n.rank(i)) if n.batched[i] else t for i, t in enumerate(n.inputs))
    if n.op.type == "BatchMatMul":  # whose dimensions must be equal
        return n.make(x, y, type="BatchMatMulV2")
    return n.make(x, y)


def einsum(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Einsum(inputs)` with one more letter."""
    equation = n.attrs["equation"].replace(" ", "")
    terms, arrow, result = equation.partition("->")
    if not arrow:
        raise NoBatchRule("the equation does not state the result")
    letters = (c for c in "zyxwvutsrqponmlkjihgfedcbaABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation)
    letter = next(letters, None)
    if letter is None:
        raise NoBatchRule("the equation has no letter left")
    parts = [letter + t if is_batch else t for t, is_batch in zip(terms.split(","), n.batched, strict=True)]
    return n.make(*n.inputs, equation=f"{','.join(parts)}->{letter}{result}")
