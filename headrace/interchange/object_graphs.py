"""Object graphs of checkpoints, which map objects to the keys of their values.

They are `TrackableObjectGraph` messages.

Source: TensorFlow's `trackable_object_graph.proto`.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import DataLossError

OBJECT_GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the key of the message in a checkpoint
VALUE: Final = "VARIABLE_VALUE"  # the attribute of a node with the value of its variable


def escaped(name: str) -> str:
    """Returns the name of a child as a part of the key of a value."""
    return name.replace(".", "..").replace("/", ".S")


def read_graph(data: Any) -> Any:
    """Returns the `TrackableObjectGraph` message of a checkpoint.

    Args:
      data: its bytes.

    Raises:
      DataLossError: it is malformed.
    """
    from google.protobuf.message import DecodeError

    from headrace.pb.trackable_object_graph_pb2 import TrackableObjectGraph

    try:
        found = TrackableObjectGraph.FromString(bytes(data))
    except (DecodeError, TypeError) as e:
        raise DataLossError(f"the object graph of a checkpoint is malformed: {e}") from None
    count = len(found.nodes)
    numbers = [c.node_id for n in found.nodes for c in n.children]
    numbers += [x for n in found.nodes for s in n.slot_variables
                for x in (s.original_variable_node_id, s.slot_variable_node_id)]  # fmt: skip
    if not count or any(not 0 <= x < count for x in numbers):
        raise DataLossError(f"the object graph of a checkpoint refers to a node that it does not have, of {count}")
    return found
