"""A step over several devices: an executor for each, which meet only in the rendezvous.

Each device has a part of the step, a plan of its own (`partition/` made it), and an executor of its own that runs it as
if there were nothing else: a part knows of the others only through its Sends and Recvs. Together they have

* to begin, and to end: the step is over when all parts are;
* to fail: the first error is the step's. The rendezvous is aborted with it and the other parts are cancelled, so that
  the step ends everywhere, once;
* to detect a deadlock. When all parts wait, and for one another alone, no token is under way and none will
  ever be. Then an iteration that some part will never complete is ended, as one device alone does it
  (`Propagator.release`), the innermost first; and if there is none, the step fails with the list of nodes that wait.

**Threads.** Each device gives a thread to the step (the first device: the one that called `run`). A thread is not bound
to its device: an executor whose part has nothing to do is *parked*, and its thread goes on with any other that has,
or waits for one. An entry among the completions of a parked executor makes it *runnable*; the thread that added it
drives it next, unless it has more to do first: then it gives it away. At any time at most one thread drives an
executor. So devices that work at the same time do so side by side, and two that wait for each other in turn are driven
by one thread, without a switch of threads for each token; in Python, where one thread runs at a time, those were seen
to cost ten times as much as all else in a loop that is cut.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import flags
from headrace.denormals import flushed
from headrace.errors import AbortedError, DeadlineExceededError, InternalError
from headrace.execute import blas
from headrace.execute.device_memory_executor import DeviceMemoryExecutor
from headrace.execute.part_executor import PartExecutor
from headrace.execute.rendezvous import LocalRendezvous
from headrace.execute.threads import taken
from headrace.ir.kernel import CPU

if TYPE_CHECKING:
    from headrace import trace
    from headrace.execute.devices import LocalDevice
    from headrace.execute.plan import Plan
    from headrace.execute.records import Ready
    from headrace.execute.step import StepState


def _nothing() -> None:
    pass


class Parts:
    """One step under way on several devices.

    Args:
      plans: for each device, by name, its part.
      devices: the devices, by name.
      step: the step's identity, resources and cancellation.
      listener: receives `trace` events, from the threads of all devices, or None.
      ready: makes the queue of ready nodes of a device, given its name; None: plain ones.
      blas_threads: how many threads the BLAS library may use meanwhile.
      measured: (operation, type of device) → seconds; what heavy kernels take is added.

    Attributes:
      rendezvous: where the parts meet.
      executors: for each device, by name, what runs its part.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        devices: Mapping[str, LocalDevice],
        step: StepState,
        listener: trace.Listener | None = None,
        ready: Callable[[str], Ready] | None = None,
        blas_threads: int = 1,
        measured: dict[tuple[str, str], float] | None = None,
    ) -> None:
        self.step = step
        self.rendezvous = LocalRendezvous()
        self._devices = devices
        self._blas_threads = blas_threads
        self._uses_blas = any(plan.uses_blas for plan in plans.values())
        self._flushes = any(plan.flushes for plan in plans.values())
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._runnable: queue.SimpleQueue[PartExecutor | None] = queue.SimpleQueue()
        self._parked: set[PartExecutor] = set()
        self._mine: dict[int, list[PartExecutor]] = {}  # by thread, what it has made runnable and will drive itself
        self._left = len(plans)  # parts that are not over
        self.executors: dict[str, PartExecutor] = {}
        for name, plan in plans.items():
            part = step.part()
            queue_of = None if ready is None else ready(name)
            device = devices[name]
            make = PartExecutor if device.type == CPU else partial(DeviceMemoryExecutor, device)
            executor = make(plan, part, device.compute, listener, queue_of, blas_threads)
            executor.rendezvous, executor.busy = self.rendezvous, self.give_away
            executor.measured, executor.device_type = {} if measured is None else measured, device.type
            part.completions.wake = lambda e=executor: self._wake(e)
            self.executors[name] = executor
        self._feeds = {n.position: (e, i) for e in self.executors.values() for i, n in enumerate(e.plan.args)}
        self._fetches = {n.position: e for e in self.executors.values() for n in e.plan.retvals}

    # *** what the owner calls ***

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        executor, i = self._feeds[position]
        executor.feed(i, value)

    def fetch(self, position: int) -> Any:
        """The value of a fetch; `InvalidArgumentError` if it is dead or not there."""
        return self._fetches[position].fetch(position)

    def forget(self, position: int) -> None:
        """Drops the value of a fetch."""
        self._fetches[position].forget(position)

    def run(self) -> None:
        """Runs until all parts are finished.

        Raises:
          OpError: the first that a part failed with.
        """
        if self._uses_blas:
            with blas.threads(self._blas_threads):
                self._run()
        else:
            self._run()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        over: queue.SimpleQueue[None] = queue.SimpleQueue()

        def serve() -> None:
            try:
                with flushed(self._flushes), np.errstate(all="ignore"):
                    self._serve()
            finally:
                over.put(None)

        helpers = 0
        try:
            for executor in self.executors.values():
                self._runnable.put(executor)
            for device in list(self.executors)[1:]:
                self._devices[device].run(serve)
                helpers += 1
            with flushed(self._flushes), np.errstate(all="ignore"):
                self._serve()
        except BaseException as e:  # Ctrl-C, no thread to be had
            self.fail(e)
            self._end()
            raise
        finally:
            for _ in range(helpers):
                over.get()
            if self._error is not None:  # parts that nobody drove any more may have something started
                self.abandon()
            for executor in self.executors.values():  # they refer back: now none of it needs a garbage collector
                executor.step.completions.wake, executor.busy = None, _nothing

    def abandon(self) -> None:
        """Cancels what was started; nothing of this step runs afterwards."""
        for executor in self.executors.values():
            executor.abandon()

    def fail(self, error: BaseException) -> None:
        """Ends the step everywhere; the first error counts."""
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
            executor: PartExecutor | None
            if mine:
                executor = mine.pop()
            else:
                try:
                    executor = taken(self._runnable, self._patience())
                except queue.Empty:
                    self._look_at_the_clock()
                    continue
            if executor is None:
                return
            try:
                executor.advance()
                is_over = executor.propagator.finished
            except BaseException as e:  # `run` raises the first, in the thread that asked for the step
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
        """All parts are over: lets the threads go."""
        for _ in self.executors:
            self._runnable.put(None)

    def _park(self, executor: PartExecutor | None) -> None:
        """Nothing is ready in the part of `executor` (None: it is over). If so it is everywhere, sees to it."""
        with self._lock:
            if executor is not None:
                self._parked.add(executor)
                if not executor.step.completions.empty():  # it came while nobody was told
                    self._parked.discard(executor)
                    self._runnable.put(executor)
                    return
            if not self._left or len(self._parked) < self._left or not self.is_stuck:  # another thread may end the last
                return
            blocked = self.blocked()
            if blocked is not None:
                self._parked.discard(blocked)  # from now on it is this thread's
        if blocked is None:
            self.fail(self._stuck())
            return
        blocked.end_half_fed()
        self._runnable.put(blocked)

    def _wake(self, executor: PartExecutor) -> None:
        """Something was put among the completions of `executor`."""
        if executor in self._parked:
            with self._lock:
                if executor not in self._parked:
                    return  # somebody else was faster
                self._parked.discard(executor)
            mine = self._mine.get(threading.get_ident())
            if mine is None:
                self._runnable.put(executor)
            else:
                mine.append(executor)

    def give_away(self) -> None:
        """The calling thread will be busy for a while: others may have the parts that it has made runnable."""
        mine = self._mine.get(threading.get_ident())
        while mine:
            self._runnable.put(mine.pop())

    @property
    def is_stuck(self) -> bool:
        """Whether all parts that are not over wait for one another: no token is under way and none will ever be."""
        return self._error is None and all(
            e.propagator.finished or (e.only_receives and e.step.completions.empty()) for e in self.executors.values()
        )

    def blocked(self) -> PartExecutor | None:
        """Of parts that are stuck, the one with the innermost iteration to end; None if there is none."""
        deepest: PartExecutor | None = None
        depth = 0
        for executor in self.executors.values():
            frame = executor.propagator.releasable()
            if frame is not None and frame.level > depth:
                deepest, depth = executor, frame.level
        return deepest

    # *** time ***

    def _patience(self) -> float:
        """Seconds until the clock has to be looked at."""
        left = self.step.time_left()
        limit: float = flags.WAIT_LIMIT.value
        return limit if left is None else max(min(limit, left), 0.001)

    def _look_at_the_clock(self) -> None:
        """Nothing became runnable for as long as `_patience` says."""
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
                    "raise HEADRACE_WAIT_LIMIT if this is meant"
                )
            )

    def _waits(self) -> str:
        lines = [f"{name}:\n" + "\n".join(e.half_fed()) for name, e in self.executors.items() if e.half_fed()]
        return "; it waits at\n" + "\n".join(lines) if lines else ""

    def _stuck(self) -> InternalError:
        text = "\n".join(self.rendezvous.table())
        return InternalError(
            f"step {self.step.id} cannot go on: every device waits for another{self._waits()}\n{text}\n"
            "In a loop every NextIteration must fire alive in the same iterations."
        )
