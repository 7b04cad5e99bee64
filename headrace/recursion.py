"""Recursion limit of Python for nested structures and for functions that call themselves.

A walk over nested conditionals, loops and functions is recursive, and Python allows a thousand nested calls. A call of
a Python function from another uses no space on the machine's stack, so the limit can be higher. The limit is global to
the process. So it is raised only while some code needs it, and restored when the last such code ends.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

from headrace import forking

if TYPE_CHECKING:
    from collections.abc import Iterator

# Nested structures. At each level a walk passes through C (`map`, generators) a few times, which uses the thread's
# stack (8 MiB): 1,000 levels need less than 3 MiB of it.
MOST: Final = 1_000
FRAMES: Final = 40  # largest number of nested calls of Python functions for each level: lowering has 25, gradients 30

_lock = threading.Lock()
_room = 0  # the sum of the calls that are granted
_before = _set = 0  # the limit without grants, and the limit that was set last


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


forking.run_after_fork(_forked)


@contextlib.contextmanager
def recursion_room(calls: int) -> Iterator[None]:
    """Raises the recursion limit by `calls` for the duration of a `with` block."""
    if calls:
        _give(calls)
    try:
        yield
    finally:
        if calls:
            _give(-calls)


@contextlib.contextmanager
def recursion_room_for_levels(levels: int) -> Iterator[None]:
    """Raises the recursion limit for a walk over `levels` nested structures.

    Tracing one level more is within it too.

    Example:
      >>> import sys
      >>> before = sys.getrecursionlimit()
      >>> with recursion_room_for_levels(100):
      ...     sys.getrecursionlimit() - before
      4000
    """
    with recursion_room(FRAMES * min(levels, MOST)):
        yield


def _give(calls: int) -> None:
    global _room, _before, _set
    with _lock:
        if not _room or sys.getrecursionlimit() != _set:  # the user has set the limit
            _before = sys.getrecursionlimit()
        _room += calls
        _set = _before + _room
        sys.setrecursionlimit(_set)
