"""Batching rules of products of matrices and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.opkit.batch_node import BatchNode, NoBatchRule, with_ones
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor


def matmul(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `MatMul(a, b)`.

    If only the left factor differs between examples, its rows are those of a single product; so are the columns of the
    right factor, if each example has one.
    """
    x, y = n.inputs
    if n.batched == [True, False] and not _adjoint(n, "a"):
        return _one_product(b, n, x, y)
    if n.batched == [False, True] and n.op.outputs[0].shape is not None and n.op.outputs[0].shape[1] == 1:
        return _of_vectors(b, n, x, y)
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


def _of_vectors(b: Builder, n: BatchNode, x: Tensor, y: Tensor) -> list[Tensor]:
    """Returns [i, k] @ [n, k, 1], as a product of two matrices."""
    k = (n.shape(1) or (None, None))[1 if _adjoint(n, "b") else 0]
    i = (n.op.outputs[0].shape or (None, None))[0]
    if k is None or i is None or k == 0 or i == 0:
        return [b.BatchMatMulV2(_turned(b, x, n, "a"), _turned(b, y, n, "b"), **_flags(n))]
    rows = b.MatMul(b.Reshape(y, np.array([-1, k], np.int32)), x, transpose_b=not _adjoint(n, "a"))
    return [b.Reshape(rows, np.array([-1, i, 1], np.int32))]


def batch_matmul(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `BatchMatMulV2(x, y)`, whose dimensions in front broadcast, and its relatives."""
    rank = max(n.rank(0), n.rank(1))
    x, y = (with_ones(b, t, rank - n.rank(i)) if n.batched[i] else t for i, t in enumerate(n.inputs))
    if n.op.type == "BatchMatMul":  # whose dimensions must be equal
        return n.make(x, y, type="BatchMatMulV2")
    return n.make(x, y)


def einsum(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Einsum(inputs)` with one more letter.

    A product of two factors of known shapes becomes one of matrices.
    """
    equation = n.attrs["equation"].replace(" ", "")
    terms, arrow, result = equation.partition("->")
    if not arrow:
        raise NoBatchRule("the equation does not state the result")
    letters = (c for c in "zyxwvutsrqponmlkjihgfedcbaABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation)
    letter = next(letters, None)
    if letter is None:
        raise NoBatchRule("the equation has no letter left")
    parts = [letter + t if is_batch else t for t, is_batch in zip(terms.split(","), n.batched, strict=True)]
    found = _Factors.of(n, parts, letter + result) if len(parts) == 2 else None
    if found is not None:
        return [found.product(b, *n.inputs)]
    return n.make(*n.inputs, equation=f"{','.join(parts)}->{letter}{result}")


@record(frozen=True, slots=True)
class _Factors:
    """Product of two tensors as one of matrices.

    Attributes:
      terms: the letters of the dimensions of the two factors.
      result: the letters of the result.
      sizes: the size of each letter's dimension.
    """

    terms: tuple[str, str]
    result: str
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, n: BatchNode, parts: Sequence[str], result: str) -> _Factors | None:
        """Returns the factors of `n`, or None.

        It is None if a shape is unknown, or if `n` is no product of matrices.
        """
        x, y = parts
        sizes: dict[str, int] = {}
        for i, part in enumerate(parts):
            shape = n.shape(i)
            dims = (n.static_size,) * n.batched[i] + (shape or ())
            if shape is None or None in dims or 0 in dims or len(dims) != len(part) or len(set(part)) < len(part):
                return None
            for c, d in zip(part, dims, strict=True):
                if sizes.setdefault(c, d or 0) != d:
                    return None
        only = (set(x) ^ set(y)) - set(result)  # letters that are summed within a factor
        if not (x + y).isalpha() or only or len(set(result)) < len(result) or not set(result) <= sizes.keys():
            return None
        return cls((x, y), result, sizes)

    def product(self, b: Builder, x: Tensor, y: Tensor) -> Tensor:
        """Returns the product.

        The left factor is the one whose own letters come first in the result.
        """
        first, second = self.terms
        if [c for c in self.result if (c in first) is not (c in second)][:1] in ([c] for c in second):
            x, y, first, second = y, x, second, first
        common = [c for c in first if c in second and c in self.result]
        summed = [c for c in first if c in second and c not in self.result]
        left, right = ([c for c in t if c not in common and c not in summed] for t in (first, second))
        p = self._arranged(b, x, first, common, left, summed)
        q = self._arranged(b, y, second, common, summed, right)
        out = b.BatchMatMulV2(p, q) if common else b.MatMul(p, q)
        made = [*common, *left, *right]
        whole = _reshaped(b, out, [self.sizes[c] for c in made])
        order = [made.index(c) for c in self.result]
        result: Tensor = whole if order == sorted(order) else b.Transpose(whole, np.array(order, np.int32))
        return result

    def _arranged(self, b: Builder, t: Tensor, term: str, *groups: Sequence[str]) -> Tensor:
        """Returns a factor with one dimension for each group of letters.

        An empty first group has none.
        """
        order = [term.index(c) for group in groups for c in group]
        if order != sorted(order):
            t = b.Transpose(t, np.array(order, np.int32))
        dims = [math.prod(self.sizes[c] for c in group) for group in (groups if groups[0] else groups[1:])]
        return _reshaped(b, t, dims)


def _reshaped(b: Builder, t: Tensor, dims: Sequence[int]) -> Tensor:
    if t.shape == tuple(dims):
        return t
    out: Tensor = b.Reshape(t, np.array(dims, np.int32))
    return out
