"""Vectors of a nest that one iteration of its loop computes.

A chain of operations on one vector waits for the result of each. The processor fills the time with the next iterations,
as far as its window of instructions reaches. If the body of the loop is longer, the loop computes several independent
vectors in turns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headrace import thresholds
from headrace.schedule.scalar_expressions import Apply
from headrace.schedule.select import Map
from headrace.targets.native import elementary

if TYPE_CHECKING:
    from headrace.schedule.program import Value
    from headrace.targets.native.fusion import Nest


def vectors_in_turns(nest: Nest, registers: int) -> int:
    """The number of vectors, a power of two.

    Args:
      nest: The nest.
      registers: The number of vector registers.
    """
    if math.prod(d or 1 for d in nest.shape) < thresholds.INTERLEAVED_ELEMENTS:
        return 1
    length = sum(_instructions(m.work.expression) for m in nest.maps if isinstance(m.work, Map))
    if length < thresholds.INTERLEAVED_INSTRUCTIONS:
        return 1
    each = _most_live(nest) + thresholds.BETWEEN_OPERATIONS
    return min(thresholds.INTERLEAVED_VECTORS, 1 << max(registers // each, 1).bit_length() - 1)


def _instructions(node: Any) -> int:
    """The number of instructions of an expression, about."""
    seen: set[int] = set()

    def count(part: Any) -> int:
        if not isinstance(part, Apply) or id(part) in seen:
            return 0
        seen.add(id(part))
        return sum(map(count, part.args)) + (
            thresholds.FUNCTION_INSTRUCTIONS if part.ufunc.__name__ in elementary.LIBRARY_NAMES else 1
        )

    return count(node)


def _most_live(nest: Nest) -> int:
    """The greatest number of elements that the nest holds in registers between two maps.

    A complex number takes two.
    """
    last: dict[Value, int] = {}
    first: dict[Value, int] = {}
    for k, m in enumerate(nest.maps):
        for v in (*m.inputs, *m.made):
            if v.shape != () and v.storage != "constant":
                first.setdefault(v, k)
                last[v] = k
    sizes = {v: 1 + v.dtype.is_complex for v in last}
    return max(sum(sizes[v] for v in last if first[v] <= k < last[v]) for k in range(len(nest.maps)))
