"""The contract of passes: what a pass is, what it may rely on, what it must keep, and how it tells what it did.

A pass changes a graph that is private to one step, in place. `run` gives it the root graph and, innermost first, every
graph that an operation owns; before the first and after each pass the graph is legal (`HEADRACE_VERIFY=3` makes sure,
and an error names the pass and those before it). A pass says truthfully whether it changed anything: a `Repeat` group
goes round until none of its passes does, and no more often than its limit.

Rules, whatever the pass:

* the same results, errors and effects, in the same order where order is kept. The pass `effects` has made these
  explicit: a control edge, `control_results` or `PassContext.preserved` says what must run, and when. A pass keeps
  control edges between stateful operations; data edges it may take away without looking what is behind them;
* a new operation keeps the device and the source line of the one it stands for, and its name if that one goes;
* operations that ask for different devices are never merged;
* no seed changes, and no random operation is copied.

Each pass has a switch: its name in `Options.off` (`HEADRACE_OPTIMIZE=-name`). What it did, and what it left alone and
why, is in the report (`fired`, `refused`).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.ir.function import inside_out
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ir.graph import Graph, Operation


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """One line of the report.

    Attributes:
      rule: the pass, or the rule of it.
      op: the name of the operation.
      text: what was done, or why it was not.
      fired: which of the two.
    """

    rule: str
    op: str
    text: str
    fired: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What passes may do.

    Attributes:
      off: names of the passes that are switched off.
      fold_bytes: folding makes no constant larger than this.
      stack_bytes: loop fission keeps no more than this of one value.
    """

    off: frozenset[str] = frozenset()
    fold_bytes: int = 10 << 20
    stack_bytes: int = 256 << 20


@dataclasses.dataclass(slots=True)
class PassContext:
    """What the passes of one step share.

    Attributes:
      options: what they may do.
      preserved: operations of the root graph that must stay though nothing reads them (the step's targets).
      explicit: whether effects are explicit (`optimize.effects`): no data edge says that one has to run.
      notes: the report.
      ran: (pass, graph, whether it changed anything) in order.
    """

    options: Options = dataclasses.field(default_factory=Options)
    preserved: Sequence[Operation] = ()
    explicit: bool = False
    notes: list[Note] = dataclasses.field(default_factory=list)
    ran: list[tuple[str, str, bool]] = dataclasses.field(default_factory=list)

    def fired(self, rule: str, op: Operation, text: str) -> None:
        """Reports that `rule` changed something at `op`."""
        self.notes.append(Note(rule, op.name, text, True))

    def refused(self, rule: str, op: Operation, why: str) -> None:
        """Reports that `rule` could have applied to `op` but for `why`."""
        self.notes.append(Note(rule, op.name, why, False))

    def preserved_of(self, graph: Graph) -> Sequence[Operation]:
        """Those of `preserved` that are in `graph`."""
        return [op for op in self.preserved if op.graph is graph]


class Pass(abc.ABC):
    """One change of graphs. Subclasses are stateless.

    Attributes:
      name: its switch.
      whole: whether it is called for the root graph alone, and sees to the graphs in it itself.
      grows: whether it may leave more operations than it found.
      is_exact: whether results stay the same to the bit; else floats may be added or multiplied in another order.
    """

    name: ClassVar[str]
    whole: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    is_exact: ClassVar[bool] = True

    @abc.abstractmethod
    def call(self, graph: Graph, context: PassContext) -> bool:
        """Changes `graph` (unless `whole`, not those that its operations own); returns whether it did."""

    def requires(self, graph: Graph) -> str:
        """Why the pass cannot run on `graph`; "" if it can."""
        return ""

    def ensures(self, graph: Graph) -> None:  # noqa: B027 - most promise nothing besides a legal graph
        """Raises if `graph` lacks what the pass promises; called where graphs are verified."""


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """Passes that go round until none of them changes anything, at most `limit` times."""

    passes: tuple[Pass, ...]
    limit: int = 8


def run(
    steps: Iterable[Pass | Repeat], graph: Graph, context: PassContext, check: Callable[[Graph], None] | None = None
) -> bool:
    """Runs passes over `graph` and all that is in it, in order; returns whether anything changed.

    Args:
      steps: passes and groups of passes.
      graph: the root graph of a step.
      context: options and report.
      check: called after each pass that changed something (`ir.verify.verify`); None: not.

    Raises:
      Whatever a pass or the check raises, with the pass and those before it in its notes.
    """
    changed = False
    idle: set[Pass] = set()  # those that had nothing to do, and nothing has changed since
    for step in steps:
        group, limit = (step.passes, step.limit) if isinstance(step, Repeat) else ((step,), 1)
        for _ in range(limit):
            if idle.issuperset(group):
                break
            for p in group:
                if p in idle:
                    continue
                if _run_one(p, graph, context, check):
                    changed = True
                    idle.clear()
                else:
                    idle.add(p)
    return changed


def _run_one(p: Pass, graph: Graph, context: PassContext, check: Callable[[Graph], None] | None) -> bool:
    if p.name in context.options.off:
        return False
    changed = False
    try:
        for g in [graph] if p.whole else inside_out(graph):
            why = p.requires(g)
            if why:
                context.ran.append((f"{p.name} (not: {why})", _title(g), False))
                continue
            mine = p.call(g, context)
            context.ran.append((p.name, _title(g), mine))
            changed |= mine
            if check is not None:
                p.ensures(g)
        if changed and check is not None:
            check(graph)
    except Exception as e:
        before = list(dict.fromkeys(name for name, _, _ in context.ran if name != p.name))
        e.add_note(f"in the pass {p.name!r}, after {', '.join(before) or 'none'}")
        raise
    return changed


def _title(graph: Graph) -> str:
    return graph.title if isinstance(graph, FuncGraph) else "the step"
