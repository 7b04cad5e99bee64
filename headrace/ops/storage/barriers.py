"""Barriers: steps insert components of tuples by key, and take complete tuples.

Source: TensorFlow's Barrier, BarrierInsertMany, BarrierTakeMany, BarrierClose, BarrierReadySize, BarrierIncompleteSize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, int_attr, list_attr, op, type_attr
from headrace.opkit.shape_rules import nothing, scalars
from headrace.resources.account import Account
from headrace.resources.barrier import Barrier
from headrace.resources.manager import DEFAULT_CONTAINER
from headrace.resources.names import name_ref, named
from headrace.resources.queue import Done
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_EFFECT = Facts(effect="resource", writes=True, waits=True)
_READS = Facts(effect="resource", waits=True)
_HANDLE = "handle: Ref(string)"


def _make(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Ref]:
    name = attrs["shared_name"] or ctx.node

    def kernel() -> Ref:
        if attrs["capacity"] != -1:
            raise InvalidArgumentError(
                "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a "
                f"limited capacity. Got {attrs['capacity']}"
            )
        declared = Barrier(name, attrs["component_types"], attrs["shapes"])
        if ctx.step.memory is not None:
            declared.account = Account(ctx.step.memory.memory, f"Barrier '{name}'")
        barrier = ctx.step.session.lookup_or_create(attrs["container"], Barrier, name, lambda: declared)
        barrier.check_same(declared)
        return name_ref(attrs["container"] or DEFAULT_CONTAINER, name)

    return kernel


def _insert(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref, Any, Any], None]:
    component = attrs["component_index"]

    def kernel(handle: Ref, keys: Any, values: Any) -> None:
        named(ctx.step.session, handle, Barrier).insert_many(keys, component, values)

    return kernel


def _take(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    types = attrs["component_types"]

    def kernel(handle: Ref, n: Any, done: Done) -> Any:
        barrier = named(ctx.step.session, handle, Barrier)
        if shape_of(n):
            raise InvalidArgumentError(f"num_elements must be a scalar, got shape {shapes.show(shape_of(n))}")
        if attrs["timeout_ms"] != -1:
            raise InvalidArgumentError("Timeout not supported yet. Give the run a time limit instead of the op")
        if types != barrier.component_types:
            have, wanted = (", ".join(d.name for d in ds) for ds in (types, barrier.component_types))
            raise InvalidArgumentError(f"Signature mismatch, have: {have} expected: {wanted}")
        return barrier.take_many(int(n), done, attrs["allow_small_batch"])

    return kernel


def _take_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [(None,), (None,), *[None] * len(c.attrs["component_types"])]


def _insert_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_most(c.shapes[1], 1)
    return []


def _close(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref], None]:
    cancel = attrs["cancel_pending_enqueues"]
    return lambda handle: named(ctx.step.session, handle, Barrier).close(cancel)


op(
    "Barrier",
    "",
    _HANDLE,
    {
        "component_types": list_attr("type", minimum=1),
        "shapes": list_attr("shape", ()),
        "capacity": -1,
        "container": "",
        "shared_name": "",
    },
    shape=lambda c: [(2,)],
    stateful=_make,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="The name of the session's barrier.",
)
op(
    "BarrierInsertMany",
    f"{_HANDLE}, keys: string, values: T",
    "",
    {"T": type_attr(), "component_index": int_attr()},
    shape=_insert_shape,
    stateful=_insert,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Sets a component of the tuples of some keys.",
    differs="Values that do not have the component's shape are refused at once, not when their tuple is complete.",
)
op(
    "BarrierTakeMany",
    f"{_HANDLE}, num_elements: int32",
    "indices: int64, keys: string, values: component_types",
    {
        "component_types": list_attr("type", minimum=1),
        "allow_small_batch": False,
        "wait_for_incomplete": False,
        "timeout_ms": -1,
    },
    shape=_take_shape,
    async_=_take,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Takes complete tuples, those whose keys came first; waits until there are so many.",
)
op(
    "BarrierClose",
    _HANDLE,
    "",
    {"cancel_pending_enqueues": False},
    shape=nothing,
    stateful=_close,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Lets no new keys in.",
)
for _name, _size in (("Ready", Barrier.ready_size), ("Incomplete", Barrier.incomplete_size)):
    op(
        f"Barrier{_name}Size",
        _HANDLE,
        "size: int32",
        shape=scalars,
        stateful=lambda ctx, attrs, size=_size: lambda handle: np.int32(size(named(ctx.step.session, handle, Barrier))),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"How many tuples are {_name.lower()}.",
    )
