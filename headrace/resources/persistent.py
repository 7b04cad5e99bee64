"""A persistent vector: every change gives a new vector, and both share almost all of their storage.

The elements lie in the leaves of a 32-way tree of tuples, in order, 32 to a leaf; the last, perhaps partly filled leaf
hangs apart as the *tail*. So `push` and `pop` mostly copy one short tuple, and `set` copies the path to one leaf: all
are O(log32 n), whichever of the earlier versions are still in use, and what no version holds is freed at once.
(The structure is the one Clojure made known; nothing is mutated, so it needs no lock.)

    root        ( leaf0, leaf1, ..., leafk )        depth 1 (`_shift` 5); deeper trees nest tuples of such nodes
    tail        ( v, v, ... )                       1 to 32 elements; empty only in the empty vector
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

_BITS = 5
_WIDTH = 1 << _BITS
_MASK = _WIDTH - 1


class Vector(Generic[T]):
    """An immutable sequence with cheap `push`, `pop` and `set`.

    >>> v = Vector.of("abc")
    >>> list(v.push("d")), list(v.set(0, "x")), list(v)
    (['a', 'b', 'c', 'd'], ['x', 'b', 'c'], ['a', 'b', 'c'])
    """

    __slots__ = ("_root", "_shift", "_size", "_tail")

    _root: tuple[Any, ...]  # the elements before the tail
    _shift: int  # bits of an index below the root's children; grows by _BITS with each level
    _size: int
    _tail: tuple[T, ...]

    def __init__(self, root: tuple[Any, ...] = (), shift: int = _BITS, size: int = 0, tail: tuple[T, ...] = ()) -> None:
        self._root = root
        self._shift = shift
        self._size = size
        self._tail = tail

    @classmethod
    def of(cls, values: Iterable[T]) -> Vector[T]:
        """A vector of `values`; O(n)."""
        all_ = tuple(values)
        n = len(all_)
        start = (n - 1) // _WIDTH * _WIDTH if n else 0
        nodes: list[tuple[Any, ...]] = [all_[i : i + _WIDTH] for i in range(0, start, _WIDTH)]
        shift = _BITS
        while len(nodes) > _WIDTH:
            nodes = [tuple(nodes[i : i + _WIDTH]) for i in range(0, len(nodes), _WIDTH)]
            shift += _BITS
        return cls(tuple(nodes), shift, n, all_[start:])

    @classmethod
    def filled(cls, value: T, n: int) -> Vector[T]:
        """`n` times the same value; O(log n), as equal nodes are the same object."""
        if n == 0:
            return cls()
        count = (n - 1) // _WIDTH  # nodes on the level; the first count - 1 are `full`, the last is `last`
        full: tuple[Any, ...] = (value,) * _WIDTH
        last = full
        shift = _BITS
        while count > _WIDTH:
            groups, rest = divmod(count - 1, _WIDTH)
            full, last, count = (full,) * _WIDTH, (full,) * rest + (last,), groups + 1
            shift += _BITS
        root = (full,) * (count - 1) + (last,) if count else ()
        return cls(root, shift, n, (value,) * ((n - 1) % _WIDTH + 1))

    def push(self, value: T) -> Vector[T]:
        """This vector with `value` after its end."""
        size, tail, root, shift = self._size, self._tail, self._root, self._shift
        if len(tail) < _WIDTH:
            return Vector(root, shift, size + 1, (*tail, value))
        start = size - _WIDTH  # where the tail, now full, goes into the tree
        if start >> _BITS == 1 << shift:
            root, shift = (root, _path(tail, shift)), shift + _BITS
        else:
            root = _with_leaf(root, shift, start, tail)
        return Vector(root, shift, size + 1, (value,))

    def pop(self) -> tuple[Vector[T], T]:
        """This vector without its last element, and that element; `IndexError` if there is none."""
        size, tail, root, shift = self._size, self._tail, self._root, self._shift
        if not size:
            raise IndexError("pop from an empty vector")
        value = tail[-1]
        if len(tail) > 1 or size == 1:
            return Vector(root, shift, size - 1, tail[:-1]), value
        root, tail = _without_leaf(root, shift)
        while shift > _BITS and len(root) == 1:
            root, shift = root[0], shift - _BITS
        return Vector(root, shift, size - 1, tail), value

    def set(self, index: int, value: T) -> Vector[T]:
        """This vector with `value` at `index` (0 <= index < len)."""
        start = self._size - len(self._tail)
        if index >= start:
            at = index - start
            tail = (*self._tail[:at], value, *self._tail[at + 1 :])
            return Vector(self._root, self._shift, self._size, tail)
        return Vector(_with_value(self._root, self._shift, index, value), self._shift, self._size, self._tail)

    def __getitem__(self, index: int) -> T:
        start = self._size - len(self._tail)
        if not 0 <= index < self._size:
            raise IndexError(index)
        if index >= start:
            return self._tail[index - start]
        node, shift = self._root, self._shift
        while shift:
            node = node[(index >> shift) & _MASK]
            shift -= _BITS
        value: T = node[index & _MASK]
        return value

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        nodes: Iterable[Any] = self._root
        for _ in range(self._shift // _BITS):
            nodes = chain.from_iterable(nodes)
        return chain(nodes, self._tail)


def _path(leaf: tuple[Any, ...], shift: int) -> tuple[Any, ...]:
    """A node `shift` bits high whose only leaf is `leaf`."""
    node = leaf
    for _ in range(0, shift, _BITS):
        node = (node,)
    return node


def _with_leaf(node: tuple[Any, ...], shift: int, start: int, leaf: tuple[Any, ...]) -> tuple[Any, ...]:
    if shift == _BITS:
        return (*node, leaf)
    at = (start >> shift) & _MASK
    if at == len(node):
        return (*node, _path(leaf, shift - _BITS))
    return (*node[:at], _with_leaf(node[at], shift - _BITS, start, leaf))


def _without_leaf(node: tuple[Any, ...], shift: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if shift == _BITS:
        return node[:-1], node[-1]
    child, leaf = _without_leaf(node[-1], shift - _BITS)
    return (*node[:-1], child) if child else node[:-1], leaf


def _with_value(node: tuple[Any, ...], shift: int, index: int, value: Any) -> tuple[Any, ...]:
    at = (index >> shift) & _MASK
    new = value if not shift else _with_value(node[at], shift - _BITS, index, value)
    return (*node[:at], new, *node[at + 1 :])
