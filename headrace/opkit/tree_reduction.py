"""Pairwise reduction in a tree: ((x0 + x1) + (x2 + x3)) + x4.

A collective's kernel adds in this order, and so do the additions of small tensors that are sent between devices. Floats
that are added in the same order give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def tree_reduce(combine: Callable[[int, T, T], T], items: Sequence[T]) -> T:
    """Reduces at least one item by `combine(i, x, y)`, where `i` is the position of `x`.

    For a result of several items it is the position of the first of them.

    >>> tree_reduce(lambda i, x, y: f"({x}{y})", list("abcde"))
    '(((ab)(cd))e)'
    """
    found, step = list(items), 1
    while step < len(found):
        for i in range(0, len(found) - step, 2 * step):
            found[i] = combine(i, found[i], found[i + step])
        step *= 2
    return found[0]
