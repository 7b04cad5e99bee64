"""Products that the last iteration of a loop need not compute.

A loop of a gradient computes the derivative by the state of each iteration from that of the next one. Of the first
state the derivative is often not read, so the product that computes it has no effect in the last iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace import thresholds
from headrace.opkit.forms import Permute, Pieces, Product, Reshape
from headrace.schedule.program import Compute, Loop
from headrace.schedule.select import Map, Move
from headrace.targets.native.fusion import Nest, deep_reads
from headrace.targets.native.rewriting import Division
from headrace.targets.native.strips import Strips, Unit


def unread_products(loop: Loop, found: Sequence[Unit]) -> list[Compute]:
    """Large products whose results have no effect in the last iteration of a loop.

    Only the next values of loop variables depend on them, and no operation after the loop reads these variables.

    Args:
      loop: The loop.
      found: The units of its body.
    """
    alive = {variable.next for variable in loop.variables if variable.final is not None}
    out: list[Compute] = []
    for unit in reversed(found):
        if isinstance(unit, Nest):
            for instr in reversed(unit.maps):
                if isinstance(instr.work, Division) or not alive.isdisjoint(instr.made):
                    alive.update(instr.inputs)
        elif isinstance(unit, Strips):
            alive.update(unit.reads)
        elif not _is_pure(unit) or not alive.isdisjoint(unit.made):
            alive.update(deep_reads(unit))
        elif _is_large(unit):
            assert isinstance(unit, Compute)
            out.append(unit)
    return out


def _is_pure(unit: Unit) -> bool:
    """Whether a unit has no effect but its results, and cannot fail."""
    if not isinstance(unit, Compute):
        return False
    if isinstance(unit.work, Move):
        return isinstance(unit.work.form, Product | Reshape | Pieces | Permute)
    return isinstance(unit.work, Map) and not isinstance(unit.work, Division)


def _is_large(unit: Unit) -> bool:
    if not isinstance(unit, Compute) or not isinstance(unit.work, Move) or not isinstance(unit.work.form, Product):
        return False
    terms = (unit.inputs[0].shape or (1, 1))[-2 if unit.work.form.turned[0] else -1] or 1
    return math.prod(d or 1 for d in unit.made[0].shape or ()) * terms > thresholds.INLINED_PRODUCT
