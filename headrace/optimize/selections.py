"""Selections along one dimension: a row or a range of a tensor, and their gradients.

    x[:, t], Slice          row t of dimension 1            `row_of`
    x[:, 3:5], Slice, Pad   elements 3 to 4 of dimension 1  `piece_of`

The same selection can be written as a `StridedSlice`, a `Slice` or a `GatherV2`. These functions read all of them. The
gradient of a selection puts its argument into zeros at the same place (`StridedSliceGrad`, `Pad`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir.infer import constant_value
from headrace.records import record

if TYPE_CHECKING:
    import numpy as np

    from headrace.ir.graph import Operation, Tensor
    from headrace.shapes import Shape


@record(frozen=True, slots=True)
class Row:
    """Selection of one index of a dimension.

    Attributes:
      axis: the dimension.
      index: the index, a scalar.
      keeps: whether the result has the dimension, with size 1.
    """

    axis: int
    index: Tensor
    keeps: bool = False


@record(frozen=True, slots=True)
class Piece:
    """Selection of consecutive elements of a dimension.

    Attributes:
      axis: the dimension.
      begin: the first element.
      size: the number of elements.
    """

    axis: int
    begin: int
    size: int


def row_of(op: Operation) -> Row | None:
    """Returns the row that `op` selects, or puts into zeros, or None."""
    if op.type == "GatherV2":
        return _gathered(op)
    if op.type == "Slice":
        return _row_of_slice(op)
    found = _strided(op)
    if found is None:
        return None
    shape, positions = found
    if op.inputs[1].op.type != "Pack":
        return None
    shrinks = op.attrs["shrink_axis_mask"]
    keeps = not shrinks
    rows = [
        (a, p) for a, p in enumerate(positions) if p is not None and (_is_one(op, p) if keeps else shrinks >> p & 1)
    ]
    if len(rows) != 1:
        return None
    if not all(a == rows[0][0] or _range(op, p, shape[a]) == (0, shape[a]) for a, p in enumerate(positions)):
        return None
    axis, position = rows[0]
    assert position is not None
    return Row(axis, op.inputs[1].op.inputs[position], keeps)


def piece_of(op: Operation) -> Piece | None:
    """Returns the piece that `op` selects, or puts into zeros, or None."""
    if op.type in ("Slice", "Pad"):
        found = _sliced(op) if op.type == "Slice" else _padded(op)
    else:
        strided = _strided(op)
        if strided is None or op.attrs["shrink_axis_mask"]:
            return None
        shape, positions = strided
        found = [(_range(op, p, d), d) for p, d in zip(positions, shape, strict=True)]
    if found is None:
        return None
    some = [(a, r) for a, (r, size) in enumerate(found) if r != (0, size)]
    if len(some) != 1 or some[0][1] is None:
        return None
    begin, end = some[0][1]
    return Piece(some[0][0], begin, end - begin) if end is not None and end > begin else None


def _gathered(op: Operation) -> Row | None:
    x, index, axes = op.inputs
    axis = constant_value(axes)
    if x.shape is None or index.shape != () or axis is None or op.attrs["batch_dims"]:
        return None
    return Row(int(axis) % len(x.shape), index)


def _is_one(op: Operation, position: int) -> bool:
    """Whether a range that begins with an element of a `Pack` has size 1."""
    a, end = op.attrs, op.inputs[2].op
    if (a["begin_mask"] | a["end_mask"]) >> position & 1 or end.type != "Pack":
        return False
    first, last = op.inputs[1].op.inputs[position], end.inputs[position].op
    return last.type in ("Add", "AddV2") and last.inputs[0] is first and constant_value(last.inputs[1]) == 1


def _row_of_slice(op: Operation) -> Row | None:
    x, begin, size = op.inputs[0].shape, op.inputs[1], constant_value(op.inputs[2])
    if x is None or size is None or len(x) != len(size) or begin.op.type != "Pack" or begin.shape != (len(x),):
        return None
    rows = [a for a, d in enumerate(x) if int(size[a]) not in (-1, d) or _element(begin, a) != 0]
    return Row(rows[0], begin.op.inputs[rows[0]], True) if len(rows) == 1 and size[rows[0]] == 1 else None


def _strided(op: Operation) -> tuple[tuple[int | None, ...], list[int | None]] | None:
    """Shape of the whole, and positions of its dimensions in the slice, or None."""
    if op.type not in ("StridedSlice", "StridedSliceGrad"):
        return None
    shape: Shape = (op.inputs[0] if op.type == "StridedSlice" else op.outputs[0]).shape
    steps = constant_value(op.inputs[3])
    if shape is None or steps is None or op.attrs["new_axis_mask"] or not (steps == 1).all():
        return None
    mask = op.attrs["ellipsis_mask"]
    before = mask.bit_length() - 1 if mask else len(steps)
    after = len(steps) - before - 1 if mask else 0
    between = len(shape) - before - after
    if between < 0 or mask & (mask - 1):
        return None
    return shape, [*range(before), *[None] * between, *range(len(steps) - after, len(steps))]


def _range(op: Operation, position: int | None, size: int | None) -> tuple[int, int | None] | None:
    """Range of a dimension that a strided slice selects, or None."""
    if position is None:
        return 0, size
    ends: list[int | None] = []
    for t, mask, default in ((op.inputs[1], "begin_mask", 0), (op.inputs[2], "end_mask", size)):
        if op.attrs[mask] >> position & 1:
            ends.append(default)
            continue
        value = _element(t, position)
        if value is None or size is None:
            return None
        ends.append(min(max(value + size if value < 0 else value, 0), size))
    begin, end = ends
    assert begin is not None
    return begin, end


def _element(t: Tensor, position: int) -> int | None:
    values = constant_value(t)
    if values is None and t.op.type == "Pack":
        values, position = constant_value(t.op.inputs[position]), 0
    return None if values is None else int(values.reshape(-1)[position])


def _sliced(op: Operation) -> list[tuple[tuple[int, int | None] | None, int | None]] | None:
    shape, begin, sizes = op.inputs[0].shape, constant_value(op.inputs[1]), constant_value(op.inputs[2])
    if shape is None or begin is None or sizes is None:
        return None
    out: list[tuple[tuple[int, int | None] | None, int | None]] = []
    for d, b, n in zip(shape, begin.tolist(), sizes.tolist(), strict=True):
        end = d if n == -1 else b + n
        out.append((None if end is None and b else (b, end), d))
    return out


def _padded(op: Operation) -> list[tuple[tuple[int, int | None] | None, int | None]] | None:
    shape, pads = op.inputs[0].shape, constant_value(op.inputs[1])
    if shape is None or pads is None:
        return None
    return [_padding(d, pad) for d, pad in zip(shape, pads, strict=True)]


def _padding(d: int | None, pad: np.ndarray) -> tuple[tuple[int, int | None] | None, int | None]:
    before, after = (int(p) for p in pad)
    if d is None:
        return (None if before or after else (0, None)), None
    return (before, before + d), before + d + after
