"""A table of named things that remembers who registered each, and suggests names on a miss.

One class serves op types, kernel overrides and devices (after TensorFlow's `framework/registry.py`: a duplicate's
error says where the first registration was).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

V = TypeVar("V")


class DuplicateError(KeyError):
    """The name is taken; the message says by which line."""

    def __str__(self) -> str:
        return str(self.args[0])


class Registry(Generic[V]):
    """A dict from name to value with good errors.

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

    def register(self, name: str, value: V, depth: int = 1) -> None:
        """Adds `value`; `depth` frames up is the line remembered as its home."""
        frame = sys._getframe(depth)
        here = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if name in self._items:
            raise DuplicateError(f"{self.kind} {name!r} is registered already, at {self._where[name]}")
        self._items[name] = value
        self._where[name] = here

    def get(self, name: str) -> V:
        """The value, or a `LookupError` that lists near names."""
        try:
            return self._items[name]
        except KeyError:
            pass
        import difflib  # slow to import, and only needed here

        near = difflib.get_close_matches(name, self._items, n=3)
        hint = "; near: " + ", ".join(map(repr, near)) if near else ""
        raise LookupError(f"no {self.kind} named {name!r} is registered{hint}")

    def find(self, name: str) -> V | None:
        """The value, or None."""
        return self._items.get(name)

    def where(self, name: str) -> str:
        """The `file:line` that registered `name`."""
        return self._where[name]

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
