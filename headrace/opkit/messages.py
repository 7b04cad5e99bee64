"""Fields of serialized protocol messages, whose types are known by name alone.

A *source* of descriptors is `local://` (the messages of headrace, by TensorFlow's names too, and those that the program
has imported), or a serialized `FileDescriptorSet`. Messages are read field by field from their bytes, as TensorFlow
does: a field that is not wanted is skipped, and strings are not checked for UTF-8.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace import dtypes, varints
from headrace.dtypes import DType
from headrace.errors import DataLossError, InvalidArgumentError

_LOCAL: Final = (b"", b"local://")
_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}


def _signed(bits: int) -> Callable[[int], int]:
    return lambda n: ((n & ((1 << bits) - 1)) ^ (1 << (bits - 1))) - (1 << (bits - 1))


def _unsigned(bits: int) -> Callable[[int], int]:
    return lambda n: n & ((1 << bits) - 1)


def _unzigzag(bits: int) -> Callable[[int], int]:
    return lambda n: ((n & ((1 << bits) - 1)) >> 1) ^ -(n & 1)


def _zigzag(bits: int) -> Callable[[int], int]:
    narrow = _signed(bits)
    return lambda n: (narrow(n) << 1) ^ (narrow(n) >> (bits - 1))


class _Kind(NamedTuple):
    """A type of fields: its form on the wire, and dtypes of values."""

    name: str
    wire: int
    dtypes: tuple[DType, ...]
    of_wire: Callable[[Any], Any] = lambda n: n  # from a varint
    to_wire: Callable[[Any], Any] = lambda n: n
    format: str = ""  # of `struct`, for a number of fixed width


_INT32, _UINT32 = (dtypes.int32, dtypes.int64), (dtypes.uint32, dtypes.uint64)
_STRING = (dtypes.string,)
# By the number of the type in a descriptor.
_KINDS: Final = {
    1: _Kind("double", _FIXED64, (dtypes.float64,), format="<d"),
    2: _Kind("float", _FIXED32, (dtypes.float32, dtypes.float64), format="<f"),
    3: _Kind("int64", _VARINT, (dtypes.int64,), _signed(64), _unsigned(64)),
    4: _Kind("uint64", _VARINT, (dtypes.uint64,), _unsigned(64), _unsigned(64)),
    5: _Kind("int32", _VARINT, _INT32, _signed(32), lambda n: _signed(32)(n) & (1 << 64) - 1),
    6: _Kind("fixed64", _FIXED64, (dtypes.uint64,), format="<Q"),
    7: _Kind("fixed32", _FIXED32, _UINT32, to_wire=_unsigned(32), format="<I"),
    8: _Kind("bool", _VARINT, (dtypes.bool_,), bool, int),
    9: _Kind("string", _BYTES, _STRING),
    10: _Kind("group", _START, _STRING),
    11: _Kind("message", _BYTES, _STRING),
    12: _Kind("bytes", _BYTES, _STRING),
    13: _Kind("uint32", _VARINT, _UINT32, _unsigned(32), _unsigned(32)),
    14: _Kind("enum", _VARINT, (dtypes.int32,), _signed(32), lambda n: n & (1 << 64) - 1),
    15: _Kind("sfixed32", _FIXED32, _INT32, to_wire=_signed(32), format="<i"),
    16: _Kind("sfixed64", _FIXED64, (dtypes.int64,), format="<q"),
    17: _Kind("sint32", _VARINT, _INT32, _unzigzag(32), _zigzag(32)),
    18: _Kind("sint64", _VARINT, (dtypes.int64,), _unzigzag(64), _zigzag(64)),
}


class Field(NamedTuple):
    """A field of a message, with the dtype of its values."""

    number: int
    kind: _Kind
    dtype: DType
    repeated: bool
    packed: bool
    default: Any


# *** Descriptors ***


@functools.lru_cache(maxsize=16)
def _pool(serialized: bytes) -> Any:
    """The pool of the files of a `FileDescriptorSet`, each behind its imports."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        files = {f.name: f for f in descriptor_pb2.FileDescriptorSet.FromString(serialized).file}
        pool = descriptor_pool.DescriptorPool()
        waiting = list(reversed(files.values()))
        entered: set[str] = set()
        while waiting:
            file = waiting[-1]
            needed = [files[d] for d in file.dependency if d in files and d not in entered]
            if file.name not in entered and needed:
                entered.add(file.name)
                waiting += needed
                continue
            waiting.pop()
            if file.name in files:
                del files[file.name]
                entered.add(file.name)
                pool.AddSerializedFile(file.SerializeToString())
    except (DecodeError, TypeError, KeyError, ValueError) as e:
        raise InvalidArgumentError(f"Source does not represent serialized file descriptor set proto. {e}") from None
    return pool


