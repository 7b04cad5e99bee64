"""`GraphDef` in and out: TensorFlow's file format for graphs.

`import_graph_def` adds the nodes of a `GraphDef` to a graph, `export_graph_def` writes a graph as one. An import is all
or nothing: a file that cannot be imported leaves the graph as it was. Nodes may stand in any order in a file; they are
made in the order of the file as far as their inputs allow.

A loop leads backwards: its Merge takes an input from a NextIteration that needs the Merge. The Merge is made first,
with another of its inputs standing in, and gets the right one when the NextIteration is made.

What a graph has no place for is left behind: debug information, experimental types, and the gradient functions of the
function library.

Source: TensorFlow's `import_graph_def` and `GraphConstructor`, whose rules, texts and error classes are kept.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import message as protobuf
from google.protobuf import text_format

from headrace import pb
from headrace.errors import GraphError, HeadraceError, NotFoundError
from headrace.ir import attrs as wire
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.loop_shapes import infer_all
from headrace.ir.opdef import op_registry

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.opdef import OpDef
    from headrace.ir.source import Source

SCALAR_SHAPES_SINCE: Final = 24  # producers before this one wrote the shape [] of a Placeholder for "unknown"
GRAPH_DEF_VERSION: Final = 2474  # TensorFlow 2.21's: what this module reads, and writes

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*(>[A-Za-z0-9.][A-Za-z0-9_./-]*)*\Z")
_CONTROL: Final = -1  # as an output index: a control input
_COLOCATED: Final = "loc:@"

# A node may state any number of outputs, and each becomes an object. More of them in one file than this plus its size
# in bytes are taken for damage.
_FREE_OUTPUTS: Final = 1 << 20


def import_graph_def(
    graph_def: Any,
    graph: Graph,
    name: str = "",
    input_map: Mapping[str, Tensor | Operation] | None = None,
    return_elements: Sequence[str] | None = None,
    source: Source | None = None,
) -> list[Tensor | Operation] | None:
    """Adds the nodes of a `GraphDef` to `graph`.

    Args:
      graph_def: a serialized `GraphDef` (bytes), its text form (str), or a message, headrace's or TensorFlow's.
      graph: where they go.
      name: a prefix for their names, made unique unless it ends in "/"; "" for none (a name that the graph has already
        gets a number then).
      input_map: name in the `GraphDef` of a tensor ("x:0", or "x" for output 0) or, for control inputs, of an
        operation ("^x") → what takes its place as an input.
      return_elements: names in the `GraphDef` of tensors ("x:0") and operations ("x").
      source: the user's line, put on every operation.

    Returns:
      The `return_elements` (mapped ones as `input_map` says), or None if none were asked for.

    Raises:
      GraphError (a ValueError): it is not a `GraphDef`, or describes no legal graph; the text names the node. Nothing
        is added then.
      NotFoundError: an op type is not registered.
      TypeError: `graph_def` or `input_map` is of no type that can be used.

    Example:
      >>> g = Graph()
      >>> import_graph_def('node { name: "n" op: "NoOp" }', g, name="a", return_elements=["n"])
      [<Operation 'a/n' type=NoOp>]
    """
    message = read_graph_def(graph_def)
    _check_versions(message.versions)
    with graph.all_or_nothing():
        return _Import(message, graph, name, input_map or {}, source).run(return_elements)


def read_graph_def(graph_def: Any) -> pb.GraphDef:
    """The `GraphDef` that bytes, text or a message hold; see `import_graph_def`.

    Raises:
      GraphError: they hold none. TypeError: it is none of these.
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
    except RecursionError as e:  # the text parser's; the binary one has a limit of its own
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


class _Node:
    """One node of the file on its way into the graph.

    Attributes:
      index: its place in the file.
      proto: itself.
      name: its name in the graph.
      inputs: for each data input (node name in the file, output index).
      controls: for each control input the node name.
      users: the nodes that take an input from it (once for each input).
      waits: how many inputs it waits for.
      op: the operation made of it.
    """

    __slots__ = ("controls", "index", "inputs", "name", "op", "proto", "users", "waits")

    def __init__(self, index: int, proto: pb.NodeDef) -> None:
        self.index = index
        self.proto = proto
        self.name = proto.name
        self.inputs: list[tuple[str, int]] = []
        self.controls: list[str] = []
        self.users: list[_Node] = []
        self.waits = 0
        self.op: Operation | None = None


