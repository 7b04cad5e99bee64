"""The saver: writes variables to checkpoints, reads them, and keeps the newest checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.api.data.iterators import SaveableIterator
from headrace.api.scopes import Graph, current_graph
from headrace.api.variable import Variable
from headrace.errors import GraphError, InvalidArgumentError, NotFoundError
from headrace.files import commit, states
from headrace.interchange import savers
from headrace.ir.graph import Operation, Tensor
from headrace.train.saving import latest, nodes, saveables

if TYPE_CHECKING:
    from headrace.interchange.savers import MetaGraphDef, SaverDef

FOR_EVER_HOURS: Final = 10000.0  # TensorFlow's default: in practice no checkpoint is kept forever


class Saver:
    """Saves variables to checkpoints and restores them, by operations in their graph.

    Writing is atomic: if the process is killed, a checkpoint is complete or absent. The newest `max_to_keep`
    checkpoints are kept. The state file "checkpoint" in their folder lists them. An older checkpoint is removed after
    the state file has been written.

    Args:
      var_list: a list of variables and tables, or a mapping from their names in the checkpoint to them. In a list, the
        name of a variable is that of its operation. None: all variables that the graph contains now.
      graph: the graph of the variables. None: found from `var_list`, else the current graph.
      reshape: whether restored tensors are reshaped to the shapes of their variables, if the numbers of elements agree.
      sharded: whether each device writes its own variables, in parallel.
      max_to_keep: largest number of checkpoints to keep. None or 0: no limit.
      keep_checkpoint_every_n_hours: period in hours; one checkpoint of each period is kept forever.
      name: name of the scope of the operations. None: "save".
      restore_sequentially: whether variables are restored one after the other, which needs less memory.
      saver_def: a `SaverDef` message that names operations of the graph. The saver uses them, and adds none.
      defer_build: whether to add the operations in `build`, so that variables created until then are saved, too.
      allow_empty: whether there may be nothing to save. Then `save` writes nothing.
      pad_step_number: whether step numbers in file names have at least 8 digits, so that the names sort by step.
      save_relative_paths: whether the state file contains paths relative to its folder, so that the folder can be
        moved.
      filename: default of the prefix, for runs of the operations without the saver. None: "model".
      format: "native": safetensors with an index; "tensorflow": TensorFlow's current format; "tensorflow-v1":
        TensorFlow's first format. Every saver restores all three.
      random_state: whether to save the states of random ops, so that a resumed run draws the same numbers as a run that
        was never stopped.

    Attributes:
      saver_def: a `SaverDef` message with the names of the operations. None: there is nothing to save, or `build` has
        not been called.
      graph: the graph of the operations.

    Raises:
      TypeError: an element of `var_list`, such as a queue, cannot be saved.
      ValueError: there is nothing to save; two objects have the same name; or an argument has a wrong value.
      GraphError (a ValueError): there is no graph, or a variable belongs to another graph or is eager.

    Source: TensorFlow's `tf.train.Saver`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> with hr.Graph() as g:
      ...     v = hr.Variable([1.0, 2.0], name="v")
      ...     double = v.assign(v * 2.0)
      ...     saver = hr.train.Saver()
      >>> with tempfile.TemporaryDirectory() as folder, hr.Session(graph=g) as session:
      ...     session.run(v.initializer)
      ...     path = saver.save(session, os.path.join(folder, "model"), global_step=3)
      ...     session.run(double)
      ...     saver.restore(session, hr.train.latest_checkpoint(folder))
      ...     os.path.basename(path), session.run(v)
      array([2., 4.], dtype=float32)
      ('model-3', array([1., 2.], dtype=float32))
    """

    def __init__(
        self,
        var_list: Any = None,
        *,
        graph: Graph | None = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = FOR_EVER_HOURS,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        pad_step_number: bool = False,
        save_relative_paths: bool = True,
        filename: str | None = None,
        format: str = "native",
        random_state: bool = False,
    ) -> None:
        if defer_build and var_list is not None:
            raise ValueError("with defer_build=True all variables there will be are saved, so give no var_list")
        if format not in nodes.FORMATS:
            raise ValueError(f"no checkpoint format {format!r}; there are {', '.join(map(repr, nodes.FORMATS))}")
        if max_to_keep is not None and max_to_keep < 0:
            raise ValueError(f"max_to_keep must not be negative, got {max_to_keep}")
        self._given = var_list
        self._settings: dict[str, Any] = {
            "format": format, "name": name, "filename": filename, "reshape": reshape, "sharded": sharded,
            "sequentially": restore_sequentially,
        }  # fmt: skip
        self._has_random_state = random_state
        self._allows_empty = allow_empty
        self._pads = pad_step_number
        self._is_relative = save_relative_paths
        self._hours = float(keep_checkpoint_every_n_hours)
        self._retained = latest.RetainedCheckpoints(max_to_keep, self._hours)
        self._swept: set[str] = set()  # folders in which temporary files of killed processes have been removed
        self._is_portable = format != "native" and not random_state  # whether TensorFlow could read the graph
        self._meta_graph: tuple[Any, bytes] = (None, b"")  # graph version and settings; bytes of the file
        self._is_built = False
        self.saver_def: SaverDef | None = None
        self.graph: Graph | None = graph
        if saver_def is not None:
            self._take(savers.read_saver_def(saver_def))
        elif not defer_build:
            self.build()

    # *** operations of the saver ***

    def build(self) -> None:
        """Adds the operations to the graph, unless they exist. Needed after `defer_build`.

        Raises:
          TypeError, ValueError, GraphError: see `Saver`.
        """
        if self._is_built:
            return
        graph = self.graph or saveables.graph_of(self._given) or self._current_graph()
        if not isinstance(graph, Graph):
            raise GraphError(
                "a Saver is for the variables of a graph: make it inside `with hr.Graph() as g:`, outside of branches "
                "and loops, or give graph=. Values outside of graphs are saved by hr.train.save(path, values), which "
                "also makes operations that save in branches and loops"
            )
        self.graph = graph
        with graph:
            found = saveables.saveables_of(self._all_of(graph) if self._given is None else self._given)
            if not found and not self._has_random_state:
                if not self._allows_empty:
                    raise ValueError("No variables to save: make them before the saver, or give allow_empty=True")
                self._is_built = True
                return
            if self._has_random_state:
                found.append(saveables.OfRandomOps())
            made = nodes.add_nodes(found, **self._settings)
        if any(isinstance(s, SaveableIterator) for s in found):
            self._is_portable = False  # TensorFlow has no operation for the position
        names = [f"{t.op.name}:{t.index}" for t in (made.filename, made.save)]
        self._take(
            savers.saver_def(
                filename_tensor_name=names[0],
                save_tensor_name=names[1],
                restore_op_name=made.restore.name,
                max_to_keep=self._retained.most,
                sharded=self._settings["sharded"],
                keep_checkpoint_every_n_hours=self._hours,
                version=1 if self._settings["format"] == "tensorflow-v1" else 2,
            )
        )

    def _all_of(self, graph: Graph) -> Any:
        """Returns the default of `var_list`."""
        return graph.variables

    def _current_graph(self) -> Any:
        """Returns the default graph."""
        return current_graph()

    def _take(self, found: SaverDef) -> None:
        """Uses the operations that a `SaverDef` names."""
        if self.graph is None:
            self.graph = self._current_graph()
        if not isinstance(self.graph, Graph):
            raise GraphError("a SaverDef names operations of a graph: give graph=, or enter it")
        self.saver_def = found
        self._hours = found.keep_checkpoint_every_n_hours or FOR_EVER_HOURS
        self._retained = latest.RetainedCheckpoints(found.max_to_keep, self._hours)
        self._is_built = True
        self._nodes()

    def _find(self, name: str, kind: type[Any]) -> Any:
        """Returns the tensor or operation `name` of the `SaverDef`."""
        try:
            made = self._in_graph().as_graph_element(name)
        except (KeyError, ValueError) as e:
            raise GraphError(f"the saver's operation '{name}' is not in the graph: {e}") from None
        if not isinstance(made, kind):
            raise GraphError(f"'{name}' of the saver should name {'a tensor' if kind is Tensor else 'an operation'}")
        return made

    def _in_graph(self) -> Graph:
        assert self.graph is not None
        return self.graph

    def _nodes(self) -> nodes.Nodes:
        """Returns the operations of the saver.

        Raises:
          RuntimeError: `build` has not been called.
          ValueError: there is nothing to save.
        """
        self._require_built()
        s = self.saver_def
        if s is None:
            raise ValueError("this saver has nothing to save (allow_empty=True), so it has no operations")
        return nodes.Nodes(
            self._find(s.filename_tensor_name, Tensor),
            self._find(s.save_tensor_name, Tensor),
            self._find(s.restore_op_name, Operation),
        )

    def _require_built(self) -> None:
        if not self._is_built:
            raise RuntimeError("`build()` should be called before save if defer_build==True")

    @property
    def save_op(self) -> Tensor:
        """Tensor to fetch in order to save, with `filename_tensor` fed: the prefix of the files."""
        return self._nodes().save

    @property
    def restore_op(self) -> Operation:
        """Operation to run in order to restore, with `filename_tensor` fed."""
        return self._nodes().restore

    @property
    def filename_tensor(self) -> Tensor:
        """Tensor to feed with the prefix of the checkpoint's files."""
        return self._nodes().filename

    def as_saver_def(self) -> Any:
        """Returns the `SaverDef` message with the names of the operations."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Returns a copy of the `SaverDef` message, or None if there is none.

        Args:
          export_scope: a name scope to remove from the names. If a name is not in this scope, the result is None.
        """
        if self.saver_def is None:
            return None
        return savers.scoped(self.saver_def, remove=export_scope or "")

    @classmethod
    def from_proto(cls, saver_def: Any, import_scope: str | None = None, *, graph: Graph | None = None) -> Any:
        """Returns the saver that a `SaverDef` message describes.

        Args:
          saver_def: a message of headrace or TensorFlow, or its bytes.
          import_scope: a name scope to put before the names.
          graph: the graph of the operations. None: the current graph.

        Raises:
          GraphError: the message is malformed, or the graph does not contain the operations.

        Source: TensorFlow's `tf.train.Saver.from_proto`.
        """
        found = savers.scoped(savers.read_saver_def(saver_def), add=import_scope or "")
        return cls(saver_def=found, graph=graph)

    # *** saving ***

    def save(
        self,
        sess: Any,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:
        """Writes a checkpoint.

        Args:
          sess: the session whose variables are saved.
          save_path: prefix of the files. Its folder is created if only the last component is missing.
          global_step: a number, or a variable or tensor of one, that is appended to the prefix: "model-1000".
          latest_filename: name of the folder's state file. None: "checkpoint".
          meta_graph_suffix: extension of the file with the graph.
          write_meta_graph: whether to write the graph to a file next to the checkpoint, for `hr.import_meta_graph`.
          write_state: whether to list the checkpoint in the state file, and to remove checkpoints that are too old.
          strip_default_attrs: see `export_meta_graph`.
          save_debug_info: accepted as in TensorFlow, without effect.

        Returns:
          The prefix with the step. None: there is nothing to save.

        Raises:
          TypeError: `sess` is not a session.
          ValueError: `sess` is a session of another graph; the path equals that of the state file; or the parent of the
            path's folder does not exist.
          RuntimeError: `build` has not been called.
          GraphError (a ValueError): the graph cannot be written. `write_meta_graph=False` avoids this.
          OpError: the run failed, for example with `FailedPreconditionError` for an uninitialized variable or
            `ResourceExhaustedError` for a full disk. The state file is then unchanged.

        Source: TensorFlow's `tf.train.Saver.save`.
        """
        self._require_built()
        prefix = os.fspath(save_path)
        folder = os.path.dirname(prefix)
        state_file = states.path_of(folder, latest_filename)
        if global_step is not None:
            prefix = self._with_step(sess, prefix, global_step)
        elif prefix == state_file:
            raise ValueError(
                f"'latest_filename' collides with 'save_path': {os.path.basename(prefix)!r} and {prefix!r}; "
                "give the checkpoint another name"
            )
        self._check(sess)
        if self.saver_def is None:
            return None
        graph = self._meta_graph_bytes(strip_default_attrs) if write_meta_graph else b""
        self._prepare(folder, prefix)
        s = self.saver_def
        told = sess.run(s.save_tensor_name, {s.filename_tensor_name: os.fsencode(prefix)})
        made = os.fsdecode(told)
        if write_meta_graph:
            with commit.replacing(latest.meta_graph_path(made, meta_graph_suffix)) as file:
                file.write(graph)
        if write_state:
            self._retained.add(made)
            paths, times = self._retained.to_list()
            latest.update_checkpoint_state(
                folder, made, paths, latest_filename, times, save_relative_paths=self._is_relative
            )
            self._retained.sweep(meta_graph_suffix)
        return made

    def _with_step(self, sess: Any, prefix: str, global_step: Any) -> str:
        if isinstance(global_step, (Tensor, Variable)):
            global_step = sess.run(global_step)
        try:
            step = int(global_step)
        except (TypeError, ValueError):
            raise TypeError(
                f"global_step must be a number, or a tensor or variable of one, got {global_step!r}"
            ) from None
        return f"{prefix}-{step:08d}" if self._pads else f"{prefix}-{step}"

    def _check(self, sess: Any) -> None:
        """Raises unless `sess` is a session of the saver's graph."""
        graph = getattr(sess, "graph", None)
        if graph is None or not callable(getattr(sess, "run", None)):
            raise TypeError(f"'sess' must be a Session; {sess!r} is a {type(sess).__name__}")
        if self.graph is not None and graph is not self.graph:
            raise ValueError(
                f"the session runs {graph!r}, and the saver is for the variables of {self.graph!r}, another graph"
            )

    def _prepare(self, folder: str, prefix: str) -> None:
        folder = folder or os.curdir
        commit.ready(prefix, self._settings["format"] != "tensorflow-v1")  # TensorFlow's V1 writer makes no folder
        if folder in self._swept:
            return
        commit.sweep(folder)
        self._swept.add(folder)

    def _meta_graph_bytes(self, strip_default_attrs: bool) -> bytes:
        """Returns the serialized MetaGraph. It is cached until the graph changes."""
        key = (self._in_graph().version, strip_default_attrs)
        if self._meta_graph[0] != key:
            message = self.export_meta_graph(strip_default_attrs=strip_default_attrs)
            self._meta_graph = (key, message.SerializeToString(deterministic=True))
        return self._meta_graph[1]

    # *** restoring ***

    def restore(self, sess: Any, save_path: str | os.PathLike[str] | None) -> None:
        """Restores the variables from a checkpoint. They need not be initialized.

        Args:
          sess: the session.
          save_path: prefix of the checkpoint, from `save` or `latest_checkpoint`.

        Raises:
          TypeError, RuntimeError: see `save`.
          ValueError: the checkpoint does not exist.
          NotFoundError: the checkpoint has no tensor for a variable.
          InvalidArgumentError: a tensor has another dtype or shape than its variable.
          DataLossError: the checkpoint is damaged. Some variables may have new values then.

        Source: TensorFlow's `tf.train.Saver.restore`.
        """
        if save_path is None:
            raise ValueError("Can't load save_path when it is None: there was no checkpoint to be found")
        self._check(sess)
        self._require_built()
        if self.saver_def is None:
            return
        s = self._nodes()
        prefix = os.fspath(save_path)
        if not latest.checkpoint_exists(prefix):
            raise ValueError(f"The passed save_path is not a valid checkpoint: {prefix}; {_newest_near(prefix)}")
        try:
            wrong = nodes.mismatches(s.restore, prefix)
            if wrong:
                raise InvalidArgumentError(
                    f"Cannot restore from {prefix!r}: {'; '.join(wrong)}. Nothing was restored. (A variable made with "
                    "validate_shape=False takes values of any shape.)"
                )
            sess.run(s.restore, {s.filename: os.fsencode(prefix)})
        except NotFoundError as e:
            e.add_note(_MISMATCH.format("a Variable name or other graph key that is missing from the checkpoint"))
            raise
        except InvalidArgumentError as e:
            e.add_note(_MISMATCH.format("a mismatch between the current graph and the graph from the checkpoint"))
            raise

    def restore_latest(
        self, sess: Any, checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
    ) -> str | None:
        """Restores the newest undamaged checkpoint of a folder.

        The contents are compared with their checksums first. A damaged checkpoint gives a warning, and the previous one
        is tried. The saver takes over the folder's list of checkpoints, so that later calls of `save` continue it.

        Args:
          sess: the session.
          checkpoint_dir: the folder.
          latest_filename: name of the folder's state file. None: "checkpoint".

        Returns:
          The prefix of the restored checkpoint. None: there is no undamaged checkpoint, and no variable has changed.

        Raises:
          NotFoundError, InvalidArgumentError, DataLossError: see `restore`.

        Example:
          >>> import headrace as hr, tempfile
          >>> with hr.Graph() as g:
          ...     v = hr.Variable(1.0)
          ...     saver = hr.train.Saver()
          >>> with tempfile.TemporaryDirectory() as folder, hr.Session(graph=g) as session:
          ...     if saver.restore_latest(session, folder) is None:
          ...         session.run(v.initializer)
          ...     session.run(v)
          np.float32(1.0)
        """
        found = latest.latest_checkpoint(checkpoint_dir, latest_filename, verify=True)
        if found is None:
            return None
        self.restore(sess, found)
        state = latest.get_checkpoint_state(checkpoint_dir, latest_filename)
        self.recover_last_checkpoints([] if state is None else list(state.all_model_checkpoint_paths))
        return found

    # *** list of checkpoints ***

    @property
    def last_checkpoints(self) -> list[str]:
        """Prefixes of the checkpoints that were saved and not removed, oldest first."""
        return [prefix for prefix, _ in self._retained.last]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Replaces the list of saved checkpoints. Their times count as unknown.

        Args:
          last_checkpoints: prefixes, oldest first.

        Raises:
          TypeError: `last_checkpoints` is not a list or tuple.

        Source: TensorFlow's `tf.train.Saver.set_last_checkpoints`.
        """
        if not isinstance(last_checkpoints, (list, tuple)):
            raise TypeError(f"last_checkpoints must be a list, got {last_checkpoints!r}")
        self._retained.set((prefix, 0.0) for prefix in last_checkpoints)

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: Iterable[tuple[str, float]]) -> None:
        """Replaces the list of saved checkpoints, with their times.

        Args:
          last_checkpoints_with_time: pairs of prefix and time of writing (seconds since 1970), oldest first.

        Source: TensorFlow's `tf.train.Saver.set_last_checkpoints_with_time`.
        """
        self._retained.set(last_checkpoints_with_time)

    def recover_last_checkpoints(self, checkpoint_paths: Iterable[str]) -> None:
        """Replaces the list of saved checkpoints by those of the given ones that exist.

        Args:
          checkpoint_paths: prefixes, oldest first.

        Source: TensorFlow's `tf.train.Saver.recover_last_checkpoints`.
        """
        there = [(p, latest.get_checkpoint_mtimes([p])) for p in checkpoint_paths]
        self._retained.set((p, times[0]) for p, times in there if times)

    # *** the graph ***

    def export_meta_graph(
        self,
        filename: str | os.PathLike[str] | None = None,
        *,
        clear_devices: bool = False,
        strip_default_attrs: bool = False,
        as_text: bool = False,
    ) -> MetaGraphDef:
        """Returns a MetaGraph with this saver, and can write it to a file.

        Args:
          filename, clear_devices, strip_default_attrs, as_text: see `headrace.export_meta_graph`.

        Returns:
          A `MetaGraphDef` message. `hr.import_meta_graph` imports it into a graph, of which this saver is
          `Saver.from_proto(graph.saver_def, graph=graph)`.

        Raises:
          ValueError: the saver has no operations.
          GraphError: the graph contains an object that cannot be written.
        """
        from headrace.interchange import files

        if self.saver_def is None:
            raise ValueError("this saver has no operations yet (defer_build), or nothing to save (allow_empty)")
        message = savers.with_saver(
            self._in_graph(), self.saver_def, self._is_portable, clear_devices, strip_default_attrs
        )
        if filename is not None:
            files.write_message(message, filename, as_text)
        return message


_MISMATCH: Final = (
    "Restoring from checkpoint failed. This is most likely due to {}. Please ensure that you have not altered the "
    "graph expected based on the checkpoint. hr.train.restore reads what fits, and says what does not."
)


def _newest_near(prefix: str) -> str:
    """The end of the error about a checkpoint that does not exist."""
    folder = prefix if os.path.isdir(prefix) else os.path.dirname(prefix) or "."
    newest = latest.latest_checkpoint(folder)
    if newest is None:
        return f"{folder} has no checkpoint"
    return f"the newest one in {folder} is {newest} (hr.train.latest_checkpoint)"
