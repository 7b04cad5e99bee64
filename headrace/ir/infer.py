"""Shape inference: shapes of an operation's outputs from its record and its inputs.

A shape rule receives an `Inference`. It provides the shapes of the inputs, the *value* of an input if the graph
determines it (constants, and small pure operations on constants), and an integer vector *as a shape*, so that
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
    from headrace.ir.static_info import Handle
    from headrace.shapes import Shape


class Inference:
    """Inputs and attributes of an operation, as its shape rule reads them.

    Attributes:
      op: the operation.
      shapes: the shape of each input.
      dtypes: the dtype of each input.
      attrs: the attributes.
      output: the number of the output that a `shape_value` rule describes.
      handles: output number → (dtype, shape) of its contents, as the rule states them.
    """

    __slots__ = ("_depth", "_memo", "attrs", "dtypes", "handles", "op", "output", "shapes")

    def __init__(self, op: Operation, depth: int = 0, memo: dict[Tensor, Shape] | None = None, output: int = 0) -> None:
        self.op, self.output = op, output
        self._depth = depth
        self._memo = {} if memo is None else memo  # results of `shape_value` during one inference
        self.attrs: Mapping[str, Any] = op.attrs
        self.shapes: list[Shape] = [t.static_shape for t in op.inputs]
        self.dtypes: list[DType] = [t.dtype for t in op.inputs]
        self.handles: dict[int, tuple[DType, Shape]] = {}

    def value(self, i: int) -> np.ndarray | None:
        """Returns the value of input `i`, if it is known statically and small."""
        v = constant_value(self.op.inputs[i])
        return v if v is not None and v.size <= thresholds.INFERENCE_ELEMENTS else None

    def scalar(self, i: int) -> int | None:
        """Returns input `i` as a Python int, or None if its value is unknown.

        Raises:
          ValueError: the input is not a scalar.
        """
        shapes.with_rank(self.shapes[i], 0)
        v = self.value(i)
        return None if v is None else int(v)

    def shape_value(self, i: int) -> Shape:
        """Returns the known part of input `i`, an integer vector, as a shape (-1: unknown)."""
        t = self.op.inputs[i]
        if t not in self._memo:
            self._memo[t] = shape_value(t, self._depth + 1, self._memo)
        return self._memo[t]

    def axes(self, i: int) -> list[int] | None:
        """Returns the axes in input `i`, a scalar or vector, as a list, or None."""
        shapes.with_rank_at_most(self.shapes[i], 1)
        v = self.value(i)
        return None if v is None else [int(a) for a in np.ravel(v)]

    def handle(self, i: int) -> tuple[DType, Shape] | None:
        """Returns (dtype, shape) of the contents of the resource or variant input `i`, or None."""
        return self.op.inputs[i].handle

    def set_handle(self, output: int, dtype: DType, shape: Shape) -> None:
        """States the contents of the resource or variant output `output`."""
        self.handles[output] = (dtype, shape)


def infer_shapes(op: Operation) -> None:
    """Sets the shapes of `op`'s outputs from its record's rule.

    Raises:
      ShapeError: the inputs do not fit together; the text names the op, its inputs and the user's line.
    """
    out, handles = _inferred(op)
    for i, t in enumerate(op.outputs):
        t.replace_static(out[i], handles.get(i, t.handle))


def _inferred(op: Operation) -> tuple[list[Shape], Mapping[int, Handle]]:
    """Returns the inferred shapes of the outputs, and the contents of handles by output.

    Raises:
      ShapeError: the inputs do not fit together, as in `infer_shapes`.
    """
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
    return out, c.handles


def infer_more(op: Operation) -> None:
    """Refines the static information of the outputs of `op` by that of its inputs.

    If the two contradict each other, or the inputs do not fit together, nothing changes: the operation raises when it
    runs.
    """
    try:
        out, handles = _inferred(op)
        known = [merged((t.static_shape, t.handle), (out[i], handles.get(i))) for i, t in enumerate(op.outputs)]
    except (ShapeError, ValueError):
        return
    for t, (shape, handle) in zip(op.outputs, known, strict=True):
        t.replace_static(shape, handle)


def constant_value(t: Tensor, depth: int = 0) -> np.ndarray | None:
    """Returns the value that `t` has in every run, as a read-only array, or None.

    The value is known for constants, for small pure operations on known values, and for known dimensions of partly
    unknown shapes. Values inside a loop or conditional are not known.
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
    """Returns the static value of the integer scalar `t`, or None."""
    value = constant_value(t)
    return None if value is None or value.shape != () or value.dtype.kind not in "iu" else int(value)


def forget(op: Operation) -> None:
    """Discards negative results of `constant_value` for the outputs of `op`, whose inputs changed."""
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
    except Exception:  # the op raises its own error when it runs; here its value is only unknown
        return None
    result = np.asarray(out if len(op.outputs) == 1 else out[t.index])
    result.flags.writeable = False
    return result


def _from_shapes(t: Tensor, depth: int) -> np.ndarray | None:
    """Returns an integer scalar or vector whose `shape_value` rule knows every entry, or None."""
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
    """Returns the known part of `t`, an integer vector or scalar, as a shape.

    A scalar gives a shape of rank 1.

    Raises:
      ValueError: the value of `t` has a rank above 1.
    """
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
