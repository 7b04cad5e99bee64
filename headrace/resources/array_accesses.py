"""Accesses to the elements of TensorFlow 1 arrays: one write and one read each.

A `TensorList` is a value, and every write makes a new one. But the array of a TensorFlow 1 program is one object, so
all versions of its list share one `Accesses`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from headrace.errors import InvalidArgumentError


class Accesses:
    """Elements of one array that were written and read.

    Methods may be called from several threads.

    Args:
      name: The name of the array, for errors.
      clear_after_read: Whether an element may be read only once.

    Source: the rules and texts are those of TensorFlow's `TensorArrayV3`.
    """

    __slots__ = ("_clear_after_read", "_lock", "_name", "_read", "_written")

    def __init__(self, name: str, clear_after_read: bool) -> None:
        self._name = name
        self._clear_after_read = clear_after_read
        self._read: set[int] = set()
        self._written: set[int] = set()
        self._lock = threading.Lock()

    def read(self, indices: Iterable[int]) -> None:
        """Records that the elements at `indices` are read.

        Raises:
          InvalidArgumentError: An element was read before, and `clear_after_read` is set.
        """
        with self._lock:
            for i in indices:
                if self._clear_after_read and i in self._read:
                    raise read_twice(self._name, i)
                self._read.add(i)

    def write(self, indices: Iterable[int]) -> None:
        """Records that the elements at `indices` are written.

        Raises:
          InvalidArgumentError: An element was written or read before.
        """
        with self._lock:
            for i in indices:
                if i in self._read:
                    raise not_writable(self._name, i, HAS_BEEN_READ)
                if i in self._written:
                    raise not_writable(self._name, i, HAS_BEEN_WRITTEN)
                self._written.add(i)


# *** errors, also those of `resources.tensor_array` ***

HAS_BEEN_READ: Final = "it has already been read"
HAS_BEEN_WRITTEN: Final = "it has already been written to"


def read_twice(array: str, index: int) -> InvalidArgumentError:
    """The error of a second read of an element that the first read cleared."""
    return InvalidArgumentError(
        f"TensorArray {array}: Could not read index {index} twice because it was cleared after a previous read "
        "(perhaps try setting clear_after_read = false?)."
    )


def not_writable(array: str, index: int, why: str) -> InvalidArgumentError:
    """The error of a write that is not allowed, with the reason `why`."""
    return InvalidArgumentError(f"TensorArray {array}: Could not write to TensorArray index {index} because {why}.")
