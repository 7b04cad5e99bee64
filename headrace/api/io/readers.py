"""Readers, which return the pieces of files, one in each step: `hr.io.TextLineReader` and others.

A reader takes file names from a queue (`hr.train.string_input_producer` fills one). `read` waits for a name if it needs
one. It fails with an OutOfRangeError when the queue is closed and empty, which marks the end of the data.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, scopes
from headrace.api.io.coding import decode_raw


class ReaderBase:
    """Base of all readers, and a reader given by its handle.

    Args:
      reader_ref: the handle: a tensor of dtype resource, or a string reference as in graphs of TensorFlow 0.x.
      supports_serialize: whether `serialize_state` is supported.

    Source: TensorFlow's `tf.ReaderBase`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(2, hr.string, [()])
      ...     put = names.enqueue_many([["a.txt", "b.txt"]])
      ...     reader = hr.io.ReaderBase(hr.io.IdentityReader().reader_ref, supports_serialize=True)
      ...     (key, record), count = reader.read(names), reader.num_records_produced()
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(record), sess.run(record), sess.run(count)
      (b'a.txt', b'b.txt', np.int64(2))
    """

    def __init__(self, reader_ref: Any, supports_serialize: bool = False) -> None:
        self._ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Any:
        """The handle of the reader, an input of its operations."""
        return self._ref

    @property
    def supports_serialize(self) -> bool:
        """Whether `serialize_state` is supported."""
        return self._supports_serialize

    def read(self, queue: Any, name: str | None = None) -> tuple[Any, Any]:
        """Reads the next record of the files whose names are in `queue`.

        Args:
          queue: a queue of strings, or its handle.
          name: name of the operation.

        Returns:
          Two string scalars: the key, which identifies the file and the record, and the record.

        Raises (when it runs):
          OutOfRangeError: there are no more files.
          NotFoundError, DataLossError, ...: a file cannot be read.
        """
        key, value = self._make("ReaderRead", (self._queue(queue),), name)
        return key, value

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> tuple[Any, Any]:
        """Reads the next records of a file, at most `num_records`.

        Args:
          queue: a queue of strings, or its handle.
          num_records: the largest number of records, an int64 scalar.
          name: name of the operation.

        Returns:
          Two vectors of strings: the keys and the records.
        """
        keys, values = self._make("ReaderReadUpTo", (self._queue(queue), num_records), name)
        return keys, values

    def num_records_produced(self, name: str | None = None) -> Any:
        """Returns the number of records read so far: an int64 scalar."""
        return self._make("ReaderNumRecordsProduced", (), name)

    def num_work_units_completed(self, name: str | None = None) -> Any:
        """Returns the number of files finished so far: an int64 scalar."""
        return self._make("ReaderNumWorkUnitsCompleted", (), name)

    def serialize_state(self, name: str | None = None) -> Any:
        """Returns the position as a string, if `supports_serialize`."""
        return self._make("ReaderSerializeState", (), name)

    def restore_state(self, state: Any, name: str | None = None) -> Any:
        """Adds an operation that restores the position that `serialize_state` returned."""
        return self._make("ReaderRestoreState", (state,), name)

    def reset(self, name: str | None = None) -> Any:
        """Adds an operation that resets the reader to its initial state."""
        return self._make("ReaderReset", (), name)

    def _queue(self, queue: Any) -> Any:
        handle = getattr(queue, "queue_ref", queue)
        if self._is_by_name and handle.dtype == dtypes.resource:
            return scopes.builder(handle).make("FakeQueue", (handle,), {})
        return handle

    @property
    def _is_by_name(self) -> bool:
        return bool(self._ref.dtype != dtypes.resource)

    def _make(self, type: str, args: tuple[Any, ...], name: str | None) -> Any:
        suffix = "" if self._is_by_name else "V2"
        return scopes.builder(self._ref, *args).make(type + suffix, (self._ref, *args), {}, name)


def _opened(type: str, name: str | None, **attrs: Any) -> Any:
    b = scopes.builder()
    return b.make(type, (), {**attrs, "container": getattr(b.graph, "current_container", "")}, name)


class WholeFileReader(ReaderBase):
    """Reader of whole files; the key is the name of the file.

    Source: TensorFlow's `tf.WholeFileReader`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "a.txt")
      >>> _ = path.write_text("some text")
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(1, hr.string, [()])
      ...     put = names.enqueue(str(path))
      ...     _, content = hr.io.WholeFileReader().read(names)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(content)
      b'some text'
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(_opened("WholeFileReaderV2", name), supports_serialize=True)


