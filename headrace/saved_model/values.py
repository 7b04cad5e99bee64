"""Values of the objects of a SavedModel, from its checkpoint.

The checkpoint has an object graph of its own. The objects of both graphs correspond by the paths from the root, and
slot variables by their variable and name.

Source: TensorFlow's `tf.train.Checkpoint`, with which `tf.saved_model.load` restores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import DataLossError
from headrace.files import checkpoints
from headrace.interchange.object_graphs import OBJECT_GRAPH, VALUE, read_graph

if TYPE_CHECKING:
    from headrace.pb.saved_object_graph_pb2 import SavedObjectGraph


class Values:
    """Values of the objects of a SavedModel.

    Args:
      prefix: the prefix of the checkpoint, which may be missing if there are no values.
      objects: the object graph, whose numbers of nodes are valid.

    Raises:
      DataLossError: the checkpoint is damaged.
    """

    def __init__(self, prefix: str, objects: SavedObjectGraph) -> None:
        self._prefix = prefix
        self._reader: checkpoints.Reader | None = None
        self._keys: dict[int, dict[str, str]] = {}  # number of a node -> kind of a value -> key
        if checkpoints.exists(self._prefix):
            self._reader = checkpoints.open(self._prefix, maps=True)
            if OBJECT_GRAPH in self._reader.entries:
                data = np.asarray(self._reader.read(OBJECT_GRAPH), object).item()
                self._match(objects, read_graph(data))

    def _match(self, objects: SavedObjectGraph, stored: Any) -> None:
        known = {0: 0}  # number of a node -> its number in the checkpoint
        todo = [0]
        for i in todo:
            there = stored.nodes[known[i]]
            named = {c.local_name: c.node_id for c in there.children}
            found = [(c.node_id, named.get(c.local_name)) for c in (*objects.nodes[i].children,
                                                                    *objects.nodes[i].dependencies)]  # fmt: skip
            slots = {(s.original_variable_node_id, s.slot_name): s.slot_variable_node_id for s in there.slot_variables}
            found += [(s.slot_variable_node_id, slots.get((known.get(s.original_variable_node_id, -1), s.slot_name)))
                      for s in objects.nodes[i].slot_variables]  # fmt: skip
            for number, other in found:
                if other is not None and number not in known:
                    known[number] = other
                    todo.append(number)
            self._keys[i] = {a.name: a.checkpoint_key for a in there.attributes}

    def keys(self, node: int) -> dict[str, str]:
        """Returns the keys of the values of a node by the kinds of the values."""
        return self._keys.get(node, {})

    def variable(self, node: int, name: str) -> np.ndarray:
        """Returns the value of a variable.

        Args:
          node: the number of its node.
          name: its name in messages.

        Raises:
          DataLossError: the checkpoint does not have the value, or it is damaged.
        """
        key = self.keys(node).get(VALUE)
        if self._reader is None or key is None or key not in self._reader.entries:
            raise DataLossError(
                f"the variable {name!r} (node {node}) has no value in the checkpoint {self._prefix!r}; copy all files "
                "of the model again"
            )
        value = self._reader.read(key)
        value.flags.writeable = False  # so that the variable takes the array and not a copy
        return value

    def read(self, key: str) -> np.ndarray:
        """Returns the value of a key.

        Raises:
          DataLossError: the checkpoint does not have it, or it is damaged.
        """
        if self._reader is None or key not in self._reader.entries:
            raise DataLossError(f"the checkpoint {self._prefix!r} of the SavedModel has no value {key!r}")
        return self._reader.read(key)
