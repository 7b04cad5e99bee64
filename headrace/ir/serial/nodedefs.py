"""Conversion between nodes of a file and operations, for graphs and functions.

Nodes may be in any order in a file. Operations are created in the order of the file as far as their inputs allow. A
loop has a back edge: its Merge has an input from a NextIteration that depends on the Merge. The Merge is created first,
with another of its inputs in place of this one, and gets the right input when the NextIteration is created.

A node whose op is the name of a library function, TensorFlow 1's notation of a call, becomes a `PartitionedCall` (or
`StatefulPartitionedCall`) of the function.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace import notices, pb
from headrace.dtypes import QUANTIZED
from headrace.errors import GraphError, HeadraceError, NotFoundError
from headrace.ir import attr_values
from headrace.ir.attr_values import Func, Owned
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.notes import notes_from_attrs, stated_attrs
from headrace.ir.opdef import op_registry
from headrace.ir.serial import attrs as wire

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.notes import Notes
    from headrace.ir.opdef import OpDef
    from headrace.ir.source import Source

GRAPH_DEF_VERSION: Final = 2474  # TensorFlow 2.21's, which this module reads and `graphdef` writes
SCALAR_SHAPES_SINCE: Final = 24  # earlier producers wrote the shape [] of a Placeholder for "unknown"
FUNCTIONS_SINCE: Final = 12  # earlier consumers do not support function libraries
SHAPES: Final = "_output_shapes"  # the attribute with static shapes
CONTROL: Final = -1  # output number of a control input

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*(>[A-Za-z0-9.][A-Za-z0-9_./-]*)*\Z")
_COLOCATED: Final = "loc:@"

# A node may state any number of outputs, and each becomes an object. A file with more of them than this number plus its
# size in bytes counts as damaged.
_FREE_OUTPUTS: Final = 1 << 20

# An input as a file states it: the name of a node or argument, and its output: a number in a graph, "argument:number"
# in a function, CONTROL for a control input.
Input: TypeAlias = "tuple[str, int | str]"


class NodeDraft:
    """Node of the file during its import.

    Attributes:
      index: the position in the file.
      proto: the message.
      name: the name in the graph.
      inputs: the data inputs.
      controls: the node names of the control inputs.
      users: the nodes with an input from this one (once for each input).
      waits: the number of inputs whose nodes have no operation yet.
      op: the operation, or None.
      spans: for a call, result of the function → its positions among the outputs; None for other nodes.
    """

    __slots__ = ("controls", "index", "inputs", "name", "op", "proto", "spans", "users", "waits")

    def __init__(self, index: int, proto: pb.NodeDef) -> None:
        self.index = index
        self.proto = proto
        self.name = proto.name
        self.inputs: list[Input] = []
        self.controls: list[str] = []
        self.users: list[NodeDraft] = []
        self.waits = 0
        self.op: Operation | None = None
        self.spans: dict[str, slice] | None = None


class Signatures:
    """Signatures of functions that nodes may call as if they were ops.

    Args:
      graph: the graph whose library, and those of the graphs around it, are searched.
      given: the functions of a file.
    """

    def __init__(self, graph: Graph, given: Iterable[pb.FunctionDef] = ()) -> None:
        self._graph = graph
        self._found: dict[str, pb.OpDef | None] = {f.signature.name: f.signature for f in given}

    def find(self, name: str) -> pb.OpDef | None:
        """Returns the signature of the function `name`, or None."""
        if name not in self._found:
            self._found[name] = None
            graph: Graph | None = self._graph
            while graph is not None and name not in graph.library:
                graph = graph.outer
            if graph is not None:
                self._found[name] = pb.FunctionDef.FromString(graph.library[name].data).signature
        return self._found[name]


class NodeImport:
    """Import of the nodes of one graph or function into a `Graph`.

    Args:
      graph: the graph that gets the operations.
      protos: the nodes.
      where: the description of the file's part in messages ("the GraphDef").
      mapped: input of a node → its replacement, in place of a node's output.
      signatures: the functions that nodes may call.
      size: the size of the nodes in bytes.
      producer: the version of the file's producer.
      prefix: the prefix of the names in the graph.
      source: the user's line, recorded in every operation.
    """

    def __init__(
        self,
        graph: Graph,
        protos: Sequence[pb.NodeDef],
        where: str,
        mapped: Mapping[Input, Tensor | Operation],
        signatures: Signatures,
        size: int,
        producer: int,
        prefix: str = "",
        source: Source | None = None,
    ) -> None:
        self.graph = graph
        self.protos = protos
        self.where = where
        self.mapped = mapped
        self.signatures = signatures
        self.producer = producer
        self.prefix = prefix
        self.source = source
        self.used: set[Input] = set()
        self.nodes: dict[str, NodeDraft] = {}
        self.late: dict[str, list[tuple[NodeDraft, int]]] = {}  # node name -> inputs of Merges that wait for it
        self.outputs_left = _FREE_OUTPUTS + size
        self.ignored: set[tuple[str, str]] = set()  # pairs of an op type and an attribute that it does not declare

    def make_all(self) -> list[Operation]:
        """Adds all nodes to the graph, without inference of shapes."""
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
        return made

    # *** reading ***

    def read_nodes(self) -> None:
        """Fills `nodes`, and checks every name in the file."""
        for i, proto in enumerate(self.protos):
            if not _NAME.match(proto.name):
                raise GraphError(
                    f"Node '{proto.name}': Node name contains invalid characters (node {i} of {self.where}; letters, "
                    "digits and _ . / - > are valid, and the first must be a letter, a digit or a dot)"
                )
            node = NodeDraft(i, proto)
            before = self.nodes.setdefault(proto.name, node)
            if before is not node:
                raise GraphError(
                    f"Node '{proto.name}' is not unique: nodes {before.index} and {i} of {self.where} have that name"
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
                    node.inputs.append(self.parse(text))

    def name_nodes(self) -> None:
        """Determines the name of every node in the graph."""
        for node in self.nodes.values():
            name = self.prefix + node.proto.name
            if name in self.graph:
                n = 1
                while (new := f"{name}_{n}") in self.graph or new[len(self.prefix) :] in self.nodes:
                    n += 1
                name = new
            node.name = name

    def count_waits(self) -> list[tuple[int, NodeDraft]]:
        """Counts the inputs of each node; returns nodes without inputs, in file order."""
        loops = {n.proto.name for n in self.nodes.values() if _primitive(n.proto) == "NextIteration"}
        ready = []
        for node in self.nodes.values():
            given = [p for p in node.inputs if p not in self.mapped]
            controls = [(c, CONTROL) for c in node.controls if (c, CONTROL) not in self.mapped]
            for source, index in given + controls:
                if source not in self.nodes:
                    raise self.error(node, f"Unknown input node '{show_input((source, index))}'")
            if _primitive(node.proto) == "Merge":
                # An input from a NextIteration may be set later if the Merge has another one.
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

    def make(self, node: NodeDraft) -> Operation:
        """Adds the operation of `node`. All of its inputs but back edges exist."""
        record, attrs = self.call(node) or self.op(node)
        inputs, late = self.inputs(node, record, attrs)
        proto, notes = node.proto, self.notes(node, attrs)
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
                self.source_of(node),
                unchecked_back_edges=True,  # self.inputs has checked all but back edges
                notes=notes,
            )
        except HeadraceError as e:
            raise self.error(node, str(e)) from e
        node.op = op
        for i in late:
            self.late.setdefault(node.inputs[i][0], []).append((node, i))
        for merge, i in self.late.pop(proto.name, ()):
            self.close_loop(merge, i, op)
        return op

    def notes(self, node: NodeDraft, attrs: dict[str, Any]) -> Notes:
        """Moves the notes that attributes state out of `attrs`, and returns them."""
        return notes_from_attrs(attrs)

    def source_of(self, node: NodeDraft) -> Source | None:
        """Returns the user's line of `node`."""
        return self.source

    def op(self, node: NodeDraft) -> tuple[OpDef, dict[str, Any]]:
        """Returns the record of the op that `node` names, and its attributes."""
        try:
            record = op_registry.get(node.proto.op)
        except LookupError as e:
            raise NotFoundError(
                f"Op type not registered '{node.proto.op}' (node '{node.proto.name}', number {node.index} of "
                f"{self.where}): {e}",
                node.proto.name,
            ) from e.__cause__
        return record, self.attrs(node, record)

    def call(self, node: NodeDraft) -> tuple[OpDef, dict[str, Any]] | None:
        """Returns the record and attributes of a call, if the op names a function.

        Returns:
          The record and attributes; None for any other node.
        """
        proto = node.proto
        signature = None if proto.op in op_registry else self.signatures.find(proto.op)
        if signature is None:
            return None
        own: dict[str, Any] = {}
        of_function: list[tuple[str, Any]] = []
        for name in sorted(proto.attr):
            value = wire.decode_attr(proto.attr[name], None)
            if name.startswith("_"):
                own[name] = value
            else:
                of_function.append((name, value))
        if "_class" in own:
            own["_class"] = self.colocation(node, own["_class"])
        own["f"] = Func(proto.op, tuple(of_function))
        if len(signature.input_arg) != len(node.inputs):
            raise self.error(
                node,
                f"the function {proto.op!r} takes {len(signature.input_arg)} arguments, and {len(node.inputs)} inputs "
                "are specified",
            )
        self.count_outputs(node, len(signature.output_arg), f"the function {proto.op!r}")
        try:
            for name, args in (("Tin", signature.input_arg), ("Tout", signature.output_arg)):
                own[name] = tuple(wire.decode_dtype(argument_type(a)) for a in args)
        except GraphError as e:
            raise self.error(node, f"{e} in the signature of the function {proto.op!r}") from e
        node.spans = {a.name: slice(i, i + 1) for i, a in enumerate(signature.output_arg)}
        record = op_registry.get("StatefulPartitionedCall" if signature.is_stateful else "PartitionedCall")
        return record, record.complete_attrs(own)

    def attrs(self, node: NodeDraft, record: OpDef) -> dict[str, Any]:
        """Returns the complete attributes of `node`.

        Names that begin with "_" are free; the op must declare the others.
        """
        unknown = [name for name in node.proto.attr if name not in record.attrs and not name.startswith("_")]
        if unknown:
            self.check_unknown(node, record, min(unknown))
        given: dict[str, Any] = {}
        name = ""
        try:
            for name, value in node.proto.attr.items():
                given[name] = wire.decode_attr(value, record.attrs.get(name))
        except GraphError as e:
            raise self.error(node, f"{e} for attr '{name}' of {record.type}") from e
        if record.type == "Const":
            _check_const(node.proto, given)
        elif record.type == "Placeholder" and self.producer < SCALAR_SHAPES_SINCE:
            given["shape"] = given.get("shape") or None
        if "_class" in given:
            given["_class"] = self.colocation(node, given["_class"])
        self.check_counts(node, record, given)
        try:
            return record.complete_attrs(given)
        except GraphError as e:
            raise self.error(node, str(e)) from e

    def check_unknown(self, node: NodeDraft, record: OpDef, name: str) -> None:
        """Warns once that attribute `name`, which the op does not declare, has no effect."""
        if (record.type, name) in self.ignored:
            return
        self.ignored.add((record.type, name))
        kinds = ", ".join(f"{n}:{f'list({a.kind})' if a.is_list else a.kind}" for n, a in sorted(record.attrs.items()))
        if self.producer > GRAPH_DEF_VERSION:
            why = (
                f"What wrote the graph is newer (version {self.producer}) than what headrace knows "
                f"({GRAPH_DEF_VERSION}); producer_op_list=, its op definitions, tells whether the attr may be left out"
            )
        else:
            why = "No TensorFlow up to headrace's version writes it; the name of an attr of your own begins with '_'"
        notices.warn(
            f"Node '{node.proto.name}': NodeDef mentions attr '{name}' not in Op<name={record.type}; attr={kinds}>: it "
            f"is ignored. {why}"
        )

    def check_counts(self, node: NodeDraft, record: OpDef, attrs: Mapping[str, Any]) -> None:
        """Rejects implausible numbers of inputs and outputs before objects are created."""
        for name in [a.number_attr for a in record.ins if a.number_attr]:
            n = attrs.get(name)
            if isinstance(n, int) and n > len(node.inputs):
                has = f"do not match {len(node.inputs)} inputs specified"
                raise self.error(node, f"NodeDef expected inputs (attr '{name}' says {n}) {has}")
        for name in [a.number_attr for a in record.outs if a.number_attr]:
            n = attrs.get(name)
            if isinstance(n, int):
                self.count_outputs(node, n, f"attr '{name}'")

    def count_outputs(self, node: NodeDraft, n: int, why: str) -> None:
        self.outputs_left -= max(n, 0)
        if self.outputs_left < 0:
            raise self.error(node, f"{why} asks for {n} outputs, which cannot be meant")

    def colocation(self, node: NodeDraft, groups: Any) -> Any:
        """Returns `_class` with the names of nodes in the graph."""
        if not isinstance(groups, tuple):
            return groups
        out = []
        for g in groups:
            if isinstance(g, str) and g.startswith(_COLOCATED):
                name = g[len(_COLOCATED) :]
                other = self.nodes.get(name) or self.mapped.get((name, CONTROL))
                if other is not None:
                    self.used.add((name, CONTROL))
                    g = _COLOCATED + other.name
                else:
                    self.check_colocated(node, name)
            out.append(g)
        return tuple(out)

    def inputs(self, node: NodeDraft, record: OpDef, attrs: Mapping[str, Any]) -> tuple[list[Tensor], list[int]]:
        """Returns the data inputs of `node`, and the positions of missing back edges.

        Another input takes the place of a missing one.
        """
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
                self.check_dtype(node, i, t, w)
        late = [i for i, t in enumerate(got) if t is None]
        there = [t for t in got if t is not None]
        if not late:
            return there, late
        return [there[0] if t is None else t for t in got], late

    def check_dtype(self, node: NodeDraft, i: int, t: Tensor, want: DType) -> None:
        if t.dtype == want or (not want.is_ref and t.dtype.base == want):
            return
        raise GraphError(
            f"Input {i} of node '{node.proto.name}' was passed {_show_dtype(t.dtype)} from {t.name} incompatible with "
            f"expected {_show_dtype(want)}. ({node.proto.op}, node {node.index} of {self.where})"
        )

    def input(self, node: NodeDraft, name: Input) -> Tensor | None:
        """Returns the tensor of the input `name` of `node`; None without a tensor yet."""
        mapped = self.mapped.get(name)
        if mapped is not None:
            self.used.add(name)
            assert isinstance(mapped, Tensor)  # `_read_input_map` has checked this
            return mapped
        op = self.nodes[name[0]].op
        return None if op is None else self.output(node, op, name)

    def output(self, node: NodeDraft, op: Operation, name: Input) -> Tensor:
        """Returns the output of `op` that the input `name` of `node` denotes."""
        index = name[1]
        assert isinstance(index, int)
        if index >= len(op.outputs):
            raise self.error(
                node,
                f"Connecting to invalid output {index} of source node {name[0]} which has {len(op.outputs)} outputs.",
            )
        return op.outputs[index]

    def parse(self, text: str) -> Input:
        """Parses a data input in the notation of a graph.

        The notation is a node's name, and ":number" unless the number is 0.
        """
        return parse_tensor_name(text)

    def check_colocated(self, node: NodeDraft, name: str) -> None:
        """Rejects the colocation of `node` with `name`, which is not a node."""
        raise self.error(node, f"expects to be colocated with unknown node '{name}'", "")

    def control(self, name: str) -> Operation:
        mapped = self.mapped.get((name, CONTROL))
        if mapped is not None:
            self.used.add((name, CONTROL))
            return mapped.op if isinstance(mapped, Tensor) else mapped
        op = self.nodes[name].op
        assert op is not None  # control inputs are created before the node
        return op

    def close_loop(self, merge: NodeDraft, i: int, next_iteration: Operation) -> None:
        """Sets input `i` of a Merge, the output of a NextIteration created after it."""
        assert merge.op is not None
        t = self.output(merge, next_iteration, merge.inputs[i])
        self.check_dtype(merge, i, t, merge.op.outputs[0].dtype)
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

    def one_cycle(self, stuck: Sequence[NodeDraft]) -> list[NodeDraft]:
        """Returns at most ten nodes of a cycle among `stuck`.

        Each is an input of the previous one.
        """
        path: dict[str, NodeDraft] = {}
        node = stuck[0]
        while node.proto.name not in path:
            path[node.proto.name] = node
            names = [s for s, _ in node.inputs] + node.controls
            missing = [self.nodes[s] for s in names if s in self.nodes and self.nodes[s].op is None]
            if _primitive(node.proto) == "Merge":  # the Merge does not wait for a back edge
                missing.sort(key=lambda n: _primitive(n.proto) == "NextIteration")
            node = missing[0]
        cycle = list(path.values())
        return cycle[cycle.index(node) :][:10]

    def error(self, node: NodeDraft, text: str, colon: str = ":") -> GraphError:
        return GraphError(f"Node '{node.proto.name}'{colon} {text} (node {node.index} of {self.where})")


