"""`hr.io`: conversion between tensors and bytes, text and files.

`coding` decodes and encodes strings, `parsing` parses serialized examples, `messages` reads and writes fields of other
messages, `files` reads and writes whole files, and `readers` read files piece by piece. Functions for images are in
`hr.image`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api.io.coding import (
    decode_compressed,
    decode_csv,
    decode_json_example,
    decode_raw,
    parse_tensor,
    serialize_tensor,
)
from headrace.api.io.files import matching_files, read_file, write_file
from headrace.api.io.messages import decode_proto, encode_proto
from headrace.api.io.parsing import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)
from headrace.api.io.readers import (
    FixedLengthRecordReader,
    IdentityReader,
    NpyReader,
    ReaderBase,
    TextLineReader,
    TFRecordReader,
    WholeFileReader,
)
from headrace.api.strings import decode_base64, encode_base64

__all__ = [
    "FixedLenFeature", "FixedLenSequenceFeature", "FixedLengthRecordReader", "IdentityReader", "NpyReader",
    "ReaderBase", "SparseFeature", "TFRecordReader", "TextLineReader", "VarLenFeature", "WholeFileReader",
    "decode_base64", "decode_compressed", "decode_csv", "decode_json_example", "decode_proto", "decode_raw",
    "encode_base64", "encode_proto", "matching_files", "parse_example", "parse_sequence_example",
    "parse_single_example", "parse_single_sequence_example", "parse_tensor", "read_file", "serialize_tensor",
    "write_file",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
