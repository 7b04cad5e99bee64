"""Objects that keep the arguments of their constructor, with which `hr.load` makes them again."""

from __future__ import annotations

import inspect
from typing import Any


class Constructed:
    """Base class of optimizers and schedules."""

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Creates the object and keeps the arguments."""
        self = super().__new__(cls)
        self._given = args, kwargs
        return self

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments with which the object was made, by name."""
        args, kwargs = self._given
        return inspect.signature(type(self)).bind(*args, **kwargs).arguments

    def construct(self, **arguments: Any) -> None:
        """Initializes an object that `__new__` made without arguments."""
        self._given = (), arguments
        type(self).__init__(self, **arguments)
