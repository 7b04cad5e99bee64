"""`hr.saved_model.load`: SavedModels as Python objects with functions and variables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace import tracebacks
from headrace.api import scopes
from headrace.interchange import saved_model

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef


@tracebacks.entry
def load(path: str | os.PathLike[str], tags: str | Iterable[str] | None = None) -> Any:
    """Loads a SavedModel outside of graphs, as an object with functions and variables.

    A model of TensorFlow 2 becomes the object that was saved: its children are attributes, lists, tuples and dicts, its
    `tf.function`s are functions, its variables are `hr.Variable`s, and `signatures` is a dict of functions that take
    tensors by name and return dicts. A model of TensorFlow 1 becomes an object with `signatures`, `variables`,
    `trainable_variables` and `graph`.

    The functions can be differentiated by `hr.GradientTape` and called in functions of `hr.jit`, and the variables are
    trained by headrace's optimizers. Nothing in the folder is executed except for the operations of its graph.

    Values of large variables of TensorFlow 2 are memory of the files until the variables change. The files may be
    deleted or replaced, but must not be overwritten as long as the model exists.

    Args:
      path: the folder.
      tags: the tags of the MetaGraph, all of them; None: the only one in the folder.

    Returns:
      A `LoadedObject`.

    Raises:
      FileNotFoundError: the folder does not exist, or has no SavedModel.
      RuntimeError: no MetaGraph has exactly these tags, or `tags` is None and there are several.
      GraphError: the model is malformed, or an asset is outside of the folder.
      DataLossError, NotFoundError: the value of a variable is missing or damaged.
      NotFoundError: a function has an op type that headrace does not know (at the first call).

    Source: TensorFlow's `tf.saved_model.load`.

    Example:
      >>> import headrace as hr, headrace.v1 as tf, os, tempfile
      >>> folder = tempfile.TemporaryDirectory()
      >>> path = os.path.join(folder.name, "model")
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, [None], name="x")
      ...     w = tf.get_variable("w", initializer=3.0)
      ...     y = tf.multiply(x, w, name="y")
      ...     sess.run(w.initializer)
      ...     tf.saved_model.simple_save(sess, path, {"x": x}, {"y": y})
      >>> model = hr.saved_model.load(path)
      >>> model.signatures["serving_default"](x=[1.0, 2.0])["y"].numpy()
      array([3., 6.], dtype=float32)
      >>> [v.name for v in model.variables]
      ['w:0']
      >>> folder.cleanup()
    """
    meta = meta_graph_of(path, tags)
    with scopes.outside():
        if meta.object_graph_def.nodes:
            from headrace.saved_model.object_graph import ObjectGraph

            return ObjectGraph(meta, path, saved_model.variables_path(path)).root
        from headrace.saved_model.graph_models import load_graph

        return load_graph(meta, path)


def meta_graph_of(path: str | os.PathLike[str], tags: str | Iterable[str] | None) -> MetaGraphDef:
    """Returns the MetaGraph of a SavedModel with the given tags, or the only one.

    Raises:
      FileNotFoundError, GraphError: the folder has no SavedModel, or a malformed one.
      RuntimeError: there is no such MetaGraph.
    """
    model = saved_model.read(path)
    if tags is not None:
        return saved_model.with_tags(model, tags)
    if len(model.meta_graphs) != 1:
        there = ", ".join(str(sorted(m.meta_info_def.tags)) for m in model.meta_graphs)
        raise RuntimeError(
            f"{os.fspath(path)!r} has {len(model.meta_graphs)} MetaGraphs; give tags= of one: {there or 'none'}"
        )
    return model.meta_graphs[0]
