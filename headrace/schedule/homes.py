"""Homes: results that are computed into the variable of a loop or of a conditional.

At the end of an iteration, each loop variable takes its next value; at the end of a branch, each output of the
conditional takes a result. No such assignment is necessary if the value is put into the variable as soon as it is
computed. This is possible if the old value of the variable has no later reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.schedule.program import Branches, Compute, Loop, Section, Segment

if TYPE_CHECKING:
    from headrace.schedule.program import Block, Program, Value

_PUTS: Final = (Compute, Branches, Section, Segment)  # instructions that put their results into any variables


def find_homes(program: Program) -> None:
    """Sets `home` of the values that need no assignment."""
    for block in program.walk():
        for instr in block.instrs:
            if isinstance(instr, Loop):
                for variable in instr.variables:
                    if _is_free(instr.body, variable.next, variable.param):
                        variable.next.home = variable.param
            elif isinstance(instr, Branches):
                for branch in instr.branches:
                    for out, result in zip(instr.made, branch.results, strict=True):
                        if _is_made(branch, result) and (out.home is None or _is_free(branch, result, _variable(out))):
                            result.home = out


def _variable(value: Value) -> Value:
    """The value whose variable `value` overwrites."""
    while value.home is not None:
        value = value.home
    return value


def _is_made(block: Block, value: Value) -> bool:
    """Whether an instruction of `block` can put `value` into any variable."""
    if sum(v is value for v in block.results) != 1:
        return False
    return any(value in instr.made and isinstance(instr, _PUTS) for instr in block.instrs)


def _is_free(block: Block, made: Value, old: Value) -> bool:
    """Whether `made` may overwrite the variable of `old` as soon as it is computed.

    That requires that no later instruction reads `old`.

    Args:
      block: The block, whose results contain `made`.
      made: A value that an instruction of the block may define.
      old: A value from outside of the block.
    """
    if old in block.results or not _is_made(block, made):
        return False
    for instr in reversed(block.instrs):
        if made in instr.made:
            return len(instr.made) == 1 or old not in instr.reads
        if old in instr.reads:
            return False
    return False
