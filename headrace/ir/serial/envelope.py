"""Envelope: bytes that contain a snapshot, with a header that is checked first.

    data = pack(MAGIC, 1, fields, writer, "part")
    fields, reader = unpack(MAGIC, 1, data, "part")

Layout, all numbers little-endian: eight magic bytes, the version (u16), the number of graphs (u32), the length of the
JSON text (u64), for each graph the length of its nodes (u64), then the JSON text and the nodes (`ir.serial.snapshot`).

The bytes are hostile input: lengths are compared with the size of the input before anything is read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.errors import DataLossError, InvalidArgumentError, UnimplementedError
from headrace.ir.serial.snapshot import Fields, SnapshotReader, SnapshotWriter

MAX_BYTES: Final = 1 << 31  # protobuf cannot read longer messages

_HEAD: Final = struct.Struct("<8sHIQ")
_LENGTH: Final = struct.Struct("<Q")


def pack(magic: bytes, version: int, fields: Mapping[str, Any], writer: SnapshotWriter, what: str) -> bytes:
    """Returns fields and graphs as bytes.

    Args:
      magic: eight bytes that begin the result.
      version: the version of the contents.
      fields: data for JSON.
      writer: the graphs.
      what: the name of the contents in messages.

    Raises:
      InvalidArgumentError: the result would have more than `MAX_BYTES`.
    """
    text = json.dumps({**fields, **writer.data()}, separators=(",", ":")).encode()
    messages = writer.messages
    lengths = b"".join(_LENGTH.pack(len(m)) for m in messages)
    out = b"".join((_HEAD.pack(magic, version, len(messages), len(text)), lengths, text, *messages))
    if len(out) > MAX_BYTES:
        raise InvalidArgumentError(
            f"the {what} has {len(out)} bytes, and at most {MAX_BYTES} can be sent. Make its large constants "
            "variables, or feed them"
        )
    return out


def unpack(magic: bytes, version: int, data: bytes, what: str, is_ours: bool = False) -> tuple[Fields, SnapshotReader]:
    """Returns the fields and a reader of the graphs that `pack` has turned into bytes.

    Args:
      magic: eight bytes that begin the data.
      version: the version of the contents.
      data: the bytes.
      what: the name of the contents in messages.
      is_ours: whether this process has written them, so that operations may call Python functions.

    Raises:
      DataLossError: the bytes are damaged or incomplete, or do not begin with `magic`.
      UnimplementedError: another version of headrace has written them.
      GraphError: their JSON text describes no snapshot.
    """
    text, messages = _split(magic, version, data, what)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise DataLossError(f"the encoded {what} contains no JSON text: {e}") from e
    return Fields(values, f"the encoded {what}"), SnapshotReader(values, messages, is_ours)


def _split(magic: bytes, version: int, data: bytes, what: str) -> tuple[bytes, Sequence[bytes]]:
    """Returns the JSON text and the nodes of each graph."""
    if len(data) < _HEAD.size or data[: len(magic)] != magic:
        raise DataLossError(f"{len(data)} bytes are no encoded {what}: they must begin with {magic!r}")
    _, written, graphs, length = _HEAD.unpack_from(data)
    if written != version:
        raise UnimplementedError(
            f"the encoded {what} has version {written}, and this version of headrace reads {version}: use one version "
            "of headrace in all processes"
        )
    at = _HEAD.size + graphs * _LENGTH.size
    if len(data) > MAX_BYTES or at > len(data):
        raise DataLossError(f"the encoded {what} of {len(data)} bytes cannot have {graphs} graphs")
    lengths = [length, *(_LENGTH.unpack_from(data, _HEAD.size + i * _LENGTH.size)[0] for i in range(graphs))]
    if at + sum(lengths) != len(data):
        raise DataLossError(f"the encoded {what} has {len(data)} bytes, and its header states {at + sum(lengths)}")
    pieces = []
    for n in lengths:
        pieces.append(data[at : at + n])
        at += n
    return pieces[0], pieces[1:]
