"""Events of a running step, for tracing, observation and debugging.

A *listener* is any callable that takes an event; `RunOptions(listener=...)` sets it for a run. Without a listener the
executor creates no events. Times are `time.perf_counter_ns()` nanoseconds.

    events = []
    session.run(y, options=hr.RunOptions(listener=events.append))
    step_events.write_chrome(events, "out.json")      # opens in chrome://tracing and Perfetto
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from headrace import public_names
from headrace.denormals import unflushed
from headrace.records import record


@record(frozen=True, slots=True)
class StepStart:
    """The start of a step.

    Attributes:
      time: nanoseconds of `time.perf_counter_ns()`.
      step: the number of the step.
      call: the prepared call of the session (`fetches.PreparedCall`), which has the programs of the step; None if the
        step has none.
    """

    time: int
    step: int
    call: Any = None


@record(frozen=True, slots=True)
class StepEnd:
    """The end of a step; `error` is the text of its error, or ""."""

    time: int
    step: int
    error: str


@record(frozen=True, slots=True)
class NodeStart:
    """The start of a node's firing.

    Attributes:
      time: nanoseconds of `time.perf_counter_ns()`.
      step: the number of the step.
      node: the name of the operation.
      type: the op type.
      tag: the frame and iteration as text: "" in the root, "outer#3/inner#0" below; of a call "function@call#0".
      frame: the name of the loop or function; "" for the root.
      iteration: the number of the iteration in the frame.
      dead: whether the node fires dead (and computes nothing).
      device: the device of the firing; "" if the step has one device only.
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


@record(frozen=True, slots=True)
class NodeEnd:
    """The end of a node's firing; for a call, the end of its frame.

    Attributes:
      time: nanoseconds of `time.perf_counter_ns()`.
      step: the number of the step.
      node: the name of the operation.
      type: the op type.
      tag: the frame and iteration as text, as in `NodeStart`.
      frame: the name of the loop or function; "" for the root.
      iteration: the number of the iteration in the frame.
      dead: whether the node fired dead.
      values: the values of its outputs, if the listener has `wants_values = True`; else None. None for a call: its
        values are those of the `_Retval`s in its frame.
      device: the device; "" if the step has one device only.
      sizes: the bytes of each output, if the listener has `wants_sizes = True` and the node did not fire dead; else
        None. For a Switch, the bytes of the output that it sent to, and 0 for the other. None for a call.
      waited: whether other nodes could fire in the meantime. This holds for a call, a kernel that waits (a Recv, a
        queue), and a kernel on another thread.
      cause: the cause of deadness (`execute.records.DeadCause`), if the listener has `wants_causes = True` and the node
        fired dead; else None. None for a Recv, whose Send has the cause.
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
    cause: Any = None


@record(frozen=True, slots=True)
class IterationOpen:
    """The opening of an iteration of a frame.

    Attributes:
      time: nanoseconds of `time.perf_counter_ns()`.
      step: the number of the step.
      tag: the frame and iteration as text, as in `NodeStart`.
      frame: the name of the loop or function; "" for the root.
      iteration: the number of the iteration in the frame.
      device: the device; "" if the step has one device only.
      limit: the `parallel_iterations` of the loop; 0 if the frame is not a loop.
    """

    time: int
    step: int
    tag: str
    frame: str
    iteration: int
    device: str = ""
    limit: int = 0


@record(frozen=True, slots=True)
class IterationFree:
    """The end of an iteration of a frame, whose record is dropped."""

    time: int
    step: int
    tag: str
    frame: str
    iteration: int
    device: str = ""


@record(frozen=True, slots=True)
class Crossing:
    """A token on its way between devices: `TokenSent` or `TokenReceived`.

    Attributes:
      time: nanoseconds of `time.perf_counter_ns()`.
      step: the number of the step.
      edge: the edge that was cut.
      tag: the tag of the firing, as in `NodeStart`.
      device: the device of the Send.
      to: the device of the Recv.
      dead: whether the token is dead.
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
    """The sending of a token by a Send."""

    __slots__ = ()


