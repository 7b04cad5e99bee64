"""Client: the target of a session whose steps run on a cluster.

A session prunes its step and sends it to the master once (`RemoteTarget.register`). Each run is then a message with the
feeds, and an answer with the fetches. The master may be in another process, or in this one; `Channel` hides the
difference.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from headrace import step_events, thresholds
from headrace.compiled_step import CompiledStep, Request
from headrace.dist import messages, step_codec, tracing
from headrace.environment import Environment, PlacementOptions
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
    from_data,
    to_data,
)
from headrace.execute.clock import SYSTEM_CLOCK
from headrace.execute.devices import DeviceAttributes
from headrace.execute.run import RunStatistics
from headrace.execute.step import Step
from headrace.execute.step_state import waiting_lines
from headrace.explain import Explanation, explanation_from_data
from headrace.pipeline import pruned
from headrace.resources.manager import ResourceManager
from headrace.stages import Stages
from headrace.target import TargetStatistics

if TYPE_CHECKING:
    from headrace.execute.clock import Clock
    from headrace.execute.records import Ready

T = TypeVar("T")
# A number and the values that follow an answer, or the error of a call.
Answer: TypeAlias = "tuple[messages.Reply, Sequence[Any]] | BaseException"


class Channel(Protocol):
    """Connection of a client to a master."""

    def send(self, message: messages.AnyMessage, values: Sequence[Any]) -> None:
        """Sends a message; raises `UnavailableError` if the master is lost."""
        ...

    def take(self, source: queue.SimpleQueue[T], timeout: float) -> T:
        """Returns the next entry of a queue; raises `queue.Empty` if none arrives in time.

        The calling thread serves the connection while it waits.
        """
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class Calls:
    """Calls of a client that wait for their answers. Thread-safe.

    Attributes:
      channel: the connection to the master.
      home: the task of this process, if it is a task of the cluster and has the master; else "".
    """

    channel: Channel
    home = ""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[Answer], object]] = {}
        self._lock = threading.Lock()
        self._lost: str | None = None

    def begin(
        self,
        make: Callable[[int], messages.AnyMessage],
        answered: Callable[[Answer], object],
        values: Sequence[Any] = (),
    ) -> int:
        """Sends a call; `answered` gets its answer. Returns its number.

        Args:
          make: makes the message, given the number of the call.
          answered: called once, by the thread that receives the answer.
          values: the values that follow the message.

        Raises:
          UnavailableError: the master is lost.
          InvalidArgumentError: a value is an object of this process.
        """
        number = next(self._numbers)
        with self._lock:
            if self._lost is not None:
                raise UnavailableError(f"the connection to the master has ended: {self._lost}")
            self._waiting[number] = answered
        try:
            self.channel.send(make(number), values)
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return number

    def wait(self, make: Callable[[int], messages.AnyMessage], timeout: float, doing: str) -> messages.Reply:
        """Sends a call and returns its answer.

        Args:
          make: makes the message, given the number of the call.
          timeout: seconds to wait.
          doing: the activity, for messages.

        Raises:
          DeadlineExceededError: the answer did not arrive in time.
          OpError: the error of the call.
        """
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        number = self.begin(make, answers.put)
        try:
            answer = self.channel.take(answers, timeout)
        except queue.Empty:
            raise DeadlineExceededError(f"{doing}: the master has not answered within {timeout:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if isinstance(answer, BaseException):
            raise answer
        return answer[0]

    def forget(self, number: int) -> None:
        """Ignores the answer of a call."""
        self._waiting.pop(number, None)

    def receive(self, message: messages.AnyMessage, values: Sequence[Any] = ()) -> None:
        """Handles an answer of the master."""
        if not isinstance(message, (messages.Reply, messages.Failure)):
            return
        answered = self._waiting.pop(message.call, None)
        if answered is not None:
            answered((message, values) if isinstance(message, messages.Reply) else from_data(message.error))

    def lost(self, reason: str) -> None:
        """Fails all calls: the connection has ended."""
        with self._lock:
            self._lost = reason
            waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(UnavailableError(f"the connection to the master has ended: {reason}"))


class RemoteTarget:
    """Devices of a cluster, as the target of one session. Thread-safe.

    Args:
      calls: the calls to the master.
      options: options of placement and partition.
      filters: partial device names; the session uses the tasks that match one of them.
      timeout: seconds to wait until all workers are connected; None: as long as the master waits.

    Attributes:
      environment: the devices of the cluster.
      resources: None, as workers have the resources.
      clock: the time of the deadlines of steps, and all waits for them.

    Raises:
      UnavailableError: workers are not connected.
    """

    def __init__(
        self, calls: Calls, options: PlacementOptions, filters: Sequence[str] = (), timeout: float | None = None
    ) -> None:
        self._calls = calls
        self.resources = None
        self.clock: Clock = SYSTEM_CLOCK
        patience = thresholds.CLUSTER_PATIENCE + thresholds.ABORT_PATIENCE if timeout is None else timeout
        self._is_closed = False
        self._released: collections.deque[int] = collections.deque()  # programs without references
        reply = calls.wait(
            lambda call: messages.OpenSession(
                call, options.soft, options.bfloat16, options.recv_scheduling, tuple(filters)
            ),
            patience,
            "opening a session",
        )
        number, devices = reply.data
        self._session: int = number
        self._devices = [DeviceAttributes(name, kind, limit) for name, kind, limit in devices]
        self.environment = Environment([d.name for d in self._devices], options, is_remote=True)

    def devices(self) -> list[DeviceAttributes]:
        """Returns descriptions of the devices, the default device first."""
        return self._devices

    def compile(self, request: Request, stages: Stages) -> CompiledStep:
        """Prunes a step; the master does the rest."""
        stages.run("prune", pruned, request, self.environment)
        return CompiledStep(request, stages.made)

    def register(self, step: CompiledStep, is_interpreted: bool = False) -> RemoteProgram:
        """Sends a step to the master, which compiles it.

        Raises:
          OpError: the step cannot be placed, or not sent.
        """
        data = step_codec.encode(step.request, step.pruned, self._calls.home)
        released: list[int] = []
        with contextlib.suppress(IndexError):
            while len(released) < thresholds.SESSION_PROGRAMS:  # the rest follows with the next step
                released.append(self._released.popleft())
        reply = self._calls.wait(
            lambda call: messages.CompileStep(call, self._session, data, tuple(released)),
            thresholds.COMPILE_PATIENCE,
            "compiling a step",
        )
        number, explained = reply.data
        return RemoteProgram(
            self._calls, self._session, number, len(step.pruned.retvals), explanation_from_data(explained),
            self._released,
        )  # fmt: skip

    def step(
        self,
        deadline: float | None = None,
        listener: step_events.Listener | None = None,
        ready: Ready | Callable[[str], Ready] | None = None,
        device: str = "",
    ) -> Step:
        """Returns a new step, which has no resources of its own in this process."""
        if ready is not None:
            raise UnimplementedError("a step of a cluster has no queue of ready nodes in this process")
        if listener is not None and getattr(listener, "wants_values", False):
            raise UnimplementedError(
                "the listener of a step of a cluster gets no values of outputs; fetch them, or watch them (hr.watch)"
            )
        return Step(None, ResourceManager, deadline, listener=listener, clock=self.clock)

    def statistics(self) -> TargetStatistics:
        """Returns no resources: they belong to the workers."""
        return TargetStatistics((), {})

    def clear_container(self, name: str = "") -> None:
        """Drops the resources of a container on all workers; "" is the default one."""
        self.reset([name])

    def reset(self, names: Sequence[str] = ()) -> None:
        """Drops the resources of containers on all workers; no names: of all containers."""
        self._calls.wait(
            lambda call: messages.ClearContainers(call, tuple(names)), thresholds.CALL_PATIENCE, "clearing containers"
        )

    def describe(self) -> Any:
        """Returns the state of the cluster as plain data."""
        return self._calls.wait(messages.Describe, thresholds.CALL_PATIENCE, "describing the cluster").data

    def close(self) -> None:
        """Closes the session and the connection. Further calls have no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._calls.wait(
                lambda call: messages.CloseSession(call, self._session), thresholds.CALL_PATIENCE, "closing a session"
            )
        except (UnavailableError, DeadlineExceededError):
            pass  # the master closes the sessions of a lost client
        finally:
            self._calls.channel.close()

    def discard_resources(self) -> None:
        """Does nothing: the resources belong to the workers."""


