"""Recording of a step that is still running, for the page of a breakpoint.

A `LiveRecording` keeps the newest firings, where `hr.record` keeps the first ones: a breakpoint may be hit after
millions. The time of a pause is no time of the step, so `skip` moves the times before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace import step_events, thresholds
from headrace.observe.firing_log import FIRING, FiringLog, ValueBudget
from headrace.observe.recording import Recording

if TYPE_CHECKING:
    from headrace.execute.records import Frame, Iteration
    from headrace.observe.step_log import StepLog


class NewestLog(FiringLog):
    """Log of the newest firings of one device's part of a step.

    Args:
      device: the device of the part; "" if the step has one device only.
      bytes: bytes of values that are kept by reference.
      firings: number of firings that are kept. A log of twice as many is cut.
    """

    __slots__ = ("_bytes", "_most")

    def __init__(self, device: str, bytes: int, firings: int) -> None:
        self._bytes, self._most = bytes, firings
        super().__init__(device, ValueBudget(bytes, firings))

    def iteration(self, event: str, frame: Frame, it: Iteration) -> None:
        """Adds the opening or freeing of an iteration, and cuts a long log."""
        if len(self.firings) >= 2 * FIRING * self._most:
            self._cut()
        self._pending = len(self.firings) // FIRING  # the budget of firings of `FiringLog` drops the newest ones
        super().iteration(event, frame, it)

    def _cut(self) -> None:
        n = len(self.firings) // FIRING - self._most
        self.dropped += n
        del self.firings[: FIRING * n]
        oldest = self.firings[2]  # the begin of the first firing that is left
        for flat, size, time in ((self.iterations, 3, 2), (self.crossings, 5, 3)):
            count = next((i for i, t in enumerate(flat[time::size]) if t >= oldest), len(flat) // size)
            del flat[: size * count]
        self._known.clear()
        self._counted = 0
        self._budget = ValueBudget(self._bytes, self._most)
        self._count()

    def skip(self, ns: int) -> None:
        """Moves all times so far by `ns`."""
        begins, ends = (self.firings, FIRING, 2), (self.firings, FIRING, 3)
        for flat, size, time in (begins, ends, (self.iterations, 3, 2), (self.crossings, 5, 3)):
            flat[time::size] = [t + ns for t in flat[time::size]]
        self._began += ns
        self._started = {key: t + ns for key, t in self._started.items()}


class LiveRecording(Recording):
    """Recording of the running step of each session, and of the last that has ended.

    Args:
      ended: receives the log of each step that has ended.
    """

    def __init__(self, ended: Callable[[StepLog], object]) -> None:
        super().__init__(None, thresholds.HISTORY_BYTES, thresholds.LIVE_FIRINGS)
        self._ended = ended

    def __call__(self, event: step_events.Event) -> None:
        """Receives an event of a step."""
        log = self._running.get(event.step)
        super().__call__(event)
        if log is not None and isinstance(event, step_events.StepEnd):
            self._ended(log)

    def observer(self, step: int, device: str) -> FiringLog:
        """Returns the receiver of the executor's records for one device's part of a step."""
        out = NewestLog(device, self._bytes, self._tokens)
        self._running[step].parts.append(out)
        return out

    def running(self, step: int) -> StepLog | None:
        """Returns the log of a running step; None if the step is not recorded."""
        return self._running.get(step)

    def skip(self, step: int, ns: int) -> None:
        """Moves all times of a running step by `ns`, the duration of a pause."""
        log = self._running.get(step)
        if log is not None:
            log.start += ns
            for part in log.parts:
                if isinstance(part, NewestLog):
                    part.skip(ns)
