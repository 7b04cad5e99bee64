"""Cost of one firing of an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


def flops_of(op: Operation) -> float | None:
    """Returns the cost of one firing; None if the static shapes do not give it.

    An op without a cost function moves elements; each element of an output counts as one flop.
    """
    outputs = [t.shape for t in op.outputs]
    cost = op.opdef.facts.cost
    if cost is not None:
        return cost([t.shape for t in op.inputs], outputs)
    sizes = [shapes.size(s) for s in outputs]
    return None if None in sizes else float(sum(n or 0 for n in sizes))
