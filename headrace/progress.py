"""Progress line on standard error for a long run: the current loop and iteration.

It adds no cost to a short run. The executor keeps ready nodes in a queue, and accepts a queue from its caller
(`RunOptions.ready`). A `Progress` supplies a plain deque, as the executor would create itself. A thread, which first
wakes after two seconds, reads an entry of this deque: a ready node with its iteration. The executor does no work for it
and takes no lock.

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

FIRST: Final = 2.0  # seconds before the first update
EVERY: Final = 0.5  # seconds between two updates of a terminal's line
EVERY_LINE: Final = 5.0  # the same if each update is a line of its own (a file, a pipe)
_LOOKS: Final = 20  # the queue is empty while its only node runs, so the thread reads it several times


class Progress:
    """Shows the progress of a run. The module describes it.

    Args:
      out: the stream to write to; None: standard error. A terminal gets one line that changes, any other stream a line
        every few seconds.
      first: seconds before the first update.
      every: seconds between updates; None: a default for the kind of `out`.

    Attributes:
      ready: the queue of ready nodes for the run.
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
                text = "no operation is ready: the step waits, or a long operation runs"
                text += f"; last seen {self._last}" if self._last else ""
            self._write(f"{time.monotonic() - self._start:.0f} s: {text}")

    def _look(self) -> Iteration | None:
        """Returns the iteration of a ready node, if one appears within some 20 ms."""
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
            self._over.set()  # the stream has no reader any more


def describe(it: Iteration) -> str:
    """Describes the position `it` of a run, with a lower bound of its firings.

    In every iteration each node of a frame fires exactly once, so the index of the oldest open iteration gives the
    number of firings in those before it. The firings of nested loops in those iterations are not known, hence "at
    least".
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