class IdentityReader(ReaderBase):
    """Reader that returns the names in the queue, as keys and as records.

    Source: TensorFlow's `tf.IdentityReader`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(1, hr.string, [()])
      ...     put = names.enqueue("a.txt")
      ...     key, record = hr.io.IdentityReader().read(names)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run([key, record])
      [b'a.txt', b'a.txt']
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(_opened("IdentityReaderV2", name), supports_serialize=True)


class TextLineReader(ReaderBase):
    """Reader of lines, without line ends; the key is "name:number", from 1.

    Args:
      skip_header_lines: number of lines to skip at the start of each file; 0 if None.
      name: name of the operation.

    Source: TensorFlow's `tf.TextLineReader`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "some.csv")
      >>> _ = path.write_text("x,y\\n1,2\\n")
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(1, hr.string, [()])
      ...     put = names.enqueue(str(path))
      ...     _, line = hr.io.TextLineReader(skip_header_lines=1).read(names)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(line)
      b'1,2'
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(_opened("TextLineReaderV2", name, skip_header_lines=skip_header_lines or 0))


class FixedLengthRecordReader(ReaderBase):
    """Reader of records of a fixed length; the key is "name:number", from 0.

    Args:
      record_bytes: length of a record.
      header_bytes, footer_bytes: numbers of bytes before the first record and after the last one; 0 if None.
      hop_bytes: distance between the starts of records; `record_bytes` if None or 0.
      name: name of the operation.
      encoding: compression of the file: "" (or None), "GZIP" or "ZLIB".

    Source: TensorFlow's `tf.FixedLengthRecordReader`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp(), "digits")
      >>> _ = path.write_bytes(b"head112233")
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(1, hr.string, [()])
      ...     put = names.enqueue(str(path))
      ...     _, record = hr.io.FixedLengthRecordReader(2, header_bytes=4).read(names)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(record), sess.run(record)
      (b'11', b'22')
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str | None = None,
        encoding: str | None = None,
    ) -> None:
        attrs = {
            "record_bytes": record_bytes,
            "header_bytes": header_bytes or 0,
            "footer_bytes": footer_bytes or 0,
            "hop_bytes": hop_bytes or 0,
            "encoding": encoding or "",
        }
        super().__init__(_opened("FixedLengthRecordReaderV2", name, **attrs))


class TFRecordReader(ReaderBase):
    """Reader of the records of TFRecord files; the key is "name:offset".

    Args:
      name: name of the operation.
      compression_type: "", "GZIP" or "ZLIB".

    Source: TensorFlow's `tf.TFRecordReader`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> from headrace.v1.python_io import TFRecordWriter
      >>> path = os.path.join(tempfile.mkdtemp(), "some.tfrecord")
      >>> with TFRecordWriter(path) as writer:
      ...     writer.write(b"one")
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(1, hr.string, [()])
      ...     put = names.enqueue(path)
      ...     _, record = hr.io.TFRecordReader().read(names)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(record)
      b'one'
    """

    def __init__(self, name: str | None = None, compression_type: str = "") -> None:
        super().__init__(_opened("TFRecordReaderV2", name, compression_type=compression_type))


class NpyReader(ReaderBase):
    """Reader of the rows of arrays in numpy's files; the key is "name:row".

    An .npy file is mapped into memory; a member of an .npz archive is read as a stream. Pickled objects are refused.

    Args:
      dtype: dtype of the elements.
      shape: shape of a row: that of the arrays without their first dimension.
      member: name of the array in .npz archives; "" for .npy files.
      name: name of the operation.

    Example:
      >>> import headrace as hr, numpy as np, os, tempfile
      >>> path = os.path.join(tempfile.mkdtemp(), "some.npy")
      >>> np.save(path, np.arange(6, dtype=np.float32).reshape(3, 2))
      >>> with hr.Graph() as g:
      ...     names = hr.FIFOQueue(1, hr.string, [()])
      ...     put = names.enqueue(path)
      ...     key, row = hr.io.NpyReader(hr.float32, (2,)).read(names)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(row)
      array([0., 1.], dtype=float32)
    """

    def __init__(self, dtype: Any, shape: Any, member: str = "", name: str | None = None) -> None:
        self._dtype = dtypes.as_dtype(dtype)
        row = shapes.as_shape(shape)
        if row is None or not shapes.is_full(row):
            raise ValueError(f"the shape of the rows must be fully known, got {shapes.show(row)}")
        self._row = row
        super().__init__(_opened("_NpyReader", name or "NpyReader", dtype=self._dtype, shape=row, member=member))

    def read(self, queue: Any, name: str | None = None) -> tuple[Any, Any]:
        """Reads the next row of the arrays in the files of `queue`; see `ReaderBase.read`.

        Returns:
          The key, and the row: a tensor of the reader's dtype and shape.
        """
        key, value = super().read(queue, name)
        return key, arrays.reshape(decode_raw(value, self._dtype), self._row)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> tuple[Any, Any]:
        """Reads the next rows of a file, at most `num_records`: keys and stacked rows."""
        keys, values = super().read_up_to(queue, num_records, name)
        return keys, arrays.reshape(decode_raw(values, self._dtype), (-1, *self._row))
