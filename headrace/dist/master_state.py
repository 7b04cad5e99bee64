"""State of a master: workers, sessions of clients, programs, and steps under way.

`MasterState.handle` maps an event to instructions. It has no threads, sockets or clocks: `dist.server` collects the
events and carries the instructions out. So tests can permute, lose and double messages.

**Programs.** A client sends a pruned step once. The master compiles it (`Compile`) to a part for each device, and gives
it a number. Equal steps of several clients are one program. A worker gets its parts of a program before its first step,
once; the master notes this with the worker, so a worker that was replaced gets them again.

**Steps.** A step is one message to each worker, `StartStep`, and one answer, `Report`. A `StepState` for each step
decides about its beginning, end, failure and deadlock, from the events in the reports. If a step fails on one worker,
all workers abort it, and the client gets the first error when they have confirmed it, or after
`thresholds.ABORT_PATIENCE`.

**Partial runs.** A partial run may end while no call of its client waits. It is kept until the client has got all
fetches or the error, or cancels the run, or closes the session.

**Lost workers.** If the connection of a worker ends, every step with a part on it fails with `UnavailableError`, which
names the worker. Later steps fail at once until the worker, or its replacement, is connected.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from headrace import thresholds
from headrace.dist import messages
from headrace.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
    from_data,
    to_data,
)
from headrace.execute import step_state
from headrace.execute.step_state import StepState
from headrace.ir.device import DeviceSpec
from headrace.records import record

# *** events *** (nothing changes one; `frozen` would take four times as long to make it, several times in each step)


@record(slots=True)
class FromClient:
    """A message of a client, with the values that follow it."""

    client: int
    message: messages.AnyMessage
    values: Sequence[Any] = ()


@record(slots=True)
class FromWorker:
    """A message of a worker, with the values that follow it."""

    worker: str
    message: messages.AnyMessage
    values: Sequence[Any] = ()


@record(slots=True)
class WorkerUp:
    """A worker is connected.

    Attributes:
      worker: its task.
      incarnation: the number that it drew when it started.
      devices: type and memory limit in bytes (0: none) of each device, by its full name.
    """

    worker: str
    incarnation: int
    devices: Mapping[str, tuple[str, int]]


@record(slots=True)
class WorkerLost:
    """The connection of a worker has ended, for a reason."""

    worker: str
    reason: str


@record(slots=True)
class ClientUp:
    """A client is connected; a local one is in the process of the master."""

    client: int
    is_local: bool


@record(slots=True)
class ClientLost:
    """The connection of a client has ended."""

    client: int


@record(slots=True)
class CompiledParts:
    """Result of a compilation.

    Attributes:
      parts: for each device its encoded part, or its encoded share.
      feeds: for each feed the devices that read it.
      fetches: for each fetch the device that has it.
      edges: the keys of all edges between devices, in the order of their numbers.
      is_divided: whether `parts` has shares, each of which becomes one function, and not parts.
      is_interpreted: whether the workers run each node by itself.
      is_partial: whether the feeds arrive in several messages.
      may_be_apart: see `messages.PrepareProgram`.
      homes: name of operation with state → its device.
      data: facts about the program for the client, as plain data.
    """

    parts: Mapping[str, bytes]
    feeds: Sequence[Sequence[str]] = ()
    fetches: Sequence[str] = ()
    edges: Sequence[str] = ()
    is_divided: bool = False
    is_interpreted: bool = False
    is_partial: bool = False
    may_be_apart: bool = True
    homes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    data: Any = None


@record(slots=True)
class Compiled:
    """A program has been compiled, or the attempt has failed with `error`."""

    program: int
    result: CompiledParts | None
    error: BaseException | None = None


@record(slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = "FromClient | FromWorker | WorkerUp | WorkerLost | ClientUp | ClientLost | Compiled | Tick"

# *** instructions ***


@record(slots=True)
class ToClient:
    """Send a message to a client, with values."""

    client: int
    message: messages.AnyMessage
    values: Sequence[Any] = ()


@record(slots=True)
class ToWorker:
    """Send a message to a worker, with values."""

    worker: str
    message: messages.AnyMessage
    values: Sequence[Any] = ()


@record(slots=True)
class Compile:
    """Compile an encoded step, and report `Compiled`.

    Attributes:
      program: the number of the program.
      session: the number of the session.
      step: the encoded step (`dist.step_codec`).
    """

    program: int
    session: int
    step: bytes


@record(slots=True)
class MakeSession:
    """Make the environment of a session, for its later compilations.

    Attributes:
      session: the number of the session.
      message: the options.
      devices: the full names of its devices, the default device first.
      workers: the tasks that it uses.
      is_local: whether its client is in the process of the master.
    """

    session: int
    message: messages.OpenSession
    devices: Sequence[str]
    workers: Sequence[str]
    is_local: bool = False


@record(slots=True)
class Claim:
    """Fix the homes of stateful operations in the environment of a session.

    The session shares the program of another session.

    Attributes:
      session: the number of the session.
      homes: name of operation → device.
    """

    session: int
    homes: Mapping[str, str]


@record(slots=True)
class Alarm:
    """Report `Tick` after some seconds."""

    seconds: float


@record(slots=True)
class ForgetSession:
    """Forget the environment of a session."""

    session: int


Instruction: TypeAlias = "ToClient | ToWorker | Compile | MakeSession | Claim | ForgetSession | Alarm"

LONGEST_TIMEOUT: Final = 1e9  # seconds; a longer one is none

# *** parts of the state ***


@record(slots=True)
class Worker:
    """A worker.

    Attributes:
      name: its task.
      is_up: whether it is connected.
      incarnation: the number that it drew when it started.
      devices: type and memory limit of each device, by its full name.
      programs: numbers of the programs that it has.
      ended: steps that are over, which it was not told.
      reason: the reason why it is not connected.
    """

    name: str
    is_up: bool = False
    incarnation: int = 0
    devices: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    programs: set[int] = dataclasses.field(default_factory=set)
    ended: list[int] = dataclasses.field(default_factory=list)
    reason: str = "it has not been reached yet"


@record(slots=True)
class Session:
    """A session of a client.

    Attributes:
      number: its number.
      client: its client.
      workers: the tasks that it uses.
      options: its options, equal for sessions that can share programs.
      is_local: whether its client is in the process of the master.
      programs: number of a program → how often the client got it, less how often the client has released it.
      homes: name of operation with state → its device.
      used: worker → its incarnation at the last step there, unless the session has seen an error of its loss since.
    """

    number: int
    client: int
    workers: tuple[str, ...]
    options: tuple[Any, ...]
    is_local: bool = False
    programs: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    homes: dict[str, str] = dataclasses.field(default_factory=dict)
    used: dict[str, int] = dataclasses.field(default_factory=dict)


@record(slots=True)
class Program:
    """A compiled step, or one that is being compiled.

    Attributes:
      number: its number.
      key: equal for equal steps of sessions with equal options.
      session: the session for which it was compiled.
      step: the encoded step, while it is being compiled; then empty.
      size: bytes of the step, or of the parts.
      waiting: (client, call, session) of the calls that wait for the compilation.
      result: the parts; None before.
      shares: for each worker its devices.
      readers: for each feed the workers that read it.
      users: sessions that use it.
    """

    number: int
    key: Any
    session: int
    step: bytes
    size: int = 0
    waiting: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    result: CompiledParts | None = None
    shares: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    readers: Sequence[Sequence[str]] = ()
    users: set[int] = dataclasses.field(default_factory=set)


@record(slots=True)
class Run:
    """A step under way.

    Attributes:
      step: its number.
      program: its program.
      session: its session.
      client: its client.
      call: the number of the client's call that waits for it; None: none waits (a paused partial run).
      state: the decisions about the step.
      deadline: the time at which it fails, or None.
      has_alarm: whether there is an alarm for the deadline.
      values: position of a fetch → its value, as far as they are known.
      dead: position of a fetch → the error that says why it has no value, as data.
      until: positions that a call of a partial run waits for; None: all, at the end.
      handed: positions that the client has got.
      fed: positions of the feeds that a partial run has got.
      is_partial: whether the feeds arrive in several messages.
      is_fed: whether all feeds have been supplied.
      begun: how often it has begun or been resumed.
      waits: device → lines about the nodes that wait there.
      since: the time of its beginning.
      tracing: as in `messages.RunStep`.
      check: as in `messages.RunStep`.
      values_of: as in `messages.RunStep`.
      trace: the events of its workers so far.
      error: the error of the step, once it has failed.
      failed_at: the time of the first `Tick` after the failure.
    """

    step: int
    program: Program
    session: int
    client: int
    call: int | None
    state: StepState
    deadline: float | None = None
    has_alarm: bool = False
    values: dict[int, Any] = dataclasses.field(default_factory=dict)
    dead: dict[int, Any] = dataclasses.field(default_factory=dict)
    until: Sequence[int] | None = None
    handed: set[int] = dataclasses.field(default_factory=set)
    fed: set[int] = dataclasses.field(default_factory=set)
    is_partial: bool = False
    is_fed: bool = True
    begun: int = 0
    waits: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    since: float = 0.0
    tracing: int = 0
    check: int = 0
    values_of: tuple[str, ...] = ()
    trace: list[list[Any]] = dataclasses.field(default_factory=list)
    error: BaseException | None = None
    failed_at: float | None = None

    @property
    def number(self) -> int:
        """The number of the step among those of its master, for messages."""
        return self.step % messages.MASTERS


class MasterState:
    """State of a master. The module describes it.

    Args:
      tasks: the tasks of the cluster. The devices of the first one are the default devices.
      first_step: the number before that of the first step. Steps of different masters have different numbers.

    Attributes:
      workers: the workers, by their tasks.
      runs: the steps under way, by number.
    """

    def __init__(self, tasks: Sequence[str], first_step: int = 0) -> None:
        self.workers = {name: Worker(name) for name in tasks}
        self.runs: dict[int, Run] = {}
        self._over: dict[int, Run] = {}  # partial runs that are over, and have more for their clients
        self._sessions: dict[int, Session] = {}
        self._programs: dict[int, Program] = {}
        self._by_key: dict[Any, int] = {}
        self._local: set[int] = set()  # clients in the process of the master
        self._program_bytes = 0  # of the steps and parts of all programs
        self._opening: list[tuple[int, messages.OpenSession, float | None]] = []
        self._clearing: dict[int, tuple[int, messages.ClearContainers, set[str]]] = {}
        self._steps = first_step
        self._numbers = 0  # of sessions, programs and calls to workers
        self._now = 0.0
        self._out: list[Instruction] = []

    def handle(self, event: Event, now: float | None = None) -> list[Instruction]:
        """Returns the instructions that follow from `event`, in their order.

        Args:
          event: the event.
          now: the time in seconds since an arbitrary moment; None: that of the last event.
        """
        if now is not None:
            self._now = now
        if isinstance(event, FromWorker):
            self._from_worker(event)
        elif isinstance(event, FromClient):
            self._from_client(event)
        elif isinstance(event, Compiled):
            self._compiled(event)
        elif isinstance(event, WorkerUp):
            self._worker_up(event)
        elif isinstance(event, WorkerLost):
            self._worker_lost(event)
        elif isinstance(event, ClientLost):
            self._client_lost(event.client)
        elif isinstance(event, ClientUp):
            if event.is_local:
                self._local.add(event.client)
        else:
            self._tick(self._now)
        out, self._out = self._out, []
        return out

    # *** clients ***

    def _from_client(self, event: FromClient) -> None:
        m, client = event.message, event.client
        if isinstance(m, messages.RunStep):
            self._guarded(client, m.call, self._run, client, m, event.values)
        elif isinstance(m, messages.CompileStep):
            self._guarded(client, m.call, self._compile, client, m)
        elif isinstance(m, messages.OpenSession):
            self._guarded(client, m.call, self._open, client, m)
        elif isinstance(m, messages.ResumeRun):
            self._guarded(client, m.call, self._resume, client, m, event.values)
        elif isinstance(m, messages.CancelRun):
            self._cancel(client, m)
        elif isinstance(m, messages.CloseSession):
            session = self._sessions.get(m.session)
            if session is not None and session.client == client:
                self._close_session(session, CancelledError("the session was closed while this step ran"))
            self._out.append(ToClient(client, messages.Reply(m.call)))
        elif isinstance(m, messages.ClearContainers):
            self._clear(client, m)
        elif isinstance(m, messages.Describe):
            self._out.append(ToClient(client, messages.Reply(m.call, self.description())))

    def _guarded(self, client: int, call: int, handler: Any, *args: Any) -> None:
        """Calls a handler; its error is the answer to the client's call."""
        try:
            handler(*args)
        except (AbortedError, UnavailableError, NotFoundError, InvalidArgumentError, ResourceExhaustedError) as e:
            self._fail_call(client, call, e)

    def _fail_call(self, client: int, call: int, error: BaseException) -> None:
        self._out.append(ToClient(client, messages.Failure(call, to_data(error))))

    def _session_of(self, client: int, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None or session.client != client:
            raise NotFoundError(f"this master has no session {number} of this client; it was closed")
        return session

    def _open(self, client: int, m: messages.OpenSession) -> None:
        _check_bound(len(self._sessions) + len(self._opening), thresholds.CLUSTER_SESSIONS, "sessions of this master")
        self._opening.append((client, m, None))
        self._open_sessions()

    def _open_sessions(self) -> None:
        """Opens the sessions whose workers are all connected."""
        waiting, self._opening = self._opening, []
        for client, m, since in waiting:
            try:
                names = _matching(self.workers, m.filters)
            except InvalidArgumentError as e:
                self._fail_call(client, m.call, e)
                continue
            if not all(self.workers[name].is_up for name in names):
                self._opening.append((client, m, since))
                continue
            self._numbers += 1
            number = self._numbers
            is_local = client in self._local  # others may not run its programs, which may call Python functions
            options = (m.soft, m.bfloat16, m.recv_scheduling, names, is_local)
            self._sessions[number] = Session(number, client, names, options, is_local)
            devices = {d: info for name in names for d, info in self.workers[name].devices.items()}
            self._out.append(MakeSession(number, m, tuple(devices), names, is_local))
            data = [number, [[d, kind, limit] for d, (kind, limit) in devices.items()]]
            self._out.append(ToClient(client, messages.Reply(m.call, data)))

    def _close_session(self, session: Session, error: BaseException) -> None:
        for run in [r for r in self.runs.values() if r.session == session.number]:
            call, run.call = run.call, None
            if call is not None:
                self._fail_call(run.client, call, run.error or error)
            self._events(run, [step_state.Cancelled(error)])
        self._over = {step: run for step, run in self._over.items() if run.session != session.number}
        for number in session.programs:
            program = self._programs[number]
            for _, call, _ in [w for w in program.waiting if w[2] == session.number]:
                self._fail_call(session.client, call, error)
            program.waiting = [w for w in program.waiting if w[2] != session.number]
            program.users.discard(session.number)
            if not program.users:
                self._drop(program)
        for name in session.workers:
            if self.workers[name].is_up:
                self._out.append(ToWorker(name, messages.DropSession(session.number)))
        del self._sessions[session.number]
        self._out.append(ForgetSession(session.number))

    def _drop(self, program: Program) -> None:
        del self._programs[program.number]
        self._program_bytes -= program.size
        if self._by_key.get(program.key) == program.number:
            del self._by_key[program.key]
        for worker in self.workers.values():
            if program.number in worker.programs:
                worker.programs.discard(program.number)
                if worker.is_up:
                    self._out.append(ToWorker(worker.name, messages.DropProgram(program.number)))

    def _client_lost(self, client: int) -> None:
        self._local.discard(client)
        self._opening = [w for w in self._opening if w[0] != client]
        for session in [s for s in self._sessions.values() if s.client == client]:
            self._close_session(session, CancelledError("the client of this step is lost"))
        self._clearing = {call: c for call, c in self._clearing.items() if c[0] != client}

    def _clear(self, client: int, m: messages.ClearContainers) -> None:
        self._numbers += 1
        names = {w.name for w in self.workers.values() if w.is_up}
        if not names:
            self._out.append(ToClient(client, messages.Reply(m.call)))
            return
        self._clearing[self._numbers] = (client, m, names)
        request = messages.ClearContainers(self._numbers, m.names)
        self._out += [ToWorker(name, request) for name in sorted(names)]

    def _cleared(self, worker: str, call: int, error: Any = None) -> None:
        """Notes that a worker has cleared containers, failed (error as data), or is lost."""
        if call not in self._clearing:
            return
        client, m, names = self._clearing[call]
        names.discard(worker)
        if error is not None or not names:
            del self._clearing[call]
            if error is None:
                self._out.append(ToClient(client, messages.Reply(m.call)))
            else:
                self._fail_call(client, m.call, _error_of(error))

    # *** programs ***

    def _compile(self, client: int, m: messages.CompileStep) -> None:
        session = self._session_of(client, m.session)
        for number in m.released:
            self._release(session, number)
        _check_bound(len(session.programs), thresholds.SESSION_PROGRAMS, "programs of this session")
        self._demand(client, m.call, session, m.step)

    def _release(self, session: Session, number: int) -> None:
        """Notes that the client of a session does not use a program any more."""
        program = self._programs.get(number)
        if program is None or program.result is None or number not in session.programs:
            return
        self._forget_program(session, program)
        if not program.users:
            self._drop(program)

    def _forget_program(self, session: Session, program: Program) -> None:
        session.programs[program.number] -= 1
        if not session.programs[program.number]:
            del session.programs[program.number]
            program.users.discard(session.number)

    def _demand(self, client: int, call: int, session: Session, step: bytes) -> None:
        """Finds or compiles the program of a step, and announces it to the client."""
        key = (hashlib.sha256(step).digest(), session.options)
        number = self._by_key.get(key)
        program = None if number is None else self._programs.get(number)
        if program is not None and not _agree(program, session):
            program = None
        if program is None:
            size = self._program_bytes + len(step)
            _check_bound(size, thresholds.CLUSTER_PROGRAM_BYTES, "bytes of programs of this master")
            self._numbers += 1
            program = Program(self._numbers, key, session.number, step, len(step))
            self._program_bytes += program.size
            self._programs[program.number] = program
            self._by_key[key] = program.number
            self._out.append(Compile(program.number, session.number, step))
        program.users.add(session.number)
        session.programs[program.number] += 1
        if program.result is None:
            program.waiting.append((client, call, session.number))
        else:
            self._announce(program, client, call, session)

    def _announce(self, program: Program, client: int, call: int, session: Session) -> None:
        assert program.result is not None
        session.homes.update(program.result.homes)
        if program.session != session.number and program.result.homes:
            self._out.append(Claim(session.number, program.result.homes))
        data = [program.number, program.result.data]
        self._out.append(ToClient(client, messages.Reply(call, data)))

    def _compiled(self, event: Compiled) -> None:
        program = self._programs.get(event.program)
        if program is None or program.result is not None:
            return  # its sessions were closed in the meantime, or it is a duplicate
        if event.result is None and program.session not in self._sessions:
            program.session = min(program.users)  # the environment of the first session is gone
            self._out.append(Compile(program.number, program.session, program.step))
            return
        waiting, program.waiting = program.waiting, []
        step, program.step = program.step, b""
        if event.result is None:
            assert event.error is not None
            for client, call, number in waiting:
                self._fail_call(client, call, event.error)
                self._forget_program(self._sessions[number], program)
            self._drop(program)
            return
        program.result = event.result
        self._program_bytes -= program.size
        program.size = sum(map(len, event.result.parts.values()))
        self._program_bytes += program.size
        for device in event.result.parts:
            program.shares.setdefault(task_of(device), []).append(device)
        program.readers = [tuple(dict.fromkeys(map(task_of, devices))) for devices in event.result.feeds]
        for client, call, number in waiting:
            session = self._sessions[number]
            if number == program.session or _agree(program, session):
                self._announce(program, client, call, session)
            else:
                self._forget_program(session, program)
                self._guarded(client, call, self._demand, client, call, session, step)
        if not program.users:
            self._drop(program)

    # *** steps ***

    def _run(self, client: int, m: messages.RunStep, values: Sequence[Any]) -> None:
        session = self._session_of(client, m.session)
        program = self._programs.get(m.program)
        if program is None or program.result is None or m.program not in session.programs:
            raise NotFoundError(f"session {m.session} has no program {m.program}")
        if not m.is_partial and len(values) != len(program.result.feeds):
            raise InvalidArgumentError(f"the step has {len(program.result.feeds)} feeds, got {len(values)} values")
        for name in program.shares:
            self._check_up(self.workers[name], session)
        self._check_states(session, program.shares)
        self._check_steps(session)
        self._steps += 1
        state = StepState(self._steps % messages.MASTERS, tuple(program.result.parts))
        run = Run(self._steps, program, session.number, client, m.call, state)
        run.is_partial, run.tracing, run.check, run.since = m.is_partial, m.tracing, m.check, self._now
        run.values_of = m.values_of
        if 0 < m.timeout < LONGEST_TIMEOUT:
            run.deadline = self._now + m.timeout
            self._set_alarm(run)
        self.runs[run.step] = run
        if m.is_partial:
            run.is_fed = False
            run.call = None
            self._out.append(ToClient(client, messages.Reply(m.call, run.step)))
        else:
            self._begin(run, range(len(values)), values)

    def _set_alarm(self, run: Run) -> None:
        """Sets an alarm for a deadline that is near.

        Later ones are left to the ticks, because an alarm cannot be cancelled and most steps end long before.
        """
        if run.deadline is not None and not run.has_alarm and run.deadline - self._now < 4 * thresholds.MASTER_POLL:
            run.has_alarm = True
            self._out.append(Alarm(max(run.deadline - self._now, 0.0)))

    def _check_steps(self, session: Session) -> None:
        under_way = len(self.runs) + len(self._over)
        _check_bound(under_way, thresholds.CLUSTER_STEPS, "steps of this master under way")
        if under_way >= thresholds.SESSION_STEPS:
            of = sum(r.session == session.number for runs in (self.runs, self._over) for r in runs.values())
            _check_bound(of, thresholds.SESSION_STEPS, "steps of this session under way")

    def _check_states(self, session: Session, names: Iterable[str]) -> None:
        """Raises `AbortedError`, once, if a restart of a worker lost states of a session."""
        lost = []
        for name in names:
            incarnation = self.workers[name].incarnation
            if session.used.get(name, incarnation) != incarnation and name in map(task_of, session.homes.values()):
                lost.append(name)
            session.used[name] = incarnation
        if lost:
            raise AbortedError(
                f"{', '.join(lost)} was restarted, and the variables, queues and tables there are lost. Restore them "
                "from a checkpoint, or initialize them; the session can go on then"
            )

    def _check_up(self, worker: Worker, session: Session) -> None:
        if not worker.is_up:
            session.used.pop(worker.name, None)
            raise UnavailableError(f"worker {worker.name} is not connected: {worker.reason}")

    def _begin(self, run: Run, positions: Sequence[int], values: Sequence[Any]) -> None:
        """Starts or resumes the parts of a step, with feeds."""
        run.begun += 1
        fed: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in run.program.shares}
        for position, value in zip(positions, values, strict=True):
            for name in run.program.readers[position]:
                fed[name][0].append(position)
                fed[name][1].append(value)
        for name, (where, what) in fed.items():
            worker = self.workers[name]
            if run.begun == 1:
                self._prepare(worker, run.program)
                ended, worker.ended = tuple(worker.ended), []
                start = messages.StartStep(
                    run.step, run.program.number, run.session, tuple(where), run.is_fed, ended, run.tracing,
                    self._sessions[run.session].is_local, run.check, run.values_of,
                )  # fmt: skip
                self._out.append(ToWorker(name, start, what))
            else:
                self._out.append(ToWorker(name, messages.ResumeStep(run.step, tuple(where), run.is_fed), what))
        self._events(run, [step_state.Begin(run.begun, run.is_fed)])
        if not run.program.shares and run.step in self.runs:  # a step without operations
            self._end(run, None)

    def _prepare(self, worker: Worker, program: Program) -> None:
        """Sends a program to a worker that does not have it."""
        result = program.result
        assert result is not None
        if program.number in worker.programs:
            return
        worker.programs.add(program.number)
        devices = program.shares[worker.name]
        message = messages.PrepareProgram(
            program.number, tuple(messages.PartData(d, result.parts[d]) for d in devices), tuple(result.edges),
            result.is_divided, result.is_interpreted, result.is_partial, result.may_be_apart,
        )  # fmt: skip
        self._out.append(ToWorker(worker.name, message))

    def _resume(self, client: int, m: messages.ResumeRun, values: Sequence[Any]) -> None:
        run = self.runs.get(m.run) or self._over.get(m.run)
        if run is None or run.client != client or not run.is_partial or run.session not in self._sessions:
            raise NotFoundError(f"this master has no partial run {m.run} of this client")
        if run.call is not None:
            raise InvalidArgumentError(f"a call of the partial run {m.run} is in progress")
        if len(values) != len(m.feeds):
            raise InvalidArgumentError(f"{len(m.feeds)} feeds are named, and {len(values)} values follow")
        if not run.begun and run.program.number not in self._programs:
            raise NotFoundError(f"the program of the partial run {m.run} was released before it began")
        result = run.program.result
        assert result is not None
        _check_positions("feeds", m.feeds, len(result.feeds), run.fed)
        _check_positions("fetches", m.until or (), len(result.fetches))
        run.call, run.until = m.call, m.until
        if run.step in self._over:
            self._answer_over(run)
        elif run.error is None:  # else the call is answered when all workers have confirmed the failure
            run.is_fed = m.is_fed
            run.fed.update(m.feeds)
            self._begin(run, m.feeds, values)
            self._answer_partial(run)

    def _answer_partial(self, run: Run) -> None:
        """Answers a call of a partial run whose fetches are known."""
        if run.call is None or run.until is None or run.step not in self.runs:
            return
        if all(p in run.values or p in run.dead for p in run.until):
            self._events(run, [step_state.Satisfied(run.begun)])

    def _cancel(self, client: int, m: messages.CancelRun) -> None:
        for run in [*self.runs.values(), *self._over.values()]:
            if run.client == client and m.call in (run.call, run.step if run.is_partial else None):
                self._events(run, [step_state.Cancelled(_error_of(m.error))])
                self._over.pop(run.step, None)

    def _events(self, run: Run, events: Sequence[step_state.Event]) -> None:
        """Reports events to the state of a step, and carries its instructions out."""
        orders: dict[str, list[messages.Order]] = {}
        for event in events:
            for i in run.state.handle(event):
                if isinstance(i, step_state.End):
                    self._end(run, i.error)
                elif isinstance(i, step_state.Pause):
                    self._pause(run)
                elif isinstance(i, step_state.Abort):
                    self._abort(run, i)
                elif isinstance(i, step_state.Start):
                    if i.order > 1:  # the first one is `StartStep`
                        orders.setdefault(task_of(i.part), []).append(messages.Order("start", i.part, i.order))
                elif isinstance(i, step_state.Release):
                    orders.setdefault(task_of(i.part), []).append(messages.Order("release", i.part, i.order))
                else:
                    orders.setdefault(task_of(i.part), []).append(messages.Order("probe", i.part, i.wave))
        for name, of in orders.items():
            if run.step in self.runs:
                self._out.append(ToWorker(name, messages.Orders(run.step, tuple(of))))

    def _abort(self, run: Run, abort: step_state.Abort) -> None:
        if run.error is None:
            run.error = abort.error
            for name in run.program.shares:
                if self.workers[name].is_up:
                    self._out.append(ToWorker(name, messages.AbortStep(run.step, to_data(abort.error))))

    def _pause(self, run: Run) -> None:
        if run.call is not None:
            self._hand_over(run, run.call, run.until or ())

    def _hand_over(self, run: Run, call: int, positions: Sequence[int]) -> None:
        """Answers a call with fetches, or with the error of a dead one."""
        run.call = None
        run.handed.update(p for p in positions if p in run.values or p in run.dead)  # a paused run may lack others
        for p in positions:
            if p in run.dead:
                self._fail_call(run.client, call, _error_of(run.dead[p]))
                return
        known = [p for p in positions if p in run.values]
        values = [run.values.pop(p) for p in known]
        assert run.program.result is not None
        if len(run.handed) == len(run.program.result.fetches):
            self._over.pop(run.step, None)
        is_done = run.step not in self.runs and run.step not in self._over
        trace, run.trace = tuple(run.trace), []
        self._out.append(ToClient(run.client, messages.Reply(call, is_done, tuple(known), trace), values))

    def _end(self, run: Run, error: BaseException | None) -> None:
        if self.runs.pop(run.step, None) is None:
            return
        for name in run.program.shares:
            if self.workers[name].is_up:
                self.workers[name].ended.append(run.step)
        run.error = error
        if run.is_partial and run.session in self._sessions:
            self._over[run.step] = run
        if run.call is not None:
            self._answer_over(run)

    def _answer_over(self, run: Run) -> None:
        """Answers a call of a run that is over."""
        assert run.program.result is not None
        assert run.call is not None
        count = len(run.program.result.fetches)
        if (
            not run.is_partial and run.error is None and all(map(run.values.__contains__, range(count)))
        ):  # nearly always
            reply = messages.Reply(run.call, True, tuple(range(count)), tuple(run.trace))
            self._out.append(ToClient(run.client, reply, [run.values[p] for p in range(count)]))
            return
        positions = range(count) if run.until is None else run.until
        missing = [p for p in positions if p not in run.values and p not in run.dead and p not in run.handed]
        if missing and run.error is None:
            run.error = InternalError(f"step {run.number} is over, and its fetches {missing} have not arrived")
        if run.error is None:
            self._hand_over(run, run.call, [p for p in positions if p not in run.handed])
        else:
            self._over.pop(run.step, None)
            self._fail_call(run.client, run.call, run.error)

    # *** workers ***

    def _from_worker(self, event: FromWorker) -> None:
        m = event.message
        if isinstance(m, messages.Report):
            self._report(event.worker, m, event.values)
        elif isinstance(m, messages.Reply):
            self._cleared(event.worker, m.call)
        elif isinstance(m, messages.Failure):
            self._cleared(event.worker, m.call, m.error)
        elif isinstance(m, messages.ProgramPrepared) and m.error is not None and event.worker in self.workers:
            self.workers[event.worker].programs.discard(m.program)
            self._out.append(ToWorker(event.worker, messages.DropProgram(m.program)))

    def _report(self, worker: str, m: messages.Report, values: Sequence[Any]) -> None:
        run = self.runs.get(m.step)
        if run is None or worker not in run.program.shares:
            return  # it is over
        dead = m.dead or (None,) * len(m.fetches)
        left = iter(values)
        for position, cause in zip(m.fetches, dead, strict=False):
            if cause is not None:
                run.dead[position] = cause
            elif (value := next(left, left)) is not left:
                run.values[position] = value
        if run.tracing or run.values_of:
            run.trace += m.trace[: thresholds.STEP_TRACE_EVENTS - len(run.trace)]
        parts = run.program.shares[worker]
        events: list[step_state.Event] = []
        for e in m.events:
            if e.part not in parts and not isinstance(e, messages.PartFailed):
                continue
            if isinstance(e, messages.PartFinished):
                events.append(step_state.Finished(e.part, e.epoch, e.wave, e.sent, e.arrived))
                run.waits.pop(e.part, None)
            elif isinstance(e, messages.PartIdle):
                run.waits[e.part] = e.waits
                events.append(
                    step_state.Idle(
                        e.part, e.epoch, e.order, e.wave, e.sent, e.arrived, e.releasable, e.is_waiting, e.waits
                    )
                )
            else:
                error = _error_of(e.error)
                events += [step_state.Failed(part, error) for part in (parts if e.part not in parts else [e.part])]
        self._events(run, events)
        self._answer_partial(run)

    def _worker_up(self, event: WorkerUp) -> None:
        worker = self.workers.setdefault(event.worker, Worker(event.worker))
        if worker.is_up:
            self._worker_lost(WorkerLost(event.worker, "it was replaced"))
        worker.is_up, worker.reason = True, ""
        worker.incarnation, worker.devices = event.incarnation, event.devices
        worker.programs.clear()
        worker.ended.clear()
        self._open_sessions()

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self.workers.setdefault(event.worker, Worker(event.worker))
        if not worker.is_up:
            worker.reason = event.reason
            return
        worker.is_up, worker.reason = False, event.reason
        worker.programs.clear()
        worker.ended.clear()
        for call in list(self._clearing):
            self._cleared(event.worker, call)
        for run in list(self.runs.values()):
            parts = run.program.shares.get(event.worker)
            if parts is not None:
                error = UnavailableError(
                    f"step {run.number} failed because worker {event.worker} was lost: {event.reason}"
                    f"{self._progress(run)}"
                )
                if run.session in self._sessions:
                    self._sessions[run.session].used.pop(event.worker, None)
                # no worker knows of a step that has not begun, so none would confirm its end
                lost = (
                    [step_state.Failed(part, error) for part in parts] if run.begun else [step_state.Cancelled(error)]
                )
                self._events(run, lost)

    def _progress(self, run: Run) -> str:
        """Clause about the last known progress of a step."""
        every = [part for parts in run.program.shares.values() for part in parts]
        done = len(every) - len(run.state.open_parts)
        waits = step_state.waiting_lines(run.waits)
        return f". It had run for {self._now - run.since:.1f} s, and {done} of {len(every)} devices had finished{waits}"

    # *** time ***

    def _tick(self, now: float) -> None:
        self._now = now
        for run in list(self.runs.values()):
            if run.deadline is not None and now >= run.deadline and run.error is None:
                waits = step_state.waiting_lines(run.waits)
                late = DeadlineExceededError(f"Timed out: step {run.number} ran past its time limit{waits}")
                self._events(run, [step_state.Cancelled(late)])
            elif run.error is None:
                self._set_alarm(run)
            if run.error is not None and run.step in self.runs:
                run.failed_at = now if run.failed_at is None else run.failed_at
                if now - run.failed_at >= thresholds.ABORT_PATIENCE:
                    self._end(run, run.state.error or run.error)
        self._opening = [(c, m, now if since is None else since) for c, m, since in self._opening]
        for client, m, since in list(self._opening):
            if since is not None and now - since >= thresholds.CLUSTER_PATIENCE:
                self._opening.remove((client, m, since))
                needed = [self.workers[name] for name in _matching(self.workers, m.filters)]
                missing = [f"{w.name} ({w.reason})" for w in needed if not w.is_up]
                self._fail_call(
                    client, m.call, UnavailableError(f"these workers are not connected: {', '.join(missing)}")
                )
        for worker in self.workers.values():
            if worker.ended and worker.is_up:
                ended, worker.ended = tuple(worker.ended), []
                self._out.append(ToWorker(worker.name, messages.EndSteps(ended)))

    # *** description ***

    def description(self) -> dict[str, Any]:
        """State of the cluster as plain data: workers, sessions and steps with their waits."""
        return {
            "workers": [
                {
                    "name": w.name,
                    "is_up": w.is_up,
                    "incarnation": w.incarnation,
                    "devices": list(w.devices),
                    "programs": len(w.programs),
                    "reason": w.reason,
                }
                for w in self.workers.values()
            ],
            "sessions": len(self._sessions),
            "programs": len(self._programs),
            "steps": [
                {
                    "step": r.number,
                    "session": r.session,
                    "workers": list(r.program.shares),
                    "open": list(r.state.open_parts),
                    "waits": {part: list(lines) for part, lines in r.waits.items()},
                    "error": "" if r.error is None else str(r.error),
                }
                for r in self.runs.values()
            ],
        }


