"""From a graph, feeds and fetches to something that runs: the stages of a step, in order. No other module decides
order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.compile import Compiled, compile_graph
from headrace.compile.blockers import blockers
from headrace.errors import GraphError, InvalidArgumentError, OpError
from headrace.execute.plan import Plan, make_plan
from headrace.grad.differentiate import differentiate
from headrace.ir.device import DeviceSpec
from headrace.ir.editing import Editor
from headrace.ir.function import FuncGraph, bodies
from headrace.lower import is_structured, lower
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
    """A step as the session keeps it: what it computes, and what runs it.

    Attributes:
      pruned: the step's graph, its ends explicit, before anything was made of it.
      compiled: the step as one Python function; None: the token machine runs it.
      reasons: why it is not compiled, a line for each operation that stands against it.
    """

    def __init__(
        self, pruned: Pruned, targets: Sequence[Operation], compiled: Compiled | None, reasons: Sequence[str]
    ) -> None:
        self.pruned = pruned
        self.compiled = compiled
        self.reasons = tuple(reasons)
        self._targets = targets
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The step for the token machine; made when it is first asked for."""
        if self._plan is None:
            self._plan = _interpreted(self.pruned, self._targets)
        return self._plan


def compile_step(
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    devices: Devices,
    engine: str = "interpret",
) -> CompiledStep:
    """Compiles the step that is fed `feeds`, fetches `fetches` and runs `targets`.

    Args:
      engine: "interpret": the token machine; "compiled": one Python function, or an error; "auto": that if it can be.

    Raises:
      InvalidArgumentError: the frames of the graph do not fit together, a device is not there, or the engine is to be
        "compiled" and the step cannot be.
      GraphError: the graph is not legal.
    """
    pruned = prune(feeds, fetches, targets)  # 1. what the step needs, its ends explicit
    _checkpoint(pruned.graph)
    kept = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
    _check_devices(pruned.graph.operations, devices)  # 2. every op has a device it may run on
    step = CompiledStep(pruned, kept, None, ())
    if engine == "interpret":
        step.plan  # noqa: B018 - 3b. errors now, not at the first run
        return step
    structured, reasons = _structured(pruned, fetches, feeds, targets)  # 3a. primitives become structured
    if not reasons:
        kept = [op for t in targets if (op := structured.graph.find(t.name)) is not None]
        try:
            step.compiled = compile_graph(structured.graph, structured.args, structured.retvals, kept, differentiate)
        except RecursionError:
            reasons = ["its conditionals, loops and calls are nested too deeply in one another"]
    if reasons:
        if engine == "compiled":
            raise InvalidArgumentError("this step cannot be compiled: " + "; ".join(reasons))
        step.reasons = tuple(reasons)
        step.plan  # noqa: B018
    return step


def _structured(
    pruned: Pruned, fetches: Sequence[Tensor], feeds: Sequence[Tensor], targets: Sequence[Operation]
) -> tuple[Pruned, list[str]]:
    """The step without primitives, and why it cannot be compiled all the same.

    What was imported as primitives is recovered in a copy of the step, so the user's graph stays as it is.
    """
    reasons = blockers(pruned.graph.operations)
    if not any(op.opdef.primitive not in ("", "ControlTrigger") for op in pruned.graph.operations):
        return pruned, reasons
    again = prune(feeds, fetches, targets)
    kept = [op for t in targets if (op := again.graph.find(t.name)) is not None]
    try:
        recover(again.graph, [op.inputs[0] for op in again.retvals], kept)
    except (OpError, GraphError) as e:
        return pruned, [f"not recovered: {e}"]
    Editor(again.graph, kept).sweep()
    return again, blockers(again.graph.operations)


def _interpreted(pruned: Pruned, kept: Sequence[Operation]) -> Plan:
    """The step as the token machine runs it."""
    ops: Sequence[Operation] = pruned.graph.operations
    functions: Mapping[str, Sequence[Operation]] = {}
    if is_structured(ops):
        lowered = lower(pruned.graph, kept, differentiate)  # conditionals, loops and calls become primitives
        _checkpoint(lowered.graph)
        ops, functions = lowered.ops, lowered.functions
    return make_plan(ops, functions)  # everything static, once


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