class _Import:
    """One import in progress."""

    def __init__(
        self,
        message: pb.GraphDef,
        graph: Graph,
        name: str,
        input_map: Mapping[str, Tensor | Operation],
        source: Source | None,
    ) -> None:
        self.message = message
        self.graph = graph
        self.source = source
        self.mapped = _read_input_map(input_map, graph)
        self.used: set[tuple[str, int]] = set()
        self.nodes: dict[str, _Node] = {}
        self.late: dict[str, list[tuple[_Node, int]]] = {}  # node name -> the Merges' inputs that wait for it
        self.prefix = name if name.endswith("/") else graph.unique_name(name) + "/" if name else ""
        self.outputs_left = _FREE_OUTPUTS + message.ByteSize()
        self.library = {f.signature.name for f in message.library.function}

    def run(self, return_elements: Sequence[str] | None) -> list[Tensor | Operation] | None:
        self.read_nodes()
        self.name_nodes()
        ready = self.count_waits()
        made: list[Operation] = []
        while ready:
            node = heapq.heappop(ready)[1]
            made.append(self.make(node))
            for user in node.users:
                user.waits -= 1
                if user.waits == 0:
                    heapq.heappush(ready, (user.index, user))
        self.check_all_made(len(made))
        self.check_input_map()
        infer_all(made)
        self.keep_library()
        return None if return_elements is None else [self.find(e) for e in return_elements]

    # *** reading ***

    def read_nodes(self) -> None:
        """Fills `nodes`, and looks at every name in the file."""
        for i, proto in enumerate(self.message.node):
            if not _NAME.match(proto.name):
                raise GraphError(
                    f"Node '{proto.name}': Node name contains invalid characters (node {i} of the GraphDef; letters, "
                    "digits and _ . / - > are valid, and the first must be a letter, a digit or a dot)"
                )
            node = _Node(i, proto)
            before = self.nodes.setdefault(proto.name, node)
            if before is not node:
                raise GraphError(
                    f"Node '{proto.name}' is not unique: nodes {before.index} and {i} of the GraphDef have that name"
                )
            if not proto.op:
                raise self.error(node, "does not specify an operation", "")
            for text in proto.input:
                if text.startswith("^"):
                    node.controls.append(text[1:])
                elif node.controls:
                    raise self.error(
                        node,
                        f"Control dependencies must come after regular dependencies, but '{text}' comes after "
                        f"'^{node.controls[-1]}'",
                    )
                else:
                    node.inputs.append(_parse_tensor_name(text))

    def name_nodes(self) -> None:
        """Gives every node its name in the graph."""
        for node in self.nodes.values():
            name = self.prefix + node.proto.name
            if name in self.graph:
                n = 1
                while (new := f"{name}_{n}") in self.graph or new[len(self.prefix) :] in self.nodes:
                    n += 1
                name = new
            node.name = name

    def count_waits(self) -> list[tuple[int, _Node]]:
        """Counts what each node waits for; returns those that wait for nothing, in the order of the file."""
        loops = {n.proto.name for n in self.nodes.values() if _primitive(n.proto) == "NextIteration"}
        ready = []
        for node in self.nodes.values():
            given = [p for p in node.inputs if p not in self.mapped]
            controls = [(c, _CONTROL) for c in node.controls if (c, _CONTROL) not in self.mapped]
            for source, index in given + controls:
                if source not in self.nodes:
                    text = f"^{source}" if index == _CONTROL else f"{source}:{index}" if index else source
                    raise self.error(node, f"Unknown input node '{text}'")
            if _primitive(node.proto) == "Merge":
                # What comes from a NextIteration may come later, if there is something to begin with.
                forward = [p for p in given if p[0] not in loops]
                if given and not forward and len(given) == len(node.inputs):
                    raise self.error(
                        node,
                        "1 nodes in a cycle: all inputs of this Merge come from NextIterations; the Merge of a loop "
                        "needs one from before the loop, through an Enter",
                    )
                given = forward
            for source, _ in given + controls:
                self.nodes[source].users.append(node)
            node.waits = len(given) + len(controls)
            if node.waits == 0:
                ready.append((node.index, node))
        return ready

    # *** making ***

    def make(self, node: _Node) -> Operation:
        """Adds the operation of `node`, whose inputs (but for back edges) are all there."""
        record = self.record(node)
        attrs = self.attrs(node, record)
        inputs, late = self.inputs(node, record, attrs)
        proto = node.proto
        try:
            if proto.device:
                DeviceSpec.from_string(proto.device)
            op = self.graph.add_op(
                record.type,
                node.name,
                inputs,
                attrs,
                [self.control(c) for c in node.controls],
                proto.device,
                self.source,
                unchecked_back_edges=True,  # self.inputs checked them, late ones aside
            )
        except HeadraceError as e:
            raise self.error(node, str(e)) from e
        node.op = op
        for i in late:
            self.late.setdefault(node.inputs[i][0], []).append((node, i))
        for merge, i in self.late.pop(proto.name, ()):
            self.close_loop(merge, i, op)
        return op

    def record(self, node: _Node) -> OpDef:
        proto = node.proto
        record = op_registry.find(proto.op)
        if record is not None:
            return record
        if proto.op in self.library or any(v.WhichOneof("value") == "func" for v in proto.attr.values()):
            why = "it calls functions of the graph's library, and headrace does not support functions yet"
        else:
            try:
                op_registry.get(proto.op)
                why = ""
            except LookupError as e:
                why = str(e)
        raise NotFoundError(
            f"Op type not registered '{proto.op}' (node '{proto.name}', number {node.index} of the GraphDef): {why}",
            proto.name,
        )

    def attrs(self, node: _Node, record: OpDef) -> dict[str, Any]:
        """The complete attributes of `node`."""
        given: dict[str, Any] = {}
        name = ""
        try:
            for name, value in node.proto.attr.items():
                given[name] = wire.decode_attr(value, record.attrs.get(name))
        except GraphError as e:
            raise self.error(node, f"{e} for attr '{name}' of {record.type}") from e
        if record.type == "Const":
            _check_const(node.proto, given)
        elif record.type == "Placeholder" and self.message.versions.producer < SCALAR_SHAPES_SINCE:
            given["shape"] = given.get("shape") or None
        if "_class" in given:
            given["_class"] = self.colocation(node, given["_class"])
        self.check_counts(node, record, given)
        try:
            return record.complete_attrs(given)
        except GraphError as e:
            raise self.error(node, str(e)) from e

    def check_counts(self, node: _Node, record: OpDef, attrs: Mapping[str, Any]) -> None:
        """Refuses absurd numbers of inputs and outputs before anything of that number is made."""
        for name in [a.number_attr for a in record.ins if a.number_attr]:
            n = attrs.get(name)
            if isinstance(n, int) and n > len(node.inputs):
                has = f"do not match {len(node.inputs)} inputs specified"
                raise self.error(node, f"NodeDef expected inputs (attr '{name}' says {n}) {has}")
        for name in [a.number_attr for a in record.outs if a.number_attr]:
            n = attrs.get(name)
            if isinstance(n, int):
                self.outputs_left -= max(n, 0)
                if self.outputs_left < 0:
                    raise self.error(node, f"attr '{name}' asks for {n} outputs, which cannot be meant")

    def colocation(self, node: _Node, groups: Any) -> Any:
        """`_class`, with the names of nodes as they are in the graph."""
        if not isinstance(groups, tuple):
            return groups
        out = []
        for g in groups:
            if isinstance(g, str) and g.startswith(_COLOCATED):
                other = self.nodes.get(g[len(_COLOCATED) :])
                if other is None:
                    raise self.error(node, f"expects to be colocated with unknown node '{g[len(_COLOCATED) :]}'", "")
                g = _COLOCATED + other.name
            out.append(g)
        return tuple(out)

    def inputs(self, node: _Node, record: OpDef, attrs: Mapping[str, Any]) -> tuple[list[Tensor], list[int]]:
        """The data inputs of `node`, and the positions of those that are late, for which another stands in."""
        want = record.input_dtypes(attrs)
        if len(want) != len(node.inputs):
            expected = ", ".join(map(_show_dtype, want[:10])) + (", ..." if len(want) > 10 else "")
            raise self.error(
                node,
                f"NodeDef expected inputs '{expected}' do not match {len(node.inputs)} inputs specified; "
                f"{record.type} takes {len(want)} under its attributes",
            )
        got: list[Tensor | None] = [self.input(node, p) for p in node.inputs]
        for i, (t, w) in enumerate(zip(got, want)):
            if t is not None and t.dtype is not w:
                _check_dtype(node, i, t, w)
        late = [i for i, t in enumerate(got) if t is None]
        there = [t for t in got if t is not None]
        if not late:
            return there, late
        return [there[0] if t is None else t for t in got], late

    def input(self, node: _Node, name: tuple[str, int]) -> Tensor | None:
        """The tensor that `name` means as an input of `node`; None if its node is not made yet."""
        mapped = self.mapped.get(name)
        if mapped is not None:
            self.used.add(name)
            assert isinstance(mapped, Tensor)  # _read_input_map saw to it
            return mapped
        op = self.nodes[name[0]].op
        return None if op is None else self.output(node, op, name)

    def output(self, node: _Node, op: Operation, name: tuple[str, int]) -> Tensor:
        if name[1] >= len(op.outputs):
            raise self.error(
                node,
                f"Connecting to invalid output {name[1]} of source node {name[0]} which has {len(op.outputs)} outputs.",
            )
        return op.outputs[name[1]]

    def control(self, name: str) -> Operation:
        mapped = self.mapped.get((name, _CONTROL))
        if mapped is not None:
            self.used.add((name, _CONTROL))
            return mapped.op if isinstance(mapped, Tensor) else mapped
        op = self.nodes[name].op
        assert op is not None  # a node is made after its control inputs
        return op

    def close_loop(self, merge: _Node, i: int, next_iteration: Operation) -> None:
        """Gives a Merge its input `i`, which comes from a NextIteration made later."""
        assert merge.op is not None
        t = self.output(merge, next_iteration, merge.inputs[i])
        _check_dtype(merge, i, t, merge.op.outputs[0].dtype)
        self.graph.set_back_edge(merge.op, i, t)

    # *** at the end ***

    def check_all_made(self, made: int) -> None:
        if made == len(self.nodes):
            return
        stuck = [n for n in self.nodes.values() if n.op is None]
        cycle = " -> ".join(f"'{n.proto.name}' ({n.proto.op})" for n in self.one_cycle(stuck))
        raise GraphError(
            f"{len(stuck)} nodes in a cycle or behind one: {cycle}. A cycle is legal only in a loop, through an edge "
            "from a NextIteration to a Merge that also has an input from before the loop"
        )

    def one_cycle(self, stuck: Sequence[_Node]) -> list[_Node]:
        """The nodes of one cycle among `stuck`, each an input of the one before; at most ten of them."""
        path: dict[str, _Node] = {}
        node = stuck[0]
        while node.proto.name not in path:
            path[node.proto.name] = node
            names = [s for s, _ in node.inputs] + node.controls
            missing = [self.nodes[s] for s in names if s in self.nodes and self.nodes[s].op is None]
            if _primitive(node.proto) == "Merge":  # a back edge is not what it waits for
                missing.sort(key=lambda n: _primitive(n.proto) == "NextIteration")
            node = missing[0]
        cycle = list(path.values())
        return cycle[cycle.index(node) :][:10]

    def check_input_map(self) -> None:
        """Every key of the input map must be a name in the file, though not one that something reads."""
        unknown = []
        for name, index in self.mapped.keys() - self.used:
            node = self.nodes.get(name)
            if node is None or node.op is None or index >= len(node.op.outputs):
                unknown.append(f"^{name}" if index == _CONTROL else f"{name}:{index}")
        if unknown:
            raise GraphError(
                f"Attempted to map inputs that were not found in graph_def: [{', '.join(sorted(unknown))}]"
            )

    def keep_library(self) -> None:
        graph = self.graph
        for f in self.message.library.function:
            name = f.signature.name
            data = f.SerializeToString(deterministic=True)
            if graph.library.setdefault(name, data) != data:
                raise GraphError(
                    f"Cannot add function '{name}' because a different function with the same name already exists."
                )
        producer, min_consumer = self.message.versions.producer, self.message.versions.min_consumer
        if graph.versions != (0, 0):
            producer, min_consumer = min(producer, graph.versions[0]), max(min_consumer, graph.versions[1])
        graph.versions = (producer, min_consumer)

    def find(self, element: str) -> Tensor | Operation:
        """The tensor ("x:0") or operation ("x") of the file that `element` names."""
        if not isinstance(element, str):
            raise TypeError(f"return_elements must be names, got {element!r}")
        name, index = _parse_tensor_name(element)
        node = self.nodes.get(name)
        is_tensor = ":" in element
        if is_tensor:
            mapped = self.mapped.get((name, index))
            if isinstance(mapped, Tensor):
                return mapped
        if node is None or node.op is None:
            raise GraphError(f"Requested return {'tensor' if is_tensor else 'node'} '{element}' not found in graph def")
        if not is_tensor:
            return node.op
        if index >= len(node.op.outputs):
            raise GraphError(
                f"Invalid return output {index} of node '{name}', which has {len(node.op.outputs)} output(s)"
            )
        return node.op.outputs[index]

    def error(self, node: _Node, text: str, colon: str = ":") -> GraphError:
        return GraphError(f"Node '{node.proto.name}'{colon} {text} (node {node.index} of the GraphDef)")


