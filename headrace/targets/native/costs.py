"""Estimates of the time that native code takes, in nanoseconds.

They decide how often loops poll, and which regions are worth a call. They need not be exact: a factor of two changes
neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headrace import thresholds
from headrace.opkit.forms import Product, Reduce
from headrace.schedule.program import Branches, Compute, Instr, Loop
from headrace.schedule.scalar_expressions import Apply
from headrace.schedule.select import ListOperation, Map, Move

if TYPE_CHECKING:
    from headrace.schedule.program import Block, Value

# Nanoseconds of a ufunc on a number in a register, on an element of an array, of moving an element, and of
# a multiplication and addition in a product.
_NUMBER: Final = 1.0
_ELEMENT: Final = 0.2
_MOVED: Final = 0.2
_PRODUCT: Final = 0.01


def block(found: Block) -> float:
    """Time of one run of a block, without loops of unknown length."""
    return instrs(found.instrs)


def instrs(found: Iterable[Instr]) -> float:
    """Time of instructions, without loops of unknown length."""
    return sum(map(_instr, found))


def is_short(loop: Loop) -> bool:
    """Whether a loop takes less time than there may be between two polls."""
    if loop.trip is None or loop.trip.most is None or has_long_loops(loop.body):
        return False
    return loop.trip.most * max(1.0, block(loop.body)) <= thresholds.NATIVE_POLL_EACH


def has_long_loops(found: Block) -> bool:
    """Whether a block contains loops that poll."""
    return any(
        (isinstance(instr, Loop) and not is_short(instr)) or any(map(has_long_loops, instr.blocks))
        for instr in found.instrs
    )


def _instr(instr: Instr) -> float:
    if isinstance(instr, Loop):
        return (instr.trip.most or 0) * block(instr.body) if instr.trip is not None and is_short(instr) else 0.0
    if isinstance(instr, Branches):
        return max(map(block, instr.branches), default=0.0)
    if not isinstance(instr, Compute):
        return instrs(i for b in instr.blocks for i in b.instrs)
    size = sum(map(_size, instr.made))
    match instr.work:
        case Map(expression):
            return ufuncs(expression) * (_ELEMENT * size if size > 1 else _NUMBER)
        case Move(form) if isinstance(form, Product):
            a, b = (v.shape or (1, 1) for v in instr.inputs[:2])
            return _PRODUCT * math.prod(d or 1 for d in a) * (b[0 if form.turned[1] else 1] or 1)
        case Move(form) if isinstance(form, Reduce):
            return _ELEMENT * _size(instr.inputs[form.source])
        case Move() | ListOperation():
            return 1 + _MOVED * (size + sum(map(_size, instr.inputs[-1:])))
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
