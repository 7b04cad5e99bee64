"""Datasets of elements in memory: tensors, slices, ranges, and lists of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.resources.datasets import state
from headrace.resources.datasets.base import Dataset, Element, Iterator, Pass
from headrace.resources.datasets.state import Saved, State
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.values import Value


class _Counted(Iterator):
    """Base of iterators whose position is the number of elements so far.

    Attributes:
      at: the number.
      n: the number of elements of the dataset.
    """

    __slots__ = ("at", "n")

    def __init__(self, run: Pass, n: int) -> None:
        super().__init__(run)
        self.at = 0
        self.n = n

    def save(self) -> State:
        return {"at": self.at}

    def restore(self, saved: Saved) -> None:
        self.at = saved.number("at", 0, self.n)


class Elements(Dataset):
    """Dataset of given elements.

    Args:
      elements: the elements.
    """

    def __init__(self, elements: Sequence[Element]) -> None:
        self._elements = elements

    def iterator(self, run: Pass) -> Iterator:
        return _ElementsIterator(run, self._elements)

    def cardinality(self) -> int:
        return len(self._elements)

    def as_state(self) -> list[list[Value]]:
        """Returns the elements, for the state of an iterator that holds this dataset."""
        return [list(e) for e in self._elements]


state.set_window(Elements)


class _ElementsIterator(_Counted):
    __slots__ = ("_elements",)

    def __init__(self, run: Pass, elements: Sequence[Element]) -> None:
        super().__init__(run, len(elements))
        self._elements = elements

    def next(self) -> Element | None:
        at = self.at
        if at >= self.n:
            return None
        self.at = at + 1
        return self._elements[at]


class Slices(Dataset):
    """Dataset of the rows of tensors.

    Args:
      components: the tensors, with equal first dimensions.
      types: their dtypes.

    Raises:
      InvalidArgumentError: a tensor is a scalar, or the first dimensions differ.
    """

    def __init__(self, components: Sequence[Value], types: Sequence[DType]) -> None:
        self._n = -1
        for i, c in enumerate(components):
            shape = shape_of(c)
            if not shape:
                raise InvalidArgumentError(f"component {i} is a scalar, which has no rows; use from_tensors")
            if self._n not in (-1, shape[0]):
                raise InvalidArgumentError(
                    f"All components must have the same size in the 0th dimension: component 0 has {self._n}, "
                    f"component {i} has {shape[0]}"
                )
            self._n = shape[0]
        self._row = row_getter(components, types)

    def iterator(self, run: Pass) -> Iterator:
        return _SlicesIterator(run, self._n, self._row)

    def cardinality(self) -> int:
        return self._n


class _SlicesIterator(_Counted):
    __slots__ = ("_row",)

    def __init__(self, run: Pass, n: int, row: Callable[[int], Element]) -> None:
        super().__init__(run, n)
        self._row = row

    def next(self) -> Element | None:
        at = self.at
        if at >= self.n:
            return None
        self.at = at + 1
        return self._row(at)


def row_getter(components: Sequence[Value], types: Sequence[DType]) -> Callable[[int], Element]:
    """Returns the function from a number to the rows of tensors with this number."""
    texts = [d is dtypes.string and c.ndim == 1 for c, d in zip(components, types, strict=True)]
    if any(texts):  # scalars of text are arrays
        pairs = list(zip(components, texts, strict=True))
        return lambda at: tuple([c[at, ...] if is_text else c[at] for c, is_text in pairs])
    if len(components) == 1:
        (only,) = components
        return lambda at: (only[at],)
    kept = tuple(components)
    return lambda at: tuple([c[at] for c in kept])


class Range(Dataset):
    """Dataset of the integers from `start` in steps of `step` to before `stop`.

    Args:
      start, stop, step: as in `range`.
      kind: the numpy type of the elements.
    """

    def __init__(self, start: int, stop: int, step: int, kind: type[np.generic] = np.int64) -> None:
        if step == 0:
            raise InvalidArgumentError("step must be a non-zero integer.")
        self._range = range(start, stop, step)
        self._kind = kind

    def iterator(self, run: Pass) -> Iterator:
        return _RangeIterator(run, self._range, self._kind)

    def cardinality(self) -> int:
        return _length(self._range)


def _length(r: range) -> int:
    """The length of a range, which may exceed that of a list."""
    return max(0, -((r.start - r.stop) // r.step))


class _RangeIterator(_Counted):
    __slots__ = ("_kind", "_start", "_step")

    def __init__(self, run: Pass, r: range, kind: type[np.generic]) -> None:
        super().__init__(run, _length(r))
        self._start, self._step, self._kind = r.start, r.step, kind

    def next(self) -> Element | None:
        at = self.at
        if at >= self.n:
            return None
        self.at = at + 1
        return (self._kind(self._start + at * self._step),)
