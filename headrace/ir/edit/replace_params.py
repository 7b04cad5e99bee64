"""Replacement of a parameter by one of another type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Tensor
    from headrace.shapes import Shape


def add_param_at(graph: FuncGraph, k: int, dtype: Any, shape: Shape) -> Tensor:
    """Puts a new parameter before parameter `k`, with a name like it."""
    old = graph.params[k]
    new = graph.add_param(dtype, shape, old.op.name, "", old.op.source)
    graph.set_params([*graph.params[:k], new, *graph.params[k:-1]])
    return new


def remove_param(graph: FuncGraph, k: int) -> None:
    """Removes parameter `k`, which no operation reads."""
    old = graph.params[k]
    graph.set_params([*graph.params[:k], *graph.params[k + 1 :]])
    for t in [t for t, p in graph.originals.items() if p is old]:
        del graph.originals[t]
    graph.take_back({old.op})
