"""Queues between steps.

The ops that may wait are asynchronous and block no thread.

Source: TensorFlow's FIFOQueueV2, PaddingFIFOQueueV2, RandomShuffleQueueV2, PriorityQueueV2, QueueEnqueueV2, ..., and
the same without V2, whose handles are references to names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, list_attr, op
from headrace.opkit.shape_rules import nothing
from headrace.resources.account import Account
from headrace.resources.manager import DEFAULT_CONTAINER, Handle, handle_of, resource_of
from headrace.resources.names import name_ref, named
from headrace.resources.queue import Done, FIFOQueue, Queue
from headrace.resources.queue_kinds import PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.kernel import KernelContext

_EFFECT = Facts(effect="resource", writes=True, waits=True)
_READS = Facts(effect="resource", waits=True)
_WAITS = {"timeout_ms": -1}

Find = Callable[["KernelContext", Any], Queue]  # from a handle
Kind = Callable[[Mapping[str, Any]], Callable[[str], Queue]]  # from attributes to a factory of queues by name


def _by_handle(ctx: KernelContext, handle: Any) -> Queue:
    return resource_of(ctx.step, handle, Queue)  # type: ignore[type-abstract]


def _by_name(ctx: KernelContext, ref: Ref) -> Queue:
    return named(ctx.step.session, ref, Queue)  # type: ignore[type-abstract]


# *** making ***


def _shared(ctx: KernelContext, attrs: Mapping[str, Any], make: Callable[[str], Queue]) -> Queue:
    """The session's queue of the op's name, which must match the one of `make(name)`."""
    name = attrs["shared_name"] or ctx.node
    declared = make(name)
    if ctx.step.memory is not None:
        declared.account = Account(ctx.step.memory.memory, declared.describe())
    queue: Queue = ctx.step.session.lookup_or_create(attrs["container"], Queue, name, lambda: declared)
    queue.check_same(declared)
    return queue


def _declared(kind: Callable[..., Queue], *more: str) -> Kind:
    """The factory of queues of one kind from the attributes of an op.

    `more` names the attributes that only this kind has.
    """

    def declare(attrs: Mapping[str, Any]) -> Callable[[str], Queue]:
        capacity = attrs["capacity"] if attrs["capacity"] >= 0 else None
        extra = [attrs[a] for a in more]
        return lambda name: kind(name, attrs["component_types"], attrs["shapes"], capacity, *extra)

    return declare


def _make(kind: Kind) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Handle]:
        def kernel() -> Handle:
            queue = _shared(ctx, attrs, kind(attrs))
            return handle_of(ctx.op, attrs["container"], Queue, queue.name)

        return kernel

    return factory


def _make_named(kind: Kind) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Ref]:
        return lambda: name_ref(attrs["container"] or DEFAULT_CONTAINER, _shared(ctx, attrs, kind(attrs)).name)

    return factory


def _make_shape(c: Inference) -> Sequence[Shape]:
    types, known = c.attrs["component_types"], c.attrs["shapes"]
    if c.op.type != "PriorityQueueV2" and len(types) == 1 and len(known) == 1:
        c.set_handle(0, types[0], known[0])
    return [()]


# *** waiting ops ***


def _check_call(queue: Queue, attrs: Mapping[str, Any], types: Sequence[DType]) -> None:
    if attrs["timeout_ms"] != -1:
        raise InvalidArgumentError("Timeout not supported yet. Give the run a time limit instead of the op")
    if tuple(types) != queue.component_types:
        have = ", ".join(d.name for d in types)
        wanted = ", ".join(d.name for d in queue.component_types)
        raise InvalidArgumentError(
            f"Signature mismatch, have: {have} expected: {wanted}, the component types of {queue.describe()}"
        )


def _enqueue(find: Find, many: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        types = attrs["Tcomponents"]

        def kernel(handle: Any, *rest: Any) -> Any:
            *components, done = rest
            queue = find(ctx, handle)
            _check_call(queue, attrs, types)
            return (queue.enqueue_many if many else queue.enqueue)(components, done)

        return kernel

    return factory


def _single(done: Done, n: int) -> Done:
    """`done` for elements of `n` components; it unpacks a tuple of one component."""
    if n != 1:
        return done
    return lambda got: done(got[0] if isinstance(got, tuple) else got)


def _dequeue(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        types = attrs["component_types"]

        def kernel(handle: Any, done: Done) -> Any:
            queue = find(ctx, handle)
            _check_call(queue, attrs, types)
            return queue.dequeue(_single(done, len(types)))

        return kernel

    return factory


def _dequeue_many(find: Find, may_be_fewer: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        types = attrs["component_types"]

        def kernel(handle: Any, n: Any, done: Done) -> Any:
            queue = find(ctx, handle)
            if shape_of(n):
                raise InvalidArgumentError(f"n must be a scalar, got shape {shapes.show(shape_of(n))}")
            _check_call(queue, attrs, types)
            return queue.dequeue_many(int(n), _single(done, len(types)), may_be_fewer)

        return kernel

    return factory


def _close(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., None]:
        cancel = attrs["cancel_pending_enqueues"]
        return lambda handle, done: find(ctx, handle).close(done, cancel)

    return factory


def _element(c: Inference) -> list[Shape]:
    """Shapes of a dequeued element's components, as far as they are known."""
    known = c.handle(0)
    return [None if known is None else known[1]] if len(c.op.outputs) == 1 else [None] * len(c.op.outputs)


