"""Writes sums of products over one dimension of two arrays as products of matrices.

    y = Einsum[equation="bi,ij->bj"](x, w)          y = MatMul(x, w)
    y = Einsum[equation="bti,ij->btj"](x, w)        y = Reshape(MatMul(Reshape(x), w))

The passes on loops and the compiler have rules for products of matrices. All shapes must be known, and the dimension to
sum over must be the first or the last of both arrays, so that a matrix is a view of its array. An `Einsum` adds in
another order than a `MatMul`, so the last bits of floats may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace import shapes
from headrace.ir.builder import Builder
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import other_device
from headrace.optimize.rewriter import Rewriter

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


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
    free = ["".join(k for k in s if k not in other) for s, other in zip(ins, reversed(ins), strict=True)]
    if not all(free) or any(0 in d for d in dims) or any(len(s) != len(f) + 1 for s, f in zip(ins, free, strict=True)):
        return None
    if out not in (free[0] + free[1], free[1] + free[0]) or not all(f in s for s, f in zip(ins, free, strict=True)):
        return None  # the dimension to sum over is neither the first nor the last
    is_first = [s.endswith(f) for s, f in zip(ins, free, strict=True)]
    matrices = list(op.inputs)
    for k, d in enumerate(dims):
        if len(d) != 2:
            rows = _vector((d[0], -1) if is_first[k] else (-1, d[-1]))
            matrices[k] = b.Reshape(op.inputs[k], rows, name=f"{op.name}/matrix_{k}")
    x, y = (0, 1) if out == free[0] + free[1] else (1, 0)
    name = op.name if len(out) == 2 else f"{op.name}/product"
    made: Tensor = b.MatMul(matrices[x], matrices[y], transpose_a=is_first[x], transpose_b=not is_first[y], name=name)
    return made if len(out) == 2 else b.Reshape(made, _vector(op.outputs[0].shape), name=op.name)


def _vector(dims: Sequence[int | None] | None) -> np.ndarray:
    return np.array(dims, np.int32)
