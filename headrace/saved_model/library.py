"""Functions of a loaded SavedModel, under names that no other model has.

A call needs the called functions in the library of its graph. Two models, or two loads of one model, have functions
with equal names, so each load adds a number to them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace import pb
from headrace.errors import GraphError
from headrace.ir.custom_rules import OVERRIDE
from headrace.ir.serial.functiondef import EncodedFunction, functions_in

if TYPE_CHECKING:
    from headrace.ir.graph import Graph
    from headrace.pb import AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, OpDef

_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_numbers: Final = itertools.count()


class Library:
    """Functions of one load of a SavedModel.

    Args:
      message: the library in the file.

    Attributes:
      names: name in the file → name in graphs.
      signatures: name in the file → the `OpDef` with its arguments and results.
      gradients: name of a gradient in the file → (its name in nodes of this load, name in the file of its function).

    Raises:
      GraphError: two functions have one name.
    """

    def __init__(self, message: FunctionDefLibrary) -> None:
        number = next(_numbers)
        self.names = {f.signature.name: f"{f.signature.name}_load{number}" for f in message.function}
        if len(self.names) < len(message.function):
            raise GraphError("the library of a SavedModel has two functions with the same name")
        self.gradients = {
            g.registered_op_type: (f"{g.registered_op_type}_load{number}", g.gradient_func)
            for g in message.registered_gradients
        }
        self.signatures: dict[str, OpDef] = {f.signature.name: f.signature for f in message.function}
        self._definitions: dict[str, FunctionDef] = {f.signature.name: f for f in message.function}
        self._encoded: dict[str, tuple[EncodedFunction, set[str]]] = {}

    def add_to(self, graph: Graph, name: str) -> str:
        """Adds a function, and all that it calls, to the library of a graph.

        Args:
          graph: the graph, which no other graph is around.
          name: the name of the function in the file.

        Returns:
          The name of the function in the graph.

        Raises:
          GraphError: there is no such function.
        """
        self.definition(name)
        added: dict[str, EncodedFunction] = {}
        todo = [name]
        while todo:
            f = todo.pop()
            new = self.names[f]
            if new not in added and new not in graph.library:  # one that is there came with all that it calls
                added[new], called = self._encode(f)
                todo += called
        if added:
            graph.library.update(added)
        return self.names[name]

    def of_graph(self, graph_def: GraphDef) -> GraphDef:
        """Returns a graph of the file with the functions under their new names."""
        out = pb.GraphDef()
        out.CopyFrom(graph_def)
        del out.library.function[:]
        del out.library.gradient[:]
        for name in self.names:
            out.library.function.append(pb.FunctionDef.FromString(self._encode(name)[0].data))
        for node in out.node:
            node.op = self.names.get(node.op, node.op)
            self._set_gradient(node)
            self._rename(node.attr, set())
        return out

    def definition(self, name: str) -> FunctionDef:
        """Returns the message of a function in the file.

        Raises:
          GraphError: there is no such function.
        """
        found = self._definitions.get(name)
        if found is None:
            raise GraphError(f"the SavedModel has no function {name!r}, which one of its objects names")
        return found

    def _encode(self, name: str) -> tuple[EncodedFunction, set[str]]:
        """Returns a function with new names, and the old names of those it calls."""
        made = self._encoded.get(name)
        if made is None:
            out = pb.FunctionDef()
            out.CopyFrom(self.definition(name))
            out.signature.name = self.names[name]
            called: set[str] = set()
            for node in out.node_def:
                if node.op in self.names:
                    called.add(node.op)
                    node.op = self.names[node.op]
                self._set_gradient(node)
                self._rename(node.attr, called)
            self._rename(out.attr, set())
            made = self._encoded[name] = EncodedFunction(out.SerializeToString(deterministic=True)), called
        return made

    def _set_gradient(self, node: Any) -> None:
        """Names the gradient of a node as this load registers it.

        The gradient of a call is that of the function; the file names one of the process that wrote it.
        """
        if OVERRIDE in node.attr:
            given = node.attr[OVERRIDE].s.decode(errors="replace")
            if node.op in _CALLS:
                del node.attr[OVERRIDE]
            elif given in self.gradients:
                node.attr[OVERRIDE].s = self.gradients[given][0].encode()

    def _rename(self, attrs: Mapping[str, AttrValue], called: set[str]) -> None:
        for func in functions_in(attrs.values()):
            if func.name in self.names:
                called.add(func.name)
                func.name = self.names[func.name]
