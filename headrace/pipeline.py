"""From a graph, feeds and fetches to something that runs: the stages of a step, in order. No other module decides
order."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.compile import Compiled, compile_graph
from headrace.compile.blockers import blockers
from headrace.compile.clusters import Cluster, apart, contract, show
from headrace.errors import GraphError, InvalidArgumentError, OpError
from headrace.execute.plan import Plan, make_plan, may_be_heavy
from headrace.grad.differentiate import differentiate
from headrace.ir.device import DeviceSpec
from headrace.ir.dumps import Dumps
from headrace.ir.editing import Editor, own_bodies
from headrace.ir.function import FuncGraph, bodies
from headrace.ir.infer import constant_value
from headrace.ir.naming import name_as_lowered
from headrace.lower import is_structured, lower
from headrace.optimize.base import Context
from headrace.optimize.pipeline import optimize, options_from
from headrace.prune import Pruned, prune
from headrace.recover import recover

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Devices:
    """The devices a session has, and whether an op that asks for another may run on these.

    Attributes:
      counts: how many devices there are of each type.
      soft: `allow_soft_placement`.
    """

    counts: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"CPU": 1})
    soft: bool = True


class CompiledStep:
    """A step as the session keeps it. What runs it is made when it is first asked for.

    Args:
      feeds, fetches, targets: of the user's graph.
      devices: those that the session has.
      engine: "interpret", "compiled" or "auto", see `compile_step`.
    """

    def __init__(
        self,
        feeds: Sequence[Tensor],
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        devices: Devices,
        engine: str,
    ) -> None:
        self._ends = feeds, fetches, targets
        self._devices = devices
        self._engine = engine
        self._pruned: Pruned | None = None
        self._plan: Plan | None = None
        self._clustered: Plan | None = None
        self._clusters: tuple[Cluster, ...] = ()
        self._outcome: Outcome | None = None
        self._dumps = Dumps()
        self._lock = threading.Lock()

    @property
    def pruned(self) -> Pruned:
        """The part of the user's graph that the step needs, its ends explicit; nothing else was done to it."""
        if self._pruned is None:
            self._pruned = self._prune()
        return self._pruned

    @property
    def plan(self) -> Plan:
        """The step for the token machine, each operation a node."""
        if self._plan is None:
            self._plan = make_plan(*self._primitive(self.pruned))
        return self._plan

    @property
    def clustered(self) -> Plan:
        """The step for the token machine, straight-line regions compiled into single nodes if the engine is "auto"."""
        if self._engine != "auto":
            return self.plan
        if self._clustered is None:
            self._clustered, self._clusters = _clustered(*self._primitive(self._prune()))
            self._dumps.text("clusters.py", "\n".join(f"# {show([c])}\n{c.source}" for c in self._clusters))
        return self._clustered

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters of `clustered`."""
        self.clustered  # noqa: B018 - which makes them
        return self._clusters

    @property
    def apart(self) -> Mapping[str, Sequence[Operation]]:
        """The operations that are nodes of their own in `clustered`, by the reason; none if it makes no clusters."""
        if self._engine != "auto":
            return {}
        return apart(dict.fromkeys(n.op for n in self.clustered.nodes), may_be_heavy)

    @property
    def outcome(self) -> Outcome:
        """What compiling gave.

        Raises:
          InvalidArgumentError: the engine is to be "compiled", and the step cannot be.
        """
        if self._outcome is None:
            with self._lock:
                if self._outcome is None:
                    self._outcome = self._compile() if self._engine != "interpret" else Outcome()
        return self._outcome

    @property
    def compiled(self) -> Compiled | None:
        """The step as one Python function; None: the token machine runs it."""
        outcome = self._outcome  # asked at every run
        return self.outcome.compiled if outcome is None else outcome.compiled

    def _prune(self) -> Pruned:
        pruned = prune(*self._ends)  # 1. what the step needs, its ends explicit
        _checkpoint(pruned.graph)
        _check_devices(pruned.graph.operations, self._devices)  # 2. every op has a device it may run on
        if self._dumps.is_empty:  # what runs the step and what is compiled of it both begin here
            self._dumps.graph("pruned", pruned.graph)
        return pruned

    def _primitive(self, pruned: Pruned) -> tuple[Sequence[Operation], Mapping[str, Sequence[Operation]]]:
        """The step as the token machine knows it: its operations, and those of the functions it calls."""
        if not is_structured(pruned.graph.operations):
            return pruned.graph.operations, {}
        # conditionals, loops and calls become primitives
        lowered = lower(pruned.graph, _kept(pruned, self._ends[2]), differentiate)
        _checkpoint(lowered.graph)
        self._dumps.graph("lowered", lowered.graph)
        for name, ops in lowered.functions.items():
            self._dumps.graph(f"lowered-{name}", ops[0].graph)
        return lowered.ops, lowered.functions

    def _compile(self) -> Outcome:
        mine = self._prune()
        kept = _kept(mine, self._ends[2])
        fed = [t for t in self._ends[0] if constant_value(t) is not None]
        reasons = [f"'{t.name}' is fed, and shapes in the graph were inferred from the value it has there" for t in fed]
        reasons = reasons or _make_structured(mine, kept, self._dumps)  # 3. primitives become structured
        reasons = reasons or blockers(mine.graph.operations)
        if not reasons:
            try:
                report = _optimized(mine.graph, kept, self._dumps)  # 4. the same by less work
                compiled = compile_graph(mine.graph, mine.args, mine.retvals, report.kept, differentiate)  # 5.
            except RecursionError:
                reasons = ["its conditionals, loops and calls are nested too deeply in one another"]
            else:
                self._dumps.text("source.py", compiled.source)
                return Outcome(compiled, (), report)
        self._dumps.text("not-compiled.txt", "".join(f"# {line}\n" for r in reasons for line in r.splitlines()))
        if self._engine == "compiled":
            raise InvalidArgumentError("this step cannot be compiled: " + "; ".join(reasons))
        return Outcome(None, tuple(reasons), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What compiling a step gave.

    Attributes:
      compiled: the step as one Python function; None: the token machine runs it.
      reasons: why it is not compiled, a line for each operation that stands against it.
      report: what the passes did before it was compiled.
    """

    compiled: Compiled | None = None
    reasons: tuple[str, ...] = ()
    report: Context | None = None


