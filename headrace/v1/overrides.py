"""Functions that are called in place of functions of the API for some arguments.

Ragged tensors and `tf.experimental.dispatch_for_api` register overrides. `graph.in_default_graph`, the wrapper of the
functions of the API, asks them before each call, once there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: Function of an API function and of its arguments. It returns the result, or NotImplemented for other arguments.
Override = Callable[[Callable[..., Any], Any, Any], Any]

#: Pairs of a predicate of API functions and an override of those that satisfy it. The first override decides.
registered: Final[list[tuple[Callable[[Callable[..., Any]], bool], Override]]] = []

_of_api: Final[dict[Callable[..., Any], tuple[Override, ...]]] = {}


def register(applies: Callable[[Callable[..., Any]], bool], override: Override, is_first: bool = False) -> None:
    """Registers an override.

    Args:
      applies: whether the override is asked for calls of an API function.
      override: the override.
      is_first: whether it is asked before those that are registered already.
    """
    registered.insert(0 if is_first else len(registered), (applies, override))
    changed()


def changed() -> None:
    """Forgets which overrides are asked for which function, after an `applies` has changed."""
    _of_api.clear()


def call(api: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the result of the first override that takes the arguments; NotImplemented if none does."""
    found = _of_api.get(api)
    if found is None:
        found = _of_api[api] = tuple(override for applies, override in registered if applies(api))
    for override in found:
        result = override(api, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented
