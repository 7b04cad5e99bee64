"""Segments: calls of a device's kernels, as one function of its arrays.

In a step on the host and a device (`partition.joined`), each call of a kernel takes the arrays out of the values of the
device and makes values of the results. A *segment* is a set of such calls in one block: one function computes all of
them on arrays. If a loop computes on the device alone, its body is one call.

Each instruction of a block has a *level*. A call of the device has at least the level of each call of the device that
it waits for, and a higher level than the other instructions that it waits for. Another instruction has at least the
levels of all instructions that it waits for, and of those before it unless it is pure. The calls of one level are a
segment, and run before the other instructions of this level. So segments form no cycle, and effects keep their order.
Control edges count as well, so that no effect precedes an error for which it must wait.

If the memory of the device is far, a copy to the host should not wait for more than it needs. So the calls of a level
also have the same *rank*. For each copy that the host awaits before it enqueues other calls, or in the next iteration,
the calls that it depends on have a rank, in the order of the copies. The calls of all other copies have the next rank,
and calls on which no copy depends the last one. A wait for a copy has at least the levels of all calls before it, so
that the host enqueues these first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import dtypes, thresholds
from headrace.device_arrays import is_host
from headrace.ir import walk
from headrace.ir.kernel import OnArrays
from headrace.schedule.program import Block, Compute, Convert, Read, Segment
from headrace.schedule.select import KernelCall, ListOperation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.device_arrays import ArrayMemory
    from headrace.ir.graph import Operation
    from headrace.schedule.program import Instr, Program, Value

_Levels: TypeAlias = "tuple[int, int]"  # the greatest of calls of the device, and of other instructions
_NO_LEVELS: Final = (-1, -1)


def make_segments(program: Program) -> None:
    """Replaces calls of kernels of a device by segments."""
    for block in list(program.walk()):
        memories = {i: found for i in block.instrs if (found := _memory(i)) is not None}
        if len(memories) >= thresholds.SEGMENT_CALLS:
            _divide(block, memories)


def is_on_device(value: Value) -> bool:
    """Whether a value is in the memory of a device."""
    if value.storage == "constant":
        return not is_host(value.constant)
    return value.representation == "object" and value.dtype not in dtypes.OBJECT


def _memory(instr: Instr) -> ArrayMemory | None:
    """The memory of the device whose pure kernel an instruction calls; None for other instructions."""
    if not isinstance(instr, Compute) or not isinstance(instr.work, KernelCall):
        return None
    factory = instr.work.kernel.factory
    if not isinstance(factory, OnArrays) or instr.op.opdef.facts.blocking:
        return None
    there = [is_on_device(v) for v in instr.inputs]
    wanted = [i not in factory.host for i in range(len(there))]
    suits = any(there) and there == wanted and instr.made and all(map(is_on_device, instr.made))
    return factory.memory if suits else None


def _divide(block: Block, memories: Mapping[Instr, ArrayMemory]) -> None:
    """Replaces the calls of each level by a segment."""
    memory = next(iter(memories.values()))
    levels = _levels(block, memories, {} if memory.is_near else _ranks(block, memories))
    calls: dict[int, list[Instr]] = defaultdict(list)
    others: dict[int, list[Instr]] = defaultdict(list)
    for instr in block.instrs:
        (calls if instr in memories else others)[levels[instr]].append(instr)
    if max(map(len, calls.values())) < thresholds.SEGMENT_CALLS:
        return
    readers: dict[Value, set[int]] = defaultdict(set)  # the levels of the calls that read it; -1: others do
    for instr in block.instrs:
        for v in instr.reads:
            readers[v].add(levels[instr] if instr in memories else -1)
    for v in block.results:
        readers[v].add(-1)
    out: list[Instr] = []
    for level in sorted(set(levels.values())):
        mine = calls[level]
        if len(mine) >= thresholds.SEGMENT_CALLS:
            made = [v for instr in mine for v in instr.made]
            results = tuple([v for v in made if readers[v] - {level}])
            inputs = dict.fromkeys(v for i in mine for v in i.inputs if v.storage != "constant")
            given = tuple([v for v in inputs if v not in set(made)])
            out.append(Segment(mine[-1].op, given, results, block=Block(mine, results, block.region), memory=memory))
        else:
            out += mine
        out += others[level]
    block.instrs[:] = out


def _ranks(block: Block, calls: Collection[Instr]) -> dict[Instr, int]:
    """The rank of each instruction, if the memory of the device is far."""
    awaited = set(block.results)
    is_followed = False
    for instr in reversed(block.instrs):
        is_followed |= instr in calls
        if instr.op.opdef.facts.awaits and is_followed:
            awaited.update(instr.inputs)
    begun = [instr for instr in block.instrs if instr.op.type == "_BeginToHost"]
    urgent = [instr for instr in begun if not awaited.isdisjoint(instr.made)]
    ranks = {**dict.fromkeys(begun, len(urgent)), **{instr: i for i, instr in enumerate(urgent)}}
    of_readers: dict[Value, int] = {}
    for instr in reversed(block.instrs):
        rank = min((of_readers[v] for v in instr.made if v in of_readers), default=len(urgent) + 1)
        ranks[instr] = rank = min(rank, ranks.get(instr, rank))
        for v in instr.reads:
            of_readers[v] = min(rank, of_readers.get(v, rank))
    return ranks


def _levels(block: Block, calls: Collection[Instr], ranks: Mapping[Instr, int]) -> dict[Instr, int]:
    """The level of each instruction.

    Args:
      block: The block.
      calls: Its calls of the device.
      ranks: The ranks of the instructions; none if the memory of the device is near.
    """
    graph = block.region.graph
    waits = _Waits(block.instrs)
    has_edges = any(op.control_inputs for op in graph.operations)
    made: dict[Value, _Levels] = {}
    levels: dict[Instr, int] = {}
    count = max(ranks.values(), default=0) + 1
    last = -1  # of the instructions that keep their order
    enqueued = -1  # of the calls so far
    inlined = -1  # of the calls of inlined functions, whose control edges are those of the functions' calls
    for instr in block.instrs:
        is_inlined = instr.op.graph is not graph
        before = [made[v] for v in instr.reads if v in made]
        if has_edges and not is_inlined:
            before.append(waits.of(instr.op))
        of_calls, of_others = _greatest(before)
        if instr in calls:
            level = max(of_calls, of_others + 1, last + 1 if is_inlined else 0)
            if ranks:
                level += (ranks[instr] - level) % count
            if is_inlined:
                inlined = max(inlined, level)
            enqueued = max(enqueued, level)
            mine = level, -1
        else:
            level = max(of_calls, of_others)
            if instr.op.opdef.facts.awaits:
                level = max(level, enqueued)
            if not _may_move(instr):
                last = level = max(level, last, inlined)
            mine = -1, level
        levels[instr] = level
        waits.add(instr.op, mine)
        made.update(dict.fromkeys(instr.made, mine))
    return levels


def _may_move(instr: Instr) -> bool:
    """Whether an instruction of the host is pure and reads no state."""
    if not isinstance(instr, Compute) or isinstance(instr.work, ListOperation | Read):
        return False
    if any(v.representation in ("list", "rows", "reference") for v in instr.reads):
        return False
    facts = instr.op.opdef.facts
    return isinstance(instr.work, Convert) or (instr.op.opdef.is_pure and not (facts.checks or facts.blocking))


class _Waits:
    """The levels of the instructions for which operations wait, by any edges.

    Args:
      instrs: The instructions of a block. Operations without one, such as Identity, pass the edges on.
    """

    def __init__(self, instrs: Iterable[Instr]) -> None:
        self._own = {instr.op for instr in instrs}
        self._known: dict[Operation, _Levels] = {}

    def add(self, op: Operation, levels: _Levels) -> None:
        """Sets the levels of an instruction of `op`."""
        self._known[op] = _greatest([self._known.get(op, _NO_LEVELS), levels])

    def of(self, op: Operation) -> _Levels:
        """The greatest levels of the instructions for which `op` waits."""
        waiting = [p for p in walk.predecessors(op) if self._is_open(p)]
        while waiting:
            before = walk.predecessors(waiting[-1])
            further = [p for p in before if self._is_open(p)]
            waiting += further
            if not further:
                self._known[waiting.pop()] = self._of(before)
        return self._of(walk.predecessors(op))

    def _is_open(self, op: Operation) -> bool:
        return op not in self._own and op not in self._known

    def _of(self, ops: Iterable[Operation]) -> _Levels:
        return _greatest([self._known[op] for op in ops if op in self._known])


def _greatest(levels: Sequence[_Levels]) -> _Levels:
    return max((a for a, _ in levels), default=-1), max((b for _, b in levels), default=-1)
