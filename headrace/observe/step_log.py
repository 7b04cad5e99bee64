"""Log of one step: the logs of its devices, and the events of other processes."""

from __future__ import annotations

import threading

from headrace import step_events
from headrace.observe.firing_log import FiringLog, ValueBudget


class StepLog:
    """Log of one step.

    Args:
      start: the event of its start.
      budget: the budget of its parts.
      most: number of events that are kept.

    Attributes:
      number: the number of the step.
      start: the time of its start (ns).
      end: the time of its end (ns); 0 while it runs.
      error: the text of its error, or "".
      call: the prepared call of the session.
      parts: the logs of its devices.
      events: events of parts in other processes.
      dropped: number of firings among the events that are not kept.
    """

    __slots__ = ("_budget", "_lock", "_most", "call", "dropped", "end", "error", "events", "number", "parts", "start")

    def __init__(self, start: step_events.StepStart, budget: ValueBudget, most: int) -> None:
        self.number = start.step
        self.start = start.time
        self.end = 0
        self.error = ""
        self.call = start.call
        self.parts: list[FiringLog] = []
        self.events: list[step_events.Event] = []
        self.dropped = 0
        self._budget = budget
        self._most = most
        self._lock = threading.Lock()

    def part(self, device: str) -> FiringLog:
        """Returns a new log for the part on `device`."""
        log = FiringLog(device, self._budget)
        with self._lock:
            self.parts.append(log)
        return log

    def add(self, event: step_events.Event) -> None:
        """Adds an event of a part in another process."""
        if len(self.events) < self._most:
            self.events.append(event)
        else:
            self.dropped += isinstance(event, step_events.NodeEnd)
