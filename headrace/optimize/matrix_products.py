"""Writes sums of products of two arrays as products of matrices, or as elementwise products.

    y = Einsum[equation="bi,ij->bj"](x, w)          y = MatMul(x, w)
    y = Einsum[equation="bti,ij->btj"](x, w)        y = Reshape(MatMul(Reshape(x), w))
    y = Einsum[equation="bth,bh->bt"](x, w)         y = Reshape(BatchMatMulV2(x, Reshape(w)))
    y = Einsum[equation="bh,bh->b"](x, w)           y = Sum(Mul(x, w), 1)

The passes on loops and the compiler have rules for products of matrices. A label of both arrays is a dimension of a
batch if the result has it, and summed over if not; a label of one array is free. All shapes must be known. Arrays whose
dimensions are in another order are transposed. An `Einsum` adds in another order than a `MatMul`, so the last bits of
floats may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace import shapes
from headrace.ir.builder import Builder
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import other_device
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


class MultiplyMatrices(Pass):
    """Pass that writes sums of products as products of matrices."""

    name = "einsum"
    grows = True
    is_exact = False

    def call(self, graph: Graph, context: PassContext) -> bool:
        walking = Rewriter(graph, context)
        for op in walking:
            if op.type != "Einsum" or op in walking.preserved or op.control_inputs or "_class" in op.attrs:
                continue
            if not all(shapes.is_full(t.shape) for t in (*op.inputs, *op.outputs)):
                continue
            if other_device([op]):
                context.refused(self.name, op, "it requests a device that may have no kernel for other operations")
                continue
            known = len(graph.operations)
            made = _product(Builder(graph, device=op.device, source=op.source), op)
            if made is None:
                continue
            for new in graph.operations[known:]:
                walking.insert(new)
            walking.replace(op, [made], (made.op,))
            context.fired(self.name, op, f"'{op.attrs['equation']}' is a product of matrices")
        return walking.finish()


def _product(b: Builder, op: Operation) -> Tensor | None:
    left, _, out = op.attrs["equation"].partition("->")
    ins, dims = left.split(","), [t.shape or () for t in op.inputs]
    if len(ins) != 2 or not all(len(set(s)) == len(s) == len(d) for s, d in zip(ins, dims, strict=True)):
        return None
    free = ["".join(k for k in out if k in s and k not in other) for s, other in zip(ins, reversed(ins), strict=True)]
    common = [k for k in ins[0] if k in ins[1]]
    summed = "".join(k for k in common if k not in out)
    if any(0 in d for d in dims) or any(len(f) + len(common) != len(s) for f, s in zip(free, ins, strict=True)):
        return None  # a label of one array is summed over
    size = {k: n for s, d in zip(ins, dims, strict=True) for k, n in zip(s, d, strict=True)}
    given = [_Labelled(t, s) for t, s in zip(op.inputs, ins, strict=True)]
    sums = _Sums(b, op.name, size)
    if not summed or not any(free):
        made = sums.elementwise(given, out, summed)
    else:
        batch = "".join(k for k in out if k in common)
        if out == batch + free[1] + free[0]:
            given, free = given[::-1], free[::-1]
        made = sums.matrices(given, batch, free, summed)
    return sums.ordered(made, out).tensor


class _Labelled(NamedTuple):
    """Tensor with a label for each dimension."""

    tensor: Tensor
    labels: str


class _Sums:
    """Operations in place of one `Einsum`.

    Args:
      b: Builds the operations.
      name: The name of the `Einsum`.
      size: The size of each label.
    """

    def __init__(self, b: Builder, name: str, size: Mapping[str, int | None]) -> None:
        self._b, self._name, self._size = b, name, size

    def elementwise(self, given: Sequence[_Labelled], out: str, summed: str) -> _Labelled:
        """Product of two arrays, summed over some labels."""
        labels = out + summed
        x, y = (self._with_ones(self.ordered(a, "".join(k for k in labels if k in a.labels)), labels) for a in given)
        made = self._b.Mul(x, y, name=f"{self._name}/products")
        if summed:
            axes = list(range(len(out), len(labels)))
            made = self._b.Sum(made, axes, keep_dims=False, name=f"{self._name}/sum")
        return _Labelled(made, out)

    def matrices(self, given: Sequence[_Labelled], batch: str, free: Sequence[str], summed: str) -> _Labelled:
        """Products of matrices, for each element of a batch."""
        turned, arrays = [], []
        for k, (a, f) in enumerate(zip(given, free, strict=True)):
            plain, other = (batch + f + summed, batch + summed + f)[:: 1 - 2 * k]
            turned.append(a.labels == other != plain)
            a = a if turned[k] else self.ordered(a, plain)
            sides = (f, summed) if (k == 0) != turned[k] else (summed, f)
            shape = (*self._shape(batch), *(self._count(side) for side in sides))
            arrays.append(self._reshaped(a.tensor, shape, f"{self._name}/matrix_{k}"))
        if batch:
            adjoint = {"adj_x": turned[0], "adj_y": turned[1]}
            made = self._b.BatchMatMulV2(*arrays, **adjoint, name=f"{self._name}/product")
        else:
            transposed = {"transpose_a": turned[0], "transpose_b": turned[1]}
            made = self._b.MatMul(*arrays, **transposed, name=f"{self._name}/product")
        labels = batch + free[0] + free[1]
        return _Labelled(self._reshaped(made, self._shape(labels), f"{self._name}/whole"), labels)

    def ordered(self, a: _Labelled, labels: str) -> _Labelled:
        """The array with its dimensions in the order of `labels`."""
        if a.labels == labels:
            return a
        order = [a.labels.index(k) for k in labels]
        return _Labelled(self._b.Transpose(a.tensor, order, name=f"{self._name}/transposed"), labels)

    def _with_ones(self, a: _Labelled, labels: str) -> Tensor:
        """The array with a dimension of size 1 for each label that it lacks."""
        shape = tuple(self._size[k] if k in a.labels else 1 for k in labels)
        return self._reshaped(a.tensor, shape, f"{self._name}/expanded")

    def _reshaped(self, x: Tensor, shape: Shape, name: str) -> Tensor:
        return x if x.shape == shape else self._b.Reshape(x, np.array(shape, np.int32), name=name)

    def _shape(self, labels: str) -> tuple[int | None, ...]:
        return tuple(self._size[k] for k in labels)

    def _count(self, labels: str) -> int | None:
        return shapes.size(self._shape(labels))
