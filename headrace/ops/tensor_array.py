"""Tensor arrays of imported graphs: write-once arrays as resources of the step, and their gradients.

Source: TensorFlow's TensorArrayV3 family. The *flow* is a scalar that carries no information: it is passed from op to
op so that they run in order. `hr.TensorArray` does not use these ops; it builds tensor lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, missing, op, shape_attr, string_attr, type_attr
from headrace.ir.rules import nothing
from headrace.resources.manager import Handle, resource_of
from headrace.resources.tensor_array import TensorArray
from headrace.resources.values import shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor
    from headrace.ir.kernel import KernelContext
    from headrace.ir.opdef import GradNode

_CONTAINER = "_tensor_arrays"
_EFFECT = Facts(effect="step", writes=True)


def _array(handle: Any, dtype: DType) -> TensorArray:
    """The array, which must hold elements of `dtype`."""
    array = resource_of(handle, TensorArray)
    if array.dtype != dtype:
        raise InvalidArgumentError(
            f"TensorArray {array.name}: TensorArray dtype is {array.dtype.name} but Op requested dtype {dtype.name}."
        )
    return array


def _index(value: Any) -> int:
    if shape_of(value):
        raise InvalidArgumentError(f"TensorArray index must be scalar, but had shape: {shapes.show(shape_of(value))}")
    return int(value)


# *** making ***


def _make(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], tuple[Handle, Any]]:
    def kernel(size: Any) -> tuple[Handle, Any]:
        if shape_of(size):
            raise InvalidArgumentError(f"TensorArray size must be scalar, but had shape: {shapes.show(shape_of(size))}")
        resources = ctx.step.resources
        name = resources.unique_name(attrs["tensor_array_name"] or ctx.node)
        array = TensorArray(
            name,
            attrs["dtype"],
            int(size),
            element_shape=attrs["element_shape"],
            dynamic_size=attrs["dynamic_size"],
            clear_after_read=attrs["clear_after_read"],
            identical_element_shapes=attrs["identical_element_shapes"],
        )
        resources.create(_CONTAINER, TensorArray, name, array)
        return Handle(_CONTAINER, name, array, array.dtype, array.element_shape), np.float32(0)

    return kernel


def _make_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    c.set_handle(0, c.attrs["dtype"], c.attrs["element_shape"])
    return [(), ()]


def _grad(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., tuple[Handle, Any]]:
    source = attrs["source"]

    def kernel(handle: Any, flow: Any, prefix: Any = None) -> tuple[Handle, Any]:
        dims = None
        if prefix is not None:
            if prefix.ndim != 1 or (prefix.size and prefix.min() < 0):
                raise InvalidArgumentError(
                    f"shape_to_prepend must be a vector of dimensions at least 0, got {prefix.tolist()}"
                )
            dims = tuple(prefix.tolist())
        array = resource_of(handle, TensorArray).grad(source, dims)
        return Handle(handle.container, array.name, array, array.dtype, array.element_shape), np.float32(0)

    return kernel


def _grad_shape(c: Inference) -> Sequence[Shape]:
    known = c.handle(0)
    if known is not None:
        prefix = c.shape_value(2) if len(c.shapes) > 2 else ()
        c.set_handle(0, known[0], shapes.concatenate(prefix, known[1]))
    return [(), ()]


# *** reading and writing ***


def _read(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["dtype"]
    return lambda handle, index, flow: _array(handle, dtype).read(_index(index))


def _write(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any, Any], Any]:
    dtype = attrs["T"]

    def kernel(handle: Any, index: Any, value: Any, flow: Any) -> Any:
        _array(handle, dtype).write(_index(index), value)
        return flow

    return kernel


def _gather(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype, shape = attrs["dtype"], attrs["element_shape"]
    return lambda handle, indices, flow: _array(handle, dtype).gather(indices, shape)


def _scatter(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any, Any], Any]:
    dtype = attrs["T"]

    def kernel(handle: Any, indices: Any, value: Any, flow: Any) -> Any:
        _array(handle, dtype).scatter(indices, value)
        return flow

    return kernel


def _concat(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    dtype, shape = attrs["dtype"], attrs["element_shape_except0"]
    return lambda handle, flow: _array(handle, dtype).concat(shape)


def _split(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any, Any], Any]:
    dtype = attrs["T"]

    def kernel(handle: Any, value: Any, lengths: Any, flow: Any) -> Any:
        _array(handle, dtype).split(value, lengths)
        return flow

    return kernel


def _element(c: Inference) -> Shape:
    """What is known of the shape of the elements."""
    known = c.handle(0)
    return None if known is None else known[1]


def _merged(element: Shape, given: Shape) -> Shape:
    """What both say; `element` where they contradict, as that is an error only when the elements are read."""
    return shapes.merge(element, given) if shapes.compatible(element, given) else element


def _read_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [_element(c)]


def _write_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    shapes.merge(_element(c), c.shapes[2])
    return [()]


def _gather_shape(c: Inference) -> Sequence[Shape]:
    element = _merged(_element(c), c.attrs["element_shape"])
    return [shapes.concatenate(shapes.with_rank(c.shapes[1], 1), element)]


def _scatter_shape(c: Inference) -> Sequence[Shape]:
    value = shapes.with_rank_at_least(c.shapes[2], 1)
    (n,) = shapes.with_rank(c.shapes[1], 1)
    if value is not None:
        shapes.merge_dim(n, value[0])
        shapes.merge(_element(c), value[1:])
    return [()]


def _concat_shape(c: Inference) -> Sequence[Shape]:
    rest = c.attrs["element_shape_except0"]
    element = _element(c)
    if element == ():
        return [None, (None,)]
    return [shapes.concatenate((None,), _merged(None if element is None else element[1:], rest)), (None,)]


def _split_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_least(c.shapes[1], 1)
    shapes.with_rank(c.shapes[2], 1)
    return [()]


_NO_TANGENT = missing(
    "it changes an array in place, and tangents would need an array beside that. Make it with hr.TensorArray, whose "
    "arrays are values"
)

# *** gradients: what was read is written to the gradient array, and the other way round ***


def _grad_array(b: Builder, n: GradNode, flow: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient array of `n.handle` for this gradient computation, and the flow to go on with.

    `flow` must come after everything that makes the forward array longer.

    Raises:
      LookupError: it is a gradient array itself, which has none.
    """
    if n.handle.op.type.startswith("TensorArrayGrad"):
        made = f", made at {n.op.source}" if n.op.source is not None else ""
        raise LookupError(
            f"operation '{n.op.name}' ({n.op.type}{made}) has no gradient: what it works on is the gradient of a "
            "TensorArrayV3, which has none. Make the array with hr.TensorArray, which has derivatives of all orders"
        )
    handle, _ = b.TensorArrayGradV3(n.handle, flow, source=_source(b))
    return handle, b.after(handle).Identity(flow)


