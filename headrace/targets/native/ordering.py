"""Order of the instructions of a program before native regions are chosen.

A native region has no calls of kernels, and a list that crosses its border is copied, or keeps a loop in Python.
A graph may make a list long before the loop that fills it, and read variables in between. So each new list is made
immediately before its first reader. The instructions that make lists are pure, so their order has no effect.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from headrace.schedule.program import Compute
from headrace.schedule.select import ListOperation
from headrace.targets.native.fusion import deep_reads

if TYPE_CHECKING:
    from headrace.schedule.program import Block, Instr, Program


def make_lists_late(program: Program) -> None:
    """Moves the instructions that make lists to their first readers."""
    for block in program.walk():
        if any(map(_makes_list, block.instrs)):
            _arrange(block)


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
