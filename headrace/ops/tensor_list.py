"""Tensor lists: immutable lists of tensors as values of dtype variant.

Accumulators of loops and `hr.TensorArray` are tensor lists.

Source: TensorFlow's TensorList* ops. Push and pop are each other's gradient. `resources.tensor_list` defines a list;
`ops.tensor_list_rows` has the ops that convert tensors to lists and lists to tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, flags, shapes
from headrace.dtypes import INDEX
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.ir.infer import Inference
from headrace.ir.kernel import CPU, override
from headrace.ir.notes import NO_NOTES, CountedResidual, JoinedElementShapes, Notes, ResidualPush
from headrace.ir.op_roles import ListRole
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, type_attr
from headrace.opkit import batch_lists
from headrace.opkit.arrays import dims
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, integers
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
    same_list,
    without,
)
from headrace.resources.element_shapes import element_shape_of
from headrace.resources.tensor_list import TensorList, list_of
from headrace.resources.values import arrays_of, int_of, shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradEntry, GradNode
    from headrace.ir.graph import Tensor
    from headrace.ir.kernel import KernelContext

Attrs = Mapping[str, Any]


def _check_fits(element: Any, wanted: Shape) -> None:
    """Checks an element's shape against the op's `element_shape`, on which shape inference relied."""
    shape = shape_of(element)
    if shape != wanted and not shapes.fits(shape, wanted):
        raise InvalidArgumentError(
            f"Incompatible shapes during merge: the list's element has shape {shapes.show(shape)}, "
            f"but element_shape is {shapes.show(wanted)}"
        )


# *** shape rules ***


def _set_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    held(c, c.shapes[2])
    return keeps_list(c)


def _pop_shape(c: Inference) -> Sequence[Shape]:
    same_list(c)
    element, given = held(c), element_shape_input(c, 1)
    # a contradiction is an error only when the list is popped
    return [(), shapes.merge(element, given) if shapes.compatible(element, given) else element]


def _get_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [held(c, element_shape_input(c, 2))]


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
        n = int_of(max_num_elements, "max_num_elements")
        return TensorList(dtype, element_shape_of(element_shape), max_num_elements=None if n == -1 else n)

    return kernel


def _reserve(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda shape, n: TensorList.reserve(dtype, element_shape_of(shape), int_of(n, "num_elements"))


def _push(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    dtype = attrs["element_dtype"]
    return lambda handle, tensor: list_of(handle, dtype).push(tensor)


def _push_residual(xp: Any, attrs: Attrs, notes: Notes) -> Callable[[Any, Any], TensorList]:
    """The push of a residual, within the limit of an accumulator's size."""
    dtype, of, limit = attrs["element_dtype"], notes[ResidualPush].of, flags.accumulator_limit()

    def counted(handle: Any, tensor: Any) -> TensorList:
        before = list_of(handle, dtype)
        after = before.push_counted(tensor, limit)
        if after is None:
            raise ResourceExhaustedError(
                f"the gradient of a loop keeps more than {limit:,} bytes of {of}: "
                f"{before.length()} values of {before.nbytes:,} bytes so far. Keep fewer residuals "
                "(while_loop(..., save=hr.recompute('sqrt'))), or raise HEADRACE_ACCUMULATOR_LIMIT"
            )
        return after

    return counted


def _push_counted(ctx: KernelContext, attrs: Attrs, notes: Notes) -> Callable[[Any, Any], TensorList]:
    """The push of a residual on a device with a memory limit."""
    dtype, note = attrs["element_dtype"], notes[ResidualPush]

    def kernel(handle: Any, tensor: Any) -> TensorList:
        use = ctx.step.memory
        return list_of(handle, dtype).push(tensor if use is None else use.save(tensor, note.of, note.may_swap))

    return kernel


override("TensorListPushBack", CPU, notes=[ResidualPush], xp=True)(_push_residual)
override("TensorListPushBack", CPU, form="stateful", notes=[ResidualPush, CountedResidual])(_push_counted)


