"""Shape rules and gradients of tensor lists, for the records of list ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes, shapes
from headrace.dtypes import INDEX
from headrace.ir.infer import Inference
from headrace.ir.notes import RemovedElements
from headrace.ir.opdef import type_attr
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Tensor

ELEMENT: Final = {"element_dtype": type_attr()}
SHAPED: Final = {"element_dtype": type_attr(), "shape_type": INDEX}
MARKS: Final = ("_TensorArrayMarkRead", "_TensorArrayMarkWritten")  # checks that accesses of a tensor array wait for

# *** shape rules ***


def element_shape_input(c: Inference, i: int) -> Shape:
    """Returns the known part of the element shape in input `i`."""
    v = c.value(i)
    if v is not None:
        if v.ndim == 0 and v != -1:
            raise ValueError(f"The only valid scalar shape tensor is the fully unknown shape specified as -1, got {v}.")
        return None if v.ndim == 0 else c.shape_value(i)
    given = shapes.with_rank_at_most(c.shapes[i], 1)
    return c.shape_value(i) if given is not None and len(given) == 1 else None


def held(c: Inference, given: Shape = None) -> Shape:
    """Returns the known part of the element shape of the list in input 0.

    Args:
      c: the inference.
      given: a shape of the elements that the op states, or None.

    Raises:
      ValueError: the list has another element dtype, or the shapes contradict each other.
    """
    shapes.with_rank(c.shapes[0], 0)
    known = c.handle(0)
    if known is None:
        return given
    dtype = c.attrs.get("element_dtype")
    if dtype is not None and known[0] != dtype:
        raise ValueError(f"Expected list with element dtype {dtype.name} but got list with {known[0].name}")
    return shapes.merge(known[1], given)


def new_list(shape_at: int) -> Callable[[Inference], Sequence[Shape]]:
    """Returns the rule of an op that creates a list.

    Args:
      shape_at: the number of the input with the shape of the elements.
    """

    def rule(c: Inference) -> Sequence[Shape]:
        c.set_handle(0, c.attrs["element_dtype"], element_shape_input(c, shape_at))
        return [()]

    return rule


def same_list(c: Inference) -> None:
    """States that output 0 is a list with elements like those of input 0."""
    known = c.handle(0)
    if known is not None:
        c.set_handle(0, *known)


def keeps_list(c: Inference) -> Sequence[Shape]:
    """Infers the shape of an op that returns a changed list of input 0."""
    held(c)
    same_list(c)
    return [()]


# *** gradients ***
#
# An element that a list does not have yet, or no longer has, has no gradient: the list of gradients is uninitialized
# there. Such an element means zeros of a shape that the reader determines, as `ZerosLike` of a list does.


def row_shape(b: Builder, x: Tensor) -> Tensor:
    """Returns the shape of the rows of `x`: a constant if it is known."""
    known = None if x.shape is None else x.shape[1:]
    if known is not None and shapes.is_full(known):
        return b.const(known, dtypes.int32)
    out: Tensor = b.StridedSlice(b.Shape(x), [1], [0], [1], end_mask=1)
    return out


def length(b: Builder, n: GradNode) -> Tensor:
    """Returns the length of the list that an operation received."""
    out: Tensor = b.TensorListLength(n.input_handle)
    return out


def without(b: Builder, n: GradNode, dlist: Tensor, indices: Tensor) -> Tensor:
    """Returns `dlist` without elements at `indices`.

    `dlist` is the gradient of a list whose elements at `indices` were overwritten.
    """
    known = n.input_handle.handle
    out: Tensor
    if indices.shape == () and known is not None and known[0] not in dtypes.OBJECT and shapes.is_full(known[1]):
        # all elements have one shape: zeros by TensorFlow's ops (a view of one number, without storage)
        zeros = b.BroadcastTo(b.const(0, known[0]), b.const(known[1], dtypes.int32))
        out = b.TensorListSetItem(dlist, indices, zeros)
    else:
        item = n.item if indices.shape == () else None
        notes = []
        if item is not None and shapes.is_full(item.static_shape):
            notes = [RemovedElements(item.dtype.base, item.static_shape)]
        out = b.make("_TensorListUnset", (dlist, indices), {}, notes=notes)
    return out


def of_element(b: Builder, x: Tensor, got: Tensor) -> Tensor:
    """Returns the gradient with respect to `x`, which became an element of a list.

    Args:
      b: the builder.
      x: the element.
      got: the element at its place in the gradient of the list, which may be empty if `x` is a list itself.
    """
    return b.AddN([got, b.ZerosLike(x)]) if x.dtype.base is dtypes.variant else got
