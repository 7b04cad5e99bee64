"""Schedules: the operations of a structured graph as instructions, in their order.

    program = schedule(regions, args, retvals)

`regions` orders the operations of a graph that must run. `select` gives each operation its instruction, and `build`
makes a `program` of them: values with representations, blocks and loops. Passes on the program follow: `checks` places
tests, `tiling` puts maps of large arrays into groups, `lifetimes` marks the last readers, `buffers` finds arrays that
results overwrite, and `homes` gives results variables. `verify` compares the program with its rules, and `text` prints
it. None of these modules depends on the code that is generated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import flags
from headrace.schedule.buffers import assign_buffers
from headrace.schedule.build import build
from headrace.schedule.checks import place_checks
from headrace.schedule.homes import find_homes
from headrace.schedule.lifetimes import mark_ends
from headrace.schedule.tiling import tile
from headrace.schedule.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.ir.graph import Operation
    from headrace.schedule.program import Program
    from headrace.schedule.regions import Regions


def schedule(
    regions: Regions,
    args: Sequence[Operation],
    retvals: Sequence[Operation],
    cut: Callable[[Program], None] | None = None,
) -> Program:
    """Makes the program of a step, with all passes.

    Args:
      regions: The regions of the step.
      args: The `_Arg` operations, in the order of the feeds.
      retvals: The `_Retval` operations, in the order of the fetches.
      cut: Replaces instructions by sections (`program.Section`); None for none.

    Returns:
      The program.
    """
    program = build(regions, args, retvals)
    place_checks(program)
    if cut is not None:
        cut(program)
    verifies = flags.VERIFY.value
    if verifies < 2:  # a group has no whole arrays to compare with static types
        tile(program)
    mark_ends(program)
    assign_buffers(program)
    find_homes(program)
    if verifies:
        verify(program)
    return program
