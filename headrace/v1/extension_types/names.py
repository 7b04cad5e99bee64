"""Names of extension types in messages."""

from __future__ import annotations

from typing import Any, Final

_registered: Final[dict[str, type[Any]]] = {}


def register(name: str, spec: type[Any]) -> None:
    """Makes a class of descriptions known by a name, for messages.

    Raises:
      ValueError: the name is that of another class.
    """
    if name in _registered:
        where = _registered[name]
        raise ValueError(f"Name {name} has already been registered for class {where.__module__}.{where.__qualname__}.")
    _registered[name] = spec


def registered_name(spec: type[Any]) -> str | None:
    """Returns the name of a class of descriptions; None for one without."""
    return next((name for name, found in _registered.items() if found is spec), None)


def registered(name: str) -> type[Any]:
    """Returns the class of descriptions with a name.

    Raises:
      ValueError: there is none.
    """
    if name not in _registered:
        raise ValueError(f"The type {name!r} has not been registered: import the module of the extension type first")
    return _registered[name]
