"""Shape inference: shapes of an operation's outputs from its record and its inputs.

A shape rule receives an `Inference`. It has the shapes of the inputs, the *value* of an input where the graph
determines it (constants, and small pure operations on constants), and an integer vector read *as a shape*, so that
`Reshape(x, Pack(Shape(x)[0], 4))` has the shape `[?, 4]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.errors import GraphError, OpError, ShapeError
from headrace.ir import graph as graphs
from headrace.ir.kernel import constant_kernel
from headrace.ir.kernel_errors import known_as
from headrace.ir.static_info import merged

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.static_info import Known
    from headrace.shapes import Shape


class Inference:
    """One op whose output shapes are asked for.

    Attributes:
      op: the operation.
      shapes: the shape of each input.
      dtypes: the dtype of each input.
      attrs: its attributes.
      output: the index of the output that a `shape_value` rule is asked for.
    """

    __slots__ = ("_depth", "_memo", "attrs", "dtypes", "handles", "op", "output", "shapes")

    def __init__(self, op: Operation, depth: int = 0, memo: dict[Tensor, Shape] | None = None, output: int = 0) -> None:
        self.op, self.output = op, output
        self._depth = depth
        self._memo = {} if memo is None else memo  # of shape_value, for the length of one question
        self.attrs: Mapping[str, Any] = op.attrs
        self.shapes: list[Shape] = [t.static_shape for t in op.inputs]
        self.dtypes: list[DType] = [t.dtype for t in op.inputs]
        self.handles: dict[int, tuple[DType, Shape]] = {}

    def value(self, i: int) -> np.ndarray | None:
        """The value of input `i`, if it is known without running (and not large)."""
        v = constant_value(self.op.inputs[i])
        return v if v is not None and v.size <= thresholds.INFERENCE_ELEMENTS else None

    def scalar(self, i: int) -> int | None:
        """Input `i` as a Python int, if known; `ValueError` if it is not a scalar."""
        shapes.with_rank(self.shapes[i], 0)
        v = self.value(i)
        return None if v is None else int(v)

    def shape_value(self, i: int) -> Shape:
        """Input `i`, an integer vector, read as a shape as far as it is known (-1: unknown)."""
        t = self.op.inputs[i]
        if t not in self._memo:
            self._memo[t] = shape_value(t, self._depth + 1, self._memo)
        return self._memo[t]

    def axes(self, i: int) -> list[int] | None:
        """Input `i`, a scalar or vector of axes, as a list of ints, if known."""
        shapes.with_rank_at_most(self.shapes[i], 1)
        v = self.value(i)
        return None if v is None else [int(a) for a in np.ravel(v)]

    def handle(self, i: int) -> tuple[DType, Shape] | None:
        """What the resource or variant input `i` holds: (dtype, shape), if known."""
        return self.op.inputs[i].handle

    def set_handle(self, output: int, dtype: DType, shape: Shape) -> None:
        """States what the resource or variant output `output` holds."""
        self.handles[output] = (dtype, shape)


def infer_shapes(op: Operation) -> None:
    """Sets the shapes of `op`'s outputs from its record's rule.

    Raises:
      ShapeError: the inputs cannot go together; the text names the op, its inputs and the user's line.
    """
    for t, (shape, handle) in zip(op.outputs, _inferred(op), strict=True):
        t.replace_static(shape, t.handle if handle is None else handle)


def _inferred(op: Operation) -> list[Known]:
    """Infers the static information of each output; raises `ShapeError` as `infer_shapes` does."""
    c = Inference(op)
    try:
        out = list(op.opdef.shape(c))
        for s in out:
            for d in s or ():
                if d is not None and not 0 <= d < 2**63:
                    raise ValueError(f"Dimension {d} must be >= 0 and below 2**63, in the shape {shapes.show(s)}")
    except GraphError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError, OpError) as e:
        ins = ", ".join(f"{known_as(t)}: {t.dtype.name}{shapes.show(t.static_shape)}" for t in op.inputs)
        where = f", made at {op.source}" if op.source else ""
        raise ShapeError(f"{e} for '{op.name}' (op: '{op.type}') with inputs {ins or 'none'}{where}") from e
    if len(out) != len(op.outputs):
        raise ShapeError(f"the shape rule of {op.type} gave {len(out)} shapes for {len(op.outputs)} outputs")
    return [(s, c.handles.get(i)) for i, s in enumerate(out)]


def infer_more(op: Operation) -> None:
    """Refines the static information of the outputs of `op` by what its inputs imply.

    Where the two contradict, or inputs cannot go together, nothing changes: the operation raises when it runs.
    """
    try:
        known = [merged((t.static_shape, t.handle), more) for t, more in zip(op.outputs, _inferred(op), strict=True)]
    except (ShapeError, ValueError):
        return
    for t, (shape, handle) in zip(op.outputs, known, strict=True):
        t.replace_static(shape, handle)


def constant_value(t: Tensor, depth: int = 0) -> np.ndarray | None:
    """The value `t` always has, if it can be found without running the graph; read-only.

    Constants, pure ops of known values as long as they are small, and known dimensions of shapes otherwise unknown.
    Nothing inside a loop or conditional counts.
    """
    if t._constant is not graphs._unset:
        known: np.ndarray | None = t._constant
        return known
    value = None
    if depth < thresholds.INFERENCE_DEPTH:
        value = _fold(t, depth)
        if value is None:
            value = _from_shapes(t, depth)
        t._constant = value
    return value


def scalar_value(t: Tensor) -> int | None:
    """Value of the integer scalar `t`, if it is known without running the graph (`constant_value`)."""
    value = constant_value(t)
    return None if value is None or value.shape != () or value.dtype.kind not in "iu" else int(value)


def forget(op: Operation) -> None:
    """Makes `constant_value` look again at what `op` gives, if it found nothing: the inputs have become others."""
    for t in op.outputs:
        if t._constant is None:
            t._constant = graphs._unset


def _fold(t: Tensor, depth: int) -> np.ndarray | None:
    op = t.op
    record = op.opdef
    if op.type == "Const":
        v = op.attrs["value"]
        return v if isinstance(v, np.ndarray) else None
    if record.kernel is None or record.facts.effect or record.facts.no_fold or t.dtype.base in dtypes.OBJECT:
        return None
    n = shapes.size(t.static_shape)
    if n is None or n > thresholds.INFERENCE_ELEMENTS:
        return None
    args: list[Any] = []
    for x in op.inputs:
        if record.facts.shape_only:
            if not shapes.is_full(x.static_shape):
                return None
            try:
                args.append(np.broadcast_to(np.zeros((), x.dtype.numpy), x.static_shape))  # type: ignore[arg-type]
            except ValueError:  # numpy has no array of that size or rank
                return None
            continue
        v = constant_value(x, depth + 1)
        if v is None or v.size > thresholds.INFERENCE_ELEMENTS:
            return None
        args.append(v)
    kernel = constant_kernel(op)
    if kernel is None:
        return None
    try:
        with np.errstate(all="ignore"):
            out = kernel(*args)
    except Exception:  # the op will raise its own error when it runs; inference only knows less
        return None
    result = np.asarray(out if len(op.outputs) == 1 else out[t.index])
    result.flags.writeable = False
    return result


def _from_shapes(t: Tensor, depth: int) -> np.ndarray | None:
    """The value of an integer scalar or vector whose entries its `shape_value` rule knows one by one."""
    rule, shape = t.op.opdef.shape_value, t.static_shape
    if rule is None or t.dtype.base not in (dtypes.int32, dtypes.int64) or shape is None or len(shape) > 1:
        return None
    try:
        known = rule(Inference(t.op, depth, None, t.index))
    except (ValueError, IndexError):  # the op raises its own error when it runs
        return None
    if known is None or None in known:
        return None
    result = np.array(known, t.dtype.numpy).reshape([] if shape == () else [-1])
    result.flags.writeable = False
    return result


def shape_value(t: Tensor, depth: int = 0, memo: dict[Tensor, Shape] | None = None) -> Shape:
    """`t`, an integer vector (or scalar: a shape of rank 1), read as a shape as far as it is known."""
    v = constant_value(t, depth)
    if v is not None and v.size <= thresholds.INFERENCE_ELEMENTS:
        if v.ndim > 1:
            raise ValueError(f"Shape must be rank 1 but is rank {v.ndim}: {shapes.show(v.shape)}")
        return tuple(None if int(d) < 0 else int(d) for d in np.ravel(v))
    rule = t.op.opdef.shape_value
    if rule is not None and depth < thresholds.INFERENCE_DEPTH:
        return rule(Inference(t.op, depth, memo, t.index))
    shape = t.static_shape
    if shape is not None and len(shape) == 1 and shape[0] is not None and shape[0] <= thresholds.INFERENCE_ELEMENTS:
        return (None,) * shape[0]
    if shape == ():
        return (None,)
    return None
