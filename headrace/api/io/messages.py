"""Fields of serialized protocol messages as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace import dtypes
from headrace.api import scopes
from headrace.ir.tensor_type import Tensor


class DecodeProtoV2(NamedTuple):
    """Values of fields of messages, and how many each message has.

    Source: TensorFlow's result of `tf.io.decode_proto`.
    """

    sizes: Tensor
    values: list[Tensor]


def _source(descriptor_source: str | bytes) -> str:
    if isinstance(descriptor_source, bytes):
        return descriptor_source.decode("utf-8", "surrogateescape")
    return descriptor_source


def decode_proto(
    bytes: Any,
    message_type: str,
    field_names: Sequence[str],
    output_types: Sequence[Any],
    descriptor_source: str | bytes = "local://",
    message_format: str = "binary",
    sanitize: bool = False,
    name: str | None = None,
) -> DecodeProtoV2:
    """Reads fields of serialized protocol messages.

    Args:
      bytes: strings of any shape, the messages.
      message_type: full name of their type, such as "tensorflow.Example".
      field_names: names of the fields; extensions have their full names.
      output_types: a dtype for each field; string for messages, int32 for enumerations.
      descriptor_source: source of the type: "local://" for messages of this process, `b"bytes://..."` with a serialized
        `FileDescriptorSet`, or the path of a file with one.
      message_format: "binary" or "text".
      sanitize: whether messages are parsed and written again first, which moves unknown fields to their ends.
      name: name of the operation; "DecodeProtoV2" if None.

    Returns:
      A pair: `sizes`, of the shape of `bytes` with a further last axis, how many values each message has of each field;
      and `values`, for each field a tensor with a further last axis, padded with the field's default.

    Raises:
      InvalidArgumentError: in a run, if there is no such type or field, or a field has not this dtype.
      DataLossError: in a run, if a string is no message.

    Source: TensorFlow's `tf.io.decode_proto`.

    Example:
      >>> import headrace as hr
      >>> found = hr.io.decode_proto([b"\\n\\x01a", b""], "tensorflow.BytesList", ["value"], [hr.string])
      >>> found.sizes.numpy().tolist(), found.values[0].numpy().tolist()
      ([[1], [0]], [[b'a'], [b'']])
    """
    attrs = {
        "message_type": message_type,
        "field_names": tuple(field_names),
        "output_types": tuple(dtypes.as_dtype(t) for t in output_types),
        "descriptor_source": _source(descriptor_source),
        "message_format": message_format,
        "sanitize": sanitize,
    }
    made = scopes.builder(bytes).make("DecodeProtoV2", (bytes,), attrs, name)
    sizes, *values = made if output_types else [made]
    return DecodeProtoV2(sizes, values)


def encode_proto(
    sizes: Any,
    values: Sequence[Any],
    field_names: Sequence[str],
    message_type: str,
    descriptor_source: str | bytes = "local://",
    name: str | None = None,
) -> Tensor:
    """Serializes protocol messages with given values of their fields.

    Args:
      sizes: int32, how many values each message has of each field; its last axis has an entry for each field.
      values: for each field a tensor with the values of each message along its last axis.
      field_names: names of the fields.
      message_type: full name of the type of the messages.
      descriptor_source: source of the type; see `decode_proto`.
      name: name of the operation; "EncodeProto" if None.

    Returns:
      A string tensor of the shape of `sizes` without its last axis.

    Raises:
      InvalidArgumentError: in a run, if there is no such type or field, a field has not this dtype, or shapes do not
        fit.

    Source: TensorFlow's `tf.io.encode_proto`.

    Example:
      >>> import headrace as hr
      >>> hr.io.encode_proto([[2]], [[[b"a", b"bc"]]], ["value"], "tensorflow.BytesList").numpy()
      array([b'\\n\\x01a\\n\\x02bc'], dtype=object)
    """
    attrs = {
        "field_names": tuple(field_names),
        "message_type": message_type,
        "descriptor_source": _source(descriptor_source),
    }
    return scopes.builder(sizes, *values).make("EncodeProto", (sizes, list(values)), attrs, name)
