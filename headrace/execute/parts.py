"""A step over several devices: an executor for each, which meet only in the rendezvous.

**The problem.** Each device has a part of the step: a plan of its own, which `partition/` made. An executor of its own
runs it as if there were no other parts, and learns of them only through its Sends and Recvs. The beginning, the end, a
failure and a deadlock concern all parts together: `step_state.StepState` decides about them. `Parts` drives the
executors with threads, reports events to the state and carries its instructions out.

**Threads.** The thread that called `run` has all executors at first. An executor whose part has no ready node is
*parked*, and its thread drives another executor, or waits for one. A completion for a parked executor makes it
*runnable*. If a thread of the step added the completion, this thread drives the executor next. Before work that takes
long, a thread leaves its runnable executors to others: to a thread that waits, or else to a further one, which each
device but the first can give once. At any time at most one thread drives an executor.

**Cost.** Devices that work at the same time are driven in parallel. Two devices that wait for each other in turn are
driven by one thread, without a switch of threads for each token. In Python, where one thread runs at a time, such
switches cost ten times as much as all other work of a partitioned loop. A step whose devices never have long work at
the same time runs on one thread to its end, without the 50 µs that the start of another one takes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace import flags
from headrace.execute.driver import PartsDriver
from headrace.execute.entered import entered
from headrace.execute.plan import RECV
from headrace.execute.rendezvous import LocalRendezvous
from headrace.execute.run import RunStatistics
from headrace.execute.step_state import (
    Abort,
    Begin,
    Cancelled,
    Event,
    Pause,
    Probe,
    Release,
    Satisfied,
    Start,
    StepState,
    waiting_lines,
)
from headrace.execute.waits import next_look, note_interrupt, tell_long_wait, waits_of

if TYPE_CHECKING:
    from headrace.execute.part import Part
    from headrace.execute.plan import Plan
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step


def received_edges(plans: Mapping[str, Plan]) -> dict[str, frozenset[str]]:
    """Returns for each device the edges on which its part receives tokens."""
    return {name: frozenset(n.edge for n in p.nodes if n.kind == RECV) for name, p in plans.items()}


class PartsProgram:
    """The plans of a step over several devices as a program.

    Args:
      plans: for each device, by name, the plan of its part.
      environment: the resources of the session.
    """

    __slots__ = ("_edges", "environment", "plans")

    def __init__(self, plans: Mapping[str, Plan], environment: RunEnvironment) -> None:
        self.plans = plans
        self.environment = environment
        self._edges = received_edges(plans)

    def start(self, step: Step) -> Parts:
        """Returns a new run of the plans for `step`.

        Raises:
          ValueError: the step has one queue of ready nodes instead of a function of the devices' names.
        """
        if step.ready is not None and not callable(step.ready):
            raise ValueError("this step runs on several devices: give RunOptions(ready=...) a function of their names")
        return Parts(self.plans, self._edges, step, self.environment)


class Parts(PartsDriver):
    """A run of a step on several devices of this process.

    Args:
      plans: for each device, by name, its part of the step.
      edges: for each device the edges on which it receives tokens.
      step: the identity, resources, listener and cancellation of the step.
      environment: the resources of the session.

    Attributes:
      state: the decisions that concern all parts.
    """

    def __init__(
        self, plans: Mapping[str, Plan], edges: Mapping[str, frozenset[str]], step: Step, environment: RunEnvironment
    ) -> None:
        super().__init__(plans, edges, step, environment, LocalRendezvous())
        self.state = StepState(step.id, tuple(plans))
        self._seconds = 0.0
        self._begun = 0
        self._until: Sequence[int] | None = None
        self._is_paused = False
        self._error: BaseException | None = None
        self._runnable: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
        self._idle_since = 0.0  # the time at which all parts were parked
        # by thread, the parts that are runnable and that it will drive itself
        self._mine: dict[int, list[Part]] = {}
        self._helpers: list[str] = []  # devices that can give a further thread
        self._started = 0  # threads that devices have given
        self._free = 0  # threads that wait for a part or have just been started, less the entries of `_runnable`
        self._over: queue.SimpleQueue[None] = queue.SimpleQueue()  # an entry for each given thread that has ended

    # *** the interface of the owner ***

    def statistics(self) -> RunStatistics:
        """State of the run at this moment."""
        return self._statistics(self._seconds)

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until all parts are finished or paused, see `run.Run`."""
        began = time.perf_counter()
        self._until, self._is_fed, self._is_paused = until, is_fed, False
        with entered(self._flushes, self._blas_threads, self._library_threads):
            self._run()
        if self._error is not None:
            raise self._error
        self._seconds += time.perf_counter() - began

    def _run(self) -> None:
        names = self.state.open_parts
        if not names:
            return
        self._runnable, self._over = queue.SimpleQueue(), queue.SimpleQueue()
        # inspectors receive the records of all parts in the thread of the caller
        self._helpers = [] if self.step.inspectors else list(names[1:])
        self._started, self._free = 0, 0
        mine = self._mine[threading.get_ident()] = []
        try:
            with self._lock:
                self._parked.clear()
                self._begun += 1
                self._left = len(names)
                self._handle(Begin(self._begun, self._is_fed))
            if not all(part.executor.plan.is_short for part in self.parts.values()):
                self.busy()
            self._serve(mine)
        except BaseException as e:  # Ctrl-C
            note_interrupt(e, self._waits())
            self._handle(Cancelled(e))
            self._end_threads()
            raise
        finally:
            with self._lock:
                self._helpers = []
            for _ in range(self._started):
                self._over.get()
            if not self._is_paused:
                self.abandon()

    def _help(self) -> None:
        """Drives parts in a thread of a device."""
        mine = self._mine[threading.get_ident()] = []
        try:
            with entered(self._flushes, 0, self._library_threads):
                self._serve(mine)
        finally:
            self._over.put(None)

    # *** events and instructions ***

    def _handle(self, event: Event) -> None:
        """Reports an event, and carries out the instructions that follow."""
        with self._lock:
            for instruction in self.state.handle(event):
                if isinstance(instruction, (Start, Release, Probe, Abort)):
                    self._carry_out(instruction)
                elif isinstance(instruction, Pause):
                    self._is_paused = True
                    self._end_threads()
                else:  # End
                    self._error = instruction.error
                    self._end_threads()

    def _end_threads(self) -> None:
        for _ in self.parts:
            self._runnable.put(None)

    def _settle(self) -> None:
        """Reports that no thread drives any part, which can be so for good."""
        self._idle_since = self.step.clock.monotonic()
        if self._until is not None and all(map(self.has, self._until)):
            self._handle(Satisfied(self._begun))
        elif not all(part.executor.only_receives for part in self._parked):
            return  # a kernel will wake a part; this is the usual case, and it saves the reports
        over = [part for part in self.parts.values() if part not in self._parked]
        for part in self.parts.values():
            # the reports before may have released a part, which another thread then drives
            if part in self._parked or part in over:
                self._handle(part.report())

    # *** driving ***

    def _serve(self, mine: list[Part]) -> None:
        """Drives runnable parts, first those of `mine`, until all are over or paused."""
        try:
            while (part := self._next(mine)) is not None:
                self._drive(part)
        finally:
            # the thread may serve another step next, whose completions wake parts of this one
            del self._mine[threading.get_ident()]

    def _next(self, mine: list[Part]) -> Part | None:
        """Waits for the next part to drive; None: all are over or paused."""
        while not mine or self._is_paused:
            with self._lock:
                self._free += 1
            try:
                return self.step.clock.take(self._runnable, self._patience())
            except queue.Empty:
                with self._lock:
                    self._free -= 1
                self._look_at_the_clock()  # this may make parts runnable
        return mine.pop(0)

    def _run_later(self, part: Part) -> None:
        """Lets this thread drive a part if it serves the step, else another one."""
        mine = self._mine.get(threading.get_ident())
        if mine is None:
            self._offer(part)
        else:
            mine.append(part)

    def busy(self) -> None:
        """Lets other threads drive the runnable parts of the calling thread."""
        mine = self._mine.get(threading.get_ident())
        while mine:
            self._offer(mine.pop(0))

    def _offer(self, part: Part) -> None:
        """Lets the next free thread, or a further one of a device, drive a part."""
        with self._lock:
            self._runnable.put(part)
            self._free -= 1
            if self._free >= 0 or not self._helpers:
                return
            device = self._helpers.pop(0)
            try:
                self._environment.devices[device].run(self._help)
            except RuntimeError as e:  # no thread was available
                self._handle(Cancelled(e))
            else:
                self._started += 1
                self._free += 1

    # *** time ***

    def _waits(self) -> str:
        """Names the operations of all devices that were started and have not completed."""
        return waits_of([n for part in self.parts.values() for n in part.executor.started()], self.step)

    def _patience(self) -> float:
        """Seconds until the next check of the clock."""
        left = self.step.time_left()
        limit: float = flags.WAIT_LIMIT.value
        return next_look(self.step, limit if left is None else max(min(limit, left), 0.001))

    def _look_at_the_clock(self) -> None:
        """Checks the deadline and the wait limit, after `_patience` seconds without a runnable part."""
        left, limit = self.step.time_left(), flags.WAIT_LIMIT.value
        with self._lock:
            is_idle = len(self._parked) == self._left
            waited = self.step.clock.monotonic() - self._idle_since if is_idle else 0.0
            has_waited = waited >= limit
            tell_long_wait(self.step, waited, self._waits())
            waits = waiting_lines({part.name: part.executor.half_fed() for part in self._parked})
            if left is not None and left <= 0:
                error = self.step.past_deadline(waits)
            elif left is None and has_waited and not any(part.executor.is_blocked for part in self._parked):
                error = self.step.past_wait_limit(limit, waits)
            else:
                return
            self._handle(Cancelled(error))
