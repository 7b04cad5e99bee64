"""Lifetimes: the last reader of each value of a block.

A value that an instruction of a block defines ends with its last reader in this block, unless it is a result of the
block. Values from outside of a branch or a body live on. The memory of a value that ends can be freed, and sometimes a
result can take it (`buffers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.opkit.forms import COPIES
from headrace.schedule.program import Compute, Convert, Group, Segment
from headrace.schedule.select import KernelCall, ListOperation, Map, Move

if TYPE_CHECKING:
    from headrace.schedule.program import Block, Instr, Program, Value


def mark_ends(program: Program) -> None:
    """Sets `drops` of all instructions.

    Values that a segment reads end in its block too, which is a function with names of its own.
    """
    given: dict[Block, Sequence[Value]] = {}
    for block in program.walk():
        mine = set(given.get(block, ()))
        for instr, ends in zip(block.instrs, endings(block.instrs, block.results), strict=True):
            instr.drops = tuple([v for v in ends if v in mine])
            mine.update(instr.made)
            if isinstance(instr, Segment):
                given[instr.block] = instr.inputs


def endings(instrs: Sequence[Instr], results: Collection[Value]) -> list[list[Value]]:
    """For each instruction, the values that it is the last one to read, except `results`."""
    kept = set(results)
    out: list[list[Value]] = []
    for instr in reversed(instrs):
        ends = [v for v in instr.reads if v not in kept]
        kept.update(ends)
        out.append(ends)
    out.reverse()
    return out


def retained(instrs: Iterable[Instr]) -> set[Value]:
    """Values of which an object may keep a view or a reference after an instruction."""
    return {v for instr in instrs if _keeps_inputs(instr) for v in instr.reads}


def changed(instr: Instr) -> tuple[Value, ...]:
    """The list that an instruction changes in place, if any."""
    is_change = isinstance(instr, Compute) and isinstance(instr.work, ListOperation) and instr.work.role.changes
    return instr.inputs[:1] if is_change else ()


def _keeps_inputs(instr: Instr) -> bool:
    if isinstance(instr, Group):
        return False
    if not isinstance(instr, Compute):
        return True
    match instr.work:
        case Map() | Convert():
            return False
        case Move(form):
            return not isinstance(form, COPIES)
        case KernelCall():
            return not (instr.op.opdef.facts.fresh and len(instr.op.outputs) == 1)
    return True
