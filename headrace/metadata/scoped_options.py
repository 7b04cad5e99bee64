"""Options that `with` blocks set for the runs inside them.

A block applies to the runs of its own thread or asynchronous task. Runs read `count` first, so that a program without
such blocks pays for one comparison in each run.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import forking

if TYPE_CHECKING:
    from headrace.metadata.run import RunOptions

Change: TypeAlias = "Callable[[RunOptions], RunOptions]"

#: Number of open blocks in all threads.
count = 0

_lock = threading.Lock()
_changes: Final[contextvars.ContextVar[tuple[Change, ...]]] = contextvars.ContextVar("_changes", default=())


@contextlib.contextmanager
def changed(change: Change) -> Iterator[None]:
    """Applies `change` to the options of each run in the `with` block."""
    global count
    token = _changes.set((*_changes.get(), change))
    with _lock:
        count += 1
    try:
        yield
    finally:
        with _lock:
            count -= 1
        _changes.reset(token)


def applied(options: RunOptions) -> RunOptions:
    """Returns the options of a run in the blocks around it."""
    for change in _changes.get():
        options = change(options)
    return options


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


forking.run_after_fork(_forked)
