"""Records of a running step: frame instances, iterations, and causes of deadness.

The module has state only. `execute.frames` has the rules that change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace import thresholds
from headrace.diagnosis import OpRef
from headrace.records import record

if TYPE_CHECKING:
    from headrace.execute.plan import FramePlan, PlanNode


class Ready(Protocol):
    """Queue of ready entries: a deque, or a queue with a seeded random order."""

    def append(self, entry: tuple[PlanNode, Iteration, Any], /) -> None: ...
    def popleft(self) -> tuple[PlanNode, Iteration, Any]: ...
    def __len__(self) -> int: ...


@record(frozen=True, slots=True)
class DeadCause:
    """Cause of a dead token as data, which may leave the executor that made it.

    Attributes:
      op: the Switch or _SwitchN that sent its data to another output, or an Exit that never fired in its loop.
      where: the loops and calls in which it fired, as text; "" in the root frame.
      selector: the name of the predicate or output_index in the user's graph; "" for an Exit.
      value: the value of the predicate (0 or 1) or output_index; 0 for an Exit.
      outputs: the number of outputs of `op`.
    """

    op: OpRef
    where: str
    selector: str
    value: int
    outputs: int


# Cause of deadness within an executor: the node, the iteration and the value of the predicate or output_index. A plain
# tuple, because one is made for each Switch that fires; `blame.dead_cause` makes the record when a token is sent to
# another device or reported. A token that was received has the record of the device where deadness began.
Origin: TypeAlias = "tuple[PlanNode, Iteration, int] | DeadCause"

# Identity of a frame instance within a step, equal on all devices: see `Frame.path`.
Path: TypeAlias = "tuple[()] | tuple[Path, int, str]"


class Iteration:
    """An open iteration of a frame instance.

    Attributes:
      frame: the frame instance.
      index: its number, from 0.
      values: the slots of its joins, see `execute.plan`.
      pending: the pending counts of its joins.
      left: number of nodes that have not fired yet, plus number of open child frames.
      next: the next iteration, once it is opened.
    """

    __slots__ = ("frame", "index", "left", "next", "pending", "values")

    def __init__(self, frame: Frame, index: int, values: list[Any], pending: list[int], left: int) -> None:
        self.frame = frame
        self.index = index
        self.values = values
        self.pending = pending
        self.left = left
        self.next: Iteration | None = None

    @property
    def tag(self) -> str:
        """Tag as text: "" in the root frame, else "outer#3/inner#0".

        A call's frame is named by function and call site: "fact@main_call#0/fact@fact/call#0". No other iteration of
        the step has the same tag. If there are more than `thresholds.TAG_CALLS` frames, the tag has the inner ones
        only, and the number of the call in place of the outer ones: "...4711/fact@fact/call#0/...".
        """
        parts: list[str] = []
        it, frame = self, self.frame
        while frame.parent is not None:
            name = frame.plan.name if frame.call is None else f"{frame.plan.name}@{frame.call.op.name}"
            parts.append(f"{name}#{it.index}")
            if frame.call is not None and len(parts) >= thresholds.TAG_CALLS:
                parts.append(f"...{frame.serial}")
                break
            it = frame.parent
            frame = it.frame
        return "/".join(reversed(parts))


class Frame:
    """An instance of a frame: opened by its first Enter or by a call.

    Args:
      plan: the static part of the frame.
      parent: the iteration from which it was opened; None for the root.
      call: the call that opened it; None for loops and the root.
      depth: number of calls around it, itself included.
      serial: of the frame of a call, the number of the call in the step.

    Attributes:
      plan: the static part of the frame.
      parent: the iteration from which it was opened; None for the root.
      call: the call that opened it; None for loops and the root.
      depth: number of calls around it, itself included.
      serial: of the frame of a call, the number of the call in the step.
      path: identity among all frame instances of the step, equal on every device: the path of the parent frame, the
        index of the parent iteration, and the name of the loop or the call.
      oldest: the oldest open iteration.
      newest: the newest open iteration.
      open: number of open iterations.
      enters_left: number of Enters that have not arrived.
      next_iteration_roots: (node, value) of NextIterations that would open an iteration beyond the limit; they
        follow `newest`.
      values: template of a new iteration's slots: the plan's, with the loop constants that have arrived.
      pending: template of a new iteration's pending counts.
      constants: (node, value or None, origin or None) of loop constants that do not fit into the templates.
      children: open child frames by (iteration number, frame plan or call).
      live_exits: Exits that have fired alive.
      dead_exits: origins of the dead tokens of the other Exits.
      origins: origins of deadness by (iteration number, pending index), for joins that have not fired.
    """

    __slots__ = (
        "call",
        "children",
        "constants",
        "dead_exits",
        "depth",
        "enters_left",
        "live_exits",
        "newest",
        "next_iteration_roots",
        "oldest",
        "open",
        "origins",
        "parent",
        "path",
        "pending",
        "plan",
        "serial",
        "values",
    )

    oldest: Iteration
    newest: Iteration

    @property
    def level(self) -> int:
        """Number of frames around this one."""
        n, it = 0, self.parent
        while it is not None:
            n, it = n + 1, it.frame.parent
        return n

    def __init__(
        self, plan: FramePlan, parent: Iteration | None, call: PlanNode | None = None, depth: int = 0, serial: int = 0
    ) -> None:
        self.plan = plan
        self.parent = parent
        self.path: Path = (
            () if parent is None else (parent.frame.path, parent.index, call.op.name if call else plan.name)
        )
        self.call = call
        self.depth = depth
        self.serial = serial
        self.open = 0
        self.enters_left = plan.enters
        self.next_iteration_roots: list[tuple[PlanNode, Any]] = []
        self.values = plan.values
        self.pending = plan.later
        self.constants: list[tuple[PlanNode, Any, Origin | None]] = []
        self.children: dict[tuple[int, FramePlan | PlanNode], Frame] = {}
        self.live_exits: set[PlanNode] = set()
        self.dead_exits: dict[PlanNode, Origin] = {}
        self.origins: dict[tuple[int, int], Origin] = {}
