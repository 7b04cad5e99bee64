"""DecodeCSV: columns of comma-separated records.

Source: TensorFlow's op of the same name, which follows RFC 4180: a field may be quoted, and two quotes inside of it
mean one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import DType, float32, float64, int32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, list_attr, op
from headrace.opkit.arrays import single
from headrace.ops.strings.elements import number, texts
from headrace.shapes import Shape, show, with_rank_at_most

_QUOTED = re.compile(rb'"([^"]*(?:""[^"]*)*)"')
_NOT_PLAIN = {True: re.compile(rb'["\r\n]'), False: re.compile(rb"[\r\n]")}


def _fields(record: bytes, delimiter: bytes, quotes: bool) -> Iterator[bytes]:
    """The fields of a record, one after the other; an empty record has none."""
    at = 0
    while at < len(record):
        if quotes and record.startswith(b'"', at):
            found = _QUOTED.match(record, at)
            if found is None:
                raise InvalidArgumentError("Quoted field has to end with quote followed by delim or end")
            field, end = found[1].replace(b'""', b'"'), found.end()
            if end < len(record) and not record.startswith(delimiter, end):
                raise InvalidArgumentError("Quote inside a string has to be escaped by another quote")
        else:
            end = record.find(delimiter, at)
            end = len(record) if end < 0 else end
            field = record[at:end]
            if _NOT_PLAIN[quotes].search(field):
                raise InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
        yield field
        if end == len(record) - 1:
            yield b""  # behind the last delimiter
        at = end + 1


def _csv_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    types, columns = attrs["OUT_TYPE"], attrs["select_cols"]
    delimiter, missing = (attrs[name].encode("utf-8", "surrogateescape") for name in ("field_delim", "na_value"))
    quotes = attrs["use_quote_delim"] and delimiter != b'"'
    if len(delimiter) != 1:
        raise InvalidArgumentError(f"field_delim should be only 1 char, got {attrs['field_delim']!r}")
    if columns and len(columns) != len(types):
        raise InvalidArgumentError(f"select_cols should match output size: {len(columns)} and {len(types)}")
    if any(c < 0 for c in columns):
        raise InvalidArgumentError(f"select_cols should be non-negative indices, got {list(columns)}")
    if any(b <= a for a, b in itertools.pairwise(columns)):
        raise InvalidArgumentError(f"select_cols should be strictly increasing indices, got {list(columns)}")

    def selected(record: bytes, i: int) -> list[bytes]:
        found = []
        for column, field in enumerate(_fields(record, delimiter, quotes)):
            if not columns or column in columns:
                found.append(field)
                if columns and len(found) == len(columns):
                    break
        if len(found) != len(types):
            raise InvalidArgumentError(f"Expect {len(types)} fields but have {len(found)} in record {i}")
        return found

    def value(field: bytes, k: int, i: int, default: Any) -> Any:
        t = types[k]
        if not field or field == missing:
            if not default.size:
                raise InvalidArgumentError(f"Field {k} is required but missing in record {i}!")
            return default.reshape(-1)[0]
        if t is string:
            return field
        try:
            return number(field, t)
        except ValueError:
            shown = field.decode("utf-8", "replace")
            raise InvalidArgumentError(f"Field {k} in record {i} is not a valid {t.name}: {shown}") from None

    def kernel(records: Any, *defaults: Any) -> tuple[Any, ...]:
        for k, default in enumerate(defaults):
            if default.size > 1 or default.ndim > 1:
                raise InvalidArgumentError(
                    f"There should only be 1 default per field but field {k} has the shape {show(default.shape)}"
                )
        out = [np.empty(records.size, t.numpy) for t in types]
        for i, record in enumerate(records.ravel()):
            for k, field in enumerate(selected(record, i)):
                out[k][i] = value(field, k, i, defaults[k])
        return tuple(column.reshape(records.shape) for column in out)

    return single(kernel, len(types))


def _csv_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes[1:]:
        s = with_rank_at_most(s, 1)
        if s and s[0] is not None and s[0] > 1:
            raise ValueError("Shape of a default must be a length-0 or length-1 vector, or a scalar.")
    return [c.shapes[0]] * len(c.op.outputs)


def _csv_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    x = texts(b'1,2.5,"a,""b"""', b" -3,,x ", b"NA,nan,").reshape(3, 1)
    defaults = [np.array([9], np.int32), np.array(7, np.float32), texts(b"z")]
    numbers = np.array([[1], [-3], [9]], np.int32), np.array([[2.5], [7], [np.nan]], np.float32)
    return [
        case(x, defaults, na_value="NA", want=(*numbers, texts(b'a,"b"', b"x ", b"z").reshape(3, 1))),
        case(
            np.array(b'1;2;"3', object),
            [np.empty(0, np.int64), np.empty(0, object)],
            field_delim=";",
            use_quote_delim=False,
            select_cols=(0, 2),
            want=(np.array(1), np.array(b'"3', object)),
        ),
        case(x[:0], [np.empty(0)], want=np.empty((0, 1))),
    ]


op(
    "DecodeCSV",
    "records: string, record_defaults: OUT_TYPE",
    "output: OUT_TYPE",
    {
        "OUT_TYPE": list_attr("type", minimum=1, allowed={float32, float64, int32, int64, string}),
        "field_delim": ",",
        "use_quote_delim": True,
        "na_value": "",
        "select_cols": list_attr("int", ()),
    },
    shape=_csv_shape,
    kernel=_csv_kernel,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(5000)),
    sample=_csv_samples,
    doc="The columns of comma-separated records, each of its own type; defaults where a field is empty.",
)
