"""Trace events of a step on their way from the workers to the client.

A worker collects the events of its parts and sends them with its reports. Times are those of its own clock
(`time.perf_counter_ns`). Each receiver converts them to its clock, by the offset that the heartbeats of the connection
have measured (`transport.Link.clock_offset_ns`; its error is at most half of the shortest round trip). So the listener
of the client gets the events of all workers on one time line. The values of outputs stay on the workers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from headrace import plain_data, step_events, thresholds
from headrace.execute.records import DeadCause

_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        step_events.NodeStart,
        step_events.NodeEnd,
        step_events.IterationOpen,
        step_events.IterationFree,
        step_events.TokenSent,
        step_events.TokenReceived,
        step_events.StreamSpan,
    )
}
_FIELDS: Final = {kind: tuple(f.name for f in dataclasses.fields(kind)) for kind in _KINDS.values()}
_TIMES: Final = ("time", "end")


class Collector:
    """Listener that keeps events as plain data.

    Args:
      wants_sizes: whether events have the bytes of outputs.
      wants_causes: whether events have the causes of deadness.
    """

    wants_values = False

    def __init__(self, wants_sizes: bool, wants_causes: bool = False) -> None:
        self.wants_sizes = wants_sizes
        self.wants_causes = wants_causes
        self._events: list[list[Any]] = []
        self._count = 0

    def __call__(self, event: step_events.Event) -> None:
        kind = type(event)
        if kind in _FIELDS and self._count < thresholds.STEP_TRACE_EVENTS:
            self._count += 1
            self._events.append([kind.__name__, *[_plain(getattr(event, name)) for name in _FIELDS[kind]]])

    def take(self) -> list[list[Any]]:
        """Returns the events since the last call."""
        events, self._events = self._events, []
        return events


def shifted(events: Sequence[Any], offset_ns: int | None) -> list[list[Any]]:
    """Returns events with their times in the clock of this process.

    Args:
      events: events as plain data.
      offset_ns: the clock of their process minus that of this one, in nanoseconds; None: unknown, taken as 0.
    """
    if not offset_ns:
        return list(events)
    out = []
    for event in events:
        fields = _fields(event)
        out.append(
            [event[0], *[v - offset_ns if n in _TIMES else v for n, v in zip(fields, event[1:], strict=True)]]
            if fields
            else event
        )
    return out


def decode(events: Sequence[Any], step: int) -> list[step_events.Event]:
    """Returns events in the order of their times; those that are malformed are left out.

    Args:
      events: events as plain data.
      step: the number that the step has in this process.
    """
    out: list[Any] = []
    for event in events:
        fields = _fields(event)
        if fields:
            given = dict(zip(fields, event[1:], strict=True), step=step)
            if isinstance(given.get("sizes"), list):
                given["sizes"] = tuple(given["sizes"])
            if given.get("cause") is not None:
                try:
                    given["cause"] = plain_data.decode(DeadCause, given["cause"])
                except ValueError:  # malformed
                    continue
            out.append(_KINDS[event[0]](**given))
    return sorted(out, key=lambda e: e.time)


def _plain(value: Any) -> Any:
    return plain_data.encode(value) if isinstance(value, DeadCause) else value


def _fields(event: Any) -> tuple[str, ...]:
    """Names of the fields of an event as plain data; () if it is malformed."""
    if not isinstance(event, (list, tuple)) or not event or not isinstance(event[0], str):
        return ()
    kind = _KINDS.get(event[0])
    fields = () if kind is None else _FIELDS[kind]
    is_whole = len(event) == len(fields) + 1
    return fields if is_whole and all(type(event[1 + fields.index(n)]) is int for n in _TIMES if n in fields) else ()
