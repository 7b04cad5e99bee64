"""Stacks for the residuals of loops in graphs built by TensorFlow 1."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.values import Value


class Stack:
    """Stack of tensors of one dtype, behind StackV2 and its ops. Thread safe.

    Attributes:
      name: The name, for messages.
      dtype: The dtype of its elements.
      max_size: The largest number of elements; None for any number.
    """

    __slots__ = ("_closed", "_lock", "_values", "dtype", "max_size", "name")

    def __init__(self, name: str, dtype: DType, max_size: int | None = None) -> None:
        self.name = name
        self.dtype = dtype
        self.max_size = max_size
        self._lock = threading.Lock()
        self._values: list[Value] = []
        self._closed = False

    def push(self, value: Value, dtype: DType) -> None:
        """Pushes `value` of `dtype`.

        Raises:
          InvalidArgumentError: The stack is full or closed, or has another dtype.
        """
        if dtype.base != self.dtype:
            raise InvalidArgumentError(f"Stack[{self.name}] Must have type {self.dtype.name} but got {dtype.name}")
        with self._lock:
            self._check_open()
            if self.max_size is not None and len(self._values) >= self.max_size:
                raise InvalidArgumentError(f"Stack[{self.name}] overflowed its max_size ({self.max_size})")
            self._values.append(value)

    def pop(self) -> Value:
        """Pops the top value.

        Raises:
          InvalidArgumentError: The stack is empty or closed.
        """
        with self._lock:
            self._check_open()
            if not self._values:
                raise InvalidArgumentError(f"Stack[{self.name}] is empty when calling Pop().")
            return self._values.pop()

    def close(self) -> None:
        """Drops all values; every later push or pop fails."""
        with self._lock:
            self._closed = True
            self._values.clear()

    release = close

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Stack({self.name!r}, {self.dtype.name}, {len(self)} values{', closed' if self._closed else ''})"

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"Stack[{self.name}] has already been closed.")
