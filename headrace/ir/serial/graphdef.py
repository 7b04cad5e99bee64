"""Import and export of `GraphDef`, TensorFlow's file format for graphs.

`import_graph_def` adds the nodes of a `GraphDef` to a graph, and `export_graph_def` writes a graph. An import is all or
nothing: a file that cannot be imported leaves the graph unchanged. `nodedefs` converts nodes to operations, in graphs
and functions.

The functions of a file's library stay in wire form until an operation calls them (`Graph.function`, `functiondef`).
Graphs that operations own are written as functions of the library.

An import drops parts of a `GraphDef` that have no place in a graph: debug information, experimental types, and
gradients registered by Python code.

Source: TensorFlow's `import_graph_def` and `GraphConstructor`, with their rules, texts and error classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf import message as protobuf
from google.protobuf import text_format

from headrace import pb
from headrace.errors import GraphError
from headrace.ir.analysis.loop_shapes import infer_all
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.opdef import op_registry
from headrace.ir.primitive_names import result_index
from headrace.ir.serial.functiondef import EncodedFunction, encode
from headrace.ir.serial.nodedefs import (
    CONTROL,
    FUNCTIONS_SINCE,
    GRAPH_DEF_VERSION,
    NodeImport,
    Signatures,
    parse_tensor_name,
    show_tensor,
    write_node,
)
from headrace.ir.serial.producer import without_new_defaults

if TYPE_CHECKING:
    from headrace.ir.graph import EncodedFunction as LibraryFunction
    from headrace.ir.serial.nodedefs import Input
    from headrace.ir.source import Source

_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")  # characters that names of functions should not contain


def import_graph_def(
    graph_def: Any,
    graph: Graph,
    name: str = "",
    input_map: Mapping[str, Tensor | Operation] | None = None,
    return_elements: Sequence[str] | None = None,
    source: Source | None = None,
    producer_op_list: Any = None,
) -> list[Tensor | Operation] | None:
    """Adds the nodes of a `GraphDef` to `graph`.

    Args:
      graph_def: a serialized `GraphDef` (bytes), its text form (str), or a message, headrace's or TensorFlow's.
      graph: the graph that gets the nodes.
      name: a prefix of the new names, made unique unless it ends in "/"; "" for none. Without a prefix, a name that the
        graph has already gets a number.
      input_map: replacements of inputs: name in the `GraphDef` of a tensor ("x:0", or "x" for output 0) or, for control
        inputs, of an operation ("^x") → tensor or operation of `graph`.
      return_elements: names in the `GraphDef` of tensors ("x:0") and operations ("x").
      source: the user's line, recorded in every operation.
      producer_op_list: the op definitions of the producer (an `OpList` or its bytes). Attributes that are unknown to
        headrace and have the producer's default value are dropped.

    Returns:
      The `return_elements` (replaced as `input_map` states), or None without `return_elements`.

    Raises:
      GraphError (a ValueError): `graph_def` is not a `GraphDef` or describes no legal graph; the text names the node.
        The graph is unchanged.
      NotFoundError: an op type is not registered.
      TypeError: `graph_def` or `input_map` has a wrong type.

    Example:
      >>> g = Graph()
      >>> import_graph_def('node { name: "n" op: "NoOp" }', g, name="a", return_elements=["n"])
      [<Operation 'a/n' type=NoOp>]
    """
    message = read_graph_def(graph_def)
    _check_versions(message.versions)
    if producer_op_list is not None:
        message = without_new_defaults(message, producer_op_list)
    with graph.all_or_nothing():
        return _GraphImport(message, graph, name, input_map or {}, source).run(return_elements)


def read_graph_def(graph_def: Any) -> pb.GraphDef:
    """Returns the `GraphDef` in bytes, text or a message; see `import_graph_def`.

    Raises:
      GraphError: the argument does not contain a `GraphDef`.
      TypeError: the argument has another type.
    """
    if isinstance(graph_def, pb.GraphDef):
        return graph_def
    try:
        if isinstance(graph_def, str):
            return text_format.Parse(graph_def, pb.GraphDef())
        data = graph_def.SerializeToString() if hasattr(graph_def, "SerializeToString") else graph_def
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"graph_def must be bytes, text or a GraphDef message, got {type(graph_def).__name__}; "
                "for a file give its contents: open(path, 'rb').read()"
            )
        return pb.GraphDef.FromString(bytes(data))
    except (protobuf.DecodeError, protobuf.EncodeError, text_format.ParseError) as e:
        hint = " (a str is the text of a GraphDef, not the path of a file)" if isinstance(graph_def, str) else ""
        raise GraphError(f"not a GraphDef: {e}{hint}") from e
    except RecursionError as e:  # from the text parser; the binary parser has its own limit
        raise GraphError("not a GraphDef: its messages are nested too deeply") from e


def _check_versions(versions: pb.VersionDef) -> None:
    if versions.producer < 0:
        raise GraphError(
            f"GraphDef producer version {versions.producer} below min producer 0. Please regenerate your graph."
        )
    if versions.min_consumer > GRAPH_DEF_VERSION:
        raise GraphError(
            f"GraphDef min consumer version {versions.min_consumer} above current version {GRAPH_DEF_VERSION} (that of "
            "TensorFlow 2.21). Please upgrade headrace, or write the graph with an older TensorFlow."
        )
    if GRAPH_DEF_VERSION in versions.bad_consumers:
        raise GraphError(
            f"GraphDef disallows consumer version {GRAPH_DEF_VERSION}: its producer knows that this one misreads it."
        )


class _GraphImport(NodeImport):
    """Import of one `GraphDef`, in progress."""

    def __init__(
        self,
        message: pb.GraphDef,
        graph: Graph,
        name: str,
        input_map: Mapping[str, Tensor | Operation],
        source: Source | None,
    ) -> None:
        super().__init__(
            graph,
            message.node,
            "the GraphDef",
            _read_input_map(input_map, graph),
            Signatures(graph, message.library.function),
            message.ByteSize(),
            message.versions.producer,
            name if name.endswith("/") else graph.unique_name(name) + "/" if name else "",
            source,
        )
        self.message = message

    def run(self, return_elements: Sequence[str] | None) -> list[Tensor | Operation] | None:
        self.translate_input_map()
        made = self.make_all()
        self.check_input_map()
        infer_all(made)
        self.keep_library()
        return None if return_elements is None else [self.find(e) for e in return_elements]

    def translate_input_map(self) -> None:
        """Replaces keys in primitive form ("cond/Merge:0") by the outputs of structured nodes."""
        types = {node.name: node.op for node in self.protos}
        mapped = dict(self.mapped)
        for key, value in self.mapped.items():
            owner, _, end = key[0].rpartition("/")
            type = types.get(owner, "")
            is_named = key[0] not in types and key[1] == 0 and type in op_registry
            output = result_index(op_registry.get(type).structured, end) if is_named else None
            if output is not None:
                del mapped[key]
                mapped.setdefault((owner, output), value)
        self.mapped = mapped

    def check_input_map(self) -> None:
        """Raises `GraphError` unless every key of the input map denotes an element of the file."""
        unknown = []
        for name, index in self.mapped.keys() - self.used:
            node = self.nodes.get(name)
            if node is None or node.op is None or int(index) >= len(node.op.outputs):
                unknown.append(f"^{name}" if index == CONTROL else f"{name}:{index}")
        if unknown:
            raise GraphError(
                f"Attempted to map inputs that were not found in graph_def: [{', '.join(sorted(unknown))}]"
            )

    def keep_library(self) -> None:
        graph = self.graph
        for f in self.message.library.function:
            name = f.signature.name
            data = EncodedFunction(f.SerializeToString(deterministic=True))
            is_own = name in graph.functions and name not in graph.library
            if is_own or graph.library.setdefault(name, data) != data:
                raise GraphError(
                    f"Cannot add function '{name}' because a different function with the same name already exists."
                )
        for g in self.message.library.gradient:
            if graph.gradient_functions.setdefault(g.function_name, g.gradient_func) != g.gradient_func:
                raise GraphError(
                    f"Cannot assign gradient function '{g.gradient_func}' to '{g.function_name}' because it already "
                    f"has gradient function '{graph.gradient_functions[g.function_name]}'"
                )
        producer, min_consumer = self.message.versions.producer, self.message.versions.min_consumer
        if graph.versions != (0, 0):
            producer, min_consumer = min(producer, graph.versions[0]), max(min_consumer, graph.versions[1])
        graph.versions = (producer, min_consumer)

    def find(self, element: str) -> Tensor | Operation:
        """Returns the tensor ("x:0") or operation ("x") of the file that `element` names."""
        if not isinstance(element, str):
            raise TypeError(f"return_elements must be names, got {element!r}")
        name, index = parse_tensor_name(element)
        node = self.nodes.get(name)
        is_tensor = ":" in element
        if is_tensor:
            mapped = self.mapped.get((name, index))
            if isinstance(mapped, Tensor):
                return mapped
        if node is None:
            return self.find_visible(element, name, index if is_tensor else 0)
        if node.op is None:
            raise GraphError(f"Requested return {'tensor' if is_tensor else 'node'} '{element}' not found in graph def")
        if not is_tensor:
            return node.op
        if index >= len(node.op.outputs):
            raise GraphError(
                f"Invalid return output {index} of node '{name}', which has {len(node.op.outputs)} output(s)"
            )
        return node.op.outputs[index]

    def find_visible(self, element: str, name: str, index: int) -> Tensor | Operation:
        """Returns the result of a conditional or loop by its primitive form's name."""
        owner, _, end = name.rpartition("/")
        node = self.nodes.get(owner)
        output = None if node is None or node.op is None or index else result_index(node.op.opdef.structured, end)
        if node is None or node.op is None or output is None or output >= len(node.op.outputs):
            what = "tensor" if ":" in element else "node"
            raise GraphError(f"Requested return {what} '{element}' not found in graph def")
        if ":" not in element:
            return node.op
        mapped = self.mapped.get((owner, output))
        return mapped if isinstance(mapped, Tensor) else node.op.outputs[output]


