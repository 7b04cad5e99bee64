"""Rounds of Philox4x32-10, and the function that computes many blocks.

The random numbers (`resources.philox`) compute blocks with numpy, and many blocks with the registered function, if
there is one. Both have the constants of this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import thresholds

if TYPE_CHECKING:
    import numpy as np

MULTIPLIER0: Final = 0xD2511F53
MULTIPLIER2: Final = 0xCD9E8D57
ROUNDS: Final = 10
_WEYL0: Final = 0x9E3779B9  # added to the key after each round
_WEYL1: Final = 0xBB67AE85

#: A function of a key, the counter of the first block, offsets of blocks (uint64 [n]) and the array for these blocks
#: (uint32 [n, 4]). It returns False if numpy is to compute them.
Fill: TypeAlias = "Callable[[int, int, np.ndarray, np.ndarray], bool]"

_fills: list[Fill] = []  # at most one: the registry of the function
_draws = itertools.count()  # of few blocks, in this process


def round_keys(key: int) -> list[int]:
    """Returns the two words of the key in each round, one after the other."""
    low, high = key & 0xFFFFFFFF, key >> 32
    return [word for k in range(ROUNDS) for word in ((low + k * _WEYL0) & 0xFFFFFFFF, (high + k * _WEYL1) & 0xFFFFFFFF)]


def provide(fill: Fill) -> None:
    """Registers a function that computes blocks."""
    _fills[:] = [fill]


def filled(key: int, counter: int, offsets: np.ndarray, out: np.ndarray) -> bool:
    """Calls the registered function for many blocks, and after many draws for few.

    Returns:
      Whether it computed the blocks. Those that numpy computes are the same.
    """
    if not _fills or (len(offsets) < thresholds.NATIVE_RANDOM_BLOCKS and next(_draws) < thresholds.NATIVE_RANDOM_DRAWS):
        return False
    return _fills[0](key, counter, offsets, out)
