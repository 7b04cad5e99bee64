"""Maps from numbers to sparse tensors, which are enqueued as these numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

SparseTensor: TypeAlias = "tuple[np.ndarray, np.ndarray, np.ndarray]"  # indices, values, dense shape


class SparseTensorsMap:
    """Map behind AddSparseToTensorsMap and TakeManySparseFromTensorsMap. Thread safe.

    Attributes:
      name: The name, for messages.
    """

    __slots__ = ("_lock", "_next", "_tensors", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._tensors: dict[int, SparseTensor] = {}
        self._next = 0

    def add(self, tensors: Iterable[SparseTensor]) -> list[int]:
        """Stores tensors; returns the number of each."""
        with self._lock:
            first = self._next
            for t in tensors:
                self._tensors[self._next] = t
                self._next += 1
            return list(range(first, self._next))

    def take(self, numbers: Iterable[int]) -> list[SparseTensor]:
        """Removes and returns the tensors of these numbers.

        Raises:
          InvalidArgumentError: A number is unknown. The tensors before it are removed.
        """
        taken = []
        with self._lock:
            for i in numbers:
                found = self._tensors.pop(i, None)
                if found is None:
                    raise InvalidArgumentError(f"Unable to find SparseTensor: {i} in map: {self.name}")
                taken.append(found)
        return taken

    def release(self) -> None:
        """Removes all tensors."""
        with self._lock:
            self._tensors.clear()

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"SparseTensorsMap({self.name!r}, {len(self)} tensors)"
