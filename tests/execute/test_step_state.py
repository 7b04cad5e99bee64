"""`StepState` under permuted, delayed and duplicated events.

`Network` is a step whose parts follow a script: a part sends tokens when enough tokens have arrived and enough of its
iterations were ended. Tokens, events and instructions are on their way for any time, in any order, and some events and
instructions arrive twice. The scripts are monotone, so what must happen does not depend on the order; a run in order
says what it is.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from headrace.errors import AbortedError, CancelledError, InternalError
from headrace.execute.step_state import (
    Abort,
    Begin,
    Cancelled,
    End,
    Failed,
    Finished,
    Idle,
    Pause,
    Probe,
    Release,
    Satisfied,
    Start,
    StepState,
)

pytestmark = pytest.mark.one_engine

SEEDS = 60


@dataclasses.dataclass(frozen=True)
class Fire:
    """A node of a script, which sends tokens.

    Attributes:
      arrived: number of tokens that must have arrived.
      ended: number of iterations that must have been ended.
      to: the parts that get a token each.
      fails: whether the part fails then.
    """

    arrived: int
    ended: int
    to: tuple[str, ...]
    fails: bool = False


@dataclasses.dataclass
class Part:
    """A part of the step.

    Attributes:
      name: the name of the part.
      script: its nodes, which fire in order.
      levels: the levels of the iterations that it can end, in order.
      fired: number of nodes that have fired.
      sent: number of tokens sent.
      arrived: number of tokens that have arrived.
      ended: number of iterations that were ended.
      epoch: the number of the last report.
      order: the number of the last order.
      wave: the number of the last probe.
      error: the error that ended the part.
      reported: the last report without its number.
    """

    name: str
    script: tuple[Fire, ...]
    levels: tuple[int, ...]
    fired: int = 0
    sent: int = 0
    arrived: int = 0
    ended: int = 0
    epoch: int = 0
    order: int = 0
    wave: int = 0
    error: BaseException | None = None
    reported: Any = None

    @property
    def next(self) -> Fire | None:
        """The node that can fire now."""
        if not self.order or self.error is not None or self.fired == len(self.script):
            return None
        fire = self.script[self.fired]
        return fire if fire.arrived <= self.arrived and fire.ended <= self.ended else None

    def report(self) -> Any:
        self.epoch += 1
        if self.error is not None:
            return Failed(self.name, self.error)
        if self.fired == len(self.script):
            return Finished(self.name, self.epoch, self.wave, self.sent, self.arrived)
        level = self.levels[self.ended] if self.ended < len(self.levels) else 0
        return Idle(self.name, self.epoch, self.order, self.wave, self.sent, self.arrived, level, waits=("  'recv'",))


class Network:
    """The parts of a step, and the mail between them and its state.

    Args:
      parts: the parts.
      seed: of the order in which mail arrives; None: first in, first out, and nothing twice.
    """

    def __init__(self, parts: list[Part], seed: int | None) -> None:
        self.parts = {p.name: p for p in parts}
        self.random = None if seed is None else random.Random(seed)
        self.state = StepState(1, list(self.parts))
        self.mail: list[Any] = []  # events, instructions, and names of parts that get a token
        self.releases: list[tuple[str, int]] = []
        self.ends: list[End] = []

    def run(self, *events: Any) -> Network:
        self.mail += events
        for _ in range(20_000):
            if not self.work() and not self.deliver():
                break
        assert not self.mail
        return self

    def work(self) -> bool:
        """One part fires a node, or reports."""
        parts = list(self.parts.values())
        if self.random is not None:
            self.random.shuffle(parts)
        for part in parts:
            fire = part.next
            if fire is not None:
                part.fired += 1
                part.sent += len(fire.to)
                self.mail += fire.to
                if fire.fails:
                    part.error = ValueError(part.name)
                return True
        for part in parts:
            if part.order:
                seen = dataclasses.replace(report, epoch=0) if not isinstance(report := part.report(), Failed) else ""
                if seen != part.reported:
                    part.reported = seen
                    self.mail.append(report)
                    return True
        return False

    def deliver(self) -> bool:
        """The state or a part gets a piece of mail."""
        if not self.mail:
            return False
        i = 0 if self.random is None else self.random.randrange(len(self.mail))
        twice = self.random is not None and not isinstance(self.mail[i], str) and self.random.random() < 0.3
        mail = self.mail[i] if twice else self.mail.pop(i)
        if isinstance(mail, str):
            self.parts[mail].arrived += 1
        elif isinstance(mail, (Start, Release)):
            part = self.parts[mail.part]
            if mail.order > part.order:
                part.order = mail.order
                part.ended += isinstance(mail, Release)
        elif isinstance(mail, Probe):
            self.parts[mail.part].wave = max(self.parts[mail.part].wave, mail.wave)
        elif isinstance(mail, Abort):
            part = self.parts[mail.part]
            if part.error is None and part.fired < len(part.script):
                part.error, part.order = mail.error, max(part.order, 1)
        else:
            self.handle(mail)
        return True

    def handle(self, event: Any) -> None:
        for made in self.state.handle(event):
            if isinstance(made, End):
                self.ends.append(made)
            elif isinstance(made, Release):
                under_way = [m for m in self.mail if isinstance(m, str)]
                busy = [p.name for p in self.parts.values() if p.next is not None]
                assert (under_way, busy) == ([], []), "an iteration is ended though a token is under way"
                self.releases.append((made.part, made.order))
                self.mail.append(made)
            else:
                self.mail.append(made)

    @property
    def outcome(self) -> tuple[Any, ...]:
        """The final state of the step, without the order of reports."""
        errors = [None if e.error is None else (type(e.error), str(e.error)) for e in self.ends]
        return errors, self.releases, [(p.fired, p.sent, p.arrived, p.ended) for p in self.parts.values()]


def scripts(rng: random.Random) -> list[Part]:
    """Parts with random scripts; some steps are stuck now and then, some for ever."""
    names = ["a", "b", "c"][: rng.randint(1, 3)]
    need = dict.fromkeys(names, 0)
    out = []
    for name in names:
        fires, ended = [], 0
        for _ in range(rng.randint(0, 4)):
            need[name] += rng.choice([0, 0, 1, 1, 2])
            ended += rng.random() < 0.3
            fires.append(Fire(need[name], ended, tuple(rng.choices(names, k=rng.choice([0, 1, 1, 2])))))
        levels = tuple(rng.randint(1, 3) for _ in range(ended if rng.random() < 0.9 else ended // 2))
        out.append(Part(name, tuple(fires), levels))
    return out


@pytest.mark.parametrize("program", range(12))
def test_the_end_does_not_depend_on_the_order_of_the_mail(program: int) -> None:
    def network(seed: int | None) -> Network:
        return Network(scripts(random.Random(program)), seed)

    want = network(None).run(Begin()).outcome
    assert len(want[0]) == 1
    for seed in range(SEEDS):
        assert network(seed).run(Begin()).outcome == want, seed


def test_the_random_scripts_reach_every_kind_of_end() -> None:
    outcomes = [Network(scripts(random.Random(p)), None).run(Begin()).outcome for p in range(12)]
    assert any(errors == [None] and releases for errors, releases, _ in outcomes)
    assert any(errors == [None] and not releases for errors, releases, _ in outcomes)
    assert any(errors != [None] for errors, _, _ in outcomes)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_failure_ends_every_part_once(seed: int) -> None:
    parts = scripts(random.Random(seed))
    parts.append(Part("bad", (Fire(0, 0, ("bad",)), Fire(1, 0, (), fails=True), Fire(9, 0, ())), ()))
    end = Network(parts, seed).run(Begin()).ends
    assert [type(e.error) for e in end] in ([ValueError], [InternalError])
    assert type(end[0].error) is ValueError or not [p for p in parts if p.name == "bad" and p.error]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cancelled_step_ends_once(seed: int) -> None:
    stuck = Part("stuck", (Fire(1, 0, ()),), ())
    other = Part("other", (Fire(0, 0, ("other",) * 3), Fire(3, 0, ())), ())
    network = Network([stuck, other], seed).run(Begin(), Cancelled(CancelledError("closed")))
    assert [type(e.error) for e in network.ends] in ([CancelledError], [InternalError])


def running(*parts: str) -> StepState:
    state = StepState(7, parts)
    assert state.handle(Begin()) == [Start(p, 1) for p in parts]
    return state


def test_one_wave_is_not_enough() -> None:
    state = running("a", "b")
    assert state.handle(Idle("a", 1, sent=1, releasable=1)) == []
    assert state.handle(Idle("b", 1, arrived=1)) == [Probe("a", 1), Probe("b", 1)]
    # the token of a had made b send one, which is still under way when both report again
    assert state.handle(Idle("b", 2, wave=1, sent=1, arrived=1)) == []
    assert state.handle(Idle("a", 2, wave=1, sent=1, releasable=1)) == []
    assert state.handle(Idle("a", 3, wave=1, sent=1, arrived=1, releasable=1)) == [Probe("a", 2), Probe("b", 2)]
    assert state.handle(Idle("a", 4, wave=2, sent=1, arrived=1, releasable=1)) == []
    assert state.handle(Idle("b", 3, wave=2, sent=1, arrived=1)) == [Release("a", 2)]
    assert state.handle(Idle("b", 4, wave=2, sent=1, arrived=1)) == []  # a has not carried the order out
    assert state.handle(Idle("a", 5, order=1, wave=2, sent=1, arrived=1, releasable=1)) == []


def stuck(state: StepState, *reports: Idle) -> list[Any]:
    """Returns the instructions after two equal waves of reports."""
    made: list[Any] = []
    for wave in (0, 1):
        for r in reports:
            made = state.handle(dataclasses.replace(r, epoch=1 + wave, wave=wave))
    return made


def test_the_innermost_iteration_is_ended_first() -> None:
    reports = Idle("a", 1, releasable=1), Idle("b", 1, releasable=3), Idle("c", 1)
    assert stuck(running("a", "b", "c"), *reports) == [Release("b", 2)]


def test_a_stuck_step_fails_with_the_nodes_that_wait() -> None:
    state = running("a", "b")
    made = stuck(state, Idle("a", 1, waits=("  'x' (Recv)",)), Idle("b", 1, waits=("  'y' (Recv)",)))
    assert [type(m) for m in made] == [Abort, Abort]
    assert all(type(m.error) is AbortedError for m in made)
    assert state.handle(Failed("b", made[1].error)) == []
    assert state.handle(Failed("b", made[1].error)) == []
    [end] = state.handle(Failed("a", made[0].error))
    assert type(end.error) is InternalError
    assert "step 7 cannot continue: every device waits for another; it waits for\na:\n  'x' (Recv)" in str(end.error)
    assert state.handle(Cancelled(CancelledError("late"))) == []


def test_a_part_that_waits_for_a_queue_keeps_the_step_alive() -> None:
    assert stuck(running("a", "b"), Idle("a", 1, is_waiting=True), Idle("b", 1, releasable=1)) == []


def test_a_partial_run_pauses_and_goes_on() -> None:
    state = StepState(1, ["a", "b"])
    assert state.handle(Begin(1, is_fed=False)) == [Start("a", 1), Start("b", 1)]
    assert stuck(state, Idle("a", 1), Idle("b", 1)) == [Pause()]
    assert state.handle(Begin(1, is_fed=False)) == []  # a duplicate
    assert state.handle(Begin(2, is_fed=True)) == [Start("a", 2), Start("b", 2)]
    assert state.handle(Idle("a", 3, order=1)) == []  # from before the second start
    assert state.handle(Finished("a", 4)) == []
    assert state.handle(Finished("b", 3)) == [End(None)]


def test_a_satisfied_run_does_not_wait() -> None:
    state = running("a", "b")
    assert state.handle(Satisfied(1)) == []
    assert state.handle(Idle("a", 1, is_waiting=True)) == []
    assert state.handle(Idle("b", 1, sent=3)) == [Pause()]
    assert state.handle(Begin(2)) == [Start("a", 2), Start("b", 2)]
    assert state.handle(Satisfied(1)) == []  # a duplicate from before the pause
    assert state.handle(Idle("a", 2, order=2, is_waiting=True)) == []
    assert state.handle(Idle("b", 2, order=2, sent=3)) == []


def test_a_paused_step_ends_at_once_when_it_is_cancelled() -> None:
    state = StepState(1, ["a"])
    error = CancelledError("closed")
    assert state.handle(Cancelled(error)) == [End(error)]
