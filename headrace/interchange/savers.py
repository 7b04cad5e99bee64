"""Messages for saving: `SaverDef`, and the MetaGraph of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.api.scopes import Graph
from headrace.errors import GraphError
from headrace.interchange import files, meta_graph

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef as MetaGraphDef
    from headrace.pb import SaverDef as SaverDef


def saver_def(**fields: Any) -> SaverDef:
    """Returns a `SaverDef` with these fields."""
    from headrace import pb

    return pb.SaverDef(**fields)


def read_saver_def(given: Any) -> SaverDef:
    """Returns a copy of a `SaverDef`, headrace's or TensorFlow's message or its bytes.

    Raises:
      GraphError: the argument is no complete `SaverDef`.
    """
    from headrace import pb

    found: SaverDef = files.read_message(pb.SaverDef, given)
    for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
        if not getattr(found, field):
            raise GraphError(f"a SaverDef without {field}")
    out = pb.SaverDef()
    out.CopyFrom(found)
    return out


def scoped(given: SaverDef, add: str = "", remove: str = "") -> SaverDef | None:
    """Returns a copy of a `SaverDef` with another scope before its names.

    Args:
      given: the message.
      add: the scope to add.
      remove: the scope to remove before.

    Returns:
      The copy; None if a name is not in the scope `remove`.
    """
    from headrace import pb

    out = pb.SaverDef()
    out.CopyFrom(given)
    for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
        name = getattr(given, field)
        if remove and not name.startswith(f"{remove}/"):
            return None
        name = name[len(remove) + 1 :] if remove else name
        setattr(out, field, f"{add}/{name}" if add else name)
    return out


def with_saver(
    graph: Graph, saver: SaverDef, portable: bool = True, clear_devices: bool = False, strip_default_attrs: bool = False
) -> MetaGraphDef:
    """Returns the MetaGraph of a graph with its variables and its saver."""
    from headrace.interchange.collection import variable_encoders

    lists = {"variables": graph.variables, "trainable_variables": [v for v in graph.variables if v.trainable]}
    return meta_graph.encode(
        graph.as_graph_def(graph.written_form, portable=portable),
        {name: items for name, items in lists.items() if items},
        variable_encoders(graph.written_form),
        meta_graph.namer(graph, graph.written_form),
        saver,
        clear_devices,
        strip_default_attrs,
    )
