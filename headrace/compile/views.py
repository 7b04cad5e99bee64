"""Expressions for operations that move elements, used instead of kernels if all parameters are static.

A kernel validates its inputs and computes the indices in each call. If shapes, axes and bounds are known at compile
time, this is done once, and one call of numpy is left: `x.reshape(4, 8)`, `x[:, 0:8]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.ir.infer import constant_value
from headrace.ir.notes import ContiguousResult
from headrace.opkit.elementwise import HALF

if TYPE_CHECKING:
    from headrace.compile.source import Source
    from headrace.ir.graph import Operation

Texts = list[str]  # one expression for each output


def view_expression(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    """Expressions for the outputs of `op`, which moves elements.

    Args:
      op: The operation.
      inputs: The expressions of its inputs.
      out: The source, in which numpy functions are bound.

    Returns:
      The expressions; None if the kernel must be called.
    """
    view = _VIEWS.get(op.type)
    if view is None:
        return None
    data = [t for t in op.inputs if t.dtype.base not in dtypes.INDEX] or op.inputs[:1]
    if not all(shapes.is_full(t.shape) for t in (*op.inputs, *op.outputs)):
        return None
    if any(t.dtype.base in dtypes.OBJECT or t.shape == () for t in data):
        return None
    return view(op, inputs, out)


def keeps_nothing(op: Operation) -> bool:
    """Whether the outputs of `op`, of those with expressions, are never views of its inputs."""
    return op.type in _COPIES


def _reshape(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    shape = op.outputs[0].shape
    if op.inputs[0].dtype.is_ref or shapes.size(shape) != shapes.size(op.inputs[0].shape):
        return None
    return [f"{inputs[0]}.reshape({shape})"] if shape else [f"{inputs[0]}.reshape(1)[0]"]  # rank 0 is a numpy scalar


def _concat(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    *parts, at = op.inputs
    axis, shape = constant_value(at), parts[0].shape
    if axis is None or axis.ndim or shape is None or not -len(shape) <= axis < len(shape):
        return None
    k = int(axis) % len(shape)
    for p in parts:
        mine = p.shape
        if mine is None or len(mine) != len(shape) or mine[:k] != shape[:k] or mine[k + 1 :] != shape[k + 1 :]:
            return None
    return [f"{out.bind(np.concatenate, 'k')}(({', '.join(inputs[:-1])},), {k})"]


def _split(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    at, x = op.inputs
    axis, shape, n = constant_value(at), x.shape, op.attrs["num_split"]
    if axis is None or axis.ndim or shape is None or not -len(shape) <= axis < len(shape):
        return None
    k = int(axis) % len(shape)
    size = shape[k]
    if size is None or size % n:
        return None
    before, each = ":, " * k, size // n
    return [f"{inputs[1]}[{before}{i * each}:{(i + 1) * each}]" for i in range(n)]


def _slice(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    x, begin, size = op.inputs[0].shape, constant_value(op.inputs[1]), constant_value(op.inputs[2])
    if x is None or begin is None or size is None or begin.shape != (len(x),) or size.shape != (len(x),):
        return None
    parts = []
    for d, first, n in zip(x, begin.tolist(), size.tolist(), strict=True):
        if d is None:
            return None
        stop = d if n == -1 else first + n
        if not 0 <= first <= stop <= d:
            return None
        parts.append(f"{first or ''}:{stop if stop != d else ''}")
    return [f"{inputs[0]}[{', '.join(parts)}]"]


def _strided_slice(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    x, a = op.inputs[0].shape, op.attrs
    begin, end, strides = (constant_value(t) for t in op.inputs[1:])
    if x is None or begin is None or end is None or strides is None or begin.ndim != 1 or len(begin) > len(x):
        return None
    if a["ellipsis_mask"] or a["new_axis_mask"] or len(end) != len(begin) or len(strides) != len(begin):
        return None
    parts = []
    for i, (first, stop, step) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        d = x[i]
        assert d is not None
        if a["shrink_axis_mask"] >> i & 1:
            if not -d <= first < d:
                return None
            parts.append(str(first))
            continue
        if step <= 0:
            return None
        shown = ["" if a["begin_mask"] >> i & 1 else str(first), "" if a["end_mask"] >> i & 1 else str(stop)]
        parts.append(":".join(shown if step == 1 else [*shown, str(step)]))
    return [f"{inputs[0]}[{', '.join(parts)}]"] if parts else None


def _transpose(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    perm, x = constant_value(op.inputs[1]), op.inputs[0].shape
    if perm is None or x is None or sorted(perm.tolist()) != list(range(len(x))):
        return None
    turned = f"{inputs[0]}.transpose({', '.join(map(str, perm.tolist()))})"
    return [f"{out.bind(np.ascontiguousarray, 'k')}({turned})" if ContiguousResult in op.notes else turned]


def _sum(op: Operation, inputs: Texts, out: Source) -> Texts | None:
    axes, x = constant_value(op.inputs[1]), op.inputs[0].shape
    if axes is None or x is None or op.attrs["T"] in HALF or not op.attrs["T"].is_floating:
        return None
    found = [a % len(x) for a in np.ravel(axes).tolist() if -len(x) <= a < len(x)]
    if len(found) != axes.size or len(set(found)) != len(found) or not found:
        return None
    over = str(found[0]) if len(found) == 1 else str(tuple(sorted(found)))
    keeps = ", None, None, True" if op.attrs["keep_dims"] else ""
    return [f"{out.bind(np.add.reduce, 'k')}({inputs[0]}, {over}{keeps})"]


_VIEWS: Final[Mapping[str, Callable[[Any, Texts, Any], Texts | None]]] = {
    "Reshape": _reshape,
    "ExpandDims": _reshape,
    "Squeeze": _reshape,
    "ConcatV2": _concat,
    "Split": _split,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "Transpose": _transpose,
    "Sum": _sum,
}
_COPIES: Final = frozenset({"ConcatV2", "Sum"})
