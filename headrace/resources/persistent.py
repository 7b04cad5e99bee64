"""Persistent vectors: a change makes a new vector that shares almost all storage.

The elements are in the leaves of a 32-way tree of tuples, in order, 32 to a leaf. The last leaf, which may be partly
filled, is kept separately as the *tail*. So `push` and `pop` mostly copy one short tuple, and `set` copies the path to
one leaf. All are O(log32 n), independent of the earlier versions that are still in use, and elements that no version
contains are freed at once. (The structure is that of Clojure's vectors. Nothing is mutated, so no lock is needed.)

    root        ( leaf0, leaf1, ..., leafk )        depth 1 (`_shift` 5); deeper trees nest tuples of such nodes
    tail        ( v, v, ... )                       1 to 32 elements; empty only in the empty vector

A missing element is `BLANK`. Full nodes of missing elements are the same objects in all vectors, so that a sum of
vectors (`merged`) can skip them: its cost depends on the number of elements that exist.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

_BITS = 5
_WIDTH = 1 << _BITS
_MASK = _WIDTH - 1


class _Blank:
    def __repr__(self) -> str:
        return "BLANK"


BLANK: Final = _Blank()
_BLANKS: Final[list[Any]] = [BLANK]  # a missing element, a leaf of them, a node of such leaves, ...
for _ in range(7):  # enough for 2**35 elements
    _BLANKS.append((_BLANKS[-1],) * _WIDTH)


class Vector(Generic[T]):
    """Immutable sequence with cheap `push`, `pop` and `set`.

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
    def blank(cls, n: int) -> Vector[T]:
        """A vector of `n` missing elements (`BLANK`); O(log n)."""
        if n == 0:
            return cls()
        count = (n - 1) // _WIDTH  # nodes of the level; all but the last are full
        last: Any = _BLANKS[1]
        level = 1
        while count > _WIDTH:
            groups, rest = divmod(count - 1, _WIDTH)
            last, count, level = (_BLANKS[level],) * rest + (last,), groups + 1, level + 1
        root = (_BLANKS[level],) * (count - 1) + (last,) if count else ()
        tail: Any = (BLANK,) * ((n - 1) % _WIDTH + 1)
        return cls(root, level * _BITS, n, tail)

    def push(self, value: T) -> Vector[T]:
        """This vector with `value` added at its end."""
        size, tail, root, shift = self._size, self._tail, self._root, self._shift
        if len(tail) < _WIDTH:
            return Vector(root, shift, size + 1, (*tail, value))
        start = size - _WIDTH  # the index of the tail, now full, in the tree
        if start >> _BITS == 1 << shift:
            root, shift = (root, _path(tail, shift)), shift + _BITS
        else:
            root = _with_leaf(root, shift, start, tail)
        return Vector(root, shift, size + 1, (value,))

    def pop(self) -> tuple[Vector[T], T]:
        """This vector without its last element, and that element; `IndexError` if it is empty."""
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

    def merged(self, other: Vector[T], f: Callable[[T, T], T]) -> Vector[T]:
        """The elementwise `f(a, b)` of this vector and `other`, which has the same length.

        If only one of the two elements exists, it is the result. The cost is O(k log n) if k elements of one of the
        vectors exist.
        """
        root = _merged(self._root, other._root, self._shift, f)
        return Vector(root, self._shift, self._size, _merged(self._tail, other._tail, 0, f))

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
    """A node of `shift` bits whose only leaf is `leaf`."""
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
    out = (*node[:at], new, *node[at + 1 :])
    nothing = _BLANKS[shift // _BITS]
    if new is nothing and len(out) == _WIDTH and all(child is nothing for child in out):
        full: tuple[Any, ...] = _BLANKS[shift // _BITS + 1]
        return full
    return out


def _merged(a: tuple[Any, ...], b: tuple[Any, ...], shift: int, f: Callable[[Any, Any], Any]) -> tuple[Any, ...]:
    nothing = _BLANKS[shift // _BITS]
    if not shift:
        return tuple([y if x is nothing else x if y is nothing else f(x, y) for x, y in zip(a, b, strict=True)])
    below = shift - _BITS
    return tuple(
        [y if x is nothing else x if y is nothing else _merged(x, y, below, f) for x, y in zip(a, b, strict=True)]
    )
