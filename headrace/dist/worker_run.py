"""Runs of a worker: parts of a step, driven by threads of the reactor.

A runnable part becomes a job of the reactor (`dist.reactor`), whose active thread also reads the connections. So the
thread that reads a token drives the part that waited for it, without a switch of threads.

**Reports.** The parts report to the master, whose `StepState` decides about the step as a whole. A message carries the
events of all parts of the worker. It leaves when they are over, when one fails, and when all are idle for a while: a
loop over several workers is idle for some microseconds in each iteration, and reporting every time would double its
messages. The master needs such a report only to find a step that is stuck, or that waits for further feeds.

**Overtaking.** The master decides by reports, and a token may wake a part after its report. So feeds and a `Start` may
find a part that a thread drives, and at most one thread may drive it. Then the feeds wait for the thread, which drives
the part once more.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace import thresholds
from headrace.dist import messages
from headrace.dist.rendezvous import WorkerRendezvous
from headrace.errors import CancelledError, to_data
from headrace.execute.driver import PartsDriver
from headrace.execute.entered import entered
from headrace.execute.ports import nothing
from headrace.execute.step_state import Abort, Event, Failed, Finished, Idle, Probe, Release, Start
from headrace.file_access import limited

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dist.codec import Token
    from headrace.dist.reactor import Reactor
    from headrace.dist.rendezvous import Outlet
    from headrace.execute.part import Part
    from headrace.execute.plan import Plan
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step

# Sends a report with the values of its fetches.
Reporter = "Callable[[messages.Report, Sequence[Any]], object]"


class WorkerRun(Protocol):
    """Running parts of a step on one worker. Thread-safe.

    Attributes:
      number: the number of the step.
      outlets: the number of each edge to another worker, and the connection to it.
    """

    number: int
    outlets: Mapping[str, tuple[int, Outlet]]

    def feed(self, positions: Sequence[int], values: Sequence[Any], is_fed: bool) -> None:
        """Supplies feeds."""
        ...

    def carry_out(self, orders: Sequence[messages.Order]) -> None:
        """Carries out instructions of the master."""
        ...

    def deliver(self, token: Token) -> None:
        """Hands over a token of another worker."""
        ...

    def abort(self, error: BaseException) -> None:
        """Ends the parts with `error`."""
        ...

    def close(self) -> None:
        """Drops all state. No code of the step runs afterwards."""
        ...


class PartsRun(PartsDriver):
    """Running parts of a step.

    Args:
      number: the number of the step.
      plans: for each device, by name, its part of the step.
      edges: for each device the edges on which it receives tokens.
      names: the keys of the edges of the program, by their numbers in tokens.
      outlets: the number of each edge to another worker, and the connection to it.
      step: the resources and the cancellation of the step.
      environment: the resources of the worker.
      reactor: runs the parts.
      report: sends reports to the master.

    Attributes:
      number: the number of the step.
      outlets: the number of each edge to another worker, and the connection to it.
    """

    def __init__(
        self,
        number: int,
        plans: Mapping[str, Plan],
        edges: Mapping[str, frozenset[str]],
        names: Sequence[str],
        outlets: Mapping[str, tuple[int, Outlet]],
        step: Step,
        environment: RunEnvironment,
        reactor: Reactor,
        report: Callable[[messages.Report, Sequence[Any]], object],
    ) -> None:
        self._tokens = WorkerRendezvous(number, outlets)
        super().__init__(plans, edges, step, environment, self._tokens)
        self.number = number
        self.outlets = outlets
        self._names = names
        self._reactor = reactor
        self._report = report
        self._events: list[Event] = []
        self._unsent = sorted(self._fetches)  # positions of the fetches that were not reported
        self._changes = 0  # number of times that the parts became idle, or that a token arrived
        self._delay = thresholds.IDLE_REPORT
        self._is_watched = False  # whether a timer runs that will report an idle worker
        self._is_started = self._is_closed = False
        self._again: set[Part] = set()  # parts that were started while a thread drove them
        self._late: dict[Part, list[tuple[int, Any]]] = {}  # feeds of such parts
        self._jobs = {part: functools.partial(self._work, part) for part in self.parts.values()}

    # *** messages of the master ***

    def feed(self, positions: Sequence[int], values: Sequence[Any], is_fed: bool = True) -> None:  # type: ignore[override]
        """Supplies feeds, and notes whether they are all feeds of the step."""
        with self._lock:
            self._is_fed = is_fed
            for position, value in zip(positions, values, strict=True):
                executor, i = self._feeds[position]
                part = next(part for part in self.parts.values() if part.executor is executor)
                if self._is_free(part):
                    executor.feed(i, value)
                else:
                    self._late.setdefault(part, []).append((i, value))

    def start(self) -> None:
        """Makes all parts runnable, for the first time."""
        with self._lock:
            for name in self.parts:
                self._carry_out(Start(name, 1))
            self._is_started = True

    def carry_out(self, orders: Sequence[messages.Order]) -> None:
        """Carries out instructions of the master to parts that are not over."""
        with self._lock:
            for order in orders:
                if order.part not in self.parts:
                    continue
                if order.kind == "probe":
                    self._carry_out(Probe(order.part, order.number))
                else:
                    self._delay = thresholds.IDLE_REPORT  # the report was useful
                    kind = Start if order.kind == "start" else Release
                    self._carry_out(kind(order.part, order.number))
            self._send()

    def deliver(self, token: Token) -> None:
        """Hands over a token of another worker."""
        self._tokens.deliver(self._names[token.edge], token)
        if self._left and len(self._parked) == self._left:  # it woke no part
            with self._lock:
                self._settle()

    def abort(self, error: BaseException) -> None:
        """Makes all parts that are not over fail with `error`."""
        with self._lock:
            for name, part in self.parts.items():
                if not part.executor.finished:
                    self._carry_out(Abort(name, error))

    def close(self) -> None:
        """Drops the resources of the step.

        A thread that drives a part ends it at its next check.
        """
        with self._lock:
            self._is_closed = True
            for part in self.parts.values():
                if self._is_free(part) or part.executor.finished:
                    part.executor.abandon()
                # they refer back to this object, which is freed without the garbage collector
                part.executor.step.completions.wake, part.executor.ports.busy = None, nothing
            if self._left:
                self.step.cancel(CancelledError("the step is over"))
        self.step.close()

    # *** driving ***

    def _is_free(self, part: Part) -> bool:
        """Whether no thread drives a part that is not over, or is about to.

        The lock is held.
        """
        return part in self._parked or not self._is_started

    def _carry_out(self, instruction: Start | Release | Probe | Abort) -> None:
        part = self.parts[instruction.part]
        if self._is_free(part) or isinstance(instruction, (Probe, Abort)):
            super()._carry_out(instruction)
        elif isinstance(instruction, Start) and part.obey(instruction, self._is_fed):
            self._again.add(part)

    def _park(self, part: Part | None) -> None:
        with self._lock:
            if part in self._again:
                self._again.discard(part)
                self._run_later(part)
                return
        super()._park(part)

    def _run_later(self, part: Part) -> None:
        self._reactor.submit(self._jobs[part])

    def _work(self, part: Part) -> None:
        if self._late:
            with self._lock:
                fed = self._late.pop(part, ())
            for i, value in fed:
                part.executor.feed(i, value)
        with limited(self.step.files), entered(self._flushes, self._blas_threads):
            self._drive(part)

    def busy(self) -> None:
        """Sends the tokens that wait for more tokens to the same worker."""
        self._reactor.flush()

    # *** reports ***

    def _handle(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            if not self._left or isinstance(event, Failed):
                self._send()

    def _settle(self) -> None:
        self._changes += 1
        if any(map(self.has, self._unsent)) and not self._is_fed:
            self._send()  # a partial run may wait for them
        if not self._is_watched:
            self._is_watched = True
            self._reactor.call_later(self._delay, functools.partial(self._look, self._changes))

    def _look(self, changes: int) -> None:
        """Reports the parts if they were idle since the timer started; else restarts it."""
        with self._lock:
            self._is_watched = False
            if self._is_closed or not self._left or len(self._parked) < self._left:
                return  # the next idle part starts the timer
            if changes != self._changes:
                self._settle()
                return
            reported = {event.part for event in self._events if isinstance(event, (Idle, Finished))}
            self._events += [part.report() for part in self._parked if part.name not in reported]
            self._delay = min(self._delay * 2, thresholds.MOST_IDLE_REPORT)
            self._send()

    def _send(self) -> None:
        """Sends the events so far, with the fetches that are new."""
        if self._is_closed:
            return
        events, self._events = self._events, []
        positions, values, dead = new_fetches(self._unsent, self)
        self._unsent = [p for p in self._unsent if p not in positions]
        if events or positions:
            self._report(report_of(self.number, events, positions, dead), values)


class _Fetching(Protocol):
    def has(self, position: int) -> bool: ...
    def fetch(self, position: int) -> Any: ...


def new_fetches(positions: Sequence[int], run: _Fetching) -> tuple[list[int], list[Any], list[Any]]:
    """Returns positions of the known fetches, their values, and errors of dead ones as data."""
    found: list[int] = []
    values: list[Any] = []
    dead: list[Any] = []
    for p in positions:
        if not run.has(p):
            continue
        found.append(p)
        try:
            values.append(run.fetch(p))
            dead.append(None)
        except Exception as e:  # its token is dead
            dead.append(to_data(e))
    return found, values, dead


def report_of(number: int, events: Sequence[Event], positions: Sequence[int], dead: Sequence[Any]) -> messages.Report:
    """Returns the message about events of a step."""
    return messages.Report(number, tuple(map(_event, events)), tuple(positions), tuple(dead) if any(dead) else ())


def _event(event: Event) -> messages.PartIdle | messages.PartFinished | messages.PartFailed:
    if isinstance(event, Idle):
        e = event
        waits = tuple(w[: messages.LONGEST_TEXT] for w in e.waits[: messages.MOST_WAITS])
        return messages.PartIdle(
            e.part, e.epoch, e.order, e.wave, e.sent, e.arrived, e.releasable, e.is_waiting, waits
        )  # fmt: skip
    if isinstance(event, Finished):
        return messages.PartFinished(event.part, event.epoch, event.wave, event.sent, event.arrived)
    assert isinstance(event, Failed), event
    return messages.PartFailed(event.part, to_data(event.error))