@functools.cache
def _load_ours() -> None:
    """Imports all messages of headrace, which adds them to the pool of the process."""
    from headrace import pb

    for module in pkgutil.iter_modules(pb.__path__):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"{pb.__name__}.{module.name}")


def descriptor(source: bytes, message_type: str) -> Any:
    """Returns the descriptor of a message.

    Args:
      source: `local://`, or a serialized `FileDescriptorSet`.
      message_type: its full name.

    Raises:
      InvalidArgumentError: there is no such message, or the source is no set of descriptors.

    Example:
      >>> descriptor(b"local://", "tensorflow.Summary.Value").name
      'Value'
    """
    from google.protobuf import descriptor_pool

    names = [message_type]
    if source in _LOCAL:
        pool: Any = descriptor_pool.Default()
        if message_type.startswith("tensorflow."):
            names.insert(0, f"headrace.pb.{message_type.removeprefix('tensorflow.')}")
        if message_type.startswith(("tensorflow.", "headrace.pb.")):
            _load_ours()
    else:
        pool = _pool(source)
    for name in names:
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError:
            pass
    raise InvalidArgumentError(f"No descriptor found for message type {message_type}")


def fields_to_read(message: Any, names: Sequence[str], types: Sequence[DType]) -> list[Field]:
    """The fields of a message by their names, or by the full names of extensions.

    Raises:
      InvalidArgumentError: there is no such field, or its values are not of this dtype.
    """
    if len(names) != len(types):
        raise InvalidArgumentError("field_names and output_types attributes must have the same length")
    out = []
    for name, dtype in zip(names, types, strict=True):
        found = _field(message, name, dtype, extensions=True)
        if dtype not in found.kind.dtypes:
            raise InvalidArgumentError(
                f"Unexpected output type for {message.full_name}.{name}: {found.kind.name} to DT_{dtype.name.upper()}"
            )
        out.append(found)
    return out


def fields_to_write(message: Any, names: Sequence[str], types: Sequence[DType]) -> list[Field]:
    """The fields of a message by their names.

    Raises:
      InvalidArgumentError: there is no such field, or its values are not of this dtype.
    """
    out = []
    for name, dtype in zip(names, types, strict=True):
        found = _field(message, name, dtype, extensions=False)
        if dtype not in found.kind.dtypes:
            raise InvalidArgumentError(
                f"Incompatible type for field {name}.  Saw dtype: {dtype.name} but field type is: {found.kind.name}"
            )
        out.append(found)
    return out


def _field(message: Any, name: str, dtype: DType, extensions: bool) -> Field:
    found = message.fields_by_name.get(name)
    if found is None and extensions:
        try:
            found = message.file.pool.FindExtensionByName(name)
        except KeyError:
            pass
        else:
            if found.containing_type is not message:
                found = None
    if found is None:
        raise InvalidArgumentError(f"Unknown field: {name} in message type {message.full_name}")
    kind, default = _KINDS[found.type], found.default_value
    if found.is_repeated or found.message_type is not None or default is None:
        default = b"" if dtype is dtypes.string else 0
    elif isinstance(default, str):
        default = default.encode()
    return Field(found.number, kind, dtype, found.is_repeated, found.is_packed, default)


# *** Reading ***


def read(data: bytes, fields: Mapping[int, Field]) -> dict[int, list[Any]]:
    """Returns the values of fields of a serialized message.

    Of a field that is not repeated, it is the last one.

    Args:
      data: the message.
      fields: the wanted ones, by number.

    Raises:
      DataLossError: these bytes are no message.
    """
    out: dict[int, list[Any]] = {}
    for number, wire, start, end in _pieces(data):
        field = fields.get(number)
        if field is None:
            continue
        kind, found = field.kind, out.setdefault(number, [])
        if wire == kind.wire:
            found.append(_value(kind, data, start, end))
        elif wire == _BYTES and kind.wire in (_VARINT, _FIXED32, _FIXED64):
            found.extend(_packed(kind, data, start, end))
        if not field.repeated:
            del found[:-1]
    return out


