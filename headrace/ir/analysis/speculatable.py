"""Speculatable operations: those that cannot fail and may be computed without being needed.

A pass may move an operation of a loop body in front of the loop. If the loop runs no iteration, the operation would not
have been computed at all, so it must be one that cannot fail.

An operation can fail for two reasons. Values can make it fail; its record states this (`Facts.total`). Shapes can fail
to fit. Known shapes have been checked by inference. If a dimension is unknown, the record's shape rule is called twice
more: with 0 for all unknown dimensions, and with a different large number for each. If it accepts both, its answer does
not depend on the unknown dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes, shapes
from headrace.errors import OpError
from headrace.ir.infer import Inference, constant_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.ir.graph import Operation
    from headrace.shapes import Shape


def is_speculatable(op: Operation) -> bool:
    """Whether `op` succeeds for all values of its inputs.

    Example:
      >>> from headrace.ir.text import from_text
      >>> g = from_text("x = Placeholder[dtype=int32, shape=[?,3]]\\ny = AddV2(x, x)\\nz = FloorDiv(x, x)\\nn = Neg(x)")
      >>> [is_speculatable(op) for op in g.operations[1:]]
      [True, False, True]
    """
    record = op.opdef
    facts = record.facts
    if not record.is_pure or facts.total is None or any(t.dtype.base in dtypes.OBJECT for t in op.inputs):
        return False
    if facts.total_for is not None and op.attrs["T"] not in facts.total_for:
        return False
    spans = record.spans(op.attrs)
    if not all(constant_value(t) is not None for name in facts.total for t in op.inputs[spans[name]]):
        return False
    if all(shapes.is_full(t.shape) for t in op.inputs):
        return True
    if any(t.shape is None for t in op.inputs):
        return facts.forwards is not None or facts.shape_only
    return _accepts(op, _zeros()) and _accepts(op, _large())


def _zeros() -> Iterator[int]:
    while True:
        yield 0


def _large() -> Iterator[int]:
    n = 1_000_003  # the numbers, their multiples and successors that occur here have no common factors
    while True:
        yield n
        n += 6_006


def _accepts(op: Operation, sizes: Iterator[int]) -> bool:
    """Whether the shape rule accepts the inputs if their unknown dimensions are `sizes`."""
    c = Inference(op)
    supposed = {t: _with(t.shape, sizes) for t in op.inputs}
    c.shapes = [supposed[t] for t in op.inputs]
    try:
        op.opdef.shape(c)
    except (ValueError, IndexError, TypeError, OverflowError, OpError):
        return False
    return True


def _with(shape: Shape, sizes: Iterator[int]) -> Shape:
    return None if shape is None else tuple(next(sizes) if d is None else d for d in shape)
