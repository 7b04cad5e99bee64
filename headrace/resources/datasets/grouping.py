"""Datasets of the reductions of groups of elements with equal keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.resources.datasets.base import UNKNOWN, Call, Dataset, Element, Iterator, Pass, Through
from headrace.resources.datasets.state import Saved, State


def int64_scalar(results: Sequence[object], what: str) -> int:
    """Returns the only result of a function, an int64 scalar.

    Raises:
      InvalidArgumentError: it is no scalar.
    """
    (found,) = results
    if getattr(found, "shape", ()):
        raise InvalidArgumentError(f"`{what}` must return a scalar int64.")
    return int(found)  # type: ignore[call-overload, no-any-return]


class GroupByReducer(Dataset):
    """Dataset of the reductions of the elements of each key, in key order.

    Args:
      input: the other dataset.
      key: the function of the key of an element, an int64 scalar.
      begin: the function from a key to the components of the first state.
      reduce: the function from the components of the state and of an element to those of the next state.
      finish: the function from the components of the last state to those of the element.
    """

    def __init__(self, input: Dataset, key: Call, begin: Call, reduce: Call, finish: Call) -> None:
        self.inputs = (input,)
        self.key, self.begin, self.reduce, self.finish = key, begin, reduce, finish

    def iterator(self, run: Pass) -> Iterator:
        return _ReducerIterator(run, self.inputs[0].iterator(run), self)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        return n if n < 0 and n != UNKNOWN else UNKNOWN


class _ReducerIterator(Through):
    __slots__ = ("_calls", "_is_over", "_states")

    def __init__(self, run: Pass, input: Iterator, calls: GroupByReducer) -> None:
        super().__init__(run, input)
        self._calls = calls
        self._states: dict[int, Element] = {}
        self._is_over = False

    def next(self) -> Element | None:
        while not self._is_over:
            element = self._input.next()
            if element is None:
                self._is_over = True
                self._states = dict(sorted(self._states.items()))
                break
            self.run.check()
            key = int64_scalar(self._calls.key(element, self.run), "key_func")
            state = self._states.get(key)
            if state is None:
                state = tuple(self._calls.begin((np.int64(key),), self.run))
            self._states[key] = tuple(self._calls.reduce((*state, *element), self.run))
        if not self._states:
            return None
        return tuple(self._calls.finish(self._states.pop(next(iter(self._states))), self.run))

    def save(self) -> State:
        states = [[k, list(s)] for k, s in self._states.items()]
        return {"states": states, "is_over": int(self._is_over), **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._is_over = bool(saved.number("is_over", 0, 1))
        self._states = {int(k): tuple(s) for k, s in saved.elements("states")}
