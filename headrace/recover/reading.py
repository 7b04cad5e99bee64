"""Reading a primitive graph: which operation stands in which branch of which conditional, of which loop.

**Frames** say which loop an operation is in (`ir.analysis.frames`). Nothing as plain says which branch it is in: a
conditional is a set of Switches on one predicate, operations that depend on them, and Merges. But the machine itself
finds out, by deadness: a Switch sends its value to one side and a dead token to the other, whatever depends on a dead
token is dead, and a Merge ends that. So an operation runs under the condition that all Switches it depends on, by data
or control edges, went its way. That condition is its *path*: the sides (predicate, side), outermost first, that it
stands in.

    p, q = ...                                       path of what comes out
    s0, s1 = Switch(x, p)                            s0: (p 0)    s1: (p 1)
    a = Neg(s1)                                      (p 1)
    t0, t1 = Switch(a, Switch(q, p):1)               (p 1)(q 0), (p 1)(q 1)
    b = Merge(t0, Exp(t1))                           (p 1)        joins the two sides of q
    c = Merge(s0, b)                                 ()           joins those of p

In a *well-structured* graph the paths of what an operation depends on are beginnings of one another (the operation has
the longest), and the inputs of a Merge have the same path but for the last side, of which each has another. All else is
an error here: it may well run, but no conditional does the same.

A loop that stands in a frame counts as a single node there, which depends on what its Enters depend on. The Switches
on a loop's own predicate work like those of a conditional: side 1 leads into the body, side 0 to the Exits, and what is
in neither (an empty path) is the *head*, which runs once more than the body.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import InvalidArgumentError
from headrace.ir.analysis import frames
from headrace.ir.graph import Operation, Tensor

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame

Side: TypeAlias = "tuple[Tensor, int]"
Path: TypeAlias = "tuple[Side, ...]"

# The path of what never runs: a Switch on a predicate in a branch of that predicate has a side that is not taken.
NEVER: Final[Path] = ((None, -1),)  # type: ignore[assignment]


class FoundLoop:
    """A frame as a node of the frame around it."""

    __slots__ = ("frame",)

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    @property
    def name(self) -> str:
        return self.frame.name


Node: TypeAlias = "Operation | FoundLoop"


class Join:
    """What a Merge does that ends a conditional.

    Attributes:
      path: where the conditional stands.
      key: its predicate (or index).
      ends: for each side the Merge's input that comes from it.
    """

    __slots__ = ("ends", "key", "path")

    def __init__(self, path: Path, key: Tensor, ends: Sequence[tuple[int, Tensor]]) -> None:
        self.path = path
        self.key = key
        self.ends = dict(ends)


class StructureAnalysis:
    """What is found out about some operations of one graph.

    Args:
      ops: the operations.
      replaced: what stands for primitive results that were recovered before.
      recovered: the names of operations with effects that stand in structured ones already.

    Attributes:
      tree: their frames.
      nodes: for each frame its nodes, each after what it depends on.
      path: of each node; of an Enter, where it fires.
      joins: for each Merge that ends a conditional, how.
      sides: for each predicate how many sides its conditional has.
      single: for each Merge with one input that can be alive, that.
    """

    def __init__(
        self, ops: Sequence[Operation], replaced: Mapping[Tensor, Tensor], recovered: frozenset[str] = frozenset()
    ) -> None:
        self.replaced = replaced
        self.recovered = recovered
        self.ops = set(ops)
        self.tree = frames.derive(ops)
        self.loops = {f: FoundLoop(f) for f in self.tree.frames}
        self.loop_merges = {m for f in self.tree.frames for m in f.merges}
        self.path: dict[Node, Path] = {}
        self.joins: dict[Operation, Join] = {}
        self.sides: dict[Tensor, int] = {}
        self.nodes: dict[Frame, list[Node]] = {}
        self.single: dict[Operation, Tensor] = {}
        for f in reversed(self.tree.frames):  # inner ones first: a node of the outer is made of the inner
            self.nodes[f] = self._sorted(f)
        for f in self.tree.frames:
            for node in self.nodes[f]:
                self._find_path(node)

    # *** edges ***

    def given(self, t: Tensor) -> Tensor:
        """`t`, or what took its place when a structure was recovered before."""
        return self.replaced.get(t, t)

    def inputs(self, node: Node) -> list[Tensor]:
        """The tensors that a node takes, in its own iteration."""
        if isinstance(node, FoundLoop):
            return [self.given(e.inputs[0]) for e in node.frame.enters]
        if node in self.loop_merges or node.opdef.primitive == "Enter":
            return []
        return [self.given(t) for t in node.inputs]

    def controls(self, node: Node) -> list[tuple[Operation, bool]]:
        """What a node waits for by control edges, and whether it does so dead or alive.

        A ControlTrigger, which is alive whatever happens to what it waits for, is looked through.
        """
        if isinstance(node, FoundLoop):
            return [c for e in node.frame.enters for c in self.controls(e)]
        out: dict[Operation, bool] = {}
        for c in node.control_inputs:
            if c.opdef.primitive == "ControlTrigger":
                for x in self.controls_of_trigger(c):
                    out.setdefault(x, True)
            else:
                out[c] = node.opdef.primitive == "Merge"
        return [*out.items()]

    def controls_of_trigger(self, op: Operation) -> list[Operation]:
        """What a ControlTrigger waits for, other ones looked through."""
        out: dict[Operation, None] = {}
        todo = [op]
        for trigger in todo:
            for c in trigger.control_inputs:
                if c.opdef.primitive != "ControlTrigger":
                    out[c] = None
                elif c not in todo:
                    todo.append(c)
        return list(out)

    def node_of(self, op: Operation) -> Node:
        """The node, in the frame where its results are, of an operation."""
        if op in self.ops and op.opdef.primitive == "Exit":
            return self.loops[self.tree.of(op)]
        return op

    def predecessors(self, node: Node) -> list[Node]:
        """The nodes of its frame that a node waits for; what comes from outside the frame is not among them."""
        made = [t.op for t in self.inputs(node)] + [c for c, _ in self.controls(node)]
        return [self.node_of(op) for op in made if self.is_inside(op)]

    def is_inside(self, op: Operation) -> bool:
        """Whether what `op` gives is computed in the iteration that uses it, and not brought there from elsewhere."""
        return op in self.ops and op.opdef.primitive != "Enter" and op not in self.loop_merges

    def _sorted(self, frame: Frame) -> list[Node]:
        """The nodes of a frame in order; what takes part in nothing but a loop further inside is in that loop's."""
        members: list[Node] = [op for op in frame.ops if op.opdef.primitive != "Enter"]
        members += [self.loops[f] for f in self.tree.frames if f.parent is frame]
        inside = set(members)
        after: dict[Node, list[Node]] = {n: [] for n in members}
        waiting: dict[Node, int] = {}
        for n in members:
            before = [p for p in dict.fromkeys(self.predecessors(n)) if p in inside]
            waiting[n] = len(before)
            for p in before:
                after[p].append(n)
        place = {n: i for i, n in enumerate(members)}
        ready = [place[n] for n in members if not waiting[n]]
        heapq.heapify(ready)
        out: list[Node] = []
        while ready:
            n = members[heapq.heappop(ready)]
            out.append(n)
            for u in after[n]:
                waiting[u] -= 1
                if not waiting[u]:
                    heapq.heappush(ready, place[u])
        if len(out) < len(members):
            stuck = next(n for n in members if waiting[n])
            raise ill_structured(
                _first(stuck),
                "the results of a loop to be used after it only",
                "one of them is used to compute what enters the same loop",
                "make two loops of it",
            )
        return out

    # *** aliases ***

    def canonical(self, t: Tensor) -> Tensor:
        """The tensor whose value `t` always has where it is alive: what went into a Switch, or an idle Identity."""
        while True:
            t = self.given(t)
            op = t.op
            if op not in self.ops:
                return t
            kind = op.opdef.primitive
            if kind in ("Switch", "SwitchN") or op.type == "LoopCond" or self.is_idle(op):
                t = op.inputs[0]
            elif op in self.single and t.index == 0:
                t = self.single[op]
            else:
                return t

    def is_idle(self, op: Operation) -> bool:
        """Whether an operation does nothing but name the output of a primitive: a pivot, or the like."""
        while op.type == "Identity" and not op.control_inputs and "_gradient_op_type" not in op.attrs:
            op = self.given(op.inputs[0]).op
            if op not in self.ops:
                return False
            if op.opdef.primitive in ("Switch", "SwitchN", "Enter") or op in self.loop_merges:
                return True
        return False

    def key(self, switch: Operation) -> Tensor:
        """What tells the conditional of a Switch from others: its predicate."""
        t = self.given(switch.inputs[1])
        while True:
            if t.op not in self.ops:
                return t
            kind = t.op.opdef.primitive
            constant = kind == "Enter" and t.op.attrs["is_constant"]
            if t.op.type == "Identity" or constant or kind in ("Switch", "SwitchN"):
                t = self.given(t.op.inputs[0])
            else:
                return t

    def key_controls(self, switch: Operation) -> list[tuple[Operation, bool]]:
        """What the predicate of a Switch was made to wait for."""
        out = []
        t = self.given(switch.inputs[1])
        while t.op in self.ops and t.op.type == "Identity":
            out += self.controls(t.op)
            t = self.given(t.op.inputs[0])
        return out

    # *** paths ***

    def path_of(self, t: Tensor) -> Path:
        """The path of a tensor, in the frame where it is used."""
        t = self.given(t)
        op = t.op
        if op not in self.ops or op.opdef.primitive == "Enter" or op in self.loop_merges:
            return ()
        if op.opdef.primitive in ("Switch", "SwitchN"):
            return self._within(op, self.key(op), t.index)
        return self.path[self.node_of(op)]

    def _within(self, switch: Operation, key: Tensor, side: int) -> Path:
        """The path of one side of a Switch: that of the Switch, if it stands in a side of `key` already."""
        path = self.path[switch]
        frame: Frame | None = self.tree.of(switch)
        around = path
        while frame is not None and around is not NEVER:
            for other, taken in around:
                if other is key:
                    return path if taken == side else NEVER
            around, frame = self.path.get(self.loops[frame], ()), frame.parent
        return path if path is NEVER else (*path, (key, side))

    def path_of_op(self, op: Operation) -> Path:
        """The path of an operation as a source of control edges."""
        if op not in self.ops or op.opdef.primitive == "Enter" or op in self.loop_merges:
            return ()
        return self.path[self.node_of(op)]

    def _find_path(self, node: Node) -> None:
        if isinstance(node, FoundLoop):
            for e in node.frame.enters:
                self._find_path(e)
            self.path[node] = self._longest(_first(node), [(self.path[e], e) for e in node.frame.enters])
            return
        if node in self.loop_merges:
            self.path[node] = ()
            return
        controls = [(self.path_of_op(c), c) for c, soft in self.controls(node) if not soft]
        kind = node.opdef.primitive
        if kind == "ControlTrigger":
            self.path[node] = ()
            return
        if kind == "Merge":
            self.path[node] = self._joined(node)
            return
        inputs = [self.given(t) for t in node.inputs]
        self.path[node] = self._longest(node, [(self.path_of(t), t.op) for t in inputs] + controls)
        if kind in ("Switch", "SwitchN"):
            key, n = self.key(node), len(node.outputs)
            if self.sides.setdefault(key, n) != n:
                raise ill_structured(
                    node, "one kind of Switch for each predicate", f"'{key.name}' is that of two kinds", "copy it"
                )

    def _longest(self, op: Operation, several: Iterable[tuple[Path, Operation]]) -> Path:
        """The path of what depends on things of `several` paths."""
        longest: Path = ()
        by: Operation | None = None
        for path, source in several:
            if path is NEVER or longest is NEVER:
                longest = NEVER
                continue
            if len(path) > len(longest):
                longest, path, by, source = path, longest, source, by or source
            if longest[: len(path)] != path:
                assert by is not None
                raise ill_structured(
                    op,
                    "all that it depends on to stand in one branch, or outside of it",
                    f"'{by.name}' is in {shown(longest)} and '{source.name}' in {shown(path)}",
                    "return one of them from its branch through a Merge",
                )
        return longest

    def _joined(self, merge: Operation) -> Path:
        """The path of a Merge that is no loop's."""
        alive = [(t, path) for t in map(self.given, merge.inputs) if (path := self.path_of(t)) is not NEVER]
        if not alive:
            return NEVER
        inputs, paths = [t for t, _ in alive], [path for _, path in alive]
        if len(inputs) == 1:
            self.single[merge] = inputs[0]
            return paths[0]
        first = paths[0]
        ends: list[tuple[int, Tensor]] = []
        fits = bool(first)
        for path, t in zip(paths, inputs, strict=True):
            fits = fits and len(path) == len(first) and path[:-1] == first[:-1] and path[-1][0] is first[-1][0]
            if fits:
                ends.append((path[-1][1], t))
        n = self.sides.get(first[-1][0], 0) if fits else 0
        if not fits or sorted(side for side, _ in ends) != list(range(n)):
            got = ", ".join(f"'{t.name}' in {shown(p)}" for t, p in zip(inputs, paths, strict=True))
            raise ill_structured(
                merge,
                "inputs from the sides of one conditional, one from each",
                f"it has {got}",
                "give each branch one value, and merge conditionals inside one another one after the other",
            )
        self.joins[merge] = Join(first[:-1], first[-1][0], ends)
        return first[:-1]


def shown(path: Path) -> str:
    """A path in words."""
    if path is NEVER:
        return "a branch that is never taken"
    if not path:
        return "no branch"
    return " within ".join(f"side {side} of '{key.name}'" for key, side in reversed(path))


def ill_structured(op: Operation, expected: str, got: str, fix: str) -> InvalidArgumentError:
    """The error for an operation that no structured graph would have."""
    made = f" (made at {op.source})" if op.source is not None else ""
    return InvalidArgumentError(
        f"'{op.name}' ({op.type}){made} is not part of a well-structured loop or conditional: expected {expected}, but "
        f"{got}; {fix}. The graph runs as it is, but is not differentiated",
        op.name,
        op,
    )


def _first(node: Node) -> Operation:
    return node.frame.enters[0] if isinstance(node, FoundLoop) else node