def parse_tensor_name(text: str) -> tuple[str, int]:
    """Splits a tensor name: "x:2" → ("x", 2); "x" → ("x", 0).

    A text after ":" that is not a number is part of the name.
    """
    name, colon, index = text.rpartition(":")
    if colon and index.isascii() and index.isdigit() and len(index) < 10:
        return name, int(index)
    return text, 0


def show_input(name: Input) -> str:
    """Returns an input in the notation of a file."""
    if name[1] == CONTROL:
        return f"^{name[0]}"
    return f"{name[0]}:{name[1]}" if name[1] else name[0]


def show_tensor(t: Tensor) -> str:
    """Returns a tensor in the notation of a graph: "x", "x:2".

    The name that users see may be that of the primitive form.
    """
    return f"{t.op.name}:{t.index}" if t.index else t.op.name


def argument_type(arg: pb.OpDef.ArgDef) -> int:
    """Returns the type of an argument of a function.

    Raises:
      GraphError: the type depends on the attributes of the call.
    """
    if arg.type_attr or arg.number_attr or arg.type_list_attr:
        attr = arg.type_attr or arg.number_attr or arg.type_list_attr
        raise GraphError(
            f"the type of the argument '{arg.name}' depends on the attribute '{attr}'; functions that are generic are "
            "not supported: write one for each type"
        )
    return arg.type


