"""View of an operation that its batching rule receives.

A batching rule (`op(batch=...)`) makes the operation for all examples of a batch at once. It belongs to an operation of
a function of *single examples*, which stays unchanged. Each input of the operation has a replacement: a tensor with the
examples in dimension 0, or, where an input is the same for all examples, a tensor without that dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.errors import UnimplementedError
from headrace.ir.infer import constant_value

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor
    from headrace.shapes import Shape


class NoBatchRule(UnimplementedError):
    """A rule does not cover an operation: its batched inputs, or unknown shapes.

    The operation is then computed for each example alone.
    """


class BatchNode:
    """Operation that a batching rule makes for a batch.

    Args:
      b: the builder of the new operations.
      op: the operation of a single example.
      inputs: the replacement of each flat input, in the graph of `b`.
      batched: for each input, whether the replacement has the examples in dimension 0.
      size: the number of examples: an int, or an int32 scalar.
      ragged: whether the tensor lists of the operation are vectors with a list for each example.

    Attributes:
      b, op, inputs, batched, size, ragged: as given.
      attrs: the attributes of the operation.

    Example:
      >>> import headrace as hr
      >>> def batched(b, n):
      ...     print(n.op.type, n.batched, n.static_size, n.rank(0))
      ...     return n.make(n.spread(0))
      >>> flip = hr.register_op(
      ...     "DocFlip", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0), batch=batched,
      ...     kernel=lambda attrs: lambda x: x[..., ::-1], grad=lambda b, n, dy: [b.DocFlip(dy)])
      >>> hr.vmap(flip)(hr.constant([[1.0, 2.0], [3.0, 4.0]])).numpy().tolist()
      DocFlip [True] 2 1
      [[2.0, 1.0], [4.0, 3.0]]
    """

    __slots__ = ("attrs", "b", "batched", "inputs", "op", "ragged", "size")

    def __init__(
        self,
        b: Builder,
        op: Operation,
        inputs: Sequence[Tensor],
        batched: Sequence[bool],
        size: int | Tensor,
        ragged: bool = False,
    ) -> None:
        self.b = b
        self.op = op
        self.inputs = list(inputs)
        self.batched = list(batched)
        self.size = size
        self.ragged = ragged
        self.attrs: Mapping[str, Any] = op.attrs

    # *** one example ***

    def shape(self, i: int) -> Shape:
        """Returns the static shape of input `i` of one example."""
        return self.op.inputs[i].shape

    def rank(self, i: int) -> int:
        """Returns the rank of input `i` of one example.

        Raises:
          NoBatchRule: the rank is unknown.
        """
        shape = self.op.inputs[i].shape
        if shape is None:
            raise NoBatchRule(f"the rank of input {i} is unknown")
        return len(shape)

    def out_rank(self, i: int = 0) -> int:
        """Returns the rank of output `i` of one example.

        Raises:
          NoBatchRule: the rank is unknown.
        """
        shape = self.op.outputs[i].shape
        if shape is None:
            raise NoBatchRule(f"the rank of output {i} is unknown")
        return len(shape)

    def constant(self, i: int) -> np.ndarray | None:
        """Returns the value of input `i` if it is a constant, else None."""
        return constant_value(self.op.inputs[i])

    def only(self, *positions: int) -> None:
        """Checks that no other inputs differ between examples.

        Raises:
          NoBatchRule: another input does.
        """
        other = [i for i, is_batched in enumerate(self.batched) if is_batched and i not in positions]
        if other:
            raise NoBatchRule(f"input {other[0]} differs between examples")

    # *** the batch ***

    @property
    def static_size(self) -> int | None:
        """Number of examples, if it is known."""
        return self.size if isinstance(self.size, int) else None

    def spread(self, i: int) -> Tensor:
        """Returns input `i` with the batch dimension.

        An input that is the same for all examples is repeated.
        """
        t = self.inputs[i]
        return t if self.batched[i] else spread(self.b, t, self.size)

    def lifted(self, i: int, rank: int) -> Tensor:
        """Returns input `i`, so that it broadcasts against a batch of tensors of rank `rank`.

        A batched input of a lower rank gets dimensions of size 1 after the batch dimension.
        """
        t = self.inputs[i]
        return with_ones(self.b, t, rank - self.rank(i)) if self.batched[i] else t

    def make(self, *inputs: Any, type: str = "", **attrs: Any) -> list[Tensor]:
        """Makes the operation on other inputs.

        Args:
          inputs: the flat inputs, tensors or arrays.
          type: another op type with the same arguments; "" for the same.
          attrs: attributes with other values.

        Returns:
          The outputs.
        """
        op = self.op
        spans = op.opdef.spans(op.attrs)
        args = [list(inputs[spans[a.name]]) if a.is_list else inputs[spans[a.name]][0] for a in op.opdef.ins]
        name = op.name.rpartition("/")[2]
        made = self.b.make(type or op.type, args, {**op.attrs, **attrs}, name, op.notes)
        return [made] if not isinstance(made, tuple) else list(made)

    def prefixed(self, vector: Any, first: Any = None) -> Any:
        """Returns an integer vector with one more entry in front.

        It is an array if everything is known.

        Args:
          vector: the vector, a tensor or an array.
          first: the entry, an int; None: the number of examples.
        """
        first = self.size if first is None else first
        known = constant_value(vector) if not isinstance(vector, np.ndarray) else vector
        if known is not None and isinstance(first, (int, np.integer)):
            return np.concatenate([np.array([first], known.dtype), known]).astype(known.dtype)
        dtype = vector.dtype.base if known is None else dtypes.from_numpy(known.dtype)
        if isinstance(first, (int, np.integer)):
            head: Any = np.array([first], dtype.numpy)
        else:
            head = self.b.Reshape(self.scalar(dtype), np.array([1], np.int32))
        return self.b.ConcatV2([head, vector], np.int32(0))

    def scalar(self, dtype: Any) -> Any:
        """Returns the number of examples as a scalar of an integer dtype."""
        if isinstance(self.size, int):
            return np.array(self.size, dtype.numpy)
        return self.size if self.size.dtype.base is dtype else self.b.Cast(self.size, DstT=dtype)

    def axes(self, i: int) -> Any:
        """Returns the axes that input `i` names, for tensors with the batch dimension.

        Raises:
          NoBatchRule: they differ between examples.
        """
        if self.batched[i]:
            raise NoBatchRule("the axes differ between examples")
        known = self.constant(i)
        if known is not None:
            return np.where(known >= 0, known + 1, known).astype(known.dtype)
        b, axes = self.b, self.inputs[i]
        one = np.array(1, axes.dtype.base.numpy)
        zero = np.array(0, axes.dtype.base.numpy)
        return b.SelectV2(b.GreaterEqual(axes, zero), b.AddV2(axes, one), axes)

    def folded(self, i: int) -> Tensor:
        """Returns input `i` with the batch dimension and its first dimension merged."""
        b, t, shape, size = self.b, self.spread(i), self.shape(i), self.static_size
        if shape is not None:
            first = None if size is None or shape[0] is None else size * shape[0]
            known = _reshaped(b, t, [first, *shape[1:]])
            if known is not None:
                return known
        whole = b.Shape(t)
        merged = b.Prod(_part(b, whole, 0, 2), np.array([0], np.int32), keep_dims=True)
        out: Tensor = b.Reshape(t, b.ConcatV2([merged, _part(b, whole, 2, None)], np.int32(0)))
        return out

    def unfolded(self, t: Tensor, out: int = 0) -> Tensor:
        """Returns an output with the dimensions of the batch and of each example apart.

        Args:
          t: the tensor.
          out: the position of the output.
        """
        b, shape = self.b, self.op.outputs[out].shape
        known = None if shape is None else _reshaped(b, t, [self.static_size, *shape])
        if known is not None:
            return known
        whole, n = b.Shape(t), batch_dims(b, self.size, ())
        first = b.FloorDiv(_part(b, whole, 0, 1), b.Maximum(n, np.array([1], np.int32)))
        result: Tensor = b.Reshape(t, b.ConcatV2([n, first, _part(b, whole, 1, None)], np.int32(0)))
        return result


def _reshaped(b: Builder, t: Tensor, dims: Sequence[int | None]) -> Tensor | None:
    """Returns `t` in another shape.

    It is None if more than one dimension is unknown, or one and another is 0.
    """
    unknown = dims.count(None)
    if unknown > 1 or (unknown and 0 in dims):
        return None
    out: Tensor = b.Reshape(t, np.array([-1 if d is None else d for d in dims], np.int32))
    return out


def _part(b: Builder, vector: Tensor, start: int, stop: int | None) -> Tensor:
    """Returns a part of a vector."""
    end, mask = (0, 1) if stop is None else (stop, 0)
    out: Tensor = b.StridedSlice(
        vector, np.array([start], np.int32), np.array([end], np.int32), np.array([1], np.int32), end_mask=mask
    )
    return out


def batch_dims(b: Builder, size: int | Tensor, dims: Sequence[int]) -> Any:
    """Returns the shape of a batch of examples of the shape `dims`."""
    if isinstance(size, int):
        return np.array([size, *dims], np.int32)
    first = b.Reshape(size, np.array([1], np.int32))
    return b.ConcatV2([first, np.array(dims, np.int32)], np.int32(0)) if dims else first


def spread(b: Builder, t: Tensor, size: int | Tensor) -> Tensor:
    """Returns a batch of `size` examples, each of which is `t`."""
    shape = t.static_shape
    out: Tensor
    if shape is not None and None not in shape:
        out = b.BroadcastTo(t, batch_dims(b, size, [d or 0 for d in shape]))
    else:
        out = b.BroadcastTo(t, b.ConcatV2([batch_dims(b, size, ()), b.Shape(t)], np.int32(0)))
    return out


def with_ones(b: Builder, t: Tensor, n: int) -> Tensor:
    """Returns a batch with `n` dimensions of size 1 after the batch dimension."""
    if n <= 0:
        return t
    shape = t.static_shape
    if shape is not None and shape.count(None) <= 1 and (None not in shape or 0 not in shape):
        dims = [-1 if d is None else d for d in shape]
        out: Tensor = b.Reshape(t, np.array([dims[0], *[1] * n, *dims[1:]], np.int32))
        return out
    for _ in range(n):
        t = b.ExpandDims(t, np.int32(1))
    return t


class _MarkedRule:
    """Batching rule whose class states a fact of the outputs.

    Args:
      rule: the function that makes the outputs.
    """

    def __init__(self, rule: Callable[[Builder, BatchNode], Sequence[Any]]) -> None:
        self.rule = rule

    def __call__(self, b: Builder, n: BatchNode) -> Sequence[Any]:
        return self.rule(b, n)


class SameForAll(_MarkedRule):
    """Batching rule of an op whose outputs are the same for all examples.

    Its outputs depend on shapes only. They have no batch dimension.
    """


class Independent(_MarkedRule):
    """Batching rule of a random draw, whose outputs differ between examples of the same inputs.

    They have a batch dimension.
    """
