"""Records of a running step: frame instances, iterations, and origins of dead tokens.

Plain state; the rules that change it are in `execute.frames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from headrace.execute.plan import FramePlan, PlanNode


class Ready(Protocol):
    """Queue of ready entries: a deque, or a queue with a seeded random order."""

    def append(self, entry: tuple[PlanNode, Iteration, Any], /) -> None: ...
    def popleft(self) -> tuple[PlanNode, Iteration, Any]: ...
    def __len__(self) -> int: ...


# Why a token is dead: the Switch that sent its value elsewhere, in which iteration, and its predicate (of a _SwitchN:
# its output_index); or an Exit that never fired in its loop. (A plain tuple: one is made for each Switch that fires.)
Origin: TypeAlias = "tuple[PlanNode, Iteration, int]"

# What tells the frame instances of a step apart, on whichever device they are: see `Frame.path`.
Path: TypeAlias = "tuple[()] | tuple[Path, int, str]"

TAG_DEPTH: Final = 32  # calls deeper than that stand in a tag as a number


class Iteration:
    """One opened iteration of a frame instance.

    Attributes:
      frame: the frame instance.
      index: its number, from 0.
      values, pending: slots and counts, see `execute.plan`.
      left: nodes that have not fired yet, plus child frames that are open.
      next: the iteration after it, once opened.
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
        """The tag as text: "" in the root frame, else "outer#3/inner#0".

        A call's frame is named by function and call site: "fact@main_call#0/fact@fact/call#0". No other iteration of
        the step has the same tag. Of more than `TAG_DEPTH` frames only the inner ones are written out, and in place of
        those around them the number of the call: "...4711/fact@fact/call#0/...".
        """
        parts: list[str] = []
        it, frame = self, self.frame
        while frame.parent is not None:
            name = frame.plan.name if frame.call is None else f"{frame.plan.name}@{frame.call.op.name}"
            parts.append(f"{name}#{it.index}")
            if frame.call is not None and len(parts) >= TAG_DEPTH:
                parts.append(f"...{frame.serial}")
                break
            it = frame.parent
            frame = it.frame
        return "/".join(reversed(parts))


class Frame:
    """One instance of a frame: opened by the first Enter that arrives, or a call; closed when all in it is done.

    Attributes:
      plan: its static side.
      parent: the iteration it was opened from (None for the root).
      call: the call that opened it; None for loops and the root.
      depth: how many calls it is in.
      serial: of a call's frame, its number among the calls of the step.
      path: names it among all frame instances of the step, the same on every device: the path of the frame around it,
        the iteration it was opened from, and the loop's name or the call's.
      oldest, newest: the window of open iterations.
      open: how many are open.
      enters_left: Enters that have not arrived.
      held: (node, value) of NextIterations that wait for room; they follow `newest`.
      values, pending: what a new iteration starts as: the plan's templates, with the loop constants that have arrived.
      constants: (node, value or None, origin or None) of loop constants that the templates cannot hold.
      children: open child frames by (iteration number, frame plan or call).
      live_exits: Exits that have fired alive.
      dead_exits: why the others are dead.
      origins: deadness by (iteration number, pending index) of joins that have not fired.
    """

    __slots__ = (
        "call",
        "children",
        "constants",
        "dead_exits",
        "depth",
        "enters_left",
        "held",
        "live_exits",
        "newest",
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
        """Number of frames that contain it."""
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
        self.held: list[tuple[PlanNode, Any]] = []
        self.values = plan.values
        self.pending = plan.later
        self.constants: list[tuple[PlanNode, Any, Origin | None]] = []
        self.children: dict[tuple[int, FramePlan | PlanNode], Frame] = {}
        self.live_exits: set[PlanNode] = set()
        self.dead_exits: dict[PlanNode, Origin] = {}
        self.origins: dict[tuple[int, int], Origin] = {}
