"""What a forked process needs (`os.fork`, multiprocessing's "fork"): locks that nobody holds.

A child has a copy of all that its parent's memory had, but only one thread: the one that forked. A lock that another
thread held is held for ever there, and a pool of threads has none. So what lives long and has a lock or threads
*follows* (`register_at_fork`): in each child its method `_forked` is called, before anything else happens there, and it
makes itself new ones. What belongs to one step need not: the step's thread is not there any more, or it is the one that
forked.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final, Protocol


class ForkAware(Protocol):
    """What has to be told."""

    def _forked(self) -> None:
        """This process has just been forked off, and has one thread: this one. Must not wait for any lock."""


_functions: Final[list[Callable[[], None]]] = []
_followed: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()


def register_at_fork(owner: ForkAware) -> None:
    """Calls `owner._forked()` in every process that is forked off this one, as long as `owner` is there."""
    _followed.add(owner)


def run_after_fork(f: Callable[[], None]) -> None:
    """Calls `f()` in every process that is forked off this one; for the locks of modules."""
    _functions.append(f)


def _forked() -> None:
    for f in _functions:
        f()
    for owner in list(_followed):
        owner._forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forked)