def _push_batch(xp: Any, attrs: Attrs) -> Callable[[Any, Any], Any]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)

    def kernel(handles: Any, tensor: Any) -> Any:
        if len(shape_of(handles)) != 1:
            raise InvalidArgumentError(
                f"Expected input_handles to be a vector, but saw shape: {shapes.show(shape_of(handles))}"
            )
        if not shape_of(tensor):
            raise InvalidArgumentError("Expected tensor to be at least a vector, but saw shape: []")
        if tensor.shape[0] != len(handles):
            raise InvalidArgumentError(
                f"Expected tensor.shape[0] == input_handles.size, but saw {tensor.shape[0]} vs. {len(handles)}"
            )
        out = np.empty(len(handles), object)
        for i, (handle, row) in enumerate(zip(handles, arrays.rows(tensor, dtype), strict=True)):
            out[i] = list_of(handle, dtype).push(row)
        return out

    return kernel


def _pop(xp: Any, attrs: Attrs) -> Callable[[Any, Any], tuple[TensorList, Any]]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)

    def kernel(handle: Any, element_shape: Any) -> tuple[TensorList, Any]:
        shape = element_shape_of(element_shape)
        rest, element = list_of(handle, dtype).pop(shape, arrays)
        _check_fits(element, shape)
        return rest, element

    return kernel


def _pop_batch(xp: Any, attrs: Attrs) -> Callable[[Any, Any], tuple[Any, Any]]:
    pop, dtype, arrays = _pop(xp, attrs), attrs["element_dtype"], arrays_of(xp)

    def kernel(handles: Any, element_shape: Any) -> tuple[Any, Any]:
        rest, out = np.empty(len(handles), object), [None] * len(handles)
        for i, handle in enumerate(handles):
            rest[i], out[i] = pop(handle, element_shape)
        return rest, arrays.stack(out, dtype, shape_of(out[0]) if out else dims(element_shape))

    return kernel


def _get(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], Any]:
    dtype, arrays = attrs["element_dtype"], arrays_of(xp)

    def kernel(handle: Any, index: Any, element_shape: Any) -> Any:
        shape = element_shape_of(element_shape)
        element = list_of(handle, dtype).get(int_of(index, "index"), shape, arrays)
        _check_fits(element, shape)
        return element

    return kernel


def _set(xp: Any, attrs: Attrs) -> Callable[[Any, Any, Any], TensorList]:
    dtype, resize = attrs["element_dtype"], attrs["resize_if_index_out_of_bounds"]
    return lambda handle, index, item: list_of(handle, dtype).set(int_of(index, "index"), item, resize)


def _unset(xp: Any, attrs: Attrs) -> Callable[[Any, Any], TensorList]:
    return lambda handle, indices: list_of(handle).unset(integers(indices))


def _element_shape_of(xp: Any, attrs: Attrs) -> Callable[[Any], Any]:
    out = attrs["shape_type"]

    def kernel(handle: Any) -> Any:
        shape = list_of(handle).element_shape
        return constant(xp, -1 if shape is None else [-1 if d is None else d for d in shape], out)

    return kernel


def _length(xp: Any, attrs: Attrs) -> Callable[[Any], Any]:
    if xp is np:
        return lambda handle: np.int32(list_of(handle).length())
    return lambda handle: constant(xp, list_of(handle).length(), dtypes.int32)


def _concat_lists(xp: Any, attrs: Attrs, notes: Notes = NO_NOTES) -> Callable[[Any, Any], Any]:
    dtype, join_shapes = attrs["element_dtype"], JoinedElementShapes in notes

    def one(a: Any, b: Any) -> TensorList:
        return list_of(a, dtype).concat_lists(list_of(b, dtype), join_shapes)

    def kernel(a: Any, b: Any) -> Any:
        if shape_of(a) != shape_of(b):
            raise InvalidArgumentError(
                "Incompatible input TensorList tensor shapes: "
                f"{shapes.show(shape_of(a))} vs. {shapes.show(shape_of(b))}"
            )
        return np.frompyfunc(one, 2, 1)(a, b) if shape_of(a) else one(a, b)

    return kernel


override("TensorListConcatLists", CPU, notes=[JoinedElementShapes], xp=True)(_concat_lists)


def _split_lists(xp: Any, attrs: Attrs) -> Callable[[Any, Any], tuple[Any, Any]]:
    def one(both: Any, first: Any) -> tuple[TensorList, TensorList]:
        return list_of(both).split_at(list_of(first).length())

    return lambda both, first: np.frompyfunc(one, 2, 2)(both, first) if shape_of(both) else one(both, first)


# *** gradients ***


def _push_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[GradEntry]:
    rest, item = b.TensorListPopBack(dlist, b.Shape(n.tensor), element_dtype=n.attrs["element_dtype"])
    return [rest, lambda: of_element(b, n.tensor, item)]


