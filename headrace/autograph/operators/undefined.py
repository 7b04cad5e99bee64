"""Variables without a value."""

from __future__ import annotations

from typing import Any, Final

from headrace import nest
from headrace.api import scopes
from headrace.errors import UndefinedError
from headrace.ir.graph import Tensor


class Undefined:
    """Value of a variable that has none.

    Args:
      reason: the text of the error of a read, with `{name}` for the variable; "" for that of Python.
    """

    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return "<undefined>"


class Maybe:
    """Value of a variable that has one only if a tensor is true.

    Jumps and loops make such values: a variable that a branch assigns before `break` has a value if the loop ended so.

    Args:
      value: the value.
      has: a boolean scalar: whether the variable has it.
      reason: the text of the error of a read.
    """

    __slots__ = ("has", "reason", "value")

    def __init__(self, value: Any, has: Any, reason: str) -> None:
        self.value = value
        self.has = has
        self.reason = reason

    def checked(self, name: str) -> Any:
        """Returns the value behind an assertion."""
        b = scopes.builder(self.has)
        with scopes.control_dependencies([b.Assert(self.has, [self.reason.format(name=name)])]):
            return nest.map_leaves(_checked, self.value)


def _checked(x: Any) -> Any:
    return scopes.builder(x).Identity(x) if isinstance(x, Tensor) else x


UNDEFINED: Final = Undefined()


def ld(value: Any, name: str) -> Any:
    """Returns the value of a variable.

    Raises:
      UndefinedError: it has none; the text says in which branch it is missing, if a tensor decided.
    """
    if value.__class__ is Undefined:
        reason = value.reason or "cannot access local variable '{name}' where it is not associated with a value"
        raise UndefinedError(reason.format(name=name))
    if value.__class__ is Maybe:
        return value.checked(name)
    return value


def deleted(value: Any, name: str) -> Undefined:
    """Returns the value of a variable after `del`."""
    ld(value, name)
    return Undefined("cannot access local variable '{name}' where it is not associated with a value; it was deleted")
