"""Tensors kept in the session: a step returns a handle, which later steps read.

Source: TensorFlow's GetSessionHandle, GetSessionHandleV2, GetSessionTensor, DeleteSessionTensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, type_attr
from headrace.opkit.shape_rules import scalars
from headrace.resources import values
from headrace.resources.manager import Handle, handle_of
from headrace.resources.session_tensors import SessionTensors
from headrace.resources.values import numpy_dtype_of, shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_CONTAINER = "_session_tensors"
_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
_EFFECT = Facts(effect="resource", writes=True)


def _store(ctx: KernelContext) -> SessionTensors:
    found: SessionTensors = ctx.step.session.lookup_or_create(_CONTAINER, SessionTensors, "all", SessionTensors)
    return found


def _text(text: str) -> np.ndarray:
    out: np.ndarray = values.zeros(dtypes.string, ())
    out[()] = text.encode("utf-8", "surrogateescape")
    return out


def _handle_of(value: Any) -> str:
    if shape_of(value):
        raise InvalidArgumentError(f"handle must be scalar, got shape {shapes.show(shape_of(value))}")
    text: bytes = value[()]
    return text.decode("utf-8", "surrogateescape")


def _put(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda value: _text(_store(ctx).put(ctx.node, _DEVICE, value))


def _put_resource(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Handle]:
    def kernel(value: Any) -> Handle:
        store = _store(ctx)
        return handle_of(ctx.op, _CONTAINER, SessionTensors, store.put(ctx.node, _DEVICE, value))

    return kernel


def _get(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    dtype = attrs["dtype"]

    def kernel(handle: Any) -> Any:
        value = _store(ctx).get(_handle_of(handle))
        if numpy_dtype_of(value) != dtype.numpy:
            raise InternalError(
                f"Output 0 of type {numpy_dtype_of(value)} does not match declared output type {dtype.name}: the "
                "session keeps the former under this handle"
            )
        return value

    return kernel


def _handle_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    return [None] * len(c.op.outputs)


for _type, _out, _kernel in (
    ("GetSessionHandle", "handle: string", _put),
    ("GetSessionHandleV2", "handle: resource", _put_resource),
):
    op(
        _type,
        "value: T",
        _out,
        {"T": type_attr()},
        shape=scalars,
        stateful=_kernel,
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc="Keeps the value in the session, and gives its handle.",
    )
op(
    "GetSessionTensor",
    "handle: string",
    "value: dtype",
    {"dtype": type_attr()},
    shape=_handle_shape,
    stateful=_get,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource"),
    doc="The value that the session keeps under a handle.",
)
op(
    "DeleteSessionTensor",
    "handle: string",
    "",
    shape=_handle_shape,
    stateful=lambda ctx, attrs: lambda handle: _store(ctx).delete(_handle_of(handle)),
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Drops the value that the session keeps under a handle.",
)
