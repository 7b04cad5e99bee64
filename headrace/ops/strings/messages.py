"""DecodeProtoV2 and EncodeProto: fields of serialized protocol messages as tensors.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.files import local
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, flops_per_input, list_attr, op, string_attr
from headrace.opkit import messages
from headrace.opkit.arrays import check_size
from headrace.ops.strings.elements import Budget
from headrace.shapes import Shape, merge, show, with_rank_at_least

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(20000))
_SOURCE = {"descriptor_source": "local://"}


def _source(attribute: str) -> bytes:
    """The descriptors of this process, of an attribute itself, or of a file."""
    text = attribute.encode("utf-8", "surrogateescape")
    if text in (b"", b"local://"):
        return b"local://"
    if text.startswith(b"bytes://"):
        return text.removeprefix(b"bytes://")
    try:
        return local.whole(text)
    except NotFoundError as e:
        raise InvalidArgumentError(f"Source does not represent serialized file descriptor set proto. {e}") from e


# *** Decoding ***


def _column(rows: Sequence[Sequence[Any]], field: messages.Field) -> np.ndarray:
    """The values of a field: a row for each message, padded with the default."""
    width = max(1, *map(len, rows))
    check_size((len(rows), width), field.dtype)
    out = np.full((len(rows), width), field.default, field.dtype.numpy)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _decode_kernel(ctx: KernelContext, attrs: Mapping[str, Any]) -> Any:
    form, names, types = attrs["message_format"], attrs["field_names"], attrs["output_types"]

    @functools.cache
    def wanted() -> tuple[Any, list[messages.Field]]:
        if form not in ("binary", "text"):
            raise InvalidArgumentError(f"format must be one of binary or text, got {form!r}")
        message = messages.descriptor(_source(attrs["descriptor_source"]), attrs["message_type"])
        return message, messages.fields_to_read(message, names, types)

    def kernel(texts: Any) -> Any:
        message, fields = wanted()
        if not texts.size:
            raise InvalidArgumentError("Bufs argument must contain at least one value")
        by_number: dict[int, messages.Field] = {}
        columns = [by_number.setdefault(f.number, f) is f for f in fields]  # a field that comes twice is read once
        rows = []
        for text in texts.ravel():
            if form == "text" or attrs["sanitize"]:
                text = messages.reserialized(message, text, form == "text")
            rows.append(messages.read(text, by_number))
        values = [
            [r.get(f.number, ()) if first else () for r in rows] for f, first in zip(fields, columns, strict=True)
        ]
        sizes = np.array([[len(v) for v in column] for column in values], np.int32).reshape(len(fields), len(rows)).T
        out = [_column(column, f) for column, f in zip(values, fields, strict=True)]
        sizes = np.ascontiguousarray(sizes).reshape(*texts.shape, len(fields))
        return (sizes, *(x.reshape(*texts.shape, x.shape[1]) for x in out)) if out else sizes

    return kernel


def _decode_shape(c: Inference) -> Sequence[Shape]:
    batch, n = c.shapes[0], len(c.op.outputs) - 1
    return [None if batch is None else (*batch, n)] + [None if batch is None else (*batch, None)] * n


op(
    "DecodeProtoV2",
    "bytes: string",
    "sizes: int32, values: output_types",
    {
        "message_type": string_attr(),
        "field_names": list_attr("string"),
        "output_types": list_attr("type"),
        **_SOURCE,
        "message_format": "binary",
        "sanitize": False,
    },
    shape=_decode_shape,
    stateful=_decode_kernel,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    doc="The values of fields of serialized messages, and how many each message has.",
)

# *** Encoding ***


def _check(sizes: Any, values: Sequence[Any], names: Sequence[str]) -> None:
    for name, x in zip(names, values, strict=True):
        if x.ndim < 2:
            raise InvalidArgumentError(
                f"Invalid shape for field {name}.  Saw shape {show(x.shape)} but it should be at least a matrix."
            )
    batch = values[0].shape[:-1]
    if any(x.shape[:-1] != batch for x in values):
        raise InvalidArgumentError("Values must match up to the last dimension")
    if sizes.shape != (*batch, len(names)):
        raise InvalidArgumentError(
            f"sizes should be batch_size + [len(field_names)].  Saw: {show(sizes.shape)} but expected: "
            f"{show((*batch, len(names)))}"
        )


def _encode_kernel(ctx: KernelContext, attrs: Mapping[str, Any]) -> Any:
    names: Sequence[str] = attrs["field_names"]
    types: Sequence[DType] = attrs["Tinput_types"]

    @functools.cache
    def wanted() -> list[messages.Field]:
        if len(names) != len(types):
            raise InvalidArgumentError("Length of inputs list must match field_names")
        message = messages.descriptor(_source(attrs["descriptor_source"]), attrs["message_type"])
        return messages.fields_to_write(message, names, types)

    def kernel(sizes: Any, *values: Any) -> Any:
        fields = wanted()
        _check(sizes, values, names)
        rows = [x.reshape(-1, x.shape[-1]) for x in values]
        counts, order = sizes.reshape(-1, len(names)), sorted(range(len(names)), key=lambda k: fields[k].number)
        out, budget = np.empty(len(counts), object), Budget("EncodeProto")
        for i, counted in enumerate(counts.tolist()):
            for k, n in enumerate(counted):
                if n > rows[k].shape[1]:
                    raise InvalidArgumentError(
                        f"Size to write must not be larger than value tensor; but saw: {n} > {rows[k].shape[1]} at "
                        f"message {i} field {k}"
                    )
            out[i] = budget.join(
                b"", [messages.written(fields[k], rows[k][i, : max(counted[k], 0)].tolist()) for k in order]
            )
        return out.reshape(sizes.shape[:-1])

    return kernel


def _encode_shape(c: Inference) -> Sequence[Shape]:
    sizes = with_rank_at_least(c.shapes[0], 1)
    batch = None if sizes is None else sizes[:-1]
    for s in c.shapes[1:]:
        s = with_rank_at_least(s, 1)
        batch = merge(batch, None if s is None else s[:-1])
    return [batch]


op(
    "EncodeProto",
    "sizes: int32, values: Tinput_types",
    "bytes: string",
    {
        "field_names": list_attr("string"),
        "message_type": string_attr(),
        **_SOURCE,
        "Tinput_types": list_attr("type", minimum=1),
    },
    shape=_encode_shape,
    stateful=_encode_kernel,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(20000)),
    doc="Serialized messages with given values of their fields.",
)
