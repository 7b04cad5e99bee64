"""Datasets of some elements of another one: take, skip, shard, filter, unique, without errors."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from headrace import notices
from headrace.errors import FailedPreconditionError, InvalidArgumentError, OpError
from headrace.resources.datasets.base import (
    INFINITE,
    UNKNOWN,
    Call,
    Dataset,
    Element,
    Iterator,
    Pass,
    Through,
    ceil_div,
    scaled,
)
from headrace.resources.datasets.state import Saved, State


class _Counting(Through):
    """Base of iterators that count the elements of the other iterator."""

    __slots__ = ("_at",)

    def __init__(self, run: Pass, input: Iterator) -> None:
        super().__init__(run, input)
        self._at = 0

    def save(self) -> State:
        return {"at": self._at, **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._at = saved.number("at")


class Take(Dataset):
    """Dataset of the first elements of another one.

    Args:
      input: the other dataset.
      count: the number of elements; negative: all.
    """

    def __init__(self, input: Dataset, count: int) -> None:
        self.inputs = (input,)
        self._count = count

    def iterator(self, run: Pass) -> Iterator:
        input = self.inputs[0].iterator(run)
        return input if self._count < 0 else _TakeIterator(run, input, self._count)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        if self._count < 0:
            return n
        return self._count if n == INFINITE else scaled(n, lambda n: min(n, self._count))


class _TakeIterator(_Counting):
    __slots__ = ("_count",)

    def __init__(self, run: Pass, input: Iterator, count: int) -> None:
        super().__init__(run, input)
        self._count = count

    def next(self) -> Element | None:
        if self._at >= self._count:
            return None
        self._at += 1
        found = self._input.next()
        if found is None:
            self._at = self._count
        return found


class Skip(Dataset):
    """Dataset of the elements of another one after the first ones.

    Args:
      input: the other dataset.
      count: the number of elements that are left out; negative: all.
    """

    def __init__(self, input: Dataset, count: int) -> None:
        self.inputs = (input,)
        self._count = count

    def iterator(self, run: Pass) -> Iterator:
        return _SkipIterator(run, self.inputs[0].iterator(run), self._count)

    def cardinality(self) -> int:
        if self._count < 0:
            return 0
        return scaled(self.inputs[0].cardinality(), lambda n: max(0, n - self._count))


class _SkipIterator(_Counting):
    __slots__ = ("_count",)

    def __init__(self, run: Pass, input: Iterator, count: int) -> None:
        super().__init__(run, input)
        self._count = count

    def next(self) -> Element | None:
        if self._count < 0:
            return None
        while self._at < self._count:
            if self._input.next() is None:
                return None
            self._at += 1
        return self._input.next()


class Shard(Dataset):
    """Dataset of every `n`-th element of another one, from number `index` on.

    Args:
      input: the other dataset.
      n: the number of shards.
      index: the number of this one.
      require_non_empty: whether the input must have at least `n` elements.

    Raises:
      InvalidArgumentError: `n` is not positive, or `index` is not in [0, n).
    """

    def __init__(self, input: Dataset, n: int, index: int, require_non_empty: bool = False) -> None:
        if n < 1:
            raise InvalidArgumentError(f"Number of shards must be greater than zero (currently num_shards = {n}).")
        if not 0 <= index < n:
            raise InvalidArgumentError(
                f"Index must be between 0 and {n - 1} (currently index = {index}, num_shards = {n})."
            )
        self.inputs = (input,)
        self._n, self._index, self._is_strict = n, index, require_non_empty

    def iterator(self, run: Pass) -> Iterator:
        return _ShardIterator(run, self.inputs[0].iterator(run), self._n, self._index, self._is_strict)

    def cardinality(self) -> int:
        return scaled(self.inputs[0].cardinality(), lambda n: ceil_div(max(0, n - self._index), self._n))


class _ShardIterator(_Counting):
    __slots__ = ("_index", "_is_strict", "_n")

    def __init__(self, run: Pass, input: Iterator, n: int, index: int, is_strict: bool) -> None:
        super().__init__(run, input)
        self._n, self._index, self._is_strict = n, index, is_strict

    def next(self) -> Element | None:
        found = None
        while (e := self._input.next()) is not None:
            self._at += 1
            if (self._at - 1) % self._n == self._index:
                found = e
                break
        if self._is_strict and found is None and self._at < self._n:
            raise InvalidArgumentError(
                f"the dataset has {self._at} elements, fewer than the {self._n} shards, so a shard would be empty"
            )
        return found


class Filter(Dataset):
    """Dataset of the elements for which a predicate holds.

    Args:
      input: the other dataset.
      predicate: the predicate, which gives one scalar.
      is_prefix: whether the dataset ends before the first element for which it does not hold (take_while).
    """

    def __init__(self, input: Dataset, predicate: Call, is_prefix: bool = False) -> None:
        self.inputs = (input,)
        self._predicate, self._is_prefix = predicate, is_prefix

    def iterator(self, run: Pass) -> Iterator:
        made = _TakeWhileIterator if self._is_prefix else _FilterIterator
        return made(run, self.inputs[0].iterator(run), self._predicate)

    def cardinality(self) -> int:
        return UNKNOWN


class _FilterIterator(Through):
    __slots__ = ("_predicate",)

    def __init__(self, run: Pass, input: Iterator, predicate: Call) -> None:
        super().__init__(run, input)
        self._predicate = predicate

    def next(self) -> Element | None:
        run, predicate, take = self.run, self._predicate, self._input.next
        while (e := take()) is not None:
            if predicate(e, run)[0]:
                break
            if run.is_over:
                run.check()
        return e


class _TakeWhileIterator(_Counting):
    __slots__ = ("_predicate",)

    def __init__(self, run: Pass, input: Iterator, predicate: Call) -> None:
        super().__init__(run, input)
        self._predicate = predicate

    def next(self) -> Element | None:
        if self._at:
            return None
        found = self._input.next()
        if found is None or not self._predicate(found, self.run)[0]:
            self._at = 1
            return None
        return found


class Unique(Dataset):
    """Dataset of the first of each group of equal elements of another one.

    Args:
      input: the other dataset, of one component.
    """

    def __init__(self, input: Dataset) -> None:
        self.inputs = (input,)

    def iterator(self, run: Pass) -> Iterator:
        return _UniqueIterator(run, self.inputs[0].iterator(run))


class _UniqueIterator(Through):
    __slots__ = ("_seen",)

    def __init__(self, run: Pass, input: Iterator) -> None:
        super().__init__(run, input)
        self._seen: dict[Any, Element] = {}

    def next(self) -> Element | None:
        while (e := self._input.next()) is not None:
            key = _content(e[0])
            if key not in self._seen:
                self._seen[key] = e
                return e
        return None

    def save(self) -> State:
        return {"seen": [list(e) for e in self._seen.values()], **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._seen = {_content(e[0]): e for e in saved.elements("seen")}


def _content(value: Any) -> Any:
    array = np.asarray(value)
    return (array.shape, tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes())


class IgnoreErrors(Dataset):
    """Dataset of the elements of another one that can be made without an error.

    Args:
      input: the other dataset.
      log_warning: whether each error is logged.
    """

    def __init__(self, input: Dataset, log_warning: bool = False) -> None:
        self.inputs = (input,)
        self._log_warning = log_warning

    def iterator(self, run: Pass) -> Iterator:
        return _IgnoreErrorsIterator(run, self.inputs[0].iterator(run), self._log_warning)

    def cardinality(self) -> int:
        return INFINITE if self.inputs[0].cardinality() == INFINITE else UNKNOWN


class _IgnoreErrorsIterator(Through):
    __slots__ = ("_log_warning",)

    def __init__(self, run: Pass, input: Iterator, log_warning: bool) -> None:
        super().__init__(run, input)
        self._log_warning = log_warning

    def next(self) -> Element | None:
        while True:
            try:
                return self._input.next()
            except OpError as e:
                self.run.check()
                if self._log_warning:
                    notices.warn(f"an element was left out because of an error: {e}")


class AssertCardinality(Dataset):
    """Dataset of the elements of another one, whose number is asserted.

    Args:
      input: the other dataset.
      expected: the number of elements, or `INFINITE`.
    """

    def __init__(self, input: Dataset, expected: int) -> None:
        self.inputs = (input,)
        self._expected = expected

    def iterator(self, run: Pass) -> Iterator:
        return _AssertingIterator(run, self.inputs[0].iterator(run), self._expected)

    def cardinality(self) -> int:
        return self._expected


class _AssertingIterator(Through):
    __slots__ = ("_expected", "_seen")

    def __init__(self, run: Pass, input: Iterator, expected: int) -> None:
        super().__init__(run, input)
        self._expected = expected
        self._seen = 0

    def next(self) -> Element | None:
        found = self._input.next()
        if found is not None:
            self._seen += 1
        if self._seen > self._expected != INFINITE:
            self._fail(f"at least {_counted(self._seen)}")
        if found is None and self._seen != self._expected:
            self._fail(f"{'only ' if self._expected != INFINITE else ''}{_counted(self._seen)}")
        return found

    def _fail(self, found: str) -> NoReturn:
        expected = "an infinite number of elements" if self._expected == INFINITE else _counted(self._expected)
        raise FailedPreconditionError(f"Input dataset was expected to contain {expected} but contained {found}.")

    def save(self) -> State:
        return {"seen": self._seen, **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._seen = saved.number("seen")


def _counted(n: int) -> str:
    return f"{n} element{'s' * (n != 1)}"
