"""Checks: the tests of results and of the size of lists that a run needs.

With `HEADRACE_VERIFY=2`, each result is compared with the static type of its tensor. A list of residuals of a loop's
gradient must not become larger than `flags.accumulator_limit()`. If the number of iterations and the size of an element
show that it cannot, the push needs no test.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from headrace import flags
from headrace.ir.notes import CountedResidual, ResidualPush
from headrace.schedule.program import Compute, Instr, Loop, nested
from headrace.schedule.select import ListOperation

if TYPE_CHECKING:
    from headrace.schedule.program import Program, Value


def place_checks(program: Program) -> None:
    """Sets `is_checked` and `most_bytes` of all instructions."""
    everything = flags.VERIFY.value >= 2
    makers = {v: i for block in program.walk() for i in block.instrs for v in i.made}
    pushes = Counter(i.inputs[0] for block in program.walk() for i in block.instrs if _is_push(i))
    loops: dict[int, Loop] = {}  # the innermost loop around a block, by the id of the block
    for block in program.walk():
        for instr in block.instrs:
            if isinstance(instr, Loop):
                loops.update((id(inner), instr) for inner in nested(instr.body))
            elif isinstance(instr, Compute):
                instr.is_checked = everything
                if _is_push(instr) and ResidualPush in instr.op.notes and CountedResidual not in instr.op.notes:
                    this = instr.inputs[0]
                    most = _most(this, loops.get(id(block)), makers) if pushes[this] == 1 else math.inf
                    instr.most_bytes = _limit(instr.inputs[1], most)


def _is_push(instr: Instr) -> bool:
    return isinstance(instr, Compute) and isinstance(instr.work, ListOperation) and instr.work.role.kind == "push"


def _limit(element: Value, most: float) -> int | None:
    """The bytes that a list may hold; None if `most` elements cannot exceed them."""
    if element.representation == "list":
        return flags.accumulator_limit()
    if element.shape == () and not flags.ACCUMULATOR_LIMIT.value:
        return None  # of scalars only with a limit of the user
    limit = flags.accumulator_limit()
    size = element.bytes
    return None if size >= 0 and most * size <= limit else limit


def _most(this: Value, loop: Loop | None, makers: dict[Value, Instr]) -> float:
    """The largest possible length of a list to which a loop pushes."""
    if loop is None or loop.trip is None or loop.trip.most is None:
        return math.inf
    variable = next((v for v in loop.variables if v.param is this), None)
    made = makers.get(variable.initial) if variable is not None else None
    is_new = isinstance(made, Compute) and isinstance(made.work, ListOperation) and made.work.role.kind == "empty"
    return loop.trip.most if is_new else math.inf
