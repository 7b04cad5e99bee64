"""Descriptions of extension types as messages of TensorFlow's.

Readers find a type by its `__name__`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import dtypes, shapes
from headrace.api.sparse_tensor import SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.serial.attrs import encode_shape
from headrace.pb import struct_pb2
from headrace.pb.struct_pb2 import TypeSpecProto
from headrace.v1.extension_types import names
from headrace.v1.extension_types.fielded import Fielded
from headrace.v1.extension_types.fields import ImmutableDict
from headrace.v1.ragged.ragged_tensor import RaggedTensorSpec
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.type_specs import component_specs


def written(spec: Any) -> TypeSpecProto:
    """Returns the message of a description.

    Raises:
      ValueError: the message has no form for a value, or the extension type has no `__name__`.
    """
    state: Any
    if isinstance(spec, Fielded):
        name = names.registered_name(type(spec))
        if name is None:
            raise ValueError(
                f"No encoder for object {spec!r} of type {type(spec)}: give the class an attribute `__name__`"
            )
        kind, state = TypeSpecProto.EXTENSION_TYPE_SPEC, tuple(spec.__dict__.items())
        count = len(component_specs(spec))
    elif isinstance(spec, SparseTensorSpec):
        kind, name, count = TypeSpecProto.SPARSE_TENSOR_SPEC, "SparseTensorSpec", 3
        state = (TensorShape(spec.shape), spec.dtype)
    elif isinstance(spec, RaggedTensorSpec):
        kind, name, count = TypeSpecProto.RAGGED_TENSOR_SPEC, "RaggedTensorSpec", 1 + spec.ragged_rank
        state = (TensorShape(spec.shape), spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    else:
        raise ValueError(f"No encoder for object {spec!r} of type {type(spec)}.")
    return TypeSpecProto(
        type_spec_class=kind, type_state=_value(state), type_spec_class_name=name, num_flat_components=count
    )


def _value(x: Any) -> struct_pb2.StructuredValue:
    out = struct_pb2.StructuredValue()
    if x is None:
        out.none_value.SetInParent()
    elif isinstance(x, bool):
        out.bool_value = x
    elif isinstance(x, int):
        out.int64_value = x
    elif isinstance(x, float):
        out.float64_value = x
    elif isinstance(x, str):
        out.string_value = x
    elif isinstance(x, TensorShape):
        out.tensor_shape_value.CopyFrom(encode_shape(shapes.as_shape(x)))
    elif isinstance(x, dtypes.DType):
        out.tensor_dtype_value = x.number  # type: ignore[assignment]
    elif isinstance(x, TensorSpec):
        out.tensor_spec_value.shape.CopyFrom(encode_shape(x.shape))
        out.tensor_spec_value.dtype = x.dtype.number  # type: ignore[assignment]
        out.tensor_spec_value.name = x.name or ""
    elif isinstance(x, tuple):
        out.tuple_value.SetInParent()
        out.tuple_value.values.extend(map(_value, x))
    elif isinstance(x, Mapping):
        out.dict_value.SetInParent()
        for key, value in x.items():
            out.dict_value.fields[key].CopyFrom(_value(value))
    else:
        out.type_spec_value.CopyFrom(written(x))
    return out


def read(message: TypeSpecProto) -> Any:
    """Returns the description of a message.

    Raises:
      ValueError: the message is none of a known description.
    """
    try:
        state = _read_value(message.type_state)
        if message.type_spec_class == TypeSpecProto.SPARSE_TENSOR_SPEC:
            return SparseTensorSpec(*state)
        if message.type_spec_class == TypeSpecProto.RAGGED_TENSOR_SPEC:
            return RaggedTensorSpec(*state)
        if message.type_spec_class == TypeSpecProto.EXTENSION_TYPE_SPEC:
            found = names.registered(message.type_spec_class_name)
            values = dict(state)
            if set(values) != {f.name for f in found._fields()}:
                raise ValueError(f"the fields {sorted(values)} are not those of {found.__qualname__}")
            return found._made({f.name: values[f.name] for f in found._fields()})
    except (TypeError, KeyError) as e:
        raise ValueError(f"the message of a {message.type_spec_class_name!r} cannot be read: {e}") from e
    raise ValueError(f"the message describes a {message.type_spec_class_name!r}, which is no known description")


def _read_value(x: struct_pb2.StructuredValue) -> Any:
    kind = x.WhichOneof("kind")
    if kind == "none_value":
        return None
    if kind in ("bool_value", "int64_value", "float64_value", "string_value"):
        return getattr(x, kind)
    if kind == "tensor_shape_value":
        return _shape(x.tensor_shape_value)
    if kind == "tensor_dtype_value":
        return dtypes.as_dtype(x.tensor_dtype_value)
    if kind == "tensor_spec_value":
        spec = x.tensor_spec_value
        return TensorSpec(_shape(spec.shape), dtypes.as_dtype(spec.dtype), spec.name or None)
    if kind == "tuple_value":
        return tuple(map(_read_value, x.tuple_value.values))
    if kind == "dict_value":
        return ImmutableDict((k, _read_value(v)) for k, v in x.dict_value.fields.items())
    if kind == "type_spec_value":
        return read(x.type_spec_value)
    raise ValueError(f"a description has no part of the kind {kind!r}")


def _shape(message: Any) -> TensorShape:
    if message.unknown_rank:
        return TensorShape(None)
    return TensorShape([None if d.size < 0 else d.size for d in message.dim])
