"""The places where an optimizer creates variables and operations.

They are colocated with the variables, and outside of branches and loops.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from headrace.api import scopes
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph


def root_of(graph: Graph) -> Graph:
    """Returns the graph outside of all conditionals, loops and functions."""
    while graph.outer is not None:
        graph = graph.outer
    return graph


@contextlib.contextmanager
def entered(*near: Any) -> Iterator[Any]:
    """Enters the graph of operations on `near`: the current graph, else theirs. Yields its builder."""
    b = scopes.builder(*near)
    if not isinstance(b, Builder):
        yield b
        return
    with scopes.entered(b):
        yield b


@contextlib.contextmanager
def outermost(*near: Any) -> Iterator[None]:
    """Enters the root graph, outside of all branches and loops, without control inputs."""
    b = scopes.builder(*near)
    if not isinstance(b, Builder):
        yield
        return
    root = root_of(b.graph)
    top = b if b.graph is root else Builder(root)
    with scopes.entered(dataclasses.replace(top, control_inputs=())):
        yield


@contextlib.contextmanager
def lifted(beside: Any) -> Iterator[None]:
    """Enters the root graph, and colocates operations with `beside`, a variable or tensor."""
    with outermost(beside), colocated(beside):
        yield


@contextlib.contextmanager
def colocated(v: Any) -> Iterator[None]:
    """Colocates operations with a variable or tensor that belongs to the current graph.

    A variable or tensor of an outer graph has no effect.
    """
    b = scopes.builder(v)
    if isinstance(b, Builder) and b.graph is v.graph:
        with scopes.colocate_with(v.op):
            yield
    else:
        yield


def initialized(v: Any) -> Any:
    """Returns the value of a variable, or its initial value while it is uninitialized."""
    return v.value() if v.graph is None else v.initialized_value()
