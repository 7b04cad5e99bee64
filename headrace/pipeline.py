"""Pipeline of a step: its stages from the user's graph to a program.

Every step is pruned first. The pruned graph is then either compiled to one Python function (recover, optimize, compile)
or planned for the executor (lower, place and partition for several devices, fuse regions, plan). A stage runs when its
result is first used. The order of the optimizer's passes is decided in `optimize.pipeline`.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headrace import flags, forking, notices, thresholds
from headrace.compile import Compiled, compile_graph
from headrace.compile.blockers import blockers, too_large
from headrace.compile.fallback import Failure
from headrace.compile.fused_kernels import Prepare
from headrace.compile.fused_regions import FusedRegion, apart, fuse_regions, show, waits
from headrace.compile.outlining import select_outlined
from headrace.compile.variants import Variants
from headrace.compile_result import CompileResult, not_compiled
from headrace.environment import Environment
from headrace.errors import GraphError, InvalidArgumentError, OpError
from headrace.execute.plan import Plan, is_heavy, make_plan, may_be_heavy
from headrace.gc_pause import paused
from headrace.grad.differentiate import differentiate
from headrace.ir.analysis.graph_size import check_expansion
from headrace.ir.analysis.signature_check import check_fits
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor, own_bodies
from headrace.ir.edit.lowered_names import name_as_lowered
from headrace.ir.function import nested_operations
from headrace.ir.infer import constant_value
from headrace.ir.kernel import CPU
from headrace.ir.notes import CountedResidual, ResidualPush
from headrace.ir.text.dumps import Dumps
from headrace.lower import Lowered, is_structured, lower
from headrace.lower.collectives import expand_collectives
from headrace.optimize.base import Options, PassContext
from headrace.optimize.pipeline import names, optimize, options_from
from headrace.optimize.specialize import specialize
from headrace.partition import partition
from headrace.place import Placement, place
from headrace.place.requests import check_devices, inherit_devices, owns_state
from headrace.prune import Pruned, prune
from headrace.recover import recover

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionedStep:
    """A step over several devices.

    Attributes:
      plans: for each device, by name, the plan of its part for the executor.
      fused_regions: fused regions of these plans.
    """

    plans: Mapping[str, Plan]
    fused_regions: tuple[FusedRegion, ...] = ()


class CompiledStep:
    """A step in the session's cache. Its programs are built on first use.

    Args:
      feeds: fed tensors of the user's graph.
      fetches: fetched tensors of the user's graph.
      targets: target operations of the user's graph.
      environment: the devices of the target, with the facts that its steps share.
      engine: "interpret", "compiled" or "auto", see `compile_step`.

    Attributes:
      failures: failures to compile the step or its fused regions.
    """

    def __init__(
        self,
        feeds: Sequence[Tensor],
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        environment: Environment,
        engine: str,
    ) -> None:
        self._ends = feeds, fetches, targets
        self._environment = environment
        self._engine = engine
        self._pruned: Pruned | None = None
        self._spare: list[Pruned] = []  # a pruned graph that no stage has changed, at most one
        self._has_structure: bool | None = None  # whether there are loops or conditionals
        self._plan: Plan | None = None
        self._fused_plan: Plan | None = None
        self._fused_regions: tuple[FusedRegion, ...] = ()
        self._is_apart = may_be_heavy
        self._result: CompileResult | None = None
        self._variants: Variants[CompileResult] | None = None
        self._fixed: CompileResult | None = None  # the result, if it does not depend on the feeds' shapes
        self._placed: tuple[Placement, Sequence[Operation], Mapping[str, Sequence[Operation]]] | None = None
        self._is_divided: bool | None = None
        self._divided: dict[bool, PartitionedStep] = {}
        self._dumps = Dumps()
        self.failures: list[Failure] = []  # of compiling the step or its fused regions
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.Lock()

    @property
    def pruned(self) -> Pruned:
        """Copy of the subgraph that the step needs, with explicit feeds and fetches."""
        if self._pruned is None:
            self._pruned = self._prune()
        return self._pruned

    @property
    def plan(self) -> Plan:
        """Plan of the step with one node for each operation."""
        if self._plan is None:
            with paused():
                self._plan = make_plan(*self._primitive(self.pruned))
        return self._plan

    @property
    def fused_plan(self) -> Plan:
        """Plan of the step, with fused regions as single nodes if the engine is "auto"."""
        if self._engine != "auto":
            return self.plan
        if self._fused_plan is None:
            self._fused_plan, self._fused_regions = self._fused_or_plain()
            self._dumps.text("fused_regions.py", "\n".join(f"# {show([c])}\n{c.source}" for c in self._fused_regions))
        return self._fused_plan

    @property
    def fused_regions(self) -> tuple[FusedRegion, ...]:
        """Fused regions of the plans that run the step."""
        if self.is_divided:
            return self.divided().fused_regions
        self.fused_plan  # noqa: B018 - the access creates them
        return self._fused_regions

    @property
    def apart(self) -> Mapping[str, Sequence[Operation]]:
        """Operations outside of fused regions, by reason; none if the engine fuses no regions."""
        if self._engine != "auto":
            return {}
        plans = self.divided().plans.values() if self.is_divided else [self.fused_plan]
        return apart(dict.fromkeys(n.op for plan in plans for n in plan.nodes), self._is_apart)

    @property
    def is_divided(self) -> bool:
        """Whether the step runs on several devices."""
        if self._is_divided is None:  # read at every run
            used = set(self.placement.of.values()) if len(self._environment.names) > 1 else set()
            self._is_divided = len(used) > 1 or any(not _is_cpu(device) for device in used)
        return self._is_divided

    @property
    def placement(self) -> Placement:
        """Devices of the operations of the step, in primitive form."""
        if self._placed is None:
            self._placed = self._place()
        return self._placed[0]

    @property
    def moved(self) -> Mapping[Operation, str]:
        """Reasons of operations not placed where requested, if the session has several devices."""
        return self.placement.reasons if len(self._environment.names) > 1 else {}

    def divided(self, is_seen: bool = False) -> PartitionedStep:
        """Returns the plans of a step over several devices.

        Args:
          is_seen: whether each operation is a node, so that a listener can observe it.
        """
        is_fused = self._engine == "auto" and not is_seen
        with self._lock:
            if is_fused not in self._divided:
                try:
                    self._divided[is_fused] = self._divide(is_fused)
                except Exception as e:
                    if not is_fused:
                        raise
                    self._divided[is_fused] = self._divide(False)
                    self._failed("fused_regions", e)
        return self._divided[is_fused]

    @property
    def result(self) -> CompileResult:
        """Result of compiling the step.

        Raises:
          InvalidArgumentError: the engine is "compiled" and the step cannot be compiled.
        """
        if self._result is None:
            with self._lock:
                if self._result is None:
                    self._result = self._compile() if self._engine != "interpret" else CompileResult()
        return self._result

    @property
    def compiled(self) -> Compiled | None:
        """The step as one Python function; None if the executor runs it."""
        result = self._result  # read at every run
        return self.result.compiled if result is None else result.compiled

    def compiled_for(self, fed: Sequence[Any]) -> Compiled | None:
        """Returns the Python function for the values `fed`; None if the executor runs the step."""
        if self._fixed is not None:  # read at every run
            return self._fixed.compiled
        variants = self._variants or self._find_variants()
        result = variants.find(fed) if variants.open else None
        if result is not None:
            return result.compiled
        self._fixed = None if variants.open else self.result
        return self.compiled

    @property
    def engine(self) -> str:
        """Engine of the runs so far: "compiled", "interpret", or "" before the first run.

        Reading it compiles nothing.
        """
        if self._variants is not None and self._variants.made:
            return "compiled"
        result = self._result
        return "" if result is None else "interpret" if result.compiled is None else "compiled"

    @property
    def variants(self) -> Mapping[tuple[Shape, ...], CompileResult]:
        """Results of compiling, by the shapes of the feeds whose static shapes are incomplete."""
        return {} if self._variants is None else dict(self._variants.made.items())

    def _find_variants(self) -> Variants[CompileResult]:
        wanted = self._engine != "interpret" and flags.OPTIMIZE.value != "off" and not self.is_divided
        if wanted and self._has_structure is None:
            self._spare.append(self._prune())
        wanted = wanted and bool(self._has_structure)
        self._variants = Variants(self._ends[0] if wanted else (), self._compile_for)
        return self._variants

    def _compile_for(self, known: Mapping[int, Shape]) -> CompileResult | None:
        result = self._compile(known)
        if result.compiled is not None:
            return result
        self._result = result  # the same for all shapes
        return None

    def _take_pruned(self) -> Pruned:
        """Returns a pruned graph for a stage that changes it."""
        try:
            return self._spare.pop()
        except IndexError:
            return self._prune()

    @paused()
    @notices.timed("prune")
    def _prune(self) -> Pruned:
        pruned = prune(*self._ends)  # 1. the subgraph of the step, with explicit feeds and fetches
        check_expansion(pruned.graph.operations)
        self._has_structure = any(op.opdef.structured or op.type == "Enter" for op in pruned.graph.operations)
        _checkpoint(pruned.graph)
        if len(self._environment.names) == 1:
            # 2. every op has a device that it may run on
            check_devices(pruned.graph.operations, self._environment.names, self._environment.options.soft)
        if self._dumps.is_empty:  # executor and compiler prune separately; the first graph is dumped
            self._dumps.graph("pruned", pruned.graph)
        return pruned

    @notices.timed("lower")
    def _primitive(self, pruned: Pruned) -> tuple[Sequence[Operation], Mapping[str, Sequence[Operation]]]:
        """Returns the operations in primitive form, and those of the functions called."""
        lowered = lowered_form(pruned, self._ends[2])
        self._count([*lowered.ops, *itertools.chain(*lowered.functions.values())])
        if lowered.graph is not pruned.graph:
            _checkpoint(lowered.graph)
            self._dumps.graph("lowered", lowered.graph)
        for name, ops in lowered.functions.items():
            self._dumps.graph(f"lowered-{name}", ops[0].graph)
        return lowered.ops, lowered.functions

    @paused()
    def _fused_or_plain(self) -> tuple[Plan, tuple[FusedRegion, ...]]:
        """Returns the plan with fused regions as nodes; without any if fusing fails."""
        try:
            return self._fused()
        except Exception as e:
            self._failed("fused_regions", e)
            return self.plan, ()

    def _fused(self) -> tuple[Plan, tuple[FusedRegion, ...]]:
        """Returns the plan with fused regions as single nodes."""
        mine = self._take_pruned()
        ops = mine.graph.operations
        if not self._fed and any(op.opdef.structured or op.opdef.primitive for op in ops) and not too_large(ops):
            lowered = self._nested(mine)
            if lowered is not None:
                # a product of unknown size between a loop and its gradient would separate them
                has_loops = any(op.opdef.structured == "While" for op in lowered.left)
                is_apart = is_heavy if has_loops else may_be_heavy
                made = _with_fused_regions(lowered.ops, lowered.functions, is_apart, self._prepared)
                self._is_apart = is_apart
                return made
            mine = self._prune()
        return _with_fused_regions(*self._primitive(mine))

    @notices.timed("lower")
    def _nested(self, mine: Pruned) -> Lowered | None:
        """Returns the primitive form, except for loops and conditionals that fused regions can contain.

        None if there are no such loops and conditionals.
        """
        graph, preserved = mine.graph, _preserved(mine, self._ends[2])
        if _make_structured(mine, preserved) or any(map(_is_control, graph.operations)):
            return None
        check_fits(graph.operations)
        own_bodies(graph)
        # lowering drops operations without consumers; so bodies that stay structured must not have them either
        preserved = list(optimize(graph, preserved, Options(off=frozenset(names()) - {"prune"})).preserved)
        name_as_lowered(graph)
        lowered = select_outlined(
            lambda is_outlined: lower(graph, preserved, differentiate, is_outlined), may_be_heavy, waits
        )
        if lowered is None:
            return None
        self._count([*lowered.ops, *itertools.chain(*lowered.functions.values())])
        _checkpoint(lowered.graph)
        self._dumps.graph("lowered", lowered.graph)
        return lowered

    def _prepared(self, graph: Graph, preserved: Sequence[Operation], known: Mapping[Tensor, Shape]) -> PassContext:
        """Runs the passes over a fused region's graph; `known` has shapes of its inputs."""
        context = _optimized(graph, preserved, None, self._environment.has_limit, known)
        self._count(graph.operations)
        return context

    @property
    def _fed(self) -> list[str]:
        """Reasons against relying on static shapes: a line for each fed constant tensor."""
        fed = [t for t in self._ends[0] if constant_value(t) is not None]
        return [f"'{t.name}' is fed, and shapes in the graph were inferred from the value it has there" for t in fed]

    @property
    def _is_ordered(self) -> bool:
        """Whether the user's graph orders its stateful operations (`ir.order`)."""
        feeds, fetches, targets = self._ends
        return any(op.graph.order is not None for op in (*(t.op for t in (*feeds, *fetches)), *targets))

    def _spread(self) -> tuple[Sequence[Operation], Mapping[str, Sequence[Operation]]]:
        """Returns the primitive form with collectives expanded, for several devices."""
        ops, functions = self._primitive(self._prune())
        return expand_collectives(ops), functions

    def _count(self, ops: Iterable[Operation]) -> None:
        """Marks the accumulators of loops in a private graph as counted, if memory is limited."""
        if self._environment.has_limit:
            for op in nested_operations(ops):
                if ResidualPush in op.notes:
                    Editor(op.graph).add_note(op, CountedResidual())

    @paused()
    @notices.timed("place")
    def _place(self) -> tuple[Placement, Sequence[Operation], Mapping[str, Sequence[Operation]]]:
        """Returns the placement, the operations, and those of the functions called."""
        environment, options = self._environment, self._environment.options
        ops, functions = self._spread()
        feeds, fetches, targets = self._ends
        inherit_devices(ops, [*(t.op for t in (*feeds, *fetches)), *targets][0].graph)
        while True:
            homes = {op: home for op in ops if (home := environment.home(op.name)) is not None}
            found = place(
                ops,
                environment.cluster,
                soft=options.soft,
                costs=environment.costs(),
                first=homes,
                functions=functions,
            )
            if environment.claim({op.name: found.of[op] for op in ops if owns_state(op)}):
                break  # else a step of another thread was placed in the meantime
        if options.log is not None:
            options.log(found)
        elif notices.listener("placement", notices.INFO) is not None:
            n = Counter(found.of.values())
            notices.inform("placement", ["a step of " + ", ".join(f"{n[d]} operations on {d}" for d in sorted(n))])
        return found, ops, functions

    def _seconds(self, ops: Sequence[Operation], of: Mapping[Operation, str]) -> Mapping[Operation, float] | None:
        """Returns the seconds of operations; None if all are shorter than delaying a Recv."""
        if not self._environment.options.recv_scheduling:
            return None
        costs, models = self._environment.costs(), {d.name: d for d in self._environment.cluster.devices}
        seconds = {op: costs.seconds(op, models[of[op]]) for op in ops}
        return seconds if max(seconds.values(), default=0.0) >= thresholds.LONG_OPERATION else None

    @paused()
    @notices.timed("partition and plan")
    def _divide(self, is_fused: bool) -> PartitionedStep:
        self._placed = self._placed or self._place()
        placement, ops, functions = self._placed
        of = placement.of
        bfloat16 = self._environment.options.bfloat16
        parts = partition(ops, of, functions=functions, bfloat16=bfloat16, costs=self._seconds(ops, of))
        found: list[FusedRegion] = []
        plans = {}
        for name, part in parts.items():
            _checkpoint(part.graph)
            self._dumps.graph(f"part-{name.rpartition(':device:')[2].replace(':', '-')}", part.graph)
            mine, called = part.ops, part.called
            if is_fused and _is_cpu(name):  # compiled code is for CPUs only
                mine = _contract(mine, found)
                called = {f: _contract(body, found) for f, body in called.items()}
            plans[name] = make_plan(mine, called, name)
        return PartitionedStep(plans, tuple(found))

    @paused()
    @notices.timed("compile, all in all")
    def _compile(self, known: Mapping[int, Shape] = MappingProxyType({})) -> CompileResult:
        """Compiles the step; `known` has shapes of feeds, by position."""
        if self.is_divided:
            used = set(self.placement.of.values())
            reasons = [f"it runs on {len(used)} devices" if len(used) > 1 else f"it runs on {min(used)}"]
            if self._engine == "compiled":
                raise InvalidArgumentError(not_compiled(reasons))
            return CompileResult(None, tuple(reasons), None)
        mine = self._take_pruned()
        preserved = _preserved(mine, self._ends[2])
        is_changed = any(map(_is_control, mine.graph.operations))
        stage = "recover"
        try:
            reasons = self._fed or _make_structured(mine, preserved, self._dumps)  # 3. primitives become structured
            reasons = reasons or blockers(mine.graph.operations, self._is_ordered) or too_large(mine.graph.operations)
            if reasons and not is_changed:
                self._spare = [mine]  # the executor can use it
            if not reasons:
                stage = "optimize"
                fits = {mine.args[i].outputs[0]: shape for i, shape in known.items()}
                report = _optimized(
                    mine.graph, preserved, self._dumps, self._environment.has_limit, fits
                )  # 4. by less work
                self._count(mine.graph.operations)
                stage = "compile"
                compiled = compile_graph(mine.graph, mine.args, mine.retvals, report.preserved, differentiate)  # 5.
                self._dumps.text("source.py", compiled.source)
                return CompileResult(compiled, (), report)
        except Exception as e:
            reasons = [str(self._failed(stage, e))]
        self._dumps.text("not-compiled.txt", "".join(f"# {line}\n" for r in reasons for line in r.splitlines()))
        if self._engine == "compiled":
            raise InvalidArgumentError(not_compiled(reasons))
        return CompileResult(None, tuple(reasons), None)

    def _failed(self, stage: str, error: Exception) -> Failure:
        """Records a failure to compile, if the program itself is correct.

        Raises:
          OpError, GraphError: the executor's plan finds an error in the program.
          HeadraceInternalError: the engine is "compiled".
        """
        failure = Failure(stage, error)
        try:
            _ = self.plan
        except Exception:
            if failure.may_be_users:
                raise error from None
            raise
        if self._engine == "compiled":
            raise failure.as_error().with_traceback(error.__traceback__) from error
        self.failures.append(failure)
        failure.warn()
        return failure


