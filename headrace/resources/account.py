"""Memory account of one resource on a device, such as a queue or a table.

A resource without an account is not counted. A resource on a device with a memory limit gets an account at its
creation.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from headrace import forking
from headrace.resources.values import nbytes_of

if TYPE_CHECKING:
    from headrace.resources.memory import Memory
    from headrace.resources.values import Value


class Account:
    """Bytes that one resource holds. Thread safe.

    Args:
      memory: The memory of the device.
      what: The resource, for messages.

    Example:
      >>> from headrace.resources.memory import Memory
      >>> account = Account(Memory("/device:CPU:0", 1000), "FIFOQueue 'q'")
      >>> account.add(600)
      >>> account.add(600)
      Traceback (most recent call last):
      headrace.errors.ResourceExhaustedError: /device:CPU:0 would exceed its memory limit of 1,000 bytes: ...
    """

    def __init__(self, memory: Memory, what: str) -> None:
        self._memory = memory
        self._what = what
        self._bytes = 0
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def add(self, n: int) -> None:
        """Adds `n` bytes before they are allocated.

        Raises:
          ResourceExhaustedError: The memory limit would be exceeded.
        """
        with self._lock:
            self._memory.change(self._what, self._bytes, self._bytes + n)
            self._bytes += n

    def set(self, n: int) -> None:
        """Sets the number of bytes before they are allocated.

        Raises:
          ResourceExhaustedError: The memory limit would be exceeded.
        """
        with self._lock:
            self._memory.change(self._what, self._bytes, n)
            self._bytes = n

    def remove(self, n: int) -> None:
        """Subtracts `n` bytes that were freed."""
        self.add(-n)

    def clear(self) -> None:
        """Sets the number of bytes to 0."""
        self.set(0)


def size(values: Iterable[Value]) -> int:
    """Bytes of some values, including those of their strings."""
    return sum(nbytes_of(v) + _text(v) for v in values)


def _text(value: Value) -> int:
    """Bytes of the strings in a value."""
    if not isinstance(value, np.ndarray) or not value.dtype.hasobject:
        return 0
    return sum(len(s) for s in value.flat if isinstance(s, bytes))
