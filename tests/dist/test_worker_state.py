"""`WorkerState` under early, late, doubled and foreign messages.

`Shell` carries the instructions out with runs that only note what happens to them. It checks each instruction: nothing
happens to a run before it has begun, or after it was closed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from headrace import thresholds
from headrace.dist import messages, worker_state
from headrace.dist.codec import Token
from headrace.dist.worker_state import (
    Abort,
    Begin,
    Begun,
    CarryOut,
    Close,
    CloseSession,
    Deliver,
    Drop,
    Feed,
    FromMaster,
    Log,
    MasterLost,
    Prepare,
    Prepared,
    Send,
    Tick,
    TokenArrived,
    WorkerState,
)
from headrace.errors import AbortedError, InvalidArgumentError, UnavailableError, from_data, to_data

PART = "/job:worker/replica:0/task:0/device:CPU:0"
OTHER_PART = "/job:worker/replica:0/task:0/device:CPU:1"
ERROR = to_data(AbortedError("it failed elsewhere"))
STEP = 7


class Run:
    """A run that notes what happens to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log: list[str] = []
        self.tokens: list[Any] = []
        self.is_closed = False


class Shell:
    """A worker that carries instructions out.

    Args:
      is_slow: whether steps begin only when `begin` is called.
    """

    def __init__(self, is_slow: bool = False) -> None:
        self.state = WorkerState()
        self.is_slow = is_slow
        self.runs: dict[int, Run] = {}
        self.beginning: list[int] = []
        self.sent: list[tuple[int, Any]] = []
        self.logs: list[str] = []
        self.prepared: list[tuple[int, int]] = []  # programs to compile
        self.programs: set[tuple[int, int]] = set()  # compiled
        self.closed_sessions: list[tuple[int, int | None]] = []

    def handle(self, event: Any) -> list[str]:
        """Returns the names of the instructions."""
        done = []
        for i in self.state.handle(event):
            done.append(type(i).__name__)
            self.carry_out(i)
        return done

    def carry_out(self, i: Any) -> None:
        if isinstance(i, Begin):
            assert (i.master, i.message.program) in self.programs, "a step begins with a program that is not compiled"
            assert i.message.step not in self.runs, "a step begins twice"
            assert i.message.step in self.state.steps, "a step begins after its end"
            self.beginning.append(i.message.step)
            if not self.is_slow:
                self.begin()
        elif isinstance(i, (Deliver, CarryOut, Feed, Abort, Close)):
            run = i.run
            assert isinstance(run, Run)
            assert not run.is_closed, f"{i} after the end"
            run.log.append(type(i).__name__)
            if isinstance(i, Deliver):
                run.tokens.append(i.token.value)
            run.is_closed = isinstance(i, Close)
        elif isinstance(i, Send):
            messages.decode(messages.encode(i.message))
            self.sent.append((i.master, i.message))
        elif isinstance(i, Prepare):
            self.prepared.append((i.master, i.message.program))
        elif isinstance(i, Drop):
            self.programs.discard((i.master, i.program))
        elif isinstance(i, CloseSession):
            self.closed_sessions.append((i.master, i.session))
        else:
            assert isinstance(i, Log)
            self.logs.append(i.text)

    def begin(self) -> None:
        """Begins the steps that wait for the shell."""
        while self.beginning:
            step = self.beginning.pop(0)
            run = self.runs[step] = Run(step)
            self.handle(Begun(step, run))  # type: ignore[arg-type]

    def message(self, m: Any, master: int = 1, values: Sequence[Any] = ()) -> list[str]:
        return self.handle(FromMaster(master, m, values))

    def prepare(self, program: int = 1, master: int = 1, error: Exception | None = None) -> None:
        """Lets a master send a program, and compiles it."""
        self.message(prepare(program), master)
        self.compiled(program, master, error)

    def compiled(self, program: int = 1, master: int = 1, error: Exception | None = None) -> list[str]:
        if error is None:
            self.programs.add((master, program))
        return self.handle(Prepared(master, program, error))

    def token(self, step: int, value: Any = 0) -> list[str]:
        return self.handle(TokenArrived(Token(step, 0, (), 0, value, None)))

    def failures(self, step: int = STEP) -> list[tuple[str, type[BaseException]]]:
        """The failures of a step that masters have got, by part."""
        reports = [m for _, m in self.sent if isinstance(m, messages.Report) and m.step == step]
        return [(e.part, type(from_data(e.error))) for r in reports for e in r.events]  # type: ignore[union-attr]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the tables, but the tombstones."""
        s = self.state
        waiting = sum(len(p.waiting) for p in s._programs.values())
        return len(s.steps), len(s._programs), s._held, s._held_bytes, waiting