def compile_step(
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    environment: Environment,
    engine: str = "interpret",
) -> CompiledStep:
    """Returns the step that is fed `feeds`, fetches `fetches` and runs `targets`.

    Args:
      feeds: fed tensors of the user's graph.
      fetches: fetched tensors of the user's graph.
      targets: target operations of the user's graph.
      environment: devices of the target, with the facts that its steps share.
      engine: "interpret": the executor; "compiled": one Python function, or an error; "auto": the function if the step
        can be compiled, else the executor.

    Raises:
      InvalidArgumentError: the frames of the graph do not fit together, a device is not available, or the engine is
        "compiled" and the step cannot be compiled. This and the next error may also be raised at the first use of the
        step.
      GraphError: the graph is not legal.
    """
    step = CompiledStep(feeds, fetches, targets, environment, engine)
    if engine == "interpret":
        step.plan  # noqa: B018 - errors are raised here, not at the first run
    return step


def lowered_form(pruned: Pruned, targets: Sequence[Operation]) -> Lowered:
    """Returns the step with conditionals, loops and calls lowered to primitives."""
    if not is_structured(pruned.graph.operations):
        return Lowered(pruned.graph, pruned.graph.operations, {})
    return lower(pruned.graph, _preserved(pruned, targets), differentiate)


