"""Batching rules of ops that read shapes, rearrange elements, fill and select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.opkit.batch_node import BatchNode, NoBatchRule, with_ones

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor

# *** shapes of one example ***


def shape_of_example(b: Builder, n: BatchNode) -> Sequence[Any]:
    """Makes the shape of one example of each input."""
    dtype = n.attrs["out_type"]
    return [_shape(b, n, i, dtype) for i in range(len(n.inputs))]


def _shape(b: Builder, n: BatchNode, i: int, dtype: Any) -> Tensor:
    known = n.shape(i)
    if known is not None and shapes.is_full(known):
        return b.const(np.array(known, dtype.numpy), dtype)
    whole = b.Shape(n.inputs[i], out_type=dtype)
    if not n.batched[i]:
        return whole  # type: ignore[no-any-return]
    one = np.array([1], np.int32)
    out: Tensor = b.StridedSlice(whole, one, np.array([0], np.int32), one, end_mask=1)
    return out


def size_of_example(b: Builder, n: BatchNode) -> Sequence[Any]:
    """Makes the number of elements of one example."""
    dtype = n.attrs["out_type"]
    return [b.Prod(_shape(b, n, 0, dtype), np.array([0], np.int32))]


def rank_of_example(b: Builder, n: BatchNode) -> Sequence[Any]:
    """Makes the rank of one example."""
    known = n.shape(0)
    if known is not None:
        return [b.const(np.int32(len(known)), dtypes.int32)]
    return [b.Sub(b.Rank(n.inputs[0]), np.int32(1))]


# *** arrangement ***


def reshape(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Reshape(tensor, shape)`."""
    n.only(0)
    out, size = n.op.outputs[0].shape, n.static_size
    if out is not None and shapes.is_full(out) and (size is not None or 0 not in out):
        return n.make(n.inputs[0], np.array([-1 if size is None else size, *out], np.int32))
    return n.make(n.inputs[0], n.prefixed(n.inputs[1]))


