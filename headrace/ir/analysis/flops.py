"""Cost of one firing of an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes, thresholds

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


def is_threaded(op: Operation) -> bool:
    """Whether a firing of `op` calls the BLAS library with enough work for several threads.

    An unknown dimension, such as that of a batch, counts as `thresholds.PRODUCT_DIMENSION`.
    """
    facts = op.opdef.facts
    if not facts.blas:
        return False
    known = [[None if t.shape is None else _assumed(t.shape) for t in ts] for ts in (op.inputs, op.outputs)]
    flops = None if facts.cost is None else facts.cost(*known)
    return flops is None or flops >= thresholds.THREADED_PRODUCT


def _assumed(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple([thresholds.PRODUCT_DIMENSION if d is None else d for d in shape])
