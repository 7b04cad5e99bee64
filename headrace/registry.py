"""Table of named objects that records the line of each registration.

A failed look-up suggests near names. The tables are those of op types, device types and registered gradients. As in
TensorFlow's `framework/registry.py`, the error of a duplicate names the line of the first registration.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace import plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

V = TypeVar("V")


class DuplicateError(KeyError):
    """The name is registered already; the message names the line."""

    def __str__(self) -> str:
        return str(self.args[0])


def line_of_caller(depth: int = 1) -> str:
    """Returns `file:line` of the frame `depth` levels above the caller."""
    frame = sys._getframe(depth + 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Registry(Generic[V]):
    """A dict from name to value with helpful errors.

    A missing name may be registered by a part of headrace that has not been imported yet (`later`). That part is
    imported before a name is reported as unknown and before names are listed. `get` and `sought` load plugins as well
    (`plugins`).

    Args:
      kind: the kind of the objects, for messages.

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
        """Adds a function that registers more names. It is called when a name is missing.

        A second call of `load` must have no effect.
        """
        self._later += (load,)

    def _seek(self, name: str | None) -> None:
        """Calls the functions of `later` until `name` is registered.

        Threads that do so at the same time wait for the same imports.
        """
        for load in self._later:
            load()
            if name in self._items:
                return
        self._later = ()

    def register(self, name: str, value: V, depth: int = 1) -> None:
        """Adds `value`, and records the line `depth` frames up.

        Raises:
          DuplicateError: the name is registered already.
        """
        here = line_of_caller(depth)
        if name in self._items:
            raise DuplicateError(f"{self.kind} {name!r} is registered already, at {self._where[name]}")
        self._items[name] = value
        self._where[name] = here

    def get(self, name: str) -> V:
        """Returns the value; raises `LookupError` with near names and failures of plugins."""
        if name in self:
            return self._items[name]
        failures = plugins.load()
        if name in self._items:
            return self._items[name]
        import difflib  # a slow import, needed only here

        near = difflib.get_close_matches(name, self._items, n=3)
        hint = "; near: " + ", ".join(map(repr, near)) if near else ""
        if failures:
            hint += f"; {plugins.sentence(failures)}"
        error = LookupError(f"no {self.kind} named {name!r} is registered{hint}")
        raise error from (failures[0].error if failures else None)

    def sought(self, name: str) -> V | None:
        """Returns the value, or None if it is missing after plugins are loaded."""
        if name not in self:
            plugins.load()
        return self._items.get(name)

    def find(self, name: str) -> V | None:
        """Returns the value, or None if it is missing without plugins."""
        return self._items[name] if name in self else None

    def where(self, name: str) -> str:
        """Returns the `file:line` that registered `name`."""
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
