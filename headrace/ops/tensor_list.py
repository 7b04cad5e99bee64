"""Tensor lists: immutable lists of tensors as values of dtype variant; accumulators and `hr.TensorArray` are made so.

Source: TensorFlow's TensorList* ops. Push and pop are each other's gradient; so are stack and from-tensor, gather and
scatter, concat and split. `resources.tensor_list` says what a list is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, flags, shapes
from headrace.dtypes import INDEX
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, int_attr, missing, op, shape_attr, type_attr
from headrace.ir.tangents import linear
from headrace.resources.tensor_list import TensorList, element_shape_of, list_of
from headrace.resources.values import rows, shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor
    from headrace.ir.opdef import GradNode

_ELEMENT = {"element_dtype": type_attr()}
_SHAPED = {"element_dtype": type_attr(), "shape_type": INDEX}

Attrs = Mapping[str, Any]

_AS_MANY_AS_NEEDED = np.int32(-1)


# *** arguments ***


def _scalar(value: Any, what: str) -> int:
    if shape_of(value):
        raise InvalidArgumentError(f"{what} expected to be a scalar but got shape: {shapes.show(shape_of(value))}")
    return int(value)


def _check_fits(element: Any, wanted: Shape) -> None:
    """Raises unless the element has the shape that the op's `element_shape` promised to shape inference."""
    shape = shape_of(element)
    if shape != wanted and not shapes.fits(shape, wanted):
        raise InvalidArgumentError(
            f"Incompatible shapes during merge: the list's element has shape {shapes.show(shape)}, "
            f"but element_shape is {shapes.show(wanted)}"
        )


# *** shape rules ***


def _shape_input(c: Inference, i: int) -> Shape:
    """What is known of the element shape given as input `i`."""
    v = c.value(i)
    if v is not None:
        if v.ndim == 0 and v != -1:
            raise ValueError(f"The only valid scalar shape tensor is the fully unknown shape specified as -1, got {v}.")
        return None if v.ndim == 0 else c.shape_value(i)
    given = shapes.with_rank_at_most(c.shapes[i], 1)
    return c.shape_value(i) if given is not None and len(given) == 1 else None


def _held(c: Inference, given: Shape = None) -> Shape:
    """What is known of the elements of the list in input 0, from it and from what is `given` besides."""
    shapes.with_rank(c.shapes[0], 0)
    known = c.handle(0)
    if known is None:
        return given
    dtype = c.attrs.get("element_dtype")
    if dtype is not None and known[0] != dtype:
        raise ValueError(f"Expected list with element dtype {dtype.name} but got list with {known[0].name}")
    return shapes.merge(known[1], given)


def _new_list(shape_at: int) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        c.set_handle(0, c.attrs["element_dtype"], _shape_input(c, shape_at))
        return [()]

    return rule


def _same_list(c: Inference) -> None:
    known = c.handle(0)
    if known is not None:
        c.set_handle(0, *known)


def _set_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    _held(c, c.shapes[2])
    return _keeps_list(c)


def _keeps_list(c: Inference) -> Sequence[Shape]:
    _held(c)
    _same_list(c)
    return [()]


def _pop_shape(c: Inference) -> Sequence[Shape]:
    _same_list(c)
    element, given = _held(c), _shape_input(c, 1)
    # a contradiction is an error only when the list is popped
    return [(), shapes.merge(element, given) if shapes.compatible(element, given) else element]


def _get_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [_held(c, _shape_input(c, 2))]


def _stack_shape(c: Inference) -> Sequence[Shape]:
    n = c.attrs["num_elements"]
    return [shapes.concatenate((None if n < 0 else n,), _held(c, _shape_input(c, 1)))]


def _gather_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.concatenate(shapes.with_rank(c.shapes[1], 1), _held(c, _shape_input(c, 2)))]


def _concat_shape(c: Inference) -> Sequence[Shape]:
    given = c.attrs["element_shape"] if "element_shape" in c.attrs else _shape_input(c, 1)
    element = _held(c, given)
    return [(None, *element[1:]) if element else None, (None,)]


def _from_tensor_shape(c: Inference) -> Sequence[Shape]:
    rows_shape = shapes.with_rank_at_least(c.shapes[0], 1)
    element = _shape_input(c, 1)
    if rows_shape is not None:
        shapes.merge(element, rows_shape[1:])
    c.set_handle(0, c.attrs["element_dtype"], element)
    return [()]


