"""Strings of bytes.

A function that returns a different number of strings for each string (`split`) returns a `SparseTensor`, or takes a
single string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, nest, public_names, shapes
from headrace.api import arrays, reductions, scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.strings.unicode import single_string
from headrace.api.strings.unicode import unicode_decode as unicode_decode
from headrace.api.strings.unicode import unicode_decode_with_offsets as unicode_decode_with_offsets
from headrace.api.strings.unicode import unicode_encode as unicode_encode
from headrace.api.strings.unicode import unicode_script as unicode_script
from headrace.api.strings.unicode import unicode_split as unicode_split
from headrace.api.strings.unicode import unicode_split_with_offsets as unicode_split_with_offsets
from headrace.api.strings.unicode import unicode_transcode as unicode_transcode
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """Joins tensors of strings element by element; scalars are broadcast.

    Args:
      inputs: a list of string tensors of the same shape, or scalars.
      separator: the text between the strings.
      name: name of the operation; "StringJoin" if None.

    Source: TensorFlow's `tf.strings.join`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.join([["a", "b"], ["c", "d"]], "-").numpy()
      array([b'a-c', b'b-d'], dtype=object)
    """
    return scopes.builder(*inputs).make("StringJoin", (list(inputs),), {"separator": separator}, name)


def reduce_join(
    inputs: Any, axis: Any = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Tensor:
    """Joins the strings of a tensor along axes.

    Args:
      inputs: a string tensor.
      axis: index of an axis, or a list in the order of joining; None: all axes.
      keepdims: whether the axes are kept, with length 1.
      separator: the text between the strings.
      name: name of the scope; "ReduceJoin" if None.

    Source: TensorFlow's `tf.strings.reduce_join`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.reduce_join([["a", "b"], ["c", "d"]], 1).numpy()
      array([b'ab', b'cd'], dtype=object)
    """
    with scopes.name_scope(name, "ReduceJoin", [inputs, axis]):
        b = scopes.builder(inputs, axis)
        x = b.tensor(inputs, None, "inputs")
        attrs = {"keep_dims": keepdims, "separator": separator}
        return b.make("ReduceJoin", (x, reductions.axes_of(b, x, axis)), attrs)


def format(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> Tensor:
    """Formats tensors with a template: a string scalar.

    Args:
      template: text with one placeholder for each tensor.
      inputs: a tensor, or a list of tensors.
      placeholder: the text of a placeholder.
      summarize: number of elements to print at each end of an axis; -1: all.
      name: name of the operation; "StringFormat" if None.

    Raises:
      ValueError: the numbers of placeholders and tensors differ.

    Source: TensorFlow's `tf.strings.format`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.format("x: {}", [hr.constant([1, 2])]).numpy()
      b'x: [1 2]'
    """
    items = nest.as_list(inputs)
    if template.count(placeholder) != len(items):
        raise ValueError(
            f"{len(items)} placeholder(s) {placeholder!r} needed in the template for as many tensors, found "
            f"{template.count(placeholder)}: {template!r}"
        )
    attrs = {"template": template, "placeholder": placeholder, "summarize": summarize}
    b = scopes.builder(*items)
    return b.make("StringFormat", ([b.tensor(x) for x in items],), attrs, name)


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Converts numbers to strings.

    Args:
      input: a tensor of numbers or bools.
      precision: number of digits after the decimal point of floats; -1: the default of C's printf.
      scientific: whether floats have exponents (the format %e).
      shortest: whether floats have the shorter of %e and %f (the format %g).
      width: the least number of characters; -1: no padding.
      fill: the character for padding, "" for a blank.
      name: name of the operation; "AsString" if None.

    Source: TensorFlow's `tf.strings.as_string`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.as_string([1, 25]).numpy()
      array([b'1', b'25'], dtype=object)
    """
    attrs = {"precision": precision, "scientific": scientific, "shortest": shortest, "width": width, "fill": fill}
    return scopes.builder(input).make("AsString", (input,), attrs, name)


