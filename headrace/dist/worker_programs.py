"""Programs of a worker: parts of steps, compiled for the devices of this process.

The master has pruned, optimized, placed and partitioned the step. The worker does the rest of `pipeline.compile_step`:
fused regions and plans for parts, or one function for a step that a single device runs as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.compile import compile_graph
from headrace.compiled_step import Request
from headrace.dist import step_codec
from headrace.dist.master_state import task_of
from headrace.dist.share_run import CompiledShare, SharesRun
from headrace.dist.worker_run import PartsRun
from headrace.errors import InvalidArgumentError
from headrace.execute.parts import received_edges
from headrace.execute.plan import is_heavy, make_plan, may_be_heavy
from headrace.gc_pause import paused
from headrace.grad.differentiate import differentiate
from headrace.ir.function import nested_operations
from headrace.partition import codec as part_codec
from headrace.pipeline import with_fused_regions
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dist import messages
    from headrace.dist.reactor import Reactor
    from headrace.dist.rendezvous import Outlet
    from headrace.execute.plan import Plan
    from headrace.execute.step import Step
    from headrace.target import LocalTarget


@record(frozen=True, slots=True, eq=False)
class WorkerProgram:
    """A compiled program of a worker.

    Attributes:
      names: the keys of all edges, by their numbers in tokens.
      outlets: the number of each edge to another worker, and the connection to it.
      plans: for each device, by name, its part; empty for shares.
      edges: for each device the edges on which its part receives tokens.
      shares: the shares; empty for parts.
      calls_python: whether it calls Python functions of clients in this process.
    """

    names: Sequence[str]
    outlets: Mapping[str, tuple[int, Outlet]]
    plans: Mapping[str, Plan] = dataclasses.field(default_factory=dict)
    edges: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    shares: Sequence[CompiledShare] = ()
    calls_python: bool = False

    @property
    def devices(self) -> Sequence[str]:
        """The full names of its devices."""
        return [share.device for share in self.shares] or list(self.plans)

    def start(
        self,
        number: int,
        step: Step,
        target: LocalTarget,
        reactor: Reactor,
        report: Callable[[messages.Report, Sequence[Any]], object],
    ) -> PartsRun | SharesRun:
        """Returns a new run for step `number`, which has not begun."""
        of = target.run_environment
        if self.shares:
            return SharesRun(number, self.shares, self.names, self.outlets, step, of.blas_threads, reactor, report)
        return PartsRun(number, self.plans, self.edges, self.names, self.outlets, step, of, reactor, report)


@paused()
def prepare(
    m: messages.PrepareProgram, target: LocalTarget, outlet: Callable[[str], Outlet], is_own: bool = False
) -> WorkerProgram:
    """Compiles a program.

    Args:
      m: the message of the master.
      target: the devices of this process.
      outlet: returns the connection to the worker of a task.
      is_own: whether the master is in this process; only then the program may call Python functions.

    Raises:
      HeadraceError: the bytes are damaged, or describe no legal part or step.
      InvalidArgumentError: a part is for a device that this worker lacks, or an edge has no number, or an operation
        calls a Python function for another process.
    """
    numbers = {key: i for i, key in enumerate(m.edges)}
    for part in m.parts:
        if part.device not in target.local_devices:
            known = ", ".join(target.local_devices)
            raise InvalidArgumentError(f"this worker has no device {part.device}; it has {known}")
    if m.is_divided:
        return _with_shares(m, numbers, outlet, is_own)
    return _with_parts(m, numbers, target, outlet, is_own)


def _with_shares(
    m: messages.PrepareProgram, numbers: Mapping[str, int], outlet: Callable[[str], Outlet], is_own: bool
) -> WorkerProgram:
    """Compiles shares."""
    shares = []
    outlets: dict[str, tuple[int, Outlet]] = {}
    for data in m.parts:
        _, step = step_codec.decode(data.data, is_own)
        here = task_of(data.device)
        received = []
        for op in nested_operations(step.graph.operations):
            if not op.type.startswith("_Step"):
                continue
            key, to = op.attrs["tensor_name"], op.attrs["recv_device"]
            if op.type.endswith("Recv"):
                received.append(key)
            elif task_of(to) != here:
                outlets[key] = _number(numbers, key, data.device), outlet(task_of(to))
        code = compile_graph(step.graph, step.args, step.retvals, step.targets, differentiate)
        feeds, fetches = (tuple(op.attrs["index"] for op in ops) for ops in (step.args, step.retvals))
        is_long = len(m.parts) > 1 and any(map(is_heavy, nested_operations(step.graph.operations)))
        shares.append(CompiledShare(data.device, code, feeds, fetches, tuple(received), code.blocks or is_long))
    return WorkerProgram(m.edges, outlets, shares=shares, calls_python=any(s.code.blocks for s in shares))


def _with_parts(
    m: messages.PrepareProgram,
    numbers: Mapping[str, int],
    target: LocalTarget,
    outlet: Callable[[str], Outlet],
    is_own: bool,
) -> WorkerProgram:
    """Compiles parts."""
    parts = {}
    outlets: dict[str, tuple[int, Outlet]] = {}
    for data in m.parts:
        part = part_codec.decode(data.data, is_own)
        if part.device != data.device:
            raise InvalidArgumentError(f"the part for {data.device} is that of {part.device}")
        parts[part.device] = (part.ops, part.called)
        for edge in part.edges:
            number = _number(numbers, edge.key, part.device)
            if edge.is_sent and task_of(edge.peer) != task_of(part.device):
                outlets[edge.key] = number, outlet(task_of(edge.peer))
    if not m.is_interpreted:
        request = Request((), (), (), "auto", m.is_partial)
        parts, _ = with_fused_regions(request, target.environment, parts, may_be_heavy if m.may_be_apart else is_heavy)  # type: ignore[assignment]
    plans = {device: make_plan(ops, called, device) for device, (ops, called) in parts.items()}
    calls_python = any(plan.blocks for plan in plans.values())
    return WorkerProgram(m.edges, outlets, plans, received_edges(plans), calls_python=calls_python)


def _number(numbers: Mapping[str, int], key: str, device: str) -> int:
    if key not in numbers:
        raise InvalidArgumentError(f"the edge {key!r} of {device} has no number")
    return numbers[key]
