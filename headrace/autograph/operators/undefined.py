"""Variables without a value."""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import UndefinedError


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


UNDEFINED: Final = Undefined()


def ld(value: Any, name: str) -> Any:
    """Returns the value of a variable.

    Raises:
      UndefinedError: it has none; the text says in which branch it is missing, if a tensor decided.
    """
    if value.__class__ is Undefined:
        reason = value.reason or "cannot access local variable '{name}' where it is not associated with a value"
        raise UndefinedError(reason.format(name=name))
    return value


def deleted(value: Any, name: str) -> Undefined:
    """Returns the value of a variable after `del`."""
    ld(value, name)
    return Undefined("cannot access local variable '{name}' where it is not associated with a value; it was deleted")
