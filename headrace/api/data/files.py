"""Datasets of the pieces of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, tracebacks
from headrace.api import scopes
from headrace.api.data import dataset, structure
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
      name: accepted, without an effect.

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
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
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
      name: accepted, without an effect.

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
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
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
      name: accepted, without an effect.

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
        name: str | None = None,
    ) -> None:
        sizes = (header_bytes or 0, record_bytes, footer_bytes or 0, buffer_size or 0)
        kind = compression_type or ""
        read = lambda name: _file(self._door(), "FixedLengthRecordDatasetV2", name, *sizes, kind)
        super().__init__(*_of_files(self._door(), filenames, read, num_parallel_reads))


class CsvDataset(dataset.Dataset):
    """Dataset of the columns of comma-separated records, a tuple of scalars for each record.

    Args:
      filenames: the names: a tensor.
      record_defaults: for each column its default, a list or tensor of one value, or its dtype if the field is
        required.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: accepted, without an effect.
      header: whether the first record of each file is skipped.
      field_delim: the character between fields.
      use_quote_delim: whether fields may be enclosed in double quotes.
      na_value: a text that is treated as an empty field.
      select_cols: the numbers of the fields that are columns, ascending; None: all.
      exclude_cols: the numbers of the fields that are no columns, in place of `select_cols`.

    Raises:
      ValueError: both `select_cols` and `exclude_cols` are given.

    Source: TensorFlow's `tf.data.experimental.CsvDataset`.

    Example:
      >>> import headrace as hr, pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     name = pathlib.Path(folder, "a.csv")
      ...     _ = name.write_text("n,word\\n1,one\\n,\\"two, or more\\"\\n")
      ...     rows = hr.data.CsvDataset(str(name), [[7], hr.string], header=True)
      ...     [(int(n), word.numpy()) for n, word in rows]
      [(1, b'one'), (7, b'two, or more')]
    """

    @tracebacks.entry
    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: Any = None,
        buffer_size: Any = None,
        header: Any = False,
        field_delim: Any = ",",
        use_quote_delim: Any = True,
        na_value: Any = "",
        select_cols: Any = None,
        exclude_cols: Any = None,
    ) -> None:
        if select_cols is not None and exclude_cols is not None:
            raise ValueError("`select_cols` and `exclude_cols` exclude one another; give one of them")
        b = scopes.builder(filenames, *record_defaults)
        defaults = [_default(b, d) for d in record_defaults]
        texts = [b.tensor(x, dtypes.string) for x in (compression_type or "", field_delim, na_value)]
        size, columns, excluded = (
            b.tensor(x, dtypes.int64) for x in (buffer_size or 0, select_cols or [], exclude_cols or [])
        )
        is_headed, is_quoted = (b.tensor(x, dtypes.bool_) for x in (header, use_quote_delim))
        inputs = [
            *(b.tensor(filenames, dtypes.string), texts[0], size, is_headed, texts[1], is_quoted, texts[2], columns),
            defaults,
        ]
        spec = tuple(TensorSpec((), d.dtype.base) for d in defaults)
        known = {"output_shapes": tuple(s.shape for s in spec)}
        if exclude_cols is None:
            made = b.make("CSVDataset", inputs, known)
        else:
            made = b.make("CSVDatasetV2", [*inputs, excluded], known)
        super().__init__(made, spec)


def _default(b: Any, given: Any) -> Any:
    """Returns the default of a column; one without an element for a required field."""
    if isinstance(given, dtypes.DType) or (isinstance(given, type) and not hasattr(given, "as_tensor")):
        dtype = dtypes.as_dtype(given)
        return b.const(np.zeros(0, object if dtype is dtypes.string else dtype.numpy), dtype)
    return b.tensor(given)


class SqlDataset(dataset.Dataset):
    """Dataset of the rows of a query of a database file.

    NULL becomes 0 or "". The file is only read.

    Args:
      driver_name: the kind of the database: "sqlite".
      data_source_name: the name of the file.
      query: the query, in SQL.
      output_types: the dtypes of the columns: string, bool, float64 or integers.

    Source: TensorFlow's `tf.data.experimental.SqlDataset`.

    Example:
      >>> import headrace as hr, pathlib, sqlite3, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     name = str(pathlib.Path(folder, "a.db"))
      ...     with sqlite3.connect(name) as database:
      ...         _ = database.execute("create table people (name text, age int)")
      ...         _ = database.execute("insert into people values ('Ada', 36)")
      ...     database.close()
      ...     rows = hr.data.SqlDataset("sqlite", name, "select * from people", (hr.string, hr.int32))
      ...     [(person.numpy(), int(age)) for person, age in rows]
      [(b'Ada', 36)]
    """

    @tracebacks.entry
    def __init__(self, driver_name: Any, data_source_name: Any, query: Any, output_types: Any) -> None:
        b = scopes.builder(driver_name, data_source_name, query)
        inputs = [b.tensor(x, dtypes.string) for x in (driver_name, data_source_name, query)]
        spec = nest.map_leaves(lambda t: TensorSpec((), t), output_types)
        super().__init__(b.make("SqlDataset", inputs, structure.attributes(spec)), spec)
