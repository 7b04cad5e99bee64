"""TensorFlow 1's `make_csv_dataset`: batches of the columns of files."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes
from headrace.api import data
from headrace.files import local
from headrace.v1.data.datasets import CsvDataset, Dataset
from headrace.v1.graph import in_default_graph

#: Dtypes of columns, from the narrowest on.
_KINDS: Final = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64, dtypes.string)


@in_default_graph
def make_csv_dataset(
    file_pattern: Any,
    batch_size: Any,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[int | str] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: Any = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Any:
    """Returns a dataset of batches of the columns of files.

    Args:
      file_pattern: a pattern of file names, or several.
      batch_size: the number of rows in a batch.
      column_names: the names of all columns; None: the first row of each file has them.
      column_defaults: for each selected column its default, or its dtype if a field is required; None: the first rows
        tell the dtypes, and the defaults are 0 and "".
      label_name: the column of the labels.
      select_columns: the names or numbers of the columns that are used; None: all.
      field_delim, use_quote_delim, na_value: see `headrace.data.CsvDataset`.
      header: whether the first row of each file has the names.
      num_epochs: the number of passes; None: without an end, and in batches of full size alone.
      shuffle: whether rows and files are shuffled.
      shuffle_buffer_size: the size of the buffer of `shuffle`.
      shuffle_seed: the seed.
      prefetch_buffer_size: the number of batches that are computed ahead; None: any number.
      num_parallel_reads: the number of files that are read in turn; None: 1.
      sloppy: accepted, without an effect: the order is that of one thread.
      num_rows_for_inference: the number of rows that tell dtypes; None: all.
      compression_type: "", "GZIP" or "ZLIB".
      ignore_errors: whether rows that cannot be parsed are left out.
      encoding: the encoding of the files, for names and dtypes.

    Raises:
      ValueError: no file matches, or names, defaults and selected columns do not fit.

    Source: TensorFlow 1's `tf.data.experimental.make_csv_dataset`.

    Example:
      >>> import headrace.v1 as tf, pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default(), tf.Session() as sess:
      ...     name = pathlib.Path(folder, "a.csv")
      ...     _ = name.write_text("x,y\\n1,2.5\\n3,\\n")
      ...     batches = tf.data.experimental.make_csv_dataset(str(name), 2, shuffle=False, num_epochs=1)
      ...     batch = sess.run(batches.make_one_shot_iterator().get_next())
      >>> batch["x"], batch["y"]
      (array([1, 3], dtype=int32), array([2.5, 0. ], dtype=float32))
    """
    names = _files(file_pattern)
    opened = _opener(compression_type, encoding) if column_names is None or column_defaults is None else None
    style: dict[str, Any] = {
        "delimiter": field_delim,
        "quoting": csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE,
    }
    if column_names is None:
        if not header:
            raise ValueError("Expected `column_names` or `header` arguments. Neither is provided.")
        assert opened is not None
        column_names = _names_in(names, opened, style)
    columns = list(column_names)
    twice = sorted({n for n in columns if columns.count(n) > 1})
    if twice:
        raise ValueError(f"Either `column_names` argument or CSV header row contains duplicate column names: {twice}.")
    selected = None if select_columns is None else _numbers(select_columns, columns)
    if column_defaults is None:
        assert opened is not None
        rows = _rows(names, len(columns), header, opened, style)
        first = itertools.islice(rows, num_rows_for_inference)
        column_defaults = _inferred(first, range(len(columns)) if selected is None else selected, na_value)
    if selected is not None:
        if len(column_defaults) != len(selected):
            raise ValueError(
                "If specified, `column_defaults` and `select_columns` must have the same length: `column_defaults` has "
                f"length {len(column_defaults)}, `select_columns` has length {len(selected)}."
            )
        columns = [columns[i] for i in selected]
    if label_name is not None and label_name not in columns:
        raise ValueError(f"`label_name` provided must be one of the columns: {columns}. Received: {label_name}.")
    defaults = column_defaults

    def read(name: Any) -> Any:
        found = CsvDataset(
            name,
            defaults,
            compression_type,
            header=header,
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=selected,
        )
        return found.ignore_errors() if ignore_errors else found

    def named(*values: Any) -> Any:
        features = dict(zip(columns, values, strict=True))
        if label_name is None:
            return features
        label = features.pop(label_name)
        return features, label

    dataset = Dataset.from_tensor_slices(np.array([n.encode() for n in names], object))
    if shuffle:
        dataset = dataset.shuffle(len(names), shuffle_seed)
    dataset = dataset.interleave(read, num_parallel_reads or 1)
    dataset = repeated(dataset, num_epochs, shuffle_buffer_size if shuffle else None, shuffle_seed)
    dataset = dataset.batch(batch_size, drop_remainder=num_epochs is None).map(named)
    return dataset.prefetch(data.AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def repeated(dataset: Any, epochs: int | None, buffer_size: int | None, seed: int | None) -> Any:
    """Returns the passes over a dataset, each in random order if there is a buffer."""
    if buffer_size is not None:
        dataset = dataset.shuffle(buffer_size, seed)
    return dataset if epochs == 1 else dataset.repeat(epochs)


def _files(patterns: Any) -> list[str]:
    """Returns the names of the files that match, sorted."""
    given = [patterns] if isinstance(patterns, str) else list(patterns)
    found = sorted(name for pattern in given for name in local.matching(pattern))
    if not given or not found:
        raise ValueError(f"No files match `file_pattern` {patterns}.")
    return found


def _opener(compression: str | None, encoding: str) -> Callable[[str], Iterator[str]]:
    """Returns the function from a file's name to its lines."""
    codecs.lookup(encoding)
    if compression not in (None, "", "GZIP"):
        raise ValueError(
            f"`compression_type` {compression} is not supported for probing columns; give `column_names` and "
            "`column_defaults`"
        )

    def lines(name: str) -> Iterator[str]:
        with local.opened(name) as raw:
            plain = gzip.GzipFile(fileobj=raw) if compression else raw
            with io.TextIOWrapper(plain, encoding=encoding, newline="") as text:
                yield from text

    return lines


