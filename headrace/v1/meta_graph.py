"""TensorFlow 1's MetaGraphs: the default graph with its collections, in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace import notices
from headrace.api import scopes
from headrace.errors import GraphError
from headrace.files import local
from headrace.interchange import files, meta_graph
from headrace.v1.graph import Graph, GraphKeys, get_default_graph, in_default_graph
from headrace.v1.saver import Saver
from headrace.v1.variables import KINDS

if TYPE_CHECKING:
    from headrace.interchange.collection import Codec


def _codecs() -> dict[str, Codec]:
    from headrace.interchange.collection import Codec, variable_codecs
    from headrace.v1.train import QueueRunner

    runners = Codec(QueueRunner.to_proto, QueueRunner.of_names)
    savers = Codec(Saver.to_proto, Saver.of_names)
    return {**variable_codecs(KINDS), GraphKeys.QUEUE_RUNNERS: runners, GraphKeys.SAVERS: savers}


def export_meta_graph(
    filename: str | os.PathLike[str] | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: Iterable[Any] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    clear_devices: bool = False,
    strip_default_attrs: bool = False,
) -> Any:
    """A graph with its collections as a `MetaGraphDef` message, also written to a file.

    A collection that cannot be written, or whose name is no text, is left out, with a warning; so is, without one,
    GraphKeys.SAVEABLE_OBJECTS, of which a saver's operations say all.

    Args:
      filename: where to; None: to no file.
      meta_info_def: what is said of the graph as a whole, besides what headrace says itself.
      graph_def: the nodes; None: those of `graph`.
      saver_def: which operations save and restore; None: what came with an imported MetaGraph, if one did.
      collection_list: the names of collections; None: all.
      as_text: whether the file is in protobuf's text form.
      graph: None: the default graph.
      clear_devices: whether to leave out the devices that operations ask for.
      strip_default_attrs: whether to leave out attributes that have their default value.

    Raises:
      FailedPreconditionError, PermissionDeniedError, ...: the file cannot be written.

    Source: TensorFlow's `tf.train.export_meta_graph`.
    """
    from headrace.interchange.collection import encode_collection
    from headrace.ir.serial.graphdef import read_graph_def

    graph = get_default_graph() if graph is None else graph
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be a tf.Graph, got {graph!r}; hr.export_meta_graph writes those of headrace")
    codecs, show = _codecs(), meta_graph.namer(graph)
    collections = {}
    for key in graph.get_all_collection_keys() if collection_list is None else collection_list:
        items = graph.get_collection(key)
        name = key.decode() if isinstance(key, bytes) else key
        if name == GraphKeys.SAVEABLE_OBJECTS:
            continue  # objects of Python, whose operations are in the graph
        if not isinstance(name, str):
            notices.warn(f"the collection {key!r} is not exported: its name is no text")
        elif items:
            try:
                encode_collection(name, items, codecs, show)
                collections[name] = items
            except GraphError as e:
                notices.warn(f"not exported: {e}")
    message = meta_graph.encode(
        graph.as_graph_def() if graph_def is None else read_graph_def(graph_def),
        collections,
        codecs,
        show,
        graph.saver_def if saver_def is None else saver_def,
        clear_devices,
        strip_default_attrs,
    )
    if meta_info_def is not None:
        message.meta_info_def.MergeFromString(meta_info_def.SerializeToString())
    if filename is not None:
        folder, name = os.path.split(os.fspath(filename))
        with local.as_ours(filename):
            files.write_message(message, os.path.join(local.made_folder(folder or os.curdir), name), as_text)
    return message


def write_graph(graph_or_graph_def: Any, logdir: str | os.PathLike[str], name: str, as_text: bool = True) -> str:
    """Writes a graph to the file `name` in the folder `logdir`, which is made if it is not there.

    Args:
      graph_or_graph_def: a graph, or a `GraphDef` message, headrace's or TensorFlow's.
      logdir, name: where to.
      as_text: whether to write protobuf's text form, else the binary one.

    Returns:
      The file's path.

    Raises:
      NotFoundError, FailedPreconditionError, PermissionDeniedError, ...: the file cannot be written.

    Source: TensorFlow's `tf.train.write_graph`.
    """
    folder = local.made_folder(logdir)
    with local.as_ours(os.path.join(folder, name)):
        return files.write_graph(graph_or_graph_def, folder, name, as_text)


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
      when it is first used; None if there are no variables.

    Raises:
      OSError, GraphError, NotFoundError: see `headrace.import_meta_graph`.

    Source: TensorFlow's `tf.train.import_meta_graph`.
    """
    message = meta_graph.read(meta_graph_or_file)
    into = get_default_graph() if graph is None else graph
    around = into.get_name_scope() if graph is None or graph is get_default_graph() else ""
    chosen = import_scope or (f"{around}/" if around else "")
    with into.as_default(), into.all_or_nothing(), scopes.name_scope(chosen) as prefix:
        found = meta_graph.decode(
            message, into, _codecs(), prefix, input_map, clear_devices, restore_collections_predicate
        )
        saver = None if found.saver_def is None else Saver(saver_def=found.saver_def, graph=into)
    found.keep(into)
    for key, items in found.collections.items():
        for x in items:
            into.add_to_collection(key, x)
    has_any = any(into.get_collection(key) for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.SAVEABLE_OBJECTS))
    return Saver.on_demand(into) if saver is None and has_any else saver
