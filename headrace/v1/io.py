"""TensorFlow 1's `tf.io`, as far as it is there: features and numbers in strings, graphs in files, queues."""

from __future__ import annotations

from headrace.build import io
from headrace.build.io import FixedLenFeature as FixedLenFeature
from headrace.build.io import FixedLenSequenceFeature as FixedLenSequenceFeature
from headrace.build.io import SparseFeature as SparseFeature
from headrace.build.io import VarLenFeature as VarLenFeature
from headrace.interchange.files import write_graph as write_graph
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph
from headrace.v1.queue import PaddingFIFOQueue as PaddingFIFOQueue
from headrace.v1.queue import PriorityQueue as PriorityQueue
from headrace.v1.queue import QueueBase as QueueBase
from headrace.v1.queue import RandomShuffleQueue as RandomShuffleQueue

decode_base64 = in_default_graph(io.decode_base64)
encode_base64 = in_default_graph(io.encode_base64)
decode_compressed = in_default_graph(io.decode_compressed)
decode_csv = named(
    io.decode_csv, "records record_defaults field_delim use_quote_delim name na_value select_cols", "decode_csv"
)
decode_json_example = in_default_graph(io.decode_json_example)
decode_raw = named(io.decode_raw, "input_bytes out_type little_endian name bytes=input_bytes")
serialize_tensor = in_default_graph(io.serialize_tensor)
parse_tensor = in_default_graph(io.parse_tensor)
parse_example = named(io.parse_example, "serialized features name example_names")
parse_single_example = named(io.parse_single_example, "serialized features name example_names")
parse_sequence_example = in_default_graph(io.parse_sequence_example)
parse_single_sequence_example = in_default_graph(io.parse_single_sequence_example)
