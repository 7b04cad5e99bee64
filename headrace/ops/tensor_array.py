"""Tensor arrays of imported graphs: write-once arrays as resources of the step, and their gradients.

Source: TensorFlow's TensorArrayV3 family, and its predecessors, whose handles are strings (V2) or references to
strings. The *flow* is a scalar that carries no information: it is passed from op to op so that they run in order.
`hr.TensorArray` does not use these ops; it builds tensor lists.
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
from headrace.opkit.shape_rules import nothing
from headrace.resources.manager import Handle, handle_of, resource_of
from headrace.resources.names import looked_up, name_ref, named
from headrace.resources.tensor_array import TensorArray
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradEntry, GradNode
    from headrace.ir.graph import Tensor
    from headrace.ir.kernel import KernelContext

_CONTAINER = "_tensor_arrays"
_EFFECT = Facts(effect="step", writes=True)


Find = Callable[["KernelContext", Any], TensorArray]  # from a handle


def _by_handle(ctx: KernelContext, handle: Any) -> TensorArray:
    return resource_of(ctx.step, handle, TensorArray)


def _by_text(ctx: KernelContext, handle: Any) -> TensorArray:
    return looked_up(ctx.step.resources, handle, TensorArray)


def _by_name(ctx: KernelContext, ref: Ref) -> TensorArray:
    return named(ctx.step.resources, ref, TensorArray)


def _checked(array: TensorArray, dtype: DType) -> TensorArray:
    """The array, after a check that its elements are of `dtype`."""
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


def _new(ctx: KernelContext, attrs: Mapping[str, Any], size: Any) -> TensorArray:
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
        identical_element_shapes=attrs.get("identical_element_shapes", False),
    )
    made: TensorArray = resources.create(_CONTAINER, TensorArray, name, array)
    return made


def _handed_on(ctx: KernelContext, array: TensorArray) -> tuple[Handle, Any]:
    """Outputs of a V3 op that returns an array: its handle and a flow."""
    dtype, shape = array.dtype, array.element_shape
    return handle_of(ctx.op, _CONTAINER, TensorArray, array.name, dtype, shape, of_step=True), np.float32(0)


def _as_text(ctx: KernelContext, array: TensorArray) -> Any:
    return name_ref(_CONTAINER, array.name).read()


def _as_name(ctx: KernelContext, array: TensorArray) -> Ref:
    return name_ref(_CONTAINER, array.name)


def _make(give: Callable[[KernelContext, TensorArray], Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
        return lambda size: give(ctx, _new(ctx, attrs, size))

    return factory


def _make_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    c.set_handle(0, c.attrs["dtype"], c.attrs["element_shape"])
    return [(), ()]


def _grad(find: Find, give: Callable[[KernelContext, TensorArray], Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        source, resources = attrs["source"], ctx.step.resources

        def kernel(handle: Any, flow: Any, prefix: Any = None) -> Any:
            dims = None
            if prefix is not None:
                if prefix.ndim != 1 or (prefix.size and prefix.min() < 0):
                    raise InvalidArgumentError(
                        f"shape_to_prepend must be a vector of dimensions at least 0, got {prefix.tolist()}"
                    )
                dims = tuple(prefix.tolist())
            array = find(ctx, handle).grad(source, dims)
            resources.lookup_or_create(_CONTAINER, TensorArray, array.name, lambda: array)
            return give(ctx, array)

        return kernel

    return factory


def _grad_shape(c: Inference) -> Sequence[Shape]:
    known = c.handle(0)
    if known is not None:
        prefix = c.shape_value(2) if len(c.shapes) > 2 else ()
        c.set_handle(0, known[0], shapes.concatenate(prefix, known[1]))
    return [(), ()]


# *** reading and writing ***


def _read(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
        dtype = attrs["dtype"]
        return lambda handle, index, flow: _checked(find(ctx, handle), dtype).read(_index(index))

    return factory


def _write(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any, Any], Any]:
        dtype = attrs["T"]

        def kernel(handle: Any, index: Any, value: Any, flow: Any) -> Any:
            _checked(find(ctx, handle), dtype).write(_index(index), value)
            return flow

        return kernel

    return factory


def _gather(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
        dtype, shape = attrs["dtype"], attrs["element_shape"]
        return lambda handle, indices, flow: _checked(find(ctx, handle), dtype).gather(indices, shape)

    return factory


def _pack(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    dtype, shape = attrs["dtype"], attrs["element_shape"]

    def kernel(handle: Any, flow: Any) -> Any:
        array = _checked(_by_name(ctx, handle), dtype)
        return array.gather(np.arange(array.size()), shape)

    return kernel


def _scatter(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any, Any], Any]:
        dtype = attrs["T"]

        def kernel(handle: Any, indices: Any, value: Any, flow: Any) -> Any:
            _checked(find(ctx, handle), dtype).scatter(indices, value)
            return flow

        return kernel

    return factory


def _unpack(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["T"]

    def kernel(handle: Any, value: Any, flow: Any) -> Any:
        array = _checked(_by_name(ctx, handle), dtype)
        n = shape_of(value)[0] if shape_of(value) else 0
        if array.size() > n:
            raise InvalidArgumentError(
                f"Input value must have first dimension equal to the array size ({n} vs. {array.size()})"
            )
        array.scatter(np.arange(n), value)
        return flow

    return kernel


def _concat(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
        dtype, shape = attrs["dtype"], attrs["element_shape_except0"]
        return lambda handle, flow: _checked(find(ctx, handle), dtype).concat(shape)

    return factory


def _split(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any, Any], Any]:
        dtype = attrs["T"]

        def kernel(handle: Any, value: Any, lengths: Any, flow: Any) -> Any:
            _checked(find(ctx, handle), dtype).split(value, lengths)
            return flow

        return kernel

    return factory


def _element(c: Inference) -> Shape:
    """The static shape of the elements."""
    known = c.handle(0)
    return None if known is None else known[1]


def _merged(element: Shape, given: Shape) -> Shape:
    """The merged static shapes; `element` if they are incompatible.

    Incompatible shapes are an error only when the elements are read.
    """
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
    "it changes an array in place, and its tangents would need a second array. Use hr.TensorArray, whose arrays are "
    "values"
)

# *** gradients: a read becomes a write to the gradient array, and a write becomes a read ***


def _grad_array(b: Builder, n: GradNode, flow: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient array of `n.handle` for this gradient computation, and its flow.

    `flow` must depend on all operations that grow the forward array.

    Raises:
      LookupError: `n.handle` is a gradient array, which has no gradient array.
    """
    if n.handle.op.type.startswith("TensorArrayGrad"):
        made = f", made at {n.op.source}" if n.op.source is not None else ""
        raise LookupError(
            f"operation '{n.op.name}' ({n.op.type}{made}) has no gradient: what it works on is the gradient of a "
            "TensorArray, which has none. Make the array with hr.TensorArray, which has derivatives of all orders"
        )
    made = _of_version(b, n, "Grad")(n.handle, flow, source=_source(b))
    handle: Tensor = made[0] if isinstance(made, (tuple, list)) else made
    return handle, b.after(handle).Identity(flow)


