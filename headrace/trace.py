"""What happens while a step runs, as structured events: the one stream that tracing, watching and debugging read.

A *listener* is any callable that takes an event; give it to a run by `RunOptions(listener=...)`. Without one the
executor takes a path on which no event exists. Times are `time.perf_counter_ns()` nanoseconds.

    events = []
    session.run(y, options=hr.RunOptions(listener=events.append))
    trace.write_chrome(events, "out.json")      # opens in chrome://tracing and Perfetto
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TypeAlias

from headrace.denormals import unflushed


@dataclasses.dataclass(frozen=True, slots=True)
class StepStart:
    """A step begins."""

    time: int
    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepEnd:
    """A step is over; `error` is the text of what it failed with, or ""."""

    time: int
    step: int
    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class NodeStart:
    """A node fires.

    Attributes:
      time: nanoseconds of `time.perf_counter_ns()`.
      step: number of the step.
      node, type: the operation's name and op type.
      tag: the frame and iteration as text: "" in the root, "outer#3/inner#0" below; of a call "function@call#0".
      frame: the loop's name, or the function's; "" for the root.
      iteration: the iteration's number in it.
      dead: whether it fires dead (and computes nothing).
      device: where it fires; "" if the step has one device only.
    """

    time: int
    step: int
    node: str
    type: str
    tag: str
    frame: str
    iteration: int
    dead: bool
    device: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeEnd:
    """A node is done; its fields are those of `NodeStart`. A call is done when everything in its frame is.

    Attributes:
      values: its outputs' values, if the listener has `wants_values = True`; else None. None for a call: its values are
        those of the `_Retval`s in its frame.
      sizes: the bytes of each output, if the listener has `wants_sizes = True` and it did not fire dead; else None. Of
        a Switch, those of the output that it sent to, and 0. None for a call.
      waited: whether others could fire between its start and now: it is a call, waited for something (a Recv, a
        queue), or was computed on another thread.
    """

    time: int
    step: int
    node: str
    type: str
    tag: str
    frame: str
    iteration: int
    dead: bool
    values: tuple[Any, ...] | None
    device: str = ""
    sizes: tuple[int, ...] | None = None
    waited: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class IterationOpen:
    """An iteration of a frame is opened.

    Attributes:
      limit: how many iterations of the loop may be open at once (its `parallel_iterations`); 0: the frame is no loop's.
    """

    time: int
    step: int
    tag: str
    frame: str
    iteration: int
    device: str = ""
    limit: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class IterationFree:
    """An iteration of a frame is done and its record dropped."""

    time: int
    step: int
    tag: str
    frame: str
    iteration: int
    device: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Crossing:
    """A token on its way from one device to another: `TokenSent` or `TokenReceived`.

    Attributes:
      edge: the edge that was cut.
      tag: of the firing, as in `NodeStart`.
      device, to: from where to where.
      dead: whether it carries no value.
      size: the bytes of the value, if the listener has `wants_sizes = True`; else 0.
    """

    time: int
    step: int
    edge: str
    tag: str
    device: str
    to: str
    dead: bool
    size: int = 0


class TokenSent(Crossing):
    """A Send ships a token."""

    __slots__ = ()


class TokenReceived(Crossing):
    """A Recv has got the token of the `TokenSent` with the same edge and tag."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StreamSpan:
    """A piece of work that a stream of a device did beside the step; `time` and `end` say when it began and ended.

    Attributes:
      device, stream: which stream: "copy" swaps values out and in.
      name: what it did.
      bytes: how many it moved.
    """

    time: int
    end: int
    step: int
    device: str
    stream: str
    name: str
    bytes: int = 0


Event: TypeAlias = (
    StepStart | StepEnd | NodeStart | NodeEnd | IterationOpen | IterationFree | TokenSent | TokenReceived | StreamSpan
)
Listener: TypeAlias = Callable[[Event], object]


class OneAtATime:
    """A listener that several threads may call: `listener` hears one event after the other, in the user's mode."""

    __slots__ = ("_listener", "_lock", "wants_sizes", "wants_values")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self.wants_values = bool(getattr(listener, "wants_values", False))
        self.wants_sizes = bool(getattr(listener, "wants_sizes", False))

    def __call__(self, event: Event) -> None:
        with self._lock, unflushed():
            self._listener(event)


class Both:
    """A listener that tells each event to `first`, then to `second`."""

    __slots__ = ("_first", "_second", "wants_sizes", "wants_values")

    def __init__(self, first: Listener, second: Listener) -> None:
        self._first, self._second = first, second
        self.wants_values = any(getattr(x, "wants_values", False) for x in (first, second))
        self.wants_sizes = any(getattr(x, "wants_sizes", False) for x in (first, second))

    def __call__(self, event: Event) -> None:
        self._first(event)
        self._second(event)


