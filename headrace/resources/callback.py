"""Python functions that operations call, identified by *tokens*.

A graph is data, in which a token stands for a Python function. The table in this module maps tokens to functions of
this process. It does not keep the functions alive: the creator of an operation that calls one keeps the `Callback`
(`api.py_func` stores it in the graph).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, Final

from headrace.errors import InvalidArgumentError

_numbers: Final = itertools.count()
_by_token: Final[weakref.WeakValueDictionary[str, Callback]] = weakref.WeakValueDictionary()


class Callback:
    """Python function that operations call.

    Attributes:
      function: Takes an array for each input, and returns one array or a sequence of arrays.
      token: The unique name of the function in operations of this process.
      gradient: Makes, on first use, a function that takes the inputs, the outputs and the gradients of the outputs, and
        returns the gradients of the inputs. None if there is no gradient.
    """

    __slots__ = ("__weakref__", "_gradient", "function", "gradient", "token")

    def __init__(self, function: Callable[..., Any], gradient: Callable[[], Callable[..., Any]] | None = None) -> None:
        self.function = function
        self.gradient = gradient
        self._gradient: Callback | None = None
        self.token = f"pyfunc_{next(_numbers)}"
        _by_token[self.token] = self

    def back(self) -> Callback | None:
        """The callback of the gradient, kept alive by this one; None without gradient."""
        if self._gradient is None and self.gradient is not None:
            self._gradient = Callback(self.gradient())
        return self._gradient

    def __repr__(self) -> str:
        return f"<Callback {self.token!r}: {self.function!r}>"


def find(token: str) -> Callback:
    """The callback of `token` in this process.

    Raises:
      InvalidArgumentError: There is none, because the graph came from another process or its creator no longer exists.
    """
    found = _by_token.get(token)
    if found is None:
        raise InvalidArgumentError(
            f"callback {token} is not found: a graph that calls Python functions works in the process that made it, as "
            "long as it is there; make the operation anew with py_func"
        )
    return found
