"""Export of graphs as `GraphDef` messages: `Graph.as_graph_def`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.grad.differentiate import differentiate
from headrace.interchange.portable import make_portable
from headrace.ir.opdef import op_registry
from headrace.ir.serial.attrs import encode_attr
from headrace.ir.serial.graphdef import export_graph_def
from headrace.ir.serial.nodedefs import SHAPES, show_tensor
from headrace.lower import lower_whole
from headrace.recover.handles import is_flow

if TYPE_CHECKING:
    from headrace.ir.graph import Graph
    from headrace.pb import GraphDef

FORMS: Final = ("structured", "primitive")


def graph_def(graph: Graph, form: str = "structured", *, add_shapes: bool = False, portable: bool = True) -> GraphDef:
    """Returns the `GraphDef` of a graph; the arguments are those of `Graph.as_graph_def`."""
    if form not in FORMS:
        said: Any = form
        raise ValueError(f"as_graph_def(form={said!r}): the forms are 'structured' and 'primitive'")
    written = lower_whole(graph, differentiate) if form == "primitive" else graph
    message = export_graph_def(written, add_shapes=add_shapes)
    if graph.replaced:
        _hand_on_recovered(message, graph)
    if portable:
        make_portable(message, written)
    return message


def _hand_on_recovered(message: GraphDef, graph: Graph) -> None:
    """Replaces reads of arrays by identities of the values that recovery found.

    A gradient recovers loops whose arrays become lists. The original read then waits for the recovered loop, which does
    not write the array; inside of headrace `Graph.replaced` has the value.
    """
    nodes = {node.name: node for node in message.node}
    for op in {old.op: None for old in graph.replaced}:
        values = [graph.replaced[t] for t in op.outputs if t in graph.replaced and not is_flow(t)]
        if op.opdef.primitive or len(values) < len(op.outputs) or any(t.op.opdef.structured for t in values):
            continue
        node = nodes[op.name]
        controls = [name for name in node.input if name.startswith("^")]
        for name in set(node.attr) - {SHAPES}:
            del node.attr[name]
        node.ClearField("input")
        node.op = "Identity" if len(values) == 1 else "IdentityN"
        node.input.extend([*map(show_tensor, values), *controls])
        dtypes = tuple(t.dtype.base for t in op.outputs)
        spec = op_registry.get(node.op).attrs["T"]
        node.attr["T"].CopyFrom(encode_attr(dtypes if spec.is_list else dtypes[0], spec))
