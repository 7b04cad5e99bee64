"""Datasets of random order and of random numbers.

The numbers are those of TensorFlow: the words of a Philox stream, of which the seeds are the key and the start. A
shuffle keeps a buffer of elements; each word, modulo the number of elements, chooses the next one. The first element of
the buffer takes the place of the chosen one, so the elements stay consecutive in a ring.

A shuffle that differs from pass to pass draws the seeds of each pass from a generator of its own. The generator belongs
to the dataset, so it continues from one iterator to the next.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from typing import Final

import numpy as np

from headrace import forking
from headrace.errors import InvalidArgumentError
from headrace.resources.datasets.base import INFINITE, UNKNOWN, Dataset, Element, Iterator, Pass
from headrace.resources.datasets.state import Saved, State
from headrace.resources.philox import Stream

_FIRST_WORDS: Final = 64  # drawn at once, and twice as many each time after
_MOST_WORDS: Final = 4096


class Words:
    """Words of a Philox stream, one at a time.

    Args:
      seed: the key.
      seed2: the start.
      drawn: the number of words that were drawn before.

    Attributes:
      drawn: the number of words so far.
    """

    __slots__ = ("_ahead", "_block", "_stream", "drawn")

    def __init__(self, seed: int, seed2: int, drawn: int = 0) -> None:
        self._stream = Stream(seed % (1 << 64), (seed2 % (1 << 64)) << 64).skip(drawn // 4)
        self._block = _FIRST_WORDS
        self._ahead: list[int] = []
        self.drawn = drawn
        for _ in range(drawn % 4):
            self._fill()
            self._ahead.pop()

    def next(self) -> int:
        """Returns the next word, 32 bits."""
        if not self._ahead:
            self._fill()
        self.drawn += 1
        return self._ahead.pop()

    def _fill(self) -> None:
        if not self._ahead:
            n = self._block
            self._ahead = self._stream.words(n).tolist()[::-1]
            self._stream = self._stream.skip(n // 4)
            self._block = min(2 * n, _MOST_WORDS)


class Seeds:
    """Pairs of seeds for the passes of a dataset. Thread-safe.

    Args:
      seed, seed2: the seeds of the dataset; two zeros: random ones.
      renews: whether each pass has others; else each has these.
    """

    def __init__(self, seed: int, seed2: int, renews: bool) -> None:
        if seed == 0 and seed2 == 0:
            seed, seed2 = secrets.randbits(63), secrets.randbits(63)
        self._fixed = None if renews else (seed, seed2)
        self._seeds = seed, seed2
        self._words = Words(seed, seed2)
        self._forked()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def next(self) -> tuple[int, int]:
        """Returns the seeds of the next pass."""
        if self._fixed is not None:
            return self._fixed
        with self._lock:
            return self._words.next(), self._words.next()

    @property
    def drawn(self) -> int:
        """Number of words that were drawn. An assignment moves the generator there."""
        return self._words.drawn

    @drawn.setter
    def drawn(self, n: int) -> None:
        with self._lock:
            self._words = Words(*self._seeds, n)


class Shuffle(Dataset):
    """Dataset of the elements of another one in random order.

    Args:
      input: the other dataset.
      buffer_size: the number of elements among which each is chosen; -1: all.
      seeds: the seeds of the passes.
      count: the number of passes over the other dataset, which the buffer mixes; -1: without an end.

    Raises:
      InvalidArgumentError: `buffer_size` is neither positive nor -1, or `count` is 0.
    """

    def __init__(self, input: Dataset, buffer_size: int, seeds: Seeds, count: int = 1) -> None:
        if buffer_size < 1 and buffer_size != -1:
            raise InvalidArgumentError(
                f"buffer_size must be greater than zero or -1 (all elements), got {buffer_size}"
            )
        if count == 0 or count < -1:
            raise InvalidArgumentError(f"count must be greater than zero or equal to -1, got {count}")
        self.inputs = (input,)
        self._size, self._count = buffer_size, count
        self.seeds = seeds

    def iterator(self, run: Pass) -> Iterator:
        return _ShuffleIterator(run, self.inputs[0], self._size, self.seeds, self._count)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        return n if n in (0, UNKNOWN) else INFINITE if self._count < 0 or n == INFINITE else n * self._count


class _ShuffleIterator(Iterator):
    """Position in a shuffle.

    The buffer is a list in which place `start % size` has the oldest element. `_sizes` has the number of elements of
    each pass that the buffer mixes: the next element is one of those of the oldest pass.
    """

    __slots__ = ("_buffer", "_count", "_dataset", "_epoch", "_input", "_pair", "_seeds", "_size", "_slices", "_words")

    def __init__(self, run: Pass, dataset: Dataset, size: int, seeds: Seeds, count: int) -> None:
        super().__init__(run)
        self._dataset, self._size, self._seeds, self._count = dataset, size, seeds, count
        self._buffer: list[Element | None] = []
        self._slices: deque[list[int]] = deque([[0, 0]])  # of each pass in the buffer: its first number, and its end
        self._epoch = 0  # passes that have begun
        self._input: Iterator | None = None
        self._pair = seeds.next()
        self._words = Words(*self._pair)

    def next(self) -> Element | None:
        self._fill()
        slices = self._slices
        while slices and slices[0][0] == slices[0][1] and len(slices) > 1:
            slices.popleft()
        start, end = slices[0]
        if start == end:
            return None
        buffer = self._buffer
        n = len(buffer)
        at = (start + self._words.next() % (end - start)) % n
        out = buffer[at]
        first = start % n
        buffer[at], buffer[first] = buffer[first], None
        slices[0][0] = start + 1
        return out

    def _fill(self) -> None:
        """Takes elements until the buffer is full, or all passes have ended."""
        slices, buffer, size = self._slices, self._buffer, self._size
        while slices[-1][1] - slices[0][0] != size:
            input = self._input
            if input is None:
                if self._epoch == self._count or (self._count < 0 and self._epoch and self._is_empty()):
                    return
                if self._epoch:
                    end = slices[-1][1]
                    slices.append([end, end])
                    self._pair = self._seeds.next()
                    self._words = Words(*self._pair)
                self._epoch += 1
                input = self._input = self._dataset.iterator(self.run)
            found = input.next()
            if found is None:
                self._input = None
                continue
            end = slices[-1][1]
            slices[-1][1] = end + 1
            if size < 0 or len(buffer) < size:
                buffer.append(found)
            else:
                buffer[end % size] = found

    def _is_empty(self) -> bool:
        """Whether the last pass gave no element."""
        return self._slices[-1][0] == self._slices[-1][1] and len(self._slices) == 1 and self._slices[0][1] == 0

    def save(self) -> State:
        return {
            "buffer": [None if e is None else list(e) for e in self._buffer],
            "slices": [list(s) for s in self._slices],
            "epoch": self._epoch,
            "input": None if self._input is None else self._input.save(),
            "seeds": [str(s) for s in self._pair],
            "drawn": self._words.drawn,
            "generated": self._seeds.drawn,
        }

    def restore(self, saved: Saved) -> None:
        limit = self._size if self._size > 0 else float("inf")
        self._buffer = [None if e.value is None else e.element() for e in saved.list("buffer", limit)]
        slices = [s.element() for s in saved.list("slices")]
        if not slices or any(len(s) != 2 or not all(type(x) is int for x in s) or s[0] > s[1] for s in slices):
            raise InvalidArgumentError("the saved state of a shuffle has no slices of its buffer")
        self._slices = deque([list(s) for s in slices])
        self._epoch = saved.int("epoch")
        seeds = [s.value for s in saved.list("seeds", 2)]
        self._pair = int(seeds[0]), int(seeds[1])
        self._words = Words(*self._pair, saved.int("drawn"))
        self._seeds.drawn = saved.int("generated")
        input = saved.optional("input")
        if input is not None:
            self._input = self._dataset.iterator(self.run)
            self._input.restore(input)


class RandomNumbers(Dataset):
    """Dataset of random integers of 32 bits, as int64, without an end.

    Args:
      seeds: the seeds of the passes.
    """

    def __init__(self, seeds: Seeds) -> None:
        self._seeds = seeds

    def iterator(self, run: Pass) -> Iterator:
        return _RandomIterator(run, self._seeds)

    def cardinality(self) -> int:
        return INFINITE


class _RandomIterator(Iterator):
    __slots__ = ("_pair", "_words")

    def __init__(self, run: Pass, seeds: Seeds) -> None:
        super().__init__(run)
        self._pair = seeds.next()
        self._words = Words(*self._pair)

    def next(self) -> Element | None:
        return (np.int64(self._words.next()),)

    def save(self) -> State:
        return {"seeds": [str(s) for s in self._pair], "drawn": self._words.drawn}

    def restore(self, saved: Saved) -> None:
        seeds = [s.value for s in saved.list("seeds", 2)]
        self._pair = int(seeds[0]), int(seeds[1])
        self._words = Words(*self._pair, saved.int("drawn"))


