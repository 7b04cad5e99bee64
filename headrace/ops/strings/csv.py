"""DecodeCSV: columns of comma-separated records. Source: TensorFlow's op of the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import DType, float32, float64, int32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, list_attr, op
from headrace.opkit.arrays import single
from headrace.opkit.csv import Columns
from headrace.ops.strings.elements import texts
from headrace.shapes import Shape, show, with_rank_at_most


def _csv_kernel(attrs: Mapping[str, Any]) -> Any:
    types = attrs["OUT_TYPE"]
    delimiter, missing = (attrs[name].encode("utf-8", "surrogateescape") for name in ("field_delim", "na_value"))
    columns = Columns(types, attrs["select_cols"], delimiter, missing, attrs["use_quote_delim"])

    def kernel(records: Any, *defaults: Any) -> tuple[Any, ...]:
        for k, default in enumerate(defaults):
            if default.size > 1 or default.ndim > 1:
                raise InvalidArgumentError(
                    f"There should only be 1 default per field but field {k} has the shape {show(default.shape)}"
                )
        out = [np.empty(records.size, t.numpy) for t in types]
        for i, record in enumerate(records.ravel()):
            where = f"record {i}"
            for k, field in enumerate(columns.of(record, where)):
                out[k][i] = columns.value(k, field, defaults[k], where)
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
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(5000)),
    sample=_csv_samples,
    doc="The columns of comma-separated records, each of its own type; defaults where a field is empty.",
)
