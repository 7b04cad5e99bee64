"""The contract of passes: input, guarantees, order of calls and report.

A pass changes a graph in place. The graph is private to one step. `run` calls a pass for the root graph and for every
graph that an operation owns, innermost first. Before the first pass and after each one the graph is legal;
`HEADRACE_VERIFY=3` verifies this, and an error names the pass and its predecessors. A pass returns exactly whether it
changed the graph: a `Repeat` group runs until none of its passes reports a change, or its limit is reached.

Every pass follows these rules:

* Results, errors and effects stay the same, and so does their order where order is kept. The pass `effects` makes
  effects explicit: a control edge, `control_results` or `PassContext.preserved` states that an operation must run, and
  when. A pass keeps control edges between stateful operations. It may remove data edges without looking at the
  operations behind them.
* In a step that runs in lowered form (`Options.is_lowered`) no value waits for an event for which it did not wait
  before: a pass that joins independent values asks `waiting.have_equal_waits`, and none replaces results of an
  operation that has effects inside (`PassContext.has_parts`).
* A new operation keeps the device and the source line of the operation that it replaces, and also the name if the
  replaced operation is removed.
* Operations that ask for different devices, or are colocated with different operations (`_class`), are never merged.
  An operation gets no type that has no kernel on the type of device that it requests.
* No seed changes, and no random operation is copied.

Each pass has a switch: its name in `Options.off` (`HEADRACE_OPTIMIZE=-name`). The report lists its changes (`fired`),
and the operations that it left alone with the reasons (`refused`).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.ir.function import inside_out, owned
from headrace.ir.graph import FuncGraph
from headrace.optimize.queries import acts, primitives
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ir.graph import Graph, Operation


@record(frozen=True, slots=True)
class Note:
    """One line of the report.

    Attributes:
      rule: the name of the pass, or of one of its rules.
      op: the name of the operation.
      text: the change, or the reason why there was none.
      fired: whether the rule changed something.
    """

    rule: str
    op: str
    text: str
    fired: bool


@record(frozen=True, slots=True)
class Options:
    """Limits and switches of the passes.

    Attributes:
      off: names of the passes that are switched off.
      fold_bytes: the largest size of a constant that folding makes, in bytes.
      stack_bytes: the largest size of one value that loop fission stores for all iterations, in bytes.
      is_lowered: whether the step runs in lowered form: conditionals, loops and calls run part by part, each operation
        as soon as its inputs are available. In a compiled step they run as a whole, one after the other.
      is_partial: whether feeds arrive during the step (partial runs), so that operations wait for them.
    """

    off: frozenset[str] = frozenset()
    fold_bytes: int = 10 << 20
    stack_bytes: int = 256 << 20
    is_lowered: bool = False
    is_partial: bool = False


@record(slots=True)
class PassContext:
    """State that the passes of one step share.

    Attributes:
      options: limits and switches.
      preserved: operations of the root graph that must stay although nothing reads them (the targets of the step).
      explicit: whether effects are explicit (`optimize.effects`): no data edge implies that an operation must run.
      colocated: for an operation that another one replaced, by name: the entries of `_class` that replace its own
        ("loc:@name") in the operations that are colocated with it.
      notes: the report.
      ran: (pass, graph, whether it changed the graph) for each call, in order.
    """

    options: Options = dataclasses.field(default_factory=Options)
    preserved: Sequence[Operation] = ()
    explicit: bool = False
    colocated: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    notes: list[Note] = dataclasses.field(default_factory=list)
    ran: list[tuple[str, str, bool]] = dataclasses.field(default_factory=list)

    def fired(self, rule: str, op: Operation, text: str) -> None:
        """Reports that `rule` changed something at `op`."""
        self.notes.append(Note(rule, op.name, text, True))

    def refused(self, rule: str, op: Operation, why: str) -> None:
        """Reports that `rule` matched `op` and was not applied; `why` is the reason."""
        self.notes.append(Note(rule, op.name, why, False))

    def has_parts(self, op: Operation) -> bool:
        """Whether each result of the structured operation `op` stands for effects inside.

        They do if the step runs in lowered form. Then a pass must not replace results of `op`.
        """
        return self.options.is_lowered and acts(op)

    def preserved_of(self, graph: Graph) -> Sequence[Operation]:
        """Operations of `preserved` that are in `graph`."""
        return [op for op in self.preserved if op.graph is graph]


class Pass(abc.ABC):
    """A change of graphs. Subclasses are stateless.

    Attributes:
      name: the name of its switch.
      whole: whether it is called for the root graph alone, and itself handles the graphs in it.
      grows: whether it may leave more operations than it found.
      is_exact: whether results stay equal bit by bit; if not, floats may be added or multiplied in another order.
    """

    name: ClassVar[str]
    whole: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    is_exact: ClassVar[bool] = True

    @abc.abstractmethod
    def call(self, graph: Graph, context: PassContext) -> bool:
        """Changes `graph`; returns whether it changed.

        Unless the pass is `whole`, graphs that the operations of `graph` own stay as they are.
        """

    def requires(self, graph: Graph) -> str:
        """Reason why the pass cannot run on `graph`; "" if it can.

        By default it cannot if the graph has control-flow primitives: two operations with equal inputs may be in
        different branches, and a new operation without inputs would be in another frame.
        """
        return primitives(graph)

    def ensures(self, graph: Graph) -> None:  # noqa: B027 - most passes promise no more than a legal graph
        """Raises if `graph` breaks the promise of the pass; called where graphs are verified."""


@record(frozen=True, slots=True)
class Repeat:
    """Passes that are repeated until none of them changes anything, at most `limit` times."""

    passes: tuple[Pass, ...]
    limit: int = 8


def run(
    steps: Iterable[Pass | Repeat], graph: Graph, context: PassContext, check: Callable[[Graph], None] | None = None
) -> bool:
    """Runs passes in order over `graph` and the graphs in it; returns whether anything changed.

    Args:
      steps: passes and groups of passes.
      graph: the root graph of a step.
      context: options and report.
      check: called with `graph` after each pass that changed something (`ir.verify.verify`); None: no check.

    Raises:
      Exception: any error of a pass or of the check, with the pass and its predecessors in a note.
    """
    changed = False
    idle: set[Pass] = set()  # the passes without a change since the last change of the graph
    graphs: list[Graph] = []  # those in `graph`, innermost first; none: not known since its last change
    for step in steps:
        group, limit = (step.passes, step.limit) if isinstance(step, Repeat) else ((step,), 1)
        for _ in range(limit):
            if idle.issuperset(group):
                break
            for p in group:
                if p in idle:
                    continue
                graphs = graphs or list(inside_out(graph))
                if _run_one(p, graphs, context, check):
                    changed = True
                    idle.clear()
                    graphs = []
                else:
                    idle.add(p)
    return changed


def _run_one(p: Pass, graphs: Sequence[Graph], context: PassContext, check: Callable[[Graph], None] | None) -> bool:
    if p.name in context.options.off:
        return False
    changed = False
    graph = graphs[-1]
    try:
        for g, why in [(graph, p.requires(graph))] if p.whole else _with_reasons(graphs, p):
            if why:
                context.ran.append((f"{p.name} (skipped: {why})", _title(g), False))
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


def _with_reasons(graphs: Sequence[Graph], p: Pass) -> list[tuple[Graph, str]]:
    """Graphs, innermost first, with the reasons why `p` cannot run on them.

    It cannot run on graphs nested in one on which it cannot run: effects in that graph are not explicit, so that no
    data edge to it may be removed.
    """
    reasons: dict[Graph, str] = {}
    for g in reversed(graphs):  # owners first
        why = reasons.setdefault(g, "") or p.requires(g)
        if why:
            reasons[g] = why
            reasons.update((f, why) for op in g.operations for f in owned(op))
    return [(g, reasons[g]) for g in graphs]


def _title(graph: Graph) -> str:
    return graph.title if isinstance(graph, FuncGraph) else "the step"
