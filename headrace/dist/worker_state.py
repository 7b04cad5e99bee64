"""State of a worker: programs, steps, and tokens that arrive before or after their step.

`WorkerState.handle` maps an event to instructions. It has no threads, sockets or clocks: `dist.server` collects the
events and carries the instructions out. So tests can permute, lose and double messages.

**Programs.** A master sends each part of a step once (`PrepareProgram`), and the worker compiles it. A step may begin
before the program is ready; it then waits for it.

**Steps.** A step is *unknown* until `StartStep` arrives. A token of an unknown step may be early: its sender has begun,
and the message to this worker is under way. It is *held* for a while. A step whose program is not ready *waits*, and
holds its tokens too. Then it *runs*. A step that has ended leaves a *tombstone*, by which its late tokens are
recognized and dropped. So does a step whose early tokens were dropped; its late `StartStep` is reported as a failure.

| state | `StartStep` | token | `AbortStep` | `EndSteps` |
|---|---|---|---|---|
| unknown | waits or runs | held | tombstone | tombstone |
| waits | ignored | held | reported, tombstone | tombstone |
| runs | ignored | delivered | parts abort | closed, tombstone |
| tombstone | reported | dropped | ignored | ignored |

*Reported*: the master gets the failure of the parts. It ignores reports of steps that are over. Steps of one master are
out of reach of the others.

Source: the split into a pure state and a shell follows "sans-I/O" protocol libraries.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace import thresholds
from headrace.dist import messages
from headrace.errors import AbortedError, UnavailableError, to_data
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dist.codec import Token
    from headrace.dist.worker_run import WorkerRun

# *** events *** (nothing changes one; `frozen` would take four times as long to make it, several times in each step)


@record(slots=True)
class FromMaster:
    """A message of a master, with the values that follow it.

    Attributes:
      master: the number of the master on this worker.
      message: the message.
      values: the values.
    """

    master: int
    message: messages.AnyMessage
    values: Sequence[Any] = ()


@record(slots=True)
class Prepared:
    """A program has been compiled, or the attempt has failed with `error`."""

    master: int
    program: int
    error: BaseException | None = None


@record(slots=True)
class MasterLost:
    """The connection of a master has ended, for a reason."""

    master: int
    reason: str


@record(slots=True)
class TokenArrived:
    """A token for a step that does not run; the server delivers other tokens directly."""

    token: Token


@record(slots=True)
class Begun:
    """The instruction `Begin` of a step was carried out; `run` has its parts."""

    step: int
    run: WorkerRun


@record(slots=True)
class Tick:
    """Time has passed.

    Attributes:
      now: the time in seconds since an arbitrary moment.
    """

    now: float


Event: TypeAlias = "FromMaster | Prepared | MasterLost | TokenArrived | Begun | Tick"

# *** instructions ***


@record(slots=True)
class Prepare:
    """Compile a program, and report `Prepared`."""

    master: int
    message: messages.PrepareProgram


@record(slots=True)
class Drop:
    """Forget a program."""

    master: int
    program: int


@record(slots=True)
class Begin:
    """Create the parts of a step, report `Begun`, and start them."""

    master: int
    message: messages.StartStep
    values: Sequence[Any]


@record(slots=True)
class Feed:
    """Supply feeds to a run."""

    run: WorkerRun
    message: messages.ResumeStep
    values: Sequence[Any]


@record(slots=True)
class CarryOut:
    """Pass the master's instructions to a run."""

    run: WorkerRun
    orders: Sequence[messages.Order]


@record(slots=True)
class Deliver:
    """Hand a token to a run."""

    run: WorkerRun
    token: Token


@record(slots=True)
class Abort:
    """Abort a run with an error, as data."""

    run: WorkerRun
    error: Any


@record(slots=True)
class Close:
    """Close a run."""

    run: WorkerRun


@record(slots=True)
class CloseSession:
    """Drop the states of a session; None: of all sessions of the master."""

    master: int
    session: int | None


@record(slots=True)
class Send:
    """Send a message to a master."""

    master: int
    message: messages.AnyMessage


@record(slots=True)
class Log:
    """Note an event that is no error of a step."""

    text: str


Instruction: TypeAlias = (
    "Prepare | Drop | Begin | Feed | CarryOut | Deliver | Abort | Close | CloseSession | Send | Log"
)

TOMBSTONES: Final = thresholds.ENDED_STEPS  # ended steps that are remembered
HELD_TOKENS: Final = thresholds.HELD_TOKENS  # tokens of unknown steps
HELD_BYTES: Final = thresholds.HELD_TOKEN_BYTES  # bytes of their values; one value may be larger