def prepare(program: int = 1, parts: Sequence[str] = (PART,)) -> messages.PrepareProgram:
    return messages.PrepareProgram(program, tuple(messages.PartData(p, b"") for p in parts))


def start(step: int = STEP, program: int = 1, ended: tuple[int, ...] = ()) -> messages.StartStep:
    return messages.StartStep(step, program, 1, ended=ended)


# *** the table of the module ***


def in_state(name: str) -> Shell:
    """A worker with a step in a state."""
    shell = Shell()
    if name != "waits":
        shell.prepare()
    else:
        shell.message(prepare())
    if name in ("waits", "runs", "tombstone"):
        shell.message(start())
    if name == "tombstone":
        shell.message(messages.EndSteps((STEP,)))
    shell.sent.clear()
    return shell


def state_of(shell: Shell) -> str:
    entry = shell.state.steps.get(STEP)
    if entry is None:
        return "tombstone" if STEP in shell.state._tombstones else "unknown"
    if entry.run is not None:
        return "runs"
    return "held" if entry.program is None else "waits"


@pytest.mark.parametrize(
    ("state", "event", "instructions", "after"),
    [
        ("unknown", "start", ["Begin"], "runs"),
        ("unknown", "token", [], "held"),
        ("unknown", "abort", [], "tombstone"),
        ("unknown", "end", [], "tombstone"),
        ("waits", "start", [], "waits"),
        ("waits", "token", [], "waits"),
        ("waits", "abort", ["Send"], "tombstone"),
        ("waits", "end", [], "tombstone"),
        ("runs", "start", [], "runs"),
        ("runs", "token", ["Deliver"], "runs"),
        ("runs", "abort", ["Abort"], "runs"),
        ("runs", "end", ["Close"], "tombstone"),
        ("tombstone", "start", ["Send"], "tombstone"),
        ("tombstone", "token", [], "tombstone"),
        ("tombstone", "abort", [], "tombstone"),
        ("tombstone", "end", [], "tombstone"),
    ],
)
def test_each_cell_of_the_table(state: str, event: str, instructions: list[str], after: str) -> None:
    shell = in_state(state)
    assert state_of(shell) == state
    if event == "token":
        assert shell.token(STEP) == instructions
    else:
        m = {"start": start(), "abort": messages.AbortStep(STEP, ERROR), "end": messages.EndSteps((STEP,))}[event]
        assert shell.message(m) == instructions
    assert state_of(shell) == after
    if "Send" in instructions:
        assert shell.failures() == [(PART if state == "waits" else "", AbortedError)]
    assert shell.logs == []
    shell.message(messages.EndSteps((STEP,)))
    assert shell.sizes == (0, 1, 0, 0, 1 if state == "waits" and event != "abort" else 0)


# *** order ***


def test_tokens_before_the_step_are_delivered_in_their_order() -> None:
    shell = Shell()
    for value in range(3):
        shell.token(STEP, value)
    shell.message(prepare())
    shell.message(start())
    shell.token(STEP, 3)
    assert shell.runs == {}
    shell.compiled()
    assert shell.sizes == (1, 1, 0, 0, 0)
    shell.token(STEP, 4)
    assert shell.runs[STEP].tokens == [0, 1, 2, 3, 4]


def test_a_step_waits_for_its_program_with_its_feeds() -> None:
    state = WorkerState()
    m = start()
    state.handle(FromMaster(1, prepare()))
    assert state.handle(FromMaster(1, m, ["fed"])) == []
    sent, begin = state.handle(Prepared(1, 1))
    assert sent == Send(1, messages.ProgramPrepared(1))
    assert begin == Begin(1, m, ["fed"])


def test_a_slow_beginning_holds_tokens_and_can_be_ended() -> None:
    """The connections of a step may have to be made before it begins."""
    for last in (messages.AbortStep(STEP, ERROR), messages.EndSteps((STEP,)), None):
        shell = Shell(is_slow=True)
        shell.prepare()
        assert shell.message(start()) == ["Begin"]
        shell.token(STEP, 1)
        done = shell.handle(MasterLost(1, "cut")) if last is None else shell.message(last)
        assert "Close" not in done
        shell.begin()
        assert (shell.runs[STEP].log, shell.runs[STEP].is_closed) == (["Close"], True)
        assert shell.sizes[0] == 0
        assert shell.failures() == ([(PART, AbortedError)] if isinstance(last, messages.AbortStep) else [])