class RemoteProgram:
    """A step that the master has compiled.

    Args:
      calls: the calls to the master.
      session: the number of the session.
      number: the number of the program.
      fetches: the number of fetches.
      explained: the explanation of its compilation.
      released: receives the number when this object has no more references.

    Attributes:
      number: the number of the program.
      explained: the explanation of its compilation.
    """

    def __init__(
        self,
        calls: Calls,
        session: int,
        number: int,
        fetches: int,
        explained: Explanation,
        released: collections.deque[int],
    ) -> None:
        self._released = released
        self._calls = calls
        self._session = session
        self.number = number
        self._fetches = fetches
        self.explained = explained

    def start(self, step: Step) -> RemoteRun:
        """Returns a new run for `step`, without feeds."""
        return RemoteRun(self._calls, self._session, self, self._fetches, step)

    def __del__(self) -> None:
        self._released.append(self.number)


class RemoteRun:
    """A run of a step on a cluster.

    Args:
      calls: the calls to the master.
      session: the number of the session.
      program: the program, which the master keeps as long as this object refers to it.
      fetches: the number of fetches.
      step: the deadline and the cancellation of the step.

    Attributes:
      step: the deadline and the cancellation of the step.
      finished: whether the whole step has run.
    """

    def __init__(self, calls: Calls, session: int, program: RemoteProgram, fetches: int, step: Step) -> None:
        self.step = step
        self.finished = False
        self._calls = calls
        self._session = session
        self._program = program
        self._fetches = fetches
        self._fed: dict[int, Any] = {}
        self._values: dict[int, Any] = {}
        self._partial: int | None = None  # the number of the partial run
        self._seconds = 0.0

    def feed(self, position: int, value: Any) -> None:
        """Supplies the feed `position`."""
        self._fed[position] = value

    def run(self, until: Sequence[int] | None = None, is_fed: bool = True) -> None:
        """Runs until the step is finished or paused, see `run.Run`."""
        began = time.perf_counter()
        fed, self._fed = self._fed, {}
        left = self.step.time_left()
        timeout = 0.0 if left is None else max(left, 0.001)
        session, program = self._session, self._program.number
        wants = None if self.step.listener is None else step_events.Wants(self.step.listener)
        level, names = (0, ()) if wants is None else (_tracing(wants), tuple(sorted(wants.values_of)))
        check: int = max((getattr(i, "number", 0) for i in self.step.inspectors), default=0)

        def begin(call: int, is_partial: bool = False) -> messages.RunStep:
            return messages.RunStep(call, session, program, timeout, is_partial, level, check, names)

        if until is None and is_fed and self._partial is None:
            values = [fed[i] for i in range(len(fed))]
            self._call(begin, values)
        else:
            if self._partial is None:
                reply = self._call(lambda call: begin(call, True))
                self._partial = int(reply.data)
            run, positions = self._partial, sorted(fed)
            wanted = None if until is None else tuple(until)
            self._call(
                lambda call: messages.ResumeRun(call, run, tuple(positions), wanted, is_fed),
                [fed[p] for p in positions],
            )
        self._seconds += time.perf_counter() - began

    def _call(self, make: Callable[[int], messages.AnyMessage], values: Sequence[Any] = ()) -> messages.Reply:
        """Sends a call, and keeps the fetches of its answer."""
        self.step.look()
        completions = self.step.completions
        number = self._calls.begin(make, completions.put, values)
        try:
            answer = self._answer(number, completions)
        except KeyboardInterrupt as e:
            e.add_note(f"the step was interrupted while the cluster ran it{self._waits()}")
            error = CancelledError("its client was interrupted")
            self._cancel(number if self._partial is None else self._partial, error)
            raise
        finally:
            self._calls.forget(number)
        if isinstance(answer, BaseException):
            raise answer if self.step.cancelled is None else self.step.cancelled
        reply, fetched = answer
        if len(fetched) != len(reply.fetches):
            raise InternalError(f"the master names {len(reply.fetches)} fetches and sends {len(fetched)} values")
        self._values.update(zip(reply.fetches, fetched, strict=True))
        if self.step.listener is not None:
            if len(reply.trace) >= thresholds.STEP_TRACE_EVENTS and step_events.Wants(self.step.listener).values_of:
                raise ResourceExhaustedError(
                    f"the watched operations of this step fired more than {thresholds.STEP_TRACE_EVENTS:,} times, and "
                    "a cluster keeps no more events of a step; watch fewer tensors, or run fewer iterations"
                )
            for event in tracing.decode(reply.trace, self.step.id):
                self.step.listener(event)
        self.finished = reply.data is True
        return reply

    def _waits(self) -> str:
        """Returns a clause about the operations of this session that wait, by worker and device."""
        try:
            described = self._calls.wait(messages.Describe, thresholds.INTERRUPT_PATIENCE, "describing the step")
        except OpError as e:
            return f"; the operations that wait are not known: {e}"
        mine = [step["waits"] for step in described.data["steps"] if step["session"] == self._session]
        return waiting_lines({device: lines for waits in mine for device, lines in waits.items()})

    def _answer(self, number: int, completions: Any) -> Answer:
        """Waits for the answer to a call.

        A cancellation or the deadline is sent to the master first.
        """
        until: float | None = None  # the end of the wait for the confirmation of a cancellation
        clock = self.step.clock
        while True:
            left = self.step.time_left()
            if until is not None:
                patience = until - clock.monotonic()
            else:  # the master keeps the deadline; this process only makes sure that the call ends
                patience = thresholds.CALL_PATIENCE if left is None else left + thresholds.ABORT_PATIENCE * 2
            try:
                answer: Answer | None = self._calls.channel.take(completions, max(patience, 0.0))
            except queue.Empty:
                if until is not None and self.step.cancelled is not None:
                    return self.step.cancelled
                if left is None:
                    continue  # without a deadline a step may wait; a lost master is reported by its connection
                return self.step.past_deadline("; the master has not answered")
            if answer is not None:
                return answer
            if self.step.cancelled is not None and until is None:
                until = clock.monotonic() + thresholds.ABORT_PATIENCE * 2
                self._cancel(number, self.step.cancelled)

    def _cancel(self, number: int, error: BaseException) -> None:
        with contextlib.suppress(UnavailableError):  # the call fails for the same reason
            self._calls.channel.send(messages.CancelRun(number, to_data(error)), ())

    def fetch(self, position: int) -> Any:
        """Hands over the value of a fetch."""
        if position not in self._values:
            raise InvalidArgumentError(f"fetch {position} has no value")
        return self._values.pop(position)

    def has(self, position: int) -> bool:
        """Whether a fetch has its value."""
        return position in self._values

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error`."""
        self.step.cancel(error)

    def abandon(self) -> None:
        """Ends a paused partial run."""
        if self._partial is not None and not self.finished:
            self._cancel(self._partial, UnavailableError("the partial run was ended by its client"))

    def statistics(self) -> RunStatistics:
        """State of the run at this moment."""
        return RunStatistics(self.finished, self._seconds)


def _tracing(wants: step_events.Wants) -> int:
    """Returns `RunStep.tracing` for a listener."""
    if wants.wants_summaries:
        return 4
    if wants.wants_causes:
        return 3
    return 1 + wants.wants_sizes if wants.wants_all else 0
