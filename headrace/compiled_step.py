"""A step before and after compilation, as data: `Request` and `CompiledStep`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.execute.plan import may_be_heavy
from headrace.ir.infer import constant_value
from headrace.place.requests import inherit_devices
from headrace.records import record

if TYPE_CHECKING:
    from headrace.compile import Compiled
    from headrace.compile.fused_regions import FusedRegion
    from headrace.execute.plan import Plan
    from headrace.execute.run import Program, Run
    from headrace.execute.step import Step
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.base import PassContext
    from headrace.partition import Part
    from headrace.partition.shares import Share
    from headrace.place import Placement
    from headrace.prune import StepGraph
    from headrace.shapes import Shape


class Addition(Protocol):
    """Change of a pruned step, such as accumulators of watched tensors."""

    def added(self, step: StepGraph) -> StepGraph:
        """Returns a changed copy of a step, which may have further fetches at the end."""


@record(frozen=True, slots=True)
class Request:
    """A step to compile.

    Attributes:
      feeds: fed tensors of the user's graph.
      fetches: fetched tensors of the user's graph.
      targets: operations of the user's graph that run although no fetch may need them.
      engine: "interpret": the token machine runs the step as it is. "compiled": one Python function. "auto": the
        function if the step can be compiled, else the token machine with fused regions.
      is_partial: whether the feeds arrive in several calls; then the token machine runs the step.
      shapes: shapes of feeds that the step is compiled for, by position. A step that cannot become one function for a
        reason that the shapes do not change is compiled for any shapes, and its `CompiledStep.request` has none.
      addition: changes the pruned graph; None: it stays as it is.
      off: names of the optimizer's passes that the session switches off.
      fold_bytes: the largest size of a constant that folding makes, in bytes; 0: that of `optimize.base.Options`.
    """

    feeds: Sequence[Tensor]
    fetches: Sequence[Tensor]
    targets: Sequence[Operation]
    engine: str = "interpret"
    is_partial: bool = False
    shapes: Mapping[int, Shape] = dataclasses.field(default_factory=dict)
    addition: Addition | None = None
    off: frozenset[str] = frozenset()
    fold_bytes: int = 0

    @property
    def graph(self) -> Graph | None:
        """The user's graph; None for an empty step."""
        named = [*(t.op for t in (*self.feeds, *self.fetches)), *self.targets]
        return named[0].graph if named else None

    @property
    def is_ordered(self) -> bool:
        """Whether stateful operations of the user's graph run in the order of their creation."""
        return self.graph is not None and self.graph.order is not None

    def inherit_devices(self, ops: Sequence[Operation]) -> None:
        """Copies device requests to operations that are colocated with pruned operations."""
        if self.graph is not None:
            inherit_devices(ops, self.graph)

    def fed_constants(self) -> Sequence[str]:
        """Reasons against relying on static shapes: a line for each fed constant tensor."""
        fed = [t for t in self.feeds if constant_value(t) is not None]
        return [f"'{t.name}' is fed, and shapes in the graph were inferred from the value it has there" for t in fed]


@record(frozen=True, slots=True, eq=False)
class CompiledStep:
    """A step after all stages, as data, which a target registers as a program.

    Attributes:
      request: the step.
      stages: stage → what it made, in order.
      compiled: the step as one Python function; None: the token machine runs it.
      plans: device → plan of its part; a step on one device has one plan, under "". Empty for a function.
      reasons: reasons against a function, a line for each.
      fused_regions: fused regions of the plans.
      is_apart: whether an operation is never a member of a fused region, because it may be large enough for a thread.
      device: full name of the only device of the step; "": the default device, or several devices.
      is_whole: whether the process that owns `device` compiles the step to one function.
      program: the program that `Target.register` returned for it; None before.
    """

    request: Request
    stages: Mapping[str, Any]
    compiled: Compiled | None = None
    plans: Mapping[str, Plan] = dataclasses.field(default_factory=dict)
    reasons: Sequence[str] = ()
    fused_regions: Sequence[FusedRegion] = ()
    is_apart: Callable[[Operation], bool] = may_be_heavy
    device: str = ""
    is_whole: bool = False
    program: Program | None = None

    @property
    def pruned(self) -> StepGraph:
        """Copy of the subgraph that the step needs, with explicit feeds and fetches."""
        return cast("StepGraph", self.stages["prune"])

    @property
    def report(self) -> PassContext | None:
        """Report of the passes; None if they did not run."""
        found = self.stages.get("optimize")
        return None if found is None else cast("PassContext", found[1])

    @property
    def placement(self) -> Placement | None:
        """Devices of the operations in primitive form; None if the target has one device."""
        return self.stages.get("place")

    def start(self, step: Step) -> Run:
        """Returns a new run of the step for `step`, without feeds. The step is registered."""
        assert self.program is not None, "`Programs` registers each step"
        return self.program.start(step)

    @property
    def graph(self) -> StepGraph:
        """The step in structured form, after the optimizer if it ran."""
        for stage in ("optimize", "recover"):
            if stage in self.stages:
                return cast("StepGraph", self.stages[stage][0])
        return self.pruned

    @property
    def parts(self) -> Mapping[str, Part]:
        """The part of each device of a step over several devices, before regions are fused."""
        return cast("Mapping[str, Part]", self.stages.get("partition", {}))

    @property
    def shares(self) -> Mapping[str, Share]:
        """The share of each device of a divided step; empty for other steps."""
        return cast("Mapping[str, Share]", self.stages.get("divide") or {})

    @property
    def plan(self) -> Plan:
        """The plan of a step on one device."""
        return self.plans[""]

    def apart(self) -> Mapping[str, Sequence[Operation]]:
        """Operations outside of fused regions, by reason; none if the step was not fused."""
        if "fused_regions" not in self.stages:
            return {}
        from headrace.compile.fused_regions import apart

        return apart(dict.fromkeys(n.op for plan in self.plans.values() for n in plan.nodes), self.is_apart)

    @property
    def is_divided(self) -> bool:
        """Whether the step runs on several devices, or on another one than a CPU."""
        return "partition" in self.stages
