"""`MasterState` with hand-made programs, and with simulated workers over connections that break.

`Shell` plays all clients and workers: it notes each message, and checks that each call has one answer.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from headrace import thresholds
from headrace.dist import messages, worker_state
from headrace.dist.codec import Token
from headrace.dist.master_state import (
    Alarm,
    Claim,
    ClientLost,
    ClientUp,
    Compile,
    Compiled,
    CompiledParts,
    ForgetSession,
    FromClient,
    FromWorker,
    MakeSession,
    MasterState,
    Tick,
    ToClient,
    ToWorker,
    WorkerLost,
    WorkerUp,
    task_of,
)
from headrace.dist.worker_state import WorkerState
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
from tests import tiers

A, B, C = TASKS = tuple(f"/job:worker/replica:0/task:{i}" for i in range(3))


ENOUGH = to_data(CancelledError("enough"))


def cpu(task: str) -> str:
    return f"{task}/device:CPU:0"


def parts(*tasks: str, feeds: Sequence[str] = (), fetches: Sequence[str] = (), **others: Any) -> CompiledParts:
    """A program with a part on some tasks; the tasks of its feeds and fetches."""
    return CompiledParts(
        {cpu(t): t.encode() for t in tasks}, [[cpu(t)] for t in feeds], [cpu(t) for t in fetches], **others
    )


ONE_EACH = parts(A, B, feeds=(A, B), fetches=(B, A))


class Shell:
    """Clients, workers and the clock of a master.

    Attributes:
      answers: (client, call) → the answer and the values that follow it.
      inbox: for each worker the messages that it has got, and their values.
      compiling: the programs that are being compiled.
    """

    def __init__(self, tasks: Sequence[str] = TASKS[:2], up: bool = True) -> None:
        self.state = MasterState(tasks, 1000)
        self.now = 0.0
        self.calls = 0
        self.asked: set[tuple[int, int]] = set()
        self.answers: dict[tuple[int, int], tuple[Any, Sequence[Any]]] = {}
        self.inbox: dict[str, list[tuple[Any, Sequence[Any]]]] = {t: [] for t in TASKS}
        self.compiling: list[Compile] = []
        self.others: list[Any] = []
        self.sessions: set[int] = set()
        self.lost: set[int] = set()
        for task in tasks if up else ():
            self.up(task)

    def handle(self, event: Any) -> None:
        for i in self.state.handle(event, self.now):
            self.carry_out(i)

    def carry_out(self, i: Any) -> None:
        if isinstance(i, ToClient):
            messages.decode(messages.encode(i.message))
            if i.client not in self.lost:
                key = i.client, i.message.call  # type: ignore[union-attr]
                assert key in self.asked, f"an answer to no call: {i}"
                assert key not in self.answers, f"a second answer: {i}"
                self.answers[key] = i.message, i.values
        elif isinstance(i, ToWorker):
            messages.decode(messages.encode(i.message))
            if self.state.workers[i.worker].is_up:
                self.inbox[i.worker].append((i.message, i.values))
        elif isinstance(i, Compile):
            assert i.session in self.sessions
            self.compiling.append(i)
        elif isinstance(i, MakeSession):
            self.sessions.add(i.session)
        elif isinstance(i, ForgetSession):
            self.sessions.remove(i.session)
        else:
            assert isinstance(i, (Alarm, Claim))
            self.others.append(i)

    # *** clients ***

    def send(self, make: Any, *args: Any, client: int = 1, values: Sequence[Any] = (), **more: Any) -> tuple[int, int]:
        """Lets a client call; returns the key of the answer."""
        self.calls += 1
        key = client, self.calls
        self.asked.add(key)
        self.handle(FromClient(client, make(self.calls, *args, **more), values))
        return key

    def answer(self, key: tuple[int, int]) -> Any:
        """The data of a reply, or the error of a failure."""
        m, _ = self.answers[key]
        return m.data if isinstance(m, messages.Reply) else from_data(m.error)

    def fetched(self, key: tuple[int, int]) -> dict[int, Any]:
        m, values = self.answers[key]
        assert isinstance(m, messages.Reply), from_data(m.error)
        return dict(zip(m.fetches, values, strict=True))

    def open(self, client: int = 1, **options: Any) -> int:
        number: int = self.answer(self.send(messages.OpenSession, client=client, **options))[0]
        return number

    def compile(self, session: int, step: bytes = b"step", client: int = 1, result: Any = ONE_EACH) -> int:
        """Lets a client compile a step; returns the number of the program."""
        key = self.send(messages.CompileStep, session, step, client=client)
        self.compiled(result)
        number: int = self.answer(key)[0]
        return number

    def compiled(self, result: Any = ONE_EACH) -> None:
        """Ends all compilations."""
        while self.compiling:
            i = self.compiling.pop(0)
            is_error = isinstance(result, Exception)
            self.handle(Compiled(i.program, None if is_error else result, result if is_error else None))

    def run(self, session: int, program: int, values: Sequence[Any] = ("a", "b"), client: int = 1, **more: Any) -> Any:
        return self.send(messages.RunStep, session, program, client=client, values=values, **more)

    def cancel(self, number: int, client: int = 1, error: Any = ENOUGH) -> None:
        self.handle(FromClient(client, messages.CancelRun(number, error)))

    @property
    def step(self) -> int:
        """The number of the last step."""
        return max(self.state.runs)

    # *** workers ***

    def up(self, task: str) -> None:
        self.handle(WorkerUp(task, 1, {cpu(task): ("CPU", 0)}))

    def lose(self, task: str, reason: str = "it burned down") -> None:
        self.handle(WorkerLost(task, reason))
        self.inbox[task].clear()

    def take(self, task: str, kind: type = object) -> list[Any]:
        """Returns new messages of a kind to a worker, and drops the others."""
        got, self.inbox[task] = self.inbox[task], []
        return [m for m, _ in got if isinstance(m, kind)]

    def kinds(self, task: str) -> list[str]:
        return [type(m).__name__ for m in self.take(task)]

    def report(self, task: str, *events: Any, step: int | None = None, **fetches: Any) -> None:
        values = fetches.pop("values", ())
        m = messages.Report(self.step if step is None else step, events, **fetches)
        self.handle(FromWorker(task, messages.decode(messages.encode(m)), values))

    def finish(self, task: str, step: int | None = None, **fetches: Any) -> None:
        self.report(task, messages.PartFinished(cpu(task), 1, 0, 0, 0), step=step, **fetches)

    def fail(self, task: str, error: Exception | None = None, step: int | None = None) -> None:
        e = AbortedError("aborted") if error is None else error
        self.report(task, messages.PartFailed(cpu(task), to_data(e)), step=step)

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.handle(Tick())

    def check_empty(self) -> None:
        """Nothing is left but workers."""
        s = self.state
        assert self.sizes == (0,) * 8, self.sizes
        assert not self.sessions
        assert {key for key in self.asked if key[0] not in self.lost} <= self.answers.keys()
        assert not s._by_key
        for worker in s.workers.values():
            assert (worker.programs, worker.ended) == (set(), [])

    @property
    def sizes(self) -> tuple[int, ...]:
        s = self.state
        waiting = sum(len(p.waiting) for p in s._programs.values())
        tables = (s.runs, s._over, s._sessions, s._programs, s._by_key, s._opening, s._clearing)
        return (*(len(t) for t in tables), waiting)


def idle(task: str, epoch: int = 1, **more: Any) -> messages.PartIdle:
    made = messages.PartIdle(cpu(task), epoch, 1, 0, 0, 0, 0, False, (f"  'take' on {task[-1]}",))
    return messages.PartIdle(**{f: more.get(f, getattr(made, f)) for f in made.__struct_fields__})


def ready() -> tuple[Shell, int, int]:
    """A session with a program, which both workers have got."""
    shell = Shell()
    session = shell.open()
    return shell, session, shell.compile(session)


def close(shell: Shell, *sessions: int, client: int = 1) -> None:
    """Closes sessions, and lets the workers confirm everything."""
    for session in sessions:
        shell.send(messages.CloseSession, session, client=client)
    shell.tick()
    shell.tick(thresholds.ABORT_PATIENCE)
    shell.tick()
    shell.check_empty()


# *** a step ***


def test_a_step_is_one_message_to_each_worker_and_one_answer() -> None:
    shell, session, program = ready()
    key = shell.run(session, program, ["a", "b"], timeout=5.0)
    for task, value, position in ((A, "a", 0), (B, "b", 1)):
        (prepare, _), (start, values) = shell.inbox[task]
        assert prepare == messages.PrepareProgram(program, (messages.PartData(cpu(task), task.encode()),))
        assert (start.step, start.program, start.session, start.feeds, values) == (
            1001,
            program,
            session,
            (position,),
            [value],
        )
        shell.inbox[task].clear()
    shell.finish(B, fetches=(0,), values=[10])
    assert key not in shell.answers
    shell.finish(A, fetches=(1,), values=[11])
    assert shell.answer(key) is True
    assert shell.fetched(key) == {0: 10, 1: 11}
    shell.run(session, program)
    (start,) = shell.take(A)
    assert start.ended == (1001,), "the next step tells the workers that the last one is over"
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), values=[0])
    shell.tick()
    assert shell.kinds(A) == ["EndSteps"]
    assert shell.kinds(B) == ["StartStep", "EndSteps"]
    close(shell, session)


def test_a_feed_goes_to_each_worker_that_reads_it() -> None:
    shell = Shell()
    session = shell.open()
    wide = CompiledParts({cpu(A): b"", cpu(B): b""}, [[cpu(A), cpu(B)], [], [cpu(B)]])
    shell.run(session, shell.compile(session, result=wide), [1, 2, 3])
    starts = {task: shell.inbox[task][1] for task in (A, B)}
    assert [(m.feeds, values) for m, values in starts.values()] == [((0,), [1]), ((0, 2), [1, 3])]


def test_a_step_without_operations_ends_at_once() -> None:
    shell = Shell()
    session = shell.open()
    program = shell.compile(session, result=CompiledParts({}))
    assert shell.answer(shell.run(session, program, [])) is True
    key = shell.run(session, program, [], is_partial=True)
    assert shell.answer(shell.send(messages.ResumeRun, shell.answer(key), (), None, True)) is True
    close(shell, session)


def test_a_dead_fetch_fails_the_call_and_names_its_cause() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), dead=(to_data(InvalidArgumentError("it is dead")),))
    assert str(shell.answer(key)) == "it is dead"
    close(shell, session)


def test_fetches_that_do_not_arrive_are_an_error() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.finish(A, fetches=(1,), values=[])  # a value is missing
    shell.finish(B, fetches=(0, 7), values=[5, 6])  # one is too many
    assert type(shell.answer(key)) is InternalError
    assert "fetches [1] have not arrived" in str(shell.answer(key))
    close(shell, session)


# *** programs ***


def test_sessions_of_two_clients_share_programs() -> None:
    shell = Shell()
    sessions = {client: shell.open(client) for client in (1, 2)}
    keys = [shell.send(messages.CompileStep, sessions[c], b"step", client=c) for c in (1, 2)]
    assert len(shell.compiling) == 1
    shell.compiled()
    program, again = (shell.answer(key)[0] for key in keys)
    assert program == again
    third = shell.open(1)
    assert shell.compile(third) == program, "no second compilation"
    other = shell.open(2, soft=False)
    assert shell.compile(other, client=2) != program, "another placement"
    for client in (1, 2):
        shell.run(sessions[client], program, client=client)
        starts = shell.take(A, messages.StartStep)
        assert [m.session for m in starts] == [sessions[client]]
    shell.send(messages.CloseSession, sessions[1])
    assert "DropProgram" not in shell.kinds(A), "another session uses it"
    shell.send(messages.CloseSession, third)
    shell.send(messages.CloseSession, sessions[2], client=2)
    assert shell.take(A, messages.DropProgram) == [messages.DropProgram(program)]
    close(shell, other, client=2)


def test_a_worker_gets_a_program_once_and_again_after_it_was_replaced() -> None:
    shell, session, program = ready()
    for _ in range(3):
        shell.run(session, program)
        shell.finish(A, fetches=(1,), values=[1])
        shell.finish(B, fetches=(0,), values=[0])
    assert shell.kinds(A) == ["PrepareProgram"] + ["StartStep"] * 3
    shell.up(A)  # a new connection, without a loss before
    shell.run(session, program)
    assert shell.kinds(A) == ["PrepareProgram", "StartStep"]
    assert shell.kinds(B)[-1] == "StartStep"
    shell.lose(B)
    shell.up(B)
    shell.run(session, program)
    assert shell.kinds(B) == ["PrepareProgram", "StartStep"]
    close(shell, session)


def test_a_program_that_a_worker_cannot_prepare_is_sent_again() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    error = to_data(InvalidArgumentError("no such device"))
    shell.handle(FromWorker(A, messages.ProgramPrepared(program, error)))
    shell.fail(A, InvalidArgumentError("no such device"))
    shell.fail(B)
    assert type(shell.answer(key)) is InvalidArgumentError
    assert shell.kinds(A) == ["PrepareProgram", "StartStep", "DropProgram", "AbortStep"]
    shell.run(session, program)
    assert shell.kinds(A) == ["PrepareProgram", "StartStep"]
    close(shell, session)


def test_a_failed_compilation_fails_all_calls_that_wait_for_it() -> None:
    shell = Shell()
    sessions = [shell.open(c) for c in (1, 2)]
    keys = [shell.send(messages.CompileStep, s, b"bad", client=c) for c, s in zip((1, 2), sessions, strict=True)]
    shell.compiled(InvalidArgumentError("a wrong graph"))
    assert [str(shell.answer(key)) for key in keys] == ["a wrong graph"] * 2
    assert shell.sizes[3:] == (0, 0, 0, 0, 0)
    assert shell.compile(sessions[0], b"bad"), "it is compiled again"
    shell.send(messages.CloseSession, sessions[1], client=2)
    close(shell, sessions[0])


def test_a_compilation_outlives_the_session_that_asked_for_it_first() -> None:
    shell = Shell()
    first, second = shell.open(1), shell.open(2)
    early = shell.send(messages.CompileStep, first, b"step")
    late = shell.send(messages.CompileStep, second, b"step", client=2)
    (i,) = shell.compiling
    shell.compiling.clear()
    shell.send(messages.CloseSession, first)
    assert type(shell.answer(early)) is CancelledError
    shell.handle(Compiled(i.program, None, UnavailableError("the session was closed")))
    assert [c.session for c in shell.compiling] == [second]
    shell.compiled()
    assert shell.answer(late)[0] == i.program
    shell.handle(Compiled(i.program, ONE_EACH))  # a duplicate
    shell.run(second, i.program, client=2)
    (prepare,) = shell.take(A, messages.PrepareProgram)
    assert len(prepare.parts) == 1
    close(shell, second, client=2)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_compilation_for_no_session_is_dropped(is_lost: bool) -> None:
    shell = Shell()
    session = shell.open()
    shell.send(messages.CompileStep, session, b"step")
    if is_lost:
        shell.lost.add(1)
        shell.handle(ClientLost(1))
    else:
        shell.send(messages.CloseSession, session)
    shell.compiled()
    shell.check_empty()


def test_a_session_that_shares_a_program_learns_the_homes_of_its_state() -> None:
    shell = Shell()
    first, second = shell.open(1), shell.open(2)
    with_state = dataclasses.replace(ONE_EACH, homes={"v": cpu(B)})
    program = shell.compile(first, result=with_state)
    assert shell.others == []
    assert shell.compile(second, client=2) == program
    assert shell.others == [Claim(second, {"v": cpu(B)})]


def test_sessions_with_other_homes_do_not_share_a_program() -> None:
    shell = Shell()
    first, second = shell.open(1), shell.open(2)
    shell.compile(first, b"init", result=dataclasses.replace(ONE_EACH, homes={"v": cpu(A)}))
    shell.compile(second, b"other", 2, dataclasses.replace(ONE_EACH, homes={"v": cpu(B)}))
    keys = [shell.send(messages.CompileStep, s, b"read", client=c) for c, s in ((1, first), (2, second))]
    (i,) = shell.compiling
    shell.compiling.clear()
    shell.handle(Compiled(i.program, dataclasses.replace(ONE_EACH, homes={"v": cpu(A)})))
    (again,) = shell.compiling
    assert again.session == second
    shell.compiled(dataclasses.replace(ONE_EACH, homes={"v": cpu(B)}))
    assert shell.answer(keys[0])[0] != shell.answer(keys[1])[0]
    shell.send(messages.CloseSession, first)
    close(shell, second, client=2)


def test_a_program_that_no_session_uses_any_more_is_dropped() -> None:
    shell = Shell()
    first, second = shell.open(1), shell.open(2)
    program = shell.compile(first)
    assert shell.compile(first) == shell.compile(second, client=2) == program
    key = shell.run(first, program)
    shell.take(A)
    for session, client in ((first, 1), (first, 1), (second, 2)):
        assert type(shell.answer(shell.run(session, program, ["a"], client=client))) is InvalidArgumentError
        released = (program, 10**6)
        shell.send(messages.CompileStep, session, b"step" if client == 0 else b"other", released, client=client)
        shell.compiled()
    assert shell.take(A, messages.DropProgram) == [messages.DropProgram(program)]
    assert type(shell.answer(shell.run(first, program))) is NotFoundError
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), values=[0])
    assert shell.fetched(key) == {0: 0, 1: 1}, "the step has begun before"
    assert shell.compile(first) != program
    shell.send(messages.CloseSession, second, client=2)
    close(shell, first)


def test_a_partial_run_cannot_begin_after_its_program_was_released() -> None:
    shell, session, program = ready()
    run = partial(shell, session, program)
    shell.send(messages.CompileStep, session, b"other", (program,))
    assert type(shell.answer(resume(shell, run, [0]))) is NotFoundError
    assert shell.kinds(A) == []
    shell.compiled()
    close(shell, session)


def test_clients_of_other_processes_do_not_share_programs_with_local_ones() -> None:
    shell = Shell()
    shell.handle(ClientUp(1, True))
    shell.handle(ClientUp(2, False))
    sessions = shell.open(1), shell.open(2)
    programs = [shell.compile(s, client=c) for c, s in zip((1, 2), sessions, strict=True)]
    assert programs[0] != programs[1]
    for client, session, program in zip((1, 2), sessions, programs, strict=True):
        shell.run(session, program, client=client)
        assert [m.is_local for m in shell.take(A, messages.StartStep)] == [client == 1]
    shell.send(messages.CloseSession, sessions[0])
    close(shell, sessions[1], client=2)


def test_the_objects_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in (("SESSIONS", 2), ("STEPS", 3), ("PROGRAM_BYTES", 100)):
        monkeypatch.setattr(thresholds, f"CLUSTER_{name}", bound)
    monkeypatch.setattr(thresholds, "SESSION_PROGRAMS", 2)
    monkeypatch.setattr(thresholds, "SESSION_STEPS", 2)
    shell = Shell()
    first, second = shell.open(1), shell.open(2)
    keys = [shell.send(messages.OpenSession)]
    program = shell.compile(first)
    keys.append(shell.send(messages.CompileStep, first, b"x" * 200))
    shell.compile(first, b"2")
    keys.append(shell.send(messages.CompileStep, first, b"3"))
    shell.compile(second, client=2)
    for _ in range(2):
        shell.run(first, program)
    keys.append(shell.run(first, program))
    shell.run(second, program, client=2)
    keys.append(shell.run(second, program, client=2))
    assert {type(shell.answer(key)) for key in keys} == {ResourceExhaustedError}
    shell.send(messages.CloseSession, second, client=2)
    assert shell.open(2), "the bounds are those of objects that are there"
    shell.lost.add(2)
    shell.handle(ClientLost(2))
    close(shell, first)


# *** reports ***


def test_permuted_and_doubled_reports_change_nothing() -> None:
    def finished(task: str, position: int) -> tuple[str, messages.Report, list[Any]]:
        return task, messages.Report(1001, (messages.PartFinished(cpu(task), 3, 1, 2, 2),), (position,)), [position]

    a, b = finished(A, 1), finished(B, 0)
    older: Any = A, messages.Report(1001, (idle(A, 1, sent=2, arrived=1),)), []
    old: Any = A, messages.Report(1001, (idle(A, 2, sent=2, arrived=2),)), []
    for order in itertools.permutations([older, old, old, a, b, b]):
        shell, session, program = ready()
        key = shell.run(session, program)
        for task, report, values in order:
            shell.handle(FromWorker(task, report, values))
        assert shell.fetched(key) == {0: 0, 1: 1}
        close(shell, session)


def test_a_lost_report_is_made_up_for_by_the_next_one() -> None:
    """A part reports again when it is probed."""
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.report(A, idle(A, 1))
    shell.report(B, idle(B, 2))  # the first one is lost
    probes = [shell.take(t, messages.Orders)[0].orders for t in (A, B)]
    assert probes == [(messages.Order("probe", cpu(t), 1),) for t in (A, B)]
    shell.report(A, idle(A, 3, wave=1))
    shell.report(B, idle(B, 3, wave=1))
    assert [shell.kinds(t) for t in (A, B)] == [["AbortStep"]] * 2
    shell.fail(A)
    shell.fail(B)
    assert type(shell.answer(key)) is InternalError
    assert "every device waits for another; it waits for" in str(shell.answer(key))
    close(shell, session)


def test_an_innermost_iteration_is_released_on_its_worker() -> None:
    shell, session, program = ready()
    shell.run(session, program)
    for wave in (0, 1):
        shell.report(A, idle(A, 1 + wave, wave=wave, releasable=2))
        shell.report(B, idle(B, 1 + wave, wave=wave))
    assert [m.orders[0] for m in shell.take(A, messages.Orders)][1:] == [messages.Order("release", cpu(A), 2)]
    assert len(shell.take(B, messages.Orders)) == 1
    close(shell, session)


def test_reports_of_foreign_parts_and_unknown_steps_are_ignored() -> None:
    shell = Shell(TASKS)
    session = shell.open()
    program = shell.compile(session)
    key = shell.run(session, program)
    shell.finish(C, fetches=(0,), values=["wrong"])
    shell.report(A, messages.PartFinished(cpu(B), 1, 0, 0, 0))
    shell.report(A, messages.PartFinished(cpu(A), 1, 0, 0, 0), step=1)
    for m in (messages.Reply(99), messages.Failure(99, 5), messages.ProgramPrepared(99, 5), messages.Describe(1)):
        shell.handle(FromWorker(C, m))
        shell.handle(FromWorker("/job:unknown/replica:0/task:0", m))
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), values=[0])
    assert shell.fetched(key) == {0: 0, 1: 1}
    close(shell, session)


# *** failures ***


@pytest.mark.parametrize("confirmed", [(A, B), (B, A)])
def test_a_failure_on_one_worker_aborts_all(confirmed: tuple[str, ...]) -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.take(A), shell.take(B)
    shell.report(B, messages.PartFailed(cpu(B), to_data(InvalidArgumentError("a bad index"))))
    for task in (A, B):
        (abort,) = shell.take(task)
        assert type(from_data(abort.error)) is AbortedError
    assert key not in shell.answers
    for task in confirmed:
        shell.fail(task, UnavailableError("a later error"), step=1001)
    assert (type(shell.answer(key)), str(shell.answer(key))) == (InvalidArgumentError, "a bad index")
    close(shell, session)


def test_an_error_passes_the_master_unchanged() -> None:
    shell, session, program = ready()
    error = InternalError("the disk is full", "write")
    error.__cause__ = OSError("no space")
    error.add_note("in iteration 3")
    key = shell.run(session, program)
    shell.fail(A, error)
    shell.fail(B)
    assert shell.answers[key][0].error == to_data(error)
    close(shell, session)


def test_a_failure_outside_of_the_parts_fails_all_parts_of_the_worker() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.report(A, messages.PartFailed("", to_data(InternalError("a token came twice"))))
    shell.finish(B)
    assert str(shell.answer(key)) == "a token came twice"
    close(shell, session)


@pytest.mark.parametrize("data", [5, None, ["ValueError", "x"], ["NoSuchError", "x", None, [], "", None]])
def test_an_error_that_is_none_ends_the_step_all_the_same(data: Any) -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.report(A, messages.PartFailed(cpu(A), data))
    shell.fail(B)
    assert "the data is not that of an error" in str(shell.answer(key))
    key = shell.run(session, program)
    shell.cancel(key[1], error=data)
    shell.fail(A)
    shell.fail(B)
    assert "the data is not that of an error" in str(shell.answer(key))
    if data is not None:
        key = shell.run(session, program)
        shell.finish(A, fetches=(1,), dead=(data,))
        shell.finish(B, fetches=(0,), values=[0])
        assert "the data is not that of an error" in str(shell.answer(key))
    close(shell, session)


def test_a_worker_that_never_confirms_is_not_waited_for() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.fail(A, InvalidArgumentError("a bad index"))
    shell.tick(1.0)
    shell.tick(thresholds.ABORT_PATIENCE - 0.1)
    assert key not in shell.answers
    shell.tick(0.2)
    assert str(shell.answer(key)) == "a bad index"
    assert shell.kinds(B)[-1] == "EndSteps"
    shell.fail(B, step=1001)  # too late
    close(shell, session)


# *** lost workers ***


def test_steps_fail_at_once_while_a_worker_is_not_connected() -> None:
    shell, session, program = ready()
    shell.lose(B)
    error = shell.answer(shell.run(session, program))
    assert (type(error), str(error)) == (UnavailableError, f"worker {B} is not connected: it burned down")
    assert shell.state.runs == {}
    only_a = shell.compile(session, b"a", result=parts(A, fetches=(A,)))
    key = shell.run(session, only_a, [])
    shell.finish(A, fetches=(0,), values=[4])
    assert shell.fetched(key) == {0: 4}
    shell.lose(B, "it is still gone")
    assert "it is still gone" in str(shell.answer(shell.run(session, program)))
    close(shell, session)


def test_a_worker_is_lost_while_a_program_is_compiled() -> None:
    shell = Shell()
    session = shell.open()
    key = shell.send(messages.CompileStep, session, b"step")
    shell.lose(A)
    shell.compiled()
    program = shell.answer(key)[0]
    assert type(shell.answer(shell.run(session, program))) is UnavailableError
    shell.up(A)
    shell.run(session, program)
    assert shell.kinds(A) == ["PrepareProgram", "StartStep"]
    close(shell, session)


def test_a_worker_is_lost_in_a_step() -> None:
    shell = Shell(TASKS)
    session = shell.open()
    program = shell.compile(session)
    key = shell.run(session, program)
    other = shell.run(session, shell.compile(session, b"c", result=parts(C)), [])
    shell.report(A, idle(A), step=1001)
    shell.lose(B)
    assert shell.kinds(A)[-1] == "AbortStep"
    assert key not in shell.answers
    shell.fail(A, step=1001)
    error = shell.answer(key)
    assert type(error) is UnavailableError
    assert f"failed because worker {B} was lost: it burned down" in str(error)
    assert str(error).endswith(f"; it waits for\n{cpu(A)}:\n  'take' on 0")
    shell.finish(C)
    assert shell.answer(other) is True, "the step has no part on the lost worker"
    close(shell, session)


def test_a_worker_is_lost_while_it_aborts() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.fail(A, InvalidArgumentError("a bad index"))
    shell.lose(B)
    assert str(shell.answer(key)) == "a bad index"
    close(shell, session)


def test_all_workers_are_lost_at_once() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    shell.lose(A)
    shell.lose(B)
    assert f"worker {A} was lost" in str(shell.answer(key))
    close(shell, session)


def test_reports_of_a_replaced_worker_do_not_end_a_later_step() -> None:
    shell, session, program = ready()
    first = shell.run(session, program)
    shell.up(A)
    shell.fail(B, step=1001)
    assert "it was replaced" in str(shell.answer(first))
    key = shell.run(session, program)
    shell.finish(A, step=1001)
    assert key not in shell.answers
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), values=[0])
    assert shell.fetched(key) == {0: 0, 1: 1}
    close(shell, session)


# *** time, cancellation ***


def test_a_deadline() -> None:
    shell, session, program = ready()
    key = shell.run(session, program, timeout=0.5)
    shell.report(B, idle(B, is_waiting=True))
    shell.tick(0.4)
    assert shell.kinds(A) == ["PrepareProgram", "StartStep"]
    shell.tick(0.2)
    assert shell.kinds(A) == ["AbortStep"]
    shell.tick(0.1)
    assert shell.kinds(A) == [], "once"
    shell.fail(A)
    shell.fail(B)
    error = shell.answer(key)
    assert type(error) is DeadlineExceededError
    assert "ran past its time limit; it waits for\n" in str(error)
    close(shell, session)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_time_limit_that_is_none(timeout: float) -> None:
    shell, session, program = ready()
    key = shell.run(session, program, timeout=timeout)
    assert shell.others == []
    shell.tick(1e8)
    assert key not in shell.answers
    close(shell, session)


def test_a_call_is_cancelled() -> None:
    shell, session, program = ready()
    key, other = shell.run(session, program), shell.run(session, program)
    shell.cancel(key[1], client=2)
    assert "AbortStep" not in shell.kinds(A), "it is a call of another client"
    shell.cancel(key[1])
    assert [m.step for m in shell.take(A, messages.AbortStep)] == [1001]
    shell.cancel(key[1])
    for task in (A, B):
        shell.fail(task, step=1001)
    assert (type(shell.answer(key)), str(shell.answer(key))) == (CancelledError, "enough")
    shell.cancel(key[1])
    assert other not in shell.answers
    shell.cancel(10**6)
    close(shell, session)


# *** sessions and clients ***


def test_a_session_waits_for_its_workers() -> None:
    shell = Shell(TASKS, up=False)
    both = shell.send(messages.OpenSession)
    some = shell.send(messages.OpenSession, filters=("/job:worker/task:0",))
    shell.up(B)
    shell.up(A)
    assert [d[0] for d in shell.answer(some)[1]] == [cpu(A)]
    shell.tick()
    shell.tick(thresholds.CLUSTER_PATIENCE + 1)
    error = shell.answer(both)
    assert type(error) is UnavailableError
    assert f"these workers are not connected: {C} (it has not been reached yet)" in str(error)
    shell.lose(A)
    other = shell.send(messages.OpenSession, filters=("/job:worker/task:0",))
    shell.tick()
    shell.tick(thresholds.CLUSTER_PATIENCE + 1)
    assert str(shell.answer(other)).count("worker") == 2, "workers that the session does not need are not named"
    close(shell, shell.answer(some)[0])


@pytest.mark.parametrize("filters", [("/job:ps",), ("no device",), ("",) * 2, ("/job:worker/task:x",)])
def test_wrong_filters(filters: tuple[str, ...]) -> None:
    shell = Shell()
    answer = shell.answer(shell.send(messages.OpenSession, filters=filters))
    assert isinstance(answer, InvalidArgumentError) == (filters != ("", ""))


def test_a_closed_session_ends_its_steps_and_programs() -> None:
    shell, session, program = ready()
    other = shell.open(2)
    shell.compile(other, client=2)
    running = shell.run(session, program)
    partial = shell.answer(shell.run(session, program, is_partial=True))
    compiling = shell.send(messages.CompileStep, session, b"more")
    mine = shell.run(other, program, client=2)
    shell.send(messages.CloseSession, session, client=2)
    assert running not in shell.answers, "it is a session of another client"
    shell.take(A)
    shell.send(messages.CloseSession, session)
    assert [type(shell.answer(key)) for key in (running, compiling)] == [CancelledError] * 2
    assert shell.kinds(A) == ["AbortStep", "DropSession"]
    for m in (messages.RunStep, messages.CompileStep):
        error = shell.answer(shell.send(m, session, program if m is messages.RunStep else b""))
        assert type(error) is NotFoundError
    assert type(shell.answer(shell.send(messages.ResumeRun, partial, (), None, True))) is NotFoundError
    for task in (A, B):
        shell.fail(task, step=1001)
    assert mine not in shell.answers
    shell.compiled()
    close(shell, other, client=2)


def test_a_lost_client_ends_its_sessions() -> None:
    shell, session, program = ready()
    shell.run(session, program)
    shell.run(session, program, is_partial=True)
    shell.send(messages.CompileStep, session, b"more")
    shell.send(messages.ClearContainers)
    shell.lose(B)
    shell.send(messages.OpenSession)
    shell.take(A)
    shell.lost.add(1)
    shell.handle(ClientLost(1))
    assert shell.kinds(A) == ["DropProgram", "DropSession"]
    shell.up(B)
    shell.handle(FromWorker(A, messages.Reply(3)))
    shell.compiled()
    shell.fail(A, step=1001)
    shell.tick()
    shell.check_empty()


def test_a_description_of_the_cluster() -> None:
    shell, session, program = ready()
    shell.run(session, program)
    shell.report(A, idle(A))
    found = shell.answer(shell.send(messages.Describe))
    assert (found["sessions"], found["programs"], len(found["steps"])) == (1, 1, 1)
    assert found["steps"][0]["waits"] == {cpu(A): ["  'take' on 0"]}
    close(shell, session)


# *** partial runs ***


def partial(shell: Shell, session: int, program: int, **more: Any) -> int:
    number: int = shell.answer(shell.run(session, program, (), is_partial=True, **more))
    return number


def resume(
    shell: Shell, run: int, feeds: Sequence[int] = (), until: Any = (), is_fed: bool = False, **more: Any
) -> Any:
    return shell.send(messages.ResumeRun, run, tuple(feeds), until, is_fed, values=[f"f{p}" for p in feeds], **more)


def pause(shell: Shell, *tasks: str, epoch: int = 1, order: int = 1, step: int | None = None) -> None:
    """Lets all parts report twice that they are idle."""
    for wave in (0, 1):
        for task in tasks:
            shell.report(task, idle(task, epoch + wave, wave=wave, order=order), step=step)


def test_a_partial_run() -> None:
    shell, session, program = ready()
    run = partial(shell, session, program)
    assert [shell.kinds(t) for t in (A, B)] == [[], []]
    key = resume(shell, run, [1], until=(0,))
    (_, _), (start, values) = shell.inbox[B]
    assert (start.feeds, start.is_fed, values) == ((1,), False, ["f1"])
    shell.report(B, fetches=(0,), values=["v0"])
    assert key not in shell.answers, "the parts may still run"
    shell.report(A, idle(A))
    shell.report(B, idle(B))
    assert shell.fetched(key) == {0: "v0"}
    assert shell.answer(key) is False
    shell.take(A), shell.take(B)
    key = resume(shell, run, [0], until=None, is_fed=True)
    assert [shell.kinds(t) for t in (A, B)] == [["ResumeStep", "Orders"]] * 2
    shell.finish(A, fetches=(1,), values=["v1"])
    shell.finish(B)
    assert shell.fetched(key) == {1: "v1"}
    assert shell.answer(key) is True
    close(shell, session)


def test_a_partial_run_pauses_without_its_fetches_if_feeds_are_missing() -> None:
    shell, session, program = ready()
    run = partial(shell, session, program)
    key = resume(shell, run, until=(0, 1))
    pause(shell, A, B)
    assert shell.fetched(key) == {}
    key = resume(shell, run, [0, 1], until=(0,), is_fed=True)
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), values=[0])
    assert shell.fetched(key) == {0: 0}
    assert shell.answer(key) is False, "there is another fetch"
    assert shell.sizes[:2] == (0, 1)
    key = resume(shell, run, until=(1,), is_fed=True)
    assert (shell.fetched(key), shell.answer(key)) == ({1: 1}, True)
    assert type(shell.answer(resume(shell, run))) is NotFoundError
    close(shell, session)


def test_a_partial_run_that_ends_while_it_is_paused_keeps_its_fetches() -> None:
    """Pausing a run does not stop parts that a queue or a late token wakes."""
    shell, session, program = ready()
    run = partial(shell, session, program)
    key = resume(shell, run, [0, 1], until=(0,), is_fed=True)
    shell.report(B, idle(B, is_waiting=True), fetches=(0,), values=[0])
    shell.report(A, idle(A))
    assert shell.answer(key) is False
    shell.report(A, messages.PartFinished(cpu(A), 2, 0, 0, 0), fetches=(1,), values=[1])
    shell.report(B, messages.PartFinished(cpu(B), 2, 0, 0, 0))
    key = resume(shell, run, until=None, is_fed=True)
    assert (shell.fetched(key), shell.answer(key)) == ({1: 1}, True)
    close(shell, session)


@pytest.mark.parametrize("begun", [False, True])
def test_a_partial_run_that_fails_while_it_is_paused_reports_it_to_the_next_call(begun: bool) -> None:
    shell, session, program = ready()
    run = partial(shell, session, program)
    if begun:
        resume(shell, run)
        pause(shell, A, B)
    shell.lose(A)
    if begun:
        early = resume(shell, run)
        assert early not in shell.answers, "the other worker has not confirmed it"
        shell.fail(B)
    else:
        early = resume(shell, run)
    assert f"worker {A} was lost" in str(shell.answer(early))
    assert type(shell.answer(resume(shell, run))) is NotFoundError
    close(shell, session)


def test_a_paused_run_passes_its_deadline() -> None:
    shell, session, program = ready()
    run = partial(shell, session, program, timeout=1.0)
    resume(shell, run)
    pause(shell, A, B)
    shell.tick(2.0)
    assert shell.kinds(A)[-1] == "EndSteps"
    assert type(shell.answer(resume(shell, run))) is DeadlineExceededError
    close(shell, session)


@pytest.mark.parametrize("begun", [False, True])
def test_a_partial_run_is_cancelled(begun: bool) -> None:
    shell, session, program = ready()
    run = partial(shell, session, program)
    if begun:
        resume(shell, run)
        pause(shell, A, B)
    shell.cancel(run, client=2)
    assert shell.sizes[0] == 1
    shell.cancel(run)
    assert shell.sizes[:2] == (0, 0)
    assert type(shell.answer(resume(shell, run))) is NotFoundError
    close(shell, session)


def test_a_dead_fetch_of_a_partial_run() -> None:
    shell, session, program = ready()
    run = partial(shell, session, program)
    key = resume(shell, run, [0, 1], until=(0,), is_fed=True)
    shell.report(B, idle(B), fetches=(0,), dead=(to_data(InvalidArgumentError("it is dead")),))
    shell.report(A, idle(A))
    assert str(shell.answer(key)) == "it is dead"
    shell.cancel(run)
    close(shell, session)


# *** containers ***


def test_containers_are_cleared_on_all_workers() -> None:
    shell = Shell(TASKS)
    key = shell.send(messages.ClearContainers, ("a",))
    requests = [shell.take(t)[0] for t in TASKS]
    assert [r.names for r in requests] == [("a",)] * 3
    call = requests[0].call
    for task in (A, A, B):
        shell.handle(FromWorker(task, messages.Reply(call)))
    assert key not in shell.answers
    shell.handle(FromWorker(C, messages.Reply(call)))
    shell.handle(FromWorker(C, messages.Reply(call)))
    assert shell.answer(key) is None
    shell.check_empty()


def test_clearing_does_not_wait_for_lost_workers() -> None:
    shell = Shell(TASKS)
    shell.lose(C)
    keys = [shell.send(messages.ClearContainers, client=c) for c in (1, 2)]
    assert shell.kinds(C) == []
    calls = [m.call for m in shell.take(A)]
    for call in calls:
        shell.handle(FromWorker(A, messages.Reply(call)))
    shell.lose(B)
    assert [shell.answer(key) for key in keys] == [None, None]
    shell.lose(A)
    assert shell.answer(shell.send(messages.ClearContainers)) is None
    shell.check_empty()


def test_a_container_that_cannot_be_cleared_is_an_error() -> None:
    shell = Shell()
    key = shell.send(messages.ClearContainers)
    call = shell.take(A)[0].call
    shell.handle(FromWorker(A, messages.Failure(call, to_data(InternalError("it is stuck")))))
    shell.handle(FromWorker(B, messages.Reply(call)))
    assert str(shell.answer(key)) == "it is stuck"
    shell.check_empty()


# *** clients that send nonsense ***


def test_a_client_cannot_reach_objects_of_another_one() -> None:
    shell, session, program = ready()
    mine, stranger = shell.open(2), 2
    key, run = shell.run(session, program), partial(shell, session, program)
    for answer in (
        shell.run(session, program, client=stranger),
        shell.run(mine, program, client=stranger),
        shell.run(mine, 10**6, client=stranger),
        shell.send(messages.CompileStep, session, b"step", client=stranger),
        resume(shell, run, client=stranger),
        resume(shell, 1001, client=stranger),
        resume(shell, 1001),  # not partial
    ):
        assert type(shell.answer(answer)) is NotFoundError
    for number in (key[1], run, 1001, 0):
        shell.cancel(number, client=stranger)
    shell.send(messages.CloseSession, session, client=stranger)
    shell.send(messages.CloseSession, 10**6, client=stranger)
    shell.lost.add(2)
    shell.handle(ClientLost(2))
    for task in (A, B):
        shell.finish(task, 1001, fetches=(1,) if task == A else (0,), values=[5])
    assert shell.fetched(key) == {0: 5, 1: 5}
    assert shell.sizes[0] == 1, "the partial run is still there"
    close(shell, session)


def test_calls_with_wrong_numbers_are_refused() -> None:
    shell, session, program = ready()
    wrong = [
        shell.run(session, program, ["a"]),
        shell.run(session, program, ["a", "b", "c"]),
        shell.run(session, program, []),
    ]
    run = partial(shell, session, program)
    wrong += [resume(shell, run, feeds) for feeds in ([2], [-1], [10**6], [0, 0], [1, 2])]
    wrong += [resume(shell, run, until=until) for until in ((2,), (-1,), (10**6,), (0, 0))]
    wrong.append(shell.send(messages.ResumeRun, run, (0, 1), (), True, values=["a"]))
    assert {type(shell.answer(key)) for key in wrong} == {InvalidArgumentError}
    assert shell.kinds(A) == []
    first = resume(shell, run, [0])
    assert type(shell.answer(resume(shell, run, [1]))) is InvalidArgumentError, "a call is in progress"
    pause(shell, A, B)
    assert shell.answer(first) is False
    assert type(shell.answer(resume(shell, run, [0]))) is InvalidArgumentError, "fed before"
    last = resume(shell, run, [1], until=None, is_fed=True)
    shell.finish(A, fetches=(1,), values=[1])
    shell.finish(B, fetches=(0,), values=[0])
    assert shell.fetched(last) == {0: 0, 1: 1}
    close(shell, session)


def test_messages_that_are_not_for_a_master_have_no_effect() -> None:
    shell, session, program = ready()
    key = shell.run(session, program)
    for m in (
        messages.Reply(1), messages.StartStep(1001, 1, 1), messages.EndSteps((1001,)), messages.DropProgram(program),
        messages.Report(1001, (messages.PartFailed(cpu(A), None),)), messages.AbortStep(1001, None),
        messages.Topology(()), messages.ProgramPrepared(program, 5),
    ):  # fmt: skip
        shell.handle(FromClient(1, m))
        shell.handle(FromClient(2, m))
    assert shell.kinds(A) == ["PrepareProgram", "StartStep"]
    assert key not in shell.answers
    close(shell, session)


# *** long runs ***


def test_a_thousand_steps_leave_nothing_behind() -> None:
    shell = Shell()
    sessions = {c: shell.open(c) for c in (1, 2)}
    programs = {c: shell.compile(s, client=c) for c, s in sessions.items()}
    for k in range(1000):
        client = 1 + k % 2
        key = shell.run(sessions[client], programs[client], client=client, timeout=60.0)
        if k % 10 == 3:
            shell.cancel(key[1], client=client)
        for task, position in ((A, 1), (B, 0)):
            if k % 10 == 3 or (k % 10 == 7 and task == A):
                shell.fail(task)
            else:
                shell.finish(task, shell.step, fetches=(position,), values=[k])
        assert isinstance(shell.answers[key][0], messages.Reply) == (k % 10 not in (3, 7))
        if k % 50 == 0:
            shell.tick(0.01)
    assert shell.sizes == (0, 0, 2, 1, 1, 0, 0, 0)
    ended = [s for m in (m for m, _ in shell.inbox[A]) for s in getattr(m, "ended", getattr(m, "steps", ()))]
    assert len(ended) == len(set(ended)) >= 999
    shell.send(messages.CloseSession, sessions[1])
    close(shell, sessions[2], client=2)


# *** simulated clusters ***


@dataclasses.dataclass(frozen=True)
class Script:
    """Work of a part.

    It waits for its feeds, sends their sum to other parts, and adds the tokens that it gets.

    Attributes:
      feeds: positions of its feeds.
      to: the parts that get a token each.
      expects: number of tokens that it waits for.
      end: "" (it finishes with a fetch), "fails", or "waits" (for a queue, for ever).
    """

    feeds: tuple[int, ...] = ()
    to: tuple[str, ...] = ()
    expects: int = 0
    end: str = ""


CPUS = tuple(cpu(t) for t in TASKS)
X, Y, Z = CPUS
SECOND = f"{A}/device:CPU:1"
PROGRAMS: dict[bytes, dict[str, Script]] = {
    b"one": {X: Script((0, 1))},
    b"pair": {X: Script((0,), (Y,)), Y: Script((1,), (X,), 1)} | {X: Script((0,), (Y,), 1)},
    b"ring": {X: Script((0,), (Y,), 1), Y: Script((), (Z,), 1), Z: Script((1,), (X,), 1)},
    b"star": {X: Script((), (), 4), Y: Script((0,), (X, X)), Z: Script((1,), (X, X))},
    b"local": {X: Script((0,), (SECOND,)), SECOND: Script((1,), (X,), 1)} | {X: Script((0,), (SECOND,), 1)},
    b"fails": {X: Script((0,), (Y,)), Y: Script((), (Z,), 1, "fails"), Z: Script((), (), 1)},
    b"waits": {X: Script((0,), (Y,)), Y: Script((), (Z,), 1, "waits"), Z: Script((), (), 2)},
    b"stuck": {X: Script((0,), (Y,), 1), Y: Script((1,), (), 2)},
    b"empty": {},
}
HEALTHY = (b"one", b"pair", b"ring", b"star", b"local", b"empty")


def compiled_parts(step: bytes) -> CompiledParts:
    program = PROGRAMS[step]
    n = 1 + max((p for s in program.values() for p in s.feeds), default=-1)
    feeds = [[d for d, s in program.items() if p in s.feeds] for p in range(n)]
    return CompiledParts(dict.fromkeys(program, step), feeds, list(program))


def results_of(step: bytes, fed: dict[int, int]) -> dict[int, int]:
    """Values of the fetches whose feeds are known."""
    program = PROGRAMS[step]
    sums = {d: sum(fed[p] for p in s.feeds) for d, s in program.items() if fed.keys() >= set(s.feeds)}
    found = {}
    for position, (device, script) in enumerate(program.items()):
        senders = [d for d, s in program.items() for to in s.to if to == device]
        if not script.end and len(senders) == script.expects and all(d in sums for d in (device, *senders)):
            found[position] = sums[device] + sum(sums[d] for d in senders)
    return found


class SimPart:
    def __init__(self, device: str, script: Script, position: int) -> None:
        self.device, self.script, self.position = device, script, position
        self.fed: dict[int, int] = {}
        self.sum = self.sent = self.arrived = self.epoch = self.order = self.wave = 0
        self.has_sent = self.is_over = False
        self.error: Any = None
        self.reported: Any = None


class SimRun:
    """Parts of a step on a simulated worker."""

    def __init__(self, worker: SimWorker, master: int, m: messages.StartStep, step: bytes) -> None:
        self.number, self.worker, self.master = m.step, worker, master
        program = list(PROGRAMS[step].items())
        self.parts = {d: SimPart(d, s, k) for k, (d, s) in enumerate(program) if task_of(d) == worker.task}
        self.to_others = {to for p in self.parts.values() for to in p.script.to} - self.parts.keys()
        self.devices = [d for d, _ in program]
        self.is_closed = self.is_started = False
        self.known: list[tuple[int, int]] = []

    def feed(self, positions: Sequence[int], values: Sequence[Any]) -> None:
        for position, value in zip(positions, values, strict=True):
            for part in self.parts.values():
                if position in part.script.feeds:
                    assert position not in part.fed, "fed twice"
                    part.fed[position] = value
        self.go()

    def start(self) -> None:
        self.is_started = True
        for part in self.parts.values():
            part.order = 1
        self.go()

    def carry_out(self, orders: Sequence[messages.Order]) -> None:
        for order in orders:
            part = self.parts[order.part]
            if order.kind == "probe":
                part.wave = max(part.wave, order.number)
            else:
                assert order.kind == "start", order
                part.order = max(part.order, order.number)
        self.go()

    def deliver(self, token: Token) -> None:
        part = self.parts[self.devices[token.edge]]
        part.arrived += 1
        part.sum += token.value
        self.go()

    def abort(self, error: BaseException) -> None:
        for part in self.parts.values():
            if not part.is_over:
                part.is_over, part.error = True, error
        self.go()

    def go(self) -> None:
        """Lets all parts go as far as they can, and reports what is new."""
        if self.is_closed or not self.is_started:
            return
        events: list[Any] = []
        for _ in range(2):  # a token from one part to another one
            for part in self.parts.values():
                self.advance(part)
        for part in self.parts.values():
            seen = part.sent, part.arrived, part.order, part.wave, part.is_over
            if seen != part.reported:
                part.reported, part.epoch = seen, part.epoch + 1
                counts = part.wave, part.sent, part.arrived
                if part.error is not None:
                    events.append(messages.PartFailed(part.device, to_data(part.error)))
                elif part.is_over:
                    events.append(messages.PartFinished(part.device, part.epoch, *counts))
                else:
                    is_waiting = part.script.end == "waits" and part.arrived == part.script.expects
                    events.append(
                        messages.PartIdle(part.device, part.epoch, part.order, *counts, 0, is_waiting, ("  'it'",))
                    )
        known, self.known = self.known, []
        if events or known:
            positions, values = zip(*known, strict=True) if known else ((), ())
            m = messages.Report(self.number, tuple(events), positions)
            self.worker.to_master(self.master, m, values)

    def advance(self, part: SimPart) -> None:
        script = part.script
        if part.is_over or part.fed.keys() < set(script.feeds):
            return
        if not part.has_sent:
            part.has_sent = True
            for to in script.to:
                part.sent += 1
                token = Token(self.number, self.devices.index(to), (), 0, sum(part.fed.values()), None)
                if to in self.parts:
                    self.parts[to].arrived += 1
                    self.parts[to].sum += token.value
                else:
                    self.worker.send_token(to, token)
        if part.arrived == script.expects and script.end != "waits":
            part.is_over = True
            if script.end:
                part.error = InvalidArgumentError("a bad index")
            else:
                self.known.append((part.position, part.sum + sum(part.fed.values())))


class SimWorker:
    """A worker: `WorkerState` with simulated programs and runs."""

    def __init__(self, sim: Simulation, task: str) -> None:
        self.sim, self.task = sim, task
        self.state = WorkerState()
        self.programs: dict[tuple[int, int], bytes] = {}
        self.runs: dict[int, SimRun] = {}
        self.link = 0  # the number of the connection to the master; 0: none

    def handle(self, event: Any) -> None:
        for i in self.state.handle(event):
            if isinstance(i, worker_state.Send):
                self.to_master(i.master, i.message)
            elif isinstance(i, worker_state.Prepare):
                self.sim.jobs.append(lambda i=i: self.prepared(i))
            elif isinstance(i, worker_state.Drop):
                self.programs.pop((i.master, i.program), None)
            elif isinstance(i, worker_state.Begin):
                program = self.programs[i.master, i.message.program]
                if self.sim.random.random() < 0.2:  # its connections have to be made first
                    self.sim.jobs.append(lambda i=i, p=program: self.begin(i, p))
                else:
                    self.begin(i, program)
            elif isinstance(i, worker_state.Log):
                assert self.sim.has_faults, i.text
            elif isinstance(i, worker_state.CloseSession):
                pass
            else:
                run = i.run
                assert isinstance(run, SimRun)
                assert not run.is_closed
                if isinstance(i, worker_state.Deliver):
                    run.deliver(i.token)
                elif isinstance(i, worker_state.Feed):
                    run.feed(i.message.feeds, i.values)
                elif isinstance(i, worker_state.CarryOut):
                    run.carry_out(i.orders)
                elif isinstance(i, worker_state.Abort):
                    run.abort(from_data(i.error))
                else:
                    run.is_closed = True
                    self.runs.pop(run.number, None)

    def prepared(self, i: worker_state.Prepare) -> None:
        is_bad = self.sim.has_faults and self.sim.random.random() < 0.05
        if not is_bad:
            self.programs[i.master, i.message.program] = i.message.parts[0].data
        error = UnavailableError("a worker is not reached") if is_bad else None
        self.handle(worker_state.Prepared(i.master, i.message.program, error))

    def begin(self, i: worker_state.Begin, program: bytes) -> None:
        m = i.message
        if m.step in self.state.steps:
            run = SimRun(self, i.master, m, program)
            self.runs[m.step] = run
            run.feed(m.feeds, i.values)
            self.handle(worker_state.Begun(m.step, run))  # type: ignore[arg-type]
            run.start()

    def to_master(self, link: int, m: Any, values: Sequence[Any] = ()) -> None:
        if link == self.link:
            self.sim.post(self.task, "master", (m, values))

    def send_token(self, to: str, token: Token) -> None:
        self.sim.post(self.task, task_of(to), token)

    def lose_tokens(self, to: str) -> None:
        """Reports the loss of the connection to another worker, as `Worker.lose_peer` does it."""
        for run in list(self.runs.values()):
            if any(task_of(d) == to for d in run.to_others):
                e = UnavailableError(f"the connection to worker {to} has ended")
                self.to_master(run.master, messages.Report(run.number, (messages.PartFailed("", to_data(e)),)))


@dataclasses.dataclass
class Call:
    """A call of a client.

    Attributes:
      kind: its message.
      step: the program that it compiles or runs.
      fed: the feeds so far.
      is_sure: whether it must succeed.
      session: the session.
      program: the program that it runs.
      run: the partial run.
      until: positions that it waits for.
      answer: the answer.
    """

    kind: str
    session: int = 0
    program: int = 0
    step: bytes = b""
    fed: dict[int, int] = dataclasses.field(default_factory=dict)
    is_sure: bool = True
    run: PartialCall | None = None
    until: tuple[int, ...] | None = None
    answer: Any = None


@dataclasses.dataclass
class PartialCall:
    number: int
    session: int
    program: int
    step: bytes
    fed: dict[int, int] = dataclasses.field(default_factory=dict)
    fetched: set[int] = dataclasses.field(default_factory=set)
    is_busy: bool = False
    is_over: bool = False
    is_sure: bool = True


class Client:
    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: dict[int, Call] = {}
        self.sessions: dict[int, dict[int, bytes]] = {}  # session → its programs
        self.used: collections.Counter[tuple[int, int]] = collections.Counter()  # how often it got a program
        self.partial: list[PartialCall] = []


class Simulation:
    """A master, workers and clients, and the mail between them.

    Mail on one connection keeps its order, but for reports: they may arrive twice, and overtake reports without
    fetches.

    Args:
      seed: the seed of everything.
      has_faults: whether connections and clients are lost, calls are cancelled, and clients send nonsense.
    """

    def __init__(self, seed: int, has_faults: bool) -> None:
        self.random = random.Random(seed)
        self.has_faults = has_faults
        self.now = 0.0
        self.master = MasterState(TASKS, 1000)
        self.jobs: list[Any] = []
        self.mail: dict[tuple[str, str], list[Any]] = {}
        self.workers = {t: SimWorker(self, t) for t in TASKS}
        self.links = dict.fromkeys(TASKS, 0)  # numbers of the connections that the master uses
        self.numbers = 0
        self.clients: dict[int, Client] = {}
        self.lost: set[int] = set()
        self.outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
        for task in TASKS:
            self.connect(task)
        for _ in range(3):
            self.clients[len(self.clients) + 1] = Client(len(self.clients) + 1)

    # *** mail ***

    def post(self, source: str, to: str, mail: Any) -> None:
        self.mail.setdefault((source, to), []).append(mail)

    def deliver(self, source: str, to: str) -> None:
        box = self.mail[source, to]
        at = 0
        if to == "master":
            while at + 1 < len(box) and self.random.random() < 0.2:
                overtaken, m = box[at][0], box[at + 1][0]
                if not (type(overtaken) is type(m) is messages.Report) or overtaken.fetches:
                    break
                at += 1
        mail = box.pop(at)
        if to == "master":
            m, values = mail
            twice = isinstance(m, messages.Report) and self.random.random() < 0.2
            for _ in range(2 if twice else 1):
                self.to_master(FromWorker(source, messages.decode(messages.encode(m)), values))
        elif source == "master":
            link, m, values = mail
            if link == self.workers[to].link and isinstance(m, messages.ClearContainers):
                self.post(to, "master", (messages.Reply(m.call), ()))
            elif link == self.workers[to].link:
                self.workers[to].handle(worker_state.FromMaster(link, messages.decode(messages.encode(m)), values))
        elif (
            mail.step in (runs := self.workers[to].runs)
            and not runs[mail.step].is_closed
            and runs[mail.step].is_started
        ):
            runs[mail.step].deliver(mail)
        else:
            self.workers[to].handle(worker_state.TokenArrived(mail))

    def to_master(self, event: Any) -> None:
        for i in self.master.handle(event, self.now):
            if isinstance(i, ToWorker):
                if self.links[i.worker]:
                    self.post("master", i.worker, (self.links[i.worker], i.message, i.values))
            elif isinstance(i, ToClient):
                self.answer(i)
            elif isinstance(i, Compile):
                self.jobs.append(lambda i=i: self.compiled(i))

    def compiled(self, i: Compile) -> None:
        if self.has_faults and (self.random.random() < 0.05 or i.session not in self.master._sessions):
            self.to_master(Compiled(i.program, None, UnavailableError("the session was closed")))
        else:
            self.to_master(Compiled(i.program, compiled_parts(i.step)))

    # *** connections ***

    def connect(self, task: str) -> None:
        worker = self.workers[task]
        if worker.link or self.links[task]:
            return
        self.numbers += 1
        worker.link = self.links[task] = self.numbers
        self.to_master(WorkerUp(task, 1, {d: ("CPU", 0) for d in (*CPUS, SECOND) if task_of(d) == task}))

    def cut(self, task: str) -> None:
        """Ends the connections of a worker; both ends notice it later."""
        worker, link = self.workers[task], self.links[task]
        if not link or link != worker.link:
            return
        for other in TASKS:
            for ends in ((task, other), (other, task)):
                self.mail.pop(ends, None)
                if other != task:
                    self.jobs.append(lambda ends=ends: self.workers[ends[0]].lose_tokens(ends[1]))
        for ends in (("master", task), (task, "master")):
            self.mail.pop(ends, None)

        def master_notices() -> None:
            self.mail.pop((task, "master"), None)
            self.links[task] = 0
            self.to_master(WorkerLost(task, "it was cut"))

        def worker_notices() -> None:
            self.mail.pop(("master", task), None)
            worker.link = 0
            worker.handle(worker_state.MasterLost(link, "it was cut"))

        def restarts() -> None:
            worker.link = 0
            self.mail.pop(("master", task), None)
            self.workers[task] = SimWorker(self, task)

        self.jobs += [master_notices, self.random.choice([worker_notices, worker_notices, restarts])]
        self.doubt()

    def doubt(self) -> None:
        """All calls may fail from now on."""
        for client in self.clients.values():
            for call in client.calls.values():
                call.is_sure = False
            for run in client.partial:
                run.is_sure = False

    # *** clients ***

    def call(self, client: Client, make: Any, *args: Any, values: Sequence[Any] = (), call: Call, **more: Any) -> None:
        number = len(client.calls) + 1
        client.calls[number] = call
        everything_is_up = all(self.links.values()) and all(w.link for w in self.workers.values())
        call.is_sure = call.is_sure and everything_is_up and not self.has_faults
        self.to_master(FromClient(client.number, make(number, *args, **more), values))

    def answer(self, i: ToClient) -> None:
        messages.decode(messages.encode(i.message))
        if i.client in self.lost:
            return
        client = self.clients[i.client]
        call = client.calls[i.message.call]  # type: ignore[union-attr]
        assert call.answer is None, f"a second answer to {call}"
        call.answer = i.message
        if isinstance(i.message, messages.Failure):
            error = from_data(i.message.error)
            self.outcomes[call.kind, type(error).__name__] += 1
            self.failed(call, error)
        else:
            assert isinstance(i.message, messages.Reply)
            self.outcomes[call.kind, ""] += 1
            self.succeeded(client, call, i.message, i.values)

    def failed(self, call: Call, error: BaseException) -> None:
        expected = {b"fails": InvalidArgumentError, b"stuck": InternalError, b"waits": CancelledError}.get(call.step)
        is_run = call.kind in ("run", "resume")
        assert not call.is_sure or (is_run and expected is not None and type(error) is expected), (call, error)
        if call.run is not None:
            call.run.is_over, call.run.is_busy = True, False

    def succeeded(self, client: Client, call: Call, m: messages.Reply, values: Sequence[Any]) -> None:
        if call.kind == "open":
            client.sessions[m.data[0]] = {}
        elif call.kind == "compile" and call.session in client.sessions:
            client.sessions[call.session][m.data[0]] = call.step
            client.used[call.session, m.data[0]] += 1
        elif call.kind == "partial" and call.session in client.sessions:
            run = PartialCall(m.data, call.session, call.program, call.step, is_sure=call.is_sure)
            client.partial.append(run)
        elif call.kind in ("run", "resume"):
            got = dict(zip(m.fetches, values, strict=True))
            want = results_of(call.step, call.fed)
            if call.kind == "run":
                assert got == want
                assert call.step in HEALTHY
                return
            assert call.run is not None
            run = call.run
            run.is_busy = False
            if m.data is True:
                run.is_over = True
            assert got.items() <= want.items()
            assert not got.keys() & run.fetched
            wanted = set(want if call.until is None else call.until) - run.fetched
            if not m.data and call.until is not None:
                wanted &= want.keys()  # a pause: others lack feeds
            assert got.keys() == wanted, (call, got, wanted)
            run.fetched |= got.keys()

    # *** the course of events ***

    def act(self, client: Client) -> None:
        """A client does something."""
        rng = self.random
        what = rng.choice(
            ["open", "compile", "compile", "run", "run", "run", "partial", "resume", "resume", "resume", "other"]
        )
        sessions = list(client.sessions)
        ready = [(s, p, step) for s, programs in client.sessions.items() for p, step in programs.items()]
        if what == "open" and len(sessions) < 2:
            self.call(client, messages.OpenSession, call=Call("open"))
        elif what == "compile" and sessions:
            s, step = rng.choice(sessions), rng.choice(list(PROGRAMS))
            released = self.release(client, s)
            self.call(client, messages.CompileStep, s, step, released, call=Call("compile", s, step=step))
        elif what == "run" and ready:
            s, p, step = rng.choice(ready)
            fed = {k: rng.randrange(100) for k in range(len(compiled_parts(step).feeds))}
            timeout = 5.0 if step == b"waits" else 0.0
            call = Call("run", s, p, step, fed, is_sure=step in HEALTHY)
            self.call(client, messages.RunStep, s, p, timeout, values=list(fed.values()), call=call)
        elif what == "partial" and ready:
            s, p, step = rng.choice(ready)
            if step in HEALTHY:
                self.call(client, messages.RunStep, s, p, is_partial=True, call=Call("partial", s, p, step))
        elif what == "resume":
            runs = [r for r in client.partial if not (r.is_busy or r.is_over) and r.session in client.sessions]
            if runs:
                self.resume(client, rng.choice(runs))
        elif self.has_faults:
            self.trouble(client)

    def release(self, client: Client, session: int) -> tuple[int, ...]:
        """Returns programs that the client does not use any more.

        With faults it may use them all the same.
        """
        busy = {call.program for call in client.calls.values() if call.answer is None}
        busy |= {run.program for run in client.partial if not run.is_over}
        out = []
        for program in list(client.sessions[session]):
            if self.random.random() < 0.2 and (program not in busy or (self.has_faults and self.random.random() < 0.3)):
                out.append(program)
                client.used[session, program] -= 1
                if not client.used[session, program]:
                    del client.sessions[session][program]
        return tuple(out)

    def resume(self, client: Client, run: PartialCall) -> None:
        rng = self.random
        of = compiled_parts(run.step)
        new = {p: rng.randrange(100) for p in range(len(of.feeds)) if p not in run.fed and rng.random() < 0.6}
        run.fed |= new
        is_fed = len(run.fed) == len(of.feeds)
        left = [p for p in range(len(of.fetches)) if p not in run.fetched]
        is_last = is_fed and rng.random() < 0.5
        until = None if is_last else tuple(p for p in left if rng.random() < 0.6)
        run.is_busy = True
        call = Call("resume", run.session, run.program, run.step, dict(run.fed), run.is_sure, run, until)
        feeds = tuple(new)
        self.call(client, messages.ResumeRun, run.number, feeds, until, is_fed, values=list(new.values()), call=call)

    def trouble(self, client: Client) -> None:
        rng = self.random
        what = rng.randrange(9)
        sessions = list(client.sessions)
        if what == 0:
            self.cut(rng.choice(TASKS))
        elif what == 1:
            a, b = rng.sample(TASKS, 2)
            self.mail.pop((a, b), None)
            self.workers[a].lose_tokens(b)
            self.doubt()
        elif what == 2 and client.calls:
            self.to_master(FromClient(client.number, messages.CancelRun(rng.choice(list(client.calls)), ENOUGH)))
        elif what == 3 and sessions:
            s = rng.choice(sessions)
            del client.sessions[s]
            self.call(client, messages.CloseSession, s, call=Call("close"))
        elif what == 4 and rng.random() < 0.3:
            self.lose(client)
        elif what == 5:
            self.call(client, messages.ClearContainers, call=Call("clear"))
        elif what == 6:
            self.call(client, messages.Describe, call=Call("describe"))
        elif what == 7:
            number = rng.randrange(2000)
            make, *args = rng.choice(
                [
                    (messages.RunStep, number, number),
                    (messages.CompileStep, number, b"one"),
                    (messages.ResumeRun, number, (number,), (number,), True),
                    (messages.CloseSession, 10**6),
                ]
            )
            self.call(client, make, *args, values=[1], call=Call("nonsense", is_sure=False))
        elif what == 8 and client.partial:
            run = rng.choice(client.partial)
            run.is_over = True
            self.to_master(FromClient(client.number, messages.CancelRun(run.number, ENOUGH)))

    def lose(self, client: Client) -> None:
        self.lost.add(client.number)
        self.to_master(ClientLost(client.number))
        del self.clients[client.number]
        new = max((*self.clients, *self.lost)) + 1
        self.clients[new] = Client(new)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.to_master(Tick())
        for worker in self.workers.values():
            worker.handle(worker_state.Tick(self.now))

    def go_on(self) -> bool:
        """Does something that can happen without the clients."""
        boxes = [ends for ends, mail in self.mail.items() if mail]
        if not boxes and not self.jobs:
            return False
        k = self.random.randrange(len(boxes) + len(self.jobs))
        if k < len(boxes):
            self.deliver(*boxes[k])
        else:
            self.jobs.pop(k - len(boxes))()
        return True

    def run(self, events: int) -> None:
        for _ in range(events):
            if self.random.random() < 0.25:
                self.act(self.random.choice(list(self.clients.values())))
            elif self.random.random() < 0.03:
                self.tick(self.random.random())
            elif not self.go_on():
                for task in TASKS:
                    self.connect(task)
        self.end()

    def settle(self) -> None:
        """Lets everything happen that can."""
        for _ in range(20):
            while self.go_on():
                pass
            for task in TASKS:
                self.connect(task)
            self.tick(1.0)

    def end(self) -> None:
        self.settle()
        for client in self.clients.values():
            for number, call in client.calls.items():
                if call.answer is None:
                    assert call.step == b"waits", call
                    assert self.has_faults is False or call.kind in ("run", "resume"), call
                    self.to_master(FromClient(client.number, messages.CancelRun(number, ENOUGH)))
        self.settle()
        for client in self.clients.values():
            assert all(call.answer is not None for call in client.calls.values())
            for session in list(client.sessions):
                self.call(client, messages.CloseSession, session, call=Call("close"))
        self.settle()
        self.tick(thresholds.EARLY_TOKENS * 2)
        self.tick(thresholds.EARLY_TOKENS * 2)
        self.settle()
        m = self.master
        tables = (m.runs, m._over, m._sessions, m._programs, m._by_key, m._opening, m._clearing)
        assert [len(t) for t in tables] == [0] * 7
        for worker in m.workers.values():
            assert (worker.programs, worker.ended) == (set(), [])
        for sim in self.workers.values():
            w = sim.state
            assert (w.steps, w._programs, w._held, w._held_bytes) == ({}, {}, 0, 0)
            assert (sim.runs, sim.programs) == ({}, {})


@pytest.mark.parametrize("seed", range(6))
def test_a_simulated_cluster_without_faults_answers_every_call_rightly(seed: int) -> None:
    sim = Simulation(seed, has_faults=False)
    sim.run(2000)
    assert sim.outcomes["run", ""] > 10


@pytest.mark.parametrize("seed", range(6))
def test_a_simulated_cluster_with_faults_answers_every_call_once(seed: int) -> None:
    Simulation(seed, has_faults=True).run(2000)


@pytest.mark.matrix
@pytest.mark.parametrize("has_faults", [False, True])
def test_simulated_clusters(has_faults: bool) -> None:
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    for seed in tiers.rotated(range(100, 200), 3):
        sim = Simulation(seed, has_faults)
        sim.run(2000)
        outcomes += sim.outcomes
    of_faults = {"UnavailableError", "CancelledError"} if has_faults else set()
    errors = {"", "InvalidArgumentError", "InternalError", "DeadlineExceededError"}
    assert {error for kind, error in outcomes if kind == "run"} >= errors | of_faults
    assert {error for kind, error in outcomes if kind == "resume"} >= {""} | of_faults