class TokenReceived(Crossing):
    """The arrival of the token of the `TokenSent` with the same edge and tag."""

    __slots__ = ()


@record(frozen=True, slots=True)
class StreamSpan:
    """A piece of work on a stream of a device, from `time` to `end`.

    Attributes:
      time: the start, in nanoseconds of `time.perf_counter_ns()`.
      end: the end, in the same unit.
      step: the number of the step.
      device: the device.
      stream: the stream: "compute" runs heavy kernels, "copy" swaps values out and in.
      name: the name of the work.
      bytes: number of bytes that it moved.
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
    """Passes events of several threads to `listener`, one after the other, in the user's mode.

    A listener with a method `observer` receives the executor's records in place of events (`execute.events.Observer`).
    """

    __slots__ = ("_listener", "_lock", "observer", "wants_causes", "wants_sizes", "wants_values")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self.wants_values = bool(getattr(listener, "wants_values", False))
        self.wants_sizes = bool(getattr(listener, "wants_sizes", False))
        self.wants_causes = bool(getattr(listener, "wants_causes", False))
        self.observer: Callable[[int, str], Any] | None = getattr(listener, "observer", None)

    def __call__(self, event: Event) -> None:
        with self._lock, unflushed():
            self._listener(event)


class Both:
    """Passes each event to `first`, then to `second`."""

    __slots__ = ("_first", "_second", "wants_causes", "wants_sizes", "wants_values")

    def __init__(self, first: Listener, second: Listener) -> None:
        self._first, self._second = first, second
        self.wants_values = any(getattr(x, "wants_values", False) for x in (first, second))
        self.wants_sizes = any(getattr(x, "wants_sizes", False) for x in (first, second))
        self.wants_causes = any(getattr(x, "wants_causes", False) for x in (first, second))

    def __call__(self, event: Event) -> None:
        self._first(event)
        self._second(event)


def joined(first: Listener | None, second: Listener) -> Listener:
    """Returns a listener that passes events to both; `second` alone if `first` is None or the same."""
    return second if first is None or first is second else Both(first, second)


def chrome_events(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Converts events to Chrome's trace format, with times in microseconds.

    For a step on one device, each iteration of a frame instance is a row (a "thread") and each firing a bar. The
    iterations of one frame instance form a group (a "process").

    For a step over several devices, each device is a group. It has a row for each iteration that is open at the time,
    so the number of rows in use is the number of iterations in flight, and a row for each stream. Arrows lead from
    Sends to Recvs.
    """
    chart = _Chart()
    for e in events:
        chart.add(e)
    return chart.out


class _Chart:
    """Builds `out`, a list of Chrome's events, from events of headrace."""

    def __init__(self) -> None:
        self.out: list[dict[str, Any]] = []
        self._groups: dict[str, int] = {}
        self._named: set[tuple[int, int]] = set()
        self._started: dict[tuple[int, str, str, str], list[tuple[int, int]]] = {}  # start time and row
        self._rows: dict[tuple[int, str, str], int] = {}  # (step, device, tag) of an open iteration → its row
        self._arrows: dict[tuple[int, str, str], int] = {}
        self._streams: dict[str, int] = {}

    def add(self, e: Event) -> None:
        if isinstance(e, NodeStart):
            row = self._rows.get((e.step, e.device, e.tag), 0)  # the iteration may be over when the node ends
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
        """Group and row of a firing, whose iteration has `row` on its device."""
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
        """Adds one end of an arrow, which attaches to the bar around it."""
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
    import json  # a slow import, needed only here

    data = {"traceEvents": chrome_events(events), "displayTimeUnit": "ns"}
    if isinstance(file, str):
        with open(file, "w", encoding="utf-8") as f:
            json.dump(data, f)
    else:
        json.dump(data, file)


# fmt: off
__all__ = [
    "Both", "Crossing", "Event", "IterationFree", "IterationOpen", "Listener", "NodeEnd", "NodeStart", "OneAtATime",
    "StepEnd", "StepStart", "StreamSpan", "TokenReceived", "TokenSent", "chrome_events", "joined",
    "write_chrome",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