def _read_input_map(input_map: Mapping[str, Tensor | Operation], graph: Graph) -> dict[Input, Tensor | Operation]:
    out: dict[Input, Tensor | Operation] = {}
    for key, value in input_map.items():
        if not isinstance(key, str):
            raise TypeError(f"keys of input_map must be names, got {key!r}")
        is_control = key.startswith("^")
        if not isinstance(value, Tensor) and not (is_control and isinstance(value, Operation)):
            raise TypeError(
                f"input_map[{key!r}] must be a tensor{' or operation' if is_control else ''}, got {value!r}"
            )
        if value.graph is not graph:
            raise GraphError(f"input_map[{key!r}] is {value!r}, which belongs to another graph")
        out[(key[1:], CONTROL) if is_control else parse_tensor_name(key)] = value
    return out


# *** out ***


def export_graph_def(graph: Graph, add_shapes: bool = False) -> pb.GraphDef:
    """Returns the `GraphDef` of a graph.

    It contains a node for each operation, in creation order, and a library. The library contains the functions of the
    graph's library, the graph's own functions, and a function for each graph that an operation owns, under that graph's
    name (with a number if another function has this name).

    Args:
      graph: the graph.
      add_shapes: whether each node states the static shapes of its outputs, in the attribute `_output_shapes`.

    Returns:
      A message of headrace's; `SerializeToString()` returns the bytes that TensorFlow reads.

    Raises:
      GraphError: an attribute's value or a function has no wire form (see `functiondef.encode`).

    Example:
      >>> g = Graph()
      >>> _ = import_graph_def('node { name: "n" op: "NoOp" }', g)
      >>> export_graph_def(g).node[0].name
      'n'
    """
    return _Export(graph, add_shapes).run()