def _source(b: Builder) -> str:
    """A name that differs between gradient computations: that of the scope in which this one builds."""
    parts = b.scope.rstrip("/").split("/")
    for i, part in enumerate(parts):
        if part.startswith("gradients"):
            return "/".join(parts[: i + 1])
    return b.scope.rstrip("/") or "gradients"


def _read_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, n.flow_in)
    return [None, None, b.TensorArrayWriteV3(handle, n.index, dy, flow)]


def _write_grad(b: Builder, n: GradNode, dflow: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, dflow)
    return [None, None, b.TensorArrayReadV3(handle, n.index, flow, dtype=n.attrs["T"]), dflow]


def _gather_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, n.flow_in)
    return [None, None, b.TensorArrayScatterV3(handle, n.indices, dy, flow)]


def _scatter_grad(b: Builder, n: GradNode, dflow: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, dflow)
    shape = None if n.value.shape is None else n.value.shape[1:]
    dvalue = b.TensorArrayGatherV3(handle, n.indices, flow, dtype=n.attrs["T"], element_shape=shape)
    return [None, None, dvalue, dflow]


def _concat_grad(b: Builder, n: GradNode, dy: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    if dy is None:
        return [None, None]
    handle, flow = _grad_array(b, n, n.flow_in)
    return [None, b.TensorArraySplitV3(handle, dy, n.lengths, flow)]


def _split_grad(b: Builder, n: GradNode, dflow: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, dflow)
    shape = None if n.value.shape is None else n.value.shape[1:]
    dvalue, _ = b.TensorArrayConcatV3(handle, flow, dtype=n.attrs["T"], element_shape_except0=shape)
    return [None, dvalue, None, dflow]


op(
    "TensorArrayV3",
    "size: int32",
    "handle: resource, flow: float32",
    {
        "dtype": type_attr(),
        "element_shape": shape_attr(None),
        "dynamic_size": False,
        "clear_after_read": True,
        "identical_element_shapes": False,
        "tensor_array_name": "",
    },
    shape=_make_shape,
    stateful=_make,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="A new array of `size` tensors that are not written yet.",
)
op(
    "TensorArrayGradV3",
    "handle: resource, flow_in: float32",
    "grad_handle: resource, flow_out: float32",
    {"source": string_attr()},
    shape=_grad_shape,
    stateful=_grad,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The array's gradient array for `source`; the same one each time. The array does not grow any more.",
)
op(
    "TensorArrayGradWithShape",
    "handle: resource, flow_in: float32, shape_to_prepend: int32",
    "grad_handle: resource, flow_out: float32",
    {"source": string_attr()},
    shape=_grad_shape,
    stateful=_grad,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The array's gradient array for `source`, whose elements have further dimensions in front.",
)
op(
    "TensorArrayWriteV3",
    "handle: resource, index: int32, value: T, flow_in: float32",
    "flow_out: float32",
    {"T": type_attr()},
    shape=_write_shape,
    stateful=_write,
    grad=_write_grad,
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="Writes `value` at `index`.",
)
op(
    "TensorArrayReadV3",
    "handle: resource, index: int32, flow_in: float32",
    "value: dtype",
    {"dtype": type_attr()},
    shape=_read_shape,
    stateful=_read,
    grad=_read_grad,
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="The element at `index`.",
)
op(
    "TensorArrayGatherV3",
    "handle: resource, indices: int32, flow_in: float32",
    "value: dtype",
    {"dtype": type_attr(), "element_shape": shape_attr(None)},
    shape=_gather_shape,
    stateful=_gather,
    grad=_gather_grad,
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="The elements at `indices`, stacked.",
)
op(
    "TensorArrayScatterV3",
    "handle: resource, indices: int32, value: T, flow_in: float32",
    "flow_out: float32",
    {"T": type_attr()},
    shape=_scatter_shape,
    stateful=_scatter,
    grad=_scatter_grad,
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="Writes the rows of `value` at `indices`.",
)
op(
    "TensorArrayConcatV3",
    "handle: resource, flow_in: float32",
    "value: dtype, lengths: int64",
    {"dtype": type_attr(), "element_shape_except0": shape_attr(None)},
    shape=_concat_shape,
    stateful=_concat,
    grad=_concat_grad,
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="All elements, one after the other along their first dimension, and the length of each.",
)
op(
    "TensorArraySplitV3",
    "handle: resource, value: T, lengths: int64, flow_in: float32",
    "flow_out: float32",
    {"T": type_attr()},
    shape=_split_shape,
    stateful=_split,
    grad=_split_grad,
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="Writes consecutive pieces of `value`, of the given lengths.",
)
op(
    "TensorArraySizeV3",
    "handle: resource, flow_in: float32",
    "size: int32",
    shape=lambda c: [()],
    stateful=lambda ctx, attrs: lambda handle, flow: np.int32(resource_of(handle, TensorArray).size()),
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The number of elements.",
)
op(
    "TensorArrayCloseV3",
    "handle: resource",
    "",
    shape=nothing,
    stateful=lambda ctx, attrs: lambda handle: resource_of(handle, TensorArray).close(),
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Drops the elements; every later use fails.",
)
