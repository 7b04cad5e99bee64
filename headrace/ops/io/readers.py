"""Readers: resources that return the pieces of files, which a queue names.

Reading is asynchronous: a firing that waits for a file name or for a disk occupies no thread of the executor.

Source: TensorFlow's WholeFileReaderV2, TextLineReaderV2, FixedLengthRecordReaderV2, TFRecordReaderV2, IdentityReaderV2,
ReaderReadV2, ReaderReadUpToV2, ...; and the same without V2, whose handles are references to names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import InvalidArgumentError
from headrace.files import records, sources
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, int_attr, op, shape_attr, string_attr, type_attr
from headrace.opkit.shape_rules import nothing, scalars
from headrace.resources.manager import DEFAULT_CONTAINER, Handle, handle_of, resource_of
from headrace.resources.names import name_ref, named
from headrace.resources.queue import Done, Queue
from headrace.resources.reader import Open, Reader
from headrace.resources.values import shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_WAITS = Facts(effect="resource", writes=True, waits=True)
_READS = Facts(effect="resource", waits=True)

Attrs = Mapping[str, Any]
Find = Callable[["KernelContext", Any, type], Any]  # a resource of a kind, from a handle


def _by_handle(ctx: KernelContext, handle: Any, kind: type) -> Any:
    return resource_of(ctx.step, handle, kind)


def _by_name(ctx: KernelContext, ref: Any, kind: type) -> Any:
    return named(ctx.step.session, ref, kind)


# *** making ***


def _lines(attrs: Attrs) -> Open:
    return lambda name: sources.Lines(name, attrs["skip_header_lines"])


def _fixed(attrs: Attrs) -> Open:
    header, length, footer, hop = (attrs[f"{a}_bytes"] for a in ("header", "record", "footer", "hop"))
    encoding = attrs.get("encoding", "")
    for what, value, least in (("header", header, 0), ("record", length, 1), ("footer", footer, 0), ("hop", hop, 0)):
        if value < least:
            raise InvalidArgumentError(f"{what}_bytes must be >= {least} not {value}")
    if length > sources.MOST:
        raise InvalidArgumentError(f"record_bytes must be <= {sources.MOST} not {length}")
    records.check_kind(encoding)
    return lambda name: sources.Fixed(name, length, header, footer, hop, encoding)


def _records(attrs: Attrs) -> Open:
    records.check_kind(attrs["compression_type"])
    return lambda name: sources.Records(name, attrs["compression_type"])


def _rows(attrs: Attrs) -> Open:
    dtype, row = attrs["dtype"], attrs["shape"]
    if not shapes.is_full(row):
        raise InvalidArgumentError(f"the shape of the rows must be fully known, got {shapes.show(row)}")
    return lambda name: sources.Rows(name, dtype, row, attrs["member"])


def _reader(ctx: KernelContext, attrs: Attrs, kind: str, make: Callable[[Attrs], Open], keeps_state: bool) -> Reader:
    """The session's reader of the op's name, which must be like this one."""
    name = attrs["shared_name"] or ctx.node
    declared = {"type": kind, **{k: v for k, v in attrs.items() if k not in ("container", "shared_name")}}
    open = make(attrs)
    reader: Reader = ctx.step.session.lookup_or_create(
        attrs["container"], Reader, name, lambda: Reader(name, open, declared, keeps_state)
    )
    reader.check_same(declared)
    return reader


def _handle(kind: str, make: Callable[[Attrs], Open], keeps_state: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[[], Handle]:
        def kernel() -> Handle:
            reader = _reader(ctx, attrs, kind, make, keeps_state)
            return handle_of(ctx.op, attrs["container"], Reader, reader.name)

        return kernel

    return factory


def _name(kind: str, make: Callable[[Attrs], Open], keeps_state: bool) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[[], Any]:
        return lambda: name_ref(
            attrs["container"] or DEFAULT_CONTAINER, _reader(ctx, attrs, kind, make, keeps_state).name
        )

    return factory


_PLACE = {"container": "", "shared_name": ""}
_LENGTHS = {
    "header_bytes": 0,
    "record_bytes": int_attr(),
    "footer_bytes": 0,
    "hop_bytes": 0,
}
_COMPRESSED = {**_PLACE, "compression_type": ""}
for _type, _attrs, _more, _make, _keeps, _doc in (
    ("WholeFileReader", _PLACE, {}, lambda attrs: sources.Whole, True, "gives each file as a whole"),
    ("TextLineReader", {"skip_header_lines": 0, **_PLACE}, {}, _lines, False, "gives the lines of files"),
    (
        "FixedLengthRecordReader",
        {**_LENGTHS, **_PLACE},
        {"encoding": ""},
        _fixed,
        False,
        "gives pieces of one length",
    ),
    ("TFRecordReader", _COMPRESSED, {}, _records, False, "gives the records of record files"),
    ("IdentityReader", _PLACE, {}, lambda attrs: sources.Name, True, "gives the names that it gets"),
):
    op(
        f"{_type}V2",
        "",
        "reader_handle: resource",
        {**_attrs, **_more},
        shape=scalars,
        stateful=_handle(_type, _make, _keeps),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"A handle to the session's reader of this name, which {_doc}.",
    )
    op(
        _type,
        "",
        "reader_handle: Ref(string)",
        _attrs,
        shape=lambda c: [(2,)],
        stateful=_name(_type, _make, _keeps),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"The name of the session's reader which {_doc}.",
    )
op(
    "_NpyReader",
    "",
    "reader_handle: resource",
    {"dtype": type_attr(), "shape": shape_attr(), "member": string_attr(""), **_PLACE},
    shape=scalars,
    stateful=_handle("NpyReader", _rows, False),
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A handle to the session's reader of this name, which gives the bytes of the rows of arrays in numpy's files.",
)


# *** reading ***


def _scalar(value: Any, what: str) -> Any:
    if shape_of(value):
        raise InvalidArgumentError(f"{what} must be a scalar, got shape {shapes.show(shape_of(value))}")
    return value


def _text(x: bytes) -> np.ndarray:
    return np.array(x, object)


def _texts(column: Sequence[bytes]) -> np.ndarray:
    out = np.empty(len(column), object)
    out[:] = column
    return out


def _read(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        def kernel(handle: Any, queue: Any, done: Done) -> Any:
            def give(got: Any) -> None:
                done((_text(got[0]), _text(got[1])) if isinstance(got, tuple) else got)

            return find(ctx, handle, Reader).read(find(ctx, queue, Queue), give)

        return kernel

    return factory


def _read_up_to(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        def kernel(handle: Any, queue: Any, n: Any, done: Done) -> Any:
            def give(got: Any) -> None:
                done(tuple(map(_texts, zip(*got, strict=True))) if isinstance(got, list) else got)

            most = int(_scalar(n, "num_records"))
            return find(ctx, handle, Reader).read_up_to(find(ctx, queue, Queue), most, give)

        return kernel

    return factory


def _asked(find: Find, question: Callable[[Reader], Any]) -> Any:
    return lambda ctx, attrs: lambda handle: question(find(ctx, handle, Reader))


def _restore(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
        def kernel(handle: Any, state: Any) -> None:
            find(ctx, handle, Reader).restore(_scalar(state, "Reader state").item())

        return kernel

    return factory


def _many(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[2], 0)
    return [(None,), (None,)]


for _suffix, _kind, _find in (("V2", "resource", _by_handle), ("", "Ref(string)", _by_name)):
    _me = f"reader_handle: {_kind}"
    op(
        f"ReaderRead{_suffix}",
        f"{_me}, queue_handle: {_kind}",
        "key: string, value: string",
        shape=scalars,
        async_=_read(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_WAITS,
        doc="The next piece of the files whose names are in the queue, and where it comes from; waits for a name.",
    )
    op(
        f"ReaderReadUpTo{_suffix}",
        f"{_me}, queue_handle: {_kind}, num_records: int64",
        "keys: string, values: string",
        shape=_many,
        async_=_read_up_to(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_WAITS,
        doc="The next pieces of a file, at most so many, and where they come from; waits for a name.",
        differs="Records before a damaged record are returned first; TensorFlow loses them.",
    )
    op(
        f"ReaderNumRecordsProduced{_suffix}",
        _me,
        "records_produced: int64",
        shape=scalars,
        stateful=_asked(_find, lambda reader: np.int64(reader.num_records_produced())),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="How many pieces the reader has given.",
    )
    op(
        f"ReaderNumWorkUnitsCompleted{_suffix}",
        _me,
        "units_completed: int64",
        shape=scalars,
        stateful=_asked(_find, lambda reader: np.int64(reader.num_work_units_completed())),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="How many files the reader is done with.",
    )
    op(
        f"ReaderSerializeState{_suffix}",
        _me,
        "state: string",
        shape=scalars,
        stateful=_asked(_find, lambda reader: _text(reader.state())),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="Where a reader of whole files or of names stands.",
    )
    op(
        f"ReaderRestoreState{_suffix}",
        f"{_me}, state: string",
        "",
        shape=nothing,
        stateful=_restore(_find),
        grad=NOT_DIFFERENTIABLE,
        facts=_WAITS,
        doc="Has a reader of whole files or of names go on where another stood.",
    )
    op(
        f"ReaderReset{_suffix}",
        _me,
        "",
        shape=nothing,
        stateful=_asked(_find, Reader.reset),
        grad=NOT_DIFFERENTIABLE,
        facts=_WAITS,
        doc="Makes the reader as it was when it was new.",
    )
