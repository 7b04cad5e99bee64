"""What happens while a step runs, as structured events: the one stream that tracing, watching and debugging read.

A *listener* is any callable that takes an event; give it to a run by `RunOptions(listener=...)`. Without one the
executor takes a path on which no event exists. Times are `time.perf_counter_ns()` nanoseconds.

    events = []
    session.run(y, options=hr.RunOptions(listener=events.append))
    trace.write_chrome(events, "out.json")      # opens in chrome://tracing and Perfetto
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TypeAlias


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
      node, type: the operation's name and op type.
      tag: the frame and iteration as text: "" in the root, "outer#3/inner#0" below; of a call "function@call#0".
      frame: the loop's name, or the function's; "" for the root.
      iteration: the iteration's number in it.
      dead: whether it fires dead (and computes nothing).
    """

    time: int
    step: int
    node: str
    type: str
    tag: str
    frame: str
    iteration: int
    dead: bool


@dataclasses.dataclass(frozen=True, slots=True)
class NodeEnd:
    """A node is done; its fields are those of `NodeStart`. A call is done when everything in its frame is.

    Attributes:
      values: its outputs' values, if the listener has `wants_values = True`; else None. None for a call: its values are
        those of the `_Retval`s in its frame.
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


@dataclasses.dataclass(frozen=True, slots=True)
class IterationOpen:
    """An iteration of a frame is opened."""

    time: int
    step: int
    tag: str
    frame: str
    iteration: int


@dataclasses.dataclass(frozen=True, slots=True)
class IterationFree:
    """An iteration of a frame is done and its record dropped."""

    time: int
    step: int
    tag: str
    frame: str
    iteration: int


Event: TypeAlias = StepStart | StepEnd | NodeStart | NodeEnd | IterationOpen | IterationFree
Listener: TypeAlias = Callable[[Event], object]


def chrome_events(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The events in Chrome's trace format: a row for each frame and iteration, a bar for each firing, microseconds.

    Iterations of one frame instance stand in one group (a "process"), each iteration in a row (a "thread") of it.
    """
    out: list[dict[str, Any]] = []
    groups: dict[str, int] = {}
    rows: set[tuple[int, int]] = set()
    started: dict[tuple[int, str, str], list[NodeStart]] = {}
    for e in events:
        if isinstance(e, NodeStart):
            started.setdefault((e.step, e.node, e.tag), []).append(e)
            continue
        if not isinstance(e, NodeEnd):
            continue
        begin = started.get((e.step, e.node, e.tag))
        start = begin.pop() if begin else None
        instance = f"step {e.step}: " + (e.tag.rpartition("#")[0] or "root")
        if instance not in groups:
            groups[instance] = len(groups) + 1
            out.append(_meta("process_name", groups[instance], 0, instance))
        pid = groups[instance]
        if (pid, e.iteration) not in rows:
            rows.add((pid, e.iteration))
            out.append(_meta("thread_name", pid, e.iteration, f"iteration {e.iteration}"))
        t0 = start.time if start is not None else e.time
        out.append(
            {
                "name": e.node,
                "cat": "dead" if e.dead else e.type,
                "ph": "X",
                "ts": t0 / 1000,
                "dur": (e.time - t0) / 1000,
                "pid": pid,
                "tid": e.iteration,
                "args": {"op": e.type, "tag": e.tag, "dead": e.dead},
            }
        )
    return out


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