def task_of(device: str) -> str:
    """Returns the task in the full name of a device.

    Example:
      >>> task_of("/job:worker/replica:0/task:1/device:CPU:0")
      '/job:worker/replica:0/task:1'
    """
    return device.rpartition("/device:")[0]


def _matching(workers: Mapping[str, Worker], filters: Sequence[str]) -> tuple[str, ...]:
    """Returns the tasks that match one of the filters; all without filters."""
    if not filters:
        return tuple(workers)
    try:
        wanted = [DeviceSpec.from_string(f) for f in filters]
    except ValueError as e:
        raise InvalidArgumentError(f"device_filters: {e}") from e
    found = tuple(name for name in workers if any(_is_of(DeviceSpec.from_string(name), w) for w in wanted))
    if not found:
        raise InvalidArgumentError(f"device_filters={list(filters)}: no task matches; the tasks are {list(workers)}")
    return found


def _is_of(task: DeviceSpec, wanted: DeviceSpec) -> bool:
    """Whether a task may have a device that a request describes."""
    return dataclasses.replace(wanted, type=None, index=None).matches(task)


def _error_of(data: Any) -> BaseException:
    """Returns the error that another process sent, or the error of data that are none."""
    try:
        return from_data(data)
    except InvalidArgumentError as e:
        return e


def _check_bound(count: int, bound: int, what: str) -> None:
    """Raises `ResourceExhaustedError` if there are too many objects of clients for another one."""
    if count >= bound:
        raise ResourceExhaustedError(f"there are {count} {what}, and at most {bound} are allowed")


def _check_positions(kind: str, positions: Sequence[int], count: int, taken: Container[int] = ()) -> None:
    """Raises `InvalidArgumentError` unless a client may name these feeds or fetches."""
    wrong = [p for p in positions if not 0 <= p < count or p in taken]
    if wrong or len(set(positions)) < len(positions):
        raise InvalidArgumentError(
            f"the partial run has {count} {kind}, of which each can be named once; got {list(positions)[:20]}"
        )


def _agree(program: Program, session: Session) -> bool:
    """Whether the homes of a compiled program fit those of a session."""
    if program.result is None:
        return True
    return all(session.homes.get(op, device) == device for op, device in program.result.homes.items())
