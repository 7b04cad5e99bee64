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
      dead: whether the node fires dead (and computes nothing). False for a Recv, whose token has not arrived.
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
      values: the values of its outputs, if the listener has `wants_values = True` or the node's name in `values_of`;
        else None. An output to which a Switch did not send is None. None for a call: its values are those of the
        `_Retval`s in its frame. On a cluster, summaries (`observe.summaries`) if the listener has
        `wants_summaries = True`.
      device: the device; "" if the step has one device only.
      sizes: the bytes of each output, if the listener has `wants_sizes = True` and the node did not fire dead; else
        None. For a Switch, the bytes of the output that it sent to, and 0 for the other. None for a call.
      waited: whether other nodes could fire in the meantime. This holds for a call, a kernel that waits (a Recv, a
        queue), and a kernel on another thread.
      cause: the cause of deadness (`execute.records.DeadCause`), if the listener has `wants_causes = True` and the node
        fired dead; else None.
      source: the line of the user's program that created the operation; "" if it is unknown.
      shapes: the dtypes and static shapes of its outputs, as text.
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
    source: str = ""
    shapes: str = ""


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
      stream: the stream: "compute" runs heavy kernels, "copy" swaps values out and in, "copy in" and "copy out" are
        those of a GPU.
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


class Wants:
    """The parts of events that at least one of some listeners wants.

    A listener says so by attributes of these names.

    Args:
      listeners: the listeners.

    Attributes:
      wants_values: whether events have the values of outputs.
      wants_sizes: whether events have the bytes of outputs.
      wants_causes: whether events have the causes of deadness.
      wants_summaries: whether events of a cluster have summaries of values.
      wants_all: whether the listener needs the events of all nodes; False: those of `values_of` and of iterations only.
        True for a listener without the attribute.
      values_of: the names of nodes whose events have values in any case.
    """

    __slots__ = ("values_of", "wants_all", "wants_causes", "wants_sizes", "wants_summaries", "wants_values")

    def __init__(self, *listeners: Listener) -> None:
        def any_wants(name: str, default: bool = False) -> bool:
            return any(getattr(x, name, default) for x in listeners)

        self.wants_values = any_wants("wants_values")
        self.wants_sizes = any_wants("wants_sizes")
        self.wants_causes = any_wants("wants_causes")
        self.wants_summaries = any_wants("wants_summaries")
        self.wants_all = any_wants("wants_all", True)
        self.values_of: frozenset[str] = frozenset().union(*(getattr(x, "values_of", ()) for x in listeners))


class OneAtATime(Wants):
    """Passes events of several threads to `listener`, one after the other, in the user's mode.

    A listener with a method `observer` receives the executor's records in place of events (`execute.observer`).
    """

    __slots__ = ("_listener", "_lock", "observer")

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._listener = listener
        self._lock = threading.Lock()
        self.observer: Callable[[int, str], Any] | None = getattr(listener, "observer", None)

    def __call__(self, event: Event) -> None:
        with self._lock, unflushed():
            self._listener(event)


class Both(Wants):
    """Passes each event to `first`, then to `second`."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Listener, second: Listener) -> None:
        super().__init__(first, second)
        self._first, self._second = first, second

    def __call__(self, event: Event) -> None:
        self._first(event)
        self._second(event)


def joined(first: Listener | None, second: Listener) -> Listener:
    """Returns a listener that passes events to both listeners.

    The result is `second` itself if `first` is None or the same.
    """
    return second if first is None or first is second else Both(first, second)


def chrome_events(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Converts events to Chrome's trace format, with times in microseconds.

    For a step on one device, each iteration of a frame instance is a row (a "thread") and each firing a bar. The
    iterations of one frame instance form a group (a "process").

    For a step over several devices, each device is a group. It has a row for each iteration that is open at the time,
    so the number of rows in use is the number of iterations in flight, and a row for each stream. Arrows lead from
    Sends to Recvs.

    Bars of one row nest or are disjoint, because viewers drop others. Firings during which others could fire (a wait, a
    call, a kernel on another thread) are in further rows of their iteration, as many as overlap.
    """
    chart = _Chart()
    for e in events:
        chart.add(e)
    return chart.finish()


def lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Returns a lane for each span; spans of one lane nest or are disjoint.

    Args:
      spans: start and end of each span, in any order.

    Returns:
      Numbers from 0 on.

    Example:
      >>> lanes([(0, 4), (1, 2), (3, 6), (4, 5)])
      [0, 0, 1, 0]
    """
    out = [0] * len(spans)
    open_: list[list[int]] = []  # by lane the ends of the spans around the current time, outermost first
    for i in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1])):
        start, end = spans[i]
        for ends in open_:
            while ends and ends[-1] <= start:
                ends.pop()
        fits = (lane for lane, ends in enumerate(open_) if not ends or ends[-1] >= end)
        out[i] = next(fits, len(open_))
        if out[i] == len(open_):
            open_.append([])
        open_[out[i]].append(end)
    return out


class _Chart:
    """Builds Chrome's events from events of headrace."""

    def __init__(self) -> None:
        self._bars: dict[tuple[str, int, str], list[_Bar]] = {}  # by group, row and the name of the row
        self._ends: list[tuple[tuple[str, int, str], Crossing]] = []  # ends of arrows, with their rows
        self._started: dict[tuple[int, str, str, str], list[tuple[int, int]]] = {}  # start time and row
        self._rows: dict[tuple[int, str, str], int] = {}  # (step, device, tag) of an open iteration → its row
        self._streams: dict[str, int] = {}

    def add(self, e: Event) -> None:
        if isinstance(e, NodeStart):
            row = self._rows.get((e.step, e.device, e.tag), 0)  # the iteration may be over when the node ends
            self._started.setdefault((e.step, e.device, e.node, e.tag), []).append((e.time, row))
        elif isinstance(e, NodeEnd):
            self._fired(e)
        elif isinstance(e, StreamSpan):
            row = self._streams.setdefault(e.stream, _STREAMS + len(self._streams))
            key = (e.device or "streams", row, f"stream {e.stream}")
            self._bar(key, _Bar(e.name, e.stream, e.time, e.end, {"bytes": e.bytes}))
        elif isinstance(e, Crossing):
            device = e.device if isinstance(e, TokenSent) else e.to
            self._ends.append((_open_row(device, self._rows.get((e.step, device, e.tag), 0)), e))
        elif isinstance(e, IterationOpen) and e.device:
            taken = {row for (_, device, _), row in self._rows.items() if device == e.device}
            self._rows[e.step, e.device, e.tag] = next(i for i in range(len(taken) + 1) if i not in taken)
        elif isinstance(e, IterationFree):
            self._rows.pop((e.step, e.device, e.tag), None)

    def _fired(self, e: NodeEnd) -> None:
        begin = self._started.get((e.step, e.device, e.node, e.tag))
        t0, row = begin.pop() if begin else (e.time, 0)
        if e.device:
            key = _open_row(e.device, row)
        else:
            instance = f"step {e.step}: " + (e.tag.rpartition("#")[0] or "root")
            key = (instance, e.iteration, f"iteration {e.iteration}")
        if e.waited:
            key = _waiting(key)
        about = {"op": e.type, "tag": e.tag, "dead": e.dead}
        about |= {name: text for name, text in (("source", e.source), ("shapes", e.shapes)) if text}
        self._bar(key, _Bar(e.node, "dead" if e.dead else e.type, t0, e.time, about))

    def _bar(self, row: tuple[str, int, str], bar: _Bar) -> None:
        self._bars.setdefault(row, []).append(bar)

    def finish(self) -> list[dict[str, Any]]:
        """Chrome's events of all events so far."""
        out: list[dict[str, Any]] = []
        groups: dict[str, int] = {}
        placed: dict[tuple[str, int, str], list[tuple[_Bar, int]]] = {}  # the bars of a row, with their threads
        for key, _ in self._ends:  # an arrow may end in a row without bars
            self._bars.setdefault(key, [])
        further = 2 * _STREAMS
        for key, bars in self._bars.items():
            group, row, name = key
            pid = groups.get(group)
            if pid is None:
                pid = groups[group] = len(groups) + 1
                out.append(_meta("process_name", pid, 0, {"name": group}))
            found = lanes([(bar.start, bar.end) for bar in bars])
            tids: list[int] = []
            for lane in range(1 + max(found, default=0)):
                is_first = not lane and not name.endswith(_WAITING)
                further += not is_first
                tids.append(row if is_first else further)
                out.append(_meta("thread_name", pid, tids[-1], {"name": f"{name} {lane + 1}" if lane else name}))
                out.append(_meta("thread_sort_index", pid, tids[-1], {"sort_index": row}))
            placed[key] = [(bar, tids[lane]) for bar, lane in zip(bars, found, strict=True)]
            out += [bar.as_chrome(pid, tid) for bar, tid in placed[key]]
        numbers: dict[tuple[int, str, str], int] = {}
        for key, end in self._ends:
            number = numbers.setdefault((end.step, end.edge, end.tag), len(numbers) + 1)
            near = [*placed[key], *placed.get(_waiting(key), ())]
            around = (tid for bar, tid in near if bar.start <= end.time <= bar.end)
            out.append(_arrow(end, number, groups[key[0]], next(around, key[1])))
        return out


@record(frozen=True, slots=True)
class _Bar:
    """Bar of a row, with its times in nanoseconds and facts about it."""

    name: str
    kind: str
    start: int
    end: int
    about: dict[str, Any]

    def as_chrome(self, pid: int, tid: int) -> dict[str, Any]:
        """Chrome's event of the bar."""
        return {
            "name": self.name,
            "cat": self.kind,
            "ph": "X",
            "ts": self.start / 1000,
            "dur": (self.end - self.start) / 1000,
            "pid": pid,
            "tid": tid,
            "args": self.about,
        }


def _open_row(device: str, row: int) -> tuple[str, int, str]:
    """The row of an iteration that is open on a device."""
    return device, row, f"open iteration {row}"


def _waiting(row: tuple[str, int, str]) -> tuple[str, int, str]:
    """The row of firings of an iteration that wait."""
    return *row[:2], row[2] + _WAITING


def _arrow(e: Crossing, number: int, pid: int, tid: int) -> dict[str, Any]:
    """One end of an arrow, which attaches to the bar around it."""
    is_start = isinstance(e, TokenSent)
    kind = "dead token" if e.dead else "token"
    about = {"name": e.edge, "cat": kind, "id": number, "pid": pid, "tid": tid, "ts": e.time / 1000}
    return {"ph": "s", **about} if is_start else {"ph": "f", "bp": "e", **about}


_WAITING = ", waiting"
_STREAMS = 1_000_000  # rows of streams come after those of iterations


def _meta(kind: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


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
    "StepEnd", "StepStart", "StreamSpan", "TokenReceived", "TokenSent", "Wants", "chrome_events", "joined", "lanes",
    "write_chrome",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
