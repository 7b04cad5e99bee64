"""Encoded strings: base64, binary numbers, compressed strings, serialized tensors.

Source: TensorFlow's ops EncodeBase64, DecodeBase64, DecodeRaw, DecodePaddedRaw, DecodeCompressed, SerializeTensor and
ParseTensor.
"""

from __future__ import annotations

import base64
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import thresholds
from headrace.dtypes import COMPLEX, FLOATING, SIGNED, DType, bool_, string, uint8, uint16
from headrace.errors import DataLossError, InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    op,
    type_attr,
)
from headrace.ir.serial.attrs import read_tensor, write_tensor
from headrace.opkit.arrays import HANDLES, check_size
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw
from headrace.ops.strings.elements import Budget, each, texts
from headrace.shapes import Shape, show, with_rank

_COST = Facts(cost=flops_per_element(500))


# *** Base64 ***

_BASE64 = re.compile(rb"[A-Za-z0-9_-]*")


def _from_base64(text: bytes) -> bytes:
    if len(text) % 4 == 1:
        raise InvalidArgumentError(f"Base64 string length cannot be 1 modulo 4, got {len(text)} bytes")
    body = text[:-2] + text[-2:].rstrip(b"=") if len(text) % 4 == 0 else text
    if not _BASE64.fullmatch(body):
        raise InvalidArgumentError(f"Invalid character found in base64: {text[:100]!r}")
    return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))


def _to_base64_kernel(attrs: Mapping[str, Any]) -> Any:
    encode = base64.urlsafe_b64encode
    return lambda x: each(encode if attrs["pad"] else lambda text: encode(text).rstrip(b"="), x)


_PLAIN = texts(b"", b"a", b"ab", b"\xff\xfe\xfd").reshape(2, 2)

op(
    "EncodeBase64",
    "input: string",
    "output: string",
    {"pad": False},
    shape=same_as(0),
    kernel=_to_base64_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(_PLAIN, want=texts(b"", b"YQ", b"YWI", b"__79").reshape(2, 2)),
        case(_PLAIN, pad=True, want=texts(b"", b"YQ==", b"YWI=", b"__79").reshape(2, 2)),
    ],
    doc="Each string in base64, as URLs write it.",
)
op(
    "DecodeBase64",
    "input: string",
    "output: string",
    shape=same_as(0),
    kernel=lambda attrs: lambda x: each(_from_base64, x),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(texts(b"", b"YQ", b"YWI=", b"__79").reshape(2, 2), want=_PLAIN),
        case(texts(b"YR==", b"YQB="), want=texts(b"a", b"a\0")),
    ],
    doc="Each string that base64 stands for, with padding or without.",
)

# *** Numbers as they are in memory ***


def _numbers(data: bytes, shape: tuple[int, ...], attrs: Mapping[str, Any]) -> np.ndarray:
    """The numbers in `data`, which is as long as they take."""
    t = attrs["out_type"]
    if t is bool_:
        return np.frombuffer(data, np.uint8).reshape(shape) != 0
    out = np.frombuffer(data, t.numpy).reshape(shape)
    if attrs["little_endian"] != (sys.byteorder == "little"):
        out = out.byteswap()
    return out