def _primitive(proto: pb.NodeDef) -> str:
    record = op_registry.find(proto.op)
    return record.primitive if record is not None else ""


_DTYPE_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


def _show_dtype(d: DType) -> str:
    """Returns TensorFlow's C++ name of a dtype, which its error texts contain."""
    name = _DTYPE_NAMES.get(d.base.name, d.base.name)
    return name + "_ref" if d.is_ref else name


def _check_const(proto: pb.NodeDef, attrs: dict[str, Any]) -> None:
    """Replaces a constant whose dtype contradicts its declaration by a `BadTensor`.

    The import succeeds, and the kernel fails, as in TensorFlow.
    """
    value, dtype = attrs.get("value"), attrs.get("dtype")
    if value is None or dtype is None or isinstance(value, attr_values.BadTensor):
        return
    tensor = proto.attr["value"].tensor
    if tensor.dtype != dtype.number:
        attrs["value"] = attr_values.BadTensor(
            f"Type mismatch between value ({_show_dtype(wire.decode_dtype(tensor.dtype))}) and dtype "
            f"({_show_dtype(dtype)}) of the constant '{proto.name}'",
            tensor.SerializeToString(deterministic=True),
        )


# *** out ***


def write_node(
    node: pb.NodeDef,
    op: Operation,
    show: Callable[[Tensor], str],
    name_of: Callable[[Any], str],
    add_shapes: bool = False,
    is_for_files: bool = True,
) -> None:
    """Fills `node`, an empty message, from `op`.

    Args:
      node: the message.
      op: the operation.
      show: function from an input to its notation.
      name_of: function from a graph owned by `op` to the name of the function as which it is written.
      add_shapes: whether the node states the static shapes of its outputs, in an attribute.
      is_for_files: whether the node states, as attributes, notes of `op` and the shapes that TensorFlow reads.

    Raises:
      GraphError: an attribute's value has no wire form.
    """
    node.name, node.op, node.device = op.name, op.type, op.device
    node.input.extend(map(show, op.inputs))
    node.input.extend("^" + c.name for c in op.control_inputs)
    owns = False
    for name, value in (stated_attrs(op.attrs, op.notes) if is_for_files else op.attrs).items():
        spec = op.opdef.attrs.get(name)
        if spec is not None and spec.kind == "func":
            several = value if spec.is_list else (value,)
            owns = owns or any(isinstance(f, Owned) for f in several)
            named = tuple(Func(name_of(f)) if isinstance(f, Owned) else f for f in several)
            value = named if spec.is_list else named[0]
        try:
            node.attr[name].CopyFrom(wire.encode_attr(value, spec))
        except GraphError as e:
            raise GraphError(f"operation '{op.name}' ({op.type}), attribute '{name}': {e}") from e
    if op.type == "Const" and op.attrs["dtype"] in QUANTIZED:
        node.attr["value"].tensor.dtype = op.attrs["dtype"].number  # the numpy dtype does not show quantisation
    if is_for_files and owns and len(op.attrs.get("output_shapes", op.outputs)) != len(op.outputs):
        # Without these, TensorFlow assumes that a loop's outputs have the shapes of its inputs.
        del node.attr["output_shapes"].list.shape[:]
        node.attr["output_shapes"].list.shape.extend(wire.encode_shape(t.shape) for t in op.outputs)
    if SHAPES in node.attr and (add_shapes or len(node.attr[SHAPES].list.shape) != len(op.outputs)):
        del node.attr[SHAPES]  # of an imported node: a gradient may have added outputs since
    if add_shapes and op.outputs:
        node.attr[SHAPES].list.shape.extend(wire.encode_shape(t.shape) for t in op.outputs)
