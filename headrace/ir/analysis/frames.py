"""Frames: the loop to which each operation of a primitive graph belongs.

**Definition.** A graph has no statement "repeat these operations"; a loop is a cycle along which values travel. The
operations of a loop run once in each iteration, and a *frame* is the set of these operations, with a name. Operations
outside of all loops are in the *root* frame, whose name is the empty string. The frame of a nested loop is a child of
the frame of the outer loop.

**How values enter, iterate and leave.** Only three primitives move values between frames and iterations:

* `Enter(x, frame_name="while")` takes `x` from the outer frame and outputs it inside of the frame, in iteration 0 (or,
  with `is_constant=True`, in every iteration: a loop constant).
* `NextIteration(y)` passes `y` to the next iteration of the same frame.
* `Exit(z)` passes `z` to the outer frame.

`Merge` outputs the first value that arrives: the entered value in iteration 0, the value from `NextIteration` later.
`Switch` sends a value to the body while the loop continues and to the `Exit` when it ends. `LoopCond` marks the
predicate. The loop `i = 0; while i < n: i = i + 1` is

    e    = Enter(zero, frame_name="while")                       zero is in the root frame, e's value in "while"
    lim  = Enter(n, frame_name="while", is_constant=True)
    m    = Merge(e, next)                                        the back edge: next is created below
    cond = LoopCond(Less(m, lim))
    stop, go = Switch(m, cond)
    next = NextIteration(AddV2(go, one))                         one waits for go (^go), so it is in the frame too
    out  = Exit(stop)                                            out's value is in the root frame again

**The rule.** An operation is in the frame of its inputs, data and control inputs alike; so all of them must be in the
same frame. The output of an Enter is in the entered frame, and the output of an Exit in the outer frame. An Enter
itself is in the outer frame (it fires once for each iteration of that frame), an Exit in the inner one. An operation
without inputs is in the root frame. So a constant used inside of a loop needs an Enter, or a control input from an
operation of the loop. A back edge, from a NextIteration to its Merge, must join two operations of one frame.

A graph does not state its frames; this module *derives* them from the Enters and Exits. `derive` is called when a step
is compiled. Source: TensorFlow's `BuildControlFlowInfo`, with its rule, texts and error classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir import walk
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ir.graph import Operation


@record(frozen=True, slots=True)
class BackEdge:
    """Edge from one iteration to the next.

    Attributes:
      next_iteration: the operation at the start of the edge.
      merge: the operation at the end of the edge.
      index: the number of the Merge's input.
    """

    next_iteration: Operation
    merge: Operation
    index: int


@record(frozen=True, slots=True, eq=False)
class Frame:
    """Frame of one loop, or the root frame. A frame equals only itself.

    Attributes:
      name: the `frame_name` of its Enters; "" for the root.
      parent: the frame from which it is entered; None for the root.
      depth: 0 for the root, else one more than the parent's.
      ops: the operations that fire in it, in the given order.
      enters: the Enters that lead into it (they fire in `parent`).
      exits: the Exits that lead out of it (they fire in it).
      merges: its loop Merges, at which back edges end.
      back_edges: its edges from one iteration to the next.
      loop_cond: its LoopCond, or None.
      parallel_iterations: the limit of open iterations, the least of its Enters' attributes; 1 for the root.
    """

    name: str
    parent: Frame | None
    depth: int
    ops: tuple[Operation, ...]
    enters: tuple[Operation, ...]
    exits: tuple[Operation, ...]
    merges: tuple[Operation, ...]
    back_edges: tuple[BackEdge, ...]
    loop_cond: Operation | None
    parallel_iterations: int

    def __repr__(self) -> str:
        return f"<frame {self.name!r}: {len(self.ops)} operations>"


class FrameTree:
    """Frames of a set of operations, as `derive` returns them.

    Attributes:
      frames: all frames, parents before children; `frames[0]` is the root.
    """

    __slots__ = ("_entered", "_of", "frames")

    def __init__(
        self, frames: tuple[Frame, ...], of: Mapping[Operation, Frame], entered: Mapping[Operation, Frame]
    ) -> None:
        self.frames = frames
        self._of = of
        self._entered = entered

    @property
    def root(self) -> Frame:
        return self.frames[0]

    def of(self, op: Operation) -> Frame:
        """Returns the frame in which `op` fires: the outer one for an Enter."""
        return self._of[op]

    def entered_by(self, enter: Operation) -> Frame:
        """Returns the frame that `enter` leads into."""
        return self._entered[enter]

    def outputs_of(self, op: Operation) -> Frame:
        """Returns the frame of the outputs of `op`."""
        entered = self._entered.get(op)
        if entered is not None:
            return entered
        frame = self._of[op]
        if op.opdef.primitive == "Exit":
            assert frame.parent is not None  # derive() rejects an Exit in the root frame
            return frame.parent
        return frame


class _Draft:
    """Frame whose members are not complete yet."""

    __slots__ = ("back_edges", "depth", "enters", "exits", "loop_cond", "name", "ops", "parent")

    def __init__(self, name: str, parent: _Draft | None) -> None:
        self.name = name
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.ops: list[Operation] = []
        self.enters: list[Operation] = []
        self.exits: list[Operation] = []
        self.back_edges: list[BackEdge] = []
        self.loop_cond: Operation | None = None


def derive(ops: Sequence[Operation]) -> FrameTree:
    """Derives the frames of `ops`, in time linear in operations and edges.

    Args:
      ops: operations of one graph, in any order. Edges from other operations do not count.

    Returns:
      The tree of frames.

    Raises:
      GraphError: there is a cycle that is not a loop.
      InvalidArgumentError: an operation has inputs from different frames; an Exit is in the root frame; an Enter has no
        frame name; a frame has two LoopConds.
      InternalError: a frame is entered from two different frames (TensorFlow's class for this fault).
    """
    root = _Draft("", None)
    drafts = {"": root}
    if not any(op.opdef.primitive or op.type == "LoopCond" for op in ops):
        if not walk.ascends(ops):
            walk.toposort(ops)  # raises an error for a cycle
        root.ops += ops
        return _finished(drafts, dict.fromkeys(ops, root))
    outputs_in: dict[Operation, _Draft] = {}  # the frame of each operation's outputs
    fires_in: dict[Operation, _Draft] = {}
    back_edges: list[BackEdge] = []
    for op in walk.toposort(ops):
        at = _frame_of_inputs(op, root, outputs_in, back_edges)
        fires_in[op] = at
        primitive = op.opdef.primitive
        if primitive == "Enter":
            at = _entered(op, at, drafts)
        elif primitive == "Exit":
            if at.parent is None:
                raise InvalidArgumentError(
                    f"Invalid Exit op: Cannot find a corresponding Enter op. {{{{node {op.name}}}}} leads out of a "
                    f"loop, but its input is in none; give it a value that entered a loop through an Enter{_made(op)}",
                    op.name,
                    op,
                )
            at.exits.append(op)
            at = at.parent
        elif op.type == "LoopCond":
            _add_loop_cond(op, at)
        outputs_in[op] = at
    for e in back_edges:
        source = outputs_in.get(e.next_iteration)
        if source is None:
            continue  # the NextIteration is not among the operations
        at = fires_in[e.merge]
        if source is not at:
            others = walk.forward_predecessors(e.merge)
            raise _different_frames(e.merge, e.next_iteration, source, others[0] if others else e.merge, at)
        at.back_edges.append(e)
    for op in ops:
        fires_in[op].ops.append(op)
    return _finished(drafts, fires_in)


def _frame_of_inputs(
    op: Operation, root: _Draft, outputs_in: Mapping[Operation, _Draft], back_edges: list[BackEdge]
) -> _Draft:
    """Returns the common frame of the inputs of `op`; records back edges for later."""
    at: _Draft | None = None
    first: Operation | None = None
    if op.opdef.primitive == "Merge":
        back_edges += [BackEdge(t.op, op, i) for i, t in enumerate(op.inputs) if walk.is_back_edge(t.op, op)]
    for p in walk.forward_predecessors(op):
        here = outputs_in.get(p)
        if at is None:
            at, first = here, p
        elif here is not None and here is not at:
            assert first is not None  # set together with `at`
            raise _different_frames(op, p, here, first, at)
    return root if at is None else at


def _entered(enter: Operation, outside: _Draft, drafts: dict[str, _Draft]) -> _Draft:
    """Returns the frame that `enter` leads into; creates it for the first Enter."""
    name: str = enter.attrs["frame_name"]
    if not name:
        raise InvalidArgumentError(f"The Enter {{{{node {enter.name}}}}} must have a frame name.", enter.name, enter)
    frame = drafts.get(name)
    if frame is None:
        frame = drafts[name] = _Draft(name, outside)
    elif frame.parent is not outside:
        before = frame.parent.name if frame.parent is not None else ""
        raise InternalError(
            f'Invalid loop structure: Mismatched parent frames for "{name}": "{outside.name}" vs "{before}". '
            f"{{{{node {enter.name}}}}} enters the loop {name!r} from {_place(outside)}{_made(enter)}, but "
            f"{{{{node {frame.enters[0].name}}}}} enters it from {_place(frame.parent)}{_made(frame.enters[0])}; "
            "give the two loops different frame names",
            enter.name,
            enter,
        )
    frame.enters.append(enter)
    return frame


def _add_loop_cond(op: Operation, at: _Draft) -> None:
    # TensorFlow places the counter for gradients in the frame of the loop that it counts.
    if at.loop_cond is not None and "LoopCounter" not in at.loop_cond.name and "LoopCounter" not in op.name:
        raise InvalidArgumentError(
            f'Invalid loop structure: Loop "{at.name}" has more than one LoopCond node: {{{{node {op.name}}}}} and '
            f"{{{{node {at.loop_cond.name}}}}}. A loop ends by one predicate; give its loops different frame names, or "
            "combine the predicates by LogicalAnd",
            op.name,
            op,
        )
    if at.loop_cond is None or "LoopCounter" in at.loop_cond.name:
        at.loop_cond = op


def _different_frames(op: Operation, p: Operation, p_in: _Draft, q: Operation, q_in: _Draft) -> Exception:
    """Returns the error for `op`, which has inputs from two frames.

    Args:
      op: the operation.
      p, q: the producers of two inputs.
      p_in, q_in: the frames of their outputs.
    """
    if p_in.depth < q_in.depth:
        p, p_in, q, q_in = q, q_in, p, p_in
    return InvalidArgumentError(
        f"{{{{node {op.name}}}}} has inputs from different frames. The input {{{{node {p.name}}}}} is in frame "
        f"'{p_in.name}'. The input {{{{node {q.name}}}}} is in frame '{q_in.name}'. "
        + _advice(p, p_in, q, q_in)
        + _made(op),
        op.name,
        op,
    )


def _advice(p: Operation, p_in: _Draft, q: Operation, q_in: _Draft) -> str:
    """Returns an explanation with the remedy. `p_in` is at least as deep as `q_in`."""
    value = f"The value of '{p.name}'{_made(p)} belongs to the loop '{p_in.name}'"
    outer: _Draft | None = p_in.parent
    while outer is not None and outer is not q_in:
        outer = outer.parent
    if outer is None:
        return (
            f"{value}, the value of '{q.name}'{_made(q)} to the loop '{q_in.name}', and neither loop is inside the "
            "other: return one of them from its loop through an Exit, and bring it into the other through an Enter"
        )
    bring = f"to use '{q.name}' inside the loop, bring it in through an Enter (is_constant=True)"
    if not q.inputs and not q.control_inputs:
        bring += " or give it a control input from inside"
    return f"{value}: to use it outside, return it from the loop through an Exit; {bring}"


def _place(frame: _Draft | None) -> str:
    return f"the loop {frame.name!r}" if frame is not None and frame.name else "outside any loop"


def _made(op: Operation) -> str:
    return f" (made at {op.source})" if op.source else ""


def _finished(drafts: Mapping[str, _Draft], fires_in: Mapping[Operation, _Draft]) -> FrameTree:
    frozen: dict[_Draft, Frame] = {}
    for d in drafts.values():  # the first Enter creates a frame, so parents come first
        frozen[d] = Frame(
            d.name,
            None if d.parent is None else frozen[d.parent],
            d.depth,
            tuple(d.ops),
            tuple(d.enters),
            tuple(d.exits),
            tuple(dict.fromkeys(e.merge for e in d.back_edges)),
            tuple(d.back_edges),
            d.loop_cond,
            max(1, min((e.attrs["parallel_iterations"] for e in d.enters), default=1)),
        )
    entered = {e: f for f in frozen.values() for e in f.enters}
    return FrameTree(tuple(frozen.values()), {op: frozen[d] for op, d in fires_in.items()}, entered)
