"""Sparse tensors as elements of dense ones: serialized, or as keys of a map.

Source: TensorFlow's SerializeSparse, SerializeManySparse, DeserializeSparse, DeserializeManySparse,
AddSparseToTensorsMap, AddManySparseToTensorsMap and TakeManySparseFromTensorsMap. The ops with Many in their names
split a sparse tensor into its rows along the first dimension, or combine rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import VALUE, DType, int64, string, variant
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, op, type_attr
from headrace.ir.serial.attrs import read_tensor, write_tensor
from headrace.opkit.arrays import check_size
from headrace.ops.sparse.coordinates import check_parts, check_sorted, checked, drawn, parts, sparse_out
from headrace.records import record
from headrace.resources.sparse_map import SparseTensorsMap
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext
    from headrace.ir.opdef import Sample
    from headrace.resources.sparse_map import SparseTensor

_ARGS = "sparse_indices: int64, sparse_values: T, sparse_shape: int64"
_OUTS = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64"


@record(frozen=True, slots=True, eq=False)
class TensorVariant:
    """An array as the value of a variant. Immutable."""

    array: Any


# *** Rows ***


def _rows(indices: Any, values: Any, shape: Any) -> list[SparseTensor]:
    """The sparse tensors that a sparse tensor is made of along its first dimension."""
    if shape.ndim == 1 and len(shape) < 2:
        raise InvalidArgumentError(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    dims = checked(indices, values, shape)
    check_sorted(indices, dims)
    check_size((dims[0], 64), int64)  # each stored row has three small arrays
    ends = np.searchsorted(indices[:, 0], np.arange(dims[0] + 1))
    return [(indices[s:e, 1:], values[s:e], shape[1:]) for s, e in zip(ends.tolist(), ends[1:].tolist())]


def _together(tensors: Sequence[SparseTensor], lead: tuple[int, ...], dtype: DType) -> tuple[Any, Any, Any]:
    """Sparse tensor of the tensors stacked along the dimensions `lead`.

    The other dimensions are the largest of the tensors.
    """
    for i, (indices, values, shape) in enumerate(tensors):
        if values.dtype != dtype.numpy:
            raise InvalidArgumentError(
                f"Requested SparseTensor of type {dtype.name} but SparseTensor[{i}].values.dtype() == {values.dtype}"
            )
        check_parts(indices, values, shape, f"SparseTensor[{i}]")
        if len(shape) != len(tensors[0][2]):
            raise InvalidArgumentError(
                f"Inconsistent shape across SparseTensors: rank prior to SparseTensor[{i}] was: {len(tensors[0][2])} "
                f"but rank of SparseTensor[{i}] is: {len(shape)}"
            )
    sizes = [len(values) for _, values, _ in tensors]
    check_size((sum(sizes), len(lead) + len(tensors[0][2])), int64)
    places = np.stack(np.unravel_index(np.arange(len(tensors)), lead), axis=1) if lead else np.zeros((1, 0), np.int64)
    indices = np.concatenate([t[0] for t in tensors])
    largest = np.max([t[2] for t in tensors], axis=0) if len(tensors[0][2]) else tensors[0][2]
    return (
        np.concatenate([np.repeat(places, sizes, axis=0), indices], axis=1).astype(np.int64),
        np.concatenate([t[1] for t in tensors]),
        np.concatenate([np.array(lead, np.int64), largest]),
    )


# *** Serialized ***


def _packed(attrs: Mapping[str, Any]) -> Callable[[SparseTensor], np.ndarray]:
    """Returns a function that packs a sparse tensor into three elements of `out_type`."""
    dtype, as_variant = attrs["T"], attrs["out_type"] is variant

    def pack(tensor: SparseTensor) -> np.ndarray:
        out = np.empty(3, object)
        for i, (x, t) in enumerate(zip(tensor, (int64, dtype, int64), strict=True)):
            out[i] = TensorVariant(x) if as_variant else write_tensor(np.ascontiguousarray(x), t)
        return out

    return pack


def _serialize_kernel(attrs: Mapping[str, Any]) -> Any:
    pack = _packed(attrs)

    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        _check_ranks(indices, values, shape)
        return pack((indices, values, shape))

    return kernel


def _check_ranks(indices: Any, values: Any, shape: Any) -> None:
    for name, x, rank in (("indices", indices, 2), ("values", values, 1), ("shape", shape, 1)):
        if x.ndim != rank:
            raise InvalidArgumentError(
                f"Input {name} should be a {'matrix' if rank == 2 else 'vector'} but received shape "
                f"{shapes.show(x.shape)}"
            )


def _serialize_many_kernel(attrs: Mapping[str, Any]) -> Any:
    pack = _packed(attrs)

    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        out = [pack(t) for t in _rows(indices, values, shape)]
        return np.stack(out) if out else np.empty((0, 3), object)

    return kernel


def _unpacked(x: Any, i: int) -> Any:
    if isinstance(x, TensorVariant):
        return x.array
    if not isinstance(x, bytes):
        raise InvalidArgumentError(f"Element {i} of a serialized sparse tensor holds no tensor, but {x!r}")
    try:
        dtype, array = read_tensor(x)
    except ValueError as e:
        raise InvalidArgumentError(f"Could not parse serialized proto: {e}") from None
    if i != 1 and dtype is not int64:
        raise InvalidArgumentError(f"Serialized indices and shapes must be int64, got {dtype.name}")
    check_size(array.shape, dtype)
    return array


def _deserialize_kernel(attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["dtype"]

    def kernel(serialized: Any) -> Any:
        shape = np.shape(serialized)
        if not shape:
            raise InvalidArgumentError("Serialized sparse should have non-zero rank")
        if shape[-1] != 3:
            raise InvalidArgumentError(f"Serialized sparse should have 3 as the last dimension {shapes.show(shape)}")
        if not math.prod(shape):
            raise InvalidArgumentError(
                "Serialized sparse should have at least 1 serialized tensor, but has a zero dimension "
                f"{shapes.show(shape)}"
            )
        tensors = [tuple(_unpacked(x, i) for i, x in enumerate(row)) for row in serialized.reshape(-1, 3)]
        return _together(tensors, shape[:-1], dtype)

    return kernel


def _serialize_shape(c: Inference) -> Sequence[Shape]:
    parts(c, 0)
    return [(3,)]


def _serialize_many_shape(c: Inference) -> Sequence[Shape]:
    parts(c, 0)
    return [(None, 3)]


def _deserialize_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_least(c.shapes[0], 1)
    return sparse_out(None, None)


def _deserialize_many_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 2)
    return sparse_out(None, None)


def _message(x: np.ndarray) -> bytes:
    """Serialized TensorProto: its fields 1, 2 and 4, or 8 for strings."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    shape = b"".join(field(2, bytes([8, d]) if d else b"") for d in x.shape)
    value = b"".join(field(8, v) for v in x) if x.dtype == object else field(4, x.tobytes()) if x.size else b""
    return bytes([8, dtypes.from_numpy(x.dtype).number]) + field(2, shape) + value


