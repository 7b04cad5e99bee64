"""Graphs of traced functions, and the eager values that the functions use.

A function that is called outside of graphs is traced into a graph of its own (`jit.concrete`). Its arguments are
placeholders. The function may also use eager values that are not arguments: a variable of an enclosing function, a
tensor of the module. A resource (a variable's handle, a queue) or a floating point tensor is *captured*: it becomes a
further placeholder, and every call feeds the value. So assignments reach the user's variable, and a tape finds the way
from a result to a captured tensor. Other tensors become constants.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.api import scopes
from headrace.errors import GraphError
from headrace.ir import walk
from headrace.ir.builder import Builder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.ir.graph import Graph, Tensor


class TracedGraph(scopes.Graph):
    """Graph of one trace of a Python function.

    Args:
      title: the description of the function.

    Attributes:
      captured: the placeholder of each captured eager tensor, with the tensor, by the identity of its value.
      made: the variables that the function created.
      left: an object that the function left for later additions to the graph, or None.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = f"the trace of {title}"
        self.captured: dict[int, tuple[Any, Tensor]] = {}
        self.made: list[Any] = []
        self.left: Any = None
        self._adding = threading.RLock()

    @property
    def title(self) -> str:
        return self._title

    def close(self) -> None:
        """Ends the trace: later additions to the graph are errors."""
        self.finalized = True

    @contextlib.contextmanager
    def reopened(self) -> Iterator[None]:
        """Returns a context in which one thread at a time adds operations to the graph."""
        with self._adding:
            self.finalized = False
            try:
                with self:
                    yield
            finally:
                self.finalized = True

    def _check_open(self) -> None:
        if self.finalized:
            raise GraphError(
                f"a tensor of {self.title} is used after the trace: it stood for a value of one call only. Return the "
                "tensor from the function (do not append it to a list, or assign it to an attribute, of the "
                "surroundings) and use the result of the call"
            )

    def placeholder(self, value: Any, name: str, shape: Any = None) -> Tensor:
        """Returns a placeholder for values like an eager tensor.

        Args:
          value: the eager tensor.
          name: the name of the placeholder.
          shape: the static shape; None: that of `value`.
        """
        attrs = {"dtype": value.dtype.base, "shape": value.shape if shape is None else shape}
        made: Tensor = Builder(self).make("Placeholder", (), attrs, name)
        if value.dtype.base is dtypes.resource:
            made.refine(handle=_contents(value.numpy()))
        return made

    def own(self, value: Any) -> Tensor | None:
        """Returns the placeholder of a captured eager tensor; None for one that becomes a constant."""
        dtype = value.dtype.base
        if not (dtype in (dtypes.resource, dtypes.variant) or dtype.is_floating or dtype.is_complex):
            return None
        key = id(value.numpy() if dtype is dtypes.resource else value)  # every read of a handle gives the same object
        found = self.captured.get(key)
        if found is None:
            found = self.captured[key] = value, self.placeholder(value, "captured")
        return found[1]


def _contents(handle: Any) -> tuple[dtypes.DType, Any] | None:
    """Returns the dtype and static shape of the contents of a resource, or None."""
    name = getattr(handle, "value_dtype", "")
    return (dtypes.as_dtype(name), handle.value_shape) if name else None


def traced_graph(graph: Graph | None) -> TracedGraph | None:
    """Returns the trace around `graph`; None outside of traces."""
    while graph is not None and graph.outer is not None:
        graph = graph.outer
    return graph if isinstance(graph, TracedGraph) else None


def current_trace() -> TracedGraph | None:
    """Returns the trace that new operations belong to, or None."""
    return traced_graph(scopes.current_graph())


def computed(t: Tensor) -> Any:
    """Computes a tensor of a trace at once, as the initial value of a variable.

    Raises:
      GraphError: the tensor depends on an argument of the function.
    """
    trace = traced_graph(t.graph)
    assert trace is not None
    feeds = {p: value for value, p in trace.captured.values()}
    needed = walk.reachable([t.op])
    unknown = [op for op in needed if op.type == "Placeholder" and op.outputs[0] not in feeds]
    if unknown or t.graph is not trace:
        on = f" depends on the argument '{unknown[0].name}'" if unknown else f" belongs to {t.graph.title}"
        raise GraphError(
            f"the initial value of a variable that {trace.title} creates{on}; create the variable outside of the "
            "function, or give a function that makes the value: hr.Variable(lambda: ...)"
        )
    with scopes.runtime().session(graph=trace) as session:
        run = session.value_callable([t], [], list(feeds))
        (value,) = run([v._value for v in feeds.values()])
    return scopes.runtime().eager.const(value, t.dtype)
