"""The saver: writes variables to checkpoints, reads them, and keeps the newest checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.api.scopes import Graph, current_graph
from headrace.api.variable import Variable
from headrace.errors import GraphError, InvalidArgumentError, NotFoundError
from headrace.files import commit, states
from headrace.interchange import savers
from headrace.ir.graph import Operation, Tensor
from headrace.train.saving import latest, nodes, saveables

if TYPE_CHECKING:
    from headrace.interchange.savers import MetaGraphDef, SaverDef

FOR_EVER_HOURS: Final = 10000.0  # TensorFlow's default: none is kept for ever


class Saver:
    """Writes variables to checkpoints and reads them back, by operations that it adds to their graph.

    A checkpoint appears whole or not at all, whenever the process is killed. The newest `max_to_keep` are kept; the
    state file "checkpoint" in their folder says which they are, and an older one is removed only after it says so.

    Args:
      var_list: what to save: a list of variables and tables, or a mapping from the names that they are to have in the
        checkpoint; None: all variables that the graph has now. A variable's name is that of its operation.
      graph: where the variables are; None: their graph, or the one entered.
      reshape: whether what is read is given the shape of the variable first, as long as the number of elements fits.
      sharded: whether each device writes what it has, beside the others.
      max_to_keep: how many checkpoints are kept; None or 0: all.
      keep_checkpoint_every_n_hours: one of so many hours is kept for ever.
      name: of the scope of its operations; "save" if None.
      restore_sequentially: whether variables get their values one after the other, which takes less memory.
      saver_def: a `SaverDef` message; the saver is the one that it describes, and nothing is added to the graph.
      defer_build: whether to add the operations only when `build` is called; variables made until then are saved, too.
      allow_empty: whether there may be nothing to save; then nothing is written.
      pad_step_number: whether steps are written with at least 8 digits, so that files sort by them.
      save_relative_paths: whether the state file has paths relative to its folder, so that this can be moved.
      filename: the prefix that the operations use if they are run without the saver; "model" if None.
      format: "native": safetensors with an index; "tensorflow": TensorFlow's files; "tensorflow-v1": the files that it
        wrote first. All are read by any saver.
      random_state: whether to save how far each random op has drawn, so that a run that is resumed draws what it would
        have drawn had it not been stopped.

    Attributes:
      saver_def: a `SaverDef`: the names of its operations; None if there is nothing to save.
      graph: where these are.

    Raises:
      TypeError: something in `var_list` cannot be saved, such as a queue.
      ValueError: there is nothing to save, or two things have one name.
      GraphError (a ValueError): there is no graph, or variables belong to another one, or to none.

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
        self._swept: set[str] = set()  # folders in which killed writers' files have been removed
        self._is_portable = format != "native" and not random_state  # whether TensorFlow could read the graph
        self._meta_graph: tuple[Any, bytes] = (None, b"")  # of which graph and settings; the bytes of its file
        self._is_built = False
        self.saver_def: SaverDef | None = None
        self.graph: Graph | None = graph
        if saver_def is not None:
            self._take(savers.read_saver_def(saver_def))
        elif not defer_build:
            self.build()

    # *** what it is ***

    def build(self) -> None:
        """Adds its operations to the graph, unless it has them; with `defer_build`.

        Raises: see `Saver`.
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
        """What is saved if nobody says what."""
        return graph.variables

    def _current_graph(self) -> Any:
        """The graph to use where nothing says which."""
        return current_graph()

    def _take(self, found: SaverDef) -> None:
        """Goes by the operations that `found` names."""
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
        """What a `SaverDef` calls `name`: a tensor or an operation."""
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
        """Its operations.

        Raises:
          RuntimeError: `build` was not called yet.
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
        """What is fetched to save, with `filename_tensor` fed: the prefix, when all is written."""
        return self._nodes().save

    @property
    def restore_op(self) -> Operation:
        """What is run to restore, with `filename_tensor` fed."""
        return self._nodes().restore

    @property
    def filename_tensor(self) -> Tensor:
        """The prefix of the checkpoint's files, which is fed."""
        return self._nodes().filename

    def as_saver_def(self) -> Any:
        """The `SaverDef` message: the names of its operations."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> Any:
        """A copy of the `SaverDef`; with a scope, with names without it, or None if they are not in it."""
        if self.saver_def is None:
            return None
        return savers.scoped(self.saver_def, remove=export_scope or "")

    @classmethod
    def from_proto(cls, saver_def: Any, import_scope: str | None = None, *, graph: Graph | None = None) -> Any:
        """The saver that a `SaverDef` message describes.

        Args:
          saver_def: headrace's message, or TensorFlow's, or its bytes.
          import_scope: put before its names.
          graph: where its operations are; None: the one entered.

        Raises:
          GraphError: it is malformed, or the graph has no such operations.

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
          sess: the session with the values.
          save_path: the prefix of its files: a path. Its folder is made if that alone is missing.
          global_step: a number (or a variable or tensor with it) that is put behind the prefix: "model-1000".
          latest_filename: the name of the folder's state file; "checkpoint" if None.
          meta_graph_suffix: the ending of the file with the graph.
          write_meta_graph: whether to write the graph beside it, from which it can be built again.
          write_state: whether to name it in the state file, and to remove what is too old.
          strip_default_attrs: see `export_meta_graph`.
          save_debug_info: not used.

        Returns:
          The prefix with the step; None if there is nothing to save.

        Raises:
          TypeError: `sess` is no session. ValueError: it is one of another graph, or the path cannot be one, or it is
            in a folder whose own folder does not exist.
          RuntimeError: `build` was not called yet.
          GraphError (a ValueError): the graph cannot be written; `write_meta_graph=False` does without.
          OpError: what the run fails with: `FailedPreconditionError` for a variable without a value,
            `ResourceExhaustedError` for a full disk, ...; then the state file says what it said before.

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
        """What is written beside checkpoints: made anew only if the graph has grown."""
        key = (self._in_graph().version, strip_default_attrs)
        if self._meta_graph[0] != key:
            message = self.export_meta_graph(strip_default_attrs=strip_default_attrs)
            self._meta_graph = (key, message.SerializeToString(deterministic=True))
        return self._meta_graph[1]

    # *** restoring ***

    def restore(self, sess: Any, save_path: str | os.PathLike[str] | None) -> None:
        """Gives the variables the values that a checkpoint has. They need not have been initialized.

        Args:
          sess: the session.
          save_path: what `save` or `latest_checkpoint` gave.

        Raises:
          TypeError, RuntimeError: see `save`.
          ValueError: there is no such checkpoint.
          NotFoundError: a variable is not in it. InvalidArgumentError: it is there with another dtype or shape.
          DataLossError: the checkpoint is damaged. Variables may have their new values or their old ones then.

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
            raise ValueError(f"The passed save_path is not a valid checkpoint: {prefix}")
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
        """Goes on where a run was stopped: restores the newest whole checkpoint of a folder.

        All of a checkpoint is compared with its checksums first. If it is damaged, that is warned of, and the one
        before it is taken. What is saved from now on takes its place among those that the folder has.

        Args:
          sess: the session.
          checkpoint_dir: the folder.
          latest_filename: the name of its state file; "checkpoint" if None.

        Returns:
          The prefix of what was restored; None if there is no whole checkpoint: then nothing was changed.

        Raises: see `restore`.

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

    # *** what was saved ***

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that are kept, oldest first: those that were saved and not yet removed."""
        return [prefix for prefix, _ in self._retained.last]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Takes these prefixes, oldest first, as what was saved so far. When they were saved is not known.

        Source: TensorFlow's `tf.train.Saver.set_last_checkpoints`.
        """
        if not isinstance(last_checkpoints, (list, tuple)):
            raise TypeError(f"last_checkpoints must be a list, got {last_checkpoints!r}")
        self._retained.set((prefix, 0.0) for prefix in last_checkpoints)

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: Iterable[tuple[str, float]]) -> None:
        """Takes these prefixes and times (seconds since 1970), oldest first, as what was saved so far.

        Source: TensorFlow's `tf.train.Saver.set_last_checkpoints_with_time`.
        """
        self._retained.set(last_checkpoints_with_time)

    def recover_last_checkpoints(self, checkpoint_paths: Iterable[str]) -> None:
        """Takes those of these prefixes, oldest first, that are there as what was saved so far.

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
        """The graph with its variables, and with what says how they are saved; also written to a file.

        Args: see `headrace.export_meta_graph`.

        Returns:
          A `MetaGraphDef` message. `hr.import_meta_graph` reads it into a graph, of which this saver is
          `Saver.from_proto(graph.saver_def, graph=graph)`.

        Raises:
          GraphError: something in it cannot be written.
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