LIFE: list[Any] = [
    prepare(),
    "token",
    start(),
    "token",
    "compiled",
    "token",
    messages.Orders(STEP, (messages.Order("probe", PART, 1),)),
    messages.ResumeStep(STEP, (), True),
    "token",
]


def live(shell: Shell, event: Any) -> None:
    if event == "token":
        shell.token(STEP)
    elif event == "compiled":
        shell.compiled()
    else:
        shell.message(event)


@pytest.mark.parametrize("at", range(len(LIFE) + 1))
@pytest.mark.parametrize("end", ["abort", "end", "lost", "drop"])
def test_a_step_can_be_ended_at_every_point_of_its_life(at: int, end: str) -> None:
    shell = Shell()
    for k, event in enumerate(LIFE):
        if k == at:
            _end(shell, end)
        live(shell, event)
    if at == len(LIFE):
        _end(shell, end)
    is_confirmed = bool(shell.failures()) or STEP not in shell.runs or "Abort" in shell.runs[STEP].log
    assert is_confirmed or not at or end not in ("abort", "lost")
    shell.message(messages.EndSteps((STEP,)))
    shell.handle(MasterLost(1, "the end"))
    assert all(run.is_closed for run in shell.runs.values())
    assert shell.sizes == (0, 0, 0, 0, 0)
    shell.token(STEP)
    assert shell.sizes == (0, 0, 0, 0, 0), "a late token is dropped"


def _end(shell: Shell, how: str) -> None:
    if how == "abort":
        shell.message(messages.AbortStep(STEP, ERROR))
    elif how == "end":
        shell.message(messages.EndSteps((STEP,)))
    elif how == "drop":
        shell.message(messages.DropProgram(1))
    else:
        shell.handle(MasterLost(1, "cut"))


def test_every_message_may_arrive_twice() -> None:
    once, twice = Shell(), Shell()
    for event in [*LIFE, messages.AbortStep(STEP, ERROR), messages.EndSteps((STEP,)), messages.DropProgram(1)]:
        live(once, event)
        for _ in range(1 if event == "token" else 2):
            live(twice, event)
    doubled = {"CarryOut", "Feed", "Abort"}
    (a,), (b,) = once.runs.values(), twice.runs.values()
    assert [k for k in b.log if k not in doubled] == [k for k in a.log if k not in doubled]
    assert once.sizes == twice.sizes == (0, 0, 0, 0, 0)
    assert once.prepared == twice.prepared == [(1, 1)]


def test_tokens_and_messages_may_be_interleaved_in_any_way() -> None:
    """Each connection keeps its order; nothing else does."""
    master = [prepare(), start(), messages.EndSteps((STEP,))]
    for where in itertools.combinations(range(9), 3):
        shell = Shell()
        mail, n = iter(master), 0
        for k in range(9):
            if k in where:
                live(shell, next(mail))
            else:
                shell.token(STEP, n)
                n += 1
            if shell.prepared and k % 2:
                shell.prepared.clear()
                shell.compiled()
        if STEP in shell.runs:
            run = shell.runs[STEP]
            assert run.tokens == list(range(len(run.tokens)))
            assert run.is_closed
        assert shell.sizes[0] == shell.sizes[2] == 0


# *** programs ***


def test_a_program_that_cannot_be_compiled_fails_its_steps() -> None:
    shell = Shell()
    shell.message(prepare(parts=(PART, OTHER_PART)))
    shell.message(start(1))
    shell.token(1)
    shell.compiled(error=InvalidArgumentError("no such device"))
    shell.message(start(2))
    assert isinstance(shell.sent[0][1], messages.ProgramPrepared)
    assert type(from_data(shell.sent[0][1].error)) is InvalidArgumentError
    for step in (1, 2):
        assert shell.failures(step) == [(PART, InvalidArgumentError), (OTHER_PART, InvalidArgumentError)]
    assert shell.sizes == (0, 1, 0, 0, 0)
    shell.message(messages.DropProgram(1))
    shell.prepare()  # the master tries again
    shell.message(start(3))
    assert list(shell.runs) == [3]


def test_a_step_of_an_unknown_program_fails() -> None:
    shell = Shell()
    shell.token(STEP)
    shell.message(start(program=5))
    assert shell.failures() == [("", AbortedError)]
    assert shell.sizes == (0, 0, 0, 0, 0)


def test_a_program_that_is_dropped_while_steps_wait_for_it_fails_them() -> None:
    shell = Shell()
    shell.message(prepare())
    shell.message(start())
    assert shell.message(messages.DropProgram(1)) == ["Drop", "Send"]
    assert shell.failures() == [(PART, AbortedError)]
    assert shell.compiled() == ["Drop"], "it is compiled for nothing"
    assert shell.programs == set()
    assert shell.sizes == (0, 0, 0, 0, 0)


