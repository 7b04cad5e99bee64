"""Codec of parts: a part as bytes, for the process that runs it.

    data = encode(part)
    part = decode(data)          # in another process; its plan is equal

A part is encoded before its regions are fused, because a fused region contains a function of this process. The receiver
fuses regions and makes the plan.

Layout, all numbers little-endian: `MAGIC`, the version (u16), the number of graphs (u32), the length of the JSON text
(u64), for each graph the length of its nodes (u64), then the JSON text and the nodes (`ir.serial.snapshot`).

The bytes are hostile input. Lengths are compared with the size of the input before anything is read, every value is
checked, and `ir.verify` checks the graphs at the end.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import DataLossError, GraphError, InvalidArgumentError, UnimplementedError
from headrace.ir.device import DeviceSpec
from headrace.ir.serial.snapshot import Fields, SnapshotReader, SnapshotWriter
from headrace.ir.verify import verify
from headrace.partition.part import Edge, Part, part_of

VERSION: Final = 1
MAGIC: Final = b"hr-part\n"
MAX_BYTES: Final = 1 << 31  # of an encoded part; protobuf cannot read longer messages

_HEAD: Final = struct.Struct("<8sHIQ")
_LENGTH: Final = struct.Struct("<Q")


def encode(part: Part) -> bytes:
    """Returns a part as bytes.

    Raises:
      InvalidArgumentError: an operation refers to an object of this process (a Python function, a fused region), or the
        part has more than `MAX_BYTES`; the text names the operation.
      NotFoundError: a function that an operation calls is not in the library.
      GraphError: an attribute has no wire form.

    Example:
      >>> from headrace.ir.text import from_text
      >>> from headrace.partition.part import part_of
      >>> part = part_of("/device:CPU:0", from_text("x = NoOp"), {})
      >>> decode(encode(part)).ops
      [<Operation 'x' type=NoOp>]
    """
    writer = SnapshotWriter()
    data: dict[str, Any] = {"device": part.device, "graph": writer.add(part.graph)}
    data["functions"] = {name: writer.add(graph) for name, graph in part.functions.items()}
    data["edges"] = [_edge_data(e) for e in part.edges]
    text = json.dumps(data | writer.data(), separators=(",", ":")).encode()
    messages = writer.messages
    lengths = b"".join(_LENGTH.pack(len(m)) for m in messages)
    out = b"".join((_HEAD.pack(MAGIC, VERSION, len(messages), len(text)), lengths, text, *messages))
    if len(out) > MAX_BYTES:
        raise InvalidArgumentError(
            f"the part of the step on {part.device} has {len(out)} bytes, and at most {MAX_BYTES} can be sent. Make "
            "its large constants variables, or feed them"
        )
    return out


def decode(data: bytes) -> Part:
    """Returns the part that `encode` has turned into bytes.

    Raises:
      DataLossError: the bytes are damaged or incomplete, or are no part.
      UnimplementedError: another version of headrace has written them.
      GraphError: they describe no legal part (an unknown note, an edge without its Send or Recv, an illegal graph).
      NotFoundError: an op type or a called function does not exist here.
      InvalidArgumentError: the frames of the graph do not fit together.
    """
    text, messages = _split(data)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise DataLossError(f"the encoded part contains no JSON text: {e}") from e
    given = Fields(values, "the encoded part")
    reader = SnapshotReader(values, messages)
    device = given.get("device", str)
    DeviceSpec.from_string(device)
    graph = reader.graph(given.get("graph", int))
    functions = {name: reader.graph(index) for name, index in given.get("functions", dict).items()}
    verify(graph)
    for f in functions.values():
        verify(f)
    part = part_of(device, graph, functions)
    edges = given.get("edges", list)
    if [_edge_data(e) for e in part.edges] != edges:
        raise GraphError(
            f"the edges of the part on {device} are not those of its Sends and Recvs: it states {edges!r:.200}, the "
            f"graph has {[_edge_data(e) for e in part.edges]!r:.200}"
        )
    return part


def _split(data: bytes) -> tuple[bytes, Sequence[bytes]]:
    """Returns the JSON text and the nodes of each graph."""
    if len(data) < _HEAD.size or data[: len(MAGIC)] != MAGIC:
        raise DataLossError(f"{len(data)} bytes are no encoded part: they must begin with {MAGIC!r}")
    _, version, graphs, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise UnimplementedError(
            f"the encoded part has version {version}, and this version of headrace reads {VERSION}: use one version of "
            "headrace in all processes"
        )
    at = _HEAD.size + graphs * _LENGTH.size
    if len(data) > MAX_BYTES or at > len(data):
        raise DataLossError(f"the encoded part of {len(data)} bytes cannot have {graphs} graphs")
    lengths = [length, *(_LENGTH.unpack_from(data, _HEAD.size + i * _LENGTH.size)[0] for i in range(graphs))]
    if at + sum(lengths) != len(data):
        raise DataLossError(f"the encoded part has {len(data)} bytes, and its header states {at + sum(lengths)}")
    pieces = []
    for n in lengths:
        pieces.append(data[at : at + n])
        at += n
    return pieces[0], pieces[1:]


def _edge_data(e: Edge) -> list[Any]:
    shape = None if e.shape is None else list(e.shape)
    return [e.key, e.peer, e.is_sent, None if e.dtype is None else e.dtype.name, shape]
