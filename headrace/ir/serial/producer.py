"""Attributes of newer producers in a `GraphDef`, which this reader does not support.

Op types gain attributes from version to version. A producer writes all attributes, including those with default values,
which do not change the op's meaning. The producer's op definitions show which attributes have default values and can be
dropped, and which ones matter. Without them the importer only warns (`nodedefs`, `check_unknown`).

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
    """Returns the graph without attributes that are unknown to headrace and have default values.

    Args:
      graph_def: the graph, which does not change.
      producer_op_list: the producer's op definitions: an `OpList`, headrace's or TensorFlow's, or its bytes.

    Raises:
      GraphError: an attribute that headrace's op does not declare has another value; or `producer_op_list` does not
        contain an `OpList`.
      TypeError: `producer_op_list` has another type.
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
    """Returns the `OpList` in a message or bytes; see `without_new_defaults`."""
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
    """Iterates over (node, attribute name) of attributes that can be dropped.

    The nodes include those of functions.

    Raises:
      GraphError: an attribute that headrace does not support has another value than the default.
    """
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