def _many_shape(c: Inference) -> Sequence[Shape]:
    n = c.scalar(1)
    return [shapes.concatenate((n,), s) for s in _element(c)]


def _up_to_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [shapes.concatenate((None,), s) for s in _element(c)]


# *** records ***

_PLACE = {"capacity": -1, "container": "", "shared_name": ""}
_QUEUE = {"component_types": list_attr("type", minimum=1), "shapes": list_attr("shape", ()), **_PLACE}
for _name, _kind, _attrs, _doc in (
    ("FIFOQueue", _declared(FIFOQueue), _QUEUE, "first-in-first-out queue"),
    ("PaddingFIFOQueue", _declared(PaddingFIFOQueue), _QUEUE, "queue whose batches are padded with zeros"),
    (
        "RandomShuffleQueue",
        _declared(RandomShuffleQueue, "min_after_dequeue", "seed", "seed2"),
        {**_QUEUE, "min_after_dequeue": 0, "seed": 0, "seed2": 0},
        "queue that returns its elements in random order",
    ),
    (
        "PriorityQueue",
        _declared(PriorityQueue),
        {"component_types": list_attr("type", ()), "shapes": list_attr("shape"), **_PLACE},
        "queue that returns the element of least priority",
    ),
):
    op(
        f"{_name}V2",
        "",
        "handle: resource",
        _attrs,
        shape=_make_shape,
        stateful=_make(_kind),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"A handle to the session's {_doc} of this name.",
    )
    op(
        _name,
        "",
        "handle: Ref(string)",
        _attrs,
        shape=lambda c: [(2,)],
        stateful=_make_named(_kind),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"The name of the session's {_doc}.",
    )
_PUTS = {"Tcomponents": list_attr("type", minimum=1), **_WAITS}
_TAKES = {"component_types": list_attr("type", minimum=1), **_WAITS}
for _suffix, _handle, _find in (("V2", "handle: resource", _by_handle), ("", "handle: Ref(string)", _by_name)):
    op(
        f"QueueEnqueue{_suffix}",
        f"{_handle}, components: Tcomponents",
        "",
        _PUTS,
        shape=nothing,
        async_=_enqueue(_find, many=False),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Enqueues one element; waits while the queue is full.",
    )
    op(
        f"QueueEnqueueMany{_suffix}",
        f"{_handle}, components: Tcomponents",
        "",
        _PUTS,
        shape=nothing,
        async_=_enqueue(_find, many=True),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Enqueues the rows of the components, one element each; waits while the queue is full.",
    )
    op(
        f"QueueDequeue{_suffix}",
        _handle,
        "components: component_types",
        _TAKES,
        shape=_element,
        async_=_dequeue(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Dequeues one element; waits while the queue is empty.",
    )
    op(
        f"QueueDequeueMany{_suffix}",
        f"{_handle}, n: int32",
        "components: component_types",
        _TAKES,
        shape=_many_shape,
        async_=_dequeue_many(_find, may_be_fewer=False),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Dequeues `n` elements and stacks them; waits until there are `n`.",
    )
    op(
        f"QueueDequeueUpTo{_suffix}",
        f"{_handle}, n: int32",
        "components: component_types",
        _TAKES,
        shape=_up_to_shape,
        async_=_dequeue_many(_find, may_be_fewer=True),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Dequeues and stacks `n` elements, or the rest of a closed queue if it has fewer.",
    )
    op(
        f"QueueClose{_suffix}",
        _handle,
        "",
        {"cancel_pending_enqueues": False},
        shape=nothing,
        async_=_close(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Closes the queue to new elements; waiting enqueues complete or are cancelled.",
    )
    op(
        f"QueueSize{_suffix}",
        _handle,
        "size: int32",
        shape=lambda c: [()],
        stateful=lambda ctx, attrs, find=_find: lambda handle: np.int32(find(ctx, handle).size()),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="The number of elements in the queue.",
    )
    op(
        f"QueueIsClosed{_suffix}",
        _handle,
        "is_closed: bool",
        shape=lambda c: [()],
        stateful=lambda ctx, attrs, find=_find: lambda handle: np.bool_(find(ctx, handle).is_closed),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="Whether the queue is closed.",
    )
op(
    "FakeQueue",
    "resource: resource",
    "handle: Ref(string)",
    shape=lambda c: [(2,)],
    stateful=lambda ctx, attrs: lambda handle: name_ref(handle.container, _by_handle(ctx, handle).name),
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="The name of the queue of a handle.",
)
