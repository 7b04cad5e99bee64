"""A step: id, resources, current tag, deadline, cancellation and listener of one run."""

from __future__ import annotations

import collections
import itertools
import queue
import threading
from typing import TYPE_CHECKING, Any

from headrace import forking, thresholds
from headrace.errors import DeadlineExceededError
from headrace.execute.clock import SYSTEM_CLOCK
from headrace.execute.threads import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import step_events
    from headrace.execute.clock import Clock
    from headrace.execute.inspector import Inspector
    from headrace.execute.records import Iteration, Ready
    from headrace.file_access import FileAccess
    from headrace.ir.graph import Operation
    from headrace.metadata import Cancellation

_ids = itertools.count(1)
_making = threading.Lock()


def _forked() -> None:
    global _making
    _making = threading.Lock()


forking.run_after_fork(_forked)


class Completions:
    """Queue of work that completed outside the executor's thread.

    Attributes:
      get: removes and returns an entry, as in `queue.SimpleQueue`.
      get_nowait: the same without waiting.
      empty: whether there is no entry.
      wake: called by the thread that adds an entry, after it; None: no call.
    """

    __slots__ = ("_queue", "empty", "get", "get_nowait", "wake")

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.get, self.get_nowait, self.empty = self._queue.get, self._queue.get_nowait, self._queue.empty
        self.wake: Callable[[], object] | None = None

    def put(self, entry: Any) -> None:
        self._queue.put(entry)
        if self.wake is not None:
            self.wake()


