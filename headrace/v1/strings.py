"""TensorFlow 1's `tf.strings`, for the ops that headrace has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import strings
from headrace.api.sparse_tensor import SparseTensor
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph

join = in_default_graph(strings.join)
reduce_join = named(
    strings.reduce_join, "inputs axis keep_dims=keepdims separator name reduction_indices=axis keepdims"
)
format = in_default_graph(strings.format)
as_string = in_default_graph(strings.as_string)
to_number = named(strings.to_number, "string_tensor=input out_type name input")
length = named(strings.length, "input name unit")
substr = named(strings.substr, "input pos len name unit")
lower = in_default_graph(strings.lower)
upper = in_default_graph(strings.upper)
strip = in_default_graph(strings.strip)
bytes_split = in_default_graph(strings.bytes_split)
ngrams = in_default_graph(strings.ngrams)
regex_full_match = in_default_graph(strings.regex_full_match)
regex_replace = in_default_graph(strings.regex_replace)
to_hash_bucket = named(strings.to_hash_bucket, "string_tensor=input num_buckets name input")
to_hash_bucket_fast = in_default_graph(strings.to_hash_bucket_fast)
to_hash_bucket_strong = in_default_graph(strings.to_hash_bucket_strong)
unicode_decode = in_default_graph(strings.unicode_decode)
unicode_decode_with_offsets = in_default_graph(strings.unicode_decode_with_offsets)
unicode_encode = in_default_graph(strings.unicode_encode)
unicode_script = in_default_graph(strings.unicode_script)
unicode_split = in_default_graph(strings.unicode_split)
unicode_split_with_offsets = in_default_graph(strings.unicode_split_with_offsets)
unicode_transcode = in_default_graph(strings.unicode_transcode)
unsorted_segment_join = in_default_graph(strings.unsorted_segment_join)


@in_default_graph
def split(
    input: Any = None,
    sep: Any = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: Any = None,
    name: str | None = None,
) -> Any:
    """The parts of strings between separators; `source` is an older name of `input`. See `headrace.strings.split`.

    Raises:
      ValueError: `result_type` is neither "SparseTensor" nor "RaggedTensor", or no strings are given.

    Source: TensorFlow's `tf.strings.split`.
    """
    _check_result(result_type)
    if (input is None) == (source is None):
        raise ValueError("split needs `input`, or `source`: one of the two")
    return _as_wanted(strings.split(source if input is None else input, sep, maxsplit, name), result_type)


@in_default_graph
def string_split(
    source: Any,
    sep: Any = None,
    skip_empty: bool = True,
    delimiter: Any = None,
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> Any:
    """The parts of strings between single characters. See `headrace.strings.string_split`.

    Raises:
      ValueError: `result_type` is neither "SparseTensor" nor "RaggedTensor", or there are two separators.

    Source: TensorFlow's `tf.string_split`.
    """
    _check_result(result_type)
    return _as_wanted(strings.string_split(source, sep, skip_empty, delimiter, name), result_type)


def _check_result(result_type: str) -> None:
    if result_type not in ("SparseTensor", "RaggedTensor"):
        raise ValueError(f"result_type must be 'RaggedTensor' or 'SparseTensor', got {result_type!r}")


def _as_wanted(parts: SparseTensor, result_type: str) -> Any:
    if result_type == "SparseTensor":
        return parts
    from headrace.v1.ragged.ragged_tensor import RaggedTensor

    return RaggedTensor.from_value_rowids(parts.values, parts.indices[:, 0], nrows=parts.dense_shape[0], validate=False)


# fmt: off
__all__ = [
    "as_string", "bytes_split", "format", "join", "length", "lower", "ngrams", "reduce_join", "regex_full_match",
    "regex_replace", "split", "string_split", "strip", "substr", "to_hash_bucket", "to_hash_bucket_fast",
    "to_hash_bucket_strong", "to_number", "unicode_decode", "unicode_decode_with_offsets", "unicode_encode",
    "unicode_script", "unicode_split", "unicode_split_with_offsets", "unicode_transcode", "unsorted_segment_join",
    "upper",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