def compile_step(
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    devices: Devices,
    engine: str = "interpret",
) -> CompiledStep:
    """The step that is fed `feeds`, fetches `fetches` and runs `targets`.

    Args:
      engine: "interpret": the token machine; "compiled": one Python function, or an error; "auto": that if it can be.

    Raises (it, or the first use of the step):
      InvalidArgumentError: the frames of the graph do not fit together, a device is not there, or the engine is to be
        "compiled" and the step cannot be.
      GraphError: the graph is not legal.
    """
    step = CompiledStep(feeds, fetches, targets, devices, engine)
    if engine == "interpret":
        step.plan  # noqa: B018 - errors now, not at the first run
    return step


def _kept(pruned: Pruned, targets: Sequence[Operation]) -> list[Operation]:
    """The targets, in the step's graph."""
    return [op for t in targets if (op := pruned.graph.find(t.name)) is not None]


def _make_structured(pruned: Pruned, kept: Sequence[Operation], dumps: Dumps) -> list[str]:
    """Puts structured operations in the place of the primitives of a step; returns why it cannot."""
    graph = pruned.graph
    if not any(op.opdef.primitive not in ("", "ControlTrigger") for op in graph.operations):
        return []
    try:
        recover(graph, [op.inputs[0] for op in pruned.retvals], kept)
    except (OpError, GraphError) as e:
        return [f"not recovered: {e}"]
    Editor(graph, kept).sweep()
    dumps.graph("recovered", graph)
    return []


def _optimized(graph: Graph, kept: Sequence[Operation], dumps: Dumps) -> Context:
    """The passes over a step's graph, and the graphs in it."""
    own_bodies(graph)
    check = _checkpoint if flags.VERIFY.value > 2 else None
    context = optimize(graph, kept, options_from(flags.OPTIMIZE.value), check, dumps.graph if dumps else None)
    name_as_lowered(graph)
    _checkpoint(graph)
    return context


def _clustered(
    ops: Sequence[Operation], functions: Mapping[str, Sequence[Operation]]
) -> tuple[Plan, tuple[Cluster, ...]]:
    """The plan of a step, which nobody else has, with clusters as single nodes."""
    ops, found = contract(ops, may_be_heavy)
    called = {}
    for name, body in functions.items():
        called[name], more = contract(body, may_be_heavy)
        found += more
    for c in found[:1]:
        _checkpoint(c.op.graph)
    return make_plan(ops, called), tuple(found)


def _checkpoint(graph: Graph) -> None:
    """Between two stages: the graph is legal (HEADRACE_VERIFY)."""
    if flags.VERIFY.value >= 1:
        from headrace.ir.verify import verify  # brings the wire format, which takes long to import

        verify(graph)


def _check_devices(ops: Sequence[Operation], devices: Devices) -> None:
    if devices.soft:
        return
    for op in _nested(ops):
        if op.device:
            spec: Any = DeviceSpec.from_string(op.device)
            have = devices.counts.get(spec.type or "CPU", 0)
            if not have or (spec.index is not None and spec.index >= have):
                there = ", ".join(f"{n} x {t}" for t, n in devices.counts.items() if n)
                raise InvalidArgumentError(
                    f"Cannot assign a device for operation {op.name}: it asks for {op.device!r}, and this session has "
                    f"{there}. Set allow_soft_placement to run it on a device that is there.",
                    op.name,
                    op,
                )


def _nested(ops: Iterable[Operation]) -> Iterator[Operation]:
    """`ops`, and those of the graphs that they own or call."""
    seen: set[FuncGraph] = set()
    todo = [ops]
    while todo:
        for op in todo.pop():
            yield op
            if op.opdef.structured:
                graphs = [g for _, g in bodies(op) if g not in seen]
                seen.update(graphs)
                todo += [g.operations for g in graphs]
