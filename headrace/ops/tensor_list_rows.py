"""Conversions between tensors and lists: rows or pieces of a tensor; stacked or concatenated elements.

Source: TensorFlow's TensorList* ops. Stack and from-tensor are each other's gradient; so are gather and scatter, concat
and split. `ops.tensor_list` has the ops on single elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference, constant_value
from headrace.ir.op_roles import ListRole
from headrace.ir.opdef import Facts, int_attr, op, shape_attr, type_attr
from headrace.opkit import batch_lists
from headrace.opkit.arrays import on_host
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, integers, is_standard
from headrace.opkit.tensor_lists import (
    ELEMENT,
    SHAPED,
    element_shape_input,
    held,
    keeps_list,
    length,
    new_list,
    of_element,
    row_shape,
    without,
)
from headrace.resources.element_shapes import element_shape_of
from headrace.resources.tensor_list import TensorList, list_of
from headrace.resources.values import arrays_of, int_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradEntry, GradNode
    from headrace.ir.graph import Tensor

Attrs = Mapping[str, Any]

_AS_MANY_AS_NEEDED = np.int32(-1)


# *** shape rules ***


def _stack_shape(c: Inference) -> Sequence[Shape]:
    n = c.attrs["num_elements"]
    return [shapes.concatenate((None if n < 0 else n,), held(c, element_shape_input(c, 1)))]


def _gather_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.concatenate(shapes.with_rank(c.shapes[1], 1), held(c, element_shape_input(c, 2)))]


def _concat_shape(c: Inference) -> Sequence[Shape]:
    given = c.attrs["element_shape"] if "element_shape" in c.attrs else element_shape_input(c, 1)
    element = held(c, given)
    return [(None, *element[1:]) if element else None, (None,)]


def _from_tensor_shape(c: Inference) -> Sequence[Shape]:
    rows_shape = shapes.with_rank_at_least(c.shapes[0], 1)
    element = element_shape_input(c, 1)
    if rows_shape is not None:
        shapes.merge(element, rows_shape[1:])
    c.set_handle(0, c.attrs["element_dtype"], element)
    return [()]


def _split_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_least(c.shapes[0], 1)
    shapes.with_rank(c.shapes[2], 1)
    c.set_handle(0, c.attrs["element_dtype"], shapes.with_rank_at_least(element_shape_input(c, 1), 1))
    return [()]


# *** kernels ***


def _from_tensor(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)
    return lambda tensor, shape: TensorList.from_tensor(tensor, dtype, element_shape_of(shape), arrays)


def _stack(xp: Any, attrs: Attrs) -> Callable[[Any, Any], Any]:
    dtype, n, arrays = attrs["element_dtype"], attrs["num_elements"], arrays_of(xp)
    return lambda handle, shape: list_of(handle, dtype).stack(element_shape_of(shape), n, arrays)


def _gather(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], Any]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)

    def kernel(handle: Any, indices: Any, shape: Any) -> Any:
        return list_of(handle, dtype).gather(on_host(indices), element_shape_of(shape), arrays)

    return kernel


def _scatter(xp: Any, attrs: Attrs) -> Callable[..., TensorList]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)

    def kernel(tensor: Any, indices: Any, shape: Any, n: Any = _AS_MANY_AS_NEEDED) -> TensorList:
        size = int_of(n, "num_elements")
        return TensorList.scattered(tensor, on_host(indices), dtype, element_shape_of(shape), size, arrays)

    return kernel


def _scatter_into(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], TensorList]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)
    return lambda handle, tensor, indices: list_of(handle, dtype).scatter(tensor, on_host(indices), arrays)


def _concat(xp: Any, attrs: Attrs) -> Callable[[Any], tuple[Any, Any]]:
    dtype, shape, arrays = attrs["element_dtype"], attrs["element_shape"], arrays_of(xp)
    return lambda handle: _with_lengths(xp, list_of(handle, dtype).concat(shape, (), arrays))


def _concat_v2(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)

    def kernel(handle: Any, shape: Any, leading_dims: Any) -> tuple[Any, Any]:
        dims = integers(leading_dims)
        if min(dims, default=0) < 0:
            raise InvalidArgumentError(f"leading_dims must not be negative, got {list(dims)}")
        return _with_lengths(xp, list_of(handle, dtype).concat(element_shape_of(shape), dims, arrays))

    return kernel


def _with_lengths(xp: Any, joined: tuple[Any, Any]) -> tuple[Any, Any]:
    """A joined array, and the lengths as an array of its namespace.

    The lengths of elements in a memory are on the host.
    """
    rows, lengths = joined
    return rows, constant(xp, lengths.tolist(), dtypes.int64, rows) if is_standard(xp) else lengths


def _split(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda tensor, shape, lengths: TensorList.split(tensor, on_host(lengths), dtype, element_shape_of(shape))


# *** gradients ***


def _from_tensor_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    rows = b.TensorListStack(dlist, row_shape(b, n.tensor), element_dtype=n.attrs["element_dtype"])
    return [of_element(b, n.tensor, rows), None]


def _stack_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    return [b.TensorListFromTensor(dy, row_shape(b, dy)), None]


def _gather_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    rows, where = dy, n.indices
    if not _are_distinct(where):
        _check_summable(n)
        where, at = b.Unique(where)
        rows = b.UnsortedSegmentSum(rows, at, b.Size(where))
    return [b.TensorListScatterIntoExistingList(b.ZerosLike(n.input_handle), rows, where), None, None]


def _scatter_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return [_gathered(b, n, dlist), *[None] * (len(n.inputs) - 1)]


def _scatter_into_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[GradEntry]:
    def by_list() -> Tensor:
        out: Tensor = b.TensorListResize(without(b, n, dlist, n.indices), length(b, n))
        return out

    return [by_list, lambda: _gathered(b, n, dlist), None]


def _gathered(b: Builder, n: GradNode, dlist: Tensor) -> Tensor:
    """The gradient of the scattered rows.

    Of several rows with one index only the last is in the list; the others get 0.
    """
    where, dtype, shape = n.indices, n.attrs["element_dtype"], row_shape(b, n.tensor)
    out: Tensor
    if _are_distinct(where):
        return of_element(b, n.tensor, b.TensorListGather(dlist, where, shape, element_dtype=dtype))
    _check_summable(n)
    places, at = b.Unique(where)
    last = b.UnsortedSegmentMax(b.Range(0, b.Size(where), 1), at, b.Size(places))
    rows = b.TensorListGather(dlist, places, shape, element_dtype=dtype)
    out = b.ScatterNd(b.ExpandDims(last, 1), rows, b.Shape(n.tensor))
    return out


def _are_distinct(indices: Tensor) -> bool:
    """Whether the indices are known to be distinct."""
    if indices.op.type == "Range" or indices.shape == (1,):
        return True
    known = constant_value(indices)
    return known is not None and len(np.unique(known)) == known.size


def _check_summable(n: GradNode) -> None:
    if n.attrs["element_dtype"] in dtypes.OBJECT:
        raise LookupError(
            f"{n.op.type} of a list of lists has a gradient only where the indices are known to be distinct while the "
            "graph is built; take or set the elements one by one (TensorListGetItem, TensorListSetItem)"
        )


def _shape_of_elements(b: Builder, n: GradNode) -> Tensor:
    out: Tensor = b.TensorListElementShape(n.input_handle, shape_type=dtypes.int32)
    return out


def _concat_grad(b: Builder, n: GradNode, dy: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    none: list[Tensor | None] = [None] * (len(n.inputs) - 1)
    if dy is None:
        return [None, *none]
    return [b.TensorListSplit(dy, _shape_of_elements(b, n), n.lengths), *none]


def _split_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    shape = b.ConcatV2([[-1], row_shape(b, n.tensor)], 0)
    dy, _ = b.TensorListConcatV2(dlist, shape, n.lengths, element_dtype=n.attrs["element_dtype"])
    return [dy, None, None]


# *** records ***

op(
    "TensorListFromTensor",
    "tensor: element_dtype, element_shape: shape_type",
    "output_handle: variant",
    SHAPED,
    shape=_from_tensor_shape,
    kernel=_from_tensor,
    xp=True,
    grad=_from_tensor_grad,
    jvp=linear("tensor"),
    batch=batch_lists.from_tensor,
    facts=Facts(list_role=ListRole("from_tensor")),
    doc="The list of the rows of `tensor`.",
)
op(
    "TensorListStack",
    "input_handle: variant, element_shape: int32",
    "tensor: element_dtype",
    {"element_dtype": type_attr(), "num_elements": int_attr(-1)},
    shape=_stack_shape,
    kernel=_stack,
    xp=True,
    grad=_stack_grad,
    jvp=linear("input_handle"),
    batch=batch_lists.stack,
    facts=Facts(list_role=ListRole("stack", shape_input=1)),
    doc="All elements as the rows of one tensor.",
)
op(
    "TensorListGather",
    "input_handle: variant, indices: int32, element_shape: int32",
    "values: element_dtype",
    ELEMENT,
    shape=_gather_shape,
    kernel=_gather,
    xp=True,
    grad=_gather_grad,
    jvp=linear("input_handle"),
    batch=batch_lists.gather_list,
    facts=Facts(list_role=ListRole("gather", shape_input=2)),
    doc="The elements at `indices` as the rows of one tensor.",
)
op(
    "TensorListScatter",
    "tensor: element_dtype, indices: int32, element_shape: shape_type",
    "output_handle: variant",
    SHAPED,
    shape=new_list(2),
    kernel=_scatter,
    xp=True,
    grad=_scatter_grad,
    jvp=linear("tensor"),
    batch=batch_lists.scatter_list,
    doc="A list with the rows of `tensor` at `indices`.",
)
op(
    "TensorListScatterV2",
    "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32",
    "output_handle: variant",
    SHAPED,
    shape=new_list(2),
    kernel=_scatter,
    xp=True,
    grad=_scatter_grad,
    jvp=linear("tensor"),
    batch=batch_lists.scatter_list,
    doc="A list of `num_elements` elements (-1: as many as needed) with the rows of `tensor` at `indices`.",
)
op(
    "TensorListScatterIntoExistingList",
    "input_handle: variant, tensor: element_dtype, indices: int32",
    "output_handle: variant",
    ELEMENT,
    shape=keeps_list,
    kernel=_scatter_into,
    xp=True,
    grad=_scatter_into_grad,
    jvp=linear("input_handle", "tensor"),
    batch=batch_lists.scatter_into_list,
    doc="The list with the rows of `tensor` at `indices`.",
)
op(
    "TensorListConcat",
    "input_handle: variant",
    "tensor: element_dtype, lengths: int64",
    {"element_dtype": type_attr(), "element_shape": shape_attr(None)},
    shape=_concat_shape,
    kernel=_concat,
    xp=True,
    grad=_concat_grad,
    jvp=linear("input_handle"),
    doc="The concatenation of all elements along their first dimension, and their lengths.",
)
op(
    "TensorListConcatV2",
    "input_handle: variant, element_shape: shape_type, leading_dims: int64",
    "tensor: element_dtype, lengths: int64",
    SHAPED,
    shape=_concat_shape,
    kernel=_concat_v2,
    xp=True,
    grad=_concat_grad,
    jvp=linear("input_handle"),
    facts=Facts(list_role=ListRole("concat", shape_input=1)),
    doc="The concatenation of all elements; `leading_dims` are the lengths of uninitialized ones.",
)
op(
    "TensorListSplit",
    "tensor: element_dtype, element_shape: shape_type, lengths: int64",
    "output_handle: variant",
    SHAPED,
    shape=_split_shape,
    kernel=_split,
    xp=True,
    grad=_split_grad,
    jvp=linear("tensor"),
    doc="The list of consecutive pieces of `tensor`, of the given lengths.",
)