def test_a_step_that_runs_outlives_its_program() -> None:
    shell = in_state("runs")
    shell.message(messages.DropProgram(1))
    assert shell.token(STEP) == ["Deliver"]
    shell.message(messages.EndSteps((STEP,)))
    assert shell.sizes == (0, 0, 0, 0, 0)


# *** masters ***


def test_a_lost_master_ends_its_own_steps_only() -> None:
    shell = Shell()
    for master in (1, 2):
        shell.prepare(1, master)
        shell.message(prepare(2), master)
        shell.message(start(10 * master), master)
        shell.message(start(10 * master + 1, 2), master)
    shell.token(99)
    shell.sent.clear()
    done = shell.handle(MasterLost(1, "its machine is gone"))
    assert (done.count("Abort"), done.count("Close"), done.count("Drop")) == (1, 1, 2)
    assert shell.sent == []
    assert shell.closed_sessions == [(1, None)]
    assert sorted(shell.state.steps) == [20, 21, 99]
    assert shell.token(20) == ["Deliver"]
    assert shell.compiled(2, 2) == ["Send", "Begin"]
    assert shell.compiled(2, 1) == ["Drop"]
    assert shell.token(10) == shell.token(11) == []
    assert shell.sizes == (3, 2, 1, 0, 0)


def test_masters_have_programs_of_the_same_number() -> None:
    shell = Shell()
    shell.prepare(1, 1)
    shell.message(prepare(1), 2)
    shell.message(start(10), 1)
    shell.message(start(20), 2)
    assert list(shell.runs) == [10]
    shell.message(messages.DropProgram(1), 2)
    assert shell.message(start(11), 1) == ["Begin"]
    assert shell.failures(20) == [(PART, AbortedError)]


def test_a_master_cannot_reach_the_steps_of_another_one() -> None:
    shell = in_state("runs")
    shell.prepare(1, 2)
    shell.sent.clear()
    orders = messages.Orders(STEP, (messages.Order("release", PART, 2),))
    for m in (
        messages.AbortStep(STEP, ERROR),
        messages.EndSteps((STEP,)),
        orders,
        messages.ResumeStep(STEP, (0,), True),
    ):
        assert shell.message(m, 2, ["fed"]) == ["Log"]
    assert shell.message(start(8, ended=(STEP,)), 2) == ["Begin", "Log"]
    assert shell.message(start(STEP), 2) == ["Send"]
    assert shell.failures() == [("", AbortedError)]
    assert shell.sent[0][0] == 2
    assert shell.message(messages.DropProgram(1), 2) == ["Drop"]
    shell.handle(MasterLost(2, "cut"))
    assert shell.runs[STEP].log == []
    assert shell.token(STEP) == ["Deliver"]


def test_messages_about_steps_that_do_not_run_have_no_effect() -> None:
    orders = messages.Orders(STEP, (messages.Order("start", "no such part", 2),))
    for state in ("unknown", "waits", "tombstone"):
        shell = in_state(state)
        before = shell.sizes
        for m in (orders, messages.ResumeStep(STEP, (5,), True)):
            assert shell.message(m) == ["Log"]
        assert (state_of(shell), shell.sizes) == (state, before)


def test_messages_that_are_not_for_workers_are_logged() -> None:
    shell = Shell()
    for m in (messages.Reply(1), messages.OpenSession(1), messages.Report(STEP, ()), messages.CancelRun(1, ERROR)):
        assert shell.message(m) == ["Log"]
    assert shell.message(messages.DropSession(3)) == ["CloseSession"]
    assert shell.message(messages.DropProgram(3)) == []
    assert shell.sizes == (0, 0, 0, 0, 0)


# *** bounds ***


def test_early_tokens_are_dropped_after_a_while() -> None:
    shell = Shell()
    shell.prepare()
    shell.token(STEP)
    shell.handle(Tick(100.0))
    shell.token(8)
    shell.handle(Tick(100.0 + thresholds.EARLY_TOKENS))
    assert shell.sizes[2] == 2
    assert shell.handle(Tick(101.0 + thresholds.EARLY_TOKENS)) == ["Log"]
    assert sorted(shell.state.steps) == [8]
    assert shell.token(STEP) == []
    shell.message(start())
    assert shell.failures() == [("", AbortedError)], "its tokens are lost, so it would hang"
    shell.message(start(8))
    assert shell.runs[8].tokens == [0]
    shell.handle(Tick(1e9))
    assert list(shell.state.steps) == [8], "a step that runs has no limit"


