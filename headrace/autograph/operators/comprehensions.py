"""Comprehensions over tensors, and conditions in them that tensors decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.autograph.operators import branches, containers, iterables
from headrace.autograph.operators.logic import decided
from headrace.autograph.operators.loops import for_

Element = Callable[[Any], Any]


def list_comp(x: Any, element: Element, keeps: Element | None = None) -> Any:
    """Returns the list of a comprehension; one of a graph if tensors decide its length.

    Args:
      x: the object that it iterates over.
      element: returns the element of the list for an item.
      keeps: whether an item has an element; None: all have.
    """
    rows = iterables.of(x)
    cell: list[Any] = [[]]

    def set_(new: Any) -> None:
        cell[0] = new[0]

    state = (("the list of a comprehension",), lambda: (cell[0],), set_)

    def body(item: Any) -> None:
        def add() -> None:
            containers.append(cell[0], element(item))

        if keeps is None:
            add()
            return
        add.__wrapped__ = element  # type: ignore[attr-defined]
        branches.if_(keeps(item), add, _nothing, *state)

    body.__wrapped__ = element  # type: ignore[attr-defined]
    if rows is not None and (rows.static_length is None or keeps is not None):
        for_(rows, body, None, *state)
    else:
        for item in x if rows is None else rows:
            body(item)
    return cell[0]


def _nothing() -> None:
    pass


def gen_exp(x: Any, element: Element, keeps: Element | None = None) -> Any:
    """Returns the elements of a generator expression: a generator, or a list of a graph.

    Args:
      x: the object that it iterates over.
      element: returns the element for an item.
      keeps: whether an item has an element; None: all have.

    Raises (when it is iterated over):
      AutographError: a tensor decides whether an item of a Python object has an element.
    """
    rows = iterables.of(x)
    if rows is not None and (rows.static_length is None or keeps is not None):
        return list_comp(rows, element, keeps)
    return (element(item) for item in (x if rows is None else rows) if keeps is None or decided(keeps(item)))
