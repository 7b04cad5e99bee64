"""TensorFlow 1's `tf.saved_model.loader`: SavedModels in sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.errors import GraphError
from headrace.interchange import saved_model
from headrace.v1.importing import add_meta_graph

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef, SavedModel


def maybe_saved_model_directory(export_dir: str) -> bool:
    """Whether a folder has the file of a SavedModel, which may nevertheless be malformed.

    Args:
      export_dir: the folder.

    Source: TensorFlow's `tf.saved_model.contains_saved_model`.
    """
    return saved_model.is_there(export_dir)


def parse_saved_model(export_dir: str) -> SavedModel:
    """Returns the message of a SavedModel, with TensorFlow's class of errors.

    Args:
      export_dir: the folder.

    Raises:
      OSError: the folder has no SavedModel, or a malformed one.

    Source: TensorFlow's `parse_saved_model`.
    """
    try:
        return saved_model.read(export_dir)
    except GraphError as e:
        raise OSError(str(e)) from e


def load(
    sess: Any, tags: Iterable[str], export_dir: str, import_scope: str | None = None, **saver_kwargs: Any
) -> MetaGraphDef:
    """Loads a graph of a SavedModel into a session.

    The operations are added to the graph of the session, the variables restored, and the initializer run, which is
    the `main_op` (or `legacy_init_op`) with which the graph was saved. It reads the assets in the folder.

    Args:
      sess: the session.
      tags: the tags of the graph.
      export_dir: the folder of the SavedModel.
      import_scope: prefix for the names of the operations.
      saver_kwargs: `clear_devices`, `input_map` and `restore_collections_predicate` of `tf.train.import_meta_graph`.

    Returns:
      The `MetaGraphDef` of the file. Its signatures have the names of the file, without the prefix.

    Raises:
      OSError: the folder has no SavedModel, or a malformed one.
      RuntimeError: no graph has exactly these tags.
      GraphError: the graph is malformed, or an asset is outside of the folder. Then nothing is added.
      ValueError: the checkpoint with the values of variables is missing.
      NotFoundError: a file of it is missing.

    Source: TensorFlow's `tf.saved_model.load`.

    Example:
      >>> import headrace.v1 as tf, os, tempfile
      >>> folder = tempfile.TemporaryDirectory()
      >>> path = os.path.join(folder.name, "model")
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, name="x")
      ...     w = tf.get_variable("w", initializer=3.0)
      ...     y = tf.multiply(x, w, name="y")
      ...     sess.run(w.initializer)
      ...     tf.saved_model.simple_save(sess, path, {"x": x}, {"y": y})
      >>> with tf.Session(graph=tf.Graph()) as sess:
      ...     meta = tf.saved_model.load(sess, [tf.saved_model.SERVING], path)
      ...     call = meta.signature_def["serving_default"]
      ...     sess.run(call.outputs["y"].name, {call.inputs["x"].name: 2.0})
      np.float32(6.0)
      >>> folder.cleanup()
    """
    meta = saved_model.with_tags(parse_saved_model(export_dir), tags)
    assets = saved_model.asset_files(meta, export_dir)
    initializer = saved_model.initializer(meta)
    with sess.graph.as_default():
        found, saver = add_meta_graph(meta, import_scope=import_scope, **saver_kwargs)
        if saver is not None:
            saver.restore(sess, saved_model.variables_path(export_dir))
        if initializer is not None:
            sess.run(found.find(initializer), {found.find(name): path for name, path in assets.items()})
    return meta


__all__ = ["load", "maybe_saved_model_directory"]
