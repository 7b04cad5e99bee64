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
    """The graph around all conditionals, loops and functions."""
    while graph.outer is not None:
        graph = graph.outer
    return graph


@contextlib.contextmanager
def entered(*near: Any) -> Iterator[Any]:
    """Where operations on `near` go: the graph entered, else theirs. Gives the builder."""
    b = scopes.builder(*near)
    if not isinstance(b, Builder):
        yield b
        return
    with scopes.entered(b):
        yield b


@contextlib.contextmanager
def outermost(*near: Any) -> Iterator[None]:
    """Out of all branches and loops, and waiting for nothing."""
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
    """The same, beside a variable or tensor."""
    with outermost(beside), colocated(beside):
        yield


@contextlib.contextmanager
def colocated(v: Any) -> Iterator[None]:
    """On the device of a variable or tensor, where that is of the graph entered, not of one around it."""
    b = scopes.builder(v)
    if isinstance(b, Builder) and b.graph is v.graph:
        with scopes.colocate_with(v.op):
            yield
    else:
        yield


def initialized(v: Any) -> Any:
    """The value of a variable, or what it will have at first, if it has none yet."""
    return v.value() if v.graph is None else v.initialized_value()
