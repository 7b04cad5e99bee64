"""What decides when an operation of a primitive graph fires, and whether it fires dead.

Two questions are asked of each operation, and for both the answer is a set of *symbols*: which events must have
happened before it fires, and which of them make it dead. Operations with equal answers in one frame fire under the same
condition, and none of them waits for anything that the others do not wait for (`fused_regions` makes one node of such).

**Deadness** is an OR: an operation is dead if one of its inputs is. So its set is the union of its inputs' sets, and
new symbols come from the primitives alone. What a Switch puts out on side k is dead if what it is given is, or if its
predicate does not choose k: the symbol is `(predicate, k)`, the same for all Switches by that predicate. A Merge of the
sides of one Switch, `S + (p, 0)` and `S + (p, 1)`, is dead if S is, for one of the sides is always chosen; of other
Merges one knows what their inputs have in common, and the rest is one symbol.

**Waiting.** Pure operations take no time that matters here; what does are operations that wait for something outside
(a queue), those worth a thread of their own, and calls. Each of them is a symbol, and an operation's set is the union
of its inputs' sets once more. A Merge waits for one of its inputs only; if their sets differ, which of them it was is
a symbol of its own. What leaves a loop has one too, which stands for the end of the loop.

**Loops.** In iteration n + 1 a loop's Merge is what its NextIteration was in iteration n, so its symbol says "alive,
and there, as this variable is". Several variables mostly go round together: then they can share a symbol. That they do
is assumed at first of all variables that enter under one condition, and then refuted, as in the minimisation of
automata: where what goes back differs the class is split, until nothing is left to split. What is not refuted holds, by
induction on the iteration. In the same way it is assumed that an iteration cannot be alive if iteration 0 was not.

A set is an int, one bit for each symbol.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.ir import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor

MOST_PASSES: Final = 12  # over the graph; then each loop variable that is left is a class of its own


class Deadness(NamedTuple):
    """What decides about an operation, or about a token: sets of symbols.

    Attributes:
      dead: it is dead if one of them is.
      waits: it is there when all of them are done.
    """

    dead: int
    waits: int


class _Class(NamedTuple):
    """Loop variables that go round together.

    Attributes:
      bit: their symbol.
      entered: the fate of what enters.
      lasts: whether no iteration is alive, or there, unless iteration 0 was.
    """

    bit: int
    entered: Deadness
    lasts: bool


_ALWAYS: Final = Deadness(0, 0)


def deadness_of(ops: Sequence[Operation], tree: FrameTree, is_late: Callable[[Operation], bool]) -> DeadnessClasses:
    """What decides about each of `ops`.

    Args:
      ops: of one primitive graph.
      tree: their frames.
      is_late: whether an operation that is no primitive takes time, once it fires.
    """
    order = walk.toposort(ops)
    late = {op for op in ops if not op.opdef.primitive and is_late(op)}
    split: dict[Operation, tuple[Hashable, bool]] = {}
    for _ in range(MOST_PASSES):
        found = DeadnessClasses(order, tree, late, split)
        refined = found.refined()
        if refined is None:
            return found
        split = refined
    return DeadnessClasses(order, tree, late, {m: (m, False) for m in split})


class DeadnessClasses:
    """What one walk over the operations finds out, under what is assumed of loop variables.

    Args:
      order: the operations, each after what it waits for.
      tree: their frames.
      late: those that take time.
      split: for a loop's Merge what is known of its class: a number, and whether the class lasts.

    Attributes:
      of: the fate of each operation: that of its inputs together.
      after: of what waits for an operation by a control edge.
    """

    def __init__(
        self,
        order: Sequence[Operation],
        tree: FrameTree,
        late: set[Operation],
        split: Mapping[Operation, tuple[Hashable, bool]],
    ) -> None:
        self.of: dict[Operation, Deadness] = {}
        self._tree = tree
        self._late = late
        self._split = split
        self.after: dict[Operation, Deadness] = {}  # and of what comes out, where `_out` says nothing else
        self._out: dict[Tensor, Deadness] = {}  # of outputs that differ from that
        self._symbols: dict[Hashable, int] = {}
        self._inside: dict[Frame, int] = dict.fromkeys(tree.frames, 0)  # the symbols of each frame
        self._sides: dict[int, tuple[Tensor, int, int]] = {}  # symbol -> selector, side, number of sides
        self._classes: dict[Operation, _Class] = {}  # by Merge
        self._in_frame: dict[Frame, set[_Class]] = {f: set() for f in tree.frames}
        rules: dict[str, Callable[[Operation, Frame, Deadness], Deadness]] = {
            "": self._plain,
            "Switch": self._switch,
            "SwitchN": self._switch,
            "Merge": self._merge,
            "Enter": self._enter,
            "NextIteration": self._own,
            "Exit": self._exit,
            "ControlTrigger": self._trigger,
            "Send": self._plain,
            "Recv": self._own,  # it waits for another device, and is dead if what that sends is
        }
        for op in order:
            frame = tree.of(op)
            known = _ALWAYS if op.opdef.primitive == "Merge" else self._of_inputs(op)
            self.of[op] = known
            self.after[op] = rules[op.opdef.primitive](op, frame, known)

    def refined(self) -> dict[Operation, tuple[Hashable, bool]] | None:
        """The classes of loop variables, split where what goes back differs; None if it differs nowhere."""
        numbers: dict[Any, int] = {}
        out: dict[Operation, tuple[Hashable, bool]] = {}
        is_stable = True
        for m, c in self._classes.items():
            back = self.of[next(t.op for t in m.inputs if walk.is_back_edge(t.op, m))]
            lasts = c.lasts and bool(back.dead & c.bit) and bool(back.waits & c.bit)
            is_stable &= lasts == c.lasts
            out[m] = (numbers.setdefault((c, back, lasts), len(numbers)), lasts)
        if is_stable and len(numbers) == len(set(self._classes.values())):
            return None
        return out

    # *** symbols ***

    def _symbol(self, frame: Frame, *key: Hashable) -> int:
        """The symbol that stands for `key` in the iterations of `frame`."""
        bit = self._symbols.get((frame, key))
        if bit is None:
            bit = self._symbols[frame, key] = 1 << len(self._symbols)
            self._inside[frame] |= bit
        return bit

    def out(self, t: Tensor) -> Deadness:
        """The fate of what comes out as `t`."""
        return self._out.get(t) or self.after[t.op]

    def _of_inputs(self, op: Operation) -> Deadness:
        dead = waits = 0
        for t in op.inputs:
            d, w = self.out(t)
            dead |= d
            waits |= w
        for c in op.control_inputs:
            d, w = self.after[c]
            dead |= d
            waits |= w
        return Deadness(dead, waits)

    # *** rules: what comes out of an operation whose inputs are `known` ***

    def _plain(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        if op not in self._late:
            return known
        if op.opdef.structured:  # a call; its results come as soon as they are there, some of them dead
            for t in op.outputs:
                bit = self._symbol(frame, t)
                self._out[t] = Deadness(known.dead | bit, known.waits | bit)
        return Deadness(known.dead, known.waits | self._symbol(frame, op))

    def _switch(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        selector = _origin(op.inputs[1])
        where, key = self._tree.outputs_of(selector.op), selector
        if selector.dtype.is_ref:  # it may have changed when the next one reads it
            where, key = frame, op.outputs[0]
        n = len(op.outputs)
        for k, t in enumerate(op.outputs):
            bit = self._symbol(where, "side", key, k, n)
            self._sides[bit] = (key, k, n)
            self._out[t] = Deadness(known.dead | bit, known.waits)
        return known

    def _merge(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        enter = _loop_variable(op)
        if enter is not None and self._tree.entered_by(enter) is frame:
            entered = self.of[enter]
            number, lasts = self._split.get(op, (0, True))
            c = _Class(self._symbol(frame, "loop", entered, number, lasts), entered, lasts)
            self._classes[op] = c
            self._in_frame[frame].add(c)
            return Deadness(c.bit | entered.dead, c.bit | entered.waits) if lasts else Deadness(c.bit, c.bit)
        if op.control_inputs or any(t.op.opdef.primitive in ("NextIteration", "Enter") for t in op.inputs):
            return self._own(op, frame, known)
        given = [self.out(t) for t in op.inputs]
        dead, waits = given[0]
        for g in given[1:]:
            dead &= g.dead
            waits &= g.waits
        if not self._is_exhaustive([g.dead & ~dead for g in given]):
            dead |= self._symbol(frame, "dead", *(g.dead for g in given))
        if any(g.waits != given[0].waits for g in given):
            waits |= self._symbol(frame, "waits", *given)
        return Deadness(dead, waits)

    def _is_exhaustive(self, rests: Sequence[int]) -> bool:
        """Whether one of `rests` is surely alive: they are all the sides of one selector."""
        sides = [self._sides.get(r) for r in rests]
        if sides[0] is None:
            return False
        selector, _, n = sides[0]
        return set(sides) == {(selector, k, n) for k in range(n)}

    def _enter(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        # one that is no constant has a token in iteration 0 only; its Merge knows what to make of it
        return known if op.attrs["is_constant"] else self._own(op, self._tree.entered_by(op), known)

    def _own(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        """Nothing is known of what comes out."""
        bit = self._symbol(frame, op)
        return Deadness(bit, bit)

    def _trigger(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        return Deadness(self._symbol(frame, op), known.waits)

    def _exit(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        assert frame.parent is not None
        inside = self._inside[frame]
        dead, waits = known.dead & ~inside, known.waits & ~inside
        for c in self._in_frame[frame]:
            if c.lasts and known.dead & c.bit:
                dead |= c.entered.dead
            if c.lasts and known.waits & c.bit:
                waits |= c.entered.waits
        bit = self._symbol(frame.parent, "exit", frame, known)
        return Deadness(dead | bit, waits | bit)


def _loop_variable(merge: Operation) -> Operation | None:
    """The Enter of a loop variable, given its Merge; None if `merge` is not what loops have there."""
    if len(merge.inputs) != 2 or merge.control_inputs:
        return None
    kinds = [t.op.opdef.primitive for t in merge.inputs]
    if sorted(kinds) != ["Enter", "NextIteration"]:
        return None
    enter = merge.inputs[kinds.index("Enter")].op
    return None if enter.attrs["is_constant"] else enter


def _origin(t: Tensor) -> Tensor:
    """The tensor whose value `t` passes on."""
    while not t.dtype.is_ref:
        op = t.op
        if op.opdef.primitive == "Enter" and op.attrs["is_constant"]:
            t = op.inputs[0]
        elif (i := op.opdef.facts.forwards) is not None and t.index == 0 and not op.inputs[i].dtype.is_ref:
            t = op.inputs[i]
        else:
            break
    return t
