"""Stacks: values that TensorFlow 1 loops push forward and pop backward.

Source: TensorFlow's StackV2, StackPushV2, StackPopV2, StackCloseV2, and the same without V2, whose handles are
references to names. A stack exists until the step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import shapes
from headrace.dtypes import DType
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, missing, op, type_attr
from headrace.opkit.shape_rules import nothing
from headrace.resources.manager import Handle, handle_of, resource_of
from headrace.resources.names import name_ref, named
from headrace.resources.stack import Stack
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_CONTAINER = "_stacks"
_EFFECT = Facts(effect="step", writes=True)
_NO_GRADIENT = missing("values in a stack cannot be differentiated; differentiate the loop in its structured form")

Find = Callable[["KernelContext", Any], Stack]  # from a handle


def _by_handle(ctx: KernelContext, handle: Any) -> Stack:
    return resource_of(ctx.step, handle, Stack)


def _by_name(ctx: KernelContext, ref: Ref) -> Stack:
    return named(ctx.step.resources, ref, Stack)


def _new(ctx: KernelContext, attrs: Mapping[str, Any], max_size: int | None) -> Stack:
    resources = ctx.step.resources
    name = resources.unique_name(attrs["stack_name"] or ctx.node)
    made: Stack = resources.create(_CONTAINER, Stack, name, Stack(name, attrs["elem_type"], max_size))
    return made


def _make(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Handle]:
    def kernel(max_size: Any) -> Handle:
        if shape_of(max_size):
            raise InvalidArgumentError(f"Stack size must be a scalar, but had shape: {shapes.show(shape_of(max_size))}")
        size = int(max_size)
        stack = _new(ctx, attrs, size if size >= 0 else None)
        return handle_of(ctx.op, _CONTAINER, Stack, stack.name, stack.dtype, of_step=True)

    return kernel


def _make_named(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Ref]:
    return lambda: name_ref(_CONTAINER, _new(ctx, attrs, None).name)


def _push(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
        dtype = attrs["T"]

        def kernel(handle: Any, elem: Any) -> Any:
            find(ctx, handle).push(elem, dtype)
            return elem

        return kernel

    return factory


def _pop(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
        dtype: DType = attrs["elem_type"]

        def kernel(handle: Any) -> Any:
            stack = find(ctx, handle)
            if stack.dtype != dtype:
                raise InternalError(
                    f"Output 0 of type {stack.dtype.name} does not match declared output type {dtype.name}: "
                    f"Stack[{stack.name}] holds the former"
                )
            return stack.pop()

        return kernel

    return factory


def _close(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], None]:
        return lambda handle: find(ctx, handle).close()

    return factory


def _make_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    c.set_handle(0, c.attrs["elem_type"], None)
    return [()]


op(
    "StackV2",
    "max_size: int32",
    "handle: resource",
    {"elem_type": type_attr(), "stack_name": ""},
    shape=_make_shape,
    stateful=_make,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="A new stack of at most `max_size` elements (negative: any number).",
)
op(
    "Stack",
    "",
    "handle: Ref(string)",
    {"elem_type": type_attr(), "stack_name": ""},
    shape=lambda c: [(2,)],
    stateful=_make_named,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="The name of a new stack.",
)
for _suffix, _handle, _find in (("V2", "handle: resource", _by_handle), ("", "handle: Ref(string)", _by_name)):
    op(
        f"StackPush{_suffix}",
        f"{_handle}, elem: T",
        "output: T",
        {"T": type_attr(), "swap_memory": False},
        shape=lambda c: [c.shapes[1]],
        stateful=_push(_find),
        grad=_NO_GRADIENT,
        facts=_EFFECT,
        doc="Pushes `elem` and returns it.",
    )
    op(
        f"StackPop{_suffix}",
        _handle,
        "elem: elem_type",
        {"elem_type": type_attr()},
        shape=lambda c: [None],
        stateful=_pop(_find),
        grad=_NO_GRADIENT,
        facts=_EFFECT,
        doc="Pops the top element.",
    )
    op(
        f"StackClose{_suffix}",
        _handle,
        "",
        shape=nothing,
        stateful=_close(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Drops the stack's elements; every later use fails.",
    )
