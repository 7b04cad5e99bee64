"""Datasets made of several passes or datasets: repeat, concatenate, zip, choice by a selector."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import InvalidArgumentError
from headrace.resources.datasets.base import INFINITE, UNKNOWN, Dataset, Element, Iterator, Pass
from headrace.resources.datasets.state import Saved, State


class Repeat(Dataset):
    """Dataset of the elements of another one, several times.

    Args:
      input: the other dataset.
      count: the number of passes; negative: without an end.
    """

    def __init__(self, input: Dataset, count: int) -> None:
        self.inputs = (input,)
        self._count = count

    def iterator(self, run: Pass) -> Iterator:
        return _RepeatIterator(run, self.inputs[0], self._count)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        if self._count < 0:
            return n if n == 0 else INFINITE
        return 0 if self._count == 0 else n if n < 0 else n * self._count


class _RepeatIterator(Iterator):
    __slots__ = ("_at", "_count", "_dataset", "_input")

    def __init__(self, run: Pass, dataset: Dataset, count: int) -> None:
        super().__init__(run)
        self._dataset, self._count = dataset, count
        self._at = 0  # passes that have ended
        self._input: Iterator | None = None

    def next(self) -> Element | None:
        while self._at != self._count:
            input = self._input
            is_first = input is None
            if input is None:
                input = self._input = self._dataset.iterator(self.run)
            found = input.next()
            if found is not None:
                return found
            self._input = None
            if self._count >= 0:
                self._at += 1
            elif is_first:  # an empty dataset, forever
                self._at, self._count = 0, 0
        return None

    def save(self) -> State:
        input = None if self._input is None else self._input.save()
        return {"at": self._at, "ended": int(self._count == 0), "input": input}

    def restore(self, saved: Saved) -> None:
        self._at = saved.number("at")
        if saved.number("ended", 0, 1):
            self._at = self._count = 0
        input = saved.optional("input")
        if input is not None:
            self._input = self._dataset.iterator(self.run)
            self._input.restore(input)


class Concatenate(Dataset):
    """Dataset of the elements of one dataset, then of another.

    Args:
      first, second: the datasets.
    """

    def __init__(self, first: Dataset, second: Dataset) -> None:
        self.inputs = (first, second)

    def iterator(self, run: Pass) -> Iterator:
        return _ConcatenateIterator(run, self.inputs)

    def cardinality(self) -> int:
        a, b = (d.cardinality() for d in self.inputs)
        if INFINITE in (a, b):
            return INFINITE
        return UNKNOWN if UNKNOWN in (a, b) else a + b


class _ConcatenateIterator(Iterator):
    __slots__ = ("_at", "_datasets", "_input")

    def __init__(self, run: Pass, datasets: Sequence[Dataset]) -> None:
        super().__init__(run)
        self._datasets = datasets
        self._at = 0
        self._input = datasets[0].iterator(run)

    def next(self) -> Element | None:
        while self._at < len(self._datasets):
            found = self._input.next()
            if found is not None:
                return found
            self._at += 1
            if self._at < len(self._datasets):
                self._input = self._datasets[self._at].iterator(self.run)
        return None

    def save(self) -> State:
        is_over = self._at >= len(self._datasets)
        return {"at": self._at, "input": None if is_over else self._input.save()}

    def restore(self, saved: Saved) -> None:
        self._at = saved.number("at", 0, len(self._datasets))
        input = saved.optional("input")
        if self._at < len(self._datasets) and input is not None:
            self._input = self._datasets[self._at].iterator(self.run)
            self._input.restore(input)


class Zip(Dataset):
    """Dataset of tuples of one element of each of several datasets. The shortest ends it.

    Args:
      inputs: the datasets.
    """

    def __init__(self, inputs: Sequence[Dataset]) -> None:
        self.inputs = tuple(inputs)

    def iterator(self, run: Pass) -> Iterator:
        return _ZipIterator(run, [d.iterator(run) for d in self.inputs])

    def cardinality(self) -> int:
        known = [d.cardinality() for d in self.inputs]
        if UNKNOWN in known:
            return UNKNOWN
        return min((n for n in known if n >= 0), default=INFINITE)


class _ZipIterator(Iterator):
    __slots__ = ("_inputs", "_is_over")

    def __init__(self, run: Pass, inputs: Sequence[Iterator]) -> None:
        super().__init__(run)
        self._inputs = inputs
        self._is_over = False

    def next(self) -> Element | None:
        if self._is_over:
            return None
        out: list[object] = []
        for input in self._inputs:
            found = input.next()
            if found is None:
                self._is_over = True
                return None
            out += found
        return tuple(out)

    def save(self) -> State:
        return {"is_over": int(self._is_over), "inputs": [i.save() for i in self._inputs]}

    def restore(self, saved: Saved) -> None:
        self._is_over = bool(saved.number("is_over", 0, 1))
        for input, state in zip(self._inputs, saved.parts("inputs", len(self._inputs)), strict=False):
            input.restore(state)


class Directed(Dataset):
    """Dataset whose elements come from one of several datasets, which another dataset selects.

    Args:
      selector: a dataset of the numbers of datasets.
      inputs: the datasets.
      stop_on_empty: whether the end of one of them is the end.
    """

    def __init__(self, selector: Dataset, inputs: Sequence[Dataset], stop_on_empty: bool = False) -> None:
        self.inputs = (selector, *inputs)
        self._stop_on_empty = stop_on_empty

    def iterator(self, run: Pass) -> Iterator:
        return _DirectedIterator(run, [d.iterator(run) for d in self.inputs], self._stop_on_empty)

    def cardinality(self) -> int:
        known = [d.cardinality() for d in self.inputs]
        return INFINITE if set(known) == {INFINITE} else 0 if known[0] == 0 else UNKNOWN


class _DirectedIterator(Iterator):
    __slots__ = ("_inputs", "_open", "_stop_on_empty")

    def __init__(self, run: Pass, inputs: Sequence[Iterator], stop_on_empty: bool) -> None:
        super().__init__(run)
        self._inputs = inputs
        self._open = [True] * (len(inputs) - 1)
        self._stop_on_empty = stop_on_empty

    def next(self) -> Element | None:
        while any(self._open):
            chosen = self._inputs[0].next()
            if chosen is None:
                break
            i, n = int(chosen[0]), len(self._open)
            if not 0 <= i < n:
                raise InvalidArgumentError(f"Selector index out of range: {i} >= {n}" if i >= n else f"index {i} < 0")
            if not self._open[i]:
                self.run.check()
                continue
            found = self._inputs[i + 1].next()
            if found is not None:
                return found
            self._open[i] = False
            if self._stop_on_empty:
                break
        self._open = [False] * len(self._open)
        return None

    def save(self) -> State:
        return {"open": [int(o) for o in self._open], "inputs": [i.save() for i in self._inputs]}

    def restore(self, saved: Saved) -> None:
        is_open = saved.parts("open", len(self._open))
        self._open = [bool(o.value) for o in is_open] + [False] * (len(self._open) - len(is_open))
        for input, state in zip(self._inputs, saved.parts("inputs", len(self._inputs)), strict=False):
            input.restore(state)
