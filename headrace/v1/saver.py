"""TensorFlow 1's `tf.train.Saver`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.errors import UnimplementedError
from headrace.interchange import savers
from headrace.ir.graph import Operation, Tensor
from headrace.train.saving import saver
from headrace.v1.exporting import export_meta_graph
from headrace.v1.graph import Graph, GraphKeys, get_default_graph

if TYPE_CHECKING:
    from headrace.pb import SaverDef

V1, V2 = 1, 2  # SaverDef.CheckpointFormatVersion


class Saver(saver.Saver):
    """Saves variables to checkpoints in TensorFlow's format, and restores them.

    Args:
      var_list: the variables and tables. None: GraphKeys.GLOBAL_VARIABLES and GraphKeys.SAVEABLE_OBJECTS.
      reshape, sharded, max_to_keep, keep_checkpoint_every_n_hours, name, restore_sequentially, saver_def, defer_build,
        allow_empty, pad_step_number, filename, random_state: see `headrace.train.Saver`.
      builder: not supported.
      write_version: `tf.train.SaverDef.V2`, or `tf.train.SaverDef.V1` for TensorFlow's first format.
      save_relative_paths: whether the state file contains paths relative to its folder.
      graph: the graph of the variables. None: the default graph.
      format: "tensorflow": the format of `write_version`; "native": see `headrace.train.Saver`.

    Source: TensorFlow's `tf.train.Saver`.

    Example:
      >>> import headrace.v1 as tf, os, tempfile
      >>> with tf.Graph().as_default(), tf.Session() as sess, tempfile.TemporaryDirectory() as folder:
      ...     v = tf.get_variable("v", initializer=[1.0, 2.0])
      ...     saver = tf.train.Saver()
      ...     sess.run(tf.global_variables_initializer())
      ...     path = saver.save(sess, os.path.join(folder, "model"), global_step=7)
      ...     sess.run(v.assign([0.0, 0.0]).op)
      ...     saver.restore(sess, path)
      ...     sorted(os.listdir(folder)), v.eval()
      (['checkpoint', 'model-7.data-00000-of-00001', 'model-7.index', 'model-7.meta'], array([1., 2.], dtype=float32))
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = saver.FOR_EVER_HOURS,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: Any = V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
        *,
        graph: Graph | None = None,
        format: str = "tensorflow",
        random_state: bool = False,
    ) -> None:
        if builder is not None:
            raise UnimplementedError("Saver(builder=...): a saver makes its operations itself; leave builder out")
        if int(write_version) not in (V1, V2):
            raise ValueError(f"write_version must be tf.train.SaverDef.V2 or V1, got {write_version!r}")
        if int(write_version) == V1 and format == "tensorflow":
            format = "tensorflow-v1"
        super().__init__(
            var_list,
            graph=graph,
            reshape=reshape,
            sharded=sharded,
            max_to_keep=max_to_keep,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            name=name,
            restore_sequentially=restore_sequentially,
            saver_def=saver_def,
            defer_build=defer_build,
            allow_empty=allow_empty,
            pad_step_number=pad_step_number,
            save_relative_paths=save_relative_paths,
            filename=filename,
            format=format,
            random_state=random_state,
        )

    _builds_itself = False  # whether the first use builds the saver

    @classmethod
    def on_demand(cls, graph: Graph) -> Saver:
        """Returns a saver for all variables of a graph, built on first use."""
        made = cls(graph=graph, defer_build=True)
        made._builds_itself = True
        return made

    def _current_graph(self) -> Any:
        return get_default_graph()

    def _all_of(self, graph: Any) -> Any:
        found = [*graph.get_collection(GraphKeys.GLOBAL_VARIABLES), *graph.get_collection(GraphKeys.SAVEABLE_OBJECTS)]
        return list({id(x): x for x in found}.values())

    @classmethod
    def of_names(cls, saver_def: Any, find: Callable[[str], Tensor | Operation]) -> Saver:
        """Returns the saver of a `SaverDef` message or its bytes.

        Args:
          saver_def: the message.
          find: function from a name to the tensor or operation.
        """
        found = savers.read_saver_def(saver_def)
        graph: Any = None
        for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
            x = find(getattr(found, field))
            graph = x.graph
            setattr(found, field, f"{x.op.name}:{x.index}" if isinstance(x, Tensor) else x.name)
        return cls(saver_def=found, graph=graph)

    def export_meta_graph(  # TensorFlow's arguments
        self,
        filename: str | os.PathLike[str] | None = None,
        collection_list: Iterable[Any] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> Any:
        """Returns a MetaGraph with this saver, and can write it to a file.

        Args:
          filename, collection_list, as_text, export_scope, clear_devices, clear_extraneous_savers,
            strip_default_attrs: see `tf.train.export_meta_graph`.
          save_debug_info: accepted as in TensorFlow, without effect.

        Source: TensorFlow's `tf.train.Saver.export_meta_graph`.
        """
        graph: Any = self._in_graph()
        return export_meta_graph(
            filename,
            graph_def=graph.as_graph_def(portable=self._is_portable),
            saver_def=self.saver_def,
            collection_list=collection_list,
            as_text=as_text,
            graph=graph,
            export_scope=export_scope,
            clear_devices=clear_devices,
            clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs,
        )

    def _require_built(self) -> None:
        if not self._is_built and self._builds_itself:
            self.build()
        super()._require_built()

    def __repr__(self) -> str:
        names: SaverDef | None = self.saver_def
        return f"<Saver {'without operations' if names is None else names.save_tensor_name!r}>"
