"""TensorFlow's random numbers: Philox4x32-10 streams and the distributions drawn from them.

Philox is a keyed bijection of 128-bit counters: block k of a stream consists of four 32-bit words, computed from the
key and counter + k alone. So any part of a stream can be computed at any time, in any order, and in parallel by numpy.

TensorFlow defines the rest, and a seed reproduces its numbers only if all of it matches:

* the (seed, seed2) of an op become the key and the upper half of the counter;
* each firing reserves 256 blocks for each number that it draws, independent of the blocks that it uses;
* a block yields a *group* of numbers: four of 32 bits or fewer, two of 64, which fill the output in C order;
* the truncated normal draws again, from the reserve of its group, until the group is full.
"""

from __future__ import annotations

import math
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from headrace import dtypes, forking, thresholds
from headrace.philox_rounds import MULTIPLIER0, MULTIPLIER2, ROUNDS, filled, round_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dtypes import DType

RESERVED_PER_NUMBER: Final = 256

_COUNTER_MASK: Final = (1 << 128) - 1
_LOW: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)
_SCRAMBLER: Final = 0x02461E293EC8F720  # the key that mixes seeds
_LEAST_U: Final = 1e-7  # the smallest argument of the logarithm in Box-Muller
_TRUNCATE_AT: Final = 2.0


class Philox:
    """Random state of one op in one session: a stream and a position. Thread safe.

    Args:
      seed: The op's attribute. If both seeds are 0, the stream is different each time.
      seed2: The op's attribute.
    """

    __slots__ = ("__weakref__", "_counter", "_key", "_lock", "_start")

    def __init__(self, seed: int, seed2: int) -> None:
        if seed == 0 and seed2 == 0:
            seed, seed2 = secrets.randbits(64), secrets.randbits(64)
        self._key = seed % (1 << 64)
        self._counter = (seed2 % (1 << 64)) << 64
        self._start = self._key, self._counter
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def reserve(self, blocks: int) -> Stream:
        """The stream from the current position on, which then moves by `blocks` blocks."""
        with self._lock:
            key, start = self._key, self._counter
            self._counter = (start + blocks) & _COUNTER_MASK
        return Stream(key, start)

    @property
    def state(self) -> tuple[int, int]:
        """The key (64 bits) and the counter (128 bits) of the next block.

        An assignment moves the stream to that block.
        """
        with self._lock:
            return self._key, self._counter

    @state.setter
    def state(self, state: tuple[int, int]) -> None:
        with self._lock:
            self._key, self._counter = state

    def rewind(self) -> None:
        """Resets the position to the start of the stream."""
        self.state = self._start

    def reserve_numbers(self, n: int) -> Stream:
        """The stream for a firing that draws `n` numbers."""
        return self.reserve(n * RESERVED_PER_NUMBER)


