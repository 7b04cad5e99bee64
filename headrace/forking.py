"""Support of forked processes (`os.fork`, multiprocessing's "fork"): unlocked locks, new threads.

A child process has a copy of its parent's memory, but only one thread: the one that forked. A lock that another thread
held stays locked in the child for ever, and a pool of threads has no threads. So a long-lived object with a lock or
threads is registered (`register_at_fork`). In each child its method `_forked` is called before anything else, and makes
new ones. An object of a single step need not be registered: either the thread of the step is not in the child, or it is
the thread that forked.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final, Protocol


class ForkAware(Protocol):
    """An object that is notified of a fork."""

    def _forked(self) -> None:
        """Replaces locks and threads in a forked process, which has a single thread.

        It must not wait for any lock.
        """


_functions: Final[list[Callable[[], None]]] = []
_followed: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()


def register_at_fork(owner: ForkAware) -> None:
    """Calls `owner._forked()` in every process forked from this one, while `owner` exists."""
    _followed.add(owner)


def run_after_fork(f: Callable[[], None]) -> None:
    """Calls `f()` in every process forked from this one; for the locks of modules."""
    _functions.append(f)


def _forked() -> None:
    for f in _functions:
        f()
    for owner in list(_followed):
        owner._forked()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forked)