@pytest.mark.parametrize("spread", [1, 4])
def test_the_number_of_early_tokens_is_bounded(spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_state, "HELD_TOKENS", 8)
    shell = Shell()
    shell.prepare()
    for k in range(8):
        assert shell.token(k % spread) == []
    assert shell.token(0) == ["Log"]
    assert shell.sizes[2] == 8 - 8 // spread
    shell.message(start(0))
    assert shell.failures(0) == [("", AbortedError)]
    shell.message(prepare(2))
    shell.message(start(50, 2))
    for _ in range(20):
        assert shell.token(50) == [], "a step that has been started is bounded by its senders"


def test_the_bytes_of_early_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    np = pytest.importorskip("numpy")
    monkeypatch.setattr(worker_state, "HELD_BYTES", 1000)
    shell = Shell()
    assert shell.token(1, np.zeros(5000, np.uint8)) == [], "one value may be larger"
    assert shell.token(2, np.zeros(1, np.uint8)) == ["Log"]
    assert shell.sizes == (1, 0, 1, 5000, 0)
    shell.prepare()
    shell.message(start(1))
    assert shell.sizes == (1, 1, 0, 0, 0)


def test_tombstones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_state, "TOMBSTONES", 16)
    shell = Shell()
    shell.prepare()
    for step in range(100):
        shell.message(start(step))
        shell.message(messages.EndSteps((step,)))
    assert list(shell.state._tombstones) == list(range(84, 100))


# *** long runs ***


def test_a_thousand_steps_leave_nothing_behind() -> None:
    rng = random.Random(1)
    shell = Shell()
    shell.prepare()
    ended: tuple[int, ...] = ()
    for step in range(1000):
        for _ in range(rng.randrange(3)):
            shell.token(step)
        shell.message(start(step, ended=ended))
        shell.token(step)
        if rng.random() < 0.2:
            shell.message(messages.AbortStep(step, ERROR))
        ended = (step,)
        if rng.random() < 0.5:
            shell.message(messages.EndSteps(ended))
            shell.token(step)
            ended = ()
    shell.message(messages.EndSteps(ended))
    assert len(shell.runs) == 1000
    assert all(run.is_closed for run in shell.runs.values())
    assert shell.sizes == (0, 1, 0, 0, 0)


@pytest.mark.parametrize("seed", range(30))
def test_random_messages_of_two_masters_keep_the_invariants(seed: int) -> None:
    """No message raises, and nothing is left when both masters are lost."""
    rng = random.Random(seed)
    shell = Shell(is_slow=bool(seed % 2))
    for _ in range(300):
        master, step, program = rng.choice([1, 2]), rng.randrange(12), rng.randrange(3)
        kind = rng.randrange(11)
        if kind == 0:
            shell.message(prepare(program), master)
        elif kind == 1 and shell.prepared:
            compiling = rng.choice(shell.prepared)
            shell.prepared.remove(compiling)
            is_bad = rng.random() < 0.3
            if not is_bad:
                shell.programs.add(compiling)
            shell.handle(Prepared(*compiling, ValueError("bad") if is_bad else None))
        elif kind in (2, 3):
            shell.message(start(step, program, (rng.randrange(12),) if rng.random() < 0.1 else ()), master)
        elif kind in (4, 5):
            shell.token(step)
        elif kind == 6:
            shell.message(messages.AbortStep(step, ERROR), master)
        elif kind == 7:
            shell.message(messages.EndSteps((step,)), master)
        elif kind == 8:
            shell.message(messages.ResumeStep(step, (), True), master)
        elif kind == 9 and rng.random() < 0.3:
            shell.message(messages.DropProgram(program), master)
        elif kind == 10:
            shell.begin()
        if rng.random() < 0.01:
            shell.handle(MasterLost(master, "cut"))
        if rng.random() < 0.2:
            shell.runs = {k: r for k, r in shell.runs.items() if not r.is_closed}
    for master in (1, 2):
        shell.handle(MasterLost(master, "the end"))
    shell.begin()
    shell.handle(Tick(0.0))
    shell.handle(Tick(1e9))
    assert all(run.is_closed for run in shell.runs.values())
    assert shell.sizes == (0, 0, 0, 0, 0)


def test_the_reason_of_a_lost_master_is_the_error_of_its_steps() -> None:
    shell = in_state("runs")
    aborts = [i for i in shell.state.handle(MasterLost(1, "its machine is gone")) if isinstance(i, Abort)]
    error = from_data(aborts[0].error)
    assert type(error) is UnavailableError
    assert "the connection to the master of this step has ended: its machine is gone" in str(error)