def _value(kind: _Kind, data: bytes, start: int, end: int) -> Any:
    if kind.format:
        return struct.unpack_from(kind.format, data, start)[0]
    if kind.wire == _VARINT:
        return kind.of_wire(_varint(data, start, end)[0])
    return data[start:end]


def _packed(kind: _Kind, data: bytes, start: int, end: int) -> Iterator[Any]:
    width = _WIDTHS.get(kind.wire)
    if width and (end - start) % width:
        raise DataLossError(f"Illegal data length for packed fixed-size type: {end - start}")
    while start < end:
        at = start + width if width else _varint(data, start, end)[1]
        yield _value(kind, data, start, at)
        start = at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 64 bits, and the place behind it."""
    try:
        value, behind = varints.decode(data, at, end)
    except ValueError:
        raise DataLossError(f"The message has no whole number at byte {at} of {end}") from None
    return value & (1 << 64) - 1, behind


def _pieces(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The number, wire type and extent of each outermost field."""
    at, groups = 0, list[tuple[int, int]]()  # number and start of each group that is open
    while at < len(data):
        begin = at
        tag, at = _varint(data, at, len(data))
        number, wire, start = tag >> 3, tag & 7, at
        if not 0 < number < 1 << 29:
            raise DataLossError(f"Failed to consume entire buffer: no field has the number {number} (byte {begin})")
        if wire == _START:
            groups.append((number, at))
            continue
        if wire == _END:
            if not groups or groups[-1][0] != number:
                raise DataLossError(f"Failed to consume entire buffer: the end of a group at byte {begin}")
            number, start = groups.pop()
            if not groups:
                yield number, _START, start, begin
            continue
        if wire == _VARINT:
            at = _varint(data, at, len(data))[1]
        elif wire == _BYTES:
            size, start = _varint(data, at, len(data))
            at = start + size
        elif wire in _WIDTHS:
            at += _WIDTHS[wire]
        else:
            raise DataLossError(f"Failed skipping field {number}: wire type {wire} (byte {begin})")
        if at > len(data):
            raise DataLossError(f"Failed skipping field {number}: it ends at byte {at} of {len(data)}")
        if not groups:
            yield number, wire, start, at
    if groups:
        raise DataLossError(f"Failed skipping field {groups[0][0]}: the group has no end")


def reserialized(message: Any, data: bytes, is_text: bool) -> bytes:
    """The bytes of a message that is parsed and written again.

    Raises:
      DataLossError: this is no such message.
    """
    from google.protobuf import message_factory, text_format
    from google.protobuf.message import DecodeError

    made = message_factory.GetMessageClass(message)()
    try:
        if is_text:
            text_format.Parse(data, made)
        else:
            made.ParseFromString(data)
    except (text_format.ParseError, DecodeError, UnicodeDecodeError) as e:
        raise DataLossError(f"Unable to parse {'text' if is_text else 'binary'} protobuf: {e}") from None
    out: bytes = made.SerializePartialToString()
    return out


# *** Writing ***


def written(field: Field, values: Sequence[Any]) -> bytes:
    """The bytes of a field with these values."""
    if not values:
        return b""
    kind, tag = field.kind, varints.encode(field.number << 3 | field.kind.wire)
    if field.packed:
        content = b"".join(_bytes(kind, v) for v in values)
        return varints.encode(field.number << 3 | _BYTES) + varints.encode(len(content)) + content
    end = varints.encode(field.number << 3 | _END) if kind.wire == _START else b""
    return b"".join(tag + _bytes(kind, v) + end for v in values)


def _bytes(kind: _Kind, value: Any) -> bytes:
    if kind.format:
        return struct.pack(kind.format, kind.to_wire(value))
    if kind.wire == _VARINT:
        return varints.encode(kind.to_wire(value))
    return (varints.encode(len(value)) if kind.wire == _BYTES else b"") + bytes(value)
