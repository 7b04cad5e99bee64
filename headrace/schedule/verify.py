"""Rules of programs, checked after the passes (`HEADRACE_VERIFY`).

Each value is defined once and before its readers, and it is visible to them. No instruction reads a value after its
end. Blocks have as many results as their owners need. Buffers of a map are inputs that end with it, or its own steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceInternalError
from headrace.schedule.program import Branches, Compute, Group, Instr, Loop, Segment

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.schedule.program import Block, Program, Value


def verify(program: Program) -> None:
    """Checks the rules of a program.

    Args:
      program: The program.

    Raises:
      HeadraceInternalError: The program breaks a rule.
    """
    defined: set[Value] = set()
    for function in program.functions.values():
        _block(function.block, function.params, defined)
    _block(program.block, program.params, defined)


def _block(block: Block, known: Collection[Value], defined: set[Value], given: Collection[Value] = ()) -> None:
    """Checks a block.

    Args:
      block: The block.
      known: The values that are visible at its start.
      defined: All values that were defined before, anywhere; those of the block are added.
      given: Values from outside that may end in the block.
    """
    visible = set(known)
    ended: set[Value] = set()
    mine = set(given)
    for instr in block.instrs:
        for v in instr.reads:
            _is_true(v in visible or v.storage == "constant", instr, f"{v} is read before it is defined")
            _is_true(v not in ended, instr, f"{v} is read after its end")
        for v in instr.drops:
            _is_true(v in mine and v in instr.reads and v not in block.results, instr, f"{v} cannot end here")
        _instr(instr, visible, defined)
        ended.update(instr.drops)
        for v in instr.made:
            _is_true(v not in defined or isinstance(instr, Group | Segment), instr, f"{v} is defined twice")
        defined.update(instr.made)
        visible.update(instr.made)
        mine.update(instr.made)
    for v in block.results:
        if v not in visible and v.storage != "constant":
            raise HeadraceInternalError(f"schedule: result {v} ({v.tensor.name}) of a block is not defined")


def _instr(instr: Instr, visible: set[Value], defined: set[Value]) -> None:
    """Checks the blocks and buffers of an instruction."""
    inner = {*instr.captures, *instr.inputs}
    if isinstance(instr, Loop):
        _is_true(all(v.initial in inner or v.initial.storage == "constant" for v in instr.variables), instr, "captures")
        _is_true(len(instr.body.results) == len(instr.variables), instr, "next values")
        inner.update(v.param for v in instr.variables)
        if instr.trip is not None:
            inner.add(instr.trip.counter)
        if instr.test is not None:
            _is_true(len(instr.test.results) == 1, instr, "condition")
    elif isinstance(instr, Branches):
        for block in instr.branches:
            _is_true(len(block.results) == len(instr.made), instr, "results of branches")
    elif isinstance(instr, Compute):
        for k, step in enumerate(instr.steps):
            if step.into is not None:
                is_own = step.into < 0 and -step.into <= k
                ends = step.into >= 0 and instr.inputs[step.into] in instr.drops
                _is_true(is_own or ends, instr, "a buffer is still read")
    if isinstance(instr, Segment):  # its results are those of its block
        _block(instr.block, inner, defined, instr.inputs)
        return
    for block in instr.blocks:
        _block(block, inner, defined)


def _is_true(holds: bool, instr: Instr, rule: str) -> None:
    if not holds:
        raise HeadraceInternalError(f"schedule: '{instr.op.name}' ({instr.op.type}): {rule}")
