"""The graph of the objects below a root, and its form in a checkpoint.

A *node* is an object: a variable, an object with attributes, a list, tuple or dict, an optimizer, a `PythonState`. Its
children have local names. The key of a value is the shortest path of local names from the root, "/.ATTRIBUTES/" and the
kind of the value. The slot of an optimizer for a variable has the path of the variable, "/.OPTIMIZER_SLOT/", the path
of the optimizer and the name of the slot. The message `TrackableObjectGraph`, under the key `OBJECT_GRAPH`, has the
nodes.

Source: TensorFlow's `checkpoint/graph_view.py` and `trackable_object_graph.proto`, whose form is kept.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.api.layers.base import Layer
from headrace.api.partitioned import PartitionedVariable
from headrace.api.variable import Variable
from headrace.interchange.object_graphs import VALUE, escaped
from headrace.records import record
from headrace.train.optimizers.base import Optimizer
from headrace.train.saving.saveables import key_of
from headrace.v1.trackable.module import Module

STATE: Final = "py_state"


class PythonState(abc.ABC):
    """Abstract base class of objects whose state, bytes, is saved in checkpoints.

    Source: TensorFlow's `tf.train.experimental.PythonState`.
    """

    @abc.abstractmethod
    def serialize(self) -> bytes | str:
        """Returns the state, bytes or text."""

    @abc.abstractmethod
    def deserialize(self, string_value: bytes) -> None:
        """Takes a state.

        Args:
          string_value: the bytes of a result of `serialize`.
        """


class Root:
    """Base class of objects that list their children themselves."""

    def children(self) -> dict[str, Any]:
        """Returns the children by name."""
        raise NotImplementedError


def is_trackable(x: Any) -> bool:
    """Whether an object can be a node."""
    kinds = (Variable, Module, PythonState, Optimizer, Layer, Root, list, tuple, Mapping)
    return isinstance(x, kinds) and not isinstance(x, (type, PartitionedVariable))


def _holds(x: Any) -> bool:
    """Whether an attribute is a child: a node that is no container without nodes."""
    if isinstance(x, Mapping):
        return all(isinstance(k, str) for k in x) and any(map(_holds, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(_holds, x))
    return is_trackable(x)


def children_of(x: Any) -> dict[str, Any]:
    """Returns the children of a node by their local names."""
    if isinstance(x, Root):
        return x.children()
    if isinstance(x, Mapping):
        return {k: v for k, v in x.items() if _holds(v)}
    if isinstance(x, (list, tuple)):
        return {str(i): v for i, v in enumerate(x) if _holds(v)}
    if isinstance(x, Optimizer):
        return dict(sorted(x.counter_variables().items()))
    if isinstance(x, (Module, Layer)):
        return {k: v for k, v in vars(x).items() if not _is_private(x, k) and _holds(v)}
    return {}


def _is_private(x: Any, name: str) -> bool:
    return isinstance(x, Layer) and name.startswith("_")


@record
class Slot:
    """Slot variable of an optimizer.

    Attributes:
      of: number of the node of the variable.
      name: name of the slot.
      variable: the slot variable.
      number: number of its node.
    """

    of: int
    name: str
    variable: Any
    number: int


class Objects:
    """Nodes below a root, numbered breadth first; slot variables come last.

    Args:
      root: the root.

    Attributes:
      nodes: the objects by number.
      children: for each node, the numbers of its children by local name.
      slots: for each optimizer's number, its slots.
      paths: the path of each node.
    """

    def __init__(self, root: Any) -> None:
        self.nodes: list[Any] = [root]
        self.children: list[dict[str, int]] = []
        self.paths: list[str] = [""]
        numbers = {id(root): 0}
        while len(self.children) < len(self.nodes):
            i = len(self.children)
            found: dict[str, int] = {}
            for name, child in children_of(self.nodes[i]).items():
                if id(child) not in numbers:
                    numbers[id(child)] = len(self.nodes)
                    self.nodes.append(child)
                    self.paths.append(f"{self.paths[i]}/{escaped(name)}".lstrip("/"))
                found[name] = numbers[id(child)]
            self.children.append(found)
        self.slots: dict[int, list[Slot]] = {}
        tree = len(self.nodes)
        for i, optimizer in enumerate(self.nodes[:tree]):
            if isinstance(optimizer, Optimizer):
                self.slots[i] = [self._slot(i, name, of, v) for name, of, v in self._slots_of(optimizer, tree)]

    def _slots_of(self, optimizer: Optimizer, tree: int) -> Iterator[tuple[str, int, Any]]:
        for name in optimizer.get_slot_names():
            for i, v in enumerate(self.nodes[:tree]):
                slot = optimizer.get_slot(v, name) if isinstance(v, Variable) else None
                if slot is not None:
                    yield name, i, slot

    def _slot(self, optimizer: int, name: str, of: int, variable: Any) -> Slot:
        self.nodes.append(variable)
        self.children.append({})
        self.paths.append(f"{self.paths[of]}/.OPTIMIZER_SLOT/{self.paths[optimizer]}/{escaped(name)}")
        return Slot(of, name, variable, len(self.nodes) - 1)

    def key(self, i: int) -> str:
        """Returns the key of the value of a node."""
        return f"{self.paths[i]}/.ATTRIBUTES/{STATE if isinstance(self.nodes[i], PythonState) else VALUE}"

    def message(self) -> Any:
        """Returns the graph as a `TrackableObjectGraph` message."""
        from headrace.pb.trackable_object_graph_pb2 import TrackableObjectGraph

        out = TrackableObjectGraph()
        for i, x in enumerate(self.nodes):
            node = out.nodes.add()
            node.has_checkpoint_values.value = True
            for name, number in self.children[i].items():
                node.children.add(node_id=number, local_name=name)
            if isinstance(x, Variable):
                node.attributes.add(name=VALUE, full_name=key_of(x), checkpoint_key=self.key(i))
            elif isinstance(x, PythonState):
                node.attributes.add(name=STATE, checkpoint_key=self.key(i))
            for slot in self.slots.get(i, ()):
                node.slot_variables.add(
                    original_variable_node_id=slot.of, slot_name=slot.name, slot_variable_node_id=slot.number
                )
        return out


@record
class Matched:
    """Objects that have a node in a checkpoint.

    Attributes:
      pairs: pairs of the object and the key of its value.
      nodes: the numbers of the checkpoint's nodes that have an object.
      unmatched: paths of variables and states without a value in the checkpoint.
    """

    pairs: list[tuple[Any, str]]
    nodes: set[int]
    unmatched: list[str]


def matched(root: Any, graph: Any) -> Matched:
    """Returns the objects below a root that have nodes in a checkpoint.

    Args:
      root: the root.
      graph: a `TrackableObjectGraph` message.
    """
    objects = Objects(root)
    known: dict[int, int] = {0: 0}  # number of an object -> number of its node in the checkpoint
    queue = [0]
    while queue:
        i = queue.pop(0)
        named = {c.local_name: c.node_id for c in graph.nodes[known[i]].children}
        for name, number in objects.children[i].items():
            if name in named and number not in known:
                known[number] = named[name]
                queue.append(number)
    for i, slots in objects.slots.items():
        if i not in known:
            continue
        stored = {
            (s.original_variable_node_id, s.slot_name): s.slot_variable_node_id
            for s in graph.nodes[known[i]].slot_variables
        }
        for slot in slots:
            node = stored.get((known.get(slot.of, -1), slot.name))
            if node is not None:
                known[slot.number] = node
    pairs, unmatched = [], []
    for i, x in enumerate(objects.nodes):
        if not isinstance(x, (Variable, PythonState)):
            continue
        wanted = VALUE if isinstance(x, Variable) else STATE
        keys = [a.checkpoint_key for a in graph.nodes[known[i]].attributes if a.name == wanted] if i in known else []
        if keys:
            pairs.append((x, keys[0]))
        else:
            unmatched.append(objects.paths[i])
    return Matched(pairs, set(known.values()), unmatched)
