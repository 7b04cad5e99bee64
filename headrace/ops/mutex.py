"""Mutexes, which serialize steps.

Source: TensorFlow's MutexV2, MutexLock, ConsumeMutexLock (what `tf.CriticalSection` is made of). A lock is released
when its tensor is consumed or can no longer be read, and at the latest when the step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op
from headrace.opkit.shape_rules import nothing, scalars
from headrace.resources.manager import Handle, handle_of, resource_of
from headrace.resources.mutex import Hold, Holds, Mutex

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_EFFECT = Facts(effect="resource", writes=True, waits=True)


def _make(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Handle]:
    name = attrs["shared_name"] or ctx.node

    def kernel() -> Handle:
        ctx.step.session.lookup_or_create(attrs["container"], Mutex, name, lambda: Mutex(name))
        return handle_of(ctx.op, attrs["container"], Mutex, name)

    return kernel


def _lock(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    holds = ctx.step.resources.lookup_or_create("_mutex", Holds, "holds", Holds)

    def kernel(handle: Any, done: Callable[[Any], None]) -> Any:
        def got(result: Any) -> None:
            if isinstance(result, Hold):
                holds.add(result)
            done(result)

        return resource_of(ctx.step, handle, Mutex).lock(got)

    return kernel


def _consume(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], None]:
    def kernel(hold: Any) -> None:
        if not isinstance(hold, Hold):
            raise InvalidArgumentError(f"Expected what MutexLock gives, but saw variant: {hold!r}")
        hold.release()

    return kernel


op(
    "MutexV2",
    "",
    "resource: resource",
    {"container": "", "shared_name": ""},
    shape=scalars,
    stateful=_make,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", waits=True),
    doc="A handle to the session's mutex of this name.",
)
op(
    "MutexLock",
    "mutex: resource",
    "mutex_lock: variant",
    shape=scalars,
    async_=_lock,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Locks the mutex, after waiting for it; the lock lasts until the output is consumed.",
)
op(
    "ConsumeMutexLock",
    "mutex_lock: variant",
    "",
    shape=nothing,
    stateful=_consume,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Ends a lock.",
)
