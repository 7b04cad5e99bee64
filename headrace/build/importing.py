"""`import_graph_def` as users call it: into the graph they have entered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.build.scopes import current_graph
from headrace.ir import source

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


def import_graph_def(
    graph_def: Any,
    name: str = "",
    input_map: Mapping[str, Tensor] | None = None,
    return_elements: Sequence[str] | None = None,
    *,
    graph: Graph | None = None,
    producer_op_list: Any = None,
) -> list[Tensor | Operation] | None:
    """Adds the nodes of a `GraphDef` to a graph, under their own names or below the scope `name`.

    Args:
      graph_def: a serialized `GraphDef` (`bytes`), its text form (`str`), or a `GraphDef` message, headrace's or
        TensorFlow's.
      name: prefix for the nodes' names; "" for none.
      input_map: tensor name in the GraphDef → tensor of the graph that takes its place.
      return_elements: names of tensors and operations of the GraphDef to return.
      graph: the graph to add to; None: the one entered (`with hr.Graph()`).
      producer_op_list: the op definitions of what wrote the GraphDef (an `OpList` message or its bytes). Attributes
        that headrace's ops do not have are left out if they have their default value there; others are an error.
        Without it they are an error, too, unless the GraphDef's producer is newer than headrace: a warning then.

    Returns:
      The `return_elements`, or None.

    Raises:
      GraphError (a ValueError): the GraphDef is malformed; nothing is added then.
      NotFoundError: it has an op type that headrace does not know.

    Source: TensorFlow's `tf.import_graph_def`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y, = hr.import_graph_def('node { name: "y" op: "NoOp" }', return_elements=["y"])
      >>> y
      <Operation 'y' type=NoOp>
    """
    from headrace.ir import graphdef  # protobuf takes long to import, and not every program needs it

    into = graph if graph is not None else current_graph()
    if into is None:
        raise ValueError(
            "no graph to import into: call import_graph_def inside `with hr.Graph() as g:`, or give graph="
        )
    return graphdef.import_graph_def(
        graph_def, into, name, input_map, return_elements, source=source.here(), producer_op_list=producer_op_list
    )
