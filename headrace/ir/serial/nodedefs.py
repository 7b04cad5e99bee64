"""The nodes of a file become operations, and operations nodes: what graphs and functions of the file have in common.

Nodes may stand in any order in a file; they are made in the order of the file as far as their inputs allow. A loop
leads backwards: its Merge takes an input from a NextIteration that needs the Merge. The Merge is made first, with
another of its inputs standing in, and gets the right one when the NextIteration is made.

A node whose op is the name of a function in the library, as TensorFlow 1 writes calls, becomes a `PartitionedCall` (or
`StatefulPartitionedCall`) of it.
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
from headrace.ir.opdef import op_registry
from headrace.ir.serial import attrs as wire

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.opdef import OpDef
    from headrace.ir.source import Source

GRAPH_DEF_VERSION: Final = 2474  # TensorFlow 2.21's: what this module reads, and `graphdef` writes
SCALAR_SHAPES_SINCE: Final = 24  # producers before this one wrote the shape [] of a Placeholder for "unknown"
FUNCTIONS_SINCE: Final = 12  # consumers before this one know no function library
SHAPES: Final = "_output_shapes"  # the attribute that says what is known of shapes
CONTROL: Final = -1  # as an output: a control input

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]*(>[A-Za-z0-9.][A-Za-z0-9_./-]*)*\Z")
_COLOCATED: Final = "loc:@"

# A node may state any number of outputs, and each becomes an object. More of them in one file than this plus its size
# in bytes are taken for damage.
_FREE_OUTPUTS: Final = 1 << 20

# An input as a file states it: the name of a node or argument, and which of its outputs: a number in a graph,
# "argument:number" in a function, CONTROL.
Input: TypeAlias = "tuple[str, int | str]"


class NodeDraft:
    """One node of the file on its way into the graph.

    Attributes:
      index: its place in the file.
      proto: itself.
      name: its name in the graph.
      inputs: its data inputs.
      controls: for each control input the node name.
      users: the nodes that take an input from it (once for each input).
      waits: how many inputs it waits for.
      op: the operation made of it.
      spans: of a call, where each result of the function lies among its outputs.
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
    """The signatures of functions that nodes may call as if they were ops.

    Args:
      graph: those of its library, and of the graphs around it.
      given: those of a file.
    """

    def __init__(self, graph: Graph, given: Iterable[pb.FunctionDef] = ()) -> None:
        self._graph = graph
        self._found: dict[str, pb.OpDef | None] = {f.signature.name: f.signature for f in given}

    def find(self, name: str) -> pb.OpDef | None:
        """The signature of the function `name`; None if there is none."""
        if name not in self._found:
            self._found[name] = None
            graph: Graph | None = self._graph
            while graph is not None and name not in graph.library:
                graph = graph.outer
            if graph is not None:
                self._found[name] = pb.FunctionDef.FromString(graph.library[name].data).signature
        return self._found[name]


