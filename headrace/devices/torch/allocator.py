"""PyTorch's allocator of a CUDA device: its limit, and its figures.

A session's account (`resources.memory`) counts values that outlive an operation. All memory, temporary values included,
comes from the allocator, which has *one* limit for the whole process. Of the sessions that have the device open,

* if all have a memory limit, the limit of the allocator is the sum of theirs, or less if the program had set less;
* if one has none, the allocator has the limit that the program had set.

So a session can use what another one leaves free: the allocator does not know for which session it allocates. Tensors
that the program makes without headrace count as well. When the last session with a limit is closed, the allocator has
the limit that it had before the first one.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from headrace import forking


class Cuda(Protocol):
    """The part of `torch.cuda` that `Allocator` uses.

    Newer versions of PyTorch have `get_per_process_memory_fraction`, too.
    """

    def get_device_properties(self, device: int) -> Any: ...
    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None: ...
    def memory_allocated(self, device: int) -> int: ...
    def max_memory_allocated(self, device: int) -> int: ...


class Allocator:
    """The allocator of a device; see the module's text. Thread-safe.

    Args:
      cuda: the module `torch.cuda`, or an object with this part of it.
      index: the number of the device.
    """

    def __init__(self, cuda: Cuda, index: int) -> None:
        self._cuda = cuda
        self._index = index
        self._limits: list[int | None] = []  # of the open sessions
        self._before = 1.0  # the fraction of memory that the program had set
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.Lock()

    def open(self, limit: int | None) -> None:
        """Counts the limit of a session that opens the device; None: it has no limit."""
        with self._lock:
            if limit is not None and not self._known():
                get = getattr(self._cuda, "get_per_process_memory_fraction", None)
                self._before = 1.0 if get is None else get(self._index)
            self._limits.append(limit)
            self._apply(limit)

    def close(self, limit: int | None) -> None:
        """Ends the effect of `open`."""
        with self._lock:
            self._limits.remove(limit)
            self._apply(limit)

    def _known(self) -> list[int]:
        return [n for n in self._limits if n is not None]

    def _apply(self, changed: int | None) -> None:
        """Sets the fraction after a session with the limit `changed` came or went."""
        known = self._known()
        if not known and changed is None:
            return
        fraction = self._before
        if known and len(known) == len(self._limits):
            fraction = min(fraction, sum(known) / self._cuda.get_device_properties(self._index).total_memory)
        self._cuda.set_per_process_memory_fraction(fraction, self._index)

    def figures(self) -> tuple[int, int]:
        """Returns the bytes of all tensors of this process there, now and at most."""
        return self._cuda.memory_allocated(self._index), self._cuda.max_memory_allocated(self._index)