def _preserved(pruned: Pruned, targets: Sequence[Operation]) -> list[Operation]:
    """Returns the targets in the step's graph."""
    return [op for t in targets if (op := pruned.graph.find(t.name)) is not None]


def _make_structured(pruned: Pruned, preserved: Sequence[Operation], dumps: Dumps | None = None) -> list[str]:
    """Recovers structured operations from primitives; returns the reasons if it cannot."""
    graph = pruned.graph
    if not any(map(_is_control, graph.operations)):
        return []
    try:
        recover(graph, [op.inputs[0] for op in pruned.retvals], preserved)
    except (OpError, GraphError) as e:
        return [f"not recovered: {e}"]
    Editor(graph, preserved).sweep()
    if dumps is not None:
        dumps.graph("recovered", graph)
    return []


def _is_control(op: Operation) -> bool:
    """Whether `op` is a primitive that recovery replaces by structured operations."""
    return op.opdef.primitive not in ("", "ControlTrigger")


# passes that stack the values of all iterations, and so hold a second copy of all of them at the same time
_STACKING: Final = frozenset({"loop_fission", "loop_accumulations", "loop_collections"})


def _may_swap(op: Operation) -> bool:
    """Whether `op` stores residuals that may be moved out of device memory."""
    note = op.notes.get(ResidualPush)
    return note is not None and note.may_swap