def to_number(input: Any, out_type: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Converts strings to numbers.

    Args:
      input: a string tensor.
      out_type: float32, float64, int32 or int64.
      name: name of the operation; "StringToNumber" if None.

    Source: TensorFlow's `tf.strings.to_number`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.to_number(["1.5", "-2"]).numpy()
      array([ 1.5, -2. ], dtype=float32)
    """
    return scopes.builder(input).make("StringToNumber", (input,), {"out_type": dtypes.as_dtype(out_type)}, name)


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Tensor:
    """Computes the lengths of strings.

    Args:
      input: a string tensor.
      unit: "BYTE", or "UTF8_CHAR" for characters of UTF-8.
      name: name of the operation; "StringLength" if None.

    Source: TensorFlow's `tf.strings.length`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.length(["cat", ""]).numpy()
      array([3, 0], dtype=int32)
    """
    return scopes.builder(input).make("StringLength", (input,), {"unit": unit}, name)


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Tensor:
    """Extracts the substring of length `len` at `pos` of each string.

    Args:
      input: a string tensor.
      pos, len: int scalars, or ints of the shape of `input`. A negative `pos` counts from the end.
      unit: "BYTE" or "UTF8_CHAR".
      name: name of the operation; "Substr" if None.

    Source: TensorFlow's `tf.strings.substr`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.substr("headrace", 4, 4).numpy()
      b'race'
    """
    return scopes.builder(input, pos, len).make("Substr", (input, pos, len), {"unit": unit}, name)


def lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Converts strings to lower case.

    Args:
      input: a string tensor.
      encoding: "": only ASCII letters are converted; "utf-8": all letters.
      name: name of the operation; "StringLower" if None.

    Source: TensorFlow's `tf.strings.lower`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.lower("Cat").numpy()
      b'cat'
    """
    return scopes.builder(input).make("StringLower", (input,), {"encoding": encoding}, name)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Converts strings to upper case.

    Args:
      input: a string tensor.
      encoding: "": only ASCII letters are converted; "utf-8": all letters.
      name: name of the operation; "StringUpper" if None.

    Source: TensorFlow's `tf.strings.upper`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.upper("Cat").numpy()
      b'CAT'
    """
    return scopes.builder(input).make("StringUpper", (input,), {"encoding": encoding}, name)


def strip(input: Any, name: str | None = None) -> Tensor:
    """Removes the white space at both ends of strings.

    Args:
      input: a string tensor.
      name: name of the operation; "StringStrip" if None.

    Source: TensorFlow's `tf.strings.strip`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.strip(" cat ").numpy()
      b'cat'
    """
    return scopes.builder(input).make("StringStrip", (input,), {}, name)


# *** parts ***


def split(input: Any, sep: Any = None, maxsplit: int = -1, name: str | None = None) -> SparseTensor:
    """Splits strings at a separator.

    Args:
      input: a vector of strings, or one string.
      sep: the separator. If None or empty, strings are split at runs of white space, and white space at the ends is
        removed.
      maxsplit: the largest number of splits of a string; -1: unlimited.
      name: name of the scope; "StringSplit" if None.

    Returns:
      A sparse tensor, [strings, greatest number of parts]: a row for each string.

    Source: TensorFlow's `tf.compat.v1.strings.split`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.to_dense(hr.strings.split(["a b", "c"]), "")
      <EagerTensor shape=[2,2] dtype=string: array([[b'a', b'b'],
             [b'c', b'']], dtype=object)>
    """
    with scopes.name_scope(name, "StringSplit", [input]):
        b = scopes.builder(input, sep)
        x = b.tensor(input, dtypes.string)
        if x.shape == ():
            x = arrays.expand_dims(x, 0)
        separator = b.tensor("" if sep is None else sep, dtypes.string)
        return SparseTensor(*b.make("StringSplitV2", (x, separator), {"maxsplit": maxsplit}))


def string_split(
    source: Any, sep: Any = None, skip_empty: bool = True, delimiter: Any = None, name: str | None = None
) -> SparseTensor:
    """Splits strings at single characters.

    Args:
      source: a vector of strings.
      sep: a string, each byte of which is a separator; a blank if None. If it is empty, each byte is a part.
      skip_empty: whether empty parts are dropped.
      delimiter: another name of `sep`.
      name: name of the scope; "StringSplit" if None.

    Returns:
      A sparse tensor, [strings, greatest number of parts].

    Raises:
      ValueError: both `sep` and `delimiter` are given.

    Source: TensorFlow's `tf.compat.v1.string_split`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.string_split(["a b", "c"]).values.numpy()
      array([b'a', b'b', b'c'], dtype=object)
    """
    if sep is not None and delimiter is not None:
        raise ValueError("'sep' and 'delimiter' are the same; give one of them")
    separator = next((x for x in (sep, delimiter) if x is not None), " ")
    with scopes.name_scope(name, "StringSplit", [source]):
        b = scopes.builder(source, separator)
        args = (b.tensor(source, dtypes.string), b.tensor(separator, dtypes.string))
        return SparseTensor(*b.make("StringSplit", args, {"skip_empty": skip_empty}))


def bytes_split(input: Any, name: str | None = None) -> Any:
    """Splits one string into its bytes: a vector of strings.

    Args:
      input: a string scalar.
      name: name of the scope; "StringsByteSplit" if None.

    Raises:
      ValueError: `input` does not have the static shape of a scalar. (`split` accepts several strings.)

    Source: TensorFlow's `tf.strings.bytes_split`, as far as its results are not ragged.

    Example:
      >>> import headrace as hr
      >>> hr.strings.bytes_split("ab")
      <EagerTensor shape=[2] dtype=string: array([b'a', b'b'], dtype=object)>
    """
    with scopes.name_scope(name, "StringsByteSplit", [input]):
        b = scopes.builder(input)
        one = arrays.expand_dims(single_string(b, input, "bytes_split"), 0)
        return b.make("StringSplit", (one, ""), {"skip_empty": False})[1]


def ngrams(
    data: Any,
    ngram_width: int | Sequence[int],
    separator: str = " ",
    pad_values: str | tuple[str, str] | None = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Tensor:
    """Joins all runs of neighbouring strings of a vector (n-grams).

    Args:
      data: a vector of strings.
      ngram_width: length of the runs, or a list of lengths. The runs of the first length come first.
      separator: the text between the strings of a run.
      pad_values: strings that pad the vector at the start and the end: a pair, or one for both. None: no padding.
      padding_width: the largest number of pads at each end; None: the length of the runs minus 1.
      preserve_short_sequences: whether a vector shorter than the length gives one run of all its strings.
      name: name of the operation; "StringNGrams" if None.

    Raises:
      TypeError: `pad_values` is not a string, a pair of strings or None.
      ValueError: a width is not positive, `padding_width` without `pad_values`, or `data` is not a vector.

    Source: TensorFlow's `tf.strings.ngrams`, as far as its results are not ragged.

    Example:
      >>> import headrace as hr
      >>> hr.strings.ngrams(["a", "b", "c"], 2)
      <EagerTensor shape=[2] dtype=string: array([b'a b', b'b c'], dtype=object)>
    """
    widths = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
    if any(w < 1 for w in widths):
        raise ValueError(f"All ngram_widths must be greater than 0. Got {ngram_width}")
    if isinstance(pad_values, (str, bytes)):
        pad_values = (pad_values, pad_values)
    if pad_values is not None and not (
        isinstance(pad_values, (tuple, list)) and len(pad_values) == 2
        and all(isinstance(p, (str, bytes)) for p in pad_values)
    ):  # fmt: skip
        raise TypeError(f"pad_values must be a string, a pair of strings, or None; got {pad_values!r}")
    if padding_width is not None and pad_values is None:
        raise ValueError("pad_values must be provided if padding_width is set.")
    if padding_width is not None and padding_width < 1:
        raise ValueError(f"padding_width must be greater than 0. Got {padding_width}")
    b = scopes.builder(data)
    x = b.tensor(data, dtypes.string)
    if x.shape is None or len(x.shape) != 1:
        raise ShapeError(f"ngrams takes a vector of strings, got shape {shapes.show(x.shape)}")
    left, right = ("", "") if pad_values is None else pad_values
    attrs = {
        "separator": separator,
        "ngram_widths": widths,
        "left_pad": left,
        "right_pad": right,
        "pad_width": 0 if pad_values is None else -1 if padding_width is None else padding_width,
        "preserve_short_sequences": preserve_short_sequences,
    }
    ends = arrays.pad(arrays.shape(x, dtypes.int64), [[1, 0]])
    return b.make("StringNGrams", (x, ends), attrs, name)[0]


# *** patterns, buckets, codes ***


def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Tensor:
    """Whether each string as a whole matches a regular expression.

    Args:
      input: strings.
      pattern: a regular expression in RE2's syntax: text, or a string scalar.
      name: name of the operation.

    Raises:
      InvalidArgumentError: in a run, if the pattern is invalid.

    Source: TensorFlow's `tf.strings.regex_full_match`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.regex_full_match(["aab", "abc"], "a+b")
      <EagerTensor shape=[2] dtype=bool: array([ True, False])>
    """
    b = scopes.builder(input, pattern)
    if isinstance(pattern, (str, bytes)):
        return b.make("StaticRegexFullMatch", (input,), {"pattern": pattern}, name)
    return b.make("RegexFullMatch", (input, pattern), {}, name)


def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None
) -> Tensor:
    """Replaces the matches of a regular expression in strings.

    Args:
      input: strings.
      pattern: a regular expression in RE2's syntax: text, or a string scalar.
      rewrite: the replacement; \\1 to \\9 stand for the text of the groups of the pattern, \\0 for the whole match.
      replace_global: whether all matches are replaced; otherwise only the first.
      name: name of the operation.

    Raises:
      InvalidArgumentError: in a run, if the pattern is invalid, or `rewrite` names a group that the pattern does not
        have.

    Source: TensorFlow's `tf.strings.regex_replace`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.regex_replace("a1b22", "[0-9]+", "#")
      <EagerTensor shape=[] dtype=string: b'a#b#'>
    """
    b = scopes.builder(input, pattern, rewrite)
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        attrs = {"pattern": pattern, "rewrite": rewrite, "replace_global": replace_global}
        return b.make("StaticRegexReplace", (input,), attrs, name)
    return b.make("RegexReplace", (input, pattern, rewrite), {"replace_global": replace_global}, name)


def to_hash_bucket(input: Any, num_buckets: int, name: str | None = None) -> Tensor:
    """Hashes strings to numbers below `num_buckets`; other versions may use another hash.

    Args:
      input: a string tensor.
      num_buckets: number of buckets, a positive int.
      name: name of the operation; "StringToHashBucket" if None.

    Source: TensorFlow's `tf.compat.v1.strings.to_hash_bucket`.

    Example:
      >>> import headrace as hr
      >>> int(hr.strings.to_hash_bucket("cat", 10)) in range(10)
      True
    """
    return scopes.builder(input).make("StringToHashBucket", (input,), {"num_buckets": num_buckets}, name)


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Tensor:
    """Hashes strings to numbers below `num_buckets` by a fixed hash function.

    The function is FarmHash's Fingerprint64, whose values are the same in all versions.

    Args:
      input: a string tensor.
      num_buckets: number of buckets, a positive int.
      name: name of the operation; "StringToHashBucketFast" if None.

    Source: TensorFlow's `tf.strings.to_hash_bucket_fast`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.to_hash_bucket_fast(["Hello", "TensorFlow"], 3)
      <EagerTensor shape=[2] dtype=int64: array([0, 2])>
    """
    return scopes.builder(input).make("StringToHashBucketFast", (input,), {"num_buckets": num_buckets}, name)


def to_hash_bucket_strong(input: Any, num_buckets: int, key: Sequence[int], name: str | None = None) -> Tensor:
    """Hashes strings to numbers below `num_buckets` with a keyed hash function.

    The function is SipHash. Without the key, colliding strings cannot be constructed.

    Args:
      input: strings.
      num_buckets: number of buckets, a positive int.
      key: the key of the hash function, two ints.
      name: name of the operation.

    Source: TensorFlow's `tf.strings.to_hash_bucket_strong`.

    Example:
      >>> import headrace as hr
      >>> int(hr.strings.to_hash_bucket_strong("cat", 10, [1, 2])) in range(10)
      True
    """
    attrs = {"num_buckets": num_buckets, "key": key}
    return scopes.builder(input).make("StringToHashBucketStrong", (input,), attrs, name)


def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Tensor:
    """Encodes strings in web-safe base64.

    Args:
      input: strings.
      pad: whether the last group is padded with "=".
      name: name of the operation.

    Source: TensorFlow's `tf.io.encode_base64`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.encode_base64("cat").numpy()
      b'Y2F0'
    """
    return scopes.builder(input).make("EncodeBase64", (input,), {"pad": pad}, name)


def decode_base64(input: Any, name: str | None = None) -> Tensor:
    """Decodes strings in web-safe base64; see `encode_base64`.

    Args:
      input: a string tensor.
      name: name of the operation; "DecodeBase64" if None.

    Raises:
      InvalidArgumentError: in a run, if a string is not base64.

    Source: TensorFlow's `tf.io.decode_base64`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.decode_base64("Y2F0").numpy()
      b'cat'
    """
    return scopes.builder(input).make("DecodeBase64", (input,), {}, name)


def unsorted_segment_join(
    inputs: Any, segment_ids: Any, num_segments: Any, separator: str = "", name: str | None = None
) -> Tensor:
    """Joins the strings of each segment.

    Args:
      inputs: strings.
      segment_ids: the segment of each string, or of each row: ints whose shape is that of the first axes of `inputs`.
        Strings with a negative id are dropped.
      num_segments: number of segments, an int scalar.
      separator: the text between the strings.
      name: name of the operation; "UnsortedSegmentJoin" if None.

    Source: TensorFlow's `tf.strings.unsorted_segment_join`.

    Example:
      >>> import headrace as hr
      >>> hr.strings.unsorted_segment_join(["a", "b", "c"], [1, 0, 1], 2, "-")
      <EagerTensor shape=[2] dtype=string: array([b'b', b'a-c'], dtype=object)>
    """
    args = (inputs, segment_ids, num_segments)
    return scopes.builder(*args).make("UnsortedSegmentJoin", args, {"separator": separator}, name)


# fmt: off
__all__ = [
    "as_string", "bytes_split", "decode_base64", "encode_base64", "format", "join", "length", "lower", "ngrams",
    "reduce_join", "regex_full_match", "regex_replace", "split", "string_split", "strip", "substr", "to_hash_bucket",
    "to_hash_bucket_fast", "to_hash_bucket_strong", "to_number", "unicode_decode", "unicode_decode_with_offsets",
    "unicode_encode", "unicode_script", "unicode_split", "unicode_split_with_offsets", "unicode_transcode",
    "unsorted_segment_join", "upper",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
