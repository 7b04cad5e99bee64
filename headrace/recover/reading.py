"""Analysis of a primitive graph: the branches, conditionals and loops of its operations.

**Frames** determine the loop of an operation (`ir.analysis.frames`). The branch of an operation is less explicit: a
conditional is a set of Switches on one predicate, operations that depend on them, and Merges. But the executor
determines it, by deadness. A Switch sends its value to one side and a dead token to the other, every operation that
depends on a dead token is dead, and a Merge ends that. So an operation runs under the condition that all Switches on
which it depends, by data or control edges, chose its side. This condition is its *path*: its sides (predicate, side),
outermost first.

    p, q = ...                                       path of the output
    s0, s1 = Switch(x, p)                            s0: (p 0)    s1: (p 1)
    a = Neg(s1)                                      (p 1)
    t0, t1 = Switch(a, Switch(q, p):1)               (p 1)(q 0), (p 1)(q 1)
    b = Merge(t0, Exp(t1))                           (p 1)        joins the two sides of q
    c = Merge(s0, b)                                 ()           joins those of p

In a *well-structured* graph, of the paths of two inputs of an operation, one is a prefix of the other, and the
operation has the longest path. The inputs of a Merge have the same path except for the last side, which is different
for each. Any other graph is refused here. It may run, but no conditional is equivalent to it.

A loop inside a frame is a single node of the frame, which depends on the inputs of its Enters. The Switches on the
predicate of a loop are treated like those of a conditional: side 1 leads into the body, side 0 to the Exits. Operations
in neither (with an empty path) are the *head*, which runs once more than the body.
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

# Path of operations that never run: a Switch inside a branch of its own predicate has a side that is not taken.
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
    """Effect of a Merge that ends a conditional.

    Attributes:
      path: The path of the conditional.
      key: Its predicate (or index).
      ends: The Merge's input from each side.
    """

    __slots__ = ("ends", "key", "path")

    def __init__(self, path: Path, key: Tensor, ends: Sequence[tuple[int, Tensor]]) -> None:
        self.path = path
        self.key = key
        self.ends = dict(ends)


class StructureAnalysis:
    """Paths, joins and order of operations of one graph.

    Args:
      ops: The operations.
      replaced: The replacements of primitive results that were recovered before.
      recovered: The names of operations with effects that are already in structured operations.

    Attributes:
      tree: The frames of the operations.
      nodes: The nodes of each frame, in topological order.
      path: The path of each node; for an Enter, that of the place where it fires.
      joins: The join of each Merge that ends a conditional.
      sides: The number of sides of the conditional of each predicate.
      single: The only input that can be alive, for each Merge with one such input.
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
        for f in reversed(self.tree.frames):  # inner frames first, because they are nodes of outer ones
            self.nodes[f] = self._sorted(f)
        for f in self.tree.frames:
            for node in self.nodes[f]:
                self._find_path(node)

    # *** edges ***

    def given(self, t: Tensor) -> Tensor:
        """`t`, or its replacement if its structure was recovered before."""
        return self.replaced.get(t, t)

    def inputs(self, node: Node) -> list[Tensor]:
        """Input tensors of a node in its own iteration."""
        if isinstance(node, FoundLoop):
            return [self.given(e.inputs[0]) for e in node.frame.enters]
        if node in self.loop_merges or node.opdef.primitive == "Enter":
            return []
        return [self.given(t) for t in node.inputs]

    def controls(self, node: Node) -> list[tuple[Operation, bool]]:
        """Control inputs of a node, each with whether a dead token is accepted.

        A ControlTrigger, which is alive even after dead inputs, is replaced by its own control inputs.
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
        """Control inputs of a ControlTrigger, with nested triggers replaced by theirs."""
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
        """The node of an operation in the frame of its results."""
        if op in self.ops and op.opdef.primitive == "Exit":
            return self.loops[self.tree.of(op)]
        return op

    def predecessors(self, node: Node) -> list[Node]:
        """Nodes of its frame for which a node waits, without those outside the frame."""
        made = [t.op for t in self.inputs(node)] + [c for c, _ in self.controls(node)]
        return [self.node_of(op) for op in made if self.is_inside(op)]

    def is_inside(self, op: Operation) -> bool:
        """Whether the outputs of `op` are computed in the iteration that uses them."""
        return op in self.ops and op.opdef.primitive != "Enter" and op not in self.loop_merges

    def _sorted(self, frame: Frame) -> list[Node]:
        """Nodes of a frame in topological order, in which an inner loop is one node."""
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
                "the results of a loop to be used only after it",
                "an input of the same loop depends on one of them",
                "split it into two loops",
            )
        return out

    # *** aliases ***

    def canonical(self, t: Tensor) -> Tensor:
        """The tensor whose value `t` has if alive, before Switches and idle Identities."""
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
        """Whether an operation only names the output of a primitive, as a pivot does."""
        while op.type == "Identity" and not op.control_inputs and "_gradient_op_type" not in op.attrs:
            op = self.given(op.inputs[0]).op
            if op not in self.ops:
                return False
            if op.opdef.primitive in ("Switch", "SwitchN", "Enter") or op in self.loop_merges:
                return True
        return False

    def key(self, switch: Operation) -> Tensor:
        """The predicate of a Switch, which identifies its conditional."""
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
        """Control inputs of the Identities between the predicate and a Switch."""
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
        """The path of one side of a Switch, which may be inside one of `key`."""
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
                    node,
                    "one kind of Switch for each predicate",
                    f"'{key.name}' is the predicate of Switches with different numbers of outputs",
                    "copy it",
                )

    def _longest(self, op: Operation, several: Iterable[tuple[Path, Operation]]) -> Path:
        """The path of an operation with inputs of `several` paths."""
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
                    "all its inputs to be in one branch or outside of it",
                    f"'{by.name}' is in {shown(longest)} and '{source.name}' in {shown(path)}",
                    "return one of them from its branch through a Merge",
                )
        return longest

    def _joined(self, merge: Operation) -> Path:
        """The path of a Merge that is not a loop's."""
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
                "one input from each side of one conditional",
                f"it has {got}",
                "give each branch one value, and merge nested conditionals innermost first",
            )
        self.joins[merge] = Join(first[:-1], first[-1][0], ends)
        return first[:-1]


def shown(path: Path) -> str:
    """A path as text."""
    if path is NEVER:
        return "a branch that is never taken"
    if not path:
        return "no branch"
    return " within ".join(f"side {side} of '{key.name}'" for key, side in reversed(path))


def ill_structured(op: Operation, expected: str, got: str, fix: str) -> InvalidArgumentError:
    """The error for an operation that no structured graph would contain."""
    made = f" (made at {op.source})" if op.source is not None else ""
    return InvalidArgumentError(
        f"'{op.name}' ({op.type}){made} is not part of a well-structured loop or conditional: expected {expected}, but "
        f"{got}; {fix}. The graph runs as it is, but is not differentiated",
        op.name,
        op,
    )


def _first(node: Node) -> Operation:
    return node.frame.enters[0] if isinstance(node, FoundLoop) else node
