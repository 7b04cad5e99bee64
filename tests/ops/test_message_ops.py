"""Fields of serialized messages, with TensorFlow 2.21's values and errors."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2

import headrace as hr
from headrace.errors import DataLossError, InvalidArgumentError

pytestmark = pytest.mark.one_engine

_KINDS = (
    "DOUBLE FLOAT INT64 UINT64 INT32 FIXED64 FIXED32 BOOL STRING MESSAGE BYTES UINT32 ENUM SFIXED32 SFIXED64 SINT32 "
    "SINT64"
)


@functools.cache
def descriptors() -> bytes:
    """A set of two files with the message t.M, which has fields of all types."""
    F = descriptor_pb2.FieldDescriptorProto
    other = descriptor_pb2.FileDescriptorProto(name="other.proto", package="t", syntax="proto2")
    other.message_type.add(name="N").field.add(name="a", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    other.enum_type.add(name="E").value.add(name="A", number=0)
    other.enum_type[0].value.add(name="B", number=-1)
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto2", dependency=["other.proto"])
    message = file.message_type.add(name="M")
    number = 0
    for kind in _KINDS.split():
        for label in (F.LABEL_OPTIONAL, F.LABEL_REPEATED):
            number += 1
            name = f"{'o' if label == F.LABEL_OPTIONAL else 'r'}_{kind.lower()}"
            field = message.field.add(name=name, number=number, type=getattr(F, f"TYPE_{kind}"), label=label)
            if kind in ("MESSAGE", "ENUM"):
                field.type_name = ".t.N" if kind == "MESSAGE" else ".t.E"
    for name, type, default in (("int", "INT32", "7"), ("str", "STRING", "dd"), ("enum", "ENUM", "B")):
        number += 1
        field = message.field.add(name=f"d_{name}", number=number, type=getattr(F, f"TYPE_{type}"))
        field.label, field.default_value = F.LABEL_OPTIONAL, default
        if type == "ENUM":
            field.type_name = ".t.E"
    packed = message.field.add(name="p_int", number=number + 1, type=F.TYPE_INT32, label=F.LABEL_REPEATED)
    packed.options.packed = True
    message.extension_range.add(start=1000, end=2000)
    file.extension.add(name="ext", number=1000, extendee=".t.M", type=F.TYPE_INT32, label=F.LABEL_REPEATED)
    return descriptor_pb2.FileDescriptorSet(file=[file, other]).SerializeToString()


def decoded(data: Any, names: str, *types: hr.DType, source: Any = None, **more: Any) -> tuple[Any, list[Any]]:
    found = hr.io.decode_proto(data, "t.M", names.split(), types, source or b"bytes://" + descriptors(), **more)
    return found.sizes.numpy().tolist(), [v.numpy().tolist() for v in found.values]


def encoded(sizes: Any, values: Any, names: str) -> Any:
    return hr.io.encode_proto(sizes, values, names.split(), "t.M", b"bytes://" + descriptors()).numpy().tolist()


# Type, dtype, and the bytes of the values 1 and 3 of the repeated field, as TensorFlow writes them.
_WRITTEN = [
    ("double", hr.float64, b"\x11\0\0\0\0\0\0\xf0?\x11\0\0\0\0\0\0\x08@"),
    ("float", hr.float32, b"%\0\0\x80?%\0\0@@"),
    ("float", hr.float64, b"%\0\0\x80?%\0\0@@"),
    ("int64", hr.int64, b"0\x010\x03"),
    ("uint64", hr.uint64, b"@\x01@\x03"),
    ("int32", hr.int32, b"P\x01P\x03"),
    ("int32", hr.int64, b"P\x01P\x03"),
    ("fixed64", hr.uint64, b"a\x01\0\0\0\0\0\0\0a\x03\0\0\0\0\0\0\0"),
    ("fixed32", hr.uint32, b"u\x01\0\0\0u\x03\0\0\0"),
    ("bool", hr.bool, b"\x80\x01\x01\x80\x01\x01"),
    ("uint32", hr.uint64, b"\xc0\x01\x01\xc0\x01\x03"),
    ("enum", hr.int32, b"\xd0\x01\x01\xd0\x01\x03"),
    ("sfixed32", hr.int32, b"\xe5\x01\x01\0\0\0\xe5\x01\x03\0\0\0"),
    ("sfixed64", hr.int64, b"\xf1\x01\x01\0\0\0\0\0\0\0\xf1\x01\x03\0\0\0\0\0\0\0"),
    ("sint32", hr.int32, b"\x80\x02\x02\x80\x02\x06"),
    ("sint64", hr.int64, b"\x90\x02\x02\x90\x02\x06"),
]


@pytest.mark.parametrize(("kind", "dtype", "data"), _WRITTEN, ids=lambda x: getattr(x, "name", str(x)[:9]))
def test_numbers(kind: str, dtype: hr.DType, data: bytes) -> None:
    values = np.array([[1, 3]], dtype.numpy)
    assert encoded([[2]], [values], f"r_{kind}") == [data]
    assert decoded(data, f"r_{kind}", dtype) == ([2], [values.tolist()[0]])


def test_strings_and_messages() -> None:
    texts = np.array([[b"\xff\xfe", b""]], object)
    for kind, data in (("string", b"\x92\x01\x02\xff\xfe\x92\x01\0"), ("message", b"\xa2\x01\x02\xff\xfe\xa2\x01\0")):
        assert encoded([[2]], [texts], f"r_{kind}") == [data]
        assert decoded(data, f"r_{kind}", hr.string) == ([2], [[b"\xff\xfe", b""]])


def test_signs_and_widths() -> None:
    below = hr.constant([[-4]], hr.int64)
    assert encoded([[1]], [below], "o_int32") == [b"H\xfc" + b"\xff" * 8 + b"\x01"]
    assert encoded([[1]], [below], "o_sint32") == [b"\xf8\x01\x07"]
    assert encoded([[1]], [hr.constant([[2**40]], hr.int64)], "o_int32") == [b"H\x00"]
    assert decoded(b"H\x80\x80\x80\x80\x10", "o_int32", hr.int32) == ([1], [[0]])
    assert decoded(b"x\x80\x01", "o_bool", hr.bool) == ([1], [[True]])
    assert decoded(b"\xb8\x01" + b"\xff" * 9 + b"\x01", "o_uint32", hr.uint32) == ([1], [[2**32 - 1]])


def test_fields_are_padded_with_their_defaults() -> None:
    names = "r_int32 d_int d_str d_enum o_int32"
    types = hr.int32, hr.int32, hr.string, hr.int32, hr.int32
    sizes, values = decoded([[b"P\x01P\x02H\x04H\x05"], [b""]], names, *types)
    assert sizes == [[[2, 0, 0, 0, 1]], [[0, 0, 0, 0, 0]]]
    assert values == [
        [[[1, 2]], [[0, 0]]],
        [[[7]], [[7]]],
        [[[b"dd"]], [[b"dd"]]],
        [[[-1]], [[-1]]],
        [[[5]], [[0]]],
    ]
    assert decoded(b"H\x04", "o_int32 o_int32", hr.int32, hr.int32) == ([1, 0], [[4], [0]])
    assert decoded(b"H\x04", "") == ([], [])


def test_other_forms_on_the_wire() -> None:
    assert decoded(b"R\x02\x05\x06P\x07", "r_int32", hr.int32) == ([3], [[5, 6, 7]])  # partly packed
    assert decoded(b"\xc0\x3e\x05\xc0\x3e\x06", "t.ext", hr.int32) == ([2], [[5, 6]])
    assert decoded(b"Mabcd", "o_int32", hr.int32) == ([0], [[0]])  # of another type
    assert decoded(b"\x0b\x08\x01\x0cH\x02", "o_int32", hr.int32) == ([1], [[2]])  # after a group
    text = b"o_int32: 4 r_int32: 1 r_int32: 2 o_message { a: 3 }"
    found = decoded(text, "o_int32 r_int32 o_message", hr.int32, hr.int32, hr.string, message_format="text")
    assert found == ([1, 2, 1], [[4], [1, 2], [b"\x08\x03"]])
    unknown = b"\x9a\x01\x04\x10\x01\x08\x05"
    assert decoded(unknown, "o_message", hr.string) == ([1], [[b"\x10\x01\x08\x05"]])
    assert decoded(unknown, "o_message", hr.string, sanitize=True) == ([1], [[b"\x08\x05\x10\x01"]])


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff", b"H", b"H\xff", b"\x8a\x01\x05ab", b"\x1dab", b"\0", b"\x0b\x08\x01", b"\x0c", b"\x0e",
     b"R\x02\x05\xff", b"r\x05abcde", b"(" + b"\xff" * 10 + b"\x01"],
)  # fmt: skip
def test_damaged_messages(data: bytes) -> None:
    with pytest.raises(DataLossError):
        decoded(data, "o_int32 r_int32 r_fixed32", hr.int32, hr.int32, hr.uint32)


def test_fields_are_written_by_number() -> None:
    values = [hr.constant([[4]]), hr.constant([[4, 5]]), hr.constant([[1.0]])]
    packed = b"\xb2\x02\x02\x04\x05"
    assert encoded([[1, 2, 1]], values, "r_int32 p_int o_float") == [b"\x1d\0\0\x80?P\x04" + packed]
    assert encoded([[-1, 0, 1]], values, "r_int32 p_int o_float") == [b"\x1d\0\0\x80?"]


@pytest.mark.parametrize(
    ("sizes", "values", "names", "match"),
    [
        ([[3]], [[[4, 5]]], "r_int32", "must not be larger than value tensor; but saw: 3 > 2 at message 0 field 0"),
        ([1], [[4]], "r_int32", r"Saw shape \[1\] but it should be at least a matrix"),
        ([[1], [0]], [[[4], [5], [6]]], "o_int32", r"Saw: \[2,1\] but expected: \[3,1\]"),
        ([[1, 1]], [[[4]], [[4], [4]]], "o_int32 r_int32", "Values must match up to the last dimension"),
        ([[1]], [[[4]]], "o_int32 r_int32", "Length of inputs list must match field_names"),
        ([[1]], [[[4]]], "o_uint32", "Saw dtype: int32 but field type is: uint32"),
        ([[1]], [[[4]]], "t.ext", "Unknown field: t.ext in message type t.M"),
    ],
)
def test_refused_values(sizes: Any, values: Any, names: str, match: str) -> None:
    b = hr.Graph()
    with b:
        made = hr.raw_ops.EncodeProto(
            sizes=hr.placeholder_with_default(np.array(sizes, np.int32), None),
            values=[hr.placeholder_with_default(np.array(v, np.int32), None) for v in values],
            field_names=names.split(),
            message_type="t.M",
            descriptor_source=(b"bytes://" + descriptors()).decode("utf-8", "surrogateescape"),
        )
    with pytest.raises(InvalidArgumentError, match=match):
        hr.Session(graph=b).run(made)


def test_refused_fields_and_sources(tmp_path: Path) -> None:
    for names, types, more, match in (
        ("o_int32", [hr.float32], {}, "Unexpected output type for t.M.o_int32: int32 to"),
        ("nope", [hr.int32], {}, "Unknown field: nope in message type t.M"),
        ("ext", [hr.int32], {}, "Unknown field: ext"),
        ("o_int32", [hr.int32] * 2, {}, "must have the same length"),
        ("o_int32", [hr.int32], {"message_format": "json"}, "format must be one of binary or text"),
        ("o_int32", [hr.int32], {"source": "local://"}, "No descriptor found for message type t.M"),
        ("o_int32", [hr.int32], {"source": b"bytes://\xff"}, "serialized file descriptor set"),
        ("o_int32", [hr.int32], {"source": str(tmp_path / "none")}, "serialized file descriptor set"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            decoded(b"H\x04", names, *types, **more)
    with pytest.raises(InvalidArgumentError, match="at least one value"):
        decoded(np.array([], object), "o_int32", hr.int32)
    with pytest.raises(DataLossError, match="Unable to parse text protobuf"):
        decoded(b"zz: 4", "o_int32", hr.int32, message_format="text")
    file = tmp_path / "set"
    file.write_bytes(descriptors())
    assert decoded(b"H\x04", "o_int32", hr.int32, source=str(file)) == ([1], [[4]])
    circle = descriptor_pb2.FileDescriptorSet()
    for a, b in ("xy", "yx"):
        circle.file.add(name=a, dependency=[b])
    with pytest.raises(InvalidArgumentError, match="serialized file descriptor set"):
        decoded(b"", "", source=b"bytes://" + circle.SerializeToString())


def test_messages_of_the_process() -> None:
    example = hr.io.decode_json_example('{"features": {"feature": {"x": {"floatList": {"value": [0.5]}}}}}')
    for name in ("tensorflow.Example", "headrace.pb.Example"):
        (features,) = hr.io.decode_proto([example], name, ["features"], [hr.string]).values
        (entries,) = hr.io.decode_proto(features, name.replace("Example", "Features"), ["feature"], [hr.string]).values
        assert entries.shape == (1, 1, 1)
