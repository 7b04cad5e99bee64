"""A step over several devices: an executor for each, which meet only in the rendezvous.

**The problem.** Each device has a part of the step: a plan of its own, which `partition/` made. An executor of its own
runs it as if there were no other parts, and learns of them only through its Sends and Recvs. Three things concern all
parts together:

* Begin and end: the step is over when all parts are.
* Failure: the first error is the error of the step. The rendezvous is aborted with it, and the other parts are
  cancelled, so that the step ends everywhere, once.
* Deadlock: when all parts wait, and only for one another, no token is under way and none will ever be. Then an
  iteration that some part can never complete is ended, the innermost first, as on a single device
  (`Propagator.release`). If there is no such iteration, the step fails with the list of nodes that wait.

**Threads.** Each device gives a thread to the step; for the first device it is the thread that called `run`. A thread
is not bound to its device. An executor whose part has no ready node is *parked*, and its thread drives another
executor, or waits for one. A completion for a parked executor makes it *runnable*. If a thread of the step added the
completion, this thread drives the executor next; before work that takes long, it leaves the executor to other threads.
At any time at most one thread drives an executor.

**Cost.** Devices that work at the same time are driven in parallel. Two devices that wait for each other in turn are
driven by one thread, without a switch of threads for each token. In Python, where one thread runs at a time, such
switches cost ten times as much as all other work of a partitioned loop.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.errors import AbortedError, DeadlineExceededError, InternalError
from headrace.execute.entered import entered
from headrace.execute.executor import Executor
from headrace.execute.ports import nothing, ports_of
from headrace.execute.rendezvous import LocalRendezvous
from headrace.execute.run import RunStatistics

if TYPE_CHECKING:
    from headrace.execute.plan import Plan
    from headrace.execute.run import RunEnvironment
    from headrace.execute.step import Step


class PartsProgram:
    """The plans of a step over several devices as a program.

    Args:
      plans: for each device, by name, the plan of its part.
      environment: the resources of the session.
    """

    __slots__ = ("environment", "plans")

    def __init__(self, plans: Mapping[str, Plan], environment: RunEnvironment) -> None:
        self.plans = plans
        self.environment = environment

    def start(self, step: Step) -> Parts:
        """Returns a new run of the plans for `step`.

        Raises:
          ValueError: the step has one queue of ready nodes instead of a function of the devices' names.
        """
        if step.ready is not None and not callable(step.ready):
            raise ValueError("this step runs on several devices: give RunOptions(ready=...) a function of their names")
        return Parts(self.plans, step, self.environment)


class Parts:
    """A run of a step on several devices.

    Args:
      plans: for each device, by name, its part of the step.
      step: the identity, resources, listener and cancellation of the step.
      environment: the resources of the session.

    Attributes:
      step: the identity, resources and cancellation of the step.
      rendezvous: the rendezvous of the parts.
      executors: for each device, by name, the executor of its part.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        step: Step,
        environment: RunEnvironment,
    ) -> None:
        self.step = step
        self.rendezvous = LocalRendezvous()
        self._environment = environment
        self._seconds = 0.0
        self._until: Sequence[int] | None = None
        self._is_fed = True
        self._is_paused = False
        self._uses_blas = any(plan.uses_blas for plan in plans.values())
        self._flushes = any(plan.flushes for plan in plans.values())
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._runnable: queue.SimpleQueue[Executor | None] = queue.SimpleQueue()
        self._parked: set[Executor] = set()
        # by thread, the executors that it has made runnable and will drive itself
        self._mine: dict[int, list[Executor]] = {}
        self._left = len(plans)  # parts that are not over
        self.executors: dict[str, Executor] = {}
        for name, plan in plans.items():
            part = step.part()
            if environment.account is not None:
                part.memory = environment.account(part, name)
            device = environment.devices[name]
            executor = Executor(plan, part, ports_of(environment, device, self.rendezvous, self.give_away))
            part.completions.wake = lambda e=executor: self._wake(e)
            self.executors[name] = executor
        self._feeds = {n.position: (e, i) for e in self.executors.values() for i, n in enumerate(e.plan.args)}
        self._fetches = {n.position: e for e in self.executors.values() for n in e.plan.retvals}

    # *** the interface of the owner ***

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
        return all(e.propagator.finished for e in self.executors.values())

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error` at its next check."""
        self.step.cancel(error)

    def statistics(self) -> RunStatistics:
        """State of the run at this moment."""
        parts = self.executors.values()
        of = [e.statistics() for e in parts]
        sent, received = sum(s.sent for s in of), sum(s.received for s in of)
        return RunStatistics(self.finished, self._seconds, sent, received, sum((s.waiting for s in of), ()))

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until all parts are finished or paused, see `run.Run`."""
        began = time.perf_counter()
        self._until, self._is_fed, self._is_paused = until, is_fed, False
        with entered(self._flushes, self._environment.blas_threads if self._uses_blas else 0):
            self._run()
        if self._error is not None:
            raise self._error
        self._seconds += time.perf_counter() - began

    def _run(self) -> None:
        unfinished = {name: e for name, e in self.executors.items() if not e.propagator.finished}
        if not unfinished:
            return
        self._runnable = queue.SimpleQueue()
        with self._lock:
            self._left = len(unfinished)
            self._parked.clear()
        over: queue.SimpleQueue[None] = queue.SimpleQueue()

        def serve() -> None:
            try:
                with entered(self._flushes):
                    self._serve()
            finally:
                over.put(None)

        helpers = 0
        try:
            for executor in unfinished.values():
                executor.begin(self._is_fed)
                self._runnable.put(executor)
            for device in list(unfinished)[1:]:
                self._environment.devices[device].run(serve)
                helpers += 1
            self._serve()
        except BaseException as e:  # Ctrl-C, or no thread was available
            self.fail(e)
            self._end()
            raise
        finally:
            for _ in range(helpers):
                over.get()
            if self._error is not None:  # a part that no thread drives any more may have started kernels
                self.abandon()
            elif not self._is_paused:
                self._release_parts()

    def abandon(self) -> None:
        """Cancels the asynchronous kernels of all parts. No code of this step runs afterwards."""
        for executor in self.executors.values():
            executor.abandon()
        self._release_parts()

    def _release_parts(self) -> None:
        """Removes the references from the parts to this object.

        It is then freed without the garbage collector.
        """
        for executor in self.executors.values():
            executor.step.completions.wake, executor.ports.busy = None, nothing

    def fail(self, error: BaseException) -> None:
        """Ends the step on all devices with `error`; the first call counts."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        ended = AbortedError(f"step {self.step.id} failed on another device: {error}")
        self.rendezvous.abort(ended)
        for executor in self.executors.values():
            executor.step.cancel(ended)

    # *** driving ***

    def _serve(self) -> None:
        """Drives runnable parts until all are over."""
        mine = self._mine[threading.get_ident()] = []
        while True:
            executor: Executor | None
            if mine and not self._is_paused:
                executor = mine.pop()
            else:
                try:
                    executor = self.step.clock.take(self._runnable, self._patience())
                except queue.Empty:
                    self._look_at_the_clock()
                    continue
            if executor is None:
                return
            try:
                executor.advance()
                is_over = executor.propagator.finished
            except BaseException as e:  # `run` raises the first of them in the thread of its caller
                executor.tell(e)
                executor.abandon()
                self.fail(e)
                is_over = True
            if is_over:
                with self._lock:
                    self._left -= 1
                    left = self._left
                if not left:
                    self._end()
                    continue
            self._park(None if is_over else executor)

    def _end(self) -> None:
        """Ends the threads of the step, all parts of which are over or paused."""
        for _ in self.executors:
            self._runnable.put(None)

    def _park(self, executor: Executor | None) -> None:
        """Parks `executor` (None: its part is over); resolves a deadlock if all parts are stuck."""
        with self._lock:
            if executor is not None:
                self._parked.add(executor)
                if not executor.step.completions.empty():  # a completion arrived before the executor was parked
                    self._parked.discard(executor)
                    self._runnable.put(executor)
                    return
            # the last check: another thread may end the last part
            if not self._left or len(self._parked) < self._left:
                return
            is_stuck = self.is_stuck
            if self._is_satisfied() or (is_stuck and not self._is_fed):
                self._is_paused = True
                self._end()
                return
            if not is_stuck:
                return
            blocked = self.blocked()
            if blocked is not None:
                self._parked.discard(blocked)  # this thread alone drives it from here
        if blocked is None:
            self.fail(self._stuck())
            return
        blocked.end_half_fed()
        self._runnable.put(blocked)

    def _wake(self, executor: Executor) -> None:
        """Makes `executor` runnable; called after a completion was added for it."""
        if executor in self._parked:
            with self._lock:
                if executor not in self._parked:
                    return  # another thread was faster
                self._parked.discard(executor)
            mine = self._mine.get(threading.get_ident())
            if mine is None:
                self._runnable.put(executor)
            else:
                mine.append(executor)

    def give_away(self) -> None:
        """Lets other threads drive the parts that the calling thread, now busy, has made runnable."""
        mine = self._mine.get(threading.get_ident())
        while mine:
            self._runnable.put(mine.pop())

    def _is_satisfied(self) -> bool:
        """Whether this is a partial run whose fetches are all computed."""
        return self._until is not None and all(map(self.has, self._until))

    @property
    def is_stuck(self) -> bool:
        """Whether all unfinished parts wait for one another, so that no token can come."""
        return self._error is None and all(
            e.propagator.finished or (e.only_receives and e.step.completions.empty()) for e in self.executors.values()
        )

    def blocked(self) -> Executor | None:
        """Stuck part with the innermost iteration to end; None without one."""
        deepest: Executor | None = None
        depth = 0
        for executor in self.executors.values():
            frame = executor.propagator.releasable()
            if frame is not None and frame.level > depth:
                deepest, depth = executor, frame.level
        return deepest

    # *** time ***

    def _patience(self) -> float:
        """Seconds until the next check of the clock."""
        left = self.step.time_left()
        limit: float = flags.WAIT_LIMIT.value
        return limit if left is None else max(min(limit, left), 0.001)

    def _look_at_the_clock(self) -> None:
        """Checks the deadline and the wait limit, after `_patience` seconds without a runnable part."""
        left = self.step.time_left()
        if left is not None and left <= 0:
            self.fail(DeadlineExceededError(f"Timed out: step {self.step.id} ran past its time limit{self._waits()}"))
            return
        with self._lock:
            is_waiting = len(self._parked) == self._left
        if is_waiting and left is None and not any(e.is_blocked for e in self.executors.values()):
            self.fail(
                DeadlineExceededError(
                    f"step {self.step.id} has waited {flags.WAIT_LIMIT.value:g} s without any progress"
                    f"{self._waits()}. Nothing in this step can wake it; give the run a timeout, close the queue, or "
                    "raise HEADRACE_WAIT_LIMIT if the wait is intended"
                )
            )

    def _waits(self) -> str:
        lines = [f"{name}:\n" + "\n".join(e.half_fed()) for name, e in self.executors.items() if e.half_fed()]
        return "; it waits for\n" + "\n".join(lines) if lines else ""

    def _stuck(self) -> InternalError:
        text = "\n".join(self.rendezvous.table())
        return InternalError(
            f"step {self.step.id} cannot continue: every device waits for another{self._waits()}\n{text}\n"
            "In a loop every NextIteration must fire alive in the same iterations."
        )
