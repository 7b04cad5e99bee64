"""Export of TensorFlow 1 graphs as MetaGraphs with their collections, or as `GraphDef` files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from headrace import notices
from headrace.errors import GraphError
from headrace.files import local
from headrace.interchange import files, meta_graph
from headrace.train.saving.saver import Saver
from headrace.v1.graph import Graph, GraphKeys, get_default_graph
from headrace.v1.queue_runner import QueueRunner


def export_meta_graph(
    filename: str | os.PathLike[str] | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: Iterable[Any] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
) -> Any:
    """A graph with its collections as a `MetaGraphDef` message, also written to a file.

    A collection that cannot be written, or whose name is no text, is left out, with a warning; so is, without one,
    GraphKeys.SAVEABLE_OBJECTS, of which a saver's operations say all.

    Args:
      filename: where to; None: to no file.
      meta_info_def: description of the graph as a whole, merged into the one that headrace writes.
      graph_def: the nodes; None: those of `graph`.
      saver_def: the operations that save and restore; None: those of the MetaGraph that was imported, if any.
      collection_list: the names of collections; None: all.
      as_text: whether the file is in protobuf's text form.
      graph: None: the default graph.
      export_scope: a name scope: only its operations are exported, with names relative to it. An input from outside of
        the scope has the name "$unbound_inputs_NAME" there.
      clear_devices: whether to leave out the devices that operations ask for.
      clear_extraneous_savers: whether to leave out the collection of savers.
      strip_default_attrs: whether to leave out attributes that have their default value.
      save_debug_info: accepted as in TensorFlow, without effect.

    Raises:
      FailedPreconditionError, PermissionDeniedError, ...: the file cannot be written.

    Source: TensorFlow's `tf.train.export_meta_graph`.
    """
    from headrace.interchange.collection import encode_collection, variable_encoders
    from headrace.ir.serial.graphdef import read_graph_def

    graph = get_default_graph() if graph is None else graph
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be a tf.Graph, got {graph!r}; hr.export_meta_graph writes those of headrace")
    encoders: dict[str, Callable[[Any], Any]] = {
        **variable_encoders(graph.written_form),
        GraphKeys.QUEUE_RUNNERS: QueueRunner.to_proto,
        GraphKeys.SAVERS: Saver.to_proto,
    }
    show = meta_graph.namer(graph, graph.written_form)
    collections = {}
    keys = graph.get_all_collection_keys() if collection_list is None else list(collection_list)
    for key in keys:
        if clear_extraneous_savers and key == GraphKeys.SAVERS:
            continue
        items = graph.get_collection(key)
        name = key.decode() if isinstance(key, bytes) else key
        if name == GraphKeys.SAVEABLE_OBJECTS:
            continue  # objects of Python, whose operations are in the graph
        if not isinstance(name, str):
            notices.warn(f"the collection {key!r} is not exported: its name is no text")
        elif items:
            try:
                encode_collection(name, items, encoders, show)
                collections[name] = items
            except GraphError as e:
                notices.warn(f"not exported: {e}")
    message = meta_graph.encode(
        graph.as_graph_def() if graph_def is None else read_graph_def(graph_def),
        collections,
        encoders,
        show,
        graph.saver_def if saver_def is None else saver_def,
        clear_devices,
        strip_default_attrs,
    )
    if meta_info_def is not None:
        message.meta_info_def.MergeFromString(meta_info_def.SerializeToString())
    if export_scope:
        from headrace.interchange import graph_scope  # here: few programs export a part

        message = graph_scope.narrowed(message, export_scope.rstrip("/"))
    if filename is not None:
        folder, name = os.path.split(os.fspath(filename))
        with local.as_ours(filename):
            files.write_message(message, os.path.join(local.made_folder(folder or os.curdir), name), as_text)
    return message


def write_graph(graph_or_graph_def: Any, logdir: str | os.PathLike[str], name: str, as_text: bool = True) -> str:
    """Write a graph to the file `name` in the folder `logdir`.

    The folder is made if it does not exist.

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
