"""Rules for forms (`opkit.forms`) of the ops of `diagonal.py`.

Each diagonal, or row of a band, is a part. The module registers no ops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.ir.infer import constant_value
from headrace.opkit.forms import Assemble, Form, FormRule, Lattice, Part, is_whole, static_dims
from headrace.opkit.order_forms import MOST_PARTS, box
from headrace.ops.linalg.bands import Diagonal, band_of, diagonals


def _band(op: Any, k: int | None) -> tuple[int, int] | None:
    """The lowest and highest diagonal that input `k` names; None if not static."""
    if k is None:
        return 0, 0
    value = constant_value(op.inputs[k])
    if value is None or value.ndim > 1 or value.size not in (1, 2):
        return None
    low, high = band_of(value)
    return (low, high) if low <= high else None


def _lattice(batch: int, rank: int, first: tuple[int, ...], step: tuple[int, ...]) -> Lattice:
    """Places that step through the last axes, for all elements of a batch."""
    units = [tuple(int(k == axis) for k in range(rank)) for axis in range(batch)]
    return Lattice((*[0] * batch, *first), (*units, (*[0] * batch, *step)))


def _parts(
    batch: tuple[int, ...], found: Iterable[Diagonal], source: int, is_single: bool, takes_matrix: bool
) -> tuple[Part, ...]:
    """The diagonals as parts of matrices and of packed bands.

    Args:
      batch: The axes before those of a matrix.
      found: The diagonals.
      source: The position of the input with the elements.
      is_single: Whether the band has a single diagonal, which is packed as a vector.
      takes_matrix: Whether the elements are those of matrices, else of packed bands.
    """
    parts = []
    n = len(batch)
    for d in found:
        matrix = _lattice(n, n + 2, (d.row, d.column), (1, 1))
        packed = _lattice(n, n + 1, (d.offset,), (1,))
        if not is_single:
            packed = _lattice(n, n + 2, (d.packed, d.offset), (0, 1))
        taken, put = (matrix, packed) if takes_matrix else (packed, matrix)
        if d.length:
            parts.append(Part(source, (*batch, d.length), taken, put))
    return tuple(parts)


def diagonal_form(
    matrix: int, source: int, k: int | None, base: int | None = None, fill: int | None = None
) -> FormRule:
    """Returns the rule of an op that moves diagonals.

    Args:
      matrix: the position of the input with the matrices; -1: output 0.
      source: the position of the input with the elements.
      k: the position of the input that names the diagonals; None for the main ones.
      base: the position of the array with all other elements; None if there is none.
      fill: the position of the number that is all other elements; None for zeros.
    """

    def rule(op: Any) -> Form | None:
        shapes = [static_dims(t) for t in (op.outputs[0] if matrix < 0 else op.inputs[matrix], op.inputs[source])]
        out, band = static_dims(op.outputs[0]), _band(op, k)
        matrices = shapes[0]
        if None in shapes or out is None or band is None or matrices is None or len(matrices) < 2:
            return None
        if not is_whole(op.outputs[0]) or (fill is not None and op.inputs[fill].shape != ()):
            return None
        low, high = band
        rows, cols = matrices[-2:]
        if not (-rows < low and high < cols) or high - low >= MOST_PARTS:
            return None
        align = op.attrs.get("align", "LEFT_LEFT")
        takes_matrix = matrix == source
        found = _parts(matrices[:-2], diagonals(rows, cols, low, high, align), source, low == high, takes_matrix)
        return Assemble(out, found, base, fill)

    return rule


def band_part(op: Any) -> Form | None:
    """Form of `MatrixBandPart`."""
    x, lower, upper = static_dims(op.inputs[0]), constant_value(op.inputs[1]), constant_value(op.inputs[2])
    if x is None or len(x) < 2 or lower is None or upper is None or lower.ndim or upper.ndim:
        return None
    *batch, rows, cols = x
    below, above = int(lower), int(upper)
    if rows > MOST_PARTS or below > rows or above > cols:
        return None
    parts = []
    for r in range(rows):
        first = max(0, r - below) if below >= 0 else 0
        stop = min(cols, r + above + 1) if above >= 0 else cols
        if first < stop:
            at = (*[0] * len(batch), r, first)
            parts.append(box(0, (*batch, 1, stop - first), at, at))
    return Assemble(x, tuple(parts)) if parts else None
