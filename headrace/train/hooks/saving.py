"""Hooks that write checkpoints and summaries at intervals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import nest
from headrace.api import scopes
from headrace.errors import GraphError
from headrace.train.global_step import root_of
from headrace.train.hooks.base import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    before_updates,
    blaming,
    log,
    name_of,
    needed_global_step,
)
from headrace.train.hooks.writing import CHECKPOINT, START, session_log, writer_of

if TYPE_CHECKING:
    from headrace.train.coordinator import Coordinator


class CheckpointSaverListener:
    """Base class of listeners to a `CheckpointSaverHook`. Its methods do nothing.

    Source: TensorFlow's `tf.train.CheckpointSaverListener`.

    Example:
      >>> import headrace as hr, tempfile
      >>> class Report(hr.train.CheckpointSaverListener):
      ...     def after_save(self, session, global_step_value):
      ...         print("saved at step", global_step_value)
      >>> with hr.Graph() as g:
      ...     train = hr.train.get_or_create_global_step().assign_add(1)
      ...     saver = hr.train.Saver()
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     hook = hr.train.CheckpointSaverHook(folder, save_steps=10, saver=saver, listeners=[Report()])
      ...     with hr.train.MonitoredSession(graph=g, hooks=[hook]) as session:
      ...         _ = session.run(train)
      saved at step 0
      saved at step 1
    """

    def begin(self) -> None:
        """Called before the session is created. Operations can be added to the graph."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before a checkpoint is written.

        Args:
          session: the session.
          global_step_value: the global step.
        """

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Called after a checkpoint has been written. Returns True to stop the training.

        Args:
          session: the session.
          global_step_value: the global step.
        """
        return None

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end of the training, after the last checkpoint.

        Args:
          session: the session.
          global_step_value: the global step.
        """


class CheckpointSaverHook(SessionRunHook):
    """Writes checkpoints at the start of a session, periodically, and at the end.

    Args:
      checkpoint_dir: the folder.
      save_secs: period in seconds.
      save_steps: period in steps. One of the two is given.
      saver: the `Saver`.
      checkpoint_basename: file names are this text, "-" and the global step.
      scaffold: the `Scaffold` with the saver, in place of `saver`. If neither is given, the saver is the only element
        of the graph's collection SAVERS.
      listeners: listeners that are called before and after each checkpoint.
      save_graph_def: whether to write the graph as well: to "graph.pbtxt", to the event file, and as a MetaGraph with
        each checkpoint.

    Raises:
      ValueError: not exactly one of `save_secs` and `save_steps` is given; or both saver and scaffold are given.
      RuntimeError: the graph has no global step (in `begin`), or no saver is found (later).

    Source: TensorFlow's `tf.train.CheckpointSaverHook`.

    Example:
      >>> import headrace as hr
      >>> hook = hr.train.CheckpointSaverHook("checkpoints", save_steps=10)
      >>> isinstance(hook, hr.train.SessionRunHook)
      True
    """

    def __init__(
        self,
        checkpoint_dir: Any,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._folder = os.fspath(checkpoint_dir)
        self._path = os.path.join(self._folder, checkpoint_basename)
        self._saver = saver
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._listeners = list(listeners or ())
        self._writes_graph = save_graph_def

    def add_listeners(self, listeners: Iterable[CheckpointSaverListener]) -> None:
        """Adds listeners, except those that the hook has already.

        Args:
          listeners: the listeners.
        """
        self._listeners.extend(x for x in listeners if x not in self._listeners)

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._graph = root_of()
        self._step = needed_global_step(self)
        self._writer = writer_of(self._folder)
        for listener in self._listeners:
            with blaming(listener, "begin"):
                listener.begin()

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """See `SessionRunHook.after_create_session`."""
        step = int(session.run(self._step))
        if self._writes_graph:
            from headrace.interchange.files import write_graph

            write_graph(graph_def_of(self._graph), self._folder, "graph.pbtxt")
            self._writer.add_graph(self._graph)
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        return SessionRunArgs(before_updates(self._step))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        # the fetched value may be older than the increment of the step, so a due step is read again
        if not self._timer.should_trigger_for_step(int(run_values.results) + 1):
            return
        step = int(run_context.session.run(self._step))
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        step = int(session.run(self._step))
        if step != self._timer.last_triggered_step():
            self._save(session, step)
            self._timer.update_last_triggered_step(step)
        for listener in self._listeners:
            with blaming(listener, "end"):
                listener.end(session, step)
        self._writer.flush()

    def _save(self, session: Any, step: int) -> bool:
        """Writes a checkpoint. Returns whether a listener requests a stop."""
        for listener in self._listeners:
            with blaming(listener, "before_save"):
                listener.before_save(session, step)
        log.info("Saving checkpoints for %d into %s.", step, self._path)
        self._find_saver().save(session, self._path, global_step=step, write_meta_graph=self._writes_graph)
        self._writer.add_session_log(session_log(CHECKPOINT, self._path), step)
        self._writer.flush()  # so that a run resumed from this checkpoint has all earlier events
        stops = False
        for listener in self._listeners:
            with blaming(listener, "after_save"):
                if listener.after_save(session, step):
                    log.info("%s asked to stop the training", name_of(listener))
                    stops = True
        return stops

    def _find_saver(self) -> Any:
        if self._saver is None and self._scaffold is not None:
            return self._scaffold.saver
        if self._saver is None:
            savers = self._graph.get_collection("savers") if hasattr(self._graph, "get_collection") else []
            if len(savers) != 1:
                raise RuntimeError(
                    f"CheckpointSaverHook was given no saver, and the graph's collection 'savers' has {len(savers)}: "
                    "give it saver= or scaffold="
                )
            self._saver = savers[0]
        return self._saver


def graph_def_of(graph: scopes.Graph) -> Any:
    """Returns the graph as a GraphDef.

    TensorFlow can read it, unless the graph contains operations that only headrace has, such as those that save in its
    own format.
    """
    try:
        return graph.as_graph_def(add_shapes=True)
    except GraphError as e:
        log.info("graph.pbtxt is for headrace alone: %s", e)
        return graph.as_graph_def(add_shapes=True, portable=False)


class SummarySaverHook(SessionRunHook):
    """Writes summaries at the first step and periodically.

    Args:
      save_steps: period in steps.
      save_secs: period in seconds. One of the two is given.
      output_dir: folder of the event file.
      summary_writer: a `FileWriter`, in place of `output_dir`.
      scaffold: the `Scaffold` whose `summary_op` is run.
      summary_op: a tensor of serialized summaries, or a list of them, in place of `scaffold`.

    Raises:
      ValueError: not exactly one of `save_steps` and `save_secs`, or of `scaffold` and `summary_op`, is given.
      RuntimeError: in `begin`: the graph has no global step.

    Source: TensorFlow's `tf.train.SummarySaverHook`.

    Example:
      >>> import headrace as hr
      >>> hook = hr.train.SummarySaverHook(save_steps=10, output_dir="logs", summary_op=[])
      >>> isinstance(hook, hr.train.SessionRunHook)
      True
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: Any = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._op = summary_op
        self._scaffold = scaffold
        self._writer = summary_writer
        self._folder = output_dir
        self._timer = SecondOrStepTimer(save_secs, save_steps)

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._step = needed_global_step(self)
        self._next: int | None = None
        if self._writer is None and self._folder is not None:
            self._writer = writer_of(self._folder)

    def session_lost(self, error: BaseException) -> None:
        """See `SessionRunHook.session_lost`. The new session continues from an older step."""
        self._next = None
        self._timer.reset()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        self._is_due = self._next is None or self._timer.should_trigger_for_step(self._next)
        wanted = {"global_step": before_updates(self._step)}
        if self._is_due and self._writer is not None:
            ops = self._op if self._scaffold is None else self._scaffold.summary_op
            if ops is not None:
                wanted["summary"] = nest.as_list(ops)
        return SessionRunArgs(wanted)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        if self._writer is None:
            return
        step = int(run_values.results["global_step"]) + 1
        if self._is_due:
            step = int(run_context.session.run(self._step))
            if self._next is None:
                self._writer.add_session_log(session_log(START), step)
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._writer.add_summary(summary, step)
        self._next = step + 1

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        if self._writer is not None:
            self._writer.flush()
