"""TensorFlow 1's readers: headrace's, in the default graph."""

from __future__ import annotations

from typing import Any

from headrace.api import io
from headrace.api.io import readers
from headrace.v1.graph import in_default_graph
from headrace.v1.python_io import TFRecordOptions

ReaderBase = readers.ReaderBase

read_file = in_default_graph(io.read_file)
write_file = in_default_graph(io.write_file)
matching_files = in_default_graph(io.matching_files)


class WholeFileReader(readers.WholeFileReader):
    """Gives each file as a whole. See `headrace.io.WholeFileReader`.

    Source: TensorFlow's `tf.WholeFileReader`.
    """

    __init__ = in_default_graph(readers.WholeFileReader.__init__)


class IdentityReader(readers.IdentityReader):
    """Gives the names that it gets. See `headrace.io.IdentityReader`.

    Source: TensorFlow's `tf.IdentityReader`.
    """

    __init__ = in_default_graph(readers.IdentityReader.__init__)


class TextLineReader(readers.TextLineReader):
    """Gives the lines of files. See `headrace.io.TextLineReader`.

    Source: TensorFlow's `tf.TextLineReader`.
    """

    __init__ = in_default_graph(readers.TextLineReader.__init__)


class FixedLengthRecordReader(readers.FixedLengthRecordReader):
    """Gives pieces of one length. See `headrace.io.FixedLengthRecordReader`.

    Source: TensorFlow's `tf.FixedLengthRecordReader`.
    """

    __init__ = in_default_graph(readers.FixedLengthRecordReader.__init__)


class TFRecordReader(readers.TFRecordReader):
    """Gives the records of record files. See `headrace.io.TFRecordReader`.

    Args:
      name: of the operation.
      options: a `tf.python_io.TFRecordOptions`, which says how the files are compressed.

    Source: TensorFlow's `tf.TFRecordReader`.
    """

    @in_default_graph
    def __init__(self, name: str | None = None, options: Any = None) -> None:
        super().__init__(name, TFRecordOptions.get_compression_type_string(options))


__all__ = [
    "FixedLengthRecordReader",
    "IdentityReader",
    "ReaderBase",
    "TFRecordReader",
    "TextLineReader",
    "WholeFileReader",
    "matching_files",
    "read_file",
    "write_file",
]
