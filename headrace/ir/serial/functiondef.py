"""Import and export of `FunctionDef`, TensorFlow's file format for functions.

A function in wire form has a signature (names and types of arguments, results and control results), nodes, and for each
result the name of its tensor. The notation of inputs differs from that of a graph: an argument is denoted by its name,
an output of a node by "node:output argument:number". In headrace a function is a `FuncGraph`, with a parameter, the
output of an `_Arg`, for each argument.

`Graph.function` decodes a function of the graph's library (an `EncodedFunction`) on the first request. So a function
that no operation calls may be illegal.

Source: TensorFlow's function library, with its rules. Generic functions (with types as attributes) and arguments that
are references are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf import message as protobuf

from headrace import pb
from headrace.errors import GraphError, HeadraceError
from headrace.ir.analysis.loop_shapes import infer_all
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.ir.serial import attrs as wire
from headrace.ir.serial.nodedefs import (
    CONTROL,
    SHAPES,
    Input,
    NodeDraft,
    NodeImport,
    Signatures,
    argument_type,
    write_node,
)
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.shapes import Shape

# Characters that names of arguments and results cannot contain.
_OTHER = re.compile(r"[^a-z0-9_]+")


@record(frozen=True, slots=True)
class EncodedFunction:
    """Function of a graph's library in serialized form, decoded on its first call.

    Attributes:
      data: the serialized `FunctionDef`.
    """

    data: bytes

    def decode(self, home: Graph) -> FuncGraph:
        """Returns the function as a graph; see `decode`."""
        return decode(self.data, home)


def decode(data: bytes, home: Graph) -> FuncGraph:
    """Returns the function that a serialized `FunctionDef` describes.

    Args:
      data: the bytes.
      home: the graph with the library, where functions called by this one are looked up.

    Raises:
      GraphError: the bytes do not describe a legal function; the text names function and node.
      NotFoundError: an op type in it is not registered.
    """
    try:
        message = pb.FunctionDef.FromString(data)
    except protobuf.DecodeError as e:
        raise GraphError(f"not a FunctionDef: {e}") from e
    name = message.signature.name
    try:
        return _decode(message, home)
    except HeadraceError as e:
        e.add_note(f"in the function {name!r}")
        raise


def _decode(message: pb.FunctionDef, home: Graph) -> FuncGraph:
    signature = message.signature
    graph = FuncGraph(signature.name, home, captures_from_outer=False)
    for a in signature.attr:
        raise GraphError(
            f"the function '{signature.name}' is generic (in its attribute '{a.name}'), which is not supported: write "
            "one for each type"
        )
    mapped = _add_params(graph, message)
    body = _FunctionImport(graph, message, mapped, home)
    made = body.make_all()
    infer_all(made)
    results = [body.result(result) for result in signature.output_arg]
    order = {name: i for i, name in enumerate(signature.control_output)}
    names = sorted(message.control_ret, key=lambda n: (order.get(n, len(order)), n))
    controls = [body.control_result(name) for name in names]
    graph.set_results(results, controls, is_ordered=bool(controls))
    graph.attrs = {k: wire.decode_attr(message.attr[k], None) for k in sorted(message.attr)}
    return graph


def _add_params(graph: FuncGraph, message: pb.FunctionDef) -> dict[Input, Tensor | Operation]:
    """Adds the parameters to `graph`; returns input of a node → parameter or its operation."""
    mapped: dict[Input, Tensor | Operation] = {}
    for i, arg in enumerate(message.signature.input_arg):
        try:
            dtype = wire.decode_dtype(argument_type(arg))
            if arg.is_ref or dtype.is_ref:
                raise GraphError("an argument of a function cannot be a reference; pass the variable's value")
            shape = _stated_shape(message.arg_attr[i]) if i in message.arg_attr else None
            if (arg.name, "") in mapped:
                raise GraphError("another argument has that name")
            t = graph.add_param(dtype, shape, arg.name, handle=_handle(arg))
        except GraphError as e:
            raise GraphError(f"argument {i} ('{arg.name}') of the function '{graph.name}': {e}") from e
        mapped[arg.name, ""] = t
        mapped[arg.name, CONTROL] = t.op
    return mapped


def _stated_shape(attrs: pb.FunctionDef.ArgAttrs) -> Shape:
    value = attrs.attr.get(SHAPES)
    if value is None or len(value.list.shape) != 1:
        return None
    return wire.decode_shape(value.list.shape[0])


def _handle(arg: pb.OpDef.ArgDef) -> tuple[DType, Shape] | None:
    """Returns (dtype, shape) of the contents of a resource, if the signature states them."""
    if len(arg.handle_data) != 1:
        return None
    return wire.decode_dtype(arg.handle_data[0].dtype), wire.decode_shape(arg.handle_data[0].shape)


class _FunctionImport(NodeImport):
    """Import of the nodes of a function.

    A reference to an output is resolved after the creation of its node.
    """

    def __init__(
        self, graph: FuncGraph, message: pb.FunctionDef, mapped: Mapping[Input, Tensor | Operation], home: Graph
    ) -> None:
        super().__init__(
            graph,
            message.node_def,
            f"the function '{graph.name}'",
            mapped,
            Signatures(home),
            message.ByteSize(),
            home.versions[0],
        )
        self.message = message

    def parse(self, text: str) -> Input:
        name, _, output = text.partition(":")
        return name, "" if output == "0" and (name, "") in self.mapped else output

    def read_nodes(self) -> None:
        super().read_nodes()
        for name, node in self.nodes.items():
            if (name, "") in self.mapped:
                raise self.error(node, "is called as an argument of the function is", "")

    def output(self, node: NodeDraft, op: Operation, name: Input) -> Tensor:
        found = self.find(name, op)
        if found is None:
            raise self.error(node, f"Connecting to invalid output '{name[1]}' of source node {name[0]} ({op.type})")
        return found

    def find(self, name: Input, op: Operation) -> Tensor | None:
        """Returns the output "argument:number" (`name[1]`) of `op`, the operation of node `name[0]`.

        Returns:
          The tensor; None if there is no such output.
        """
        argument, _, number = str(name[1]).partition(":")
        spans = self.nodes[name[0]].spans or op.opdef.spans(op.attrs, outputs=True)
        span = spans.get(argument)
        if span is None or (number and not (number.isascii() and number.isdigit() and len(number) < 10)):
            return None
        at = span.start + int(number or 0)
        return op.outputs[at] if at < span.stop and (number or span.stop - span.start == 1) else None

    def check_colocated(self, node: NodeDraft, name: str) -> None:
        """Accepts colocation with a node outside of the function."""

    def result(self, arg: pb.OpDef.ArgDef) -> Tensor:
        """Returns the tensor of the result `arg`."""
        text = self.message.ret.get(arg.name)
        name = self.parse(text or "")
        found = self.mapped.get(name)
        if found is None and name[0] in self.nodes:
            op = self.nodes[name[0]].op
            assert op is not None
            found = self.find(name, op)
        if not isinstance(found, Tensor):
            says = f"is said to be '{text}', which is not in it" if text else "has no value"
            raise GraphError(f"the result '{arg.name}' of {self.where} {says}")
        want = wire.decode_dtype(argument_type(arg))
        if found.dtype.base is not want:
            raise GraphError(
                f"the result '{arg.name}' of {self.where} is declared as {want}, but '{text}' is {found.dtype}"
            )
        return found

    def control_result(self, name: str) -> Operation:
        """Returns the operation of the control result `name`."""
        text = self.message.control_ret[name]
        node = self.nodes.get(text)
        if node is not None and node.op is not None:
            return node.op
        found = self.mapped.get((text, CONTROL))
        if isinstance(found, Operation):
            return found
        raise GraphError(f"the control result '{name}' of {self.where}, '{text}', is not in it")


# *** out ***


def _refuse(graph: Any) -> str:
    raise GraphError(f"{graph!r} is owned by an operation; export the whole graph")


def encode(
    graph: FuncGraph, name: str, name_of: Callable[[Any], str] = _refuse, add_shapes: bool = False
) -> pb.FunctionDef:
    """Returns the `FunctionDef` of a function.

    Args:
      graph: the function.
      name: its name in the `FunctionDef`.
      name_of: function from a graph owned by an operation to the name of the function as which it is written.
      add_shapes: whether each node states the static shapes of its outputs.

    Raises:
      GraphError: an attribute's value has no wire form.
    """
    out = pb.FunctionDef()
    signature = out.signature
    signature.name = name
    params = {t.op for t in graph.params}
    ops = [op for op in graph.operations if op not in params]
    signature.is_stateful = any(op.opdef.is_effectful or op.opdef.stateful is not None for op in ops)
    taken = {op.name for op in ops}
    names: dict[Operation, str] = {}
    for i, t in enumerate(graph.params):
        names[t.op] = arg_name = _unique(t.op.name, taken)
        arg = signature.input_arg.add(name=arg_name, type=t.dtype.number)
        if t.handle is not None:
            arg.handle_data.add(dtype=t.handle[0].number, shape=wire.encode_shape(t.handle[1]))
        out.arg_attr[i].attr[SHAPES].list.shape.append(wire.encode_shape(t.shape))

    def show(t: Tensor) -> str:
        op = t.op
        if op in params:
            return names[op]
        for argument, span in op.opdef.spans(op.attrs, outputs=True).items():
            if span.start <= t.index < span.stop:
                return f"{op.name}:{argument}:{t.index - span.start}"
        raise GraphError(f"{t!r} is no output of its operation")

    waited = dict.fromkeys(c for op in ops for c in op.control_inputs if c in params)
    there: dict[str, str] = {}
    for c in waited:  # nodes cannot wait for an argument, so an Identity of the argument takes its place
        (t,) = c.outputs
        node = out.node_def.add(name=_unique(f"{names[c]}_there", taken), op="Identity", input=[names[c]])
        node.attr["T"].CopyFrom(wire.encode_attr(t.dtype.base))
        there[f"^{c.name}"] = f"^{node.name}"
    for op in ops:
        node = out.node_def.add()
        write_node(node, op, show, name_of, add_shapes)
        if not waited.keys().isdisjoint(op.control_inputs):
            node.input[:] = [there.get(text, text) for text in node.input]
    _add_results(out, graph, show)
    for key, value in graph.attrs.items():
        out.attr[key].CopyFrom(wire.encode_attr(value))
    return out


def _add_results(out: pb.FunctionDef, graph: FuncGraph, show: Callable[[Tensor], str]) -> None:
    taken: set[str] = set()
    for t in graph.results:
        name = _unique(t.op.name, taken)
        out.signature.output_arg.add(name=name, type=t.dtype.base.number)
        out.ret[name] = show(t)
    params = {t.op for t in graph.params}
    for op in graph.control_results:
        if op not in params:
            out.signature.control_output.append(op.name)
            out.control_ret[op.name] = op.name


def functions_in(values: Iterable[pb.AttrValue]) -> Iterator[pb.NameAttrList]:
    """Iterates over the functions that attributes name, those in attributes of functions included."""
    todo = list(values)
    while todo:
        value = todo.pop()
        kind = value.WhichOneof("value")
        found = [value.func] if kind == "func" else value.list.func if kind == "list" else ()
        for func in found:
            yield func
            todo += func.attr.values()


def _unique(name: str, taken: set[str]) -> str:
    """Returns a free name for an argument or result, of small letters, digits and underscores."""
    base = _OTHER.sub("_", name.lower()).strip("_")
    if not base or not base[0].isalpha():
        base = f"arg_{base}"
    out, n = base, 0
    while out in taken:
        n += 1
        out = f"{base}_{n}"
    taken.add(out)
    return out
