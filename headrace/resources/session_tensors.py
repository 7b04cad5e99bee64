"""Tensors that a session keeps between steps, under handles that are strings."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from headrace import forking
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.resources.values import Value


class SessionTensors:
    """Store behind GetSessionHandle, GetSessionTensor and DeleteSessionTensor. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tensors: dict[str, Value] = {}
        self._numbers = itertools.count()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def put(self, name: str, device: str, value: Value) -> str:
        """Stores `value`; returns its handle, made of name, number and device."""
        with self._lock:
            handle = f"{name};{next(self._numbers)};{device}"
            self._tensors[handle] = value
        return handle

    def get(self, handle: str) -> Value:
        """The value of a handle.

        Raises:
          InvalidArgumentError: The handle is unknown.
        """
        with self._lock:
            if handle not in self._tensors:
                raise InvalidArgumentError(f"The tensor with handle '{handle}' is not in the session store.")
            return self._tensors[handle]

    def delete(self, handle: str) -> None:
        """Deletes the value of a handle.

        Raises:
          InvalidArgumentError: The handle is unknown.
        """
        self.get(handle)
        with self._lock:
            self._tensors.pop(handle, None)

    def release(self) -> None:
        """Deletes all values."""
        with self._lock:
            self._tensors.clear()

    def __repr__(self) -> str:
        return f"SessionTensors({len(self._tensors)} tensors)"