def chrome_events(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The events in Chrome's trace format, microseconds.

    Of a step on one device: a row for each frame and iteration, a bar for each firing. Iterations of one frame instance
    stand in one group (a "process"), each iteration in a row (a "thread") of it.

    Of a step over several devices: a group for each device, with a row for each iteration that is open at the time (so
    how many rows are in use is how many are in flight), and one for each stream. Arrows lead from Sends to Recvs.
    """
    chart = _Chart()
    for e in events:
        chart.add(e)
    return chart.out


class _Chart:
    """Makes `out`, a list of Chrome's events, of ours."""

    def __init__(self) -> None:
        self.out: list[dict[str, Any]] = []
        self._groups: dict[str, int] = {}
        self._named: set[tuple[int, int]] = set()
        self._started: dict[tuple[int, str, str, str], list[tuple[int, int]]] = {}  # when, and in which row
        self._rows: dict[tuple[int, str, str], int] = {}  # (step, device, tag) of an open iteration → its row
        self._arrows: dict[tuple[int, str, str], int] = {}
        self._streams: dict[str, int] = {}

    def add(self, e: Event) -> None:
        if isinstance(e, NodeStart):
            row = self._rows.get((e.step, e.device, e.tag), 0)  # when it ends, the iteration may be over
            self._started.setdefault((e.step, e.device, e.node, e.tag), []).append((e.time, row))
        elif isinstance(e, NodeEnd):
            self._fired(e)
        elif isinstance(e, StreamSpan):
            pid, tid = self._stream(e.device, e.stream)
            self._bar(e.name, e.stream, e.time, e.end, pid, tid, {"bytes": e.bytes})
        elif isinstance(e, Crossing):
            self._arrow(e)
        elif isinstance(e, IterationOpen) and e.device:
            taken = {row for (_, device, _), row in self._rows.items() if device == e.device}
            self._rows[e.step, e.device, e.tag] = next(i for i in range(len(taken) + 1) if i not in taken)
        elif isinstance(e, IterationFree):
            self._rows.pop((e.step, e.device, e.tag), None)

    def _fired(self, e: NodeEnd) -> None:
        begin = self._started.get((e.step, e.device, e.node, e.tag))
        t0, row = begin.pop() if begin else (e.time, 0)
        pid, tid = self._place(e, row)
        about = {"op": e.type, "tag": e.tag, "dead": e.dead}
        self._bar(e.node, "dead" if e.dead else e.type, t0, e.time, pid, tid, about)

    def _place(self, e: NodeEnd, row: int) -> tuple[int, int]:
        """Group and row of a firing; `row` is the one that its iteration has on a device."""
        if e.device:
            return self._row(e.device, row, f"open iteration {row}")
        instance = f"step {e.step}: " + (e.tag.rpartition("#")[0] or "root")
        return self._row(instance, e.iteration, f"iteration {e.iteration}")

    def _stream(self, device: str, stream: str) -> tuple[int, int]:
        row = self._streams.setdefault(stream, _STREAMS + len(self._streams))
        return self._row(device or "streams", row, f"stream {stream}")

    def _row(self, group: str, tid: int, name: str) -> tuple[int, int]:
        pid = self._groups.get(group)
        if pid is None:
            pid = self._groups[group] = len(self._groups) + 1
            self.out.append(_meta("process_name", pid, 0, group))
        if (pid, tid) not in self._named:
            self._named.add((pid, tid))
            self.out.append(_meta("thread_name", pid, tid, name))
        return pid, tid

    def _bar(self, name: str, kind: str, start: int, end: int, pid: int, tid: int, about: dict[str, Any]) -> None:
        self.out.append(
            {
                "name": name,
                "cat": kind,
                "ph": "X",
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "pid": pid,
                "tid": tid,
                "args": about,
            }
        )

    def _arrow(self, e: Crossing) -> None:
        """One end of an arrow; it begins and ends at the bars that lie around its ends."""
        key = (e.step, e.edge, e.tag)
        number = self._arrows.setdefault(key, len(self._arrows) + 1)
        is_start = isinstance(e, TokenSent)
        device = e.device if is_start else e.to
        row = self._rows.get((e.step, device, e.tag), 0)
        pid, tid = self._row(device, row, f"open iteration {row}")
        about = {"name": e.edge, "cat": "dead token" if e.dead else "token", "id": number, "pid": pid, "tid": tid}
        self.out.append(
            {"ph": "s" if is_start else "f", "ts": e.time / 1000, **about} | ({} if is_start else {"bp": "e"})
        )


_STREAMS = 1_000_000  # rows of streams come after those of iterations


def _meta(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def write_chrome(events: Sequence[Event], file: str | IO[str]) -> None:
    """Writes `events` as a Chrome trace to `file`, a path or an open text file."""
    import json  # slow to import, and only needed here

    data = {"traceEvents": chrome_events(events), "displayTimeUnit": "ns"}
    if isinstance(file, str):
        with open(file, "w", encoding="utf-8") as f:
            json.dump(data, f)
    else:
        json.dump(data, file)
