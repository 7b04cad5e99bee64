"""Conditions under which the operations of a primitive graph fire, alive or dead.

The analysis asks two questions of each operation, and answers each with a set of *symbols*: which events must happen
before the operation fires, and which of them make it dead. Operations of one frame with equal answers fire under the
same condition, and none of them waits for an event that the others do not wait for. `fused_regions` makes one node of
such operations.

**Deadness** is an OR: an operation is dead if one of its inputs is. Its set is therefore the union of its inputs' sets,
and new symbols come from the primitives alone. Output k of a Switch is dead if the data is dead, or if the predicate
does not choose k. The symbol of the second condition is `(predicate, k)`, which all Switches of that predicate share. A
Merge of the sides of one Switch, `S + (p, 0)` and `S + (p, 1)`, is dead if S is, because one of the sides is always
chosen. Of any other Merge, the common part of the inputs' sets is known, and one symbol stands for the rest.

**Waiting.** The time of pure operations is ignored. The time of three kinds of operations counts: those that wait for
an event outside of the step (a queue), those worth a thread of their own, and calls. Each of them is a symbol, and the
set of an operation is again the union of its inputs' sets. A Merge waits for one of its inputs only. If their sets
differ, the choice of the input is a symbol of its own. The outputs of a loop have a further symbol, which stands for
the end of the loop.

**Loops.** In iteration n + 1, the Merge of a loop variable has the state of its NextIteration in iteration n. Its
symbol therefore says "alive and available if this variable is". Several variables of a loop mostly have the same state
in each iteration, and can then share a symbol. The analysis first assumes this of all variables that enter under one
condition. It then refutes the assumption as in the minimisation of automata: a class is split where the values passed
to the next iteration differ, until no class can be split. Assumptions that are not refuted hold, by induction on the
iteration. In the same way, the analysis assumes that no iteration is alive unless iteration 0 was.

A set is an int with one bit for each symbol. The cost is at most `thresholds.DEADNESS_PASSES` passes over the graph.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace import thresholds
from headrace.ir import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor


class Deadness(NamedTuple):
    """Conditions of an operation or token, as sets of symbols.

    Attributes:
      dead: Symbols that make it dead, if one of them holds.
      waits: Symbols of the events that must all happen before it is available.
    """

    dead: int
    waits: int


class _Class(NamedTuple):
    """Loop variables with equal deadness in each iteration.

    Attributes:
      bit: The symbol of the class.
      entered: The conditions of the values that enter the loop.
      lasts: Whether no iteration is alive or available unless iteration 0 was.
    """

    bit: int
    entered: Deadness
    lasts: bool


_ALWAYS: Final = Deadness(0, 0)


def deadness_of(ops: Sequence[Operation], tree: FrameTree, is_late: Callable[[Operation], bool]) -> DeadnessClasses:
    """Conditions under which each of `ops` fires and is dead.

    Args:
      ops: The operations of one primitive graph.
      tree: Their frames.
      is_late: Whether an operation, which is not a primitive, takes time after it fires.

    Returns:
      The conditions of the operations.
    """
    order = walk.toposort(ops)
    late = {op for op in ops if not op.opdef.primitive and is_late(op)}
    split: dict[Operation, tuple[Hashable, bool]] = {}
    for _ in range(thresholds.DEADNESS_PASSES):
        found = DeadnessClasses(order, tree, late, split)
        refined = found.refined()
        if refined is None:
            return found
        split = refined
    return DeadnessClasses(order, tree, late, {m: (m, False) for m in split})


class DeadnessClasses:
    """Conditions found by one pass over the operations, under an assumption about loop variables.

    Args:
      order: The operations, in topological order.
      tree: Their frames.
      late: The operations that take time.
      split: For the Merge of a loop variable, the number of its class and whether the class lasts.

    Attributes:
      of: The conditions of each operation: the union of those of its inputs.
      after: The conditions of the control outputs of each operation.
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
        self.after: dict[Operation, Deadness] = {}  # also of the outputs that are not in `_out`
        self._out: dict[Tensor, Deadness] = {}  # of outputs that differ from `after`
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
            "Recv": self._own,  # it waits for another device, and is dead if the token sent is
        }
        for op in order:
            frame = tree.of(op)
            known = _ALWAYS if op.opdef.primitive == "Merge" else self._of_inputs(op)
            self.of[op] = known
            self.after[op] = rules[op.opdef.primitive](op, frame, known)

    def refined(self) -> dict[Operation, tuple[Hashable, bool]] | None:
        """Classes of loop variables, split by the values of the next iteration; None if stable."""
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
        """Symbol of `key` in the iterations of `frame`."""
        bit = self._symbols.get((frame, key))
        if bit is None:
            bit = self._symbols[frame, key] = 1 << len(self._symbols)
            self._inside[frame] |= bit
        return bit

    def out(self, t: Tensor) -> Deadness:
        """Conditions of the token of output `t`."""
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

    # *** rules: the conditions after an operation whose inputs are `known` ***

    def _plain(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        if op not in self._late:
            return known
        if op.opdef.structured:  # a call: each result is sent when it is available, and may be dead
            for t in op.outputs:
                bit = self._symbol(frame, t)
                self._out[t] = Deadness(known.dead | bit, known.waits | bit)
        return Deadness(known.dead, known.waits | self._symbol(frame, op))

    def _switch(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        selector = _origin(op.inputs[1])
        where, key = self._tree.outputs_of(selector.op), selector
        if selector.dtype.is_ref:  # the value may change before the next Switch reads it
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
        """Whether one of `rests` is always alive, because they are all sides of one selector."""
        sides = [self._sides.get(r) for r in rests]
        if sides[0] is None:
            return False
        selector, _, n = sides[0]
        return set(sides) == {(selector, k, n) for k in range(n)}

    def _enter(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        # the Enter of a loop variable has a token in iteration 0 only; `_merge` handles that
        return known if op.attrs["is_constant"] else self._own(op, self._tree.entered_by(op), known)

    def _own(self, op: Operation, frame: Frame, known: Deadness) -> Deadness:
        """The conditions of an output of which nothing is known: a symbol of its own."""
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
    """The Enter of a loop variable, given its Merge; None for other Merges."""
    if len(merge.inputs) != 2 or merge.control_inputs:
        return None
    kinds = [t.op.opdef.primitive for t in merge.inputs]
    if sorted(kinds) != ["Enter", "NextIteration"]:
        return None
    enter = merge.inputs[kinds.index("Enter")].op
    return None if enter.attrs["is_constant"] else enter


def _origin(t: Tensor) -> Tensor:
    """The tensor whose value `t` forwards."""
    while not t.dtype.is_ref:
        op = t.op
        if op.opdef.primitive == "Enter" and op.attrs["is_constant"]:
            t = op.inputs[0]
        elif (i := op.opdef.facts.forwards) is not None and t.index == 0 and not op.inputs[i].dtype.is_ref:
            t = op.inputs[i]
        else:
            break
    return t
