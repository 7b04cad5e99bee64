"""Sums of gradients: the contributions of all uses of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from headrace import dtypes
from headrace.ir.graph import Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.opdef import MOST_TENSORS

if TYPE_CHECKING:
    from headrace.ir.builder import Builder

Gradient: TypeAlias = "Tensor | IndexedSlices"


def total(b: Builder, parts: Sequence[Gradient]) -> Gradient | None:
    """Returns the sum of `parts`, or None for no parts.

    If all parts are slices, the sum is their concatenation.
    """
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    slices = [p for p in parts if isinstance(p, IndexedSlices)]
    if len(slices) == len(parts):
        indices = [s.indices for s in slices]
        if len({t.dtype.base for t in indices}) > 1:
            indices = [b.Cast(t, DstT=dtypes.int64) for t in indices]
        values = b.ConcatV2([s.values for s in slices], 0)
        return IndexedSlices(values, b.ConcatV2(indices, 0), slices[0].dense_shape)
    terms = [dense(b, p) for p in parts]
    while len(terms) > MOST_TENSORS:
        terms = [b.AddN(terms[:MOST_TENSORS]), *terms[MOST_TENSORS:]]
    out: Tensor = b.AddN(terms)
    return out


def dense(b: Builder, g: Gradient) -> Tensor:
    """Converts `g` to a tensor."""
    return g if isinstance(g, Tensor) else g.as_tensor(b)
