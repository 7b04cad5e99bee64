"""Loops and conditionals of primitives: where each operation stands that has to do with some.

`ir.analysis.frames` says which loop an operation is in, and `recover.reading` on which side of which conditional. A
graph that is not well-structured may run all the same, so what is wrong with it is told, and as much shown as can be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import GraphError, InvalidArgumentError, OpError
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.recover.reading import NEVER, Node, StructureAnalysis

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame
    from headrace.ir.graph import Graph, Operation, Tensor

CONDITION: Final = 0
BODY: Final = 1

# From outside to inside: a loop and its condition or body, or a predicate and one of its sides.
Step: TypeAlias = "tuple[Frame | Tensor, int]"
Place: TypeAlias = "tuple[Step, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Conditional:
    """What primitives with one predicate do in one place.

    Attributes:
      switches: they send values one way or the other.
      merges: they join what comes back.
      sides: how many ways there are.
    """

    switches: list[Operation]
    merges: list[Operation]
    sides: int


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where operations stand.

    Attributes:
      of: the place of each that is in a loop or branch.
      conditionals: (place, predicate) → it.
      uses: who reads what comes out of the primitives.
      problem: why not all loops and conditionals could be told: the error's text, or "".
    """

    of: Mapping[Operation, Place]
    conditionals: Mapping[tuple[Place, Tensor], Conditional]
    uses: Mapping[Tensor, Sequence[tuple[Operation, int]]]
    problem: str


_NONE: Final = Places({}, {}, {}, "")


def find(graph: Graph, ops: Sequence[Operation], deepest: int) -> Places:
    """Where `ops` stand; what is nested more deeply than `deepest` is in the last place shown."""
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
    """Reads graphs that are not well-structured, too: an operation that depends on several branches stands where all of
    them do.

    Attributes:
      problem: what was wrong first; "" for nothing.
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
    """The loops around `op`, outermost first; an Enter is shown in the loop that it leads into."""
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
    before: dict[Frame, Place] = {tree.root: ()}  # the place that a loop stands in
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
    """The place of what has `path` in `frame`, which stands in the place `outside`."""
    if frame.parent is None:
        return () if path is NEVER else tuple(path)
    sides = () if path is NEVER else path
    in_body = not frame.loop_cond or any(key.op is frame.loop_cond and side for key, side in sides)
    rest = tuple((key, side) for key, side in sides if key.op is not frame.loop_cond)
    return (*outside, (frame, BODY if in_body else CONDITION), *rest)


@dataclasses.dataclass(frozen=True, slots=True)
class LoopVariable:
    """A value that goes round a loop of primitives: the names of the Enters, NextIterations and Exits of `merge`."""

    merge: Operation
    enter: str
    next: str
    exits: str


def variables(frame: Frame, uses: Mapping[Tensor, Sequence[tuple[Operation, int]]]) -> Iterator[LoopVariable]:
    """What goes round in `frame`."""
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
