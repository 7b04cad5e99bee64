"""Estimates of the time that native code takes, in nanoseconds.

They decide how often loops poll, and which regions are worth a call. They need not be exact: a factor of two changes
neither.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headrace import thresholds
from headrace.opkit.forms import Product, Reduce, Top, Window
from headrace.schedule.program import Call, Compute, Instr, Loop
from headrace.schedule.scalar_expressions import Apply
from headrace.schedule.select import ListOperation, Map, Move
from headrace.targets.native.rewriting import CrossEntropy

if TYPE_CHECKING:
    from headrace.schedule.program import Block, Value


class Costs:
    """Estimates for the blocks of a region."""

    def __init__(self) -> None:
        self._blocks: dict[Block, float] = {}
        self._long: dict[Block, bool] = {}

    def block(self, found: Block) -> float:
        """Time of one run of a block, without loops of unknown length."""
        known = self._blocks.get(found)
        if known is None:
            known = self._blocks[found] = sum(map(self.instr, found.instrs))
        return known

    def is_short(self, loop: Loop) -> bool:
        """Whether a loop takes less time than there may be between two polls."""
        if loop.trip is None or loop.trip.most is None or self.has_long_loops(loop.body):
            return False
        return loop.trip.most * max(1.0, self.block(loop.body)) <= thresholds.NATIVE_POLL_EACH

    def has_long_loops(self, found: Block) -> bool:
        """Whether a block contains loops that poll, or calls."""
        known = self._long.get(found)
        if known is None:
            known = self._long[found] = any(
                isinstance(instr, Call)
                or (isinstance(instr, Loop) and not self.is_short(instr))
                or any(map(self.has_long_loops, instr.blocks))
                for instr in found.instrs
            )
        return known

    def instr(self, instr: Instr) -> float:
        """Time of an instruction, without loops of unknown length."""
        if isinstance(instr, Loop):
            trip = instr.trip
            return (trip.most or 0) * self.block(instr.body) if trip is not None and self.is_short(instr) else 0.0
        if isinstance(instr, Compute):
            return _compute(instr)
        return max(map(self.block, instr.blocks), default=0.0)


def _compute(instr: Compute) -> float:
    size = sum(map(_size, instr.made))
    match instr.work:
        case Map(expression):
            return ufuncs(expression) * (thresholds.NATIVE_ELEMENT * size if size > 1 else thresholds.NATIVE_NUMBER)
        case Move(form) if isinstance(form, Product):
            inner = (instr.inputs[0].shape or (1, 1))[-2 if form.turned[0] else -1]
            of_parts = 4 if instr.made[0].dtype.is_complex else 1
            return of_parts * thresholds.NATIVE_PRODUCT * size * (inner or 1)
        case Move(Top(source, count, _)):
            return 4 * thresholds.NATIVE_ELEMENT * _size(instr.inputs[source]) * count.bit_length()
        case Move(Window() as form):
            is_product = form.kind in ("forward", "by_input", "by_filter") and form.groups < form.channels
            return (thresholds.NATIVE_PRODUCT if is_product else thresholds.NATIVE_POOLED) * form.work
        case Move(form) if isinstance(form, Reduce):
            return thresholds.NATIVE_ELEMENT * _size(instr.inputs[form.source])
        case CrossEntropy():
            return 4 * thresholds.NATIVE_ELEMENT * _size(instr.inputs[0])
        case Move() | ListOperation():
            return 1 + thresholds.NATIVE_MOVED * (size + sum(map(_size, instr.inputs[-1:])))
    return 0.0


def _size(v: Value) -> int:
    return math.prod(d or 1 for d in v.shape or ())


def ufuncs(node: Any) -> int:
    """Number of ufuncs of an expression."""
    seen: set[int] = set()

    def count(part: Any) -> None:
        if isinstance(part, Apply) and id(part) not in seen:
            seen.add(id(part))
            for a in part.args:
                count(a)

    count(node)
    return len(seen)
