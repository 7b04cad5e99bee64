"""From a graph, feeds and fetches to something that runs: the stages of a step, in order. No other module decides
order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.errors import InvalidArgumentError
from headrace.execute.plan import Plan, make_plan
from headrace.grad.differentiate import differentiate
from headrace.ir.device import DeviceSpec
from headrace.lower import is_structured, lower
from headrace.prune import Pruned, prune

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


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledStep:
    """A step as the session keeps it: the pruned graph and its plan."""

    pruned: Pruned
    plan: Plan


def compile_step(
    feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation], devices: Devices
) -> CompiledStep:
    """Compiles the step that is fed `feeds`, fetches `fetches` and runs `targets`.

    Raises:
      InvalidArgumentError: the frames of the graph do not fit together, or a device is not there.
      GraphError: the graph is not legal.
    """
    pruned = prune(feeds, fetches, targets)  # 1. what the step needs, its ends explicit
    _checkpoint(pruned.graph)
    ops: Sequence[Operation] = pruned.graph.operations
    functions: Mapping[str, Sequence[Operation]] = {}
    if is_structured(ops):
        kept = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
        lowered = lower(pruned.graph, kept, differentiate)  # 2. conditionals, loops and calls become primitives
        _checkpoint(lowered.graph)
        ops, functions = lowered.ops, lowered.functions
    for each in (ops, *functions.values()):
        _check_devices(each, devices)  # 3. every op has a device it may run on
    plan = make_plan(ops, functions)  # 4. everything static, once
    return CompiledStep(pruned, plan)


def _checkpoint(graph: Graph) -> None:
    """Between two stages: the graph is legal (HEADRACE_VERIFY)."""
    if flags.VERIFY.value >= 1:
        from headrace.ir.verify import verify  # brings the wire format, which takes long to import

        verify(graph)


def _check_devices(ops: Sequence[Operation], devices: Devices) -> None:
    if devices.soft:
        return
    for op in ops:
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
