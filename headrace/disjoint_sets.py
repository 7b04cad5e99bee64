"""Disjoint sets: a partition of objects into sets that are joined (Galler and Fischer, 1964)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Partition of objects. Each is a set of its own at first.

    Example:
      sets = DisjointSets[str]()
      sets.join("a", "b")
      sets.root("b")  # "a"
    """

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def __contains__(self, x: T) -> bool:
        """Whether the set of an object was asked for before."""
        return x in self._parent

    def root(self, x: T) -> T:
        """The object that stands for the set of `x`."""
        root = x
        while (up := self._parent.setdefault(root, root)) is not root:
            root = up
        while x is not root:
            self._parent[x], x = root, self._parent[x]
        return root

    def join(self, a: T, b: T) -> bool:
        """Joins two sets, for which the root of `a` stands; returns whether they were different."""
        a, b = self.root(a), self.root(b)
        self._parent[b] = a
        return a is not b
