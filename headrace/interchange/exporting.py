"""Export of graphs as `GraphDef` messages: `Graph.as_graph_def`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.grad.differentiate import differentiate
from headrace.interchange.portable import make_portable
from headrace.ir.serial.graphdef import export_graph_def
from headrace.lower import lower_whole

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
    if portable:
        make_portable(message, written)
    return message
