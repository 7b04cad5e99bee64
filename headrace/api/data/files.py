"""Datasets of the pieces of files."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, tracebacks
from headrace.api import scopes
from headrace.api.data import dataset
from headrace.api.data.structure import is_dataset
from headrace.api.tensor_spec import TensorSpec


def _of_files(door: Any, filenames: Any, read: Any, parallel: int | None = None) -> tuple[Any, Any]:
    """Returns the variant and the spec of a dataset of the pieces of files.

    Args:
      door: the class of datasets.
      filenames: a tensor of names, or a dataset of them.
      read: the function from a name to the dataset of the pieces of one file.
      parallel: the number of files that are read in turn; None: one after the other.
    """
    names = filenames
    if not is_dataset(names):
        b = scopes.builder(filenames)
        names = door.from_tensor_slices(b.Reshape(b.tensor(filenames, dtypes.string), b.const([-1], dtypes.int32)))
    made = names.flat_map(read) if parallel is None else names.interleave(read, parallel, 1, parallel)
    return made.variant_tensor, made.element_spec


def _file(door: Any, type: str, *args: Any) -> Any:
    b = scopes.builder(*args)
    inputs = [b.tensor(a, dtypes.int64) if isinstance(a, int) else b.tensor(a, dtypes.string) for a in args]
    return door(b.make(type, inputs, {}), TensorSpec((), dtypes.string))


class TextLineDataset(dataset.Dataset):
    """Dataset of the lines of text files, without their ends.

    Args:
      filenames: the names: a tensor or a dataset.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: accepted, without an effect.
      num_parallel_reads: the number of files that are read in turn; None: one after the other.

    Source: TensorFlow's `tf.data.TextLineDataset`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     name = pathlib.Path(folder, "a.txt")
      ...     _ = name.write_text("one\\ntwo\\n")
      ...     [line.numpy() for line in hr.data.TextLineDataset(str(name))]
      [b'one', b'two']
    """

    @tracebacks.entry
    def __init__(
        self, filenames: Any, compression_type: Any = None, buffer_size: Any = None, num_parallel_reads: Any = None
    ) -> None:
        read = lambda name: _file(self._door(), "TextLineDataset", name, compression_type or "", buffer_size or 0)
        super().__init__(*_of_files(self._door(), filenames, read, num_parallel_reads))


class TFRecordDataset(dataset.Dataset):
    """Dataset of the records of record files.

    Args:
      filenames: the names: a tensor or a dataset.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: accepted, without an effect.
      num_parallel_reads: the number of files that are read in turn; None: one after the other.

    Source: TensorFlow's `tf.data.TFRecordDataset`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> from headrace.files import records
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     name = str(pathlib.Path(folder, "a.tfrecord"))
      ...     with records.Writer(name) as writer:
      ...         writer.write(b"first")
      ...     [record.numpy() for record in hr.data.TFRecordDataset(name)]
      [b'first']
    """

    @tracebacks.entry
    def __init__(
        self, filenames: Any, compression_type: Any = None, buffer_size: Any = None, num_parallel_reads: Any = None
    ) -> None:
        read = lambda name: _file(self._door(), "TFRecordDataset", name, compression_type or "", buffer_size or 0)
        super().__init__(*_of_files(self._door(), filenames, read, num_parallel_reads))


class FixedLengthRecordDataset(dataset.Dataset):
    """Dataset of pieces of files, of equal length.

    Args:
      filenames: the names: a tensor or a dataset.
      record_bytes: the bytes of a piece.
      header_bytes, footer_bytes: the bytes before and after the pieces of a file.
      buffer_size: accepted, without an effect.
      compression_type: "", "ZLIB" or "GZIP".
      num_parallel_reads: the number of files that are read in turn; None: one after the other.

    Source: TensorFlow's `tf.data.FixedLengthRecordDataset`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     name = pathlib.Path(folder, "a.bin")
      ...     _ = name.write_bytes(b"headABCD")
      ...     [piece.numpy() for piece in hr.data.FixedLengthRecordDataset(str(name), 2, header_bytes=4)]
      [b'AB', b'CD']
    """

    @tracebacks.entry
    def __init__(
        self,
        filenames: Any,
        record_bytes: Any,
        header_bytes: Any = None,
        footer_bytes: Any = None,
        buffer_size: Any = None,
        compression_type: Any = None,
        num_parallel_reads: Any = None,
    ) -> None:
        sizes = (header_bytes or 0, record_bytes, footer_bytes or 0, buffer_size or 0)
        kind = compression_type or ""
        read = lambda name: _file(self._door(), "FixedLengthRecordDatasetV2", name, *sizes, kind)
        super().__init__(*_of_files(self._door(), filenames, read, num_parallel_reads))
