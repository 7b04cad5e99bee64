"""Programs of a worker: the parts of a step that a master sends, compiled for the devices of this process.

The master has pruned, optimized, placed and partitioned the step. The worker does the rest of `pipeline.compile_step`:
fused regions and plans for parts, or one function for a step that a single device runs as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.compile import compile_graph
from headrace.dist import step_codec
from headrace.dist.master_state import task_of
from headrace.dist.worker_run import FunctionRun, PartsRun
from headrace.errors import InvalidArgumentError
from headrace.execute.parts import received_edges
from headrace.execute.plan import is_heavy, make_plan, may_be_heavy
from headrace.gc_pause import paused
from headrace.grad.differentiate import differentiate
from headrace.partition import codec as part_codec
from headrace.pipeline import Request, with_fused_regions

if TYPE_CHECKING:
    from headrace.dist import messages
    from headrace.dist.reactor import Reactor
    from headrace.dist.rendezvous import Outlet
    from headrace.execute.plan import Plan
    from headrace.execute.run import Program
    from headrace.execute.step import Step
    from headrace.target import LocalTarget


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WorkerProgram:
    """A compiled program of a worker.

    Attributes:
      session: the number of the session for which it was compiled.
      plans: for each device, by name, its part; empty for a function.
      edges: for each device the edges on which it receives tokens.
      names: the keys of all edges, by their numbers in tokens.
      outlets: the number of each edge to another worker, and the connection to it.
      function: the whole step as a function; None for parts.
      device: the device of the function.
      fetches: the number of fetches of the function.
    """

    session: int
    plans: Mapping[str, Plan]
    edges: Mapping[str, frozenset[str]]
    names: Sequence[str]
    outlets: Mapping[str, tuple[int, Outlet]]
    function: Program | None = None
    device: str = ""
    fetches: int = 0

    def start(
        self,
        number: int,
        step: Step,
        target: LocalTarget,
        reactor: Reactor,
        report: Callable[[messages.Report, Sequence[Any]], object],
    ) -> PartsRun | FunctionRun:
        """Returns a new run for step `number`, which has not begun."""
        if self.function is not None:
            return FunctionRun(number, self.device, self.function, step, self.fetches, reactor, report)
        return PartsRun(
            number, self.plans, self.edges, self.names, self.outlets, step, target.run_environment, reactor, report
        )


@paused()
def prepare(m: messages.PrepareProgram, target: LocalTarget, outlet: Callable[[str], Outlet]) -> WorkerProgram:
    """Compiles a program.

    Args:
      m: the message of the master.
      target: the devices of this process.
      outlet: returns the connection to the worker of a task.

    Raises:
      HeadraceError: the bytes are damaged, or describe no legal part or step.
      InvalidArgumentError: a part is for a device that this worker lacks, or an edge has no number.
    """
    if m.step:
        _check_device(m.device, target)
        _, step = step_codec.decode(m.step)
        code = compile_graph(step.graph, step.args, step.retvals, step.targets, differentiate)
        return WorkerProgram(m.session, {}, {}, (), {}, target.program(code, {}), m.device, len(step.retvals))
    numbers = {key: i for i, key in enumerate(m.edges)}
    parts = {}
    outlets: dict[str, tuple[int, Outlet]] = {}
    for data in m.parts:
        part = part_codec.decode(data.data)
        _check_device(part.device, target)
        parts[part.device] = (part.ops, part.called)
        for edge in part.edges:
            if edge.key not in numbers:
                raise InvalidArgumentError(f"the edge {edge.key!r} of the part on {part.device} has no number")
            if edge.is_sent and task_of(edge.peer) != task_of(part.device):
                outlets[edge.key] = numbers[edge.key], outlet(task_of(edge.peer))
    if not m.is_interpreted:
        request = Request((), (), (), "auto", m.is_partial)
        parts, _ = with_fused_regions(request, target.environment, parts, may_be_heavy if m.may_be_apart else is_heavy)  # type: ignore[assignment]
    plans = {device: make_plan(ops, called, device) for device, (ops, called) in parts.items()}
    return WorkerProgram(m.session, plans, received_edges(plans), m.edges, outlets)


def _check_device(device: str, target: LocalTarget) -> None:
    if device not in target.local_devices:
        raise InvalidArgumentError(f"this worker has no device {device}; it has {', '.join(target.local_devices)}")