def _messages(*tensor: np.ndarray) -> np.ndarray:
    out = np.empty(3, object)
    out[:] = [_message(x) for x in tensor]
    return out


def _one(rng: np.random.Generator, dtype: DType) -> list[Any]:
    found = drawn(rng, dtype, (2, 3), 3)
    return [case(*found, want=_messages(*found))]


def _but_strings(sample: Sample) -> Sample:
    """Without the cases of strings, which TensorFlow writes otherwise."""
    return lambda rng, dtype: [] if dtype is string else sample(rng, dtype)


def _many(rng: np.random.Generator, dtype: DType) -> list[Any]:
    indices, values, shape = found = drawn(rng, dtype, (2, 3), 4)
    rows = [_messages(indices[indices[:, 0] == r][:, 1:], values[indices[:, 0] == r], shape[1:]) for r in range(2)]
    return [case(*found, want=np.stack(rows))]


def _back(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(c.want, dtype=dtype, want=c.inputs) for c in _many(rng, dtype)]


_TEXT = "Strings are written one by one into the message, not as one block; both can be read."
for _type, _kernel, _rule, _sample, _doc in (
    (
        "SerializeSparse",
        _serialize_kernel,
        _serialize_shape,
        _but_strings(_one),
        "A sparse tensor as three strings or variants.",
    ),
    (
        "SerializeManySparse",
        _serialize_many_kernel,
        _serialize_many_shape,
        _but_strings(_many),
        "Each row of a sparse tensor as three strings or variants.",
    ),
):
    op(
        _type,
        _ARGS,
        "serialized_sparse: out_type",
        {"T": VALUE, "out_type": type_attr({string, variant}, string)},
        shape=_rule,
        kernel=_kernel,
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(20)),
        sample=_sample,
        doc=_doc,
        differs=_TEXT,
    )