class _Export:
    """Export of one graph, in progress.

    Attributes:
      graph: the graph.
      add_shapes: whether nodes state the static shapes of their outputs.
      given: the functions to write, by name: in wire form or as graphs.
      names: graph owned by an operation → name of the function as which it is written.
      gradients: function name → name of the function that computes its gradient.
    """

    def __init__(self, graph: Graph, add_shapes: bool) -> None:
        self.graph = graph
        self.add_shapes = add_shapes
        self.given: dict[str, LibraryFunction | FuncGraph] = {}
        self.names: dict[FuncGraph, str] = {}
        self.gradients: dict[str, str] = {}

    def run(self) -> pb.GraphDef:
        out = pb.GraphDef()
        around: Graph | None = self.graph
        while around is not None:
            self.add_functions(around)
            around = around.outer
        for op in self.graph.operations:
            write_node(out.node.add(), op, show_tensor, self.name_of, self.add_shapes)
        producer, min_consumer = self.graph.versions
        out.versions.producer = producer or GRAPH_DEF_VERSION
        done = 0
        while done < len(self.given):  # writing a function may add others
            for name, given in list(self.given.items())[done:]:
                if isinstance(given, FuncGraph):
                    self.add_functions(given)
                    out.library.function.append(encode(given, name, self.name_of, self.add_shapes))
                else:
                    out.library.function.append(pb.FunctionDef.FromString(given.data))
                done += 1
        # if there are functions, the reader must support them
        out.versions.min_consumer = max(min_consumer, FUNCTIONS_SINCE) if done else min_consumer
        for function, gradient in self.gradients.items():
            out.library.gradient.add(function_name=function, gradient_func=gradient)
        return out

    def add_functions(self, graph: Graph) -> None:
        """Adds the functions of `graph` to those that are written."""
        own = {name: f for name, f in graph.functions.items() if name not in graph.library}
        found: dict[str, LibraryFunction | FuncGraph] = {**graph.library, **own}
        for name, given in found.items():
            if self.given.setdefault(name, given) != given:
                raise GraphError(
                    f"two functions are called {name!r}, in {self.graph.title} and in {graph.title}; "
                    "give one another name"
                )
        for function, gradient in graph.gradient_functions.items():
            self.gradients.setdefault(function, gradient)

    def name_of(self, graph: FuncGraph) -> str:
        """Returns the name of the function as which `graph`, owned by an operation, is written."""
        name = self.names.get(graph)
        if name is None:
            base = name = _NO_NAME.sub("_", graph.name) or "function"
            n = 0
            while name in self.given or name in op_registry:
                n += 1
                name = f"{base}_{n}"
            self.names[graph] = name
            self.given[name] = graph
        return name