@notices.timed("optimize")
def _optimized(
    graph: Graph,
    preserved: Sequence[Operation],
    dumps: Dumps | None,
    has_limit: bool,
    known: Mapping[Tensor, Shape] = MappingProxyType({}),
) -> PassContext:
    """Runs the passes over a step's graph and its nested graphs."""
    check_fits(graph.operations)  # the passes rely on it
    own_bodies(graph)
    if known:
        specialize(graph, known)
    check = _checkpoint if flags.VERIFY.value > 2 else None
    options = options_from(flags.OPTIMIZE.value)
    if has_limit and any(map(_may_swap, nested_operations(graph.operations))):
        options = dataclasses.replace(options, off=options.off | _STACKING)
    context = optimize(graph, preserved, options, check, dumps.graph if dumps else None)
    name_as_lowered(graph)
    _checkpoint(graph)
    return context


def _with_fused_regions(
    ops: Sequence[Operation],
    functions: Mapping[str, Sequence[Operation]],
    is_apart: Callable[[Operation], bool] = may_be_heavy,
    prepare: Prepare | None = None,
) -> tuple[Plan, tuple[FusedRegion, ...]]:
    """Returns the plan of a private graph with fused regions as single nodes."""
    found: list[FusedRegion] = []
    ops = _contract(ops, found, is_apart, prepare)
    called = {name: _contract(body, found, is_apart, prepare) for name, body in functions.items()}
    return make_plan(ops, called), tuple(found)


def _contract(
    ops: Sequence[Operation],
    found: list[FusedRegion],
    is_apart: Callable[[Operation], bool] = may_be_heavy,
    prepare: Prepare | None = None,
) -> Sequence[Operation]:
    """Replaces regions of a private graph by fused operations; adds them to `found`."""
    ops, fused_regions = fuse_regions(ops, is_apart, prepare)
    found += fused_regions
    for c in fused_regions[:1]:
        _checkpoint(c.op.graph)
    return ops


def _is_cpu(device: str) -> bool:
    return DeviceSpec.from_string(device).type == CPU


def _checkpoint(graph: Graph) -> None:
    """Verifies the graph between two stages (HEADRACE_VERIFY)."""
    if flags.VERIFY.value >= 1:
        from headrace.ir.verify import verify  # a slow import: it loads the wire format

        verify(graph)