def _of_version(b: Builder, n: GradNode, what: str) -> Any:
    """The builder's method of the TensorArray op `what` in the version of `n`."""
    kind = n.op.type
    return getattr(b, f"TensorArray{what}{kind[-2:] if kind[-2:] in ('V2', 'V3') else ''}")


def _source(b: Builder) -> str:
    """The attribute `source`, which identifies a gradient computation: the scope in which it builds."""
    parts = b.scope.rstrip("/").split("/")
    for i, part in enumerate(parts):
        if part.startswith("gradients"):
            return "/".join(parts[: i + 1])
    return b.scope.rstrip("/") or "gradients"


def _read_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, n.flow_in)
    return [None, None, _of_version(b, n, "Write")(handle, n.index, dy, flow)]


def _write_grad(b: Builder, n: GradNode, dflow: Tensor) -> list[GradEntry]:
    def by_value() -> Tensor:
        handle, flow = _grad_array(b, n, dflow)
        made: Tensor = _of_version(b, n, "Read")(handle, n.index, flow, dtype=n.attrs["T"])
        return made

    return [None, None, by_value, dflow]


def _gather_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    handle, flow = _grad_array(b, n, n.flow_in)
    return [None, None, _of_version(b, n, "Scatter")(handle, n.indices, dy, flow)]


