"""State of a step over several parts: begin, end, failure, and deadlock.

`StepState.handle` maps an event to instructions. It has no threads, no clock and no queues: a driver (`execute.parts`
with threads) collects the events of the parts and carries the instructions out. Events and instructions are plain data,
so a driver may also send them between processes. They may then be delayed, permuted and duplicated: every report of a
part has a number (`epoch`), and every order to a part has one too.

**Deadlock.** A part is *idle* if none of its nodes is ready. If all parts are idle, wait for one another only, and no
token is under way, then none will ever be. A part reports `Idle` when it becomes idle, and again when a token arrives
that wakes no node, with the numbers of tokens that it has sent and that have arrived. Two facts make a step stuck:

* the sums of both numbers are equal, and
* a second wave of reports, made after all reports of the first had arrived, has the same numbers.

Between two equal reports a part has neither sent nor received, so it was idle all the time. At the moment between the
two waves all parts were idle at once, and as many tokens had been sent as had arrived. (One wave is not enough: a token
may overtake the report of its sender and make an idle part send another one.) Source: Mattern, "Algorithms for
distributed termination detection" (1987), the four-counter method.

**A stuck step** has an iteration that some part can never complete, which is then ended, the innermost first, as on a
single device (`frames.Propagator.release`). Without such an iteration the step fails with the nodes that wait. A
partial run pauses instead until it gets further feeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from headrace.errors import AbortedError, InternalError
from headrace.records import record

# *** events *** (nothing changes one; `frozen` would take four times as long to make it, several times in each step)


@record(slots=True)
class Begin:
    """The step is to run, or to go on after a pause.

    Attributes:
      number: how often it has begun, this time included.
      is_fed: whether all feeds have been supplied.
    """

    number: int = 1
    is_fed: bool = True


@record(slots=True)
class Idle:
    """A part has no ready node.

    Attributes:
      part: the name of the part.
      epoch: the number of the report; each report of a part has a higher one than its earlier reports.
      order: the number of the last order (`Start`, `Release`) that the part had carried out.
      wave: the number of the last `Probe` that had reached the part.
      sent: number of tokens that the part has sent.
      arrived: number of tokens that have arrived at the part, those without a receiver included.
      releasable: number of frames around its innermost iteration that it could end; 0 without one.
      is_waiting: whether something else than a token of another part can wake it, such as a queue.
      waits: a line for each node that waits, for messages.
    """

    part: str
    epoch: int
    order: int = 1
    wave: int = 0
    sent: int = 0
    arrived: int = 0
    releasable: int = 0
    is_waiting: bool = False
    waits: tuple[str, ...] = ()


@record(slots=True)
class Finished:
    """All nodes of a part have fired. The attributes are those of `Idle`."""

    part: str
    epoch: int
    wave: int = 0
    sent: int = 0
    arrived: int = 0


@record(slots=True)
class Failed:
    """A part has ended with an error, possibly because the step was aborted."""

    part: str
    error: BaseException


@record(slots=True)
class Satisfied:
    """All fetches of a partial run are computed, so that it need not wait.

    Attributes:
      number: the number of the `Begin`.
    """

    number: int = 1


@record(slots=True)
class Cancelled:
    """The step is ended from outside: by its owner, a deadline or an interrupt."""

    error: BaseException


Event: TypeAlias = "Begin | Idle | Finished | Failed | Satisfied | Cancelled"

# *** instructions ***


@record(slots=True)
class Start:
    """Order to a part to run.

    A part ignores an order whose number is not higher than that of the last one.
    """

    part: str
    order: int


@record(slots=True)
class Release:
    """Order to an idle part to end its innermost half-fed iteration, and to go on."""

    part: str
    order: int


@record(slots=True)
class Probe:
    """Request to a part to report again, once it is idle or finished."""

    part: str
    wave: int


@record(slots=True)
class Abort:
    """Request to a part to end with `error`.

    The part then reports `Failed`, unless it has just finished.
    """

    part: str
    error: BaseException


@record(slots=True)
class Pause:
    """The run returns; the parts keep their state until the next `Begin`."""


@record(slots=True)
class End:
    """The step is over, with `error` or with success (None). No instruction follows."""

    error: BaseException | None


Instruction: TypeAlias = "Start | Release | Probe | Abort | Pause | End"


class StepState:
    """The state of a step over several parts. The module describes it.

    Args:
      step: the number of the step, for messages.
      parts: the names of the parts.

    Example:
      >>> state = StepState(1, ["a", "b"])
      >>> state.handle(Begin())
      [Start(part='a', order=1), Start(part='b', order=1)]
      >>> state.handle(Finished("b", 1)), state.handle(Finished("a", 1))
      ([], [End(error=None)])
    """

    def __init__(self, step: int, parts: Sequence[str]) -> None:
        self._step = step
        self._orders = dict.fromkeys(parts, 0)
        self._reports: dict[str, Idle | Finished] = {}  # the newest of each part since its last order
        self._over: set[str] = set()
        self._begun = 0
        self._is_fed = True
        self._is_running = self._is_satisfied = self._is_ended = False
        self._wave = 0
        self._asked: list[tuple[int, int]] | None = None  # the numbers of the reports before this wave
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """The error with which the step fails, from its first failure on."""
        return self._error

    @property
    def open_parts(self) -> tuple[str, ...]:
        """Names of the parts that are not over."""
        return tuple(part for part in self._orders if part not in self._over)

    def handle(self, event: Event) -> list[Instruction]:
        """Returns the instructions that follow from `event`, in their order."""
        if self._is_ended:
            return []
        if isinstance(event, (Idle, Finished)):
            return self._report(event)
        if isinstance(event, Begin):
            return self._begin(event)
        if isinstance(event, Satisfied):
            self._is_satisfied = event.number == self._begun
            return self._settle()
        if isinstance(event, Failed):
            self._over.add(event.part)
        elif not self._is_running:  # no part will report
            self._over.update(self._orders)
        return [*self._fail(event.error), *self._end()]

    def _begin(self, event: Begin) -> list[Instruction]:
        if event.number != self._begun + 1 or self._is_running:
            return []
        self._begun, self._is_fed = event.number, event.is_fed
        self._is_running, self._is_satisfied, self._asked = True, False, None
        return [self._order(Start, part) for part in self._orders if part not in self._over] or self._end()

    def _order(self, kind: type[Start | Release], part: str) -> Start | Release:
        order = self._orders[part] = self._orders[part] + 1
        self._reports.pop(part, None)  # from before the order
        self._asked = None
        return kind(part, order)

    def _report(self, report: Idle | Finished) -> list[Instruction]:
        part = report.part
        before = self._reports.get(part)
        if before is not None and report.epoch <= before.epoch:
            return []  # it was overtaken, or it is a duplicate
        if isinstance(report, Finished):
            self._over.add(part)
        elif part in self._over or report.order < self._orders[part]:
            return []  # it is from before an order, or before the end
        self._reports[part] = report
        return self._end() or self._settle()

    def _end(self) -> list[Instruction]:
        if len(self._over) < len(self._orders):
            return []
        self._is_ended = True
        return [End(self._error)]

    def _settle(self) -> list[Instruction]:
        """Pauses a satisfied run, and resolves a deadlock."""
        if len(self._reports) < len(self._orders) or self._error is not None or not self._is_running:
            return []
        reports = [self._reports[part] for part in self._orders]
        idle = [r for r in reports if isinstance(r, Idle)]
        if self._is_satisfied:
            return self._pause()
        counts = [(r.sent, r.arrived) for r in reports]
        if any(r.is_waiting for r in idle) or sum(s for s, _ in counts) != sum(a for _, a in counts):
            return []
        if self._asked != counts:
            self._asked = counts
            self._wave += 1
            return [Probe(part, self._wave) for part in self._orders]
        if any(r.wave < self._wave for r in reports):
            return []
        if not self._is_fed:
            return self._pause()
        innermost = max(idle, key=lambda r: r.releasable)
        if innermost.releasable:
            return [self._order(Release, innermost.part)]
        return self._fail(self._stuck(idle))

    def _pause(self) -> list[Instruction]:
        self._is_running = False
        return [Pause()]

    def _fail(self, error: BaseException) -> list[Instruction]:
        if self._error is not None:
            return []
        self._error = error
        ended = AbortedError(f"step {self._step} failed on another device: {error}")
        return [Abort(part, ended) for part in self._orders if part not in self._over]

    def _stuck(self, idle: Sequence[Idle]) -> InternalError:
        waits = waiting_lines({r.part: r.waits for r in idle})
        return InternalError(
            f"step {self._step} cannot continue: every device waits for another{waits}\n"
            "In a loop every NextIteration must fire alive in the same iterations."
        )


def waiting_lines(waits: Mapping[str, Sequence[str]]) -> str:
    """Returns a clause with the lines about waiting nodes of each part; "" without any."""
    lines = [f"{part}:\n" + "\n".join(of) for part, of in waits.items() if of]
    return "; it waits for\n" + "\n".join(lines) if lines else ""
