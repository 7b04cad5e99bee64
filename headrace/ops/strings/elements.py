"""Elementwise functions of string arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import flags
from headrace.errors import ResourceExhaustedError


def texts(*elements: bytes) -> np.ndarray:
    """A vector of strings."""
    out = np.empty(len(elements), object)
    out[:] = elements
    return out


class Budget:
    """The bytes that the strings made by one firing of an operation may have together.

    Args:
      op: the op type, for the message.

    Example:
      >>> Budget("StringJoin").take(5)
    """

    __slots__ = ("_op", "_taken")

    def __init__(self, op: str) -> None:
        self._op = op
        self._taken = 0

    def take(self, n: int) -> None:
        """Counts `n` bytes that are about to be made.

        Raises:
          ResourceExhaustedError: they are too many.
        """
        self._taken += n
        if self._taken > flags.STRING_LIMIT.value:
            raise ResourceExhaustedError(
                f"{self._op} would make strings of more than {flags.STRING_LIMIT.value} bytes together; give it less, "
                "or raise the limit by HEADRACE_STRING_LIMIT"
            )

    def join(self, separator: bytes, texts: Sequence[bytes]) -> bytes:
        """`separator.join(texts)`."""
        self.take(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
        return separator.join(texts)


def each(f: Callable[[bytes], Any], x: np.ndarray, dtype: Any = object) -> np.ndarray:
    """`f` of each element, as an array of `dtype`."""
    out = np.empty(x.size, dtype)
    out[:] = [f(text) for text in x.ravel()]
    return out.reshape(x.shape)