def squeeze(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Squeeze(input)`."""
    known = n.shape(0)
    axes = n.attrs["squeeze_dims"]
    if not axes:
        if known is None or not shapes.is_full(known):
            raise NoBatchRule("the dimensions of size 1 are unknown")
        axes = [k for k, d in enumerate(known) if d == 1]
        if not axes:
            return n.inputs
    return n.make(n.inputs[0], squeeze_dims=tuple(k + 1 if k >= 0 else k for k in axes))


def transpose(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Transpose(x, perm)`."""
    n.only(0)
    known = n.constant(1)
    if known is not None:
        order = [0, *(k + 1 if k >= 0 else k for k in known.tolist())]
        return n.make(n.inputs[0], np.array(order, known.dtype))
    perm = n.inputs[1]
    one, zero = np.array(1, perm.dtype.base.numpy), np.array(0, perm.dtype.base.numpy)
    return n.make(n.inputs[0], n.prefixed(b.SelectV2(b.Less(perm, zero), perm, b.AddV2(perm, one)), 0))


def broadcast_to(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `BroadcastTo(input, shape)`."""
    n.only(0)
    return n.make(n.lifted(0, n.out_rank()), n.prefixed(n.inputs[1]))


def ensure_shape(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `EnsureShape(input)`."""
    shape = n.attrs["shape"]
    return n.make(n.inputs[0], shape=None if shape is None else (n.static_size, *shape))


def concat(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `ConcatV2(values, axis)`."""
    last = len(n.inputs) - 1
    n.only(*range(last))
    return n.make(*[n.spread(i) for i in range(last)], n.axes(last))


def concat_axis_first(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Concat(concat_dim, values)`."""
    n.only(*range(1, len(n.inputs)))
    return n.make(n.axes(0), *[n.spread(i) for i in range(1, len(n.inputs))])


def diagonal_tensor(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Diag(diagonal)` of vectors."""
    if n.rank(0) != 1:
        raise NoBatchRule("the diagonal is no vector")
    return [b.MatrixDiag(n.inputs[0])]


def diagonal_part(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `DiagPart(input)` of matrices."""
    if n.rank(0) != 2:
        raise NoBatchRule("the tensor is no matrix")
    return [b.MatrixDiagPart(n.inputs[0])]


# *** filling and selection ***


def fill(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Fill(dims, value)`."""
    n.only(1)
    return [b.BroadcastTo(with_ones(b, n.inputs[1], n.out_rank()), n.prefixed(n.inputs[0]))]


def one_hot(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `OneHot(indices, depth, on_value, off_value)`."""
    n.only(0)
    axis = n.attrs["axis"]
    return n.make(*n.inputs, axis=axis + 1 if axis >= 0 else axis)


def select(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Select(condition, t, e)`, whose condition may be a scalar or a vector of rows."""
    rank = n.out_rank()
    condition, given = n.inputs[0], n.rank(0)
    if given == 1 < rank:  # a condition for each row
        size = rank - 1
        whole = condition if n.batched[0] else b.ExpandDims(condition, np.int32(0))
        for _ in range(size):
            whole = b.ExpandDims(whole, np.int32(-1))
        condition = whole
    else:
        condition = n.lifted(0, rank)
    return [b.SelectV2(condition, n.spread(1), n.spread(2))]


# *** sums ***


def accumulate(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `AccumulateNV2(inputs)`, which states the shape of its inputs."""
    shape = n.attrs["shape"]
    every = [n.spread(i) for i in range(len(n.inputs))]
    return n.make(*every, shape=None if shape is None else (n.static_size, *shape))


def bias_add(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `BiasAdd(value, bias)`."""
    channels_first = n.attrs.get("data_format") == "NCHW"
    rank = n.rank(0)
    if not n.batched[1] and not channels_first:
        return n.make(*n.inputs)
    bias = n.inputs[1]
    if channels_first and rank > 2:
        for _ in range(rank - 2):
            bias = b.ExpandDims(bias, np.int32(-1))
        rank = 2
    if n.batched[1]:
        bias = with_ones(b, bias, rank - 1)
    return [b.AddV2(n.inputs[0], bias)]


def bias_add_grad(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `BiasAddGrad(out_backprop)`."""
    rank = n.rank(0)
    channel = 2 if n.attrs["data_format"] == "NCHW" else rank
    return [b.Sum(n.inputs[0], np.array([k for k in range(1, rank + 1) if k != channel], np.int32))]


def l2_loss(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `L2Loss(t)`."""
    x = n.inputs[0]
    half = np.array(0.5, x.dtype.base.numpy)
    return [b.Mul(b.Sum(b.Square(x), np.arange(1, n.rank(0) + 1, dtype=np.int32)), half)]


def cross_entropy(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `SoftmaxCrossEntropyWithLogits(features, labels)`."""
    if n.rank(0) != 2 or n.rank(1) != 2:
        raise NoBatchRule("an input is no matrix")
    shape: Any = n.op.outputs[1].shape
    if shape is None or not shapes.is_full(shape) or n.static_size is None:
        if n.shape(0) != n.shape(1):
            raise NoBatchRule("the shapes are unknown, and may be broadcast")
        parts = [n.folded(0), n.folded(1)]
    else:
        whole = np.array([n.static_size, *shape], np.int32)
        flat = np.array([n.static_size * shape[0], shape[1]], np.int32)
        parts = [b.Reshape(b.BroadcastTo(n.lifted(i, 2), whole), flat) for i in range(2)]
    return [n.unfolded(t, i) for i, t in enumerate(n.make(*parts))]


# *** checks ***


def all_hold(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Assert(condition, data)`: the conditions of all examples must hold."""
    condition = n.inputs[0]
    if n.batched[0]:
        condition = b.All(condition, np.array([0], np.int32))
    n.make(condition, *n.inputs[1:])
    return []