op(
    "DeserializeSparse",
    "serialized_sparse: Tserialized",
    _OUTS,
    {"dtype": VALUE, "Tserialized": type_attr({string, variant}, string)},
    shape=_deserialize_shape,
    kernel=_deserialize_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(1000)),
    sample=lambda rng, dtype: [case(c.want, dtype=dtype, want=c.inputs) for c in _one(rng, dtype)] + _back(rng, dtype),
    doc="The sparse tensor of the serialized ones, which stand along the dimensions before the last.",
)
op(
    "DeserializeManySparse",
    "serialized_sparse: string",
    _OUTS,
    {"dtype": VALUE},
    shape=_deserialize_many_shape,
    kernel=_deserialize_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(1000)),
    sample=_back,
    doc="The sparse tensor whose rows are the serialized ones.",
)

# *** Kept in a map ***

_PLACE = {"container": "", "shared_name": ""}
_EFFECT = Facts(effect="resource", writes=True, waits=True)


def _map(ctx: KernelContext, attrs: Mapping[str, Any]) -> SparseTensorsMap:
    name = attrs["shared_name"] or ctx.node
    found: SparseTensorsMap = ctx.step.session.lookup_or_create(
        attrs["container"], SparseTensorsMap, name, lambda: SparseTensorsMap(name)
    )
    return found


def _add(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        _check_ranks(indices, values, shape)
        checked(indices, values, shape)
        return np.int64(_map(ctx, attrs).add([(indices, values, shape)])[0])

    return kernel


def _add_many(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        _check_ranks(indices, values, shape)
        return np.array(_map(ctx, attrs).add(_rows(indices, values, shape)), np.int64)

    return kernel


def _take_many(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    dtype = attrs["dtype"]

    def kernel(handles: Any) -> Any:
        if np.ndim(handles) != 1:
            raise InvalidArgumentError(
                f"sparse_handles should be a vector but received shape {shapes.show(handles.shape)}"
            )
        if not len(handles):
            raise InvalidArgumentError("Must have at least 1 serialized tensor, but the vector of handles is empty")
        return _together(_map(ctx, attrs).take(handles.tolist()), handles.shape, dtype)

    return kernel


def _take_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 1)
    return sparse_out(None, None)


def _added_shape(*out: int | None) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        parts(c, 0)
        return [out]

    return rule


for _type, _out, _rule, _factory, _doc in (
    ("AddSparseToTensorsMap", "sparse_handle", _added_shape(), _add, "Puts a sparse tensor into the map."),
    (
        "AddManySparseToTensorsMap",
        "sparse_handles",
        _added_shape(None),
        _add_many,
        "Puts each row of a sparse tensor into the map.",
    ),
):
    op(
        _type,
        _ARGS,
        f"{_out}: int64",
        {"T": VALUE, **_PLACE},
        shape=_rule,
        stateful=_factory,
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc=f"{_doc} Gives its number.",
    )
op(
    "TakeManySparseFromTensorsMap",
    "sparse_handles: int64",
    _OUTS,
    {"dtype": VALUE, **_PLACE},
    shape=_take_shape,
    stateful=_take_many,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Takes the sparse tensors of some numbers out of the map, as the rows of one.",
)
