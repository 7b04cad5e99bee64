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
    """What all kinds of readers can do; and a reader of which only the handle is known.

    Args:
      reader_ref: the handle: a tensor of dtype resource, or a reference to a name, as graphs of TensorFlow 0.x have it.
      supports_serialize: whether `serialize_state` works.

    Source: TensorFlow's `tf.ReaderBase`.
    """

    def __init__(self, reader_ref: Any, supports_serialize: bool = False) -> None:
        self._ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Any:
        """The tensor that operations know it by."""
        return self._ref

    @property
    def supports_serialize(self) -> bool:
        """Whether `serialize_state` works."""
        return self._supports_serialize

    def read(self, queue: Any, name: str | None = None) -> tuple[Any, Any]:
        """The next piece of the files whose names are in `queue`.

        Args:
          queue: a queue of strings, or its handle.
          name: of the operation.

        Returns:
          Two string scalars: the key, which tells where the piece comes from, and the piece.

        Raises (when it runs):
          OutOfRangeError: there are no more files. NotFoundError, DataLossError, ...: a file cannot be read.
        """
        key, value = self._make("ReaderRead", (self._queue(queue),), name)
        return key, value

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> tuple[Any, Any]:
        """The next pieces, as many as the file still has but at most `num_records` (an int64 scalar).

        Returns:
          Two vectors of strings: the keys and the pieces.
        """
        keys, values = self._make("ReaderReadUpTo", (self._queue(queue), num_records), name)
        return keys, values

    def num_records_produced(self, name: str | None = None) -> Any:
        """How many pieces it has given: an int64 scalar."""
        return self._make("ReaderNumRecordsProduced", (), name)

    def num_work_units_completed(self, name: str | None = None) -> Any:
        """How many files it is done with: an int64 scalar."""
        return self._make("ReaderNumWorkUnitsCompleted", (), name)

    def serialize_state(self, name: str | None = None) -> Any:
        """Where it stands, as a string; readers of whole files and of names can tell."""
        return self._make("ReaderSerializeState", (), name)

    def restore_state(self, state: Any, name: str | None = None) -> Any:
        """Lets it go on where the reader stood that gave `state`."""
        return self._make("ReaderRestoreState", (state,), name)

    def reset(self, name: str | None = None) -> Any:
        """Makes it as it was when it was new."""
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
    """Gives each file as a whole; the key is its name.

    Source: TensorFlow's `tf.WholeFileReader`.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(_opened("WholeFileReaderV2", name), supports_serialize=True)


class IdentityReader(ReaderBase):
    """Gives the names that it gets, as keys and as values.

    Source: TensorFlow's `tf.IdentityReader`.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(_opened("IdentityReaderV2", name), supports_serialize=True)


class TextLineReader(ReaderBase):
    """Gives the lines of files, without their ends; the key is "name:number", from 1.

    Args:
      skip_header_lines: so many lines at the beginning of each file are left out; 0 if None.
      name: of the operation.

    Source: TensorFlow's `tf.TextLineReader`.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(_opened("TextLineReaderV2", name, skip_header_lines=skip_header_lines or 0))


class FixedLengthRecordReader(ReaderBase):
    """Gives pieces of one length; the key is "name:number", from 0.

    Args:
      record_bytes: the length.
      header_bytes, footer_bytes: so many before the pieces, and after them; 0 if None.
      hop_bytes: from the beginning of a piece to that of the next; `record_bytes` if None or 0.
      name: of the operation.
      encoding: "" (or None), "GZIP" or "ZLIB": how the file is compressed.

    Source: TensorFlow's `tf.FixedLengthRecordReader`.
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
    """Gives the records of record files; the key is "name:offset".

    Args:
      name: of the operation.
      compression_type: "", "GZIP" or "ZLIB".

    Source: TensorFlow's `tf.TFRecordReader`.
    """

    def __init__(self, name: str | None = None, compression_type: str = "") -> None:
        super().__init__(_opened("TFRecordReaderV2", name, compression_type=compression_type))


class NpyReader(ReaderBase):
    """Gives the rows of arrays in numpy's files; the key is "name:row". An .npy file is mapped into memory and read as
    it is needed; a member of an .npz archive is read as a stream. Nothing is ever unpickled.

    Args:
      dtype: of the elements.
      shape: of a row: that of the arrays without their first dimension.
      member: which array of .npz archives is meant; "" for .npy files.
      name: of the operation.

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
        """The next row of the arrays in the files whose names are in `queue`. See `ReaderBase.read`.

        Returns:
          The key, and the row: a tensor of the reader's dtype and shape.
        """
        key, value = super().read(queue, name)
        return key, arrays.reshape(decode_raw(value, self._dtype), self._row)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> tuple[Any, Any]:
        """The next rows, at most `num_records` of one file: keys, and a tensor with one more dimension in front."""
        keys, values = super().read_up_to(queue, num_records, name)
        return keys, arrays.reshape(decode_raw(values, self._dtype), (-1, *self._row))