class NodeImport:
    """Nodes of one graph or function on their way into a `Graph`.

    Args:
      graph: where they go.
      protos: the nodes.
      where: what they are part of, for messages ("the GraphDef").
      mapped: what stands for inputs that are not to be looked for among the nodes.
      signatures: the functions that nodes may call.
      size: how many bytes the nodes are.
      producer: the version of whoever wrote the file.
      prefix: put before the names of nodes.
      source: the user's line, put on every operation.
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
        self.late: dict[str, list[tuple[NodeDraft, int]]] = {}  # node name -> the Merges' inputs that wait for it
        self.outputs_left = _FREE_OUTPUTS + size
        self.ignored: set[tuple[str, str]] = set()  # op types and attributes that they do not have

    def make_all(self) -> list[Operation]:
        """Adds all nodes to the graph; the shapes of their outputs are still to be inferred."""
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
        """Fills `nodes`, and looks at every name in the file."""
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
        """Gives every node its name in the graph."""
        for node in self.nodes.values():
            name = self.prefix + node.proto.name
            if name in self.graph:
                n = 1
                while (new := f"{name}_{n}") in self.graph or new[len(self.prefix) :] in self.nodes:
                    n += 1
                name = new
            node.name = name

    def count_waits(self) -> list[tuple[int, NodeDraft]]:
        """Counts what each node waits for; returns those that wait for nothing, in the order of the file."""
        loops = {n.proto.name for n in self.nodes.values() if _primitive(n.proto) == "NextIteration"}
        ready = []
        for node in self.nodes.values():
            given = [p for p in node.inputs if p not in self.mapped]
            controls = [(c, CONTROL) for c in node.controls if (c, CONTROL) not in self.mapped]
            for source, index in given + controls:
                if source not in self.nodes:
                    raise self.error(node, f"Unknown input node '{show_input((source, index))}'")
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

    def make(self, node: NodeDraft) -> Operation:
        """Adds the operation of `node`, whose inputs (but for back edges) are all there."""
        record, attrs = self.call(node) or self.op(node)
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

    def op(self, node: NodeDraft) -> tuple[OpDef, dict[str, Any]]:
        """The record of the op that `node` names, and its attributes."""
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
        """What a node is whose op is the name of a function: a call of it. None for any other node."""
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
        """The complete attributes of `node`. Those that begin with "_" are anybody's; others the op must have."""
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
        """Tells, once, of the attribute `name`, which the op does not have: it is kept, and has no effect."""
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
        """Refuses absurd numbers of inputs and outputs before anything of that number is made."""
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
        """`_class`, with the names of nodes as they are in the graph."""
        if not isinstance(groups, tuple):
            return groups
        out = []
        for g in groups:
            if isinstance(g, str) and g.startswith(_COLOCATED):
                other = self.nodes.get(g[len(_COLOCATED) :])
                if other is not None:
                    g = _COLOCATED + other.name
                else:
                    self.check_colocated(node, g[len(_COLOCATED) :])
            out.append(g)
        return tuple(out)

    def inputs(self, node: NodeDraft, record: OpDef, attrs: Mapping[str, Any]) -> tuple[list[Tensor], list[int]]:
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
        """The tensor that `name` means as an input of `node`; None if its node is not made yet."""
        mapped = self.mapped.get(name)
        if mapped is not None:
            self.used.add(name)
            assert isinstance(mapped, Tensor)  # _read_input_map saw to it
            return mapped
        op = self.nodes[name[0]].op
        return None if op is None else self.output(node, op, name)

    def output(self, node: NodeDraft, op: Operation, name: Input) -> Tensor:
        """The output of `op` that the input `name` of `node` means."""
        index = name[1]
        assert isinstance(index, int)
        if index >= len(op.outputs):
            raise self.error(
                node,
                f"Connecting to invalid output {index} of source node {name[0]} which has {len(op.outputs)} outputs.",
            )
        return op.outputs[index]

    def parse(self, text: str) -> Input:
        """A data input as the file writes it: in a graph the name of a node, and ":number" unless that is 0."""
        return parse_tensor_name(text)

    def check_colocated(self, node: NodeDraft, name: str) -> None:
        """Objects to `node` standing beside `name`, which is no node."""
        raise self.error(node, f"expects to be colocated with unknown node '{name}'", "")

    def control(self, name: str) -> Operation:
        mapped = self.mapped.get((name, CONTROL))
        if mapped is not None:
            self.used.add((name, CONTROL))
            return mapped.op if isinstance(mapped, Tensor) else mapped
        op = self.nodes[name].op
        assert op is not None  # a node is made after its control inputs
        return op

    def close_loop(self, merge: NodeDraft, i: int, next_iteration: Operation) -> None:
        """Gives a Merge its input `i`, which comes from a NextIteration made later."""
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
        """The nodes of one cycle among `stuck`, each an input of the one before; at most ten of them."""
        path: dict[str, NodeDraft] = {}
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

    def error(self, node: NodeDraft, text: str, colon: str = ":") -> GraphError:
        return GraphError(f"Node '{node.proto.name}'{colon} {text} (node {node.index} of {self.where})")


def parse_tensor_name(text: str) -> tuple[str, int]:
    """ "x:2" → ("x", 2); "x" → ("x", 0). What is no index is part of the name."""
    name, colon, index = text.rpartition(":")
    if colon and index.isascii() and index.isdigit() and len(index) < 10:
        return name, int(index)
    return text, 0


def show_input(name: Input) -> str:
    """An input as a file writes it."""
    if name[1] == CONTROL:
        return f"^{name[0]}"
    return f"{name[0]}:{name[1]}" if name[1] else name[0]


def show_tensor(t: Tensor) -> str:
    """A tensor as a graph writes it: "x", "x:2". (What users see as its name may be that of its primitive form.)"""
    return f"{t.op.name}:{t.index}" if t.index else t.op.name


def argument_type(arg: pb.OpDef.ArgDef) -> int:
    """The type of an argument of a function; `GraphError` if that is a matter of the call's attributes."""
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
    """TensorFlow's C++ name of a dtype, which its texts use."""
    name = _DTYPE_NAMES.get(d.base.name, d.base.name)
    return name + "_ref" if d.is_ref else name


def _check_const(proto: pb.NodeDef, attrs: dict[str, Any]) -> None:
    """A constant of another dtype than it says it is imports, and fails when it runs."""
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
) -> None:
    """Makes `node`, a new one, say what `op` is.

    Args:
      node, op: see above.
      show: how an input is written.
      name_of: the name of the function that a graph which `op` owns is written as.
      add_shapes: whether to say what is known of the outputs' shapes, in an attribute.

    Raises:
      GraphError: an attribute's value has no wire form.
    """
    node.name, node.op, node.device = op.name, op.type, op.device
    node.input.extend(map(show, op.inputs))
    node.input.extend("^" + c.name for c in op.control_inputs)
    owns = False
    for name, value in op.attrs.items():
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
        node.attr["value"].tensor.dtype = op.attrs["dtype"].number  # which its array cannot say
    if owns and len(op.attrs.get("output_shapes", op.outputs)) != len(op.outputs):
        # Without them TensorFlow takes a loop's outputs to have the shapes of its inputs.
        node.attr["output_shapes"].list.shape.extend(wire.encode_shape(t.shape) for t in op.outputs)
    if add_shapes and op.outputs:
        node.attr[SHAPES].list.shape.extend(wire.encode_shape(t.shape) for t in op.outputs)
