"""Tensor maps: mappings from tensors to tensors, as values of dtype variant.

Source: TensorFlow's EmptyTensorMap, TensorMapInsert, TensorMapLookup, TensorMapErase, TensorMapHasKey, TensorMapSize,
TensorMapStackKeys. The gradient of a map is a map of the gradients of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.opdef import NOT_DIFFERENTIABLE, op, type_attr
from headrace.opkit.jvp_rules import linear
from headrace.opkit.shape_rules import scalars, unknown
from headrace.resources.tensor_map import TensorMap
from headrace.resources.values import numpy_dtype_of

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradEntry, GradNode
    from headrace.ir.graph import Tensor

_MAP = "input_handle: variant"
_KEY = {"key_dtype": type_attr()}
_KEY_VALUE = {**_KEY, "value_dtype": type_attr()}


def _map(value: Any) -> TensorMap:
    if not isinstance(value, TensorMap):
        raise InvalidArgumentError(
            "Input handle is not a map (a scalar that EmptyTensorMap or TensorMapInsert made), got "
            f"{type(value).__name__}"
        )
    return value


def _lookup(attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    dtype = attrs["value_dtype"]

    def kernel(handle: Any, key: Any) -> Any:
        value = _map(handle).lookup(key)
        if numpy_dtype_of(value) != dtype.numpy:
            raise InternalError(
                f"Output 0 of type {numpy_dtype_of(value)} does not match declared output type {dtype.name}: the map "
                "holds the former at this key"
            )
        return value

    return kernel


def _without(b: Builder, n: GradNode, dy: Tensor) -> Tensor:
    """Gradient without the entry of `n.key`.

    The key is inserted first, so that TensorMapErase succeeds if the gradient has no such entry.
    """
    out: Tensor = b.TensorMapErase(b.TensorMapInsert(dy, n.key, 0.0), n.key, value_dtype=dtypes.float32)
    return out


def _insert_grad(b: Builder, n: GradNode, dy: Tensor) -> list[GradEntry]:
    dtype = n.attrs["value_dtype"]

    def by_value() -> Tensor:
        # zeros, so that the lookup succeeds if no operation has used the value
        zeros = b.TensorMapInsert(b.EmptyTensorMap(), n.key, b.ZerosLike(n.value))
        out: Tensor = b.TensorMapLookup(b.AddN([zeros, dy]), n.key, value_dtype=dtype)
        return out

    return [lambda: _without(b, n, dy), None, by_value if dtype.is_floating or dtype.is_complex else None]


def _insert_jvp(b: Builder, n: GradNode, *dxs: Tensor | None) -> list[Tensor | None]:
    handle = b.ZerosLike(n.input_handle) if dxs[0] is None else dxs[0]
    value = dxs[2]
    if value is None:  # it does not move; of a text there is no zero
        value = n.value if n.attrs["value_dtype"] is dtypes.string else b.ZerosLike(n.value)
    return [b.TensorMapInsert(handle, n.key, value)]


def _lookup_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    return [b.TensorMapInsert(b.EmptyTensorMap(), n.key, dy), None]


op(
    "EmptyTensorMap",
    "",
    "handle: variant",
    shape=scalars,
    kernel=lambda attrs: TensorMap,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    doc="A map with nothing in it.",
)
op(
    "TensorMapInsert",
    f"{_MAP}, key: key_dtype, value: value_dtype",
    "output_handle: variant",
    _KEY_VALUE,
    shape=scalars,
    kernel=lambda attrs: lambda handle, key, value: _map(handle).insert(key, value),
    xp=False,
    grad=_insert_grad,
    jvp=_insert_jvp,
    doc="The map with `value` at `key`.",
)
op(
    "TensorMapLookup",
    f"{_MAP}, key: key_dtype",
    "value: value_dtype",
    _KEY_VALUE,
    shape=unknown,
    kernel=_lookup,
    xp=False,
    grad=_lookup_grad,
    jvp=linear("input_handle"),
    doc="The value at `key`.",
)
op(
    "TensorMapErase",
    f"{_MAP}, key: key_dtype",
    "output_handle: variant",
    _KEY_VALUE,
    shape=scalars,
    kernel=lambda attrs: lambda handle, key: _map(handle).erase(key),
    xp=False,
    grad=lambda b, n, dy: [_without(b, n, dy), None],
    jvp=linear("input_handle"),
    doc="The map without `key`.",
)
op(
    "TensorMapHasKey",
    f"{_MAP}, key: key_dtype",
    "has_key: bool",
    _KEY,
    shape=scalars,
    kernel=lambda attrs: lambda handle, key: np.bool_(key in _map(handle)),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    doc="Whether there is something at `key`.",
)
op(
    "TensorMapSize",
    _MAP,
    "size: int32",
    shape=scalars,
    kernel=lambda attrs: lambda handle: np.int32(len(_map(handle))),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    doc="How many keys there are.",
)
op(
    "TensorMapStackKeys",
    _MAP,
    "keys: key_dtype",
    _KEY,
    shape=unknown,
    kernel=lambda attrs: lambda handle: _map(handle).keys(attrs["key_dtype"]),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    doc="All keys, stacked.",
    differs="The keys are in the order of insertion; in TensorFlow the order is undefined.",
)
