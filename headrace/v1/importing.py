"""Import of TensorFlow 1's MetaGraphs into the default graph, with their collections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.api import scopes
from headrace.interchange import meta_graph
from headrace.v1.graph import Graph, GraphKeys, get_default_graph, in_default_graph
from headrace.v1.queue_runner import QueueRunner
from headrace.v1.saver import Saver
from headrace.v1.variables import KINDS

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef


@in_default_graph
def import_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    *,
    graph: Graph | None = None,
    input_map: Mapping[str, Any] | None = None,
    restore_collections_predicate: Callable[[str], bool] = lambda key: True,
) -> Saver | None:
    """Adds the operations and collections of a `MetaGraphDef` to the default graph.

    Args:
      meta_graph_or_file: a file's path (binary or text), a message, headrace's or TensorFlow's, or its bytes.
      clear_devices: whether to forget the devices that operations ask for.
      import_scope: prefix for the operations' names, below the current name scope; None: that of the current one. Texts
        in collections get it, too, as names of operations are often kept so.
      graph: None: the default graph.
      input_map: name of a tensor in it → tensor that takes its place.
      restore_collections_predicate: which collections are wanted, by their names.

    Returns:
      The saver that it speaks of. If it speaks of none, a new one for the graph's variables, which adds its operations
      when it is first used; None if there are no variables in the scope.

    Raises:
      OSError, GraphError, NotFoundError: see `headrace.import_meta_graph`.

    Source: TensorFlow's `tf.train.import_meta_graph`.
    """
    message = meta_graph.read(meta_graph_or_file)
    return add_meta_graph(message, clear_devices, import_scope, graph, input_map, restore_collections_predicate)[1]


def add_meta_graph(
    message: MetaGraphDef,
    clear_devices: bool = False,
    import_scope: str | None = None,
    graph: Graph | None = None,
    input_map: Mapping[str, Any] | None = None,
    restore_collections_predicate: Callable[[str], bool] = lambda key: True,
) -> tuple[meta_graph.Found, Saver | None]:
    """Does the work of `import_meta_graph`; returns also the objects that the file names."""
    from headrace.interchange.collection import variable_decoders

    decoders = {
        **variable_decoders(KINDS),
        GraphKeys.QUEUE_RUNNERS: QueueRunner.of_names,
        GraphKeys.SAVERS: Saver.of_names,
    }
    into = get_default_graph() if graph is None else graph
    around = into.get_name_scope() if graph is None or graph is get_default_graph() else ""
    chosen = import_scope or (f"{around}/" if around else "")
    with into.as_default(), into.all_or_nothing(), scopes.name_scope(chosen) as prefix:
        found = meta_graph.decode(
            message, into, decoders, prefix, input_map, clear_devices, restore_collections_predicate
        )
        saver = None if found.saver_def is None else Saver(saver_def=found.saver_def, graph=into)
    found.keep(into)
    for key, items in found.collections.items():
        for x in items:
            into.add_to_collection(key, x)
    inside = re.escape(prefix) or None
    has_any = any(into.get_collection(key, inside) for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.SAVEABLE_OBJECTS))
    return found, Saver.on_demand(into) if saver is None and has_any else saver
