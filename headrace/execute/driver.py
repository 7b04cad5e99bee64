"""Driver of the parts of a step that one process runs.

A part whose executor has no ready node is *parked*. A completion for a parked part (a received token, the result of a
kernel) makes it *runnable*. Then a thread *drives* it, that is, calls `Executor.advance`, until it is parked again or
over. At any time at most one thread drives a part.

The subclasses decide which thread drives a runnable part, and where events go: `parts.Parts` has the threads and the
`StepState` of a step within one process, and a worker of a cluster sends its events to the master.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.execute.entered import library_threads_of, threads_of
from headrace.execute.executor import Executor
from headrace.execute.part import Part
from headrace.execute.ports import nothing, ports_of
from headrace.execute.run import RunStatistics
from headrace.execute.step_state import Abort, Event, Failed, Probe, Release, Start

if TYPE_CHECKING:
    from headrace.execute.plan import Plan
    from headrace.execute.rendezvous import LocalRendezvous
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step


class PartsDriver:
    """Parts of a step that one process drives.

    Args:
      plans: for each device, by name, its part of the step.
      edges: for each device the edges on which it receives tokens.
      step: the identity, resources, listener and cancellation of the step.
      environment: the resources of the session.
      rendezvous: the rendezvous of the parts.

    Attributes:
      step: the identity, resources and cancellation of the step.
      rendezvous: the rendezvous of the parts.
      parts: the parts by the name of their device.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        edges: Mapping[str, frozenset[str]],
        step: Step,
        environment: RunEnvironment,
        rendezvous: LocalRendezvous,
    ) -> None:
        self.step = step
        self.rendezvous = rendezvous
        self._environment = environment
        self._is_fed = True
        self._blas_threads = max((threads_of(p, environment.blas_threads) for p in plans.values()), default=0)
        self._library_threads = max(
            (library_threads_of(p, environment.blas_threads) for p in plans.values()), default=0
        )
        self._flushes = any(plan.flushes for plan in plans.values())
        self._lock = threading.RLock()  # an instruction may wake a part
        self._parked: set[Part] = set()
        self._left = len(plans)  # parts that are not over
        self.parts: dict[str, Part] = {}
        for name, plan in plans.items():
            of = step.part()
            if environment.account is not None:
                of.memory = environment.account(of, name)
            ports = ports_of(environment, environment.devices[name], rendezvous, self.busy, of.look)
            part = self.parts[name] = Part(
                name, Executor(plan, of, ports, environment.blas_threads), rendezvous, edges[name]
            )
            of.completions.wake = lambda part=part: self._wake(part)
        executors = [part.executor for part in self.parts.values()]
        self._feeds = {n.position: (e, i) for e in executors for i, n in enumerate(e.plan.args)}
        self._fetches = {n.position: e for e in executors for n in e.plan.retvals}

    # *** decisions of the subclass ***

    def _run_later(self, part: Part) -> None:
        """Lets a thread drive a runnable part."""
        raise NotImplementedError

    def _handle(self, event: Event) -> None:
        """Reports an event."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Reports that no thread drives any part, possibly for good; the lock is held."""
        raise NotImplementedError

    def busy(self) -> None:
        """Hands the other work of the calling thread to other threads, before long work."""

    # *** feeds and fetches ***

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        executor, i = self._feeds[position]
        executor.feed(i, value)

    def fetch(self, position: int) -> Any:
        """Hands over the value of a fetch; raises `InvalidArgumentError` if it has none."""
        return self._fetches[position].fetch(position)

    def has(self, position: int) -> bool:
        """Whether a fetch has its value or is known to be dead."""
        return self._fetches[position].has(position)

    @property
    def finished(self) -> bool:
        """Whether all parts are finished."""
        return all(part.executor.finished for part in self.parts.values())

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error` at its next check."""
        self.step.cancel(error)

    def abandon(self) -> None:
        """Cancels the asynchronous kernels of all parts. No code of this step runs afterwards."""
        for part in self.parts.values():
            part.executor.abandon()
            # they refer back to this object, which is freed without the garbage collector
            part.executor.step.completions.wake, part.executor.ports.busy = None, nothing

    def _statistics(self, seconds: float) -> RunStatistics:
        """State of the run at this moment, given the duration so far."""
        of = [part.executor.statistics() for part in self.parts.values()]
        sent, received = sum(s.sent for s in of), sum(s.received for s in of)
        return RunStatistics(self.finished, seconds, sent, received, sum((s.waiting for s in of), ()))

    # *** driving ***

    def _carry_out(self, instruction: Start | Release | Probe | Abort) -> None:
        """Carries out an instruction to a part. The lock is held."""
        part = self.parts[instruction.part]
        if isinstance(instruction, (Start, Release)):
            if part.obey(instruction, self._is_fed):
                self._parked.discard(part)
                self._run_later(part)
        elif isinstance(instruction, Probe):
            part.probe(instruction.wave)
            if part in self._parked or part.executor.finished:
                self._handle(part.report())
        else:
            self.rendezvous.abort(instruction.error)
            part.executor.step.cancel(instruction.error)

    def _drive(self, part: Part) -> None:
        """Drives a part until it is parked or over."""
        executor = part.executor
        event: Event | None = None
        try:
            executor.advance()
            if executor.finished:
                event = part.report()
        except BaseException as e:  # `run` raises the first of them in the thread of its caller
            executor.tell(e)
            executor.abandon()
            event = Failed(part.name, e)
        if event is not None:
            with self._lock:
                self._left -= 1
                self._handle(event)
        self._park(part if event is None else None)

    def _park(self, part: Part | None) -> None:
        """Parks `part`; None: a part is over."""
        with self._lock:
            if part is not None:
                self._parked.add(part)
                if not part.executor.step.completions.empty():  # a completion arrived before the part was parked
                    self._parked.discard(part)
                    self._run_later(part)
                    return
            if 0 < self._left == len(self._parked):
                self._settle()

    def _wake(self, part: Part) -> None:
        """Makes `part` runnable; called after a completion was added for it."""
        if part in self._parked:
            with self._lock:
                if part not in self._parked:
                    return  # another thread was faster
                self._parked.discard(part)
            self._run_later(part)