def _split_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_least(c.shapes[0], 1)
    shapes.with_rank(c.shapes[2], 1)
    c.set_handle(0, c.attrs["element_dtype"], shapes.with_rank_at_least(_shape_input(c, 1), 1))
    return [()]


def _element_shape_value(c: Inference) -> Shape:
    known = c.handle(0)
    return None if known is None else known[1]


def _element_shape_shape(c: Inference) -> Sequence[Shape]:
    known = _element_shape_value(c)
    return [None if known is None else (len(known),)]


# *** kernels ***


def _empty(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype = attrs["element_dtype"]

    def kernel(element_shape: Any, max_num_elements: Any) -> TensorList:
        n = _scalar(max_num_elements, "max_num_elements")
        return TensorList(dtype, element_shape_of(element_shape), max_num_elements=None if n == -1 else n)

    return kernel


def _reserve(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda shape, n: TensorList.reserve(dtype, element_shape_of(shape), _scalar(n, "num_elements"))


def _from_tensor(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda tensor, shape: TensorList.from_tensor(tensor, dtype, element_shape_of(shape))


def _push(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    if "_accumulates" not in attrs:
        return lambda handle, tensor: list_of(handle, dtype).push(tensor)
    limit = flags.accumulator_limit()

    def counted(handle: Any, tensor: Any) -> TensorList:
        before = list_of(handle, dtype)
        after = before.push_counted(tensor, limit)
        if after is None:
            raise ResourceExhaustedError(
                f"the gradient of a loop keeps more than {limit:,} bytes of {attrs['_accumulates']}: "
                f"{before.length()} values of {before.nbytes:,} bytes so far. Let the loop keep less "
                "(while_loop(..., save=hr.recompute('sqrt'))), or raise the limit (HEADRACE_ACCUMULATOR_LIMIT)"
            )
        return after

    return counted


def _push_batch(xp: Any, attrs: Attrs) -> Callable[[Any, Any], Any]:
    dtype = attrs["element_dtype"]

    def kernel(handles: Any, tensor: Any) -> Any:
        if len(shape_of(handles)) != 1:
            raise InvalidArgumentError(
                f"Expected input_handles to be a vector, but saw shape: {shapes.show(shape_of(handles))}"
            )
        if not shape_of(tensor):
            raise InvalidArgumentError("Expected tensor to be at least a vector, but saw shape: []")
        if len(tensor) != len(handles):
            raise InvalidArgumentError(
                f"Expected tensor.shape[0] == input_handles.size, but saw {len(tensor)} vs. {len(handles)}"
            )
        out = np.empty(len(handles), object)
        for i, (handle, row) in enumerate(zip(handles, rows(tensor, dtype), strict=True)):
            out[i] = list_of(handle, dtype).push(row)
        return out

    return kernel


def _pop(xp: Any, attrs: Attrs) -> Callable[[Any, Any], tuple[TensorList, Any]]:
    dtype = attrs["element_dtype"]

    def kernel(handle: Any, element_shape: Any) -> tuple[TensorList, Any]:
        shape = element_shape_of(element_shape)
        rest, element = list_of(handle, dtype).pop(shape)
        _check_fits(element, shape)
        return rest, element

    return kernel


def _get(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["element_dtype"]

    def kernel(handle: Any, index: Any, element_shape: Any) -> Any:
        shape = element_shape_of(element_shape)
        element = list_of(handle, dtype).get(_scalar(index, "index"), shape)
        _check_fits(element, shape)
        return element

    return kernel


def _set(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], TensorList]:
    dtype, resize = attrs["element_dtype"], attrs["resize_if_index_out_of_bounds"]
    return lambda handle, index, item: list_of(handle, dtype).set(_scalar(index, "index"), item, resize)


def _stack(xp: Any, attrs: Attrs) -> Callable[[Any, Any], Any]:
    dtype, n = attrs["element_dtype"], attrs["num_elements"]
    return lambda handle, shape: list_of(handle, dtype).stack(element_shape_of(shape), n)


def _gather(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["element_dtype"]
    return lambda handle, indices, shape: list_of(handle, dtype).gather(indices, element_shape_of(shape))


def _scatter(xp: Any, attrs: Attrs) -> Callable[..., TensorList]:
    dtype = attrs["element_dtype"]

    def kernel(tensor: Any, indices: Any, shape: Any, n: Any = _AS_MANY_AS_NEEDED) -> TensorList:
        return TensorList.scattered(tensor, indices, dtype, element_shape_of(shape), _scalar(n, "num_elements"))

    return kernel


def _scatter_into(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda handle, tensor, indices: list_of(handle, dtype).scatter(tensor, indices)


def _concat(xp: Any, attrs: Attrs) -> Callable[[Any], tuple[Any, Any]]:
    dtype, shape = attrs["element_dtype"], attrs["element_shape"]
    return lambda handle: list_of(handle, dtype).concat(shape)


def _concat_v2(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    dtype = attrs["element_dtype"]

    def kernel(handle: Any, shape: Any, leading_dims: Any) -> tuple[Any, Any]:
        dims = np.ravel(leading_dims).tolist()
        if min(dims, default=0) < 0:
            raise InvalidArgumentError(f"leading_dims must not be negative, got {dims}")
        return list_of(handle, dtype).concat(element_shape_of(shape), dims)

    return kernel


def _split(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda tensor, shape, lengths: TensorList.split(tensor, lengths, dtype, element_shape_of(shape))


def _element_shape_of(xp: Any, attrs: Attrs) -> Callable[[Any], Any]:
    out = attrs["shape_type"].numpy

    def kernel(handle: Any) -> Any:
        shape = list_of(handle).element_shape
        return np.array(-1 if shape is None else [-1 if d is None else d for d in shape], out)

    return kernel


def _concat_lists(xp: Any, attrs: Attrs) -> Callable[[Any, Any], Any]:
    dtype = attrs["element_dtype"]

    def one(a: Any, b: Any) -> TensorList:
        return list_of(a, dtype).concat_lists(list_of(b, dtype))

    def kernel(a: Any, b: Any) -> Any:
        if shape_of(a) != shape_of(b):
            raise InvalidArgumentError(
                "Incompatible input TensorList tensor shapes: "
                f"{shapes.show(shape_of(a))} vs. {shapes.show(shape_of(b))}"
            )
        return np.frompyfunc(one, 2, 1)(a, b) if shape_of(a) else one(a, b)

    return kernel


# *** gradients ***


def _row_shape(b: Builder, x: Tensor) -> Tensor:
    """The shape of the rows of `x`."""
    out: Tensor = b.StridedSlice(b.Shape(x), [1], [0], [1], end_mask=1)
    return out


def _length(b: Builder, n: GradNode) -> Tensor:
    out: Tensor = b.TensorListLength(n.input_handle)
    return out


def _push_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return list(b.TensorListPopBack(dlist, b.Shape(n.tensor), element_dtype=n.attrs["element_dtype"]))


def _pop_grad(b: Builder, n: GradNode, dlist: Tensor | None, dtensor: Tensor | None) -> list[Tensor | None]:
    if dlist is None:
        dlist = b.ZerosLike(n.output_handle)
    if dtensor is None:
        dtensor = b.ZerosLike(n.tensor)
    return [b.TensorListPushBack(dlist, dtensor), None]


def _from_tensor_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return [b.TensorListStack(dlist, _row_shape(b, n.tensor), element_dtype=n.attrs["element_dtype"]), None]


def _stack_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    return [b.TensorListFromTensor(dy, _row_shape(b, dy)), None]


def _get_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    return [b.TensorListSetItem(b.ZerosLike(n.input_handle), n.index, dy), None, None]


def _set_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    rest = b.TensorListSetItem(dlist, n.index, b.ZerosLike(n.item))
    if n.attrs["resize_if_index_out_of_bounds"]:
        rest = b.TensorListResize(rest, _length(b, n))
    item = b.TensorListGetItem(dlist, n.index, b.Shape(n.item), element_dtype=n.attrs["element_dtype"])
    return [rest, None, item]


def _gather_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    summed = b.UnsortedSegmentSum(dy, n.indices, _length(b, n))  # an index may come several times
    return [b.TensorListFromTensor(summed, _shape_of_elements(b, n)), None, None]


def _scatter_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return [_gathered(b, n, dlist), *[None] * (len(n.inputs) - 1)]


def _scatter_into_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    rest = b.TensorListScatterIntoExistingList(dlist, b.ZerosLike(n.tensor), n.indices)
    return [b.TensorListResize(rest, _length(b, n)), _gathered(b, n, dlist), None]


def _gathered(b: Builder, n: GradNode, dlist: Tensor) -> Tensor:
    out: Tensor = b.TensorListGather(dlist, n.indices, _row_shape(b, n.tensor), element_dtype=n.attrs["element_dtype"])
    return out


def _shape_of_elements(b: Builder, n: GradNode) -> Tensor:
    out: Tensor = b.TensorListElementShape(n.input_handle, shape_type=dtypes.int32)
    return out


def _concat_grad(b: Builder, n: GradNode, dy: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    none: list[Tensor | None] = [None] * (len(n.inputs) - 1)
    if dy is None:
        return [None, *none]
    return [b.TensorListSplit(dy, _shape_of_elements(b, n), n.lengths), *none]


def _split_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    shape = b.ConcatV2([[-1], _row_shape(b, n.tensor)], 0)
    dy, _ = b.TensorListConcatV2(dlist, shape, n.lengths, element_dtype=n.attrs["element_dtype"])
    return [dy, None, None]


def _resize_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return [b.TensorListResize(dlist, _length(b, n)), None]


# *** records ***

op(
    "EmptyTensorList",
    "element_shape: shape_type, max_num_elements: int32",
    "handle: variant",
    _SHAPED,
    shape=_new_list(0),
    kernel=_empty,
    grad=NOT_DIFFERENTIABLE,
    doc="A list without elements, which may grow to `max_num_elements` (-1: any number).",
)
op(
    "TensorListReserve",
    "element_shape: shape_type, num_elements: int32",
    "handle: variant",
    _SHAPED,
    shape=_new_list(0),
    kernel=_reserve,
    grad=NOT_DIFFERENTIABLE,
    doc="A list of `num_elements` uninitialized elements, which read as zeros.",
)
op(
    "TensorListFromTensor",
    "tensor: element_dtype, element_shape: shape_type",
    "output_handle: variant",
    _SHAPED,
    shape=_from_tensor_shape,
    kernel=_from_tensor,
    grad=_from_tensor_grad,
    jvp=linear("tensor"),
    doc="The list of the rows of `tensor`.",
)
op(
    "TensorListPushBack",
    "input_handle: variant, tensor: element_dtype",
    "output_handle: variant",
    _ELEMENT,
    shape=_keeps_list,
    kernel=_push,
    grad=_push_grad,
    jvp=linear("input_handle", "tensor"),
    doc="The list with `tensor` after its end.",
)
op(
    "TensorListPushBackBatch",
    "input_handles: variant, tensor: element_dtype",
    "output_handles: variant",
    _ELEMENT,
    shape=lambda c: [shapes.with_rank(c.shapes[0], 1)],
    kernel=_push_batch,
    grad=missing("a vector of lists has no gradient yet; push to each list by itself"),
    jvp=linear("input_handles", "tensor"),
    doc="Each of a vector of lists with one row of `tensor` after its end.",
)
op(
    "TensorListPopBack",
    "input_handle: variant, element_shape: int32",
    "output_handle: variant, tensor: element_dtype",
    _ELEMENT,
    shape=_pop_shape,
    kernel=_pop,
    grad=_pop_grad,
    jvp=linear("input_handle"),
    doc="The list without its last element, and that element.",
)
op(
    "TensorListGetItem",
    "input_handle: variant, index: int32, element_shape: Tshape",
    "item: element_dtype",
    {"element_dtype": type_attr(), "Tshape": type_attr(INDEX, dtypes.int32)},
    shape=_get_shape,
    kernel=_get,
    grad=_get_grad,
    jvp=linear("input_handle"),
    doc="The element at `index`.",
)
op(
    "TensorListSetItem",
    "input_handle: variant, index: int32, item: element_dtype",
    "output_handle: variant",
    {"element_dtype": type_attr(), "resize_if_index_out_of_bounds": False},
    shape=_set_shape,
    kernel=_set,
    grad=_set_grad,
    jvp=linear("input_handle", "item"),
    doc="The list with `item` at `index`.",
)
op(
    "TensorListLength",
    "input_handle: variant",
    "length: int32",
    shape=lambda c: [()],
    kernel=lambda xp, attrs: lambda handle: np.int32(list_of(handle).length()),
    grad=NOT_DIFFERENTIABLE,
    doc="The number of elements.",
)
op(
    "TensorListStack",
    "input_handle: variant, element_shape: int32",
    "tensor: element_dtype",
    {"element_dtype": type_attr(), "num_elements": int_attr(-1)},
    shape=_stack_shape,
    kernel=_stack,
    grad=_stack_grad,
    jvp=linear("input_handle"),
    doc="All elements as the rows of one tensor.",
)
op(
    "TensorListGather",
    "input_handle: variant, indices: int32, element_shape: int32",
    "values: element_dtype",
    _ELEMENT,
    shape=_gather_shape,
    kernel=_gather,
    grad=_gather_grad,
    jvp=linear("input_handle"),
    doc="The elements at `indices` as the rows of one tensor.",
)
op(
    "TensorListScatter",
    "tensor: element_dtype, indices: int32, element_shape: shape_type",
    "output_handle: variant",
    _SHAPED,
    shape=_new_list(2),
    kernel=_scatter,
    grad=_scatter_grad,
    jvp=linear("tensor"),
    doc="A list with the rows of `tensor` at `indices`.",
)
op(
    "TensorListScatterV2",
    "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32",
    "output_handle: variant",
    _SHAPED,
    shape=_new_list(2),
    kernel=_scatter,
    grad=_scatter_grad,
    jvp=linear("tensor"),
    doc="A list of `num_elements` elements (-1: as many as needed) with the rows of `tensor` at `indices`.",
)
op(
    "TensorListScatterIntoExistingList",
    "input_handle: variant, tensor: element_dtype, indices: int32",
    "output_handle: variant",
    _ELEMENT,
    shape=_keeps_list,
    kernel=_scatter_into,
    grad=_scatter_into_grad,
    jvp=linear("input_handle", "tensor"),
    doc="The list with the rows of `tensor` at `indices`.",
)
op(
    "TensorListConcat",
    "input_handle: variant",
    "tensor: element_dtype, lengths: int64",
    {"element_dtype": type_attr(), "element_shape": shape_attr(None)},
    shape=_concat_shape,
    kernel=_concat,
    grad=_concat_grad,
    jvp=linear("input_handle"),
    doc="All elements, one after the other along their first dimension, and the length of each.",
)
op(
    "TensorListConcatV2",
    "input_handle: variant, element_shape: shape_type, leading_dims: int64",
    "tensor: element_dtype, lengths: int64",
    _SHAPED,
    shape=_concat_shape,
    kernel=_concat_v2,
    grad=_concat_grad,
    jvp=linear("input_handle"),
    doc="All elements, one after the other; `leading_dims` are the lengths of uninitialized ones.",
)
op(
    "TensorListSplit",
    "tensor: element_dtype, element_shape: shape_type, lengths: int64",
    "output_handle: variant",
    _SHAPED,
    shape=_split_shape,
    kernel=_split,
    grad=_split_grad,
    jvp=linear("tensor"),
    doc="The list of consecutive pieces of `tensor`, of the given lengths.",
)
op(
    "TensorListResize",
    "input_handle: variant, size: int32",
    "output_handle: variant",
    shape=_keeps_list,
    kernel=lambda xp, attrs: lambda handle, size: list_of(handle).resized(_scalar(size, "size")),
    grad=_resize_grad,
    jvp=linear("input_handle"),
    doc="The list with its first `size` elements, and uninitialized ones if it had fewer.",
)
op(
    "TensorListElementShape",
    "input_handle: variant",
    "element_shape: shape_type",
    {"shape_type": INDEX},
    shape=_element_shape_shape,
    kernel=_element_shape_of,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    shape_value=_element_shape_value,
    doc="The shape that all elements fit, as a vector with -1 for unknown dimensions, or the scalar -1.",
)
op(
    "TensorListConcatLists",
    "input_a: variant, input_b: variant",
    "output: variant",
    _ELEMENT,
    shape=lambda c: [shapes.merge(c.shapes[0], c.shapes[1])],
    kernel=_concat_lists,
    grad=missing("concatenated lists have no gradient yet; push the elements, or concatenate the stacked tensors"),
    jvp=linear("input_a", "input_b"),
    doc="The elements of one list, then those of another.",
)
