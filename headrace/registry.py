"""A table of named things that remembers who registered each, and suggests names on a miss.

One class serves op types, kernel overrides and devices (after TensorFlow's `framework/registry.py`: a duplicate's
error says where the first registration was).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace import plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

V = TypeVar("V")


class DuplicateError(KeyError):
    """The name is taken; the message says by which line."""

    def __str__(self) -> str:
        return str(self.args[0])


def line_of_caller(depth: int = 1) -> str:
    """`file:line` of the frame that is `depth` above who asks."""
    frame = sys._getframe(depth + 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Registry(Generic[V]):
    """A dict from name to value with good errors.

    What is not there may come with a part of headrace that has not been imported yet (`later`): it is, before a name is
    said to be unknown and before names are listed. `get` and `sought` load plugins as well (`plugins`).

    >>> r = Registry("colour")
    >>> r.register("red", 1)
    >>> r.get("rad")
    Traceback (most recent call last):
    ...
    LookupError: no colour named 'rad' is registered; near: 'red'
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, V] = {}
        self._where: dict[str, str] = {}
        self._later: tuple[Callable[[], object], ...] = ()

    def later(self, load: Callable[[], object]) -> None:
        """Has `load` called, which registers more, when a name is missing. Calling it twice must do nothing more."""
        self._later += (load,)

    def _seek(self, name: str | None) -> None:
        """Registers what comes later, until `name` is there. Threads that do so at once wait for the same imports."""
        for load in self._later:
            load()
            if name in self._items:
                return
        self._later = ()

    def register(self, name: str, value: V, depth: int = 1) -> None:
        """Adds `value`; `depth` frames up is the line remembered as its home.

        Raises:
          DuplicateError: the name is taken.
        """
        here = line_of_caller(depth)
        if name in self._items:
            raise DuplicateError(f"{self.kind} {name!r} is registered already, at {self._where[name]}")
        self._items[name] = value
        self._where[name] = here

    def get(self, name: str) -> V:
        """The value, or a `LookupError` that lists near names, and what plugins could not be loaded."""
        if name in self:
            return self._items[name]
        failures = plugins.load()
        if name in self._items:
            return self._items[name]
        import difflib  # slow to import, and only needed here

        near = difflib.get_close_matches(name, self._items, n=3)
        hint = "; near: " + ", ".join(map(repr, near)) if near else ""
        if failures:
            hint += f"; {plugins.sentence(failures)}"
        error = LookupError(f"no {self.kind} named {name!r} is registered{hint}")
        raise error from (failures[0].error if failures else None)

    def sought(self, name: str) -> V | None:
        """The value, or None if it is not there once plugins are loaded."""
        if name not in self:
            plugins.load()
        return self._items.get(name)

    def find(self, name: str) -> V | None:
        """The value, or None if it is not there without plugins."""
        return self._items[name] if name in self else None

    def where(self, name: str) -> str:
        """The `file:line` that registered `name`."""
        return self._where[name]

    def __contains__(self, name: str) -> bool:
        if name not in self._items and self._later:
            self._seek(name)
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        self._seek(None)
        return iter(self._items)

    def __len__(self) -> int:
        self._seek(None)
        return len(self._items)
