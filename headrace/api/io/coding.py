"""Decoding and encoding of strings: numbers, fields of lines, tensors, compressed strings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from headrace import dtypes, nest
from headrace.api import scopes
from headrace.ir.tensor_type import Tensor


def decode_raw(
    input_bytes: Any, out_type: Any, little_endian: bool = True, fixed_length: Any = None, name: str | None = None
) -> Tensor:
    """Reinterprets the bytes of strings as numbers.

    Args:
      input_bytes: strings of one length; of any lengths if `fixed_length` is given.
      out_type: dtype of the numbers.
      little_endian: whether the first byte of a number is the least significant one.
      fixed_length: number of bytes to use of each string, an int scalar; shorter strings are padded with zeros.
      name: name of the operation; "DecodeRaw" or "DecodePaddedRaw" if None.

    Returns:
      A tensor with a further last axis: the numbers of a string.

    Raises:
      InvalidArgumentError: in a run, if the lengths of the strings differ or are not multiples of the size of a number.

    Source: TensorFlow's `tf.io.decode_raw`.

    Example:
      >>> import headrace as hr
      >>> hr.io.decode_raw(b"\\x01\\x00\\x02\\x00", hr.int16)
      <EagerTensor shape=[2] dtype=int16: array([1, 2], dtype=int16)>
    """
    attrs = {"out_type": dtypes.as_dtype(out_type), "little_endian": little_endian}
    b = scopes.builder(input_bytes, fixed_length)
    if fixed_length is None:
        return b.make("DecodeRaw", (input_bytes,), attrs, name)
    return b.make("DecodePaddedRaw", (input_bytes, fixed_length), attrs, name)


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """Parses the columns of CSV lines.

    Args:
      records: strings, one line each (RFC 4180).
      record_defaults: for each selected column a vector of its dtype: one element, the value of an empty field, or
        empty if the field is required. A scalar is accepted too.
      field_delim: the character between fields.
      use_quote_delim: whether fields may be enclosed in double quotes.
      na_value: a text that is treated as an empty field.
      select_cols: the indices of the columns to parse, ascending; None: all.
      name: name of the operation; "DecodeCSV" if None.

    Returns:
      A tensor for each column, of the shape of `records`.

    Raises:
      ValueError: `select_cols` is not ascending, or not as long as `record_defaults`.
      InvalidArgumentError: in a run, if a line has another number of fields, or a field cannot be converted.

    Source: TensorFlow's `tf.io.decode_csv`.

    Example:
      >>> import headrace as hr
      >>> hr.io.decode_csv(["1,a", ",b"], [[7], [""]])[0]
      <EagerTensor shape=[2] dtype=int32: array([1, 7], dtype=int32)>
    """
    columns = list(select_cols or ())
    if any(x >= y for x, y in itertools.pairwise(columns)):
        raise ValueError(f"select_cols is not strictly increasing: {columns}")
    if columns and columns[0] < 0:
        raise ValueError(f"select_cols contains negative values: {columns}")
    if select_cols is not None and len(columns) != len(record_defaults):
        raise ValueError(
            f"Length of select_cols and record_defaults do not match: {len(columns)} and {len(record_defaults)}"
        )
    attrs = {
        "field_delim": field_delim,
        "use_quote_delim": use_quote_delim,
        "na_value": na_value,
        "select_cols": columns,
    }
    b = scopes.builder(records, *record_defaults)
    lines = b.tensor(records, dtypes.string, "DecodeCSV/records")
    defaults = [b.tensor(x, None, f"DecodeCSV/record_defaults_{i}") for i, x in enumerate(record_defaults)]
    made = b.make("DecodeCSV", (lines, defaults), attrs, name)
    return nest.as_list(made)


def decode_compressed(bytes: Any, compression_type: str = "", name: str | None = None) -> Tensor:
    """Decompresses strings.

    Args:
      bytes: strings.
      compression_type: "ZLIB", "GZIP" or "" (no compression).
      name: name of the operation; "DecodeCompressed" if None.

    Source: TensorFlow's `tf.io.decode_compressed`.

    Example:
      >>> import headrace as hr
      >>> import zlib
      >>> hr.io.decode_compressed(zlib.compress(b"cat"), "ZLIB").numpy()
      b'cat'
    """
    return scopes.builder(bytes).make("DecodeCompressed", (bytes,), {"compression_type": compression_type}, name)


def serialize_tensor(tensor: Any, name: str | None = None) -> Tensor:
    """Converts a tensor to a string, a serialized `TensorProto`.

    Args:
      tensor: a tensor.
      name: name of the operation; "SerializeTensor" if None.

    Source: TensorFlow's `tf.io.serialize_tensor`.

    Example:
      >>> import headrace as hr
      >>> hr.io.parse_tensor(hr.io.serialize_tensor([1, 2]), hr.int32)
      <EagerTensor shape=[2] dtype=int32: array([1, 2], dtype=int32)>
    """
    return scopes.builder(tensor).make("SerializeTensor", (tensor,), {}, name)


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Tensor:
    """Converts a string, a serialized `TensorProto`, to a tensor.

    Args:
      serialized: a string scalar.
      out_type: dtype of the tensor.
      name: name of the operation; "ParseTensor" if None.

    Raises:
      InvalidArgumentError: in a run, if the string is not such a message, or the tensor has another dtype.

    Source: TensorFlow's `tf.io.parse_tensor`.

    Example:
      >>> import headrace as hr
      >>> hr.io.parse_tensor(hr.io.serialize_tensor([1, 2]), hr.int32).numpy()
      array([1, 2], dtype=int32)
    """
    attrs = {"out_type": dtypes.as_dtype(out_type)}
    return scopes.builder(serialized).make("ParseTensor", (serialized,), attrs, name)


def decode_json_example(json_examples: Any, name: str | None = None) -> Tensor:
    """Converts JSON texts to serialized examples.

    Args:
      json_examples: strings: `tensorflow.Example` messages in JSON.
      name: name of the operation; "DecodeJSONExample" if None.

    Source: TensorFlow's `tf.io.decode_json_example`.

    Example:
      >>> import headrace as hr
      >>> text = '{"features": {"feature": {"x": {"floatList": {"value": [0.5]}}}}}'
      >>> serialized = hr.io.decode_json_example(text)
      >>> hr.io.parse_single_example(serialized, {"x": hr.io.FixedLenFeature([1], hr.float32)})["x"].numpy()
      array([0.5], dtype=float32)
    """
    return scopes.builder(json_examples).make("DecodeJSONExample", (json_examples,), {}, name)
