"""Conditional accumulators: sums of gradients, whose mean is taken when there are enough.

Source: TensorFlow's ConditionalAccumulator, AccumulatorApplyGradient, ..., by reference to a name; the same with
Resource in front, by handle; SparseConditionalAccumulator, SparseAccumulatorApplyGradient and
SparseAccumulatorTakeGradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, op, shape_attr, string_attr, type_attr
from headrace.opkit.shape_rules import scalars
from headrace.resources.account import Account
from headrace.resources.accumulator import Accumulator, DenseAccumulator, SparseAccumulator
from headrace.resources.manager import DEFAULT_CONTAINER, Handle, handle_of, resource_of
from headrace.resources.names import name_ref, named
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref
from headrace.resources.waiting import Done
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_EFFECT = Facts(effect="resource", writes=True, waits=True)
_READS = Facts(effect="resource", waits=True)
_KINDS = (dtypes.float16, dtypes.float32, dtypes.float64)

A = TypeVar("A", bound=Accumulator)
Find = Callable[["KernelContext", Any, type[A]], A]  # from a handle


def _by_handle(ctx: KernelContext, handle: Any, kind: type[A]) -> A:
    return _as(resource_of(ctx.step, handle, Accumulator), kind)  # type: ignore[type-abstract]


def _by_name(ctx: KernelContext, ref: Ref, kind: type[A]) -> A:
    return _as(named(ctx.step.session, ref, Accumulator), kind)  # type: ignore[type-abstract]


def _as(found: Accumulator, kind: type[A]) -> A:
    if not isinstance(found, kind):
        raise InvalidArgumentError(f"{found.describe()} is no {kind.__name__}: the handle of another op was passed")
    return found


# *** making ***


def _shared(ctx: KernelContext, attrs: Mapping[str, Any], kind: type[Any]) -> Accumulator:
    """The session's accumulator of the op's name, which must be as the op declares it."""
    name, dtype = attrs["shared_name"] or ctx.node, attrs["dtype"]
    if dtype not in _KINDS:
        raise InvalidArgumentError(
            f"No OpKernel was registered to support Op 'ConditionalAccumulator' with dtype {dtype.name}; there are "
            f"{', '.join(d.name for d in _KINDS)}"
        )
    declared: Accumulator = kind(name, dtype, attrs["shape"], attrs["reduction_type"] == "MEAN")
    if ctx.step.memory is not None:
        declared.account = Account(ctx.step.memory.memory, declared.describe())
    found: Accumulator = ctx.step.session.lookup_or_create(
        attrs["container"],
        Accumulator,
        name,
        lambda: declared,
    )
    found.check_same(declared)
    return found


def _make(kind: type[Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Handle]:
        def kernel() -> Handle:
            found = _shared(ctx, attrs, kind)
            return handle_of(ctx.op, attrs["container"], Accumulator, found.name)

        return kernel

    return factory


def _make_named(kind: type[Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Ref]:
        return lambda: name_ref(attrs["container"] or DEFAULT_CONTAINER, _shared(ctx, attrs, kind).name)

    return factory


# *** using ***


def _scalar(value: Any, what: str) -> int:
    if shape_of(value):
        raise InvalidArgumentError(f"Argument {what} must be scalar, but had shape {shapes.show(shape_of(value))}")
    return int(value)


def _apply(find: Find[Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., None]:
        return lambda handle, step, gradient: find(ctx, handle, DenseAccumulator).apply(
            _scalar(step, "local_step"), gradient
        )

    return factory


def _apply_sparse(find: Find[Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., None]:
        known = attrs["has_known_shape"]

        def kernel(handle: Any, step: Any, indices: Any, rows: Any, shape: Any) -> None:
            accumulator = find(ctx, handle, SparseAccumulator)
            accumulator.apply(_scalar(step, "local_step"), np.asarray(indices), rows, shape if known else None)

        return kernel

    return factory


def _take(find: Find[Any], kind: type[Any]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        def kernel(handle: Any, required: Any, done: Done) -> Any:
            accumulator = find(ctx, handle, kind)
            if accumulator.dtype != attrs["dtype"]:
                raise InvalidArgumentError(
                    f"Signature mismatch, have: {attrs['dtype'].name} expected: {accumulator.dtype.name}, the dtype of "
                    f"{accumulator.describe()}"
                )
            return accumulator.take(_scalar(required, "num_required"), done)

        return kernel

    return factory


def _set_step(find: Find[Any]) -> Any:
    return lambda ctx, attrs: (
        lambda handle, step: find(ctx, handle, Accumulator).set_step(_scalar(step, "new_global_step"))
    )


def _count(find: Find[Any]) -> Any:
    return lambda ctx, attrs: lambda handle: np.int32(find(ctx, handle, Accumulator).count())


def _scalar_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return []


def _take_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [None] if len(c.op.outputs) == 1 else [(None,), None, (None,)]


# *** records ***

_DTYPE = {"dtype": type_attr(dtypes.NUMERIC | dtypes.QUANTIZED)}
_MADE = {
    **_DTYPE,
    "shape": shape_attr(),
    "container": "",
    "shared_name": "",
    "reduction_type": string_attr("MEAN", ("MEAN", "SUM")),
}
_STEP = ", local_step: int64"
for _type, _kind, _doc in (
    ("ConditionalAccumulator", DenseAccumulator, "accumulator of gradients"),
    ("SparseConditionalAccumulator", SparseAccumulator, "accumulator of sparse gradients"),
):
    op(
        _type,
        "",
        "handle: Ref(string)",
        _MADE,
        shape=lambda c: [(2,)],
        stateful=_make_named(_kind),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"The name of the session's {_doc}.",
    )
op(
    "ResourceConditionalAccumulator",
    "",
    "handle: resource",
    _MADE,
    shape=scalars,
    stateful=_make(DenseAccumulator),
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A handle to the session's accumulator of gradients of this name.",
)
for _prefix, _handle, _find in (
    ("", "handle: Ref(string)", _by_name),
    ("Resource", "handle: resource", _by_handle),
):
    op(
        f"{_prefix}AccumulatorApplyGradient",
        f"{_handle}{_STEP}, gradient: dtype",
        "",
        _DTYPE,
        shape=_scalar_shape,
        stateful=_apply(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Adds a gradient, unless it is of a step that is over.",
    )
    op(
        f"{_prefix}AccumulatorTakeGradient",
        f"{_handle}, num_required: int32",
        "average: dtype",
        _DTYPE,
        shape=_take_shape,
        async_=_take(_find, DenseAccumulator),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Takes the mean or the sum of the gradients; waits until there are `num_required`.",
    )
    op(
        f"{_prefix}AccumulatorSetGlobalStep",
        f"{_handle}, new_global_step: int64",
        "",
        shape=_scalar_shape,
        stateful=_set_step(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Says which step it is; gradients of earlier ones are dropped.",
    )
    op(
        f"{_prefix}AccumulatorNumAccumulated",
        _handle,
        "num_accumulated: int32",
        shape=scalars,
        stateful=_count(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="How many gradients have been added since the last take.",
    )
op(
    "SparseAccumulatorApplyGradient",
    f"handle: Ref(string){_STEP}, gradient_indices: int64, gradient_values: dtype, gradient_shape: int64",
    "",
    {**_DTYPE, "has_known_shape": bool_attr()},
    shape=_scalar_shape,
    stateful=_apply_sparse(_by_name),
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Adds a gradient of some rows, unless it is of a step that is over.",
)
op(
    "SparseAccumulatorTakeGradient",
    "handle: Ref(string), num_required: int32",
    "indices: int64, values: dtype, shape: int64",
    _DTYPE,
    shape=_take_shape,
    async_=_take(_by_name, SparseAccumulator),
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Takes the mean or the sum of the gradients, row by row; waits until there are `num_required`.",
)
