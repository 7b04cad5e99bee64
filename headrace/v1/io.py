"""TensorFlow 1's `tf.io`: features and numbers in strings, files, images, queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import io
from headrace.api.io import FixedLenFeature as FixedLenFeature
from headrace.api.io import FixedLenSequenceFeature as FixedLenSequenceFeature
from headrace.api.io import SparseFeature as SparseFeature
from headrace.api.io import VarLenFeature as VarLenFeature
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph
from headrace.v1.image import decode_and_crop_jpeg as decode_and_crop_jpeg
from headrace.v1.image import decode_bmp as decode_bmp
from headrace.v1.image import decode_gif as decode_gif
from headrace.v1.image import decode_image as decode_image
from headrace.v1.image import decode_jpeg as decode_jpeg
from headrace.v1.image import decode_png as decode_png
from headrace.v1.image import decode_webp as decode_webp
from headrace.v1.image import encode_jpeg as encode_jpeg
from headrace.v1.image import encode_png as encode_png
from headrace.v1.image import extract_jpeg_shape as extract_jpeg_shape
from headrace.v1.image import is_jpeg as is_jpeg
from headrace.v1.python_io import TFRecordCompressionType as TFRecordCompressionType
from headrace.v1.python_io import TFRecordOptions as TFRecordOptions
from headrace.v1.python_io import TFRecordWriter as TFRecordWriter
from headrace.v1.python_io import tf_record_iterator as tf_record_iterator
from headrace.v1.queue import PaddingFIFOQueue as PaddingFIFOQueue
from headrace.v1.queue import PriorityQueue as PriorityQueue
from headrace.v1.queue import QueueBase as QueueBase
from headrace.v1.queue import RandomShuffleQueue as RandomShuffleQueue
from headrace.v1.readers import matching_files as matching_files
from headrace.v1.readers import read_file as read_file
from headrace.v1.readers import write_file as write_file
from headrace.v1.sparse import deserialize_many_sparse as deserialize_many_sparse
from headrace.v1.sparse import serialize_many_sparse as serialize_many_sparse
from headrace.v1.sparse import serialize_sparse as serialize_sparse

decode_base64 = in_default_graph(io.decode_base64)
encode_base64 = in_default_graph(io.encode_base64)
decode_compressed = in_default_graph(io.decode_compressed)
decode_csv = named(
    io.decode_csv, "records record_defaults field_delim use_quote_delim name na_value select_cols", "decode_csv"
)
decode_json_example = in_default_graph(io.decode_json_example)
decode_raw = named(io.decode_raw, "input_bytes out_type little_endian name bytes=input_bytes")
decode_proto = in_default_graph(io.decode_proto)
encode_proto = in_default_graph(io.encode_proto)
serialize_tensor = in_default_graph(io.serialize_tensor)
parse_tensor = in_default_graph(io.parse_tensor)


def _parser(parse: Callable[..., Any]) -> Any:
    """A function that parses features of examples, also ragged ones."""

    def function(serialized: Any, features: Any, example_names: Any = None, name: str | None = None) -> Any:
        if features and any(type(f).__name__ == "RaggedFeature" for f in features.values()):
            from headrace.v1.ragged import features as ragged

            return ragged.parsed(lambda others: parse(serialized, others, example_names, name), features)
        return parse(serialized, features, example_names, name)

    function.__name__, function.__doc__ = parse.__name__, parse.__doc__
    return named(function, "serialized features name example_names", parse.__name__)


parse_example = _parser(io.parse_example)
parse_single_example = _parser(io.parse_single_example)
parse_sequence_example = in_default_graph(io.parse_sequence_example)
parse_single_sequence_example = in_default_graph(io.parse_single_sequence_example)

# Imported on first use.
_LATER = {
    "RaggedFeature": "headrace.v1.ragged.features:RaggedFeature",
    "gfile": "headrace.v1.files",
    "match_filenames_once": "headrace.v1.input:match_filenames_once",
    "write_graph": "headrace.v1.exporting:write_graph",
}

if TYPE_CHECKING:
    from headrace.v1 import files as gfile
    from headrace.v1.exporting import write_graph
    from headrace.v1.input import match_filenames_once
    from headrace.v1.ragged.features import RaggedFeature

# fmt: off
__all__ = [
    "FixedLenFeature", "FixedLenSequenceFeature", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RaggedFeature",
    "RandomShuffleQueue", "SparseFeature", "TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter",
    "VarLenFeature", "decode_and_crop_jpeg", "decode_base64", "decode_bmp", "decode_compressed", "decode_csv",
    "decode_gif", "decode_image", "decode_jpeg", "decode_json_example", "decode_png", "decode_proto", "decode_raw",
    "decode_webp", "deserialize_many_sparse", "encode_base64", "encode_jpeg", "encode_png", "encode_proto",
    "extract_jpeg_shape", "gfile", "is_jpeg", "match_filenames_once", "matching_files", "parse_example",
    "parse_sequence_example", "parse_single_example", "parse_single_sequence_example", "parse_tensor", "read_file",
    "serialize_many_sparse", "serialize_sparse", "serialize_tensor", "tf_record_iterator", "write_file", "write_graph",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
