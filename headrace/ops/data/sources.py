"""Datasets of tensors, ranges, random numbers, files and generators.

Source: TensorFlow's TensorDataset, TensorSliceDataset, RangeDataset, RandomDataset, TextLineDataset, TFRecordDataset,
FixedLengthRecordDatasetV2, GeneratorDataset, .... A dataset is a scalar variant; `resources.datasets` has its elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.dtypes import float32, float64, int32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.files import records, sources
from headrace.ir.kernel_calls import callable_of
from headrace.ir.opdef import func_attr, list_attr
from headrace.opkit.csv import Columns
from headrace.opkit.dataset_ops import ELEMENTS, GIVEN, METADATA, Attrs, dataset_op
from headrace.resources.datasets.elements import Elements, Range, Slices
from headrace.resources.datasets.files import Pieces
from headrace.resources.datasets.mapping import Generated
from headrace.resources.datasets.queries import Query
from headrace.resources.datasets.saved import Loaded
from headrace.resources.datasets.shuffling import RandomNumbers, Seeds

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext
    from headrace.resources.datasets.base import Dataset, Element

_SPLIT = {"replicate_on_split": False}


def _range(ctx: KernelContext, attrs: Attrs, start: Any, stop: Any, step: Any) -> Dataset:
    (dtype,) = attrs["output_types"]
    if not (dtype.is_integer or dtype.is_floating):
        raise InvalidArgumentError(f"RangeDataset: elements of {dtype.name} are no numbers")
    return Range(int(start), int(stop), int(step), dtype.numpy.type)


def _names(filenames: Any) -> Sequence[bytes]:
    if getattr(filenames, "ndim", 0) > 1:
        raise InvalidArgumentError("`filenames` must be a scalar or a vector.")
    return [filenames] if isinstance(filenames, bytes) else list(np.ravel(filenames))


def _text(value: Any) -> str:
    found = value.item() if isinstance(value, np.ndarray) else value
    return found.decode() if isinstance(found, bytes) else str(found)


def _lines(ctx: KernelContext, attrs: Attrs, filenames: Any, compression: Any, buffer_size: Any) -> Dataset:
    kind = _text(compression)
    records.check_kind(kind)
    return Pieces(_names(filenames), lambda name: sources.Lines(name, encoding=kind))


def _records(ctx: KernelContext, attrs: Attrs, filenames: Any, compression: Any, buffer_size: Any) -> Dataset:
    kind = _text(compression)
    records.check_kind(kind)
    return Pieces(_names(filenames), lambda name: sources.Records(name, kind))


def _csv(
    ctx: KernelContext, attrs: Attrs, filenames: Any, compression: Any, buffer_size: Any, header: Any, *rest: Any
) -> Dataset:
    n = len(attrs["output_types"])
    delimiter, quotes, missing, chosen, *defaults = rest
    kind = _text(compression)
    records.check_kind(kind)
    delimiter, missing = (_text(x).encode(errors="surrogateescape") for x in (delimiter, missing))
    excluded = np.ravel(defaults[n]).tolist() if len(defaults) > n else []
    defaults = [np.asarray(d, t.numpy) for d, t in zip(defaults, attrs["output_types"], strict=False)]
    for k, default in enumerate(defaults):
        if default.size > 1 or default.ndim > 1:
            raise InvalidArgumentError(
                f"Each record default should be at most rank 1 with one element, that of field {k} has shape "
                f"{default.shape}"
            )
    selected = np.ravel(chosen).tolist()
    if selected and excluded:
        raise InvalidArgumentError("`select_cols` and `exclude_cols` exclude one another")
    columns = Columns(attrs["output_types"], selected, delimiter, missing, bool(quotes), excluded)
    is_text = [t is string for t in attrs["output_types"]]

    def element(record: bytes) -> Element:
        found = columns.of(record, "record") if record else [b""]
        if len(found) != n:
            raise InvalidArgumentError(f"Expect {n} fields but have {len(found)} in record")
        made = [columns.value(k, field, defaults[k], "record") for k, field in enumerate(found)]
        return tuple([np.array(x, object) if t else x for x, t in zip(made, is_text, strict=True)])

    opened = lambda name: sources.CommaSeparated(name, delimiter, columns.quotes, bool(header), kind)
    return Pieces(_names(filenames), opened, element)


def _query(ctx: KernelContext, attrs: Attrs, driver: Any, source: Any, query: Any) -> Dataset:
    return Query(_text(driver), _text(source), _text(query), attrs["output_types"])


def _list(ctx: KernelContext, attrs: Attrs, *tensors: Any) -> Dataset:
    n = len(attrs["output_types"])
    if len(tensors) % n:
        raise InvalidArgumentError(f"ListDataset: {len(tensors)} tensors are no elements of {n} components each")
    return Elements([tuple(tensors[i : i + n]) for i in range(0, len(tensors), n)])


def _load(ctx: KernelContext, attrs: Attrs, path: Any, *captured: Any) -> Dataset:
    return Loaded(_text(path), attrs["output_types"], callable_of(ctx, attrs["reader_func"], captured))


def _fixed(
    ctx: KernelContext,
    attrs: Attrs,
    filenames: Any,
    header: Any,
    record: Any,
    footer: Any,
    buffer_size: Any,
    compression: Any = b"",
) -> Dataset:
    kind = _text(compression)
    records.check_kind(kind)
    sizes = int(record), int(header), int(footer)
    for what, n, least in zip(("record", "header", "footer"), sizes, (1, 0, 0), strict=True):
        if n < least:
            raise InvalidArgumentError(f"`{what}_bytes` must be >= {least}, got {n}")
    return Pieces(_names(filenames), lambda name: sources.Fixed(name, *sizes, encoding=kind))


def _generator(ctx: KernelContext, attrs: Attrs, *inputs: Any) -> Dataset:
    made, at = [], 0
    for name in ("init", "next", "finalize"):
        n = len(attrs[f"T{name}_func_args"])
        made.append(callable_of(ctx, attrs[f"{name}_func"], inputs[at : at + n]))
        at += n
    return Generated(*made)


dataset_op(
    "TensorDataset",
    "components: Toutput_types",
    {**GIVEN, **METADATA},
    lambda ctx, attrs, *components: Elements([components]),
    "A dataset of one element, `components`.",
)
dataset_op(
    "TensorSliceDataset",
    "components: Toutput_types",
    {**GIVEN, "is_files": False, **METADATA, **_SPLIT},
    lambda ctx, attrs, *components: Slices(components, attrs["Toutput_types"]),
    "A dataset of the rows of `components`.",
)
dataset_op(
    "RangeDataset",
    "start: int64, stop: int64, step: int64",
    {**ELEMENTS, **METADATA, **_SPLIT},
    _range,
    "A dataset of the numbers from `start` to before `stop` in steps of `step`.",
)
dataset_op(
    "RandomDataset",
    "seed: int64, seed2: int64",
    {**ELEMENTS, **METADATA},
    lambda ctx, attrs, seed, seed2: RandomNumbers(Seeds(int(seed), int(seed2), False)),
    "A dataset of random integers, as int64, without an end.",
)
dataset_op(
    "RandomDatasetV2",
    "seed: int64, seed2: int64, seed_generator: resource",
    {"rerandomize_each_iteration": False, **ELEMENTS, **METADATA},
    lambda ctx, attrs, seed, seed2, generator: RandomNumbers(
        Seeds(int(seed), int(seed2), attrs["rerandomize_each_iteration"])
    ),
    "A dataset of random integers, as int64, without an end; each pass may have others.",
)
dataset_op(
    "ListDataset",
    "tensors: Tinput_types",
    {"Tinput_types": ELEMENTS["output_types"], **ELEMENTS, **METADATA},
    _list,
    "A dataset of elements, whose components are given one after the other.",
)
dataset_op(
    "TextLineDataset",
    "filenames: string, compression_type: string, buffer_size: int64",
    METADATA,
    _lines,
    "A dataset of the lines of files.",
)
dataset_op(
    "TFRecordDataset",
    "filenames: string, compression_type: string, buffer_size: int64",
    METADATA,
    _records,
    "A dataset of the records of record files.",
)
_FIXED = "filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: int64, buffer_size: int64"
dataset_op("FixedLengthRecordDataset", _FIXED, METADATA, _fixed, "A dataset of pieces of files, of equal length.")
dataset_op(
    "FixedLengthRecordDatasetV2",
    f"{_FIXED}, compression_type: string",
    METADATA,
    _fixed,
    "A dataset of pieces of files, of equal length; the files may be compressed.",
)
_CSV = (
    "filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: string, "
    "use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types"
)
_CSV_TYPES = {
    **ELEMENTS,
    "output_types": list_attr("type", minimum=1, allowed={float32, float64, int32, int64, string}),
}
for _type in ("CSVDataset", "ExperimentalCSVDataset"):
    dataset_op(_type, _CSV, _CSV_TYPES, _csv, "A dataset of the columns of comma-separated records.")
dataset_op(
    "CSVDatasetV2",
    f"{_CSV}, exclude_cols: int64",
    _CSV_TYPES,
    _csv,
    "A dataset of the columns of comma-separated records.",
)
for _type in ("SqlDataset", "ExperimentalSqlDataset"):
    dataset_op(
        _type,
        "driver_name: string, data_source_name: string, query: string",
        ELEMENTS,
        _query,
        "A dataset of the rows of a query of a database file.",
    )
dataset_op(
    "LoadDataset",
    "path: string, reader_func_other_args: Treader_func_args",
    {**ELEMENTS, "compression": "", "reader_func": func_attr(), "Treader_func_args": list_attr("type")},
    _load,
    "A dataset of the elements that SaveDataset wrote.",
)
_FUNCTIONS = {f"{name}_func": func_attr() for name in ("init", "next", "finalize")}
_ARGUMENTS = {f"T{name}_func_args": list_attr("type") for name in ("init", "next", "finalize")}
dataset_op(
    "GeneratorDataset",
    ", ".join(f"{name}_func_other_args: T{name}_func_args" for name in ("init", "next", "finalize")),
    {**_FUNCTIONS, **_ARGUMENTS, **ELEMENTS, **METADATA},
    _generator,
    "A dataset of the results of `next_func(init_func())`, until it fails with OutOfRangeError.",
)
