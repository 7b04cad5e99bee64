"""Rules for forms (`opkit.forms`) that depend on the order of elements.

They are running results, the greatest elements, and moves to static places.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.ir.infer import constant_value
from headrace.opkit.cpp_sorting import FEW
from headrace.opkit.elementwise import HALF
from headrace.opkit.forms import Accumulate, Assemble, Lattice, Part, Top, is_whole, static_dims

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.opkit.forms import Form, FormRule

#: Parts of one form: each is a loop, or a copy, of its own.
MOST_PARTS: Final = 32


def accumulation(ufunc: np.ufunc, start: float) -> FormRule:
    """Returns the rule for running results along the axis of input 1.

    Args:
      ufunc: the ufunc.
      start: its result for no elements.
    """

    def rule(op: Operation) -> Form | None:
        x, axis, dtype = static_dims(op.inputs[0]), constant_value(op.inputs[1]), op.attrs["T"]
        if x is None or axis is None or axis.ndim or not -len(x) <= axis < len(x):
            return None
        if dtype in HALF or dtype.numpy.kind not in "fiuc":
            return None
        return Accumulate(0, ufunc, int(axis) % len(x), op.attrs["exclusive"], op.attrs["reverse"], start)

    return rule


def box(source: int, shape: Sequence[int], taken: Sequence[int], put: Sequence[int]) -> Part:
    """Returns the part of neighboring elements from `taken` on, put from `put` on."""
    units = tuple([tuple(int(k == axis) for k in range(len(shape))) for axis in range(len(shape))])
    return Part(source, tuple(shape), Lattice(tuple(taken), units), Lattice(tuple(put), units))


def roll(op: Operation) -> Form | None:
    """Form of `Roll`."""
    x, shift, axes = static_dims(op.inputs[0]), constant_value(op.inputs[1]), constant_value(op.inputs[2])
    if x is None or shift is None or axes is None or shift.shape != axes.shape or shift.ndim > 1:
        return None
    total = [0] * len(x)
    for axis, n in zip(axes.reshape(-1).tolist(), shift.reshape(-1).tolist(), strict=True):
        if not -len(x) <= axis < len(x):
            return None
        total[axis] += n
    ranges: list[list[tuple[int, int, int]]] = []  # sizes, first elements and places along each axis
    for size, n in zip(x, total, strict=True):
        by = n % size
        ranges.append([(size - by, 0, by), (by, size - by, 0)] if by else [(size, 0, 0)])
    parts = [box(0, *zip(*each, strict=True)) for each in itertools.product(*ranges)]
    return Assemble(x, tuple(parts)) if len(parts) <= MOST_PARTS else None


def fill(op: Operation) -> Form | None:
    """Form of `Fill`, of a number that is not static."""
    shape, dims, out = static_dims(op.outputs[0]), constant_value(op.inputs[0]), op.outputs[0]
    if not shape or dims is None or tuple(dims.tolist()) != shape or op.inputs[1].shape != () or not is_whole(out):
        return None
    return Assemble(shape, (), None, 1)


def filled_pad(op: Operation) -> Form | None:
    """Form of `PadV2`."""
    x, pads, out = static_dims(op.inputs[0]), constant_value(op.inputs[1]), op.outputs[0]
    shape = static_dims(out)
    if x is None or pads is None or shape is None or not is_whole(out) or pads.shape != (len(x), 2):
        return None
    if op.inputs[2].shape != () or (pads < 0).any():
        return None
    before = pads[:, 0].tolist()
    return Assemble(shape, (box(0, x, [0] * len(x), before),), None, 2)


def top(op: Operation) -> Form | None:
    """Form of `TopK` and `TopKV2`.

    Native code does not sort long rows, because the order of those with NaN is that of an introsort.
    """
    x = static_dims(op.inputs[0])
    given = np.asarray(op.attrs["k"]) if len(op.inputs) == 1 else constant_value(op.inputs[1])
    if x is None or given is None or given.ndim or not 0 < given <= x[-1]:
        return None
    count = int(given)
    return Top(0, count, op.outputs[1].dtype.numpy) if count < x[-1] or count <= FEW else None
