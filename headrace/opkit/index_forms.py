"""Rules for forms (`opkit.forms`) of reads and writes at positions that are not static.

The shapes are static, and so are the axes and the ranges along the other axes. Native code checks the positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.ir.infer import constant_value
from headrace.opkit.elementwise import HALF
from headrace.opkit.forms import (
    Embed,
    Extreme,
    Pieces,
    Positions,
    Put,
    Take,
    is_static,
    is_whole,
    part_shape,
    static_dims,
)
from headrace.opkit.forms import pad as static_pad
from headrace.opkit.forms import slices as static_slices
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.opkit.forms import Form, FormRule, Index
    from headrace.shapes import Shape

_ALL = slice(None)


def _static(*tensors: Tensor) -> list[tuple[int, ...]] | None:
    """The shapes of arrays of numbers, all static; None if one is not."""
    found = [shape for t in tensors if (shape := static_dims(t)) is not None]
    return found if len(found) == len(tensors) else None


# *** positions that are slices along an axis ***


def gather(op: Operation) -> Form | None:
    """Form of `Gather` and `GatherV2`."""
    found = _static(op.inputs[0], op.inputs[1], op.outputs[0])
    if found is None:
        return None
    params, indices, out = found
    axis = np.asarray(0) if len(op.inputs) == 2 else constant_value(op.inputs[2])
    if axis is None or axis.ndim or not -len(params) <= axis < len(params):
        return None
    k, given = int(axis) % len(params), op.attrs.get("batch_dims", 0)
    batch = given + len(indices) if given < 0 else given
    if not 0 <= batch <= min(k, len(indices)) or params[:batch] != indices[:batch]:
        return None
    if out != (*params[:k], *indices[batch:], *params[k + 1 :]):
        return None
    return Take(0, Positions(1, (k,), indices, (0,), 1), (_ALL,) * k + (0,), k, batch)


def segment_sum(op: Operation) -> Form | None:
    """Form of `UnsortedSegmentSum`."""
    found = _static(op.inputs[0], op.inputs[1], op.outputs[0])
    n = constant_value(op.inputs[2])
    if found is None or n is None or n.ndim or not _adds(op) or not is_whole(op.outputs[0]):
        return None
    if op.attrs["T"] in HALF:  # `Put` would round each sum
        return None
    data, ids, out = found
    if data[: len(ids)] != ids or out != (int(n), *data[len(ids) :]):
        return None
    return Put(0, Positions(1, (0,), ids, (0,), 1, "skipped"), (0,), out, None, np.add)


def _adds(op: Operation) -> bool:
    """Whether the elements are numbers."""
    dtype = op.attrs["T"]
    return dtype in HALF or dtype.numpy.kind in "fiuc"


# *** positions of several coordinates ***


def _positions(source: int, indices: tuple[int, ...], op: Operation) -> Positions | None:
    """Positions whose coordinates are the rows of an input."""
    if not indices:
        return None
    *shape, depth = indices
    skips_bad = op.attrs.get("bad_indices_policy") == "IGNORE"
    if skips_bad and not shape:
        return None
    return Positions(source, tuple(range(depth)), tuple(shape), tuple(range(depth)), depth, "error", skips_bad)


def gather_nd(op: Operation) -> Form | None:
    """Form of `GatherNd`."""
    found = _static(op.inputs[0], op.inputs[1], op.outputs[0])
    if found is None:
        return None
    params, indices, out = found
    at = _positions(1, indices, op)
    if at is None or at.group > len(params) or out != (*at.shape, *params[at.group :]):
        return None
    return Take(0, at, (0,) * at.group)


def scatter_nd(op: Operation) -> Form | None:
    """Form of `ScatterNd`."""
    found, wanted = _static(*op.inputs[:2], op.outputs[0]), constant_value(op.inputs[2])
    if found is None or wanted is None or not is_whole(op.outputs[0]):
        return None
    indices, updates, out = found
    return _put(op, 1, _positions(0, indices, op), updates, out, None, np.add) if tuple(wanted) == out else None


def tensor_scatter(ufunc: np.ufunc | None) -> FormRule:
    """Returns the rule of ops that combine elements with updates by `ufunc`, or replace them."""

    def rule(op: Operation) -> Form | None:
        found = _static(*op.inputs)
        if found is None or op.outputs[0].shape != found[0]:
            return None
        out, indices, updates = found
        return _put(op, 2, _positions(1, indices, op), updates, out, 0, ufunc)

    return rule


def _put(
    op: Operation,
    source: int,
    at: Positions | None,
    updates: tuple[int, ...],
    shape: tuple[int, ...],
    base: int | None,
    ufunc: np.ufunc | None,
) -> Form | None:
    if at is None or not 0 < at.group <= len(shape) or updates != (*at.shape, *shape[at.group :]):
        return None
    if ufunc is not None and not _adds(op):
        return None
    return Put(source, at, (0,) * at.group, shape, base, ufunc)


# *** slices ***


def slices(op: Operation) -> Form | None:
    """Form of `Slice`."""
    found, begins, sizes = _static(*op.inputs[:2], op.outputs[0]), _entries(op.inputs[1]), constant_value(op.inputs[2])
    if found is None or begins is None or sizes is None or None not in begins:
        return static_slices(op)
    x, _, out = found
    if len(begins) != len(x) or sizes.shape != (len(x),):
        return None
    wanted = [d if b is None else d - b for d, b in zip(x, begins, strict=True)]  # of a size -1
    if any(n == -1 and b is None for n, b in zip(sizes.tolist(), begins, strict=True)):
        return None
    if out != tuple([rest if n == -1 else n for n, rest in zip(sizes.tolist(), wanted, strict=True)]):
        return None
    index = _index_of(begins, out, x)
    return None if index is None else Take(0, _begins(1, begins, 1), index)


def pad(op: Operation) -> Form | None:
    """Form of `Pad`.

    The gradient of a slice pads with zeros around a position that is not static.
    """
    found, pads = _static(op.inputs[0], op.outputs[0]), op.inputs[1].op
    if found is None or constant_value(op.inputs[1]) is not None or pads.type != "Pack" or pads.attrs["axis"] != 1:
        return static_pad(op)
    begin, after = pads.inputs
    begins, room = _entries(begin), constant_value(after.op.inputs[0]) if after.op.type == "Sub" else None
    x, out = found
    if begins is None or room is None or after.op.inputs[1] is not begin or not is_whole(op.outputs[0]):
        return None
    if len(begins) != len(x) or out != tuple([d + n for d, n in zip(x, room.tolist(), strict=True)]):
        return None
    index = _index_of(begins, x, out)
    if index is None:
        return None
    at = _begins(1, begins, 2)
    return Put(0, dataclasses.replace(at, totals=tuple([int(room[axis]) for axis in at.axes])), index, out)


def _index_of(begins: Sequence[int | None], sizes: Sequence[int], whole: Sequence[int]) -> Index | None:
    """The index of a piece; None if it is out of range.

    A first element that is not static is 0.
    """
    parts = [slice(first or 0, (first or 0) + n) for first, n in zip(begins, sizes, strict=True)]
    return tuple(parts) if all(p.start >= 0 and p.stop <= d for p, d in zip(parts, whole, strict=True)) else None


def _begins(source: int, begins: Sequence[int | None], step: int) -> Positions:
    """The position whose coordinates are the elements of an input that are not static.

    They are `step` numbers apart.
    """
    axes = tuple([axis for axis, first in enumerate(begins) if first is None])
    return Positions(source, axes, (), tuple([axis * step for axis in axes]), len(begins) * step)


# *** strided slices ***


def strided_slice(op: Operation) -> Form | None:
    """Form of `StridedSlice`."""
    sliced = _sliced(op, op.inputs[0].shape)
    if sliced is None:
        return None
    if sliced.is_static:
        return Pieces(0, (sliced.index,)) if sliced.index and sliced.is_forward and is_static(op) else None
    found = _static(op.inputs[0], op.inputs[1], op.outputs[0])
    if found is None or _without_ones(part_shape(found[0], sliced.kept)) != _without_ones(found[2]):
        return None
    return Take(0, sliced.positions, sliced.kept)


def strided_slice_grad(op: Operation) -> Form | None:
    """Form of `StridedSliceGrad`."""
    out, dy, wanted = op.outputs[0], op.inputs[4], constant_value(op.inputs[0])
    sliced = _sliced(op, out.static_shape) if is_whole(out) else None
    if sliced is None:
        return None
    shape = tuple([d for d in out.static_shape or () if d is not None])
    if sliced.is_static:
        fits = sliced.index and sliced.is_forward and is_whole(dy) and dy.shape == part_shape(shape, sliced.index)
        return Embed(4, shape, sliced.index) if fits else None
    found = _static(out, op.inputs[1], dy)
    if found is None or wanted is None or tuple(wanted) != shape:
        return None
    if _without_ones(part_shape(shape, sliced.kept)) != _without_ones(found[2]):
        return None
    return Put(4, sliced.positions, sliced.kept, shape)


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [d for d in shape if d != 1]


@record(frozen=True, slots=True)
class _Sliced:
    """Index of a strided slice.

    Attributes:
      index: the index, with 0 for an entry that is not static.
      axes: the axes with such entries.
      offsets: the positions of these entries in the vector of first elements.
      length: the number of entries of that vector.
    """

    index: Index
    axes: tuple[int, ...]
    offsets: tuple[int, ...]
    length: int

    @property
    def is_static(self) -> bool:
        """Whether all entries are static."""
        return not self.axes

    @property
    def is_forward(self) -> bool:
        """Whether all steps are positive."""
        return all(part.step is None or part.step > 0 for part in self.index if isinstance(part, slice))

    @property
    def kept(self) -> Index:
        """The index without new axes."""
        return tuple([part for part in self.index if part is not None])

    @property
    def positions(self) -> Positions:
        """The position of the piece."""
        return Positions(1, self.axes, (), self.offsets, self.length, "from last")


def _sliced(op: Operation, shape: Shape) -> _Sliced | None:
    """The index of a strided slice; None if it is not static."""
    if not shapes.is_full(shape):
        return None
    x = tuple([d for d in shape or () if d is not None])
    begins, ends, steps = _entries(op.inputs[1]), _entries(op.inputs[2]), constant_value(op.inputs[3])
    if begins is None or ends is None or steps is None or not len(begins) == len(ends) == steps.size:
        return None
    a, n, axis = op.attrs, len(begins), 0
    kinds = [_bits(a, k) for k in range(n)]
    between = len(x) - sum(not (is_rest or is_new) for is_rest, is_new, _ in kinds)
    if between < 0 or sum(is_rest for is_rest, _, _ in kinds) > 1:
        return None
    index: list[int | slice | None] = []
    axes, offsets = [], []
    entries = zip(kinds, begins, ends, steps.tolist(), strict=True)
    for k, ((is_rest, is_new, is_one), begin, end, step) in enumerate(entries):
        if is_rest:
            index += [slice(None)] * between
            axis += between
            continue
        if is_new:
            index.append(None)
            continue
        if is_one:
            if begin is None:
                axes.append(axis)
                offsets.append(k)
            elif not -x[axis] <= begin < x[axis]:
                return None
            index.append(begin or 0)
        else:
            first, last = a["begin_mask"] >> k & 1, a["end_mask"] >> k & 1
            if step == 0 or (begin is None and not first) or (end is None and not last):
                return None
            index.append(slice(None if first else begin, None if last else end, None if step == 1 else step))
        axis += 1
    return _Sliced(tuple(index), tuple(axes), tuple(offsets), n)


def _bits(attrs: Mapping[str, Any], k: int) -> tuple[bool, bool, bool]:
    """Whether entry `k` is an ellipsis, a new axis, or a single element."""
    is_rest, is_new, is_one = (bool(attrs[f"{m}_mask"] >> k & 1) for m in ("ellipsis", "new_axis", "shrink_axis"))
    return is_rest, is_new and not is_rest, is_one and not (is_rest or is_new)


def _entries(t: Tensor) -> list[int | None] | None:
    """The static entries of a vector; None if their number is not static."""
    value = constant_value(t)
    if value is not None:
        return value.tolist() if value.ndim == 1 else None
    shape = t.shape
    if shape is None or len(shape) != 1 or shape[0] is None:
        return None
    if t.op.type == "Pack":
        values = [constant_value(x) for x in t.op.inputs]
        return [None if v is None else int(v) for v in values] if len(values) == shape[0] else None
    return [None] * shape[0]


# *** extremes ***


def extreme(is_greatest: bool) -> FormRule:
    """Returns the rule of `ArgMax` or `ArgMin`."""

    def rule(op: Operation) -> Form | None:
        found, axis = _static(op.inputs[0], op.outputs[0]), constant_value(op.inputs[1])
        if found is None or axis is None or axis.ndim or op.inputs[0].dtype.base is dtypes.bool_:
            return None
        x, out = found
        if not -len(x) <= axis < len(x):
            return None
        k = int(axis) % len(x)
        return Extreme(0, k, is_greatest) if out == (*x[:k], *x[k + 1 :]) else None

    return rule
