"""One line on standard error about a run that takes long: how far it is, in which loop and iteration.

It costs a short run nothing. The executor keeps ready nodes in a queue, and lets its owner supply that queue
(`RunOptions.ready`); a `Progress` supplies the plain deque that the executor would have made itself, and a thread
that first wakes after two seconds looks at what stands in it: a ready node with its iteration. The executor does no
work for it and takes no lock.

    with Progress() as p:
        session.run(y, options=RunOptions(ready=p.ready))
"""

from __future__ import annotations

import collections
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

from headrace.execute.blame import where

if TYPE_CHECKING:
    from headrace.execute.records import Iteration

FIRST: Final = 2.0  # seconds before anything is shown
EVERY: Final = 0.5  # seconds between two updates of a terminal's line
EVERY_LINE: Final = 5.0  # the same where each update is a line of its own (a file, a pipe)
_LOOKS: Final = 20  # the queue is empty while its only node runs, so one look is not enough


class Progress:
    """Shows what a run is doing; see the module's text.

    Args:
      out: where to; a terminal gets one line that changes, anything else a line every few seconds.
      first, every: seconds before the first update, and between updates (None: as fits `out`).

    Attributes:
      ready: the queue of ready nodes to run with.
    """

    def __init__(self, out: TextIO | None = None, first: float = FIRST, every: float | None = None) -> None:
        self.ready: collections.deque[tuple[Any, Iteration]] = collections.deque()
        self._out = sys.stderr if out is None else out
        self._is_terminal = self._out.isatty()
        self._first = first
        self._every = every if every is not None else EVERY if self._is_terminal else EVERY_LINE
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="headrace-progress", daemon=True)
        self._start = 0.0
        self._last = ""
        self._width = 0

    def __enter__(self) -> Progress:
        self._start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        if self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()

    def _show(self) -> None:
        wait = self._first
        while not self._over.wait(wait):
            wait = self._every
            it = self._look()
            if it is not None:
                self._last = describe(it)
                text = self._last
            else:
                text = "nothing is ready: it waits, or a long operation runs"
                text += f"; last seen {self._last}" if self._last else ""
            self._write(f"{time.monotonic() - self._start:.0f} s: {text}")

    def _look(self) -> Iteration | None:
        """The iteration of a node that is ready now."""
        for _ in range(_LOOKS):
            try:
                return self.ready[0][1]
            except IndexError:
                if self._over.wait(0.001):
                    break
        return None

    def _write(self, text: str) -> None:
        try:
            if self._is_terminal:
                text = text[:100]
                self._out.write("\r" + text.ljust(self._width))
                self._width = len(text)
            else:
                self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError):
            self._over.set()  # nobody reads it any more


def describe(it: Iteration) -> str:
    """Where a run is that works in `it`, and how many nodes have fired at the least.

    In every iteration each node of a frame fires exactly once, so the number of the oldest open iteration says how
    many fired in those before it. What nested loops did in them is not known: hence "at least".
    """
    fired = 0
    at: Iteration | None = it
    while at is not None:
        count = at.frame.plan.count
        one: Iteration | None = at.frame.oldest
        fired += at.frame.oldest.index * count
        while one is not None:
            fired += max(count - one.left, 0)
            one = one.next
        at = at.frame.parent
    return f"{where(it) or 'outside any loop'}; at least {fired:,} nodes fired"
