"""Python functions that a graph calls, known to its operations by a *token*.

A graph is data, and a token is what of a Python function can be written into it. The table here says which function a
token means in this process. It does not keep the functions alive: whoever makes an operation that calls one keeps the
`Callback` (`api.py_func` gives it to the graph).
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
    """A Python function that operations call.

    Attributes:
      function: takes arrays, one for each input, and returns one, or a sequence of them.
      token: what it is called in operations of this process; no other function ever has the same.
      gradient: makes, when first asked, the function that takes inputs, outputs and the gradients of these, and returns
        the gradients of the inputs; None: it has none.
    """

    __slots__ = ("__weakref__", "_gradient", "function", "gradient", "token")

    def __init__(self, function: Callable[..., Any], gradient: Callable[[], Callable[..., Any]] | None = None) -> None:
        self.function = function
        self.gradient = gradient
        self._gradient: Callback | None = None
        self.token = f"pyfunc_{next(_numbers)}"
        _by_token[self.token] = self

    def back(self) -> Callback | None:
        """The callback of the gradient, which lives as long as this one; None if there is none."""
        if self._gradient is None and self.gradient is not None:
            self._gradient = Callback(self.gradient())
        return self._gradient

    def __repr__(self) -> str:
        return f"<Callback {self.token!r}: {self.function!r}>"


def find(token: str) -> Callback:
    """What `token` means here.

    Raises:
      InvalidArgumentError: nothing. The graph came from another process, or the one it was made in is gone.
    """
    found = _by_token.get(token)
    if found is None:
        raise InvalidArgumentError(
            f"callback {token} is not found: a graph that calls Python functions works in the process that made it, as "
            "long as it is there; make the operation anew with py_func"
        )
    return found
