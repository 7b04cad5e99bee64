"""Times of ops from the events of a step on the token machine."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from headrace import step_events
from headrace.observe.profile_rows import Row, distinct, without_function

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART: Final = re.compile(r"(.*?)#\d+(?:/|$)")
_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")


class EventTimes:
    """Listener that adds up times by device and node.

    Attributes:
      nanoseconds: the time that the listener took.
    """

    def __init__(self) -> None:
        self.nanoseconds = 0
        self._started: dict[tuple[int, str, str, str], int] = {}
        self._times: dict[tuple[str, str], _Times] = {}
        self._loops: dict[tuple[str, str], _Loop] = {}

    def __call__(self, e: step_events.Event) -> None:
        began = time.perf_counter_ns()
        if isinstance(e, step_events.NodeStart):
            self._started[e.step, e.device, e.node, e.tag] = e.time
        elif isinstance(e, step_events.NodeEnd):
            start = self._started.pop((e.step, e.device, e.node, e.tag), e.time)
            if not e.dead:
                self._add(e, e.time - start)
        elif isinstance(e, step_events.IterationOpen):
            if e.limit and e.iteration:
                loop = self._loops.get((e.device, e.frame))
                if loop is None:
                    loop = self._loops[e.device, e.frame] = _Loop(_path(e.tag))
                loop.trips += 1
        elif isinstance(e, step_events.StreamSpan) and e.stream == "compute":
            found = self._times.get((e.device, e.name))
            if found is not None:  # of a heavy kernel, which another thread has run
                found.nanoseconds += e.end - e.time
                found.waited = max(found.waited - (e.end - e.time), 0)
        self.nanoseconds += time.perf_counter_ns() - began

    def _add(self, e: step_events.NodeEnd, took: int) -> None:
        found = self._times.get((e.device, e.node))
        if found is None:
            found = self._times[e.device, e.node] = _Times(e)
        found.calls += 1
        if not e.waited:
            found.nanoseconds += took
        elif e.type not in _CALLS:  # the nodes in the frame of a call have its time
            found.waited += took

    def rows(self) -> Iterator[Row]:
        """The rows of all events so far."""
        for (device, node), t in self._times.items():
            seconds, waited = t.nanoseconds / 1e9, t.waited / 1e9
            lines, shapes = distinct([without_function(t.source)]), (t.shapes,)
            yield Row((node,), (t.type,), t.path, lines, t.calls, seconds, waited, shapes=shapes, device=device)
        for (device, name), loop in self._loops.items():
            yield Row((name,), ("While",), loop.path, (), loop.trips, 0.0, is_loop=True, device=device)


def _path(tag: str) -> tuple[str, ...]:
    """The innermost function of a tag, and the loops in it."""
    path: tuple[str, ...] = ()
    for name in _PART.findall(tag):
        function, at, _ = name.rpartition("@")
        path = (function.rpartition("/")[2],) if at else (*path, name)
    return path


class _Times:
    """Sums of the firings of a node."""

    __slots__ = ("calls", "nanoseconds", "path", "shapes", "source", "type", "waited")

    def __init__(self, e: step_events.NodeEnd) -> None:
        self.type, self.path, self.source, self.shapes = e.type, _path(e.tag), e.source, e.shapes
        self.calls = self.nanoseconds = self.waited = 0


class _Loop:
    """Trips of a loop on a device."""

    __slots__ = ("path", "trips")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.trips = 0