def _parse_tensor_name(text: str) -> tuple[str, int]:
    """ "x:2" → ("x", 2); "x" → ("x", 0). What is no index is part of the name."""
    name, colon, index = text.rpartition(":")
    if colon and index.isascii() and index.isdigit() and len(index) < 10:
        return name, int(index)
    return text, 0


def _read_input_map(
    input_map: Mapping[str, Tensor | Operation], graph: Graph
) -> dict[tuple[str, int], Tensor | Operation]:
    out: dict[tuple[str, int], Tensor | Operation] = {}
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
        out[(key[1:], _CONTROL) if is_control else _parse_tensor_name(key)] = value
    return out


def _primitive(proto: pb.NodeDef) -> str:
    record = op_registry.find(proto.op)
    return record.primitive if record is not None else ""


_DTYPE_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


def _show_dtype(d: DType) -> str:
    """TensorFlow's C++ name of a dtype, which its texts use."""
    name = _DTYPE_NAMES.get(d.base.name, d.base.name)
    return name + "_ref" if d.is_ref else name


def _check_dtype(node: _Node, i: int, t: Tensor, want: DType) -> None:
    if t.dtype == want or (not want.is_ref and t.dtype.base == want):
        return
    raise GraphError(
        f"Input {i} of node '{node.proto.name}' was passed {_show_dtype(t.dtype)} from {t.name} incompatible with "
        f"expected {_show_dtype(want)}. ({node.proto.op}, node {node.index} of the GraphDef)"
    )


