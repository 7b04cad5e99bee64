"""Order of the instructions of a program before native regions are chosen.

A native region has no calls of kernels, and a list that crosses its border is copied, or keeps a loop in Python.
A graph may make a list long before the loop that fills it, and read variables in between. So each new list is made
immediately before its first reader. A kernel between a native loop and the instructions that prepare it, such as
elementwise work on the values of all iterations, is called after the loop, unless one of them reads its result. The
instructions that are moved are pure, so their order has no effect.

Updates of variables stand between the gradients that they use, and reads of variables between the operations that use
them. They are moved past native instructions, which neither read nor change the state of a step, so that these are
neighbors. Kernels keep their order. An update stays before an operation that must wait for it by control edges: if that
fails, the update has happened.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.ir import walk
from headrace.ir.kernel import OnResources
from headrace.schedule.program import Compute, Loop
from headrace.schedule.select import KernelCall, ListOperation, Map
from headrace.targets.native.fusion import deep_reads
from headrace.targets.native.regions import why_not
from headrace.targets.native.rewriting import rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ir.graph import Operation
    from headrace.schedule.program import Block, Instr, Program


class Reasons(dict["Instr", str]):
    """Reasons why instructions are not native; "" for native ones. Each is found once."""

    def __missing__(self, instr: Instr) -> str:
        found = self[instr] = why_not(rewritten([instr])[0])
        return found


def arrange(program: Program) -> None:
    """Orders the instructions of a program for native regions."""
    reasons = Reasons()
    make_lists_late(program)
    read_early(program, reasons)
    update_late(program, reasons)
    call_kernels_late(program, reasons)


def make_lists_late(program: Program) -> None:
    """Moves the instructions that make lists to their first readers."""
    for block in program.walk():
        if any(map(_makes_list, block.instrs)):
            _arrange(block)


def call_kernels_late(program: Program, reasons: Reasons) -> None:
    """Moves calls of pure kernels behind native loops and the instructions that follow these."""
    for block in program.walk():
        moved = block.instrs
        for loop in [i for i in block.instrs if isinstance(i, Loop)]:
            if not reasons[loop]:
                moved = _behind(loop, moved, reasons)
        block.instrs[:] = moved


def read_early(program: Program, reasons: Reasons) -> None:
    """Moves calls of kernels before the native instructions in front of them.

    These are calls without computed inputs, and reads of state that may fail under a condition. The scalar
    instructions that compute the condition move as well.
    """
    for block in program.walk():
        _read_early(block, reasons)


def _read_early(block: Block, reasons: Reasons) -> None:
    order: list[Instr] = []
    native: list[Instr] = []
    for instr in block.instrs:
        if not reasons[instr]:
            native.append(instr)
        elif _is_call(instr) and all(v.storage == "constant" for v in instr.inputs):
            order.append(instr)
        elif reads_state(instr) and (makers := _scalar_makers(instr, native)) is not None:
            order += [*makers, instr]
            native = [each for each in native if each not in makers]
        else:
            order += [*native, instr]
            native = []
    block.instrs[:] = [*order, *native]


def reads_state(instr: Instr) -> bool:
    """Whether an instruction reads a known resource, such as a variable, and has no effect.

    Its other inputs only state whether it may fail.
    """
    if not (isinstance(instr, Compute) and isinstance(instr.work, KernelCall)) or len(instr.made) != 1:
        return False
    facts, factory = instr.op.opdef.facts, instr.work.kernel.factory
    conditions = factory.conditions if isinstance(factory, OnResources) else 0
    is_known = 0 < instr.work.bound == len(instr.inputs) - conditions
    return is_known and facts.effect == "resource" and not (facts.writes or facts.checks or facts.blocking)


def is_scalar_map(instr: Instr) -> bool:
    """Whether an instruction computes a number of others."""
    return isinstance(instr, Compute) and isinstance(instr.work, Map) and instr.work.is_scalar


def _scalar_makers(instr: Instr, instrs: Sequence[Instr]) -> list[Instr] | None:
    """Those of `instrs` that compute the inputs of `instr`; None if any is not scalar."""
    wanted, found = set(instr.inputs), []
    for each in reversed(instrs):
        if not wanted.isdisjoint(each.made):
            if not is_scalar_map(each):
                return None
            wanted.update(each.inputs)
            found.append(each)
    return found[::-1]


def update_late(program: Program, reasons: Reasons) -> None:
    """Moves calls of kernels without results, such as updates of variables, behind native instructions.

    Their inputs stay in memory until then, so they must be small.
    """
    for block in program.walk():
        updates = {instr.op for instr in block.instrs if _is_update(instr)}
        if updates:
            _update_late(block, updates, reasons)


def _update_late(block: Block, updates: set[Operation], reasons: Reasons) -> None:
    waits = _waits_for(updates)
    order: list[Instr] = []
    late: list[Instr] = []
    for instr in block.instrs:
        if not reasons[instr]:
            if any(each.op in waits.get(instr.op, ()) for each in late):
                order += late
                late = []
            order.append(instr)
        elif instr.op in updates:
            late.append(instr)
        else:
            order += [*late, instr]
            late = []
    block.instrs[:] = [*order, *late]


def _is_update(instr: Instr) -> bool:
    facts = instr.op.opdef.facts
    is_change = facts.effect == "resource" and not facts.checks and not facts.blocking
    return is_change and _is_call(instr) and not instr.made and _is_small(instr)


def _waits_for(updates: set[Operation]) -> dict[Operation, frozenset[Operation]]:
    """For operations that run after some of the updates, these updates."""
    found: dict[Operation, frozenset[Operation]] = {}
    for op in walk.toposort(next(iter(updates)).graph.operations):
        mine: set[Operation] = set()
        for before in (*(t.op for t in op.inputs), *op.control_inputs):
            mine.update(found.get(before, ()))
            if before in updates:
                mine.add(before)
        if mine:
            found[op] = frozenset(mine)
    return found


def _is_call(instr: Instr) -> bool:
    return isinstance(instr, Compute) and isinstance(instr.work, KernelCall)


def _is_small(instr: Instr) -> bool:
    """Whether the computed inputs of an instruction are small arrays of known size."""
    found = [v for v in instr.inputs if v.storage != "constant"]
    kinds = all(v.representation in ("scalar", "array") for v in found)
    return kinds and all(0 <= v.bytes <= thresholds.LATE_UPDATE_BYTES for v in found)


def _behind(loop: Loop, instrs: list[Instr], reasons: Reasons) -> list[Instr]:
    """The instructions with the kernels that `loop` need not wait for behind it."""
    at = instrs.index(loop)
    read = set(deep_reads(loop))
    late: list[Instr] = []
    stay: list[Instr] = []
    for k in range(at - 1, -1, -1):
        instr = instrs[k]
        if reasons[instr]:
            if not _is_pure_call(instr) or not read.isdisjoint(instr.made):
                break
            late.append(instr)
        else:
            read.update(deep_reads(instr))
            stay.append(instr)
    front = instrs[: at - len(late) - len(stay)]
    made = {v for instr in late for v in instr.made}
    stop = at + 1
    while stop < len(instrs) and made.isdisjoint(deep_reads(instrs[stop])) and not reasons[instrs[stop]]:
        stop += 1
    return [*front, *reversed(stay), *instrs[at:stop], *reversed(late), *instrs[stop:]]


def _is_pure_call(instr: Instr) -> bool:
    record = instr.op.opdef
    return (
        isinstance(instr, Compute)
        and isinstance(instr.work, KernelCall)
        and record.is_pure
        and not (record.facts.checks or record.facts.blocking)
    )


def _makes_list(instr: Instr) -> bool:
    if not isinstance(instr, Compute) or not isinstance(instr.work, ListOperation) or not instr.made:
        return False
    return instr.work.role.makes and all(v.representation != "reference" for v in instr.inputs)


def _arrange(block: Block) -> None:
    waiting: dict[int, list[Instr]] = defaultdict(list)  # by the position of the first reader
    first = len(block.instrs)
    reader = dict.fromkeys(block.results, first)
    order: list[Instr] = []
    for k in range(first - 1, -1, -1):
        instr = block.instrs[k]
        if _makes_list(instr):
            at = min(reader.get(v, first) for v in instr.made)
            waiting[at].append(instr)
        else:
            at = k
        for v in deep_reads(instr):
            reader[v] = min(reader.get(v, first), at)
    for k, instr in enumerate(block.instrs):
        order += reversed(waiting.get(k, []))
        if not _makes_list(instr):
            order.append(instr)
    block.instrs[:] = [*order, *reversed(waiting.get(first, []))]
