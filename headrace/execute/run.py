"""Programs and runs: the protocol by which a session runs steps.

    run = program.start(step)
    run.feed(0, value)
    run.run()
    value = run.fetch(0)

A `Program` is made once for each prepared step and can be started any number of times, by several threads at once. A
`Run` belongs to one `Step`. The implementations are

* `compiled_run.CompiledProgram`: one Python function;
* `static_schedule.StaticProgram`: the nodes of a plan without control flow, in a fixed order;
* `executor.MachineProgram`: the token machine on one device;
* `parts.PartsProgram`: the token machine on several devices.

A program takes what belongs to the session from its `RunEnvironment`, and a run takes the rest (deadline, listener,
resources) from its step.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.records import record

if TYPE_CHECKING:
    from headrace.execute.devices import LocalDevice
    from headrace.execute.step import Step


class Workers(Protocol):
    """Destination of heavy kernels: a pool of threads or a stream."""

    def submit(self, work: Callable[[], None], /) -> object: ...


class _NoWorkers:
    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


@record(frozen=True, slots=True)
class RunEnvironment:
    """Resources of a session that its runs share.

    Attributes:
      pool: the pool of heavy kernels of steps on one device. The default calls them in the thread of the step.
      blas_threads: number of threads that the BLAS library may use during a run.
      devices: the devices of the session, by name.
      record: called with the operation, the type of device and the seconds of each heavy kernel of a step over several
        devices.
      account: returns the memory account (`Step.memory`) of a step's part, given the part and its device; None: no
        device has a memory limit.
    """

    pool: Workers = dataclasses.field(default_factory=_NoWorkers)
    blas_threads: int = 1
    devices: Mapping[str, LocalDevice] = dataclasses.field(default_factory=dict)
    record: Callable[[str, str, float], object] = lambda op, device_type, seconds: None
    account: Callable[[Step, str], Any] | None = None


@record(frozen=True, slots=True)
class RunStatistics:
    """State of a run at one moment.

    Attributes:
      finished: whether the whole step has run.
      seconds: duration of the calls of `Run.run` that have ended.
      sent: number of tokens that the step has sent between its devices.
      received: number of these tokens that their devices have consumed.
      waiting: names of operations that were started and have not completed.
    """

    finished: bool
    seconds: float
    sent: int = 0
    received: int = 0
    waiting: tuple[str, ...] = ()


class Run(Protocol):
    """A running step. One thread at a time may call its methods, except for `cancel`.

    Attributes:
      step: the identity, resources and cancellation of the step.
    """

    step: Step

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`, once."""
        ...

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until the step is finished, or pauses in a partial run.

        A partial run returns when its fetches are computed, or when nothing further can be computed.

        Args:
          until: positions of the fetches of a partial run. Once they are computed, the run does not wait. None: not a
            partial run.
          is_fed: whether all feeds have been supplied. If so, a step that cannot continue is an error. A run that
            computes all of its fetches at once does nothing before.

        Raises:
          OpError: the error of a kernel, `DeadlineExceededError` or `CancelledError`; `InternalError` if the step is
            stuck. The run is over then.
        """
        ...

    def fetch(self, position: int) -> Any:
        """Hands over the value of a fetch, once: the run drops its reference.

        Raises:
          InvalidArgumentError: the fetch has no value, since its token is dead.
        """
        ...

    def has(self, position: int) -> bool:
        """Whether a fetch has its value or is known to be dead."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the whole step has run."""
        ...

    def cancel(self, error: BaseException) -> None:
        """Makes the run fail with `error` at its next check.

        The first call counts. Any thread may call it.
        """
        ...

    def abandon(self) -> None:
        """Cancels the asynchronous kernels of a paused run. No code of the step runs afterwards."""
        ...

    def statistics(self) -> RunStatistics:
        """State of the run at this moment."""
        ...


class RunAtOnce:
    """Base of the runs that compute all fetches at once.

    Such a run starts as soon as all feeds have been supplied.

    Args:
      step: the identity, resources and cancellation of the step.
      blas_threads: number of threads that the BLAS library may use during the run.

    Attributes:
      step: the identity, resources and cancellation of the step.
      results: for each fetch its value, once it is computed.
      finished: whether the run is over.
    """

    __slots__ = ("_blas_threads", "_seconds", "finished", "results", "step")

    def __init__(self, step: Step, blas_threads: int) -> None:
        self.step = step
        self.results: list[Any] = []
        self.finished = False
        self._blas_threads = blas_threads
        self._seconds = 0.0

    def _compute(self) -> None:
        """Computes `results`."""
        raise NotImplementedError

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs the whole step, unless feeds are missing; see `Run`."""
        if self.finished or not is_fed:
            return
        began = time.perf_counter()
        self._compute()
        self.finished = True
        self._seconds = time.perf_counter() - began

    def fetch(self, position: int) -> Any:
        """Hands over the value of a fetch."""
        value, self.results[position] = self.results[position], None
        return value

    def has(self, position: int) -> bool:
        """Whether a fetch has its value."""
        return self.finished

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error` at its next check."""
        self.step.cancel(error)

    def abandon(self) -> None:
        """Has no effect, since such a run has no asynchronous kernels."""

    def statistics(self) -> RunStatistics:
        """State of the run at this moment."""
        return RunStatistics(self.finished, self._seconds)


class Program(Protocol):
    """A prepared step that can be started."""

    def start(self, step: Step) -> Run:
        """Returns a new run of the program for `step`, without feeds."""
        ...
