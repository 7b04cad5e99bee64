"""A worker: carries out the instructions of `WorkerState` with the devices of this process.

Masters send messages (`receive`), other workers send tokens (`deliver`). The worker compiles programs, runs its parts
of steps and reports to the masters. It owns the resources of its containers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from headrace import notices
from headrace.dist import messages
from headrace.dist import worker_state as state
from headrace.dist.tracing import Collector
from headrace.dist.worker_programs import WorkerProgram, prepare
from headrace.errors import PermissionDeniedError, UnavailableError, from_data, to_data
from headrace.execute.inspector import OneAtATime
from headrace.file_access import FileAccess, limited
from headrace.resources.shared import SessionResources

if TYPE_CHECKING:
    from headrace.dist.codec import Token
    from headrace.dist.network import Peers, TokenLink
    from headrace.dist.reactor import Reactor
    from headrace.dist.worker_run import WorkerRun
    from headrace.target import LocalTarget

# Sends a message to a master, with values.
Sink: TypeAlias = "Callable[[messages.AnyMessage, Sequence[Any]], object]"


class Worker:
    """Devices and resources of this process as a worker of a cluster. Thread-safe.

    Args:
      task: its task, such as "/job:worker/replica:0/task:1".
      target: the devices and resources.
      reactor: runs the parts of steps.
      peers: the connections to other workers.
      files: the files that the kernels of steps may use, unless their client is in this process.
    """

    def __init__(
        self, task: str, target: LocalTarget, reactor: Reactor, peers: Peers, files: FileAccess | None = None
    ) -> None:
        self._files = FileAccess() if files is None else files
        self._own: set[int] = set()  # masters in this process
        self.task = task
        self.target = target
        self._reactor = reactor
        self._peers = peers
        peers.on_lost = self.lose_peer
        self._state = state.WorkerState()
        self._lock = threading.RLock()
        self._masters: dict[int, Sink] = {}
        self._next_master = 0
        self._programs: dict[tuple[int, int], WorkerProgram] = {}
        self._resources: dict[tuple[int, int], SessionResources] = {}
        self._steps = self._state.steps  # read for each token

    # *** masters ***

    def add_master(self, sink: Sink, is_own: bool = False) -> int:
        """Adds a master.

        Args:
          sink: sends to the master.
          is_own: whether the master is in this process.

        Returns:
          The number of the master on this worker.
        """
        with self._lock:
            self._next_master += 1
            self._masters[self._next_master] = sink
            if is_own:
                self._own.add(self._next_master)
            return self._next_master

    def lose_master(self, master: int, reason: str) -> None:
        """Removes a master, and ends its steps."""
        with self._lock:
            if self._masters.pop(master, None) is not None:
                self._handle(state.MasterLost(master, reason))

    def receive(self, master: int, message: messages.AnyMessage, values: Sequence[Any] = ()) -> None:
        """Handles a message of a master."""
        if isinstance(message, messages.ClearContainers):
            self._clear(master, message)
        elif isinstance(message, messages.Describe):
            self._send(master, messages.Reply(message.call, self.description()))
        elif isinstance(message, messages.Topology):
            self._peers.learn(message.tasks)
        else:
            with self._lock:
                self._handle(state.FromMaster(master, message, values))

    def tick(self, now: float) -> None:
        """Drops tokens of steps that have not begun for a long time."""
        with self._lock:
            self._handle(state.Tick(now))

    def description(self) -> dict[str, Any]:
        """State of the worker as plain data: devices, resources and steps.

        Of an unknown step there are tokens only.
        """
        statistics = self.target.statistics()
        with self._lock:
            steps = sorted(step for step, entry in self._steps.items() if entry.master is not None)
            unknown = len(self._steps) - len(steps)
        return {
            "task": self.task,
            "devices": [[d.name, d.device_type, d.memory_limit_bytes] for d in self.target.devices()],
            "resources": [list(r) for r in statistics.resources],
            "programs": len(self._programs),
            "steps": steps,
            "unknown_steps": unknown,
        }

    def close(self) -> None:
        """Ends all steps and releases the resources."""
        with self._lock:
            for master in list(self._masters):
                self.lose_master(master, "the worker was closed")
        self.target.close()

    # *** tokens ***

    def deliver(self, token: Token) -> None:
        """Hands a token of another worker to its step."""
        entry = self._steps.get(token.step)
        run = None if entry is None else entry.run
        if run is not None:
            try:
                run.deliver(token)
            except Exception as e:
                self._fail(token.step, e)
        else:
            with self._lock:
                self._handle(state.TokenArrived(token))

    def lose_peer(self, link: TokenLink, reason: str) -> None:
        """Fails the steps that send tokens by a connection that has ended."""
        with self._lock:
            for step, entry in list(self._steps.items()):
                if entry.run is not None and any(link is outlet for _, outlet in entry.run.outlets.values()):
                    text = f"the connection from worker {self.task} to worker {link.task} has ended: {reason}"
                    self._fail(step, UnavailableError(f"step {step % messages.MASTERS} failed because {text}"))

    # *** instructions ***

    def _handle(self, event: state.Event) -> None:
        for i in self._state.handle(event):
            if isinstance(i, state.Begin):
                self._begin(i)
            elif isinstance(i, state.Send):
                self._send(i.master, i.message)
            elif isinstance(i, (state.Deliver, state.Feed, state.CarryOut, state.Abort, state.Close)):
                try:
                    self._pass_on(i)
                except Exception as e:  # the next instruction may be for another step
                    self._fail(i.run.number, e)
            elif isinstance(i, state.Prepare):
                self._reactor.submit(lambda i=i: self._prepare(i))  # type: ignore[misc]
            elif isinstance(i, state.Drop):
                self._programs.pop((i.master, i.program), None)
            elif isinstance(i, state.CloseSession):
                self._close_session(i)
            else:
                notices.inform("cluster", [f"{self.task}: {i.text}"])

    def _pass_on(self, i: state.Deliver | state.Feed | state.CarryOut | state.Abort | state.Close) -> None:
        """Carries out an instruction to a run."""
        if isinstance(i, state.Deliver):
            i.run.deliver(i.token)
        elif isinstance(i, state.Feed):
            i.run.feed(i.message.feeds, i.values, i.message.is_fed)
        elif isinstance(i, state.CarryOut):
            i.run.carry_out(i.orders)
        elif isinstance(i, state.Abort):
            i.run.abort(from_data(i.error))
        else:
            i.run.close()

    def _fail(self, step: int, error: Exception) -> None:
        """Reports a failure outside of the parts of a step; the master aborts the step."""
        entry = self._steps.get(step)
        if entry is not None and entry.master is not None:
            self._send(entry.master, messages.Report(step, (messages.PartFailed("", to_data(error)),)))

    def _report(self, master: int, report: messages.Report, values: Sequence[Any]) -> None:
        """Sends a report; a fetch that cannot be sent is a failure of the step."""
        try:
            self._send(master, report, values)
        except Exception as e:
            self._send(master, messages.Report(report.step, (messages.PartFailed("", to_data(e)),)))

    def _send(self, master: int, message: messages.AnyMessage, values: Sequence[Any] = ()) -> None:
        sink = self._masters.get(master)
        if sink is None:
            return
        with contextlib.suppress(UnavailableError):  # the end of its connection is reported by `lose_master`
            sink(message, values)

    def _prepare(self, i: state.Prepare) -> None:
        """Compiles a program; a job of the reactor."""
        self._reactor.busy()
        error: BaseException | None = None
        try:
            program = prepare(i.message, self.target, self._peers.outlet, i.master in self._own)
            self._peers.connect(program.outlets.values())
        except Exception as e:
            error = e
        else:
            self._programs[i.master, i.message.program] = program
        with self._lock:
            self._handle(state.Prepared(i.master, i.message.program, error))

    def _begin(self, i: state.Begin) -> None:
        m = i.message
        program = self._programs[i.master, m.program]
        if not self._peers.are_connected(program.outlets.values()):
            self._reactor.submit(lambda: self._begin_later(i, program))
            return
        self._start(i, program)

    def _begin_later(self, i: state.Begin, program: WorkerProgram) -> None:
        """Begins a step after its connections are restored; a job of the reactor."""
        self._reactor.busy()
        try:
            self._peers.connect(program.outlets.values())
        except UnavailableError as e:
            failed = [messages.PartFailed(part, to_data(e)) for part in program.devices]
            self._send(i.master, messages.Report(i.message.step, tuple(failed)))
            return
        with self._lock:
            self._start(i, program)

    def _start(self, i: state.Begin, program: WorkerProgram) -> None:
        m, master = i.message, i.master
        if m.step not in self._steps:
            return  # it has ended while its connections were made
        is_local = m.is_local and master in self._own
        if program.calls_python and not is_local:
            self._fail(m.step, PermissionDeniedError("the step calls Python functions of another client"))
            return
        events = Collector(m.tracing, m.values_of) if m.tracing or m.values_of else None
        step = self.target.step(resources=self._resources_of(master, m.session), listener=events)
        step.files = None if is_local else self._files
        if m.check:
            from headrace.observe.numerics import (  # needed by steps that are checked only
                NumericsInspector,
                from_number,
            )

            step.inspectors = (OneAtATime(NumericsInspector(from_number(m.check))),)

        def report(r: messages.Report, values: Sequence[Any]) -> None:
            self._report(master, r if events is None else replace(r, trace=tuple(events.take())), values)

        run: WorkerRun | None = None
        try:
            with limited(step.files):  # it makes kernels
                run = program.start(m.step, step, self.target, self._reactor, report)
            run.feed(m.feeds, i.values, m.is_fed)
        except Exception as e:
            (step if run is None else run).close()
            self._fail(m.step, e)
            return
        self._handle(state.Begun(m.step, run))
        run.start()

    # *** resources ***

    def _resources_of(self, master: int, session: int) -> SessionResources:
        found = self._resources.get((master, session))
        if found is None:
            found = self._resources[master, session] = SessionResources(self.target.resources)
        return found

    def _clear(self, master: int, m: messages.ClearContainers) -> None:
        try:
            self.target.reset(m.names)
        except Exception as e:  # of the release of a resource
            self._send(master, messages.Failure(m.call, to_data(e)))
        else:
            self._send(master, messages.Reply(m.call))

    def _close_session(self, i: state.CloseSession) -> None:
        for key in [k for k in self._resources if k[0] == i.master and i.session in (None, k[1])]:
            self._resources.pop(key).close()
