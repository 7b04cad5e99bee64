"""Unicode text: characters of strings and their code points. `hr.strings` exports all names."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, reductions, scopes
from headrace.errors import ShapeError


def single_string(b: Any, x: Any, what: str) -> Any:
    """Converts `x` to a string scalar; `what` is the calling function, for the error.

    Raises:
      ShapeError (a ValueError): `x` does not have the static shape of a scalar.
    """
    t = b.tensor(x, dtypes.string, "input")
    if t.shape != ():
        raise ShapeError(
            f"{what} takes one string (shape []), got shape {shapes.show(t.shape)}: the results of several would be "
            "of different lengths"
        )
    return t


def unicode_script(input: Any, name: str | None = None) -> Any:
    """Returns the script of each code point: ICU's number, -1 for an invalid code point.

    Args:
      input: int32: Unicode code points.
      name: name of the operation; "UnicodeScript" if None.

    Source: TensorFlow's `tf.strings.unicode_script`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.unicode_script([ord("a"), ord("β")]).numpy()
      array([25, 14], dtype=int32)
    """
    return scopes.builder(input).make("UnicodeScript", (input,), {}, name)


def unicode_transcode(
    input: Any,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """Converts strings from one encoding to another.

    Args:
      input: strings.
      input_encoding: the encoding of the strings, such as "UTF-8", "UTF-16-BE" or "US-ASCII".
      output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
      errors: treatment of invalid input: "replace", "ignore" (dropped) or "strict" (an error).
      replacement_char: the code point that replaces invalid input.
      replace_control_characters: whether control characters are replaced, too.
      name: name of the operation; "UnicodeTranscode" if None.

    Raises:
      InvalidArgumentError: in a run, if an encoding is unknown, or the input is invalid with "strict".

    Source: TensorFlow's `tf.strings.unicode_transcode`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.unicode_transcode("hé", "UTF-8", "UTF-16-BE")
      <EagerTensor shape=[] dtype=string: b'\\x00h\\x00\\xe9'>
    """
    attrs = {
        "input_encoding": input_encoding,
        "output_encoding": output_encoding,
        "errors": errors,
        "replacement_char": replacement_char,
        "replace_control_characters": replace_control_characters,
    }
    return scopes.builder(input).make("UnicodeTranscode", (input,), attrs, name)


def unicode_encode(
    input: Any, output_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Any:
    """Encodes code points to strings, one string for each row of the last axis.

    Args:
      input: int32 code points, of rank 1 or more.
      output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
      errors: treatment of invalid code points; see `unicode_transcode`.
      replacement_char: the code point that replaces invalid ones.
      name: name of the scope; "UnicodeEncode" if None.

    Raises:
      ValueError: `input` is a scalar, or its rank is unknown.

    Source: TensorFlow's `tf.strings.unicode_encode`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.unicode_encode([[104, 105], [104, 111]], "UTF-8")
      <EagerTensor shape=[2] dtype=string: array([b'hi', b'ho'], dtype=object)>
    """
    with scopes.name_scope(name, "UnicodeEncode", [input]):
        b = scopes.builder(input)
        x = b.tensor(input, dtypes.int32)
        if x.shape is None:
            raise ShapeError("Rank of input_tensor must be statically known.")
        if not x.shape:
            raise ShapeError("input_tensor's rank must be at least 1.")
        dims = arrays.shape(x, dtypes.int64)
        ends = reductions.range(reductions.reduce_prod(dims[:-1]) + 1, dtype=dtypes.int64) * dims[-1]
        attrs = {"output_encoding": output_encoding, "errors": errors, "replacement_char": replacement_char}
        made = b.make("UnicodeEncode", (arrays.reshape(x, [-1]), ends), attrs)
        return arrays.reshape(made, dims[:-1])


def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """Decodes one string to its code points: an int32 vector.

    Args:
      input: a string scalar.
      Others: see `unicode_transcode`.

    Raises:
      ValueError: `input` does not have the static shape of a scalar.

    Source: TensorFlow's `tf.strings.unicode_decode`, as far as its results are not ragged.

    Example:
      >>> import headrace as hr
      >>> hr.strings.unicode_decode("hé", "UTF-8")
      <EagerTensor shape=[2] dtype=int32: array([104, 233], dtype=int32)>
    """
    with scopes.name_scope(name, "UnicodeDecode", [input]):
        attrs = (input_encoding, errors, replacement_char, replace_control_characters)
        return _decoded(input, *attrs, "unicode_decode")[0]


def unicode_decode_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Decodes one string to its code points and their byte offsets.

    Args:
      Others: see `unicode_decode`.

    Returns:
      An int32 vector of code points, and an int64 vector of offsets.

    Source: TensorFlow's `tf.strings.unicode_decode_with_offsets`, as far as its results are not ragged.

    Example:
      >>> import headrace as hr
      >>> points, offsets = hr.strings.unicode_decode_with_offsets("a€b", "UTF-8")
      >>> points.numpy().tolist(), offsets.numpy().tolist()
      ([97, 8364, 98], [0, 1, 4])
    """
    with scopes.name_scope(name, "UnicodeDecodeWithOffsets", [input]):
        attrs = (input_encoding, errors, replacement_char, replace_control_characters)
        return _decoded(input, *attrs, "unicode_decode_with_offsets")


def _decoded(input: Any, encoding: str, errors: str, replacement: int, controls: bool, what: str) -> tuple[Any, Any]:
    b = scopes.builder(input)
    one = arrays.expand_dims(single_string(b, input, what), 0)
    attrs = {
        "input_encoding": encoding,
        "errors": errors,
        "replacement_char": replacement,
        "replace_control_characters": controls,
    }
    _, numbers, starts = b.make("UnicodeDecodeWithOffsets", (one,), attrs)
    return numbers, starts


def unicode_split(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Any:
    """Splits one string into its characters: a vector of strings in the same encoding.

    Args:
      input: a string scalar.
      input_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
      errors, replacement_char: see `unicode_transcode`.
      name: name of the scope; "UnicodeSplit" if None.

    Raises:
      ValueError: `input` does not have the static shape of a scalar.

    Source: TensorFlow's `tf.strings.unicode_split`, as far as its results are not ragged.

    Example:
      >>> import headrace as hr
      >>> hr.strings.unicode_split("hé", "UTF-8")
      <EagerTensor shape=[2] dtype=string: array([b'h', b'\\xc3\\xa9'], dtype=object)>
    """
    with scopes.name_scope(name, "UnicodeSplit", [input]):
        return unicode_split_with_offsets(input, input_encoding, errors, replacement_char)[0]


def unicode_split_with_offsets(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> tuple[Any, Any]:
    """Splits one string into its characters; returns them and their byte offsets.

    Args:
      Others: see `unicode_split`.

    Returns:
      A vector of strings, and an int64 vector of offsets.

    Source: TensorFlow's `tf.strings.unicode_split_with_offsets`, as far as its results are not ragged.

    Example:
      >>> import headrace as hr
      >>> parts, offsets = hr.strings.unicode_split_with_offsets("ab", "UTF-8")
      >>> parts.numpy().tolist(), offsets.numpy().tolist()
      ([b'a', b'b'], [0, 1])
    """
    with scopes.name_scope(name, "UnicodeSplitWithOffsets", [input]):
        numbers, starts = _decoded(input, input_encoding, errors, replacement_char, False, "unicode_split")
        one_each = arrays.expand_dims(numbers, 1)
        return unicode_encode(one_each, input_encoding, "replace", replacement_char), starts
