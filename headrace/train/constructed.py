"""Objects that keep the arguments of their constructor, with which `hr.load` makes them again."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


class Constructed:
    """Base class of optimizers and schedules."""

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Creates the object and keeps the arguments."""
        self = super().__new__(cls)
        self._given = args, kwargs
        return self


def arguments_of(x: Constructed) -> dict[str, Any]:
    """Returns the arguments with which an object was made, by name."""
    args, kwargs = x._given
    return inspect.signature(type(x)).bind(*args, **kwargs).arguments


def construct(x: Constructed, arguments: Mapping[str, Any]) -> None:
    """Initializes an object that `__new__` made without arguments."""
    x._given = (), dict(arguments)
    type(x).__init__(x, **arguments)
