"""TensorFlow 1's `tf.python_io`: record files from Python, without a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.files import local, records


class TFRecordCompressionType:
    """Compression type of a record file.

    Source: TensorFlow's `tf.python_io.TFRecordCompressionType`.
    """

    NONE = 0
    ZLIB = 1
    GZIP = 2


_NAMES = {TFRecordCompressionType.NONE: "", TFRecordCompressionType.ZLIB: "ZLIB", TFRecordCompressionType.GZIP: "GZIP"}


class TFRecordOptions:
    """Options of compression of a record file.

    Args:
      compression_type: "GZIP", "ZLIB", "" (or None), or one of `TFRecordCompressionType`.
      compression_level: 0 to 9; None for what zlib thinks best.
      flush_mode, input_buffer_size, output_buffer_size, window_bits, compression_method, mem_level,
        compression_strategy: kept, and not used.

    Raises:
      ValueError: there is no such compression.

    Source: TensorFlow's `tf.python_io.TFRecordOptions`.
    """

    compression_type_map = _NAMES

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: Any = None,
        input_buffer_size: Any = None,
        output_buffer_size: Any = None,
        window_bits: Any = None,
        compression_level: int | None = None,
        compression_method: Any = None,
        mem_level: Any = None,
        compression_strategy: Any = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """ "", "GZIP" or "ZLIB": of options, a `TFRecordCompressionType` or such a text."""
        kind = options.compression_type if isinstance(options, TFRecordOptions) else options
        text = _NAMES.get(kind, kind) if kind else ""
        if text not in records.KINDS:
            raise ValueError(f'Not a valid compression_type: "{kind}"')
        return str(text)


class TFRecordWriter(records.Writer):
    """Writes a record file. A context manager.

    Args:
      path: the file, which is replaced if it exists.
      options: `TFRecordOptions`, a `TFRecordCompressionType`, "GZIP" or "ZLIB"; None: not compressed.

    Source: TensorFlow's `tf.python_io.TFRecordWriter`.

    Example:
      >>> import headrace.v1 as tf, os, tempfile
      >>> path = os.path.join(tempfile.mkdtemp(), "some.tfrecord")
      >>> with tf.python_io.TFRecordWriter(path) as out:
      ...     out.write(b"one")
      >>> list(tf.python_io.tf_record_iterator(path))
      [b'one']
    """

    def __init__(self, path: local.Path, options: Any = None) -> None:
        level = options.compression_level if isinstance(options, TFRecordOptions) else None
        kind = TFRecordOptions.get_compression_type_string(options)
        super().__init__(path, compression=kind, level=-1 if level is None else level)


def tf_record_iterator(path: local.Path, options: Any = None) -> Iterator[bytes]:
    """The records of a file.

    Args:
      path: of the file.
      options: see `TFRecordWriter`.

    Raises:
      DataLossError: it is damaged. NotFoundError: there is none.

    Source: TensorFlow's `tf.python_io.tf_record_iterator`.
    """
    return records.read(path, TFRecordOptions.get_compression_type_string(options))


# fmt: off
__all__ = [
    "TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
