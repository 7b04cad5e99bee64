"""Batching rules of tensor lists, whose elements are batches of elements.

So all examples have lists of one length. A position that differs between examples is one along the rows of the list as
a tensor. If the lists have different lengths (`BatchNode.ragged`), a vector has a list for each example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.opkit.batch_node import BatchNode, NoBatchRule, SameForAll, batch_dims, spread
from headrace.opkit.batch_rules import example_numbers, folding, moved

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor


def _even(n: BatchNode) -> None:
    """Checks that the examples have lists of one length.

    Raises:
      NoBatchRule: they have not.
    """
    if n.ragged:
        raise NoBatchRule("the examples have lists of different lengths")


def _element(n: BatchNode, i: int) -> Any:
    """Returns input `i`, the shape of an element, with the batch dimension."""
    _even(n)
    if n.batched[i]:
        raise NoBatchRule("the shape of the elements differs between examples")
    shape = n.shape(i)
    if shape is None:
        raise NoBatchRule("the rank of the shape of the elements is unknown")
    return n.inputs[i] if shape == () else n.prefixed(n.inputs[i])


def new_list(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `EmptyTensorList(element_shape, max_num_elements)` and TensorListReserve."""
    n.only(0)
    if n.ragged:
        return [spread(b, t, n.size) for t in n.make(*n.inputs)]
    (made,) = n.make(_element(n, 0), n.inputs[1])
    known = n.op.outputs[0].handle
    if known is not None:
        made.refine(handle=(known[0], None if known[1] is None else (n.static_size, *known[1])))
    return [made]


def push(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListPushBack(input_handle, tensor)`."""
    if n.ragged:
        return [b.TensorListPushBackBatch(n.inputs[0], n.spread(1))]
    return n.make(n.inputs[0], n.spread(1))


def pop(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListPopBack(input_handle, element_shape)`."""
    if n.ragged:
        n.only(0)
        rest: Sequence[Tensor] = b.make(
            "_TensorListPopBackBatch", (n.inputs[0], n.inputs[1]), {"element_dtype": n.attrs["element_dtype"]}
        )
        return rest
    return n.make(n.inputs[0], _element(n, 1))


def get(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListGetItem(input_handle, index, element_shape)`."""
    if not n.batched[1]:
        return n.make(n.inputs[0], n.inputs[1], _element(n, 2))
    if not n.batched[0]:
        n.only(1)
        return [b.TensorListGather(n.inputs[0], n.inputs[1], n.inputs[2], element_dtype=n.attrs["element_dtype"])]
    rank = n.out_rank()
    whole = moved(b, _as_tensor(b, n, 2), 1, 0, rank + 2)
    return [b.GatherV2(whole, n.inputs[1], np.int32(1), batch_dims=1)]


def put(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListSetItem(input_handle, index, item)`."""
    _even(n)
    if not n.batched[1]:
        return n.make(n.inputs[0], n.inputs[1], n.spread(2))
    known = n.op.inputs[0].handle
    element = shapes.merge(None if known is None else known[1], n.shape(2))
    if element is None or not shapes.is_full(element):
        raise NoBatchRule("the position differs between examples, and the shape of the elements is unknown")
    dims = batch_dims(b, n.size, [d or 0 for d in element])
    whole = b.TensorListStack(n.inputs[0], dims, element_dtype=n.attrs["element_dtype"])
    index = n.inputs[1]
    places = b.Pack([index, b.Reshape(example_numbers(b, n, index.dtype.base, 0), np.array([-1], np.int32))], axis=1)
    out: Tensor = b.TensorListFromTensor(b.TensorScatterUpdate(whole, places, n.spread(2)), dims)
    out.refine(handle=n.inputs[0].handle)
    return [out]


def _as_tensor(b: Builder, n: BatchNode, shape: int) -> Tensor:
    """Returns the list of input 0 as a tensor [length, examples, ...]."""
    out: Tensor = b.TensorListStack(n.inputs[0], _element(n, shape), element_dtype=n.attrs["element_dtype"])
    return out


def stack(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListStack(input_handle, element_shape)`."""
    (made,) = n.make(n.inputs[0], _element(n, 1))
    return [moved(b, made, 1, 0, n.out_rank() + 1)]


def gather_list(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListGather(input_handle, indices, element_shape)`."""
    n.only(0)
    (made,) = n.make(n.inputs[0], n.inputs[1], _element(n, 2))
    return [moved(b, made, 1, 0, n.out_rank() + 1)]


def from_tensor(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListFromTensor(tensor, element_shape)`."""
    return n.make(moved(b, n.spread(0), 0, 1, n.rank(0) + 1), _element(n, 1))


def scatter_list(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListScatter(tensor, indices, element_shape)` and its second version."""
    n.only(0)
    return n.make(moved(b, n.spread(0), 0, 1, n.rank(0) + 1), n.inputs[1], _element(n, 2), *n.inputs[3:])


def scatter_into_list(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorListScatterIntoExistingList(input_handle, tensor, indices)`."""
    _even(n)
    n.only(0, 1)
    return n.make(n.inputs[0], moved(b, n.spread(1), 0, 1, n.rank(1) + 1), n.inputs[2])


def as_it_is(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches an op on lists whose other inputs do not depend on the elements."""
    _even(n)
    n.only(*(i for i, t in enumerate(n.op.inputs) if t.dtype.name == "variant"))
    return n.make(*n.inputs)


push_batch = folding(0, 1)
pop_batch = folding(0)

length_of_list = SameForAll(as_it_is)


def _shape_of_element(b: Builder, n: BatchNode) -> Sequence[Any]:
    _even(n)
    (made,) = n.make(*n.inputs)
    one = np.array([1], np.int32)
    return [b.StridedSlice(made, one, np.array([0], np.int32), one, end_mask=1)]


shape_of_element = SameForAll(_shape_of_element)
