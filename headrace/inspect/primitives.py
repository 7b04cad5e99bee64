"""Loops and conditionals of primitives: the position of each operation in them.

`ir.analysis.frames` gives the loop of an operation, and `recover.reading` its side of each conditional. A graph that is
not well-structured may still run. So the problem is reported, and the rest of the graph is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import GraphError, InvalidArgumentError, OpError
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.records import record
from headrace.recover.reading import NEVER, Node, StructureAnalysis

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame
    from headrace.ir.graph import Graph, Operation, Tensor

CONDITION: Final = 0
BODY: Final = 1

# From outside to inside: a loop with its condition or body, or a predicate with one of its sides.
Step: TypeAlias = "tuple[Frame | Tensor, int]"
Place: TypeAlias = "tuple[Step, ...]"


@record(frozen=True, slots=True)
class Conditional:
    """A conditional: all primitives with one predicate in one place.

    Attributes:
      switches: the Switches, which send values to one of the sides.
      merges: the Merges, which join the sides.
      sides: number of sides.
    """

    switches: list[Operation]
    merges: list[Operation]
    sides: int


@record(frozen=True, slots=True)
class Places:
    """Positions of operations in loops and conditionals.

    Attributes:
      of: the place of each operation in a loop or branch.
      conditionals: (place, predicate) → the conditional.
      uses: the consumers of the primitives' outputs.
      problem: the error that prevented a complete analysis, as text; "" if there was none.
    """

    of: Mapping[Operation, Place]
    conditionals: Mapping[tuple[Place, Tensor], Conditional]
    uses: Mapping[Tensor, Sequence[tuple[Operation, int]]]
    problem: str


_NONE: Final = Places({}, {}, {}, "")


def find(graph: Graph, ops: Sequence[Operation], deepest: int) -> Places:
    """Finds the places of `ops`; nesting deeper than `deepest` is cut off."""
    if not any(op.opdef.primitive for op in ops):
        return _NONE
    uses = walk.uses(ops)
    try:
        reading = _Lenient(ops, graph.replaced)
    except (GraphError, OpError) as e:
        problem = str(e)
    else:
        return _read(reading, ops, uses, deepest)
    try:
        tree = frames.derive(ops)
    except (GraphError, OpError):
        return Places({}, {}, uses, problem)
    of = {op: tuple((f, BODY) for f in _around(tree, op))[:deepest] for op in ops}
    return Places({op: place for op, place in of.items() if place}, {}, uses, problem)


class _Lenient(StructureAnalysis):
    """Analysis that accepts graphs that are not well-structured.

    An operation that depends on several branches gets the common part of their paths.

    Attributes:
      problem: the first error; "" if there was none.
    """

    def __init__(self, ops: Sequence[Operation], replaced: Mapping[Tensor, Tensor]) -> None:
        self.problem = ""
        super().__init__(ops, replaced)

    def _find_path(self, node: Node) -> None:
        try:
            super()._find_path(node)
        except InvalidArgumentError as e:
            self.problem = self.problem or str(e)
            paths = [self.path_of(t) for t in self.inputs(node)]
            paths += [self.path_of_op(c) for c, _ in self.controls(node)]
            first, n = paths[0], 0
            while all(path[: n + 1] == first[: n + 1] for path in paths) and n < len(first):
                n += 1
            self.path[node] = first[:n]


def _around(tree: frames.FrameTree, op: Operation) -> list[Frame]:
    """Loops around `op`, outermost first; an Enter counts as inside the loop that it enters."""
    frame = tree.entered_by(op) if op.opdef.primitive == "Enter" else tree.of(op)
    out: list[Frame] = []
    while frame.parent is not None:
        out.append(frame)
        frame = frame.parent
    return out[::-1]


def _read(
    reading: _Lenient, ops: Sequence[Operation], uses: Mapping[Tensor, Sequence[tuple[Operation, int]]], deepest: int
) -> Places:
    tree = reading.tree
    before: dict[Frame, Place] = {tree.root: ()}  # the place of each loop
    for f in tree.frames[1:]:
        assert f.parent is not None, "the root comes first"
        before[f] = _steps(before[f.parent], f.parent, reading.path[reading.loops[f]])
    of: dict[Operation, Place] = {}
    conditionals: dict[tuple[Place, Tensor], Conditional] = {}
    for op in ops:
        kind = op.opdef.primitive
        frame = tree.entered_by(op) if kind == "Enter" else tree.of(op)
        place = _steps(before[frame], frame, () if kind == "Enter" else reading.path[op])[:deepest]
        if place:
            of[op] = place
        if kind in ("Switch", "SwitchN"):
            key = reading.key(op)
            if key.op is not frame.loop_cond and all(thing is not key for thing, _ in place):
                found = conditionals.setdefault((place, key), Conditional([], [], len(op.outputs)))
                found.switches.append(op)
        elif op in reading.joins:
            found = conditionals.setdefault((place, reading.joins[op].key), Conditional([], [], len(op.inputs)))
            found.merges.append(op)
    return Places(of, conditionals, uses, reading.problem)


def _steps(outside: Place, frame: Frame, path: Sequence[tuple[Tensor, int]]) -> Place:
    """Place of an operation with `path` in `frame`; `outside` is the frame's place."""
    if frame.parent is None:
        return () if path is NEVER else tuple(path)
    sides = () if path is NEVER else path
    in_body = not frame.loop_cond or any(key.op is frame.loop_cond and side for key, side in sides)
    rest = tuple((key, side) for key, side in sides if key.op is not frame.loop_cond)
    return (*outside, (frame, BODY if in_body else CONDITION), *rest)


@record(frozen=True, slots=True)
class LoopVariable:
    """A loop variable of primitives, with the names of the operations around its Merge.

    Attributes:
      merge: the Merge.
      enter: the names of its Enters.
      next: the names of its NextIterations.
      exits: the names of its Exits.
    """

    merge: Operation
    enter: str
    next: str
    exits: str


def variables(frame: Frame, uses: Mapping[Tensor, Sequence[tuple[Operation, int]]]) -> Iterator[LoopVariable]:
    """Loop variables of `frame`."""
    for merge in sorted(frame.merges, key=lambda op: op.id):
        by_primitive: dict[str, list[str]] = {}
        for t in merge.inputs:
            by_primitive.setdefault(t.op.opdef.primitive, []).append(t.op.name)
        for switch, _ in uses.get(merge.outputs[0], ()):
            if switch.opdef.primitive == "Switch":
                exits = (user.name for user, _ in uses.get(switch.outputs[0], ()) if user.opdef.primitive == "Exit")
                by_primitive.setdefault("Exit", []).extend(exits)
        names = (", ".join(dict.fromkeys(by_primitive.get(p, ()))) for p in ("Enter", "NextIteration", "Exit"))
        yield LoopVariable(merge, *names)
