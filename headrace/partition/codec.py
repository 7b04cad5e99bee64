"""Codec of parts: a part as bytes, for the process that runs it.

    data = encode(part)
    part = decode(data)          # in another process; its plan is equal

A part is encoded before its regions are fused, because a fused region contains a function of this process. The receiver
fuses regions and makes the plan.

The bytes are an envelope (`ir.serial.envelope`). They are hostile input: every value is checked, and `ir.verify` checks
the graphs at the end.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import GraphError
from headrace.ir.device import DeviceSpec
from headrace.ir.serial.envelope import pack, unpack
from headrace.ir.serial.snapshot import SnapshotWriter
from headrace.ir.verify import verify
from headrace.partition.part import Edge, Part, part_of

VERSION: Final = 1
MAGIC: Final = b"hr-part\n"


def encode(part: Part, home: str = "") -> bytes:
    """Returns a part as bytes.

    Args:
      part: the part.
      home: the task of this process, if the part is for a device of it; operations may then call Python functions.

    Raises:
      InvalidArgumentError: an operation refers to an object of this process (a Python function, a fused region), or the
        part is too large; the text names the operation.
      NotFoundError: a function that an operation calls is not in the library.
      GraphError: an attribute has no wire form.

    Example:
      >>> from headrace.ir.text import from_text
      >>> from headrace.partition.part import part_of
      >>> part = part_of("/device:CPU:0", from_text("x = NoOp"), {})
      >>> decode(encode(part)).ops
      [<Operation 'x' type=NoOp>]
    """
    writer = SnapshotWriter(home)
    fields: dict[str, Any] = {"device": part.device, "graph": writer.add(part.graph)}
    fields["functions"] = {name: writer.add(graph) for name, graph in part.functions.items()}
    fields["edges"] = [_edge_data(e) for e in part.edges]
    return pack(MAGIC, VERSION, fields, writer, f"part of the step on {part.device}")


def decode(data: bytes, is_ours: bool = False) -> Part:
    """Returns the part that `encode` has turned into bytes.

    Args:
      data: the bytes.
      is_ours: whether this process has written them, so that operations may call Python functions.

    Raises:
      DataLossError: the bytes are damaged or incomplete, or are no part.
      UnimplementedError: another version of headrace has written them.
      GraphError: they describe no legal part (an unknown note, an edge without its Send or Recv, an illegal graph).
      NotFoundError: an op type or a called function does not exist here.
      InvalidArgumentError: the frames of the graph do not fit together, or an operation calls a Python function.
    """
    given, reader = unpack(MAGIC, VERSION, data, "part", is_ours)
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


def _edge_data(e: Edge) -> list[Any]:
    shape = None if e.shape is None else list(e.shape)
    return [e.key, e.peer, e.is_sent, None if e.dtype is None else e.dtype.name, shape]
