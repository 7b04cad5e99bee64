"""Memory account of one resource on a device: elements of a queue, keys and values of a table.

A resource without an account is not counted; one gets it when it is made on a device with a memory limit.
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
    """The bytes that one resource holds. Thread safe.

    Args:
      memory: the device's.
      what: the resource, for messages.

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
        """See `forking`."""
        self._lock = threading.Lock()

    def add(self, n: int) -> None:
        """`n` bytes more are about to be held.

        Raises:
          ResourceExhaustedError: that would be more than the limit.
        """
        with self._lock:
            self._memory.change(self._what, self._bytes, self._bytes + n)
            self._bytes += n

    def set(self, n: int) -> None:
        """`n` bytes in all are about to be held.

        Raises:
          ResourceExhaustedError: that would be more than the limit.
        """
        with self._lock:
            self._memory.change(self._what, self._bytes, n)
            self._bytes = n

    def remove(self, n: int) -> None:
        """`n` bytes are no longer held."""
        self.add(-n)

    def clear(self) -> None:
        """Nothing is held any more."""
        self.set(0)


def size(values: Iterable[Value]) -> int:
    """The bytes of some values, those of their strings among them."""
    return sum(nbytes_of(v) + _text(v) for v in values)


def _text(value: Value) -> int:
    """The bytes of the strings in a value."""
    if not isinstance(value, np.ndarray) or not value.dtype.hasobject:
        return 0
    return sum(len(s) for s in value.flat if isinstance(s, bytes))