def _scatter_grad(b: Builder, n: GradNode, dflow: Tensor) -> list[GradEntry]:
    def by_value() -> Tensor:
        handle, flow = _grad_array(b, n, dflow)
        shape = None if n.value.shape is None else n.value.shape[1:]
        gather = _of_version(b, n, "Gather")
        made: Tensor = gather(handle, n.indices, flow, dtype=n.attrs["T"], element_shape=shape)
        return made

    return [None, None, by_value, dflow]


def _concat_grad(b: Builder, n: GradNode, dy: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    if dy is None:
        return [None, None]
    handle, flow = _grad_array(b, n, n.flow_in)
    return [None, _of_version(b, n, "Split")(handle, dy, n.lengths, flow)]


def _split_grad(b: Builder, n: GradNode, dflow: Tensor) -> list[GradEntry]:
    def by_value() -> Tensor:
        handle, flow = _grad_array(b, n, dflow)
        shape = None if n.value.shape is None else n.value.shape[1:]
        made: tuple[Tensor, Tensor] = _of_version(b, n, "Concat")(
            handle, flow, dtype=n.attrs["T"], element_shape_except0=shape
        )
        return made[0]

    return [None, by_value, None, dflow]


_MADE = {
    "dtype": type_attr(),
    "element_shape": shape_attr(None),
    "dynamic_size": False,
    "clear_after_read": True,
    "tensor_array_name": "",
}


def _shape_before_v3(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0 if c.op.type.startswith("TensorArrayV") or c.op.type == "TensorArray" else 1)
    return [(2,)]


def _closing(find: Find) -> Any:
    return lambda ctx, attrs: lambda handle: find(ctx, handle).close()


def _sizing(find: Find) -> Any:
    return lambda ctx, attrs: lambda handle, flow: np.int32(find(ctx, handle).size())


for _v, _type, _find, _give in (
    ("V3", "resource", _by_handle, _handed_on),
    ("V2", "string", _by_text, _as_text),
    ("", "Ref(string)", _by_name, _as_name),
):
    _newest = _v == "V3"
    _handle = f"handle: {_type}"
    op(
        f"TensorArray{_v}",
        "size: int32",
        f"{_handle}, flow: float32" if _newest else _handle,
        {**_MADE, "identical_element_shapes": False} if _newest else _MADE,
        shape=_make_shape if _newest else _shape_before_v3,
        stateful=_make(_give),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="A new array of `size` unwritten tensors.",
    )
    op(
        f"TensorArrayGrad{_v}",
        f"{_handle if _v else 'handle: string'}, flow_in: float32",
        f"grad_{_handle}, flow_out: float32" if _newest else f"grad_{_handle}",
        {"source": string_attr()},
        shape=_grad_shape if _newest else _shape_before_v3,
        stateful=_grad(_find if _v else _by_text, _give),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="The array's gradient array for `source`, the same at each call. The array cannot grow any more.",
    )
    op(
        f"TensorArrayWrite{_v}",
        f"{_handle}, index: int32, value: T, flow_in: float32",
        "flow_out: float32",
        {"T": type_attr()},
        shape=_write_shape,
        stateful=_write(_find),
        grad=_write_grad,
        jvp=_NO_TANGENT,
        facts=_EFFECT,
        doc="Writes `value` at `index`.",
    )
    op(
        f"TensorArrayRead{_v}",
        f"{_handle}, index: int32, flow_in: float32",
        "value: dtype",
        {"dtype": type_attr()},
        shape=_read_shape,
        stateful=_read(_find),
        grad=_read_grad,
        jvp=_NO_TANGENT,
        facts=_EFFECT,
        doc="The element at `index`.",
    )
    op(
        f"TensorArrayGather{_v}",
        f"{_handle}, indices: int32, flow_in: float32",
        "value: dtype",
        {"dtype": type_attr(), "element_shape": shape_attr(None)},
        shape=_gather_shape,
        stateful=_gather(_find),
        grad=_gather_grad,
        jvp=_NO_TANGENT,
        facts=_EFFECT,
        doc="The elements at `indices`, stacked.",
    )
    op(
        f"TensorArrayScatter{_v}",
        f"{_handle}, indices: int32, value: T, flow_in: float32",
        "flow_out: float32",
        {"T": type_attr()},
        shape=_scatter_shape,
        stateful=_scatter(_find),
        grad=_scatter_grad,
        jvp=_NO_TANGENT,
        facts=_EFFECT,
        doc="Writes the rows of `value` at `indices`.",
    )
    op(
        f"TensorArrayConcat{_v}",
        f"{_handle}, flow_in: float32",
        "value: dtype, lengths: int64",
        {"dtype": type_attr(), "element_shape_except0": shape_attr(None)},
        shape=_concat_shape,
        stateful=_concat(_find),
        grad=_concat_grad,
        jvp=_NO_TANGENT,
        facts=_EFFECT,
        doc="The concatenation of all elements along their first dimension, and their lengths.",
    )
    op(
        f"TensorArraySplit{_v}",
        f"{_handle}, value: T, lengths: int64, flow_in: float32",
        "flow_out: float32",
        {"T": type_attr()},
        shape=_split_shape,
        stateful=_split(_find),
        grad=_split_grad,
        jvp=_NO_TANGENT,
        facts=_EFFECT,
        doc="Writes consecutive pieces of `value`, of the given lengths.",
    )
    op(
        f"TensorArraySize{_v}",
        f"{_handle}, flow_in: float32",
        "size: int32",
        shape=lambda c: [()],
        stateful=_sizing(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="The number of elements.",
    )
    op(
        f"TensorArrayClose{_v}",
        _handle,
        "",
        shape=nothing,
        stateful=_closing(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Drops the elements; every later use fails.",
    )

op(
    "TensorArrayGradWithShape",
    "handle: resource, flow_in: float32, shape_to_prepend: int32",
    "grad_handle: resource, flow_out: float32",
    {"source": string_attr()},
    shape=_grad_shape,
    stateful=_grad(_by_handle, _handed_on),
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The array's gradient array for `source`, with dimensions prepended to its elements' shape.",
)
op(
    "TensorArrayPack",
    "handle: Ref(string), flow_in: float32",
    "value: dtype",
    {"dtype": type_attr(), "element_shape": shape_attr(None)},
    shape=lambda c: [shapes.concatenate((None,), c.attrs["element_shape"])],
    stateful=_pack,
    grad=missing("TensorFlow has none either; TensorArrayGather has one"),
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="All elements, stacked.",
)
op(
    "TensorArrayUnpack",
    "handle: Ref(string), value: T, flow_in: float32",
    "flow_out: float32",
    {"T": type_attr()},
    shape=lambda c: [()],
    stateful=_unpack,
    grad=missing("TensorFlow has none either; TensorArrayScatter has one"),
    jvp=_NO_TANGENT,
    facts=_EFFECT,
    doc="Writes the rows of `value` to the elements, in order.",
)