def _check_const(proto: pb.NodeDef, attrs: dict[str, Any]) -> None:
    """A constant of another dtype than it says it is imports, and fails when it runs."""
    value, dtype = attrs.get("value"), attrs.get("dtype")
    if value is None or dtype is None or isinstance(value, wire.BadTensor):
        return
    tensor = proto.attr["value"].tensor
    if tensor.dtype != dtype.number:
        attrs["value"] = wire.BadTensor(
            f"Type mismatch between value ({_show_dtype(wire.decode_dtype(tensor.dtype))}) and dtype "
            f"({_show_dtype(dtype)}) of the constant '{proto.name}'",
            tensor.SerializeToString(deterministic=True),
        )


# *** out ***


def export_graph_def(graph: Graph) -> pb.GraphDef:
    """The `GraphDef` of a graph: a node for each operation, in the order of their making.

    Returns:
      A message of headrace's; `SerializeToString()` gives the bytes that TensorFlow reads.

    Raises:
      GraphError: an attribute's value has no wire form.

    Example:
      >>> g = Graph()
      >>> _ = import_graph_def('node { name: "n" op: "NoOp" }', g)
      >>> export_graph_def(g).node[0].name
      'n'
    """
    out = pb.GraphDef()
    for op in graph.operations:
        node = out.node.add(name=op.name, op=op.type, device=op.device)
        node.input.extend(t.name if t.index else t.op.name for t in op.inputs)
        node.input.extend("^" + c.name for c in op.control_inputs)
        for name, value in op.attrs.items():
            try:
                node.attr[name].CopyFrom(wire.encode_attr(value, op.opdef.attrs.get(name)))
            except GraphError as e:
                raise GraphError(f"operation '{op.name}' ({op.type}), attribute '{name}': {e}") from e
    producer, min_consumer = graph.versions
    out.versions.producer = producer or GRAPH_DEF_VERSION
    out.versions.min_consumer = min_consumer
    for data in graph.library.values():
        out.library.function.append(pb.FunctionDef.FromString(data))
    return out
