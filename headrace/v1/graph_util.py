"""TensorFlow 1's `tf.graph_util`: changes of `GraphDef` messages, such as freezing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, pb, public_names
from headrace.ir.serial.attrs import encode_tensor
from headrace.ir.serial.graphdef import read_graph_def
from headrace.v1.scoping import import_graph_def as import_graph_def
from headrace.v1.tensor_shape import TensorShape

if TYPE_CHECKING:
    from headrace.pb import GraphDef, NodeDef

_VARIABLES: Final = ("VarHandleOp", "Variable", "VariableV2")


def convert_variables_to_constants(
    sess: Any,
    input_graph_def: Any,
    output_node_names: Sequence[str],
    variable_names_whitelist: Iterable[str] | None = None,
    variable_names_blacklist: Iterable[str] | None = None,
) -> GraphDef:
    """Returns the part of a graph that nodes need, with constants for variables.

    Args:
      sess: a session whose variables are initialized.
      input_graph_def: the graph, a `GraphDef` message.
      output_node_names: names of the nodes.
      variable_names_whitelist: names of the variables that are replaced; None: all.
      variable_names_blacklist: names of variables that stay.

    Raises:
      ValueError: a node does not exist, or reads a variable in a way that a constant does not allow.

    Source: TensorFlow's `tf.graph_util.convert_variables_to_constants`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default() as g, tf.Session() as sess:
      ...     y = tf.identity(tf.Variable(2.0) * 3.0, name="y")
      ...     sess.run(tf.global_variables_initializer())
      ...     frozen = tf.graph_util.convert_variables_to_constants(sess, g.as_graph_def(), ["y"])
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     (z,) = tf.import_graph_def(frozen, return_elements=["y:0"])
      ...     sess.run(z)
      np.float32(6.0)
    """
    wanted = None if variable_names_whitelist is None else set(variable_names_whitelist)
    kept = set(variable_names_blacklist or ())
    part = extract_sub_graph(input_graph_def, output_node_names)
    nodes = {node.name: node for node in part.node}

    def replaced(node: NodeDef) -> bool:
        return node.op in _VARIABLES and (wanted is None or node.name in wanted) and node.name not in kept

    names = [node.name for node in part.node if replaced(node)]
    values = dict(zip(names, sess.run([_value_of(sess.graph, name) for name in names]) if names else (), strict=True))
    handles = {name for name in names if nodes[name].op == "VarHandleOp"}
    out = type(part)(versions=part.versions, library=part.library)
    for node in part.node:
        if node.name in values:
            _add_constant(out, node, values[node.name])
        elif any(_node_name(i) in handles for i in node.input if not i.startswith("^")):
            _add_reader(out, node)
        else:
            out.node.add().CopyFrom(node)
    return out


def _value_of(graph: Any, name: str) -> Any:
    """Returns the variable, or the reference, that a node of this name represents."""
    t = graph.get_operation_by_name(name).outputs[0]
    return next((v for v in graph.variables if v.handle is t), t)


def _add_constant(out: GraphDef, node: NodeDef, value: Any) -> None:
    new = out.node.add(name=node.name, op="Const", device=node.device)
    new.attr["dtype"].CopyFrom(node.attr["dtype"])
    new.attr["value"].tensor.CopyFrom(encode_tensor(np.asarray(value)))


def _add_reader(out: GraphDef, node: NodeDef) -> None:
    """Adds a reader of a constant in place of a reader of a variable."""
    attrs = {name: node.attr[name] for name in node.attr if name.startswith("_")}
    if node.op == "ReadVariableOp":
        new = out.node.add(name=node.name, op="Identity", device=node.device, input=node.input)
        attrs["T"] = node.attr["dtype"]
    elif node.op == "ResourceGather":
        axis = out.node.add(name=f"{node.name}/axis", op="Const", device=node.device)
        axis.attr["dtype"].CopyFrom(pb.AttrValue(type=pb.DT_INT32))
        axis.attr["value"].tensor.CopyFrom(encode_tensor(np.zeros((), np.int32)))
        new = out.node.add(name=node.name, op="GatherV2", device=node.device, input=node.input)
        new.input.insert(2, axis.name)
        attrs |= {"Tparams": node.attr["dtype"], "Tindices": node.attr["Tindices"], "Taxis": axis.attr["dtype"]}
        attrs["batch_dims"] = node.attr["batch_dims"]
    else:
        raise ValueError(
            f"Cannot convert the variable that {node.name!r} uses: a {node.op} of a constant does not exist; leave the "
            "variable out (variable_names_blacklist)"
        )
    for name, value in attrs.items():
        new.attr[name].CopyFrom(value)


def extract_sub_graph(graph_def: Any, dest_nodes: Sequence[str]) -> GraphDef:
    """Returns the nodes of a graph that some nodes need, in their order.

    Args:
      graph_def: the graph, a `GraphDef` message.
      dest_nodes: names of the nodes.

    Raises:
      TypeError: `dest_nodes` is a string.
      AssertionError: there is no such node.

    Source: TensorFlow's `tf.graph_util.extract_sub_graph`.
    """
    if isinstance(dest_nodes, str):
        raise TypeError(f"dest_nodes must be an iterable of strings, got the string {dest_nodes!r}")
    graph = read_graph_def(graph_def)
    nodes = {node.name: node for node in graph.node}
    needed: set[str] = set()
    waiting = list(dest_nodes)
    for name in waiting:
        if name not in nodes:
            raise AssertionError(f"{name} is not in graph")
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += map(_node_name, nodes[name].input)
    found = [node for node in graph.node if node.name in needed]
    return pb.GraphDef(node=found, versions=graph.versions, library=graph.library)


def remove_training_nodes(input_graph: Any, protected_nodes: Iterable[str] | None = None) -> GraphDef:
    """Returns a graph without `CheckNumerics` and `Identity` nodes, whose readers read the nodes before them.

    An Identity with a control edge stays.

    Args:
      input_graph: the graph, a `GraphDef` message.
      protected_nodes: names of nodes that stay.

    Source: TensorFlow's `tf.graph_util.remove_training_nodes`.
    """
    graph = read_graph_def(input_graph)
    kept = set(protected_nodes or ())
    kept |= {i.removeprefix("^") for node in graph.node for i in node.input if i.startswith("^")}
    passed = {
        node.name: node.input[0]
        for node in graph.node
        if node.op in ("CheckNumerics", "Identity") and node.name not in kept and len(node.input) == 1
    }

    def source(name: str) -> str:
        while name.removesuffix(":0") in passed:
            name = passed[name.removesuffix(":0")]
        return name

    out = pb.GraphDef(versions=graph.versions, library=graph.library)
    for node in graph.node:
        if node.name not in passed:
            new = out.node.add()
            new.CopyFrom(node)
            new.input[:] = map(source, node.input)
    return out


def tensor_shape_from_node_def_name(graph: Any, input_name: str) -> TensorShape:
    """Returns the static shape of a tensor of a graph.

    Args:
      graph: the graph.
      input_name: the notation of the tensor in a node: "op", "op:1".

    Source: TensorFlow's `tf.graph_util.tensor_shape_from_node_def_name`.
    """
    name = input_name if ":" in input_name else f"{input_name}:0"
    shape: TensorShape = graph.get_tensor_by_name(name).get_shape()
    return shape


def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """Returns whether TensorFlow's GPU devices have no kernel for an operation.

    They have none for strings, and none for some operations of int32.

    Args:
      node: an operation or `NodeDef`.
      pin_variables_on_cpu: whether variables count too.

    Source: TensorFlow's `tf.graph_util.must_run_on_cpu`.
    """
    found = getattr(node, "node_def", node)
    if not isinstance(found, pb.NodeDef):
        raise TypeError(f"expected an operation or a NodeDef, got {type(node).__name__}")
    if pin_variables_on_cpu and found.op in ("Variable", "VariableV2"):
        return True
    attr = {"Const": "dtype", "DynamicStitch": "T", "ParallelDynamicStitch": "T", "Cast": "SrcT"}.get(found.op)
    wanted = (dtypes.int32, dtypes.string) if found.op == "Const" else (dtypes.int32,)
    return attr is not None and found.attr[attr].type in [d.number for d in wanted]


def _node_name(notation: str) -> str:
    """Returns the name of the node in the notation of an input: "^op", "op:1"."""
    return notation.removeprefix("^").partition(":")[0]


# fmt: off
__all__ = [
    "convert_variables_to_constants", "extract_sub_graph", "import_graph_def", "must_run_on_cpu",
    "remove_training_nodes", "tensor_shape_from_node_def_name",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
