"""Batching rules (`op(batch=...)`) that many records share.

A rule receives a builder and a `BatchNode` and returns the outputs with the examples in dimension 0. Where the inputs
that differ between examples are not those that a rule covers, it raises `NoBatchRule`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import shapes
from headrace.ir.opdef import PerElement
from headrace.opkit.batch_node import BatchNode, Independent, NoBatchRule, with_ones
from headrace.opkit.elementwise import alike
from headrace.opkit.shape_rules import broadcast, same_as

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor
    from headrace.ir.opdef import BatchRule, OpDef

Rule: TypeAlias = "Callable[[Builder, BatchNode], Sequence[Tensor]]"


def rule_of(record: OpDef) -> BatchRule:
    """Returns the batching rule of a record.

    For an elementwise op without one, it is the rule that follows from the shapes.

    Args:
      record: the record of an op type.

    Returns:
      The rule; None if there is none.
    """
    if record.batch is not None:
        return record.batch
    if not isinstance(record.facts.cost, PerElement) or record.facts.effect or len(record.outs) != 1:
        return None
    if record.shape is broadcast:
        return broadcasting
    if record.shape is alike:
        return in_step
    return in_step if record.shape is same_as(0) and len(record.ins) == 1 else None


def draws(record: OpDef) -> bool:
    """Whether an op draws random numbers, which differ between examples of the same inputs."""
    return isinstance(record.batch, Independent) or record.facts.effect == "random"


# *** elements ***


def broadcasting(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Makes the op for all examples, if it broadcasts its inputs as numpy does."""
    if sum(n.batched) == len(n.inputs) == 1:
        return n.make(*n.inputs)
    rank = max((n.rank(i) for i in range(len(n.inputs))), default=0)
    return n.make(*[n.lifted(i, rank) for i in range(len(n.inputs))])


def in_step(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Makes an op for all examples, if it treats leading dimensions alike.

    Example:
      >>> import headrace as hr
      >>> flip = hr.register_op(
      ...     "DocReverse", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0), batch=hr.extend.in_step,
      ...     kernel=lambda attrs: lambda x: x[..., ::-1], grad=lambda b, n, dy: [b.DocReverse(dy)])
      >>> hr.vmap(flip)(hr.constant([[1.0, 2.0], [3.0, 4.0]])).numpy().tolist()
      [[2.0, 1.0], [4.0, 3.0]]
    """
    return n.make(*[n.spread(i) for i in range(len(n.inputs))])


def stacks(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Makes an op on matrices for all examples, if it broadcasts the dimensions in front."""
    rank = max(n.rank(i) for i in range(len(n.inputs)))
    return n.make(*[with_ones(b, n.spread(i), rank - n.rank(i)) for i in range(len(n.inputs))])


def first_in_step(*positions: int) -> Rule:
    """Returns the rule of an op that treats leading dimensions of some inputs alike.

    The other inputs must be the same for all examples.

    Example:
      >>> import headrace as hr
      >>> scale = hr.register_op(
      ...     "DocScale", "x: T, by: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0),
      ...     kernel=lambda xp, attrs: xp.multiply, xp=True, grad=hr.extend.missing("not needed"),
      ...     batch=hr.extend.first_in_step(0))
      >>> hr.vmap(lambda x: scale(x, 2.0))(hr.constant([[1.0, 2.0], [3.0, 4.0]])).numpy().tolist()
      [[2.0, 4.0], [6.0, 8.0]]
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        n.only(*positions)
        return n.make(*[n.spread(i) if i in positions else t for i, t in enumerate(n.inputs)])

    return rule


def of_whole_shape(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Makes an op for all examples, if its inputs are scalars or of one shape."""
    rank = n.out_rank()
    whole = [i for i in range(len(n.inputs)) if n.rank(i) == rank]
    shape: Any = None
    out = n.op.outputs[0].shape
    if n.static_size is not None and out is not None and shapes.is_full(out):
        shape = np.array([n.static_size, *out], np.int32)
    elif whole:
        shape = b.Shape(n.spread(whole[0]))
    if shape is None:
        raise NoBatchRule("no input has the shape of the output")
    return n.make(*[b.BroadcastTo(n.lifted(i, rank), shape) for i in range(len(n.inputs))])


# *** dimensions ***


def folding(*positions: int) -> Rule:
    """Returns the rule of an op on batches, into which the examples are merged.

    The inputs at `positions` have the batch in dimension 0.

    The other inputs must be the same for all examples.

    Example:
      >>> import headrace as hr
      >>> double = hr.register_op(
      ...     "DocDouble", "rows: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0),
      ...     kernel=lambda attrs: lambda x: x + x, grad=hr.extend.missing("not needed"),
      ...     batch=hr.extend.folding(0))
      >>> hr.vmap(double)(hr.ones((3, 2, 4))).shape
      (3, 2, 4)
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        n.only(*positions)
        made = n.make(*[n.folded(i) if i in positions else t for i, t in enumerate(n.inputs)])
        return [n.unfolded(t, i) for i, t in enumerate(made)]

    return rule


def shifting_axes(at: int, *data: int) -> Rule:
    """Returns the rule of an op that works along the axes that input `at` names.

    Args:
      at: the input with the axes, counted from the front or, if negative, from the back.
      data: the inputs with the dimensions; the other ones are the same for all examples.
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        n.only(*data)
        out: list[Any] = []
        for i, t in enumerate(n.inputs):
            out.append(n.axes(at) if i == at else n.spread(i) if i in data else t)
        return n.make(*out)

    return rule


