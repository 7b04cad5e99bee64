"""Transforms of functions (gradients, batches) outside of graphs: traced once for each signature.

The traces of a transform are kept with the Python function. So `hr.grad(f)(x)` in a loop, which makes a new
transform in each iteration, finds the trace of the call before.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from headrace import nest, tracebacks
from headrace.api import tracing
from headrace.jit.cache import Traces
from headrace.jit.function import Function
from headrace.jit.signature import Parameters


def anywhere(f: Callable[..., Any], key: tuple[Any, ...], call: Callable[..., Any]) -> Traces:
    """Returns `call`, a transform of `f` that works in a graph, for calls anywhere.

    Outside of graphs a call is traced and compiled once for each signature. Floats are tensors there. The traces of `f`
    are kept as long as `f`, so a transform that is made again finds them.

    Args:
      f: the function.
      key: the name and the other arguments of the transform, which identify it.
      call: the transformed function.
    """
    known = traces_of(f)
    found = None if known is None else known.get(key)
    if found is None:
        title = tracing.titled(f)
        found = Traces(
            *(call, f, lambda args, kwargs: call(*args, **kwargs), title, Parameters(f)),
            has_weak_floats=True,
            obeys_run_eagerly=False,
        )
        if known is not None:
            known[key] = found
    return found


def transformed(f: Callable[..., Any], key: tuple[Any, ...], call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the transform of `f` as a function that works anywhere; see `anywhere`."""
    name = getattr(f, "__name__", "function").replace("<lambda>", "function")

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return traces(args, kwargs)
        except BaseException as e:
            tracebacks.hide(e)
            raise

    traces = anywhere(f, key, call)
    run.__name__ = run.__qualname__ = f"{key[0]}_of_{name}"
    run.__wrapped__ = f  # type: ignore[attr-defined]
    return run


def library_function(f: Callable[..., Any]) -> Function:
    """Returns the jitted form of `f` for recursion, the same one at each call."""
    known = traces_of(f)
    if known is None:
        return Function(f)
    found = known.get("library")
    if found is None:
        found = known["library"] = Function(f)
    return found


def hashable(structure: Any) -> Any:
    """Returns a structure of numbers as part of a key."""
    return nest.outline(structure), tuple(nest.flatten(structure))


class _Kept:
    """Traces of transforms of a Python function, as an attribute of the function.

    Args:
      owner: the function; wrappers get copies of its attributes, which are not theirs.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)
        self.traces: dict[Any, Any] = {}


def traces_of(f: Any) -> dict[Any, Any] | None:
    """Returns the traces of the transforms of `f`, or None."""
    if not isinstance(f, types.FunctionType) and not getattr(f, "keeps_traces", False):
        return None
    attributes = vars(f)
    found = attributes.get(_ATTRIBUTE)
    if not isinstance(found, _Kept) or found.owner() is not f:
        found = attributes[_ATTRIBUTE] = _Kept(f)
    return found.traces


_ATTRIBUTE: Final = "_headrace_traces"
