"""Adapters that give headrace's functions the argument names and order of TensorFlow 1.

    argmax = named(reductions.argmax, "input axis name dimension=axis output_type")

Each word is one of TensorFlow 1's arguments, in order; `old=new` passes the argument `old` as `new`, for arguments that
TensorFlow renamed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from headrace.v1.graph import in_default_graph

_NONE = inspect.Parameter.empty


def named(f: Callable[..., Any], arguments: str, source: str = "") -> Callable[..., Any]:
    """`f` with other argument names, called with the default graph entered if no graph is.

    Args:
      f: a function of headrace.
      arguments: TensorFlow 1's names; see the module's text. An argument that `f` does not have is accepted if it is
        None, and for `word!` with any value.
      source: TensorFlow's name of the function; default: the name of `f`.

    Returns:
      A function that raises TypeError for unknown arguments and for an argument given under two names.
    """
    own = inspect.signature(f).parameters
    meaning: dict[str, str] = {}
    ignored = set()
    for word in arguments.split():
        name, _, means = word.rstrip("!").partition("=")
        meaning[name] = means or name
        if word.endswith("!"):
            ignored.add(name)
    order = list(meaning)
    title = source or f.__name__

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(order):
            raise TypeError(f"{title}() takes at most {len(order)} arguments ({', '.join(order)}), got {len(args)}")
        given: dict[str, Any] = {}
        seen: dict[str, str] = {}
        for name, value in (*zip(order, args, strict=False), *kwargs.items()):
            means = meaning.get(name)
            if means is None:
                raise TypeError(f"{title}() has no argument {name!r}; it has {', '.join(order)}")
            if value is None and (name != means or (means in own and own[means].default is not _NONE)):
                continue  # not given
            if name in ignored or (value is None and means not in own):
                continue
            if means in seen or (name in kwargs and name in order[: len(args)]):
                raise TypeError(f"{title}() got {means!r} twice: as {seen.get(means, name)!r} and as {name!r}")
            if means not in own:
                raise TypeError(f"{title}({name}={value!r}): headrace has nothing that does this; leave {name} out")
            seen[means], given[means] = name, value
        return f(**given)

    out = in_default_graph(call)
    out.__name__ = out.__qualname__ = title.rpartition(".")[2]
    out.__signature__ = _signature(own, meaning)  # type: ignore[attr-defined]
    return out


def _signature(own: Any, meaning: dict[str, str]) -> inspect.Signature:
    """Signature for `help` and `inspect.signature`."""
    renamed = {means for name, means in meaning.items() if name != means}
    parameters: list[inspect.Parameter] = []
    for name in meaning:
        default = own[name].default if name in own else None
        if default is _NONE and (name in renamed or (parameters and parameters[-1].default is not _NONE)):
            default = None
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters)
