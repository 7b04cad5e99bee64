"""Methods that change containers of Python."""

from __future__ import annotations

from typing import Any, Final

from headrace.autograph.operators import iterables, journal, values
from headrace.autograph.operators.branches import Failure
from headrace.autograph.operators.lists import TensorList
from headrace.errors import AutographError

_CHANGES: Final = frozenset(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft popleft "
    "extendleft rotate intersection_update difference_update symmetric_difference_update".split()
)


def method(f: Any) -> Any:
    """Returns a method of a container that notes its change in the journal."""
    owner, name = f.__self__, f.__name__
    if not isinstance(owner, journal.CONTAINERS) or name not in _CHANGES:
        return f

    def call(*args: Any, **kwargs: Any) -> Any:
        if isinstance(owner, list) and name == "pop" and args and values.is_symbolic(args[0]):
            raise AutographError("pop() of a list takes an index that Python knows; a tensor decides it here")
        if isinstance(owner, list) and name == "pop" and not owner and journal.is_tracing():
            raise Failure(IndexError("pop from empty list"))  # the graph decides whether this runs
        if isinstance(owner, list) and name == "extend" and args:
            args = (rows(args[0]), *args[1:])
        journal.touch(owner)
        return f(*args, **kwargs)

    return call


def append(items: Any, x: Any) -> None:
    """Adds an element to a list of Python or of a graph."""
    if isinstance(items, list):
        journal.touch(items)
    items.append(x)


def rows(x: Any) -> Any:
    """Returns the elements by which a list is extended.

    Raises:
      AutographError: only the graph knows their number.
    """
    found = iterables.of(x)
    if found is None:
        return x
    if found.static_length is None:
        raise AutographError(
            "a list is extended by a tensor whose number of rows only the graph knows; append its rows in a 'for' "
            "statement"
        )
    return list(found)


def is_graph_list(x: Any) -> bool:
    """Whether `x` is a list whose length only the graph knows."""
    return isinstance(x, TensorList)
