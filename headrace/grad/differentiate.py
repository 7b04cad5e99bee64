"""Graphs of operations that stand for gradients, as lowering requests them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.grad.backward import backward
from headrace.grad.function import gradient_graph

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation


def differentiate(op: Operation) -> FuncGraph:
    """Returns the graph of `op`, a SymbolicGradient; see `function.gradient_graph`."""
    return gradient_graph(op, backward)