@record(slots=True)
class Program:
    """A program of a master.

    Attributes:
      parts: the names of its parts on this worker.
      is_ready: whether it has been compiled.
      error: the error of its compilation.
      waiting: the steps that wait for it, with their feeds.
    """

    parts: tuple[str, ...]
    is_ready: bool = False
    error: BaseException | None = None
    waiting: list[tuple[messages.StartStep, Sequence[Any]]] = dataclasses.field(default_factory=list)


@record(slots=True)
class StepEntry:
    """A step that is unknown, waits or runs.

    Attributes:
      master: the number of its master; None while it is unknown.
      program: its program; None while it is unknown.
      run: its parts, once it runs.
      held: tokens that arrived before it ran.
      held_bytes: bytes of their values, as long as it is unknown.
      since: the time of the first `Tick` at which it was unknown.
    """

    master: int | None = None
    program: Program | None = None
    run: WorkerRun | None = None
    held: list[Token] = dataclasses.field(default_factory=list)
    held_bytes: int = 0
    since: float | None = None


class WorkerState:
    """State of a worker. The module describes it.

    Attributes:
      steps: the steps that are unknown, wait or run, by number.

    Example:
      >>> state = WorkerState()
      >>> state.handle(FromMaster(1, messages.StartStep(7, 1, 1)))[0].message.events[0].part
      ''
    """

    def __init__(self) -> None:
        self.steps: dict[int, StepEntry] = {}
        self._programs: dict[tuple[int, int], Program] = {}
        self._tombstones: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._held = self._held_bytes = 0  # tokens of unknown steps, and the bytes of their values

    def handle(self, event: Event) -> list[Instruction]:
        """Returns the instructions that follow from `event`, in their order."""
        if isinstance(event, FromMaster):
            return self._message(event)
        if isinstance(event, TokenArrived):
            return self._token(event.token)
        if isinstance(event, Begun):
            return self._begun(event)
        if isinstance(event, Prepared):
            return self._prepared(event)
        if isinstance(event, MasterLost):
            return self._lost(event)
        return self._forget_early(event.now)

    # *** messages ***

    def _message(self, event: FromMaster) -> list[Instruction]:
        master, m = event.master, event.message
        if isinstance(m, messages.StartStep):
            return self._start(master, m, event.values) + self._end(master, m.ended)
        if isinstance(m, messages.EndSteps):
            return self._end(master, m.steps)
        if isinstance(m, messages.PrepareProgram):
            key = master, m.program
            if key in self._programs:
                return []
            parts = tuple(p.device for p in m.parts)
            self._programs[key] = Program(parts)
            return [Prepare(master, m)]
        if isinstance(m, messages.DropProgram):
            return self._drop(master, m.program)
        if isinstance(m, messages.DropSession):
            return [CloseSession(master, m.session)]
        if isinstance(m, messages.AbortStep):
            return self._abort(master, m)
        if isinstance(m, (messages.ResumeStep, messages.Orders)):
            entry = self.steps.get(m.step)
            if entry is None or entry.run is None or entry.master != master:
                return [Log(f"a message to step {m.step}, which does not run: {type(m).__name__}")]
            if isinstance(m, messages.Orders):
                return [CarryOut(entry.run, m.orders)]
            return [Feed(entry.run, m, event.values)]
        return [Log(f"a master sent {type(m).__name__}, which is no message to a worker")]

    def _start(self, master: int, m: messages.StartStep, values: Sequence[Any]) -> list[Instruction]:
        if m.step in self._tombstones:
            error: BaseException = AbortedError(
                f"step {m.step} is over on this worker, or its early tokens were dropped"
            )
            return [Send(master, _failed(m.step, ("",), error))]
        entry = self.steps.setdefault(m.step, StepEntry())
        if entry.master == master:
            return []  # a duplicate
        if entry.master is not None:
            error = AbortedError(f"another master has a step {m.step} on this worker")
            return [Send(master, _failed(m.step, ("",), error))]
        program = self._programs.get((master, m.program))
        if program is None:
            self._bury(m.step)
            error = AbortedError(f"this worker does not have program {m.program}; it was replaced or restarted")
            return [Send(master, _failed(m.step, ("",), error))]
        if program.error is not None:
            self._bury(m.step)
            return [Send(master, _failed(m.step, program.parts, program.error))]
        self._held -= len(entry.held)
        self._held_bytes -= entry.held_bytes
        entry.master, entry.program = master, program
        if not program.is_ready:
            program.waiting.append((m, values))
            return []
        return [Begin(master, m, values)]

    def _begun(self, event: Begun) -> list[Instruction]:
        entry = self.steps.get(event.step)
        if entry is None:
            return [Close(event.run)]
        entry.run = event.run
        held, entry.held = entry.held, []
        return [Deliver(event.run, token) for token in held]

    def _abort(self, master: int, m: messages.AbortStep) -> list[Instruction]:
        entry = self.steps.get(m.step)
        if entry is not None and entry.master not in (None, master):
            return [Log(f"a master aborts step {m.step}, which is not its own")]
        if entry is not None and entry.run is not None:
            return [Abort(entry.run, m.error)]
        self._bury(m.step)
        if entry is None or entry.program is None:
            return []
        entry.program.waiting = [w for w in entry.program.waiting if w[0].step != m.step]
        return [Send(master, _failed(m.step, entry.program.parts, AbortedError("the step was aborted")))]

    def _end(self, master: int, steps: Sequence[int]) -> list[Instruction]:
        out: list[Instruction] = []
        for step in steps:
            entry = self.steps.get(step)
            if entry is not None and entry.master not in (None, master):
                out.append(Log(f"a master ends step {step}, which is not its own"))
                continue
            self._bury(step)
            if entry is not None and entry.run is not None:
                out.append(Close(entry.run))
        return out

    # *** programs ***

    def _prepared(self, event: Prepared) -> list[Instruction]:
        program = self._programs.get((event.master, event.program))
        if program is None:
            return [Drop(event.master, event.program)]  # it was dropped in the meantime
        program.is_ready, program.error = event.error is None, event.error
        error = None if event.error is None else to_data(event.error)
        out: list[Instruction] = [Send(event.master, messages.ProgramPrepared(event.program, error))]
        waiting, program.waiting = program.waiting, []
        for m, values in waiting:
            if m.step not in self.steps:
                continue
            if event.error is None:
                out.append(Begin(event.master, m, values))
            else:
                self._bury(m.step)
                out.append(Send(event.master, _failed(m.step, program.parts, event.error)))
        return out

    def _drop(self, master: int, number: int) -> list[Instruction]:
        program = self._programs.pop((master, number), None)
        if program is None:
            return []
        out: list[Instruction] = [Drop(master, number)]
        for m, _ in program.waiting:
            if m.step in self.steps:
                self._bury(m.step)
                out.append(Send(master, _failed(m.step, program.parts, AbortedError("the program was dropped"))))
        return out

    def _lost(self, event: MasterLost) -> list[Instruction]:
        out: list[Instruction] = []
        error = to_data(UnavailableError(f"the connection to the master of this step has ended: {event.reason}"))
        for step, entry in list(self.steps.items()):
            if entry.master == event.master:
                self._bury(step)
                if entry.run is not None:
                    out += [Abort(entry.run, error), Close(entry.run)]
        for master, program in [key for key in self._programs if key[0] == event.master]:
            del self._programs[master, program]
            out.append(Drop(master, program))
        return [*out, CloseSession(event.master, None)]

    # *** tokens ***

    def _token(self, token: Token) -> list[Instruction]:
        entry = self.steps.get(token.step)
        if entry is None:
            if token.step in self._tombstones:
                return []
            entry = self.steps[token.step] = StepEntry()
        if entry.run is not None:
            return [Deliver(entry.run, token)]
        if entry.program is None:
            size = getattr(token.value, "nbytes", 0)
            if self._held >= HELD_TOKENS or (self._held and self._held_bytes + size > HELD_BYTES):
                text = f"{self._held} are held, with {self._held_bytes} bytes"
                self._bury(token.step)
                return [Log(f"tokens of the unknown step {token.step} were dropped: {text}")]
            self._held += 1
            self._held_bytes += size
            entry.held_bytes += size
        entry.held.append(token)
        return []

    def _forget_early(self, now: float) -> list[Instruction]:
        """Drops tokens whose step has not begun for a long time."""
        out: list[Instruction] = []
        for step, entry in list(self.steps.items()):
            if entry.program is None:
                if entry.since is None:
                    entry.since = now
                elif now - entry.since > thresholds.EARLY_TOKENS:
                    self._bury(step)
                    out.append(Log(f"{len(entry.held)} tokens of step {step} were dropped: it has not begun"))
        return out

    def _bury(self, step: int) -> StepEntry | None:
        """Removes a step and leaves a tombstone."""
        self._tombstones[step] = None
        if len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)
        entry = self.steps.pop(step, None)
        if entry is not None and entry.program is None:
            self._held -= len(entry.held)
            self._held_bytes -= entry.held_bytes
        return entry


def _failed(step: int, parts: Sequence[str], error: BaseException) -> messages.Report:
    data = to_data(error)
    return messages.Report(step, tuple(messages.PartFailed(part, data) for part in parts or ("",)))
