"""Which elements of an array have been written and read: TensorFlow 1 allows each once.

A `TensorList` is a value, and every write gives a new one. The array of a TensorFlow 1 program is one thing all the
time, whichever version of the list an operation holds, so all versions share one `Accesses`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headrace.errors import InvalidArgumentError


class Accesses:
    """The elements of one array that have been written and read. Methods may be called from several threads.

    Args:
      name: of the array, for errors.
      clear_after_read: whether an element may be read only once.

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
        """Notes that the elements at `indices` are read.

        Raises:
          InvalidArgumentError: one was read before, and `clear_after_read`.
        """
        with self._lock:
            for i in indices:
                if self._clear_after_read and i in self._read:
                    raise InvalidArgumentError(
                        f"TensorArray {self._name}: Could not read index {i} twice because it was cleared after a "
                        "previous read (perhaps try setting clear_after_read = false?)."
                    )
                self._read.add(i)

    def write(self, indices: Iterable[int]) -> None:
        """Notes that the elements at `indices` are written.

        Raises:
          InvalidArgumentError: one was written or read before.
        """
        with self._lock:
            for i in indices:
                if i in self._read or i in self._written:
                    why = "read" if i in self._read else "written to"
                    raise InvalidArgumentError(
                        f"TensorArray {self._name}: Could not write to TensorArray index {i} because it has already "
                        f"been {why}."
                    )
                self._written.add(i)