class Stream:
    """Blocks of a Philox key from one counter on. Immutable.

    A second draw therefore yields the same numbers.

    Args:
      key: The key, 64 bits.
      counter: The counter of the first block, 128 bits.
    """

    __slots__ = ("counter", "key")

    def __init__(self, key: int, counter: int) -> None:
        self.key = key
        self.counter = counter

    @classmethod
    def scrambled(cls, seed: int, seed2: int) -> Stream:
        """The stream of a stateless op's two seeds, which are mixed first.

        So seeds such as 0 or 1 are as good as any.
        """
        low, high = seed % (1 << 64), seed2 % (1 << 64)
        mix = _block(_SCRAMBLER, low | high << 64)
        return cls(mix[0] | mix[1] << 32, (mix[2] | mix[3] << 32) << 64)

    def skip(self, blocks: int) -> Stream:
        """The stream `blocks` blocks later."""
        return Stream(self.key, (self.counter + blocks) & _COUNTER_MASK)

    def blocks(self, n: int) -> np.ndarray:
        """The first `n` blocks: uint32 [n, 4]."""
        out = np.empty((n, 4), np.uint32)
        for start in range(0, n, thresholds.PHILOX_CHUNK_BLOCKS):
            stop = min(start + thresholds.PHILOX_CHUNK_BLOCKS, n)
            self._fill(np.arange(start, stop, dtype=np.uint64), out[start:stop])
        return out

    def blocks_at(self, offsets: np.ndarray) -> np.ndarray:
        """Blocks at offsets from the first one: uint64 [n] → uint32 [n, 4]."""
        out = np.empty((len(offsets), 4), np.uint32)
        for start in range(0, len(offsets), thresholds.PHILOX_CHUNK_BLOCKS):
            part = slice(start, start + thresholds.PHILOX_CHUNK_BLOCKS)
            self._fill(offsets[part], out[part])
        return out

    def words(self, n: int) -> np.ndarray:
        """The first `n` words: uint32 [n]."""
        return self.blocks(-(-n // 4)).ravel()[:n]

    # *** distributions: `n` numbers in the order of TensorFlow's outputs ***

    def uniform(self, n: int, dtype: DType) -> np.ndarray:
        """Numbers in [0, 1) of a floating dtype, each from the bits of its significand."""
        return _uniform(self.blocks(-(-n // _per_block(dtype))), dtype)[:n]

    def uniform_int(self, n: int, low: int, high: int, dtype: DType) -> np.ndarray:
        """Integers in [low, high) of 32 or 64 bits, with the slight bias of `word mod range`."""
        return within(self.integers(n, dtype), low, high)

    def integers(self, n: int, dtype: DType) -> np.ndarray:
        """Integers of 32 or 64 bits in the full range of `dtype`."""
        return _integers(self.blocks(-(-n // _per_block(dtype))), dtype)[:n]

    def normal(self, n: int, dtype: DType) -> np.ndarray:
        """Standard normal numbers of a floating dtype."""
        return _normal(self.blocks(-(-n // _per_block(dtype))), dtype)[:n]

    def truncated_normal(self, n: int, dtype: DType) -> np.ndarray:
        """Standard normal numbers within (-2, 2) of a floating dtype."""
        if dtype is dtypes.float64:
            return self._truncated(n, 2, _normal_doubles)
        return self._truncated(n, 4, _normal_floats).astype(dtype.numpy)

    def uniform_pairs_at(self, offsets: np.ndarray) -> np.ndarray:
        """Uniform numbers of the blocks at `offsets`: uint64 [n] → float64 [n, 2]."""
        return _double_from_words(self.blocks_at(offsets).reshape(-1, 2)).reshape(-1, 2)

    def normal_pairs_at(self, offsets: np.ndarray) -> np.ndarray:
        """Standard normal numbers of the blocks at `offsets`: uint64 [n] → float64 [n, 2]."""
        return _normal_doubles(self.blocks_at(offsets))

    def permutation(self, n: int) -> np.ndarray:
        """A permutation of range(n) as int64 [n], from n - 1 words."""
        order = list(range(n))
        for i, word in enumerate(self.words(max(n - 1, 0)).tolist()):
            j = i + word % (n - i)
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)

    def _truncated(self, n: int, group: int, normals: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Groups of numbers below the limit, each drawn from a reserve of its own."""
        groups = -(-n // group)
        start = np.arange(groups, dtype=np.uint64) * np.uint64(group * RESERVED_PER_NUMBER // 4)
        drawn = normals(self.blocks_at(start))
        out = np.empty((groups, group), drawn.dtype)
        filled = np.zeros(groups, np.intp)
        open_ = np.arange(groups)  # the groups that are not full
        for block in range(1, 1 << 20):
            for column in drawn.T:
                take = (np.abs(column) < _TRUNCATE_AT) & (filled[open_] < group)
                which = open_[take]
                out[which, filled[which]] = column[take]
                filled[which] += 1
            open_ = open_[filled[open_] < group]
            if not open_.size:
                break
            drawn = normals(self.blocks_at(start[open_] + np.uint64(block)))
        return out.ravel()[:n]

    def _fill(self, offsets: np.ndarray, out: np.ndarray) -> None:
        """Computes the block at `offsets[i]` into `out[i]`."""
        if filled(self.key, self.counter, offsets, out):
            return
        if len(offsets) <= thresholds.PHILOX_SCALAR_BLOCKS:
            for i, offset in enumerate(offsets.tolist()):
                out[i] = _block(self.key, self.counter + offset)
            return
        low = np.uint64(self.counter & ((1 << 64) - 1)) + offsets
        high = np.uint64(self.counter >> 64) + (low < offsets)  # a carry
        c0, c1, c2, c3 = low & _LOW, low >> _32, high & _LOW, high >> _32
        product0, product2 = np.empty_like(low), np.empty_like(low)
        keys = round_keys(self.key)
        for k in range(ROUNDS):  # in place, because allocation of such arrays costs more than the computation
            np.multiply(c0, np.uint64(MULTIPLIER0), out=product0)
            np.multiply(c2, np.uint64(MULTIPLIER2), out=product2)
            np.right_shift(product2, _32, out=c0)
            c0 ^= c1
            c0 ^= np.uint64(keys[2 * k])
            np.bitwise_and(product2, _LOW, out=c1)
            np.right_shift(product0, _32, out=c2)
            c2 ^= c3
            c2 ^= np.uint64(keys[2 * k + 1])
            np.bitwise_and(product0, _LOW, out=c3)
        for i, c in enumerate((c0, c1, c2, c3)):
            out[:, i] = c


def _block(key: int, counter: int) -> tuple[int, int, int, int]:
    """One block computed on Python ints, which is faster for a few blocks."""
    c0, c1 = counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF
    c2, c3 = counter >> 64 & 0xFFFFFFFF, counter >> 96 & 0xFFFFFFFF
    keys = iter(round_keys(key))
    for key0, key1 in zip(keys, keys, strict=True):
        product0, product2 = c0 * MULTIPLIER0, c2 * MULTIPLIER2
        c0, c1 = (product2 >> 32) ^ c1 ^ key0, product2 & 0xFFFFFFFF
        c2, c3 = (product0 >> 32) ^ c3 ^ key1, product0 & 0xFFFFFFFF
    return c0, c1, c2, c3


class Draws:
    """Firings of one op that draws numbers of a distribution. Thread safe.

    A firing in a loop draws few numbers, and calls of numpy take most of its time. So firings that follow each other
    and draw equally many numbers are computed ahead, twice as many each time. They are rows of one array. The position
    of the random state alone decides which numbers a firing gets.

    Args:
      state: The random state.
      distribution: "uniform", "normal" or "integers", a distribution of `Stream`.
      dtype: The dtype of the numbers.
    """

    __slots__ = ("_dtype", "_held", "_numbers", "_state")

    def __init__(self, state: Philox, distribution: str, dtype: DType) -> None:
        self._state = state
        self._numbers = _DISTRIBUTIONS[distribution]
        self._dtype = dtype
        # stream of the first row, the numbers of a row, and the rows
        self._held: tuple[Stream, int, np.ndarray] | None = None

    def next(self, n: int) -> np.ndarray:
        """The numbers of the next firing, which draws `n` numbers."""
        stream = self._state.reserve_numbers(n)
        blocks = -(-n // _per_block(self._dtype))
        if not 0 < blocks <= thresholds.DRAWN_AHEAD_BLOCKS // 2:
            return self._numbers(stream.blocks(blocks), self._dtype)[:n]
        held, rows = self._held, 1
        if held is not None and held[1] == n and held[0].key == stream.key:
            row, rest = divmod(stream.counter - held[0].counter, n * RESERVED_PER_NUMBER)
            if not rest and 0 <= row < len(held[2]):
                found: np.ndarray = held[2][row].copy()
                return found
            if not rest and row == len(held[2]):
                rows = min(2 * row, thresholds.DRAWN_AHEAD_BLOCKS // blocks)
        starts = np.arange(rows, dtype=np.uint64) * np.uint64(n * RESERVED_PER_NUMBER)
        offsets = (starts[:, np.newaxis] + np.arange(blocks, dtype=np.uint64)).ravel()
        numbers = self._numbers(stream.blocks_at(offsets), self._dtype).reshape(rows, -1)[:, :n]
        self._held = stream, n, numbers
        first: np.ndarray = numbers[0].copy()
        return first


# *** numbers from words ***


def _per_block(dtype: DType) -> int:
    """Numbers of a dtype that a block yields."""
    return 2 if dtype.size == 8 else 4


def within(integers: np.ndarray, low: int, high: int) -> np.ndarray:
    """Integers in [low, high), from integers in the full range of their dtype."""
    words = integers.view(f"u{integers.itemsize}")
    unsigned = words.dtype.type
    offsets = words % unsigned(high - low)
    # added modulo 2**bits, which is right because the sum lies in [low, high)
    out: np.ndarray = offsets + unsigned(low % (1 << (8 * words.itemsize)))
    return out.view(integers.dtype)


def _uniform(blocks: np.ndarray, dtype: DType) -> np.ndarray:
    """uint32 [n, 4] → numbers in [0, 1)."""
    if dtype is dtypes.float64:
        return _double_from_words(blocks.reshape(-1, 2))
    return _float_from_word(blocks.ravel(), dtype)


def _integers(blocks: np.ndarray, dtype: DType) -> np.ndarray:
    """uint32 [n, 4] → integers in the full range, of low words first."""
    words = blocks.ravel()
    if dtype.size == 8:
        pairs = words.reshape(-1, 2).astype(np.uint64)
        words = pairs[:, 0] | pairs[:, 1] << _32
    out: np.ndarray = words.view(dtype.numpy)
    return out


def _normal(blocks: np.ndarray, dtype: DType) -> np.ndarray:
    """uint32 [n, 4] → standard normal numbers."""
    if dtype is dtypes.float64:
        return _normal_doubles(blocks).ravel()
    out: np.ndarray = _normal_floats(blocks).ravel().astype(dtype.numpy)
    return out


_DISTRIBUTIONS: Final[dict[str, Callable[[np.ndarray, DType], np.ndarray]]] = {
    "uniform": _uniform,
    "integers": _integers,
    "normal": _normal,
}

# bits of the significand, and the bits of 1.0, which together with the low bits of a word form a number in [1, 2)
_LAYOUT: Final = {
    dtypes.float32: (23, np.uint32, 127 << 23, np.float32),
    dtypes.float16: (10, np.uint16, 15 << 10, np.float16),
    dtypes.bfloat16: (7, np.uint16, 127 << 7, ml_dtypes.bfloat16),
}


def _float_from_word(words: np.ndarray, dtype: DType) -> np.ndarray:
    bits, integer, one, real = _LAYOUT[dtype]
    significand = (words & np.uint32((1 << bits) - 1)).astype(integer)
    out: np.ndarray = (significand | integer(one)).view(real) - real(1)
    return out


def _double_from_words(pairs: np.ndarray) -> np.ndarray:
    """uint32 [n, 2] → float64 [n] in [0, 1)."""
    wide = pairs.astype(np.uint64)
    bits = (wide[:, 0] & np.uint64(0xFFFFF)) << _32 | wide[:, 1] | np.uint64(1023 << 52)
    return bits.view(np.float64) - 1.0


def _normal_floats(blocks: np.ndarray) -> np.ndarray:
    """Box-Muller on each pair of words: uint32 [n, 4] → float32 [n, 4]."""
    u = _float_from_word(blocks.reshape(-1, 2), dtypes.float32)
    return _box_muller(u, np.float32).reshape(-1, 4)


def _normal_doubles(blocks: np.ndarray) -> np.ndarray:
    """Box-Muller on each block: uint32 [n, 4] → float64 [n, 2]."""
    return _box_muller(_double_from_words(blocks.reshape(-1, 2)).reshape(-1, 2), np.float64)


def _box_muller(u: np.ndarray, real: type[np.floating[Any]]) -> np.ndarray:
    """Converts uniform pairs to normal pairs, the sine first: [n, 2] → [n, 2].

    The functions are evaluated in double precision and rounded. This is closest to the C library's single precision
    (about one number in a hundred differs in its last bit), and numpy's single precision functions are less close.
    """
    wide = u.astype(np.float64)
    logarithm = np.log(np.maximum(wide[:, 0], real(_LEAST_U))).astype(real)
    radius = np.sqrt(real(-2) * logarithm)
    angle = (2 * math.pi * wide[:, 1]).astype(real).astype(np.float64)
    out = np.stack([np.sin(angle), np.cos(angle)], axis=1).astype(real)
    out *= radius[:, np.newaxis]
    return out
