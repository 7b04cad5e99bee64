"""Pipeline of a step: its stages from the user's graph to a program.

    prune -> recover -> optimize -> (compile | lower -> place -> (join -> compile | partition -> fused_regions -> plan))

`compile_step` calls the stages one after the other. No stage changes its input, and `Stages` keeps what each one made,
by name. A step on one device in which no operation waits becomes one Python function (`compile`). Every other step is
planned for the token machine: one plan for each device, with fused regions as single nodes. Under the engine
"interpret" a step is planned as it was pruned; it is the reference for all other programs.

`programs` decides which compiled form of a step runs, and `optimize.pipeline` the order of the optimizer's passes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import flags, notices, thresholds
from headrace.compile import compile_graph
from headrace.compile.blockers import blockers, too_large
from headrace.compiled_step import CompiledStep, Request
from headrace.errors import GraphError, OpError
from headrace.execute.plan import is_heavy, make_plan, may_be_heavy
from headrace.gc_pause import paused
from headrace.grad.differentiate import differentiate
from headrace.ir.analysis.graph_size import check_expansion
from headrace.ir.analysis.signature_check import check_fits
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.copying import copy_graph
from headrace.ir.edit.editor import Editor
from headrace.ir.edit.lowered_names import name_as_lowered
from headrace.ir.function import nested_operations
from headrace.ir.kernel import CPU, has_namespace
from headrace.ir.notes import CountedResidual, OnDevice, ResidualPush
from headrace.ir.text.dumps import Dumps
from headrace.lower import Lowered, is_structured, lower
from headrace.lower.collectives import expand_collectives, expand_named_collectives, is_collective
from headrace.optimize.base import Options, PassContext
from headrace.optimize.pipeline import optimize, options_from
from headrace.optimize.specialize import specialize
from headrace.place import Placement, place
from headrace.place.constraints import advice, unmet
from headrace.place.requests import WholeStructures, check_devices, owns_state, request_of
from headrace.prune import StepGraph, prune
from headrace.recover import recover
from headrace.recover.late_reads import read_late
from headrace.recover.references import handles_for_references, has_references
from headrace.stages import Stages, verified

# partition and the modules for fused regions are imported at use: a step that becomes one function needs neither
if TYPE_CHECKING:
    from headrace.compile.fused_regions import FusedRegion
    from headrace.environment import Environment
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.partition import Part
    from headrace.partition.shares import Share
    from headrace.shapes import Shape

# device → the operations of its part, and those of the functions that it calls
Parts: TypeAlias = "Mapping[str, tuple[Sequence[Operation], Mapping[str, Sequence[Operation]]]]"


@paused()
def compile_step(request: Request, environment: Environment, stages: Stages | None = None) -> CompiledStep:
    """Compiles a step.

    Args:
      request: the step.
      environment: devices of the target, with the facts that its steps share.
      stages: receives what each stage makes, and has the results of earlier stages that need not run again.

    Raises:
      InvalidArgumentError: the frames of the graph do not fit together, or a device is not available.
      GraphError: the graph is not legal.
    """
    stages = Stages() if stages is None else stages
    has_one_device = environment.is_single
    step = stages.run("prune", pruned, request, environment)
    fed_constants = request.fed_constants()  # then neither passes nor compiled code may rely on static shapes
    refused: Sequence[str] = ()
    reasons: Sequence[str] = ()
    blocking: Sequence[str] = ()
    if request.engine != "interpret":
        step, refused = stages.run("recover", recovered, step)
        refused = fed_constants or refused or too_large(step.graph.operations)
        reasons = blocking = refused or blocked(request, step)
        stages.refuse(reasons)
        if reasons and request.engine == "compiled":
            return CompiledStep(request, stages.made, None, {}, reasons)
        if reasons:  # the plans of the token machine serve feeds of any shapes
            request = dataclasses.replace(request, shapes={})
        if refused:
            step = stages.made["prune"]
        else:
            is_lowered = bool(reasons) or not has_one_device
            step, _ = stages.run("optimize", optimized, request, environment, step, is_lowered, stages.dumps)

    is_optimized = request.engine != "interpret" and not refused
    if is_optimized and not reasons and has_one_device:
        return compiled_function(request, stages, step)

    if is_optimized and not blocking and environment.is_remote:  # it may be divided
        step = stages.run("collectives", with_expanded_collectives, step)
    lowered = stages.run("lower", lowered_form, request, environment, step, is_optimized)
    parts: Parts = {"": (lowered.ops, lowered.functions)}
    device = ""
    if not has_one_device:
        placement = stages.run("place", placed, environment, lowered)
        used = set(placement.of.values())
        is_whole = len(used) < 2 and is_optimized and not reasons and all(map(_is_cpu, used))
        if is_whole and environment.is_remote:
            return CompiledStep(request, stages.made, device=min(used, default=""), is_whole=True)
        joining = None if environment.is_remote or reasons or not is_optimized else joining_device(used)
        if joining is not None:
            joined = stages.run("join", joined_step, step, lowered, placement, joining)
            if joined is not None:
                return compiled_function(request, stages, joined)
        if len(used) > 1 or not all(map(_is_cpu, used)) or environment.is_remote:
            if not environment.is_remote or len(used) > 1:
                where = f"it runs on {len(used)} devices" if len(used) > 1 else f"it runs on {min(used)}"
                stages.refuse([where])
                reasons = [where, *reasons]
            if request.engine == "compiled":
                return CompiledStep(request, stages.made, None, {}, reasons)
            is_divisible = environment.is_remote and is_optimized and not blocking and all(map(_is_cpu, used))
            if is_divisible and stages.run("divide", divided, environment, step, lowered, placement) is not None:
                return CompiledStep(request, stages.made, reasons=reasons)
            cut = stages.run("partition", partitioned, environment, lowered, placement)
            parts = {name: (part.ops, part.called) for name, part in cut.items()}
        else:
            device = min(used, default="")
            if is_whole:
                return compiled_function(request, stages, step, device)

    # a product of unknown size between a loop and its gradient would separate them
    is_apart = is_heavy if any(op.opdef.structured == "While" for op in lowered.left) else may_be_heavy
    if environment.is_remote:  # each device compiles its part
        return CompiledStep(request, stages.made, reasons=reasons, is_apart=is_apart)
    fused: Sequence[FusedRegion] = ()
    if request.engine != "interpret" and not fed_constants:
        from headrace.compile.fused_regions import show

        parts, fused = stages.run("fused_regions", with_fused_regions, request, environment, parts, is_apart)
        stages.dumps.text("fused_regions.py", "\n".join(f"# {show([c])}\n{c.source}" for c in fused))
    plans = stages.run("plan", lambda: {d: make_plan(ops, called, d) for d, (ops, called) in parts.items()})
    return CompiledStep(request, stages.made, None, plans, reasons, fused, is_apart, device)


def compiled_function(request: Request, stages: Stages, step: StepGraph, device: str = "") -> CompiledStep:
    """Returns a step as one Python function."""
    compiled = stages.run("compile", compile_graph, step.graph, step.args, step.retvals, step.targets, differentiate)
    stages.dumps.text("source.py", compiled.source)
    return CompiledStep(request, stages.made, compiled, device=device)


# *** the stages; each leaves its input as it is ***


@paused()
def pruned(request: Request, environment: Environment) -> StepGraph:
    """Copies the subgraph of a step."""
    step = prune(request.feeds, request.fetches, request.targets)
    read_late(step.graph, step.retvals, step.targets, request.is_partial)
    if request.addition is not None:
        step = request.addition.added(recovered(step)[0])
    check_expansion(step.graph.operations)
    if environment.is_single:
        check_devices(step.graph.operations, environment.names, environment.options.soft)
        if environment.options.log is not None:  # `placed` logs those of several devices
            environment.options.log(Placement(dict.fromkeys(step.graph.operations, environment.names[0]), {}))
        inform_of_missing(environment, step.graph.operations)
    return step


def recovered(step: StepGraph) -> tuple[StepGraph, Sequence[str]]:
    """Replaces primitives by structured operations; returns the reasons if it cannot.

    Reference variables become resource variables.
    """
    out = step
    if any(op.opdef.primitive not in ("", "ControlTrigger") for op in step.graph.operations):
        out = step.copy()
        try:
            recover(out.graph, [op.inputs[0] for op in out.retvals], out.targets)
        except (OpError, GraphError) as e:
            return step, (f"not recovered: {e}",)
        Editor(out.graph, out.targets).sweep()
    if has_references(out.graph):
        out = out.copy() if out is step else out
        out = dataclasses.replace(out, targets=handles_for_references(out.graph, out.targets))
    return out, ()


def blocked(request: Request, step: StepGraph) -> Sequence[str]:
    """Reasons against running a structured step as one Python function."""
    if request.is_partial:
        return ("it is fed in several calls",)
    return blockers(step.graph.operations, request.is_ordered)


# passes that stack the values of all iterations, and so hold a second copy of all of them at the same time
_STACKING: Final = frozenset({"loop_fission", "loop_accumulations", "loop_collections"})
_AS_A_WHOLE: Final = Options()  # of a graph that runs as one function


def _may_swap(op: Operation) -> bool:
    """Whether `op` stores residuals that may be moved out of device memory."""
    note = op.notes.get(ResidualPush)
    return note is not None and note.may_swap


def optimized(
    request: Request, environment: Environment, step: StepGraph, is_lowered: bool, dumps: Dumps
) -> tuple[StepGraph, PassContext]:
    """Runs the passes over a copy of a step."""
    check_fits(step.graph.operations)  # the passes rely on it
    out = step.copy()
    shapes = {out.args[i].outputs[0]: shape for i, shape in request.shapes.items()}
    options = dataclasses.replace(_wanted(request), is_lowered=is_lowered, is_partial=request.is_partial)
    report = run_passes(out.graph, out.targets, environment, shapes, options, dumps)
    return dataclasses.replace(out, targets=tuple(report.preserved)), report


def _wanted(request: Request) -> Options:
    """Options of the passes that the session of a step has set."""
    options = dataclasses.replace(_AS_A_WHOLE, off=request.off)
    return dataclasses.replace(options, fold_bytes=request.fold_bytes) if request.fold_bytes else options


def run_passes(
    graph: Graph,
    preserved: Sequence[Operation],
    environment: Environment,
    shapes: Mapping[Tensor, Shape],
    options: Options = _AS_A_WHOLE,
    dumps: Dumps | None = None,
) -> PassContext:
    """Runs the passes over a private graph, given known shapes and preserved operations."""
    if shapes:
        specialize(graph, shapes)
    off = options_from(flags.OPTIMIZE.value).off
    if environment.has_limit and any(map(_may_swap, nested_operations(graph.operations))):
        off |= _STACKING
    options = dataclasses.replace(options, off=options.off | off)
    check = verified if flags.VERIFY.value > 2 else None
    report = optimize(graph, preserved, options, check, None if dumps is None else dumps.graph)
    name_as_lowered(graph)
    verified(graph)
    _count(environment, graph.operations)
    return report


def with_expanded_collectives(step: StepGraph) -> StepGraph:
    """Expands collectives of a structured step, so that each device has operations in its share."""
    if not any(map(is_collective, nested_operations(step.graph.operations))):
        return step
    step = step.copy()
    expand_named_collectives(step.graph, step.targets)
    return step


def lowered_form(request: Request, environment: Environment, step: StepGraph, is_optimized: bool) -> Lowered:
    """Lowers a step to primitives.

    Loops and conditionals that fused regions can contain stay whole if the step is optimized. For several devices,
    collectives are expanded, and operations that are colocated with pruned ones get their device requests.
    """
    from headrace.compile.outlining import select_outlined

    has_one_device = environment.is_single
    done: Lowered | None = None
    if is_optimized and is_structured(step.graph.operations):
        is_whole: Callable[[Operation], bool] = lambda op: True
        if not has_one_device:
            is_whole = WholeStructures(step.graph.operations, environment.names, environment.home, is_heavy)

        def lower_rest(is_outlined: Callable[[Operation], bool]) -> Lowered:
            return lower(step.graph, step.targets, differentiate, lambda op: is_whole(op) and is_outlined(op))

        done = select_outlined(lower_rest, may_be_heavy, _is_late(request), request.is_partial)
    elif not is_structured(step.graph.operations):
        done = Lowered(step.graph, step.graph.operations, {})
    if done is None:
        done = lower(step.graph, step.targets, differentiate)
    _count(environment, [*done.ops, *(op for body in done.functions.values() for op in body)])
    if has_one_device:
        return done
    if done.graph is step.graph:
        graph, copies = copy_graph(done.graph)
        done = Lowered(graph, list(copies.values()), {})
    ops = expand_collectives(done.ops)
    request.inherit_devices(ops)
    for op in done.left:
        Editor(done.graph).set_device(op, request_of(op))
    return Lowered(ops[0].graph if ops else done.graph, ops, done.functions, done.left)


def placed(environment: Environment, lowered: Lowered) -> Placement:
    """Assigns a device to each operation, and claims the homes of state."""
    options, ops = environment.options, lowered.ops
    while True:
        homes = {op: home for op in ops if (home := environment.preferred_home(op.name, op.device)) is not None}
        costs, functions = environment.costs(), lowered.functions
        found = place(ops, environment.cluster, soft=options.soft, costs=costs, first=homes, functions=functions)
        if environment.claim({op.name: found.of[op] for op in ops if owns_state(op)}):
            break  # else a step of another thread was placed in the meantime
    if options.log is not None:
        options.log(found)
    elif notices.listener("placement", notices.INFO) is not None:
        n = Counter(found.of.values())
        notices.inform("placement", ["a step of " + ", ".join(f"{n[d]} operations on {d}" for d in sorted(n))])
        inform_of_missing(environment, ops)
    return found


def inform_of_missing(environment: Environment, ops: Sequence[Operation]) -> None:
    """Makes one record for a session about requests for devices that it lacks."""
    if notices.listener("placement", notices.INFO) is None:
        return
    found = unmet(nested_operations(ops, calls=True), environment.names)
    if found and environment.notice_once():
        op = next(iter(found))
        more = f" (and {len(found) - 1} other operations of this step)" if len(found) > 1 else ""
        text = f"{op.name}{more}: it requests {op.device!r}, which this session does not have, and runs elsewhere"
        notices.inform("placement", [f"{text}. {advice(DeviceSpec.from_string(op.device), is_soft=True)}".rstrip()])


def partitioned(environment: Environment, lowered: Lowered, placement: Placement) -> Mapping[str, Part]:
    """Cuts a placed step into one part for each device."""
    from headrace.partition import partition
    from headrace.partition.list_families import with_lists_on_host

    ops, of = lowered.ops, with_lists_on_host(lowered.ops, placement.of)
    seconds: Mapping[Operation, float] | None = None
    if environment.options.recv_scheduling:
        costs, models = environment.costs(), {d.name: d for d in environment.cluster.devices}
        found = {op: costs.seconds(op, models[of[op]]) for op in ops}
        if max(found.values(), default=0.0) >= thresholds.LONG_OPERATION:  # else delaying a Recv takes longer
            seconds = found
    parts = partition(ops, of, functions=lowered.functions, bfloat16=environment.options.bfloat16, costs=seconds)
    for name, part in parts.items():
        if has_namespace(DeviceSpec.from_string(name).type or CPU):
            for op in (*part.ops, *(o for body in part.called.values() for o in body)):
                Editor(op.graph).add_note(op, OnDevice(name, tuple(range(len(op.outputs)))))
    return parts


def divided(
    environment: Environment, step: StepGraph, lowered: Lowered, placement: Placement
) -> Mapping[str, Share] | None:
    """Divides a structured step into shares; None if it cannot be divided.

    An operation in a conditional, loop or function is on the device of its copy in the lowered form.
    """
    from headrace.partition.shares import Indivisible, devices_of, divide

    step = step.copy()
    whole = {op: placement.of[copy] for copy, op in lowered.left.items()}
    try:
        where = devices_of(step.graph, placement.of, whole, is_collective)
        bfloat16 = environment.options.bfloat16
        return divide(step.graph, step.args, step.retvals, step.targets, where, bfloat16=bfloat16)
    except Indivisible:
        return None


def joining_device(used: Collection[str]) -> DeviceSpec | None:
    """Returns the device with which the host can run a joined step."""
    specs = [DeviceSpec.from_string(d) for d in sorted(used)]
    others = [d for d in specs if d.type != CPU]
    return others[0] if len(specs) < 3 and len(others) == 1 and has_namespace(others[0].type or CPU) else None


def joined_step(step: StepGraph, lowered: Lowered, placement: Placement, device: DeviceSpec) -> StepGraph | None:
    """Joins a structured step on one CPU and one device, if it can.

    The device of an operation in a conditional, loop or function is that of its copy in the lowered form.
    """
    from headrace.partition.joined import join
    from headrace.partition.shares import Indivisible, devices_of

    step = step.copy()
    whole = {op: placement.of[copy] for copy, op in lowered.left.items()}
    try:
        where = devices_of(step.graph, placement.of, whole, is_collective)
    except Indivisible:
        return None
    return step if join(step.graph, where, device) else None


def with_fused_regions(
    request: Request, environment: Environment, parts: Parts, is_apart: Callable[[Operation], bool]
) -> tuple[Parts, Sequence[FusedRegion]]:
    """Replaces regions of each part on a CPU by single operations."""
    from headrace.compile.fused_regions import fuse_regions

    found: list[FusedRegion] = []

    def fused(ops: Sequence[Operation]) -> Sequence[Operation]:
        ops, regions = fuse_regions(ops, is_apart, _is_late(request), prepared)
        found.extend(regions)
        for region in regions[:1]:
            verified(region.op.graph)
        return ops

    def prepared(graph: Graph, preserved: Sequence[Operation], shapes: Mapping[Tensor, Shape]) -> PassContext:
        if shapes:
            return run_passes(graph, preserved, environment, shapes, _wanted(request))
        return PassContext(preserved=preserved)  # the passes have run over the whole step

    out = {
        name: (fused(ops), {f: fused(body) for f, body in called.items()}) if _is_cpu(name) else (ops, called)
        for name, (ops, called) in parts.items()
    }
    return out, found


def _is_late(request: Request) -> Callable[[Operation], bool]:
    """Predicate for operations that wait after they fire; the feeds of a partial run do."""
    from headrace.compile.fused_regions import waits

    return (lambda op: op.type == "_Arg" or waits(op)) if request.is_partial else waits


def _count(environment: Environment, ops: Iterable[Operation]) -> None:
    """Marks the accumulators of loops in a private graph as counted, if memory is limited."""
    if environment.has_limit:
        for op in nested_operations(ops):
            if ResidualPush in op.notes:
                Editor(op.graph).add_note(op, CountedResidual())


def _is_cpu(device: str) -> bool:
    return not device or DeviceSpec.from_string(device).type == CPU