def _raw_kernel(attrs: Mapping[str, Any]) -> Any:
    t = attrs["out_type"]

    def kernel(x: Any) -> Any:
        flat = x.ravel()
        size = len(flat[0]) if flat.size else 0
        for i, text in enumerate(flat):
            if len(text) != size:
                raise InvalidArgumentError(
                    "DecodeRaw requires input strings to all be the same size, "
                    f"but element {i} has size {len(text)} != {size}"
                )
        if size % t.size:
            raise InvalidArgumentError(
                f"Input to DecodeRaw has length {size} that is not a multiple of {t.size}, the size of {t.name}"
            )
        return _numbers(b"".join(flat), (*x.shape, size // t.size), attrs)

    return kernel


def _padded_raw_kernel(attrs: Mapping[str, Any]) -> Any:
    t = attrs["out_type"]

    def kernel(x: Any, fixed_length: Any) -> Any:
        if fixed_length.ndim:
            raise InvalidArgumentError(f"fixed_length must be scalar, got shape {show(fixed_length.shape)}")
        n = int(fixed_length)
        if n % t.size:
            raise InvalidArgumentError(f"fixed_length ({n}) must be a multiple of the size of out_type ({t.size})")
        if n <= 0:
            raise InvalidArgumentError(f"fixed_length ({n}) must be greater than zero.")
        shape = (*x.shape, n // t.size)
        check_size(shape, t)
        return _numbers(b"".join(text[:n].ljust(n, b"\0") for text in x.ravel()), shape, attrs)

    return kernel


def _row_of_unknown(c: Inference) -> Sequence[Shape]:
    return [None if c.shapes[0] is None else (*c.shapes[0], None)]


def _padded_raw_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[1], 0)
    n, t = c.scalar(1), c.attrs["out_type"]
    if n is not None and (n <= 0 or n % t.size):
        raise ValueError(f"fixed_length ({n}) must be a positive multiple of the size of out_type ({t.size})")
    return [None if c.shapes[0] is None else (*c.shapes[0], None if n is None else n // t.size)]


def _memory(x: np.ndarray, little: bool) -> bytes:
    return (x if little == (sys.byteorder == "little") else x.byteswap()).tobytes()


def _raws(rng: np.random.Generator, t: DType) -> list[Any]:
    x = draw(rng, t, (2, 2))
    return [
        case(texts(*(_memory(row, little) for row in x)), out_type=t, little_endian=little, want=x)
        for little in (True, False)
    ] + [case(np.array(b"", object), out_type=t, want=x[0, :0])]


def _padded_raws(rng: np.random.Generator, t: DType) -> list[Any]:
    x = draw(rng, t, (2, 2))
    x[1, 1] = 0
    rows = texts(_memory(x[0], True), _memory(x[1, :1], True))
    return [case(rows, np.array(2 * t.size, np.int32), out_type=t, want=x)]


_REAL = FLOATING | SIGNED | {uint8, uint16}

op(
    "DecodeRaw",
    "bytes: string",
    "output: out_type",
    {"out_type": type_attr(_REAL | COMPLEX | {bool_}), "little_endian": True},
    shape=_row_of_unknown,
    kernel=_raw_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    batch=first_in_step(0),
    facts=Facts(dynamic_shape=True, cost=flops_per_input(500)),
    sample=_raws,
    doc="The numbers whose bytes each string has; all are of one length.",
)
op(
    "DecodePaddedRaw",
    "input_bytes: string, fixed_length: int32",
    "output: out_type",
    {"out_type": type_attr(_REAL), "little_endian": True},
    shape=_padded_raw_shape,
    kernel=_padded_raw_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_padded_raws,
    doc="The numbers whose bytes each string has, cut or filled with zeros to a fixed length.",
)

# *** Compressed strings ***


def _inflated(data: bytes, window: int, several: bool, budget: Budget) -> bytes:
    """Decompresses `data`, up to its end if it is cut off.

    With `several`, further compressed streams may follow the first one.
    """
    out = []
    stream = zlib.decompressobj(window)
    while True:
        try:
            part = stream.decompress(data, thresholds.UNPACKED_BYTES)
        except zlib.error as e:
            raise DataLossError(f"inflate() failed: {e}") from None
        out.append(part)
        budget.take(len(part))
        data = stream.unconsumed_tail
        if stream.eof and several and stream.unused_data:
            data, stream = stream.unused_data, zlib.decompressobj(window)
        elif stream.eof or (not data and len(part) < thresholds.UNPACKED_BYTES):
            return b"".join(out)


def _decompress_kernel(attrs: Mapping[str, Any]) -> Any:
    kind = attrs["compression_type"]
    if kind == "":
        return lambda x: x
    if kind == "ZSTD":
        raise UnimplementedError("compression_type ZSTD is not supported; ZLIB and GZIP are")
    if kind not in ("ZLIB", "GZIP"):
        raise InvalidArgumentError(f"Only ZLIB, GZIP or NONE are supported compressions, got {kind!r}")
    window = zlib.MAX_WBITS + (16 if kind == "GZIP" else 0)

    def kernel(x: Any) -> Any:
        budget = Budget("DecodeCompressed")
        return each(lambda text: _inflated(text, window, kind == "GZIP", budget), x)

    return kernel


def _compressed(kind: str) -> list[Any]:
    plain = texts(b"", b"hello" * 30, b"a")

    def deflated(text: bytes) -> bytes:
        stream = zlib.compressobj(wbits=zlib.MAX_WBITS + (16 if kind == "GZIP" else 0))
        return stream.compress(text) + stream.flush() if kind else text

    return [case(each(deflated, plain), compression_type=kind, want=plain)]


op(
    "DecodeCompressed",
    "bytes: string",
    "output: string",
    {"compression_type": ""},
    shape=same_as(0),
    kernel=_decompress_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(10000)),
    sample=lambda rng, dtype: [c for kind in ("", "ZLIB", "GZIP") for c in _compressed(kind)],
    doc="What each compressed string holds.",
    differs="Refuses ZSTD.",
)

# *** Serialized tensors ***


def _parse_kernel(attrs: Mapping[str, Any]) -> Any:
    t = attrs["out_type"]

    def kernel(x: Any) -> Any:
        if x.ndim:
            raise InvalidArgumentError(f"Expected `serialized` to be a scalar, got shape: {show(x.shape)}")
        dtype, array = read_tensor(x.item())
        if dtype is not t:
            raise InvalidArgumentError(f"Type mismatch between parsed tensor ({dtype.name}) and dtype ({t.name})")
        check_size(array.shape, t)
        return array

    return kernel


def _parse_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 0)
    return [None]


def _serialize_kernel(attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    if t in HANDLES:
        raise UnimplementedError(f"a {t.name} cannot be serialized")
    return lambda x: np.array(write_tensor(np.asarray(x), t), object)


def _serialized(x: np.ndarray, t: DType) -> np.ndarray:
    """Serialized TensorProto: its fields 1, 2 and 4, or 8 for strings."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    shape = b"".join(field(2, bytes([8, d]) if d else b"") for d in x.shape)
    value = b"".join(field(8, v) for v in x.ravel()) if t is string else field(4, x.tobytes()) if x.size else b""
    return np.array(bytes([8, t.number]) + field(2, shape) + value, object)


def _plain(rng: np.random.Generator, t: DType) -> list[np.ndarray]:
    return [] if t in HANDLES else [draw(rng, t, shape) for shape in ((2,), (), (0, 3))]


op(
    "SerializeTensor",
    "tensor: T",
    "serialized: string",
    {"T": type_attr()},
    shape=lambda c: [()],
    kernel=_serialize_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(2)),
    sample=lambda rng, t: [case(x, want=_serialized(x, t)) for x in _plain(rng, t)],
    doc="A tensor as a string: a serialized TensorProto.",
)
op(
    "ParseTensor",
    "serialized: string",
    "output: out_type",
    {"out_type": type_attr()},
    shape=_parse_shape,
    kernel=_parse_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    sample=lambda rng, t: [case(_serialized(x, t), out_type=t, want=x) for x in _plain(rng, t)],
    doc="The tensor that a serialized TensorProto says.",
)
