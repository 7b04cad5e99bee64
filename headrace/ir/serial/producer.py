"""What a newer producer of a `GraphDef` wrote, and this reader does not know.

Op types gain attributes from version to version. Whoever writes a graph writes them all, also those that have their
default value and so mean what the op did without them. With the producer's op definitions these can be left out, and
others are known to matter. Without them one can only guess (`nodedefs`, `check_unknown`).

Source: TensorFlow's `import_graph_def(producer_op_list=...)`. (TensorFlow ignores other values, too.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import message as protobuf

from headrace import pb
from headrace.errors import GraphError
from headrace.ir.opdef import op_registry

if TYPE_CHECKING:
    from collections.abc import Iterator


def without_new_defaults(graph_def: pb.GraphDef, producer_op_list: Any) -> pb.GraphDef:
    """The graph without the attributes that headrace's ops do not have and the producer's have as their default.

    Args:
      graph_def: is not changed.
      producer_op_list: the producer's op definitions: an `OpList`, headrace's or TensorFlow's, or its bytes.

    Raises:
      GraphError: an attribute that headrace's op does not have has another value; or `producer_op_list` is no
        `OpList`. TypeError: it cannot be one.
    """
    ops = {d.name: d for d in read_op_list(producer_op_list).op}
    out = graph_def
    if any(True for _ in _new_defaults(graph_def, ops)):
        out = pb.GraphDef()
        out.CopyFrom(graph_def)
        for node, name in list(_new_defaults(out, ops)):
            del node.attr[name]
    return out


def read_op_list(op_list: Any) -> pb.OpList:
    """The `OpList` that a message or bytes hold; see `without_new_defaults`."""
    if isinstance(op_list, pb.OpList):
        return op_list
    data = op_list.SerializeToString() if hasattr(op_list, "SerializeToString") else op_list
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"producer_op_list must be an OpList message or its bytes, got {type(op_list).__name__}")
    try:
        return pb.OpList.FromString(bytes(data))
    except protobuf.DecodeError as e:
        raise GraphError(f"producer_op_list is not an OpList: {e}") from e


def _new_defaults(graph_def: pb.GraphDef, ops: dict[str, pb.OpDef]) -> Iterator[tuple[pb.NodeDef, str]]:
    """The nodes, those of functions too, and names of their attributes that can be left out; `GraphError` if one that
    headrace does not know cannot."""
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            definition, record = ops.get(node.op), op_registry.find(node.op)
            if definition is None or record is None:
                continue
            for attr in definition.attr:
                if attr.name in record.attrs or attr.name not in node.attr or attr.name.startswith("_"):
                    continue
                if not attr.HasField("default_value") or node.attr[attr.name] != attr.default_value:
                    raise GraphError(
                        f"Node '{node.name}': NodeDef mentions attr '{attr.name}' not in Op<name={node.op}>, and its "
                        f"value is not the producer's default: the newer {node.op} does something that headrace's "
                        "does not"
                    )
                yield node, attr.name
