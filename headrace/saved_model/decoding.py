"""Python structures of `StructuredValue` messages: the signatures of functions in a SavedModel.

Source: TensorFlow's `nested_structure_coder.py` and `struct.proto`.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Final

from headrace.api.sparse_tensor import SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import GraphError
from headrace.ir.attr_values import BadTensor
from headrace.ir.serial.attrs import decode_dtype, decode_shape, decode_tensor
from headrace.records import record

if TYPE_CHECKING:
    from headrace.pb.struct_pb2 import StructuredValue, TypeSpecProto

DEEPEST: Final = 60  # nested values of one structure; protobuf's parser has a limit of 100 messages


@record(frozen=True)
class OpaqueSpec:
    """Description of an object of several tensors that headrace has no class for.

    Attributes:
      name: the name of TensorFlow's class ("RaggedTensorSpec").
      components: the number of its tensors.
    """

    name: str
    components: int


def decode(value: StructuredValue, depth: int = 0) -> Any:
    """Returns the structure of a message.

    Args:
      value: the message.
      depth: the number of structures around it.

    Returns:
      None, a number, text, list, tuple, dict with text keys, named tuple, shape (a tuple, or None), dtype, array,
      `TensorSpec`, `SparseTensorSpec` or `OpaqueSpec`.

    Raises:
      GraphError: the message is malformed or too deep.
    """
    if depth > DEEPEST:
        raise GraphError(f"a structured value is nested more than {DEEPEST} deep")
    kind = value.WhichOneof("kind")
    if kind is None:
        raise GraphError("a structured value has no kind that headrace knows")
    given = getattr(value, kind)
    if kind in ("float64_value", "int64_value", "string_value", "bool_value"):
        return given
    if kind == "none_value":
        return None
    if kind == "list_value":
        return [decode(v, depth + 1) for v in given.values]
    if kind == "tuple_value":
        return tuple([decode(v, depth + 1) for v in given.values])
    if kind == "dict_value":
        return {k: decode(given.fields[k], depth + 1) for k in sorted(given.fields)}
    if kind == "named_tuple_value":
        return named_tuple(given.name, [(p.key, decode(p.value, depth + 1)) for p in given.values])
    if kind == "tensor_shape_value":
        return decode_shape(given)
    if kind == "tensor_dtype_value":
        return decode_dtype(given)
    if kind in ("tensor_spec_value", "bounded_tensor_spec_value"):
        return TensorSpec(decode_shape(given.shape), decode_dtype(given.dtype), given.name or None)
    if kind == "type_spec_value":
        return _type_spec(given, depth)
    found = decode_tensor(given)
    if isinstance(found, BadTensor):
        raise GraphError(found.reason)
    return found


def named_tuple(name: str, fields: list[tuple[str, Any]]) -> Any:
    """Returns a named tuple of a new class.

    Raises:
      GraphError: a name is no identifier, or occurs twice.
    """
    try:
        kind = collections.namedtuple(name, [key for key, _ in fields])  # type: ignore[misc]
    except ValueError as e:
        raise GraphError(f"the named tuple {name!r} of a structured value cannot be made: {e}") from e
    return kind(*[v for _, v in fields])


def _type_spec(given: TypeSpecProto, depth: int) -> Any:
    if given.type_spec_class == given.SPARSE_TENSOR_SPEC:
        state = decode(given.type_state, depth + 1)
        try:
            shape, dtype = state
            return SparseTensorSpec(shape, dtype)
        except (TypeError, ValueError) as e:
            raise GraphError(f"a SparseTensorSpec has the state {state!r}, not a shape and a dtype") from e
    name = given.type_spec_class_name or given.TypeSpecClass.Name(given.type_spec_class)
    return OpaqueSpec(name, given.num_flat_components)
