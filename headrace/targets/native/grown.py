"""Instructions on arrays whose first dimension is unknown, in place of calls of kernels.

The rows up to the longest of several lengths, and the values of all iterations of a loop, are such *grown* arrays. The
forms of operations (`opkit.forms`) have static parameters. Here are the operations whose parameters are static but for
that dimension, and those that read or change it. Machine code compares the dimensions that must be equal. If they
differ, the kernel of the operation makes the error from inputs of the same shapes (`kernel_errors`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from headrace.dtypes import INDEX
from headrace.opkit.forms import Concat, Pieces, Product, Reduce
from headrace.records import record
from headrace.schedule.program import Compute, Value
from headrace.schedule.select import KernelCall, Move


@record(frozen=True, slots=True)
class Dimensions:
    """Vector of the dimensions of input 0."""

    def __str__(self) -> str:
        return "dimensions"


@record(frozen=True, slots=True)
class Front:
    """Rows of input 0 up to an end, as in Python's slices.

    Attributes:
      end: The position of the vector with the end as its only element.
    """

    end: int

    def __str__(self) -> str:
        return "front"


@record(frozen=True, slots=True)
class Rows:
    """Elements of input 0, in order, as rows of another size.

    Input 1 is their shape. Its first element may be -1.
    """

    def __str__(self) -> str:
        return "rows"


@record(frozen=True, slots=True)
class Repeated:
    """Input 0, repeated along new axes and those of size 1.

    Input 1 is the shape of the result.
    """

    def __str__(self) -> str:
        return "repeated"


Work: TypeAlias = Dimensions | Front | Rows | Repeated | Move


def is_array(v: Value) -> bool:
    """Whether a value is held as an array in memory."""
    return v.representation == "rows" or (v.representation == "array" and v.shape != ())


def is_grown(v: Value) -> bool:
    """Whether the shape of an array is known but for the first dimension."""
    shape = v.shape
    if v.representation != "array" or not shape:
        return False
    return shape[0] is None and None not in shape[1:]


def row_size(v: Value) -> int:
    """The number of elements in a row of an array."""
    return math.prod(d or 0 for d in (v.shape or ())[1:])


def work_of(instr: Compute) -> Work | None:
    """The instruction that does the work of a kernel call; None if there is none."""
    op = instr.op
    rule = _RULES.get(op.type)
    if rule is None or len(instr.made) != 1 or not isinstance(instr.work, KernelCall):
        return None
    if instr.work.kernel.factory is not op.opdef.kernel or not any(map(is_grown, (*instr.inputs, *instr.made))):
        return None
    return rule(instr)


# *** Rules ***


def _shape(instr: Compute) -> Work | None:
    return Dimensions() if is_grown(instr.inputs[0]) else None


def _strided_slice(instr: Compute) -> Work | None:
    """Rows from the first one on, by one range of step 1."""
    x, begin, end, strides = instr.inputs
    (out,) = instr.made
    attrs = instr.op.attrs
    if any(attrs[f"{name}_mask"] for name in ("end", "ellipsis", "new_axis", "shrink_axis")) or end.shape != (1,):
        return None
    if begin.storage != "constant" or strides.storage != "constant" or np.any(strides.constant != 1):
        return None
    if np.any(begin.constant) and not attrs["begin_mask"]:
        return None
    is_known = x.is_static or is_grown(x)
    return Front(2) if is_known and is_grown(out) and (x.shape or ())[1:] == (out.shape or ())[1:] else None


def _reshape(instr: Compute) -> Work | None:
    x, wanted = instr.inputs
    (out,) = instr.made
    if not is_grown(x) or not is_grown(out) or not row_size(x) or not row_size(out):
        return None
    if wanted.storage == "constant":
        rest = (out.shape or ())[1:]
        return Rows() if np.ravel(wanted.constant).tolist() == [-1, *rest] else None
    return Rows() if wanted.shape == (len(out.shape or ()),) else None


def _broadcast(instr: Compute) -> Work | None:
    x, wanted = instr.inputs
    (out,) = instr.made
    mine, rest = x.shape, (out.shape or ())[1:]
    if not is_grown(out) or wanted.storage == "constant" or wanted.shape != (len(rest) + 1,) or mine is None:
        return None
    if not is_grown(x) and (not x.is_static or x.dtype in INDEX):  # an error would take them for dimensions
        return None
    if len(mine) > len(rest) + 1 or (len(mine) > len(rest) and mine[0] not in (1, None)):
        return None
    inner = mine[len(mine) - min(len(mine), len(rest)) :]
    is_known = len(mine) > len(rest) or not is_grown(x)
    return Repeated() if is_known and all(d in (1, w) for d, w in zip(reversed(inner), reversed(rest))) else None


def _reverse(instr: Compute) -> Work | None:
    x, axes = instr.inputs
    rank = len(x.shape or ())
    if axes.storage != "constant":
        return None
    found = [a % rank for a in np.ravel(axes.constant).tolist() if -rank <= a < rank]
    if not found or len({*found}) != np.size(axes.constant):
        return None
    return Move(Pieces(0, (tuple([slice(None, None, -1 if k in found else None) for k in range(max(found) + 1)]),)))


def _concat(instr: Compute) -> Work | None:
    *parts, at = instr.inputs
    rank = len(parts[0].shape or ())
    if at.storage != "constant" or not all(is_grown(v) and len(v.shape or ()) == rank for v in parts):
        return None
    axis = int(at.constant)
    if not -rank <= axis < rank or not axis % rank or not all(map(row_size, parts)):
        return None
    rests = {tuple(d for k, d in enumerate(v.shape or ()) if k not in (0, axis % rank)) for v in parts}
    return Move(Concat(tuple(range(len(parts))), axis % rank)) if len(rests) == 1 else None


def _sum(instr: Compute) -> Work | None:
    """Sums over the unknown dimension, and others."""
    x, axes = instr.inputs
    rank = len(x.shape or ())
    if axes.storage != "constant" or x.dtype.numpy not in (np.dtype(np.float32), np.dtype(np.float64)):
        return None
    found = sorted(a % rank for a in np.ravel(axes.constant).tolist() if -rank <= a < rank)
    if len({*found}) != np.size(axes.constant) or 0 not in found:
        return None
    return Move(Reduce(0, np.add, tuple(found), instr.op.attrs["keep_dims"]))


def _product(instr: Compute) -> Work | None:
    """Products over the unknown dimension."""
    attrs = instr.op.attrs
    turned = attrs["transpose_a"], attrs["transpose_b"]
    is_known = turned == (True, False) and all(is_grown(v) and len(v.shape or ()) == 2 for v in instr.inputs)
    return Move(Product(turned)) if is_known else None


_RULES: Final[Mapping[str, Callable[[Compute], Work | None]]] = {
    "Shape": _shape,
    "StridedSlice": _strided_slice,
    "Reshape": _reshape,
    "BroadcastTo": _broadcast,
    "ReverseV2": _reverse,
    "ConcatV2": _concat,
    "Sum": _sum,
    "MatMul": _product,
}
