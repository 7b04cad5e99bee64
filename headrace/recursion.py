"""Room on Python's stack for what is nested: structures in structures, and functions that call themselves.

What walks over nested conditionals, loops and functions recurses with them, and Python allows a thousand calls. A call
of a Python function from another takes no room on the machine's stack, so that limit can be higher. It holds for the
whole process; so it is raised only while something runs that needs it, and what was there before is put back when the
last of them ends.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

from headrace import forking

if TYPE_CHECKING:
    from collections.abc import Iterator

# Nested structures. A walk over them passes through C (`map`, generators) a few times at each level, for
# which a thread's stack (8 MiB) has to suffice: 1,000 levels take less than 3 MiB of it.
MOST: Final = 1_000
FRAMES: Final = 40  # calls of Python functions at each level, at most: lowering has 25, gradients 30

_lock = threading.Lock()
_room = 0  # that is given
_before = _set = 0  # the limit where none is given, and the one that was set last


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


forking.run_after_fork(_forked)


@contextlib.contextmanager
def recursion_room(calls: int) -> Iterator[None]:
    """Lets Python functions call one another `calls` deeper than outside, for the length of a `with` block."""
    if calls:
        _give(calls)
    try:
        yield
    finally:
        if calls:
            _give(-calls)


@contextlib.contextmanager
def recursion_room_for_levels(levels: int) -> Iterator[None]:
    """Room for a walk over structures that are nested `levels` deep, or for tracing one level more.

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
        if not _room or sys.getrecursionlimit() != _set:  # it is the user's own
            _before = sys.getrecursionlimit()
        _room += calls
        _set = _before + _room
        sys.setrecursionlimit(_set)
