"""Blocks of TensorFlow's random numbers, Philox4x32-10 (`resources.philox`), by native code.

A block takes ten rounds with two products of 32-bit numbers each. numpy makes a dozen passes over memory for a round.
"""

from __future__ import annotations

import functools

import numpy as np

from headrace.philox_rounds import MULTIPLIER0, MULTIPLIER2, ROUNDS, round_keys
from headrace.targets.native import engine
from headrace.targets.native.loops import Loops, compiled
from headrace.targets.native.values import Value


def filled(key: int, counter: int, offsets: np.ndarray, out: np.ndarray) -> bool:
    """Computes the block at each offset (`philox_rounds.Fill`), if native code is available."""
    if engine.available():
        return False
    start = np.array((counter % (1 << 64), counter >> 64), np.uint64)
    compiled(("philox",), _blocks)(out, start, _keys_of(key), offsets, len(offsets))
    return True


@functools.lru_cache(256)
def _keys_of(key: int) -> np.ndarray:
    """The words of a key in each round; each operation that draws has one key."""
    return np.array(round_keys(key), np.uint64)


def _blocks() -> Loops:
    loops = Loops([np.uint32, np.uint64, np.uint64, np.uint64], ["n"])
    out, start, words, offsets = loops.arrays
    low, high = start[0], start[1]
    keys = [words[k] for k in range(2 * ROUNDS)]
    with loops.each(0, loops.sizes[0]) as i:
        at = offsets[i]
        first = low + at
        carry = first.compare("ult", at).to("zext", "i64")
        c = _words(first, high + carry)
        for k in range(ROUNDS):
            product0, product2 = c[0] * MULTIPLIER0, c[2] * MULTIPLIER2
            c = [
                product2.dropped(32) ^ c[1] ^ keys[2 * k],
                product2 & 0xFFFFFFFF,
                product0.dropped(32) ^ c[3] ^ keys[2 * k + 1],
                product0 & 0xFFFFFFFF,
            ]
        for k, word in enumerate(c):
            out[(i << 2) + k] = word.to("trunc", "i32")
    return loops


def _words(low: Value, high: Value) -> list[Value]:
    return [low & 0xFFFFFFFF, low.dropped(32), high & 0xFFFFFFFF, high.dropped(32)]
