"""Frames: which loop each operation of a primitive graph belongs to.

**What a frame is.** A graph has no statement "repeat these operations". It has values that go round. A loop is a set of
operations that run again and again, once an iteration, and a *frame* is that set: the place, named like a loop, in
which they run. What stands in no loop is in the *root* frame, whose name is the empty string. A loop inside a loop is a
frame inside a frame, its child.

**How a value gets in, round and out.** Three primitives are the only doors:

* `Enter(x, frame_name="while")` takes `x` from outside and hands it out inside the frame, in iteration 0 (or, with
  `is_constant=True`, in every iteration: a loop constant).
* `NextIteration(y)` hands `y` to the next iteration of the same frame.
* `Exit(z)` hands `z` to the frame outside.

Between them `Merge` picks whichever arrives (the entered value in iteration 0, the one from `NextIteration` later), and
`Switch` sends a value on to the body while the loop goes on and to the `Exit` when it ends. `LoopCond` marks the
predicate. The loop `i = 0; while i < n: i = i + 1` is

    e    = Enter(zero, frame_name="while")                       zero is in the root frame, e's value in "while"
    lim  = Enter(n, frame_name="while", is_constant=True)
    m    = Merge(e, next)                                        the back edge: next is made below
    cond = LoopCond(Less(m, lim))
    stop, go = Switch(m, cond)
    next = NextIteration(AddV2(go, one))                         one waits for go (^go): so it is in the frame too
    out  = Exit(stop)                                            out's value is in the root frame again

**The rule.** An operation is in the frame that its inputs are in, data and control inputs alike; so all of them must be
in the same one. What comes out of an Enter is in the entered frame, what comes out of an Exit in the frame outside; the
Enter itself runs outside (it *fires* once for each time the outside runs), the Exit inside. An operation without inputs
is in the root frame, which is why a constant used inside a loop has to enter it, or to wait for something inside
(a control input). The one edge that leads backwards, from a NextIteration to its Merge, must join two operations of one
frame.

Nothing in a graph states frames; this module *derives* them from the Enters and Exits. `derive` is called when a step
is compiled. Source: TensorFlow's `BuildControlFlowInfo`, whose rule, texts and error classes are kept.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir import walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ir.graph import Operation


@dataclasses.dataclass(frozen=True, slots=True)
class BackEdge:
    """An edge from one iteration to the next: input `index` of `merge` comes from `next_iteration`."""

    next_iteration: Operation
    merge: Operation
    index: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One loop, or the root. Equal only to itself.

    Attributes:
      name: the `frame_name` of its Enters; "" for the root.
      parent: the frame it is entered from; None for the root.
      depth: 0 for the root, else one more than the parent's.
      ops: the operations that fire in it, in the given order.
      enters: the Enters that lead into it (they fire in `parent`).
      exits: the Exits that lead out of it (they fire in it).
      merges: its loop Merges: those that a back edge ends at.
      back_edges: its edges from one iteration to the next.
      loop_cond: its LoopCond; None if there is none.
      parallel_iterations: how many iterations may be open at once: the least that its Enters ask for. 1 for the root.
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
    """The frames of a set of operations; made by `derive`.

    Attributes:
      frames: all of them, parents before children; `frames[0]` is the root.
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
        """The frame in which `op` fires (of an Enter: the outer one; of an Exit: the inner one)."""
        return self._of[op]

    def entered_by(self, enter: Operation) -> Frame:
        """The frame that `enter` leads into."""
        return self._entered[enter]

    def outputs_of(self, op: Operation) -> Frame:
        """The frame that what comes out of `op` is in."""
        entered = self._entered.get(op)
        if entered is not None:
            return entered
        frame = self._of[op]
        if op.opdef.primitive == "Exit":
            assert frame.parent is not None  # derive() lets no Exit stand in the root
            return frame.parent
        return frame


class _Draft:
    """A frame while its members are being found."""

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
    """The frames of `ops`, and which operation is in which. Linear in operations and edges.

    Args:
      ops: operations of one graph, in any order. Edges from operations that are not among them do not count.

    Returns:
      The tree of frames.

    Raises:
      GraphError: there is a cycle that is no loop.
      InvalidArgumentError: an operation has inputs from different frames; an Exit stands in the root frame; an Enter
        has no frame name; a frame has two LoopConds.
      InternalError: a frame is entered from two different frames (TensorFlow's class for it).
    """
    root = _Draft("", None)
    drafts = {"": root}
    outputs_in: dict[Operation, _Draft] = {}  # the frame that what comes out of each operation is in
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
    """The one frame that the inputs of `op` are in. Back edges are noted, to be looked at when all is known."""
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
    """The frame that `enter` leads into, made if it is the first."""
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
    # TensorFlow lets the counter that it adds for gradients share the frame of the loop it counts.
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
    """The error for `op`, whose input `p` is in the frame `p_in` while `q` is in `q_in`."""
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
    """The same in plain words, with what to do. `p_in` is at least as deep as `q_in`."""
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
    for d in drafts.values():  # a frame is made when it is first entered, so after its parent
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
