"""Room for functions that call themselves: Python's own limit lies at a thousand calls in one another.

A call of a Python function from another takes no room on the machine's stack, so the limit can be as high as memory
allows. It holds for the whole process; so it is raised only while steps run that need it, and what was there before is
put back when the last of them ends.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from headrace import forking

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.Lock()
_active = 0
_before = 0


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


forking.when_forked(_forked)


@contextlib.contextmanager
def room_for(calls: int) -> Iterator[None]:
    """Lets Python functions call one another `calls` deep for the length of a `with` block."""
    global _active, _before
    with _lock:
        if not _active:
            _before = sys.getrecursionlimit()
        _active += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _before + calls))
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                sys.setrecursionlimit(_before)
