"""The objects below the saved one that a SavedModel can contain.

Nodes are variables, functions, tables, lists, tuples, dicts with text keys, layers, and other objects with attributes.
An attribute is a child if a variable, a function or a table is below it. Other attributes (numbers, arrays, files) are
not saved, as in TensorFlow. A method under `hr.jit` is a child with the name of the method.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from headrace.api.layers.base import Layer
from headrace.api.storage.lookup import LookupTable, StaticVocabularyTable
from headrace.api.variable import Variable
from headrace.errors import GraphError
from headrace.interchange.object_graphs import escaped
from headrace.jit.function import Function
from headrace.saved_model import kinds
from headrace.saved_model.callables import CALLABLES
from headrace.saved_model.objects import LoadedLayer, LoadedObject, Resource

LEAVES: Final = (Variable, LookupTable, Resource, *CALLABLES)

_FOREIGN: Final = sys.stdlib_module_names | {"numpy", "headrace", "google", "tensorflow"}


class Item:
    """Object with given children: a root, or an object of a model of `hr.save`.

    Args:
      children: the children by name.
      of: the object that the root stands for, to which objects below it may refer; None: none.
      identifier: the kind of the object in the file.
      metadata: a text with the rest of its description.
      value: the array whose value is in the checkpoint, or None.
    """

    def __init__(
        self,
        children: Mapping[str, Any],
        of: Any = None,
        identifier: str = kinds.OBJECT,
        metadata: str = "",
        value: np.ndarray | None = None,
    ) -> None:
        self.children = dict(children)
        self.of = of
        self.identifier, self.metadata, self.value = identifier, metadata, value


class Tree:
    """Objects below a root by number, breadth first.

    Args:
      root: the root, an `Item`.

    Attributes:
      nodes: the objects.
      children: for each object, the numbers of its children by name.
      paths: for each object, the shortest path of names from the root, as in the keys of a checkpoint.

    Raises:
      GraphError: a variable belongs to a graph.
    """

    def __init__(self, root: Item) -> None:
        self.nodes: list[Any] = []
        self.children: list[dict[str, int]] = []
        self.paths: list[str] = []
        self._keep_needed(*_reached(root))
        for i, x in enumerate(self.nodes):
            if isinstance(x, Variable) and x.graph is not None:
                raise GraphError(
                    f"the variable {x.name!r} ({self.paths[i]!r}) belongs to a graph; hr.saved_model.save writes "
                    "variables made outside of graphs, and headrace.v1's tf.saved_model.Builder those of a graph"
                )

    def _keep_needed(self, nodes: list[Any], children: list[dict[str, int]]) -> None:
        """Keeps the items, and the objects that are leaves or have leaves below them."""
        parents: list[list[int]] = [[] for _ in nodes]
        for i, named in enumerate(children):
            for number in named.values():
                parents[number].append(i)
        todo = [i for i, x in enumerate(nodes) if isinstance(x, (Item, *LEAVES))]
        needed = {0, *todo}
        while todo:
            more = [p for p in parents[todo.pop()] if p not in needed]
            needed.update(more)
            todo += more
        new = {old: i for i, old in enumerate(sorted(needed))}
        for old in new:
            self.nodes.append(nodes[old])
            self.children.append({name: new[k] for name, k in children[old].items() if k in new})
            self.paths.append("")
        seen = {0}
        for i in range(len(self.nodes)):  # breadth first, so a parent's path is known before it is used
            for name, k in self.children[i].items():
                if k not in seen:
                    seen.add(k)
                    self.paths[k] = f"{self.paths[i]}/{escaped(name)}".lstrip("/")

    def leaves(self, kind: Any) -> Iterator[tuple[int, Any]]:
        """Yields the number and object of each node of a class."""
        return ((i, x) for i, x in enumerate(self.nodes) if isinstance(x, kind))


def _reached(root: Item) -> tuple[list[Any], list[dict[str, int]]]:
    """Returns all objects below the root, breadth first, and their children."""
    nodes: list[Any] = [root]
    children: list[dict[str, int]] = []
    numbers = {id(root): 0} | ({} if root.of is None else {id(root.of): 0})
    while len(children) < len(nodes):
        named: dict[str, int] = {}
        for name, x in children_of(nodes[len(children)]).items():
            x = x._table if isinstance(x, StaticVocabularyTable) else x
            if not is_node(x):
                continue
            if id(x) not in numbers:
                numbers[id(x)] = len(nodes)
                nodes.append(x)
            named[name] = numbers[id(x)]
        children.append(named)
    return nodes, children


def is_node(x: Any) -> bool:
    """Whether an object may have children: containers, layers, and objects of the program."""
    if isinstance(x, (*LEAVES, Item, Layer, LoadedObject, list, tuple, Mapping)):
        return True
    return type(x).__module__.partition(".")[0] not in _FOREIGN and not isinstance(x, type) and hasattr(x, "__dict__")


def children_of(x: Any) -> dict[str, Any]:
    """Returns the candidates for children of an object by name."""
    if isinstance(x, Item):
        return x.children
    if isinstance(x, LEAVES):
        return {}
    if isinstance(x, Mapping):
        return {k: v for k, v in x.items() if isinstance(k, str)}
    if isinstance(x, (list, tuple)):
        return {str(i): v for i, v in enumerate(x)}
    found = {k: v for k, v in vars(x).items() if not (isinstance(x, Layer) and k.startswith("_"))}
    for kind in reversed(type(x).__mro__):
        found |= {k: getattr(x, k) for k, v in vars(kind).items() if isinstance(v, Function)}
    if isinstance(x, LoadedLayer):
        found["__call__"] = found.pop("call", None)
    if isinstance(x, Layer):
        found["variables"] = list(x.variables)
        found["trainable_variables"] = list(x.trainable_variables)
    return found
