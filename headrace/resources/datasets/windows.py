"""Windows of datasets, and groups of elements with equal keys."""

from __future__ import annotations

from collections import deque

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.resources.datasets.base import UNKNOWN, Call, Dataset, Element, Iterator, Pass, Through, ceil_div, scaled
from headrace.resources.datasets.elements import Elements
from headrace.resources.datasets.grouping import int64_scalar
from headrace.resources.datasets.mapping import made_dataset
from headrace.resources.datasets.state import Saved, State


class Window(Dataset):
    """Dataset of windows of another one, each a dataset for each component.

    Args:
      input: the other dataset.
      size: the number of elements in a window.
      shift: the number of elements from the start of one window to the start of the next.
      stride: the number of elements from one element of a window to the next.
      drop_remainder: whether windows with fewer elements are left out.
    """

    def __init__(self, input: Dataset, size: int, shift: int, stride: int, drop_remainder: bool) -> None:
        for what, n in (("size", size), ("shift", shift), ("stride", stride)):
            if n < 1:
                raise InvalidArgumentError(f"Window {what} must be greater than zero.")
        self.inputs = (input,)
        self._size, self._shift, self._stride, self._drop = size, shift, stride, drop_remainder

    def iterator(self, run: Pass) -> Iterator:
        input = self.inputs[0].iterator(run)
        return _WindowIterator(run, input, self._size, self._shift, self._stride, self._drop)

    def cardinality(self) -> int:
        span = (self._size - 1) * self._stride + 1
        n = self.inputs[0].cardinality()
        if self._drop:
            return scaled(n, lambda n: (n - span) // self._shift + 1 if n >= span else 0)
        return scaled(n, lambda n: ceil_div(n, self._shift))


class _WindowIterator(Through):
    __slots__ = ("_buffer", "_drop", "_is_over", "_shift", "_skip", "_span", "_stride")

    def __init__(self, run: Pass, input: Iterator, size: int, shift: int, stride: int, drop: bool) -> None:
        super().__init__(run, input)
        self._span, self._shift, self._stride, self._drop = (size - 1) * stride + 1, shift, stride, drop
        self._buffer: deque[Element] = deque()
        self._skip = 0  # elements between the last window and the next
        self._is_over = False

    def next(self) -> Element | None:
        buffer = self._buffer
        while not self._is_over and len(buffer) < self._span:
            found = self._input.next()
            if found is None:
                self._is_over = True
            elif self._skip:
                self._skip -= 1
            else:
                buffer.append(found)
        if not buffer or (self._drop and len(buffer) < self._span):
            return None
        window = [buffer[i] for i in range(0, min(self._span, len(buffer)), self._stride)]
        for _ in range(self._shift):
            if buffer:
                buffer.popleft()
            else:
                self._skip += 1
        return tuple([Elements([(x,) for x in column]) for column in zip(*window, strict=True)])

    def save(self) -> State:
        position = {"skip": self._skip, "is_over": int(self._is_over)}
        return {"buffer": [list(e) for e in self._buffer], **position, **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._buffer = deque(saved.elements("buffer", self._span))
        self._skip, self._is_over = saved.number("skip", 0, self._shift), bool(saved.number("is_over", 0, 1))


class GroupByWindow(Dataset):
    """Dataset of the elements of datasets made of groups with equal keys.

    A group that has reached its size is passed to the function at once, and the others at the end, in the order of
    their keys.

    Args:
      input: the other dataset.
      key: the function of the key of an element, an int64 scalar.
      reduce: the function from a key and a dataset of elements to a dataset.
      size: the function of the size of a group, given its key.
    """

    def __init__(self, input: Dataset, key: Call, reduce: Call, size: Call) -> None:
        self.inputs = (input,)
        self._key, self._reduce, self._size = key, reduce, size

    def iterator(self, run: Pass) -> Iterator:
        return _GroupIterator(run, self.inputs[0].iterator(run), self._key, self._reduce, self._size)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        return n if n < 0 and n != UNKNOWN else UNKNOWN


class _GroupIterator(Through):
    __slots__ = ("_groups", "_is_over", "_key", "_opened", "_present", "_reduce", "_size", "_sizes")

    def __init__(self, run: Pass, input: Iterator, key: Call, reduce: Call, size: Call) -> None:
        super().__init__(run, input)
        self._key, self._reduce, self._size = key, reduce, size
        self._groups: dict[int, list[Element]] = {}
        self._sizes: dict[int, int] = {}
        self._opened: Iterator | None = None
        self._present: tuple[int, list[Element]] = (0, [])  # the group of the iterator
        self._is_over = False

    def next(self) -> Element | None:
        while True:
            if self._opened is not None:
                found = self._opened.next()
                if found is not None:
                    return found
                self._opened = None
            if self._is_over:
                if not self._groups:
                    return None
                self._open(min(self._groups))
                continue
            element = self._input.next()
            if element is None:
                self._is_over = True
                continue
            key = int64_scalar(self._key(element, self.run), "key_func")
            size = self._sizes.get(key)
            if size is None:
                size = int64_scalar(self._size((_int64(key),), self.run), "window_size_func")
                if size <= 0:
                    raise InvalidArgumentError("Window size must be greater than zero.")
                self._sizes[key] = size
            group = self._groups.setdefault(key, [])
            group.append(element)
            if len(group) == size:
                self._open(key)

    def _open(self, key: int) -> None:
        group = self._groups.pop(key)
        self._present = key, group
        made = made_dataset(self._reduce((_int64(key), Elements(group)), self.run))
        self._opened = made.iterator(self.run)

    def save(self) -> State:
        opened = self._opened
        return {
            "groups": [[k, self._sizes.get(k, 0), [list(e) for e in g]] for k, g in self._groups.items()],
            "sizes": [[k, n] for k, n in self._sizes.items()],
            "is_over": int(self._is_over),
            "key": self._present[0],
            "present": [] if opened is None else [list(e) for e in self._present[1]],
            "opened": None if opened is None else opened.save(),
            **super().save(),
        }

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._is_over = bool(saved.number("is_over", 0, 1))
        self._sizes = {int(k): int(n) for k, n in saved.elements("sizes")}
        self._groups = {int(k): [tuple(e) for e in g] for k, _, g in saved.elements("groups")}
        opened = saved.optional("opened")
        if opened is not None:
            key = saved.number("key", -(1 << 63))
            self._groups, rest = {key: saved.elements("present")}, self._groups
            self._open(key)
            self._groups = rest
            assert self._opened is not None
            self._opened.restore(opened)


def _int64(n: int) -> np.int64:
    return np.int64(n)
