"""Sums of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from headrace.ir.graph import Tensor
from headrace.ir.slices import IndexedSlices

if TYPE_CHECKING:
    from headrace.ir.builder import Builder

Gradient: TypeAlias = "Tensor | IndexedSlices"


def total(b: Builder, parts: Sequence[Gradient]) -> Gradient | None:
    """The sum of `parts`; None if there are none."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    slices = [p for p in parts if isinstance(p, IndexedSlices)]
    if len(slices) == len(parts):
        values = b.ConcatV2([s.values for s in slices], 0)
        indices = b.ConcatV2([b.Cast(s.indices, DstT="int64") for s in slices], 0)
        return IndexedSlices(values, indices, slices[0].dense_shape)
    out: Tensor = b.AddN([dense(b, p) for p in parts])
    return out


def dense(b: Builder, g: Gradient) -> Tensor:
    """`g` as a tensor."""
    if isinstance(g, Tensor):
        return g
    out: Tensor = b.UnsortedSegmentSum(
        g.values, g.indices, b.StridedSlice(g.dense_shape, [0], [1], [1], shrink_axis_mask=1)
    )
    return out
