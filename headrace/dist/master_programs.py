"""Programs of a master: steps of clients, compiled to a part for each device.

The master runs the stages of `pipeline.compile_step` up to the partition. The workers compile their parts
(`dist.worker_programs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.compiled_step import CompiledStep, Request
from headrace.dist import step_codec
from headrace.dist.master_state import CompiledParts, task_of
from headrace.environment import Environment
from headrace.execute.plan import may_be_heavy
from headrace.explain import explanation, explanation_to_data
from headrace.ir.analysis.graph_size import check_expansion
from headrace.partition import codec as part_codec
from headrace.pipeline import compile_step
from headrace.place.requests import owns_state
from headrace.programs import Programs
from headrace.prune import StepGraph
from headrace.stages import Stages

if TYPE_CHECKING:
    from headrace.execute.run import Program
    from headrace.ir.graph import Operation
    from headrace.partition import Part


class ClusterTarget:
    """Devices of a cluster as `programs.Programs` sees them: it compiles for them, and runs nothing.

    Args:
      environment: the devices.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def compile(self, request: Request, stages: Stages) -> CompiledStep:
        """Compiles a step up to its parts."""
        return compile_step(request, self.environment, stages)

    def register(self, step: CompiledStep, is_interpreted: bool = False) -> Program | None:
        """Returns None: the workers have the program."""
        return None


def compile_parts(data: bytes, environment: Environment, home: str = "") -> CompiledParts:
    """Compiles an encoded step.

    Args:
      data: the step of a client (`dist.step_codec`).
      environment: the devices of its session.
      home: the task of this process, whose worker may call the Python functions of the step; "": the client is in
        another process, or this one has no worker.

    Raises:
      HeadraceError: the bytes are damaged, or describe no legal step, or the step cannot be placed.
    """
    request, step = step_codec.decode(data, is_ours=home != "")
    check_expansion(step.graph.operations)
    stages = Stages()
    stages.made["prune"] = step
    programs = Programs(request, ClusterTarget(environment), stages)
    compiled = programs.partial if request.is_partial else programs.general
    n_feeds, n_fetches = len(step.args), len(step.retvals)
    placement = compiled.placement
    of: Mapping[Operation, str] = {} if placement is None else placement.of
    homes = {op.name: device for op, device in of.items() if owns_state(op)}
    explained = explanation_to_data(explanation(programs))
    if compiled.is_whole:
        device = compiled.device
        encoded = {device: step_codec.encode(compiled.request, compiled.graph, _of(device, home))} if device else {}
        on = list(encoded)
        return CompiledParts(encoded, [on] * n_feeds, on * n_fetches, is_divided=True, homes=homes, data=explained)
    if compiled.shares:
        return _shares(compiled, step, home, homes, explained)
    parts = compiled.parts
    return CompiledParts(
        {device: part_codec.encode(part, _of(device, home)) for device, part in parts.items()},
        feeds=[(device,) if device else () for device in _devices(n_feeds, "_Arg", parts)],
        fetches=_devices(n_fetches, "_Retval", parts),
        edges=sorted({e.key for part in parts.values() for e in part.edges}),
        is_interpreted=compiled.request.engine == "interpret" or bool(request.fed_constants()),
        is_partial=request.is_partial,
        may_be_apart=compiled.is_apart is may_be_heavy,
        homes=homes,
        data=explained,
    )


def _of(device: str, home: str) -> str:
    """Returns `home` if the device belongs to this task, else ""."""
    return home if task_of(device) == home else ""


def _shares(
    compiled: CompiledStep, step: StepGraph, home: str, homes: Mapping[str, str], explained: Mapping[str, Any]
) -> CompiledParts:
    """Returns the result for a step that was divided into shares."""
    shares = compiled.shares
    readers: list[list[str]] = [[] for _ in step.args]
    for device, share in shares.items():
        for op in share.args:
            readers[op.attrs["index"]].append(device)
    owners = {op.attrs["index"]: device for device, share in shares.items() for op in share.retvals}
    return CompiledParts(
        {
            device: step_codec.encode(
                compiled.request, StepGraph(s.graph, s.args, s.retvals, s.targets), _of(device, home)
            )
            for device, s in shares.items()
        },
        feeds=list(map(tuple, readers)),
        fetches=[owners.get(i, "") for i in range(len(step.retvals))],
        edges=sorted({edge for share in shares.values() for edge in share.edges}),
        is_divided=True,
        homes=homes,
        data=explained,
    )


def _devices(n: int, kind: str, parts: Mapping[str, Part]) -> list[str]:
    """Returns for each feed or fetch the device that has it; "" if none does."""
    found = {op.attrs["index"]: device for device, part in parts.items() for op in part.ops if op.type == kind}
    return [found.get(i, "") for i in range(n)]
