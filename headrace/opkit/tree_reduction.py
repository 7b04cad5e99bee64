"""Many put together two at a time: in pairs, in pairs of pairs, and so on, ((x0 + x1) + (x2 + x3)) + x4.

A collective's kernel adds in this order, and so does the tree that small tensors go through between devices; floats
added in one order give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def tree_reduce(combine: Callable[[int, T, T], T], items: Sequence[T]) -> T:
    """All `items`, of which there is at least one, put together by `combine(i, x, y)`: `i` is where `x` began.

    >>> tree_reduce(lambda i, x, y: f"({x}{y})", list("abcde"))
    '(((ab)(cd))e)'
    """
    found, step = list(items), 1
    while step < len(found):
        for i in range(0, len(found) - step, 2 * step):
            found[i] = combine(i, found[i], found[i + step])
        step *= 2
    return found[0]
