"""Journal of changes to Python objects during a trace.

A branch is traced whether it will run or not, so its changes to lists, dictionaries and attributes must not stay. The
operators that change objects announce each first change to the journal of the innermost trace. After the trace, the
journal gives the new contents, which become results of the conditional or loop variables, and restores the old ones.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from typing import Any, Final

from headrace import nest
from headrace.autograph.operators.undefined import Undefined
from headrace.records import record

_journals: Final[contextvars.ContextVar[Journal | None]] = contextvars.ContextVar("headrace_journal", default=None)
CONTAINERS: Final = (list, dict, set, collections.deque, collections.defaultdict, collections.OrderedDict)
_MISSING: Final = Undefined("the attribute '{name}' has a value in one branch only")
_DEPTH: Final = 6  # levels of objects within objects in which a changed object is looked for


@record(frozen=True, slots=True, eq=False)
class Place:
    """A container, or an attribute of an object, whose contents change.

    Attributes:
      holder: the container or the object.
      attribute: the name of the attribute; "" for a container.
    """

    holder: Any
    attribute: str = ""

    @property
    def key(self) -> tuple[int, str]:
        """Identity of the place."""
        return id(self.holder), self.attribute

    def load(self) -> Any:
        """Returns the present contents."""
        if self.attribute:
            return getattr(self.holder, self.attribute, _MISSING)
        return self.holder.copy()

    def store(self, value: Any) -> None:
        """Sets the contents, which an outer trace notes as a change."""
        touch(self.holder, self.attribute)
        self.restore(value)

    def restore(self, value: Any) -> None:
        """Sets the contents without a note."""
        holder = self.holder
        if self.attribute:
            if value is _MISSING:
                with contextlib.suppress(AttributeError):
                    delattr(holder, self.attribute)
            else:
                setattr(holder, self.attribute, value)
        elif isinstance(holder, list):
            holder[:] = value
        else:
            holder.clear()
            (holder.extend if isinstance(holder, collections.deque) else holder.update)(value)

    def label(self, names: Iterable[tuple[str, Any]] = ()) -> str:
        """Returns the user's text for the place, by the names of known objects."""
        name = next((n for n, x in names if x is self.holder), f"a {type(self.holder).__name__}")
        return f"{name}.{self.attribute}" if self.attribute else name


class Journal:
    """Changes of one trace.

    Attributes:
      outer: names of changed objects of outer functions and modules, by id.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[int, str], tuple[Place, Any]] = {}
        self.outer: dict[int, str] = {}

    def note(self, place: Place) -> None:
        """Keeps the contents of a place before its first change."""
        if place.key not in self._before:
            self._before[place.key] = place, place.load()

    def undo(self) -> dict[tuple[int, str], tuple[Place, Any, Any]]:
        """Restores all contents; returns the places with their contents before and after the trace."""
        out = {key: (place, before, place.load()) for key, (place, before) in self._before.items()}
        for place, before in reversed(self._before.values()):
            place.restore(before)
        return out


@contextlib.contextmanager
def recording() -> Iterator[Journal]:
    """Returns a context whose changes a new journal notes."""
    journal = Journal()
    token = _journals.set(journal)
    try:
        yield journal
    finally:
        _journals.reset(token)


def outer(x: Any, name: str) -> Any:
    """Returns an object of an outer function or module that is about to change.

    Its change in a traced block is one of an object outside of the block.
    """
    journal = _journals.get()
    if journal is not None:
        journal.outer[id(x)] = name
    return x


def is_tracing() -> bool:
    """Whether a branch or a body is being traced."""
    return _journals.get() is not None


def touch(holder: Any, attribute: str = "") -> None:
    """Notes that a container, or an attribute, is about to change."""
    journal = _journals.get()
    if journal is not None:
        journal.note(Place(holder, attribute))


def reachable(roots: Iterable[Any]) -> dict[int, str]:
    """Returns the names of the objects that can be reached, by id.

    Args:
      roots: pairs of a name and an object.
    """
    found: dict[int, str] = {}
    todo = [(name, x, 0) for name, x in roots]
    while todo:
        name, x, depth = todo.pop()
        if id(x) in found or isinstance(x, (str, bytes, int, float, type)) or depth > _DEPTH:
            continue
        found[id(x)] = name
        if isinstance(x, dict):
            todo += [(f"{name}[{k!r}]", v, depth + 1) for k, v in x.items()]
        elif isinstance(x, (list, tuple, collections.deque)):
            todo += [(f"{name}[{i}]", v, depth + 1) for i, v in enumerate(x)]
        elif isinstance(x, nest.Composite) or not hasattr(x, "__dict__") or callable(x):
            slots = getattr(type(x), "__slots__", ())
            if slots and not callable(x) and not isinstance(x, nest.Composite):
                todo += [(f"{name}.{s}", getattr(x, s, None), depth + 1) for s in slots if isinstance(s, str)]
            elif callable(x) and getattr(x, "__closure__", None) is None and hasattr(x, "__dict__"):
                todo += [(f"{name}.{k}", v, depth + 1) for k, v in vars(x).items()]
            elif callable(x) and hasattr(x, "__self__"):
                todo.append((name, x.__self__, depth + 1))
        elif type(x).__module__.partition(".")[0] != "builtins":
            todo += [(f"{name}.{k}", v, depth + 1) for k, v in vars(x).items()]
    return found
