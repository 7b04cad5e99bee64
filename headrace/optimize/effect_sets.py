"""Sets of the operations with effects of one graph, as bit sets.

A set is an integer with one bit for each operation. There are many such sets, most of them share most of their members,
and the only operations on them are unions and differences. The items have their numbers in topological order, so the
highest bit is the latest item.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.optimize.queries import may_be_same

if TYPE_CHECKING:
    from headrace.ir.order import Key

Item = TypeVar("Item", bound=Hashable)


class EffectSets(Generic[Item]):
    """Numbers of the items of one graph, and the state that they touch.

    Attributes:
      touched: for each item that reads or writes state, the state, and whether it may write it.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._number: dict[Item, int] = {}
        self.touched: dict[Item, Mapping[Key, bool]] = {}

    def __contains__(self, item: object) -> bool:
        return item in self._number

    def add(self, item: Item) -> int:
        """Gives `item` the next number; returns the set of it alone."""
        self._number[item] = len(self._items)
        self._items.append(item)
        return self.bit(item)

    def bit(self, item: Item) -> int:
        """Returns the set of `item` alone; the empty set if it has no number."""
        number = self._number.get(item)
        return 0 if number is None else 1 << number

    def last(self, some: int) -> Item:
        """Returns the latest member of a set that is not empty."""
        return self._items[some.bit_length() - 1]

    def members(self, some: int) -> Sequence[Item]:
        """Returns the members of a set, the latest first."""
        out = []
        while some:
            out.append(self.last(some))
            some ^= 1 << some.bit_length() - 1
        return out

    def conflicting(self, reads: int, touched: Mapping[Key, bool]) -> int:
        """Returns the members of `reads` that depend on what `touched` writes.

        A member depends on it if it reads state which an operation that touches `touched` may write.
        """
        written = [key for key, writes in touched.items() if writes]
        found = 0
        for item in self.members(reads):
            if any(may_be_same(a, b) for a in written for b in self.touched[item]):
                found |= self.bit(item)
        return found