def _pop_grad(b: Builder, n: GradNode, dlist: Tensor | None, dtensor: Tensor | None) -> list[Tensor | None]:
    if dlist is None:
        dlist = b.ZerosLike(n.output_handle)
    if dtensor is None:
        dtensor = b.ZerosLike(n.tensor)
    return [b.TensorListPushBack(dlist, dtensor), None]


def _get_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    return [b.TensorListSetItem(b.ZerosLike(n.input_handle), n.index, dy), None, None]


def _set_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[GradEntry]:
    def by_list() -> Tensor:
        rest = without(b, n, dlist, n.index)
        out: Tensor = b.TensorListResize(rest, length(b, n)) if n.attrs["resize_if_index_out_of_bounds"] else rest
        return out

    def by_item() -> Tensor:
        item = b.TensorListGetItem(dlist, n.index, b.Shape(n.item), element_dtype=n.attrs["element_dtype"])
        return of_element(b, n.item, item)

    return [by_list, None, by_item]


def _resize_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return [b.TensorListResize(dlist, length(b, n)), None]


def _push_batch_grad(b: Builder, n: GradNode, dlists: Tensor) -> list[Tensor | None]:
    attrs = {"element_dtype": n.attrs["element_dtype"]}
    return list(b.make("_TensorListPopBackBatch", (dlists, row_shape(b, n.tensor)), attrs))


def _pop_batch_grad(b: Builder, n: GradNode, dlists: Tensor, drows: Tensor) -> list[Tensor | None]:
    return [b.TensorListPushBackBatch(dlists, drows), None]


def _concat_lists_grad(b: Builder, n: GradNode, dlist: Tensor) -> list[Tensor | None]:
    return list(
        b.make("_TensorListSplit", (dlist, b.ZerosLike(n.input_a)), {"element_dtype": n.attrs["element_dtype"]})
    )


def _split_lists_grad(b: Builder, n: GradNode, da: Tensor, db: Tensor) -> list[Tensor | None]:
    # one list may have a more specific element shape than the other
    attrs = {"element_dtype": n.attrs["element_dtype"]}
    return [b.make("TensorListConcatLists", (da, db), attrs, notes=[JoinedElementShapes()]), None]


# *** records ***

