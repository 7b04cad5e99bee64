"""Functions whose first two arguments `tf.contrib` has in the other order than `tf.losses` and `tf.metrics`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def swapped(
    f: Callable[..., Any], first: str, second: str, path: str, dropped: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Returns `f` with the arguments `first` and `second`, which are its second and its first.

    Args:
      f: the function.
      first, second: names of the arguments.
      path: TensorFlow's name of the function, such as "tf.contrib.metrics.streaming_recall".
      dropped: names of arguments that the result does not have.
    """
    own = list(inspect.signature(f).parameters.values())
    head = [p.replace(name=n, default=inspect.Parameter.empty) for p, n in zip(own[:2], (first, second), strict=True)]
    signature = inspect.Signature([*head, *(p for p in own[2:] if p.name not in dropped)])
    name = path.rpartition(".")[2]

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeError(f"{name}(): {e}; its arguments are {', '.join(signature.parameters)}") from None
        one, other = given.pop(first), given.pop(second)
        return f(other, one, **given)

    call.__name__ = call.__qualname__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__doc__ = f"""Computes `{f.__module__.removeprefix("headrace.v1.")}.{f.__name__}`, with `{first}` first.

    Source: TensorFlow's `{path}`.
    """
    return call
