"""Datasets of random order and of random numbers.

The numbers are those of TensorFlow: the words of a Philox stream, of which the seeds are the key and the start. A
shuffle keeps a buffer of elements; each word, modulo the number of elements, chooses the next one. The first element of
the buffer takes the place of the chosen one, so the elements stay consecutive in a ring.

A shuffle that differs from pass to pass draws the seeds of each pass from a generator of its own. The generator belongs
to the dataset, so it continues from one iterator to the next.
"""

from __future__ import annotations

import math
import secrets
import threading
from typing import Final

import numpy as np

from headrace import forking
from headrace.errors import InvalidArgumentError
from headrace.resources.datasets.base import INFINITE, Dataset, Element, Iterator, Pass, Through
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

    Raises:
      InvalidArgumentError: `buffer_size` is neither positive nor -1.
    """

    def __init__(self, input: Dataset, buffer_size: int, seeds: Seeds) -> None:
        if buffer_size < 1 and buffer_size != -1:
            raise InvalidArgumentError(f"buffer_size must be greater than zero or -1 (all elements), got {buffer_size}")
        self.inputs = (input,)
        self._size = buffer_size
        self._seeds = seeds

    def iterator(self, run: Pass) -> Iterator:
        return _ShuffleIterator(run, self.inputs[0].iterator(run), self._size, self._seeds)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _ShuffleIterator(Through):
    """Position in a shuffle.

    The buffer is a ring: element number `i` of the other dataset enters at place `i % size`. The elements from number
    `start` to before `end` are in the buffer.
    """

    __slots__ = ("_buffer", "_end", "_is_over", "_pair", "_seeds", "_size", "_start", "_words")

    def __init__(self, run: Pass, input: Iterator, size: int, seeds: Seeds) -> None:
        super().__init__(run, input)
        self._size, self._seeds = size, seeds
        self._buffer: list[Element | None] = []
        self._start = self._end = 0
        self._is_over = False
        self._pair = seeds.next()
        self._words = Words(*self._pair)

    def next(self) -> Element | None:
        buffer, size, start = self._buffer, self._size, self._start
        while not self._is_over and self._end - start != size:
            found = self._input.next()
            if found is None:
                self._is_over = True
            elif size < 0 or len(buffer) < size:
                buffer.append(found)
                self._end += 1
            else:
                buffer[self._end % size] = found
                self._end += 1
        if start == self._end:
            return None
        n = len(buffer)
        at, first = (start + self._words.next() % (self._end - start)) % n, start % n
        out = buffer[at]
        buffer[at], buffer[first] = buffer[first], None
        self._start = start + 1
        return out

    def save(self) -> State:
        return {
            "buffer": [None if e is None else list(e) for e in self._buffer],
            "start": self._start,
            "end": self._end,
            "is_over": int(self._is_over),
            "seeds": [str(s) for s in self._pair],
            "drawn": self._words.drawn,
            "generated": self._seeds.drawn,
            **super().save(),
        }

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        limit = self._size if self._size > 0 else math.inf
        self._buffer = [None if e.value is None else e.element() for e in saved.parts("buffer", limit)]
        self._end = saved.number("end")
        self._start = saved.number("start", max(0, self._end - len(self._buffer)), self._end)
        self._is_over = bool(saved.number("is_over", 0, 1))
        self._pair = saved.seeds("seeds")
        self._words = Words(*self._pair, saved.number("drawn"))
        self._seeds.drawn = saved.number("generated")


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
        self._pair = saved.seeds("seeds")
        self._words = Words(*self._pair, saved.number("drawn"))
