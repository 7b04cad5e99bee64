"""Calls outside of graphs: a graph of symbolic arguments, which is run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from headrace import nest
from headrace.api import scopes
from headrace.api.tracing import is_tensor_argument
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor


def anywhere(call: Callable[..., Any]) -> Callable[..., Any]:
    """Extends `call`, a function that works in a graph, to calls outside of graphs."""

    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        if isinstance(scopes.builder(*nest.flatten((args, kwargs))), Builder):
            return call(*args, **kwargs)
        graph = scopes.Graph()
        feeds: dict[Tensor, Any] = {}

        def argument(leaf: Any) -> Any:
            if not (is_tensor_argument(leaf) or isinstance(leaf, (float, complex)) or hasattr(type(leaf), "assign")):
                return leaf
            value = scopes.runtime().eager.tensor(leaf)
            made = Builder(graph).make("Placeholder", (), {"dtype": value.dtype, "shape": value.shape}, "arg")
            feeds[made] = value.numpy()
            return made

        with graph:
            value = call(*nest.map_leaves(argument, args), **nest.map_leaves(argument, kwargs))
        leaves = nest.flatten(value)
        with scopes.runtime().session(graph=graph) as session:
            values = iter(session.run([t for t in leaves if isinstance(t, Tensor)], feeds))
        make = scopes.runtime().eager.const
        return nest.pack(value, [make(next(values), t.dtype) if isinstance(t, Tensor) else t for t in leaves])

    return run