class Step:
    """Identity and resources of one run; kernels receive it as `ctx.step` (`ir.kernel.StepContext`).

    Args:
      session: the session's resource manager.
      make_resources: creates the step's own resource manager; called when a kernel first needs it.
      deadline: the time of `clock` at which the step fails; None: no deadline.
      threads: the pool for kernels that may block; None: the step creates one if it needs it.
      listener: receives `step_events` from all threads of the step; None: no events.
      ready: a queue of ready nodes, or a function that makes the queue of a device, given its name (see
        `metadata.RunOptions`); None: deques.
      clock: the time, and all waits of the step.

    Attributes:
      session: the session's resource manager.
      deadline: the time of `clock` at which the step fails; None: no deadline.
      id: a number that no other step of this process has.
      iteration: the iteration of the node that fires now.
      listener: receives `step_events`, or None.
      inspectors: receive the firings of the token machine and may stop it (`execute.inspector`).
      locate: returns the tag in compiled code.
      exchange: sends values to the shares of other devices, and receives theirs (`partition.shares`); None: none.
      files: the files that kernels may use; None: all.
      advise: describes the resource that an operation waits for, and a remedy, as text; None: no descriptions.
      is_long_wait_told: whether the log has a record about a long wait of the step.
      memory: the account of its device (`resources.step_memory.StepMemory`); None if the device has no memory limit.
      ready: a queue of ready nodes, or a function that makes the queue of a device; None: deques.
      clock: the time, and all waits of the step.
      cancellation: cancels the step from another thread (`metadata.Cancellation`), or None.
      cancelled: the error with which the step was cancelled, or None.
      blocked_in: in compiled code, the operation whose blocking kernel is being called, or None.
      completions: results that pool threads and asynchronous kernels pass to the executor; an entry None only wakes it
        up. Created on first use, because most steps have no such kernels.
      of: the whole step, for a device's part of it; else None.
      parts: the parts created by `part`.
    """

    __slots__ = (
        "_completions",
        "_make_resources",
        "_own",
        "_resources",
        "_threads",
        "advise",
        "blocked_in",
        "cancellation",
        "cancelled",
        "clock",
        "deadline",
        "exchange",
        "files",
        "id",
        "inspectors",
        "is_long_wait_told",
        "iteration",
        "listener",
        "locate",
        "memory",
        "of",
        "parts",
        "ready",
        "session",
    )

    def __init__(
        self,
        session: Any,
        make_resources: Callable[[], Any],
        deadline: float | None = None,
        threads: Pool | None = None,
        listener: step_events.Listener | None = None,
        ready: Ready | Callable[[str], Ready] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.id = next(_ids)
        self.session = session
        self.deadline = deadline
        self.listener = listener
        self.ready = ready
        self.clock = clock
        self.inspectors: tuple[Inspector, ...] = ()
        self.iteration: Iteration | None = None
        self.locate: Callable[[], str] | None = None
        self.memory: Any = None
        self.exchange: Any = None
        self.files: FileAccess | None = None
        self.advise: Callable[[Operation], str] | None = None
        self.is_long_wait_told = False
        self.cancellation: Cancellation | None = None
        self.cancelled: BaseException | None = None
        self.blocked_in: Operation | None = None
        self._threads = threads
        self._own: Pool | None = None
        self._completions: Completions | None = None
        self.of: Step | None = None
        self.parts: list[Step] = []
        self._make_resources = make_resources
        self._resources: Any = None

    @property
    def whole(self) -> Step:
        """The whole step, of which this may be a device's part."""
        return self if self.of is None else self.of

    def part(self) -> Step:
        """Creates the state of one device's part: the same step with completions of its own."""
        out = Step(
            self.session, self._make_resources, self.deadline, self.threads, self.listener, self.ready, self.clock
        )
        out.id, out.of, out.cancelled, out.files = self.id, self, self.cancelled, self.files
        out.inspectors, out.advise = self.inspectors, self.advise
        self.parts.append(out)
        return out

    def ready_queue(self, device: str) -> Ready:
        """Returns the queue of ready nodes of `device`; "" is a step's only device."""
        ready = self.ready
        return collections.deque() if ready is None else ready(device) if callable(ready) else ready

    @property
    def completions(self) -> Completions:
        """Results that pool threads and asynchronous kernels pass to the executor."""
        found = self._completions
        if found is None:
            found = self._completions = Completions()
        return found

    @property
    def threads(self) -> Pool:
        """Pool for kernels that may block their thread."""
        if self._threads is None:
            self._threads = self._own = Pool(thresholds.BLOCKING_THREADS, f"headrace-step-{self.id}", computes=False)
        return self._threads

    @property
    def resources(self) -> Any:
        """The step's own resource manager. Its resources are dropped when the step ends."""
        if self.of is not None:
            return self.of.resources
        if self._resources is None:
            with _making:  # several devices may reach this at once
                if self._resources is None:
                    self._resources = self._make_resources()
        return self._resources

    @property
    def tag(self) -> str:
        """Tag of the node that fires now, as text; "" in the root."""
        if self.iteration is not None:
            return self.iteration.tag
        return "" if self.locate is None else self.locate()

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error` at its executor's next check.

        The first call counts. Any thread may call it.
        """
        if self.cancelled is None:
            self.cancelled = error
        if self._completions is not None:  # else its executor checks `cancelled` before its first wait
            self._completions.put(None)
        for part in self.parts:
            part.cancel(error)

    def time_left(self) -> float | None:
        """Seconds to the deadline, negative after it; None without a deadline."""
        return None if self.deadline is None else self.deadline - self.clock.monotonic()

    def look(self, doing: str = "") -> None:
        """Raises if the step was cancelled or is past its deadline.

        Args:
          doing: the activity of the step, as an addition to the error text.
        """
        if self.cancelled is not None:
            raise self.cancelled
        left = self.time_left()
        if left is not None and left <= 0:
            raise self.past_deadline(doing)

    def past_deadline(self, doing: str = "") -> DeadlineExceededError:
        """Returns the error of a step past its deadline, with `doing` appended."""
        return DeadlineExceededError(f"Timed out: step {self.id} ran past its time limit{doing}")

    def past_wait_limit(self, limit: float, waits: str) -> DeadlineExceededError:
        """Returns the error of a step that has waited `limit` seconds for `waits`."""
        return DeadlineExceededError(
            f"step {self.id} has waited {limit:g} s without any progress{waits}. Nothing in this step can wake it; "
            "give the run a timeout, close the queue, or raise HEADRACE_WAIT_LIMIT if the wait is intended"
        )

    def close(self) -> None:
        """Drops the step's resources."""
        if self.cancellation is not None:
            self.cancellation.discard(self)
        self.parts.clear()  # they refer back to this object
        if self._own is not None:
            self._own.close()
        if self._resources is not None:
            self._resources.close()
            self._resources = None
