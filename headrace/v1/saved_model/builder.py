"""TensorFlow 1's `tf.saved_model.builder`: SavedModels of the graphs of sessions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import UnimplementedError
from headrace.files import local
from headrace.interchange import files, meta_graph, saved_model
from headrace.ir.graph import Operation, Tensor
from headrace.v1.graph import Graph, GraphKeys, get_default_graph
from headrace.v1.saved_model.signature_constants import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from headrace.v1.saved_model.signature_def_utils import predict_signature_def
from headrace.v1.saved_model.tag_constants import SERVING
from headrace.v1.saver import Saver

if TYPE_CHECKING:
    from headrace.pb import SignatureDef


class SavedModelBuilder:
    """Writes graphs, their variables and the files that they read into a folder.

    The first graph is added by `add_meta_graph_and_variables`, which also saves the values of variables; further graphs
    share these. `save` writes the file that makes the folder a SavedModel.

    Args:
      export_dir: the path of the folder, which must be empty or not exist.

    Raises:
      AssertionError: the folder is not empty.

    Source: TensorFlow's `tf.saved_model.Builder`.

    Example:
      >>> import headrace.v1 as tf, os, tempfile
      >>> folder = tempfile.TemporaryDirectory()
      >>> path = os.path.join(folder.name, "model")
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, name="x")
      ...     y = x * tf.get_variable("w", initializer=3.0)
      ...     sess.run(tf.global_variables_initializer())
      ...     builder = tf.saved_model.Builder(path)
      ...     call = tf.saved_model.predict_signature_def({"x": x}, {"y": y})
      ...     builder.add_meta_graph_and_variables(sess, ["serve"], {"serving_default": call})
      ...     _ = builder.save()
      >>> sorted(os.listdir(path)), sorted(os.listdir(os.path.join(path, "variables")))
      (['saved_model.pb', 'variables'], ['variables.data-00000-of-00001', 'variables.index'])
      >>> folder.cleanup()
    """

    def __init__(self, export_dir: str) -> None:
        self._folder = os.fspath(export_dir)
        if os.path.exists(self._folder) and os.listdir(self._folder):
            raise AssertionError(
                f"Export directory {export_dir} already exists, and isn't empty. "
                "Please choose a different export directory, or delete all the contents of the specified directory."
            )
        local.made_folder(self._folder)
        self._model = saved_model.new()
        self._assets = saved_model.Assets(self._folder)
        self._has_variables = False

    def add_meta_graph_and_variables(
        self,
        sess: Any,
        tags: Iterable[str],
        signature_def_map: Mapping[str, SignatureDef] | None = None,
        assets_collection: Iterable[Tensor] | None = None,
        legacy_init_op: Operation | None = None,
        clear_devices: bool = False,
        main_op: Operation | None = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Adds the graph of a session, and saves the values of its variables.

        Args:
          sess: the session.
          tags: the tags of the graph.
          signature_def_map: calls of the graph, by name.
          assets_collection: constants with the paths of files that the graph reads. The files are copied.
          legacy_init_op: an older name of `main_op`.
          clear_devices: whether to leave out the devices that operations ask for.
          main_op: the operation that `load` runs after it restored the variables.
          strip_default_attrs: whether to leave out attributes that have their default value.
          saver: the saver of the variables. None: a new one for all variables and tables.

        Raises:
          AssertionError: the values of variables are saved already, or a signature is malformed.
          KeyError: a signature has a reserved name.
          TypeError: `main_op` is no operation, or an asset is no constant.
          ValueError: the graph has a `main_op` already.
        """
        if self._has_variables:
            raise AssertionError(
                "Graph state including variables and assets has already been saved. "
                "Please invoke `add_meta_graph()` instead."
            )
        init = main_op if main_op is not None else legacy_init_op
        saver = self._prepared(sess.graph, signature_def_map, assets_collection, init, saver)
        path = saved_model.variables_path(self._folder)
        local.made_folder(os.path.dirname(path))
        with sess.graph.as_default():
            saver.save(sess, path, write_meta_graph=False, write_state=False)
        self._add(saver, sess.graph, tags, signature_def_map, clear_devices, strip_default_attrs)
        self._has_variables = True

    def add_meta_graph(
        self,
        tags: Iterable[str],
        signature_def_map: Mapping[str, SignatureDef] | None = None,
        assets_collection: Iterable[Tensor] | None = None,
        legacy_init_op: Operation | None = None,
        clear_devices: bool = False,
        main_op: Operation | None = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Adds the default graph, which shares the saved values of variables.

        Args:
          tags, signature_def_map, assets_collection, legacy_init_op, clear_devices, main_op, strip_default_attrs,
            saver: see `add_meta_graph_and_variables`.

        Raises:
          AssertionError: no values of variables are saved yet.
          KeyError, TypeError, ValueError: see `add_meta_graph_and_variables`.
        """
        if not self._has_variables:
            raise AssertionError(
                "Graph state including variables and assets has not been saved yet. "
                "Please invoke `add_meta_graph_and_variables()` first."
            )
        graph = get_default_graph()
        init = main_op if main_op is not None else legacy_init_op
        saver = self._prepared(graph, signature_def_map, assets_collection, init, saver)
        self._add(saver, graph, tags, signature_def_map, clear_devices, strip_default_attrs)

    def save(
        self,
        as_text: bool = False,
        experimental_image_format: bool = False,
        experimental_image_writer_options: Any = None,
    ) -> bytes:
        """Writes the file with the graphs.

        Args:
          as_text: whether to write protobuf's text form.
          experimental_image_format: not supported, as in TensorFlow's published builds.
          experimental_image_writer_options: options of that format.

        Returns:
          The path of the file.
        """
        if experimental_image_format:
            raise UnimplementedError("experimental_image_format: split messages are not written; leave it out")
        return os.fsencode(saved_model.write(self._model, self._folder, as_text))

    def _prepared(
        self,
        graph: Graph,
        signatures: Mapping[str, SignatureDef] | None,
        assets: Iterable[Tensor] | None,
        main_op: Operation | None,
        saver: Saver | None,
    ) -> Saver:
        """Adds the collections of a SavedModel to a graph; returns its saver."""
        saved_model.check_signatures(signatures or {})
        for tensor in assets or ():
            graph.add_to_collection(
                saved_model.ASSETS, saved_model.asset_item(self._assets.add(_path_of(tensor)), tensor.name)
            )
        if main_op is not None:
            if not isinstance(main_op, Operation):
                raise TypeError(f"Expected {main_op} to be an Operation but got type {type(main_op)} instead.")
            for key in (saved_model.MAIN_OP, saved_model.LEGACY_INIT_OP):
                if graph.get_collection(key):
                    raise ValueError(f"Graph already contains one or more main ops under the collection {key}.")
            graph.add_to_collection(saved_model.MAIN_OP, main_op)
        with graph.as_default():
            return Saver(sharded=True, allow_empty=True) if saver is None else saver

    def _add(
        self,
        saver: Saver,
        graph: Graph,
        tags: Iterable[str],
        signatures: Mapping[str, SignatureDef] | None,
        clear_devices: bool,
        strip_default_attrs: bool,
    ) -> None:
        from headrace import pb

        meta = saver.export_meta_graph(clear_devices=clear_devices, strip_default_attrs=strip_default_attrs)
        meta.meta_info_def.tags.extend([tags] if isinstance(tags, str) else tags)
        for name, signature in (signatures or {}).items():
            meta.signature_def[name].CopyFrom(files.read_message(pb.SignatureDef, signature))
            saved_model.rename_tensors(meta.signature_def[name], lambda name: _name_in_file(graph, name))
        self._model.meta_graphs.append(meta)


def _name_in_file(graph: Graph, name: str) -> str:
    """Returns the name in the `GraphDef` of a tensor: that of "cond/Merge:0" is "cond:0"."""
    try:
        return meta_graph.namer(graph, graph.written_form)(graph.get_tensor_by_name(name))
    except (KeyError, ValueError):
        return name  # the file may have names of other programs


def _path_of(tensor: Any) -> bytes:
    """Returns the path in the constant of an asset."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"Asset path tensor {tensor} must be a Tensor.")
    if tensor.op.type != "Const" or tensor.dtype.name != "string" or tensor.shape != ():
        raise TypeError(f"Asset path tensor {tensor} must be a constant text, its operation is a {tensor.op.type}.")
    path: bytes = tensor.op.get_attr("value").item()
    if not os.path.basename(path):
        raise ValueError(f"Asset filepath tensor {tensor} is invalid: {path!r} is no path of a file")
    return path


def simple_save(
    session: Any,
    export_dir: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    legacy_init_op: Operation | None = None,
) -> None:
    """Saves the graph of a session, with one signature, "serving_default", and the tag "serve".

    Files in the collection GraphKeys.ASSET_FILEPATHS become assets. Devices of operations are left out.

    Args:
      session: the session.
      export_dir: the path of the folder, which must be empty or not exist.
      inputs: the tensors to feed, by the names of arguments.
      outputs: the tensors to fetch, by the names of results.
      legacy_init_op: the operation that `load` runs after it restored the variables.

    Raises:
      AssertionError: the folder is not empty.

    Source: TensorFlow's `tf.saved_model.simple_save`.
    """
    signatures = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: predict_signature_def(inputs, outputs)}
    builder = SavedModelBuilder(export_dir)
    builder.add_meta_graph_and_variables(
        session,
        [SERVING],
        signatures,
        assets_collection=session.graph.get_collection(GraphKeys.ASSET_FILEPATHS),
        main_op=legacy_init_op,
        clear_devices=True,
    )
    builder.save()


__all__ = ["SavedModelBuilder"]
