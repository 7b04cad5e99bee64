"""Recursion of plain functions as calls of a function of the graph.

A function that calls itself is traced again for each call, as long as Python decides how deep. If a tensor decides, the
trace would not end. The sign of it is a call with the same Python values, and tensors of the same dtypes and shapes, as
a call of the function that is being traced. Such a call becomes a call of a function in the graph's library, which may
call itself (`Runtime.library_function`).
"""

from __future__ import annotations

import contextvars
import functools
import types
from collections.abc import Callable, Hashable
from typing import Any, Final

from headrace import nest
from headrace.api import scopes
from headrace.ir.graph import Tensor

_active: Final[contextvars.ContextVar[frozenset[Hashable]]] = contextvars.ContextVar(
    "headrace_converted_calls", default=frozenset()
)


def checked(f: types.FunctionType, converted: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the converted form of a function, whose calls in a graph may be recursive.

    Args:
      f: the function.
      converted: its converted form.
    """

    @functools.wraps(converted)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = _signature(f, args, kwargs)
        if key is None:
            return converted(*args, **kwargs)
        active = _active.get()
        if key in active:
            return scopes.runtime().library_function(f)(*args, **kwargs)
        token = _active.set(active | {key})
        try:
            return converted(*args, **kwargs)
        finally:
            _active.reset(token)

    return call


def _signature(f: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Returns a key of a call; None for a call without symbolic tensors."""
    leaves = nest.flatten((args, kwargs))
    if not any(isinstance(x, Tensor) for x in leaves):
        return None
    key: list[Hashable] = [id(f), nest.outline((args, kwargs))]
    for x in leaves:
        if isinstance(x, Tensor):
            key.append((x.dtype, x.static_shape))
        elif isinstance(x, (int, float, complex, str, bytes)):
            key.append((type(x), x))
        else:
            key.append(id(x))
    return tuple(key)
