"""Trace events of a step on their way from the workers to the client.

A worker collects the events of its parts and sends them with its reports. Times are those of its own clock
(`time.perf_counter_ns`). Each receiver converts them to its clock, by the offset that the heartbeats of the connection
have measured (`transport.Link.clock_offset_ns`; its error is at most half of the shortest round trip). So the listener
of the client gets the events of all workers on one time line.

The values of outputs stay on the workers. A recording gets their summaries, and a watch the values of single nodes.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Sequence
from typing import Any, Final

from headrace import plain_data, step_events, thresholds
from headrace.dist.values import Writer, read_last, write
from headrace.errors import DataLossError, ResourceExhaustedError
from headrace.execute.records import DeadCause
from headrace.observe.summaries import NO_VALUE, Summary, summaries

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
_VALUES: Final = 1 + _FIELDS[step_events.NodeEnd].index("values")  # position in the event as plain data


class Collector:
    """Listener that keeps events as plain data. Thread-safe.

    Args:
      level: the contents of the events, `messages.RunStep.tracing`.
      values_of: names of nodes whose events have values.

    Attributes:
      wants_sizes: whether events have the bytes of outputs.
      wants_causes: whether events have the causes of deadness.
      wants_values: whether events have values, of which summaries are sent.
      values_of: names of nodes whose events have values.
    """

    def __init__(self, level: int, values_of: Collection[str] = ()) -> None:
        self.wants_sizes = level > 1
        self.wants_causes = level > 2
        self.wants_values = level > 3
        self.values_of = frozenset(values_of)
        self._has_all = level > 0
        self._events: list[list[Any]] = []
        self._count = 0
        self._held: list[tuple[list[Any], Sequence[Any]]] = []  # events whose values are not summarized yet
        self._held_bytes = self._sent_bytes = 0
        self._lock = threading.Lock()

    def __call__(self, event: step_events.Event) -> None:
        kind = type(event)
        if kind not in _FIELDS or not (self._has_all or kind is step_events.IterationOpen or self._is_watched(event)):
            return
        with self._lock:
            if self._count >= thresholds.STEP_TRACE_EVENTS:
                return
            self._count += 1
            row = [kind.__name__, *[None if n == "values" else _plain(getattr(event, n)) for n in _FIELDS[kind]]]
            if isinstance(event, step_events.NodeEnd) and event.values:
                self._keep(row, event)
            self._events.append(row)

    def _is_watched(self, event: step_events.Event) -> bool:
        return isinstance(event, step_events.NodeEnd) and event.node in self.values_of

    def _keep(self, row: list[Any], event: step_events.NodeEnd) -> None:
        """Adds the values of `event` to its row. `_summarize` adds summaries."""
        values = event.values or ()
        if not self._is_watched(event):
            self._held.append((row, values))
            self._held_bytes += sum(getattr(v, "nbytes", 0) for v in values)
            if self._held_bytes > thresholds.STEP_TRACE_HELD:
                self._summarize()
            return
        row[_VALUES] = found = [None if v is None else _bytes_of(v) for v in values]
        self._sent_bytes += sum(len(data) for data in found if data is not None)
        if self._sent_bytes > thresholds.STEP_TRACE_VALUES:
            raise ResourceExhaustedError(
                f"the watched values of this step have more than {thresholds.STEP_TRACE_VALUES:,} bytes on one worker; "
                "watch fewer tensors, or run fewer iterations"
            )

    def _summarize(self) -> None:
        about = iter(summaries(NO_VALUE if v is None else v for _, values in self._held for v in values))
        for row, values in self._held:
            row[_VALUES] = [plain_data.encode(next(about)) for _ in values]
        self._held, self._held_bytes = [], 0

    def take(self) -> list[list[Any]]:
        """Returns the events since the last call."""
        with self._lock:
            self._summarize()
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
            try:
                if given.get("cause") is not None:
                    given["cause"] = plain_data.decode(DeadCause, given["cause"])
                if given.get("values") is not None:
                    given["values"] = tuple(map(_value_of, given["values"]))
            except (ValueError, TypeError, DataLossError):  # malformed
                continue
            out.append(_KINDS[event[0]](**given))
    return sorted(out, key=lambda e: e.time)


def _plain(value: Any) -> Any:
    return plain_data.encode(value) if isinstance(value, DeadCause) else value


def _bytes_of(value: Any) -> bytes:
    out = Writer()
    write(value, out)
    return b"".join(out.buffers())


def _value_of(data: Any) -> Any:
    """Returns a value that `Collector` has encoded.

    Raises:
      ValueError, DataLossError: it is malformed.
    """
    if isinstance(data, bytes):
        return read_last(data, 0)
    return None if data is None else plain_data.decode(Summary, data)


def _fields(event: Any) -> tuple[str, ...]:
    """Names of the fields of an event as plain data; () if it is malformed."""
    if not isinstance(event, (list, tuple)) or not event or not isinstance(event[0], str):
        return ()
    kind = _KINDS.get(event[0])
    fields = () if kind is None else _FIELDS[kind]
    is_whole = len(event) == len(fields) + 1
    return fields if is_whole and all(type(event[1 + fields.index(n)]) is int for n in _TIMES if n in fields) else ()
