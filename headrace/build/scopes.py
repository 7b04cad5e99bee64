"""Where new ops go: the current graph. The one place with such state, and it is kept per context (`contextvars`)."""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING

from headrace.ir import graph as ir_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.pb import GraphDef

_current: contextvars.ContextVar[tuple[Graph, ...]] = contextvars.ContextVar("headrace_graphs", default=())


class Graph(ir_graph.Graph):
    """A graph that can be entered: `with hr.Graph() as g:` puts new ops into it.

    >>> with Graph() as g:
    ...     current_graph() is g
    True
    """

    def __enter__(self) -> Graph:
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        stack = _current.get()
        if not stack or stack[-1] is not self:
            raise RuntimeError("graphs must be left in the reverse order of entering them, in the same context")
        _current.set(stack[:-1])

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Graph]:
        """TensorFlow's name for entering a graph."""
        with self:
            yield self

    def as_graph_def(self) -> GraphDef:
        """The graph as a `headrace.pb.GraphDef` message, which TensorFlow reads too (same wire format)."""
        from headrace.ir import graphdef  # see build.importing

        return graphdef.export_graph_def(self)


def current_graph() -> Graph | None:
    """The graph entered last in this context, or None."""
    stack = _current.get()
    return stack[-1] if stack else None