def _names_in(names: Sequence[str], opened: Callable[[str], Iterator[str]], style: dict[str, Any]) -> list[str]:
    """Returns the first row of all files, which must be the same."""
    first: list[str] | None = None
    for name in names:
        row = next(csv.reader(opened(name), **style), None)
        if row is None:
            raise ValueError(f"Failed when reading the header line of {name}. Is it an empty file?")
        if first is not None and row != first:
            raise ValueError(
                "All input CSV files should have the same column names in the header row. File "
                f"{name} has different column names."
            )
        first = row
    assert first is not None
    return first


def _numbers(selected: Sequence[int | str], names: Sequence[str]) -> list[int]:
    """Returns the numbers of columns given by name or number, ascending."""
    found = []
    for x in selected:
        if isinstance(x, int):
            if not 0 <= x < len(names):
                raise ValueError(f"Column index {x} specified in `select_columns` must be in [0, {len(names)}).")
            found.append(x)
        elif x in names:
            found.append(names.index(x))
        else:
            raise ValueError(f"Column {x} specified in `select_columns` must be of one of the columns: {list(names)}.")
    twice = sorted({n for n in found if found.count(n) > 1})
    if twice:
        raise ValueError(f"The `select_columns` argument contains duplicate columns: {twice}.")
    return sorted(found)


def _rows(
    names: Sequence[str], n: int, header: bool, opened: Callable[[str], Iterator[str]], style: dict[str, Any]
) -> Iterator[list[str]]:
    """Yields the rows of files."""
    for name in names:
        reader = csv.reader(opened(name), **style)
        if header:
            next(reader, None)
        for number, row in enumerate(reader, 2 if header else 1):
            if len(row) != n:
                raise ValueError(
                    f"Problem inferring types: CSV row {number} of {name} has {len(row)} fields. Expected: {n}."
                )
            yield row


def _inferred(rows: Iterator[list[str]], columns: Sequence[int], na_value: str) -> list[Any]:
    """Returns the default of each column, with the first dtype that all its fields have."""
    found: list[int] = [-1] * len(columns)
    for row in rows:
        for k, column in enumerate(columns):
            text = row[column]
            if text in ("", na_value):
                continue
            found[k] = next(i for i in range(max(found[k], 0), len(_KINDS)) if _is_a(text, _KINDS[i]))
    kinds = [dtypes.string if k < 0 else _KINDS[k] for k in found]
    return [np.array([b""], object) if t is dtypes.string else np.zeros(1, t.numpy) for t in kinds]


def _is_a(text: str, dtype: dtypes.DType) -> bool:
    """Whether a field is a value of a dtype."""
    if dtype is dtypes.string:
        return True
    try:
        if dtype.is_integer:
            return bool(np.iinfo(dtype.numpy).min <= int(text) <= np.iinfo(dtype.numpy).max)
        with np.errstate(over="ignore"):
            return bool(dtype.numpy.type(float(text)) < np.inf)
    except ValueError:
        return False