def shifting_attr(name: str) -> Rule:
    """Returns the rule of an op that works along the axis of the attribute `name`."""

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        axis = n.attrs[name]
        return n.make(*[n.spread(i) for i in range(len(n.inputs))], **{name: axis + 1 if axis >= 0 else axis})

    return rule


def prefixing(at: int, first: Any, data: Sequence[int] = (0,)) -> Rule:
    """Returns the rule of an op with an entry or row for each dimension.

    Args:
      at: the input with the vector or matrix.
      first: the entry or row for the batch dimension.
      data: the inputs with the dimensions; the other ones are the same for all examples.
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        n.only(*data)
        out: list[Any] = []
        for i, t in enumerate(n.inputs):
            out.append(in_front(b, n, at, first) if i == at else n.spread(i) if i in data else t)
        return n.make(*out)

    return rule


def in_front(b: Builder, n: BatchNode, i: int, first: Any) -> Any:
    """Returns input `i`, a vector or matrix, with an entry or row in front."""
    known = n.constant(i)
    dtype = n.inputs[i].dtype.base
    head = np.array([first], dtype.numpy)
    return np.concatenate([head, known]) if known is not None else b.ConcatV2([head, n.inputs[i]], np.int32(0))


def behind(b: Builder, n: BatchNode, i: int, place: int) -> Any:
    """Returns input `i` with the batch dimension behind `place` of its own."""
    return moved(b, n.spread(i), 0, place, n.rank(i) + 1)


def moved(b: Builder, t: Any, source: int, target: int, rank: int) -> Any:
    """Returns `t`, of the given rank, with dimension `source` at `target`."""
    if source == target:
        return t
    order = [k for k in range(rank) if k != source]
    order.insert(target, source)
    return b.Transpose(t, np.array(order, np.int32))


def rows_in_step(*data: int) -> Rule:
    """Returns the rule of an op on the first dimension of the inputs `data`.

    The op treats later dimensions alike.

    The other inputs must be the same for all examples.
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        n.only(*data)
        made = n.make(*[behind(b, n, i, 1) if i in data else t for i, t in enumerate(n.inputs)])
        return [moved(b, t, 1, 0, n.out_rank(i) + 1) for i, t in enumerate(made)]

    return rule


def at_the_end(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Makes an op on the first dimensions of input 0 for all examples.

    The examples become the last dimension.
    """
    n.only(0)
    (made,) = n.make(behind(b, n, 0, n.rank(0)), *n.inputs[1:])
    return [moved(b, made, n.out_rank(), 0, n.out_rank() + 1)]


# *** positions of examples ***


def numbered(b: Builder, n: BatchNode, indices: Any, rank: int) -> Any:
    """Returns index vectors with the number of the example in front.

    The shape [n, ..., k] becomes [n, ..., k + 1].

    Args:
      b: the builder.
      n: the node.
      indices: a batch of index vectors.
      rank: the rank of `indices` in one example.
    """
    dtype = indices.dtype.base
    numbers = example_numbers(b, n, dtype, rank)
    known = indices.static_shape
    if known is not None and shapes.is_full(known):
        whole: Any = np.array([*known[:-1], 1], np.int32)
    else:
        front = b.StridedSlice(
            b.Shape(indices), np.array([0], np.int32), np.array([-1], np.int32), np.array([1], np.int32)
        )
        whole = b.ConcatV2([front, np.array([1], np.int32)], np.int32(0))
    return b.ConcatV2([b.BroadcastTo(numbers, whole), indices], np.int32(-1))


def example_numbers(b: Builder, n: BatchNode, dtype: Any, rank: int) -> Any:
    """Returns the numbers of the examples, of shape [n, 1, ..., 1] with `rank` ones."""
    if isinstance(n.size, int):
        return b.const(np.arange(n.size, dtype=dtype.numpy).reshape(-1, *[1] * rank), dtype)
    zero, one = np.array(0, dtype.numpy), np.array(1, dtype.numpy)
    numbers = b.Range(zero, n.scalar(dtype), one)
    return b.Reshape(numbers, np.array([-1, *[1] * rank], np.int32))


# *** random numbers ***


def drawing(at: int) -> Rule:
    """Returns the rule of an op that draws a tensor of a given shape."""

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        n.only()
        return n.make(*[n.prefixed(t) if i == at else t for i, t in enumerate(n.inputs)])

    return rule
