"""Datasets of batches: batch, padded batch, and the rows of batches."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.resources import values
from headrace.resources.datasets.base import UNKNOWN, Dataset, Element, Iterator, Pass, Through, ceil_div, scaled
from headrace.resources.datasets.elements import row_getter
from headrace.resources.datasets.state import Saved, State
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.values import Value


class _Batches(Dataset):
    """Base of datasets of batches; `pack` makes a batch.

    Args:
      input: the other dataset.
      size: the number of elements in a batch.
      drop_remainder: whether a last batch of fewer elements is left out.
      types: the dtypes of the components.
    """

    def __init__(self, input: Dataset, size: int, drop_remainder: bool, types: Sequence[DType]) -> None:
        self.inputs = (input,)
        self._size, self._drop, self._types = size, drop_remainder, tuple(types)

    def iterator(self, run: Pass) -> Iterator:
        return _BatchIterator(run, self.inputs[0].iterator(run), self._size, self._drop, self)

    def cardinality(self) -> int:
        n, size = self.inputs[0].cardinality(), self._size
        return scaled(n, lambda n: n // size if self._drop else ceil_div(n, size))

    @abc.abstractmethod
    def pack(self, elements: Sequence[Element]) -> Element:
        """Returns the batch of some elements."""


class Batch(_Batches):
    """Dataset of consecutive elements of another one, stacked.

    Args:
      input: the other dataset.
      size: the number of elements in a batch.
      drop_remainder: whether a last batch of fewer elements is left out.
      types: the dtypes of the components.
    """

    def pack(self, elements: Sequence[Element]) -> Element:
        """Returns the batch of some elements.

        Raises:
          InvalidArgumentError: their shapes differ.
        """
        return tuple([_stacked(c, i, d) for i, (c, d) in enumerate(zip(zip(*elements), self._types))])


class _BatchIterator(Through):
    __slots__ = ("_drop", "_packer", "_size")

    def __init__(self, run: Pass, input: Iterator, size: int, drop: bool, packer: _Batches) -> None:
        super().__init__(run, input)
        self._size, self._drop, self._packer = size, drop, packer

    def next(self) -> Element | None:
        taken: list[Element] = []
        take = self._input.next
        while len(taken) < self._size:
            found = take()
            if found is None:
                if not taken or self._drop:
                    return None
                break
            taken.append(found)
        return self._packer.pack(taken)


def _stacked(column: Sequence[Value], i: int, dtype: DType) -> Value:
    shape = shape_of(column[0])
    for j, v in enumerate(column):
        if shape_of(v) != shape:
            raise InvalidArgumentError(
                f"Cannot batch tensors with different shapes in component {i}. First element had shape "
                f"{shapes.show(shape)} and element {j} had shape {shapes.show(shape_of(v))}."
            )
    return values.stack(column, dtype, shape)


class PaddedBatch(_Batches):
    """Dataset of consecutive elements of another one, padded to equal shapes and stacked.

    Args:
      input: the other dataset.
      size: the number of elements in a batch.
      padded: the shape of each component; -1 stands for the largest dimension in the batch.
      padding: the scalar that fills up each component.
      drop_remainder: whether a last batch of fewer elements is left out.
      types: the dtypes of the components.
    """

    def __init__(
        self,
        input: Dataset,
        size: int,
        padded: Sequence[Sequence[int]],
        padding: Sequence[Value],
        drop_remainder: bool,
        types: Sequence[DType],
    ) -> None:
        super().__init__(input, size, drop_remainder, types)
        self._padded = [tuple(int(d) for d in s) for s in padded]
        for s in self._padded:
            if any(d < -1 for d in s):
                raise InvalidArgumentError(f"All elements in `padded_shapes` must be >= -1, got {list(s)}")
        self._padding = list(padding)

    def pack(self, elements: Sequence[Element]) -> Element:
        """Returns the batch of some elements.

        Raises:
          InvalidArgumentError: an element has another rank than its padded shape.
          DataLossError: an element is larger than its padded shape.
        """
        columns = zip(*elements, strict=True)
        return tuple([self._filled(i, c) for i, c in enumerate(columns)])

    def _filled(self, i: int, column: Sequence[Value]) -> Value:
        padded, dtype = self._padded[i], self._types[i]
        found = [shape_of(v) for v in column]
        for s in found:
            if len(s) != len(padded):
                raise InvalidArgumentError(
                    f"All elements in a batch must have the same rank as the padded shape for component {i}: expected "
                    f"rank {len(padded)} but got element with rank {len(s)}"
                )
        shape = []
        for axis, d in enumerate(padded):
            most = max(s[axis] for s in found)
            if d == -1:
                d = most
            elif most > d:
                raise DataLossError(
                    f"Attempted to pad to a smaller size than the input element: component {i} has {most} elements in "
                    f"dimension {axis}, padded to {d}"
                )
            shape.append(d)
        if all(s == tuple(shape) for s in found):
            return values.stack(column, dtype, tuple(shape))
        fill = self._padding[i]
        fill = fill[()] if isinstance(fill, np.ndarray) else fill
        out = np.empty((len(column), *shape), object if dtype is dtypes.string else dtype.numpy)
        out.fill(fill)
        for j, (v, s) in enumerate(zip(column, found, strict=True)):
            at: Any = (j, *map(slice, s))
            out[at] = v
        return out


class Unbatch(Dataset):
    """Dataset of the rows of the elements of another one.

    Args:
      input: the other dataset.
      types: the dtypes of the components.
      batch: the number of rows in each element; None: it varies.
    """

    def __init__(self, input: Dataset, types: Sequence[DType], batch: int | None = None) -> None:
        self.inputs = (input,)
        self._types, self._batch = tuple(types), batch

    def iterator(self, run: Pass) -> Iterator:
        return _UnbatchIterator(run, self.inputs[0].iterator(run), self._types)

    def cardinality(self) -> int:
        n, batch = self.inputs[0].cardinality(), self._batch
        return n if n <= 0 and n != UNKNOWN else n * batch if n > 0 and batch is not None else UNKNOWN


class _UnbatchIterator(Through):
    __slots__ = ("_at", "_element", "_row", "_rows", "_types")

    def __init__(self, run: Pass, input: Iterator, types: Sequence[DType]) -> None:
        super().__init__(run, input)
        self._types = types
        self._row: Callable[[int], Element] = lambda at: ()
        self._element: Element = ()
        self._at = self._rows = 0

    def next(self) -> Element | None:
        while self._at >= self._rows:
            found = self._input.next()
            if found is None:
                return None
            self._begin(found)
        at = self._at
        self._at = at + 1
        return self._row(at)

    def _begin(self, element: Element) -> None:
        rows = {shape_of(c)[:1] for c in element}
        if len(rows) != 1 or rows == {()}:
            raise InvalidArgumentError(
                "Input element must have the same batch size in each component, got shapes "
                + ", ".join(shapes.show(shape_of(c)) for c in element)
            )
        self._element, self._at, self._rows = element, 0, rows.pop()[0]
        self._row = row_getter(element, self._types)

    def save(self) -> State:
        element = list(self._element) if self._at < self._rows else None
        return {"element": element, "at": self._at, **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        element = saved.optional("element")
        if element is not None:
            self._begin(element.element())
            self._at = saved.number("at", 0, self._rows)


class Rebatch(Dataset):
    """Dataset of the rows of batches, in batches of other sizes.

    Args:
      input: the dataset of batches.
      sizes: the numbers of rows of the batches, in turn.
      drop_remainder: whether a last batch of fewer rows is left out.
      types: the dtypes of the components.
    """

    def __init__(self, input: Dataset, sizes: Sequence[int], drop_remainder: bool, types: Sequence[DType]) -> None:
        self.inputs = (input,)
        if not sizes or any(n < 1 for n in sizes):
            raise InvalidArgumentError(f"Each size of a batch must be greater than zero, got {list(sizes)}")
        self._sizes, self._drop, self._types = tuple(sizes), drop_remainder, tuple(types)

    def iterator(self, run: Pass) -> Iterator:
        rows = _UnbatchIterator(run, self.inputs[0].iterator(run), self._types)
        return _RebatchIterator(run, rows, self._sizes, self._drop, self._types)


class _RebatchIterator(Through):
    __slots__ = ("_drop", "_number", "_sizes", "_types")

    def __init__(self, run: Pass, rows: Iterator, sizes: tuple[int, ...], drop: bool, types: Sequence[DType]) -> None:
        super().__init__(run, rows)
        self._sizes, self._drop, self._types = sizes, drop, types
        self._number = 0  # of the batch

    def next(self) -> Element | None:
        size = self._sizes[self._number % len(self._sizes)]
        taken: list[Element] = []
        while len(taken) < size:
            found = self._input.next()
            if found is None:
                break
            taken.append(found)
        if not taken or (self._drop and len(taken) < size):
            return None
        self._number += 1
        return tuple([_stacked(c, i, d) for i, (c, d) in enumerate(zip(zip(*taken), self._types))])

    def save(self) -> State:
        return {"number": self._number, **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._number = saved.number("number")
