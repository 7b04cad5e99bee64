"""Vectors that have an element for each dimension of a tensor of unknown rank.

They are short, although their length is unknown: shapes, axes, and what is computed from these alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import shapes, thresholds
from headrace.ir import walk
from headrace.ir.function import owned

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_SHAPES: Final = ("Shape", "ShapeN")


def shape_vectors(graph: Graph) -> frozenset[Tensor]:
    """Returns the vectors of a graph and of those that its operations own."""
    found = _Vectors()
    found.visit(graph)
    return frozenset(found.vectors)


def has_few(t: Tensor) -> bool:
    """Whether a tensor is known to have few integers or bools."""
    size = shapes.size(t.shape)
    return _is_integer(t) and size is not None and size <= thresholds.HOST_ELEMENTS


class _Vectors:
    def __init__(self) -> None:
        self.vectors: set[Tensor] = set()
        self._ranks: set[Tensor] = set()  # numbers that depend on ranks alone

    def visit(self, graph: Graph) -> None:
        for op in walk.in_order(graph.operations):
            for g in owned(op) if op.opdef.structured else ():
                self.visit(g)
            if op.opdef.is_pure and not op.opdef.structured:
                self._add(op)

    def _add(self, op: Operation) -> None:
        of_ranks = all(t in self._ranks for t in op.inputs)  # constants have no inputs
        are_shapes = any(t in self.vectors for t in op.inputs)
        if op.type == "Rank" or (op.type == "Size" and are_shapes) or (of_ranks and op.type != "Range"):
            self._ranks.update(filter(has_few, op.outputs))
        elif op.type in _SHAPES or of_ranks or (are_shapes and all(t in self.vectors or has_few(t) for t in op.inputs)):
            self.vectors.update(t for t in op.outputs if _is_integer(t) and t.shape is not None and len(t.shape) == 1)


def _is_integer(t: Tensor) -> bool:
    return not t.dtype.is_ref and (t.dtype.is_integer or t.dtype.is_bool)