op(
    "EmptyTensorList",
    "element_shape: shape_type, max_num_elements: int32",
    "handle: variant",
    SHAPED,
    shape=new_list(0),
    kernel=_empty,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=batch_lists.new_list,
    facts=Facts(list_role=ListRole("empty")),
    doc="An empty list, which may grow to `max_num_elements` (-1: without limit).",
)
op(
    "TensorListReserve",
    "element_shape: shape_type, num_elements: int32",
    "handle: variant",
    SHAPED,
    shape=new_list(0),
    kernel=_reserve,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=batch_lists.new_list,
    facts=Facts(list_role=ListRole("reserve")),
    doc="A list of `num_elements` uninitialized elements, which read as zeros.",
)
op(
    "TensorListPushBack",
    "input_handle: variant, tensor: element_dtype",
    "output_handle: variant",
    ELEMENT,
    shape=keeps_list,
    kernel=_push,
    xp=True,
    grad=_push_grad,
    jvp=linear("input_handle", "tensor"),
    batch=batch_lists.push,
    facts=Facts(list_role=ListRole("push", element_input=1)),
    doc="The list with `tensor` appended.",
)
op(
    "TensorListPushBackBatch",
    "input_handles: variant, tensor: element_dtype",
    "output_handles: variant",
    ELEMENT,
    shape=lambda c: [shapes.with_rank(c.shapes[0], 1)],
    kernel=_push_batch,
    xp=True,
    grad=_push_batch_grad,
    jvp=linear("input_handles", "tensor"),
    batch=batch_lists.push_batch,
    doc="Each of a vector of lists with one row of `tensor` appended.",
)
op(
    "TensorListPopBack",
    "input_handle: variant, element_shape: int32",
    "output_handle: variant, tensor: element_dtype",
    ELEMENT,
    shape=_pop_shape,
    kernel=_pop,
    xp=True,
    grad=_pop_grad,
    jvp=linear("input_handle"),
    batch=batch_lists.pop,
    facts=Facts(list_role=ListRole("pop", shape_input=1)),
    doc="The list without its last element, and that element.",
)
op(
    "TensorListGetItem",
    "input_handle: variant, index: int32, element_shape: Tshape",
    "item: element_dtype",
    {"element_dtype": type_attr(), "Tshape": type_attr(INDEX, dtypes.int32)},
    shape=_get_shape,
    kernel=_get,
    xp=True,
    grad=_get_grad,
    jvp=linear("input_handle"),
    batch=batch_lists.get,
    facts=Facts(list_role=ListRole("get", shape_input=2)),
    doc="The element at `index`.",
)
op(
    "TensorListSetItem",
    "input_handle: variant, index: int32, item: element_dtype",
    "output_handle: variant",
    {"element_dtype": type_attr(), "resize_if_index_out_of_bounds": False},
    shape=_set_shape,
    kernel=_set,
    xp=True,
    grad=_set_grad,
    jvp=linear("input_handle", "item"),
    batch=batch_lists.put,
    facts=Facts(list_role=ListRole("set", element_input=2)),
    doc="The list with `item` at `index`.",
)
op(
    "TensorListLength",
    "input_handle: variant",
    "length: int32",
    shape=lambda c: [()],
    kernel=_length,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=batch_lists.length_of_list,
    facts=Facts(shape_only=True, list_role=ListRole("length")),
    doc="The number of elements.",
)
op(
    "TensorListResize",
    "input_handle: variant, size: int32",
    "output_handle: variant",
    shape=keeps_list,
    kernel=lambda xp, attrs: lambda handle, size: list_of(handle).resized(int_of(size, "size")),
    xp=True,
    grad=_resize_grad,
    jvp=linear("input_handle"),
    batch=batch_lists.as_it_is,
    facts=Facts(list_role=ListRole("resize")),
    doc="The list truncated, or extended by uninitialized elements, to `size` elements.",
)
op(
    "TensorListElementShape",
    "input_handle: variant",
    "element_shape: shape_type",
    {"shape_type": INDEX},
    shape=_element_shape_shape,
    kernel=_element_shape_of,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=batch_lists.shape_of_element,
    facts=Facts(dynamic_shape=True, shape_only=True),
    shape_value=_element_shape_value,
    doc="The static shape of the elements: a vector with -1 for unknown dimensions, or -1 for unknown rank.",
)
op(
    "TensorListConcatLists",
    "input_a: variant, input_b: variant",
    "output: variant",
    ELEMENT,
    shape=lambda c: [shapes.merge(c.shapes[0], c.shapes[1])],
    kernel=_concat_lists,
    xp=True,
    grad=_concat_lists_grad,
    jvp=linear("input_a", "input_b"),
    batch=batch_lists.as_it_is,
    doc="The concatenation of two lists.",
)


# *** ops of headrace, for gradients ***

op(
    "_TensorListUnset",
    "input_handle: variant, indices: int32",
    "output_handle: variant",
    shape=keeps_list,
    kernel=_unset,
    xp=True,
    grad=lambda b, n, dlist: [b.make("_TensorListUnset", (dlist, n.indices), {}), None],
    jvp=linear("input_handle"),
    batch=batch_lists.as_it_is,
    facts=Facts(list_role=ListRole("unset")),
    doc="The list with the elements at `indices` (a scalar or vector) uninitialized.",
)
op(
    "_TensorListPopBackBatch",
    "input_handles: variant, element_shape: int32",
    "output_handles: variant, tensor: element_dtype",
    ELEMENT,
    shape=lambda c: [
        shapes.with_rank(c.shapes[0], 1),
        shapes.concatenate(shapes.with_rank(c.shapes[0], 1), element_shape_input(c, 1)),
    ],
    kernel=_pop_batch,
    xp=True,
    grad=_pop_batch_grad,
    jvp=linear("input_handles"),
    batch=batch_lists.pop_batch,
    doc="Each of a vector of lists without its last element, and those elements as the rows of a tensor.",
)
op(
    "_TensorListSplit",
    "input: variant, input_a: variant",
    "output_a: variant, output_b: variant",
    ELEMENT,
    shape=lambda c: [shapes.merge(c.shapes[0], c.shapes[1])] * 2,
    kernel=_split_lists,
    xp=True,
    grad=_split_lists_grad,
    jvp=linear("input"),
    batch=batch_lists.as_it_is,
    doc="A list split in two: the first part has the length of another list.",
)
