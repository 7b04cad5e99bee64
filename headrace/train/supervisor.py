"""A supervisor: initialization, checkpoints, summaries and the end of a training program.

    supervisor = hr.train.Supervisor(graph=g, logdir=folder)
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            session.run(train_op)

It does the work of a `MonitoredSession` without hooks: threads save and write at intervals of seconds, while the
program runs steps. It is built of the same parts (`Coordinator`, `SessionManager`, `Saver`, `FileWriter`). New programs
use a `MonitoredTrainingSession`, which saves at known steps and at the end, and recovers from lost sessions.

Source: TensorFlow's `tf.train.Supervisor`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from headrace.api import grouping
from headrace.ir.graph import Graph
from headrace.train.coordinator import GRACE_SECONDS, Coordinator, LooperThread
from headrace.train.event_writer import FileWriter
from headrace.train.global_step import global_step_of, root_of
from headrace.train.hooks.base import log
from headrace.train.hooks.saving import graph_def_of
from headrace.train.hooks.writing import CHECKPOINT, START, STOP, session_log
from headrace.train.input.running import queue_runners as runners_of
from headrace.train.recovery import Attempts, Recovery
from headrace.train.saving.saver import Saver
from headrace.train.scaffold import (
    Scaffold,
    global_variables,
    local_variables,
    merged_summaries,
    report_uninitialized,
)
from headrace.train.session_manager import MOST_WAIT, SessionManager

USE_DEFAULT: Final = 0

_VARIABLES: Final = ("Variable", "VariableV2", "VarHandleOp")


class Supervisor:
    """Prepares and supervises the session of a training program.

    The chief initializes or restores the variables, saves checkpoints and writes summaries. The other workers wait for
    it. Without a `logdir` nothing is saved or written. The graph is finalized.

    Args:
      graph: the graph. None: the current graph.
      ready_op: string vector with the names of uninitialized variables. None: the session is always ready.
      ready_for_local_init_op: a vector like `ready_op`, evaluated before `local_init_op` is run. By default it is that
        of the graph's collection, if there is one.
      is_chief: whether this process is the chief.
      init_op: operation that initializes the variables if there is no checkpoint.
      init_feed_dict: feeds of `init_op`.
      local_init_op: operation that is run in every session. It fills tables and initializes local variables.
      logdir: folder of the checkpoints and of the event file, or None.
      summary_op: the summaries of the graph, a string tensor. None: summaries are written by `summary_computed` only.
      saver: the saver. None: nothing is saved or restored.
      global_step: the global step, an integer scalar. None: checkpoints and summaries have no step.
      save_summaries_secs: period of the summaries in seconds. 0: none.
      save_model_secs: period of the checkpoints in seconds. 0: none.
      recovery_wait_secs: seconds between two checks whether the variables are initialized or a checkpoint exists.
      stop_grace_secs: longest wait in seconds for the threads to end.
      checkpoint_basename: file names of checkpoints are this text, "-" and the global step.
      session_manager: the session manager. None: a new one.
      summary_writer: the `FileWriter`. None: nothing is written. By default it writes to `logdir`.
      init_fn: function that is called with the session after `init_op`.
      local_init_run_options: `RunOptions` of `local_init_op`.

    Arguments that are not given are taken from the graph: the first element of the collection with their name, or
    operations for all its variables, tables and summaries.

    Raises:
      GraphError: there is no graph.
      ValueError: this process is not the chief, and a variable requests no device, so that it is not shared.

    Source: TensorFlow's `tf.train.Supervisor`.

    Example:
      >>> import headrace as hr, tempfile
      >>> with hr.Graph() as g:
      ...     count = hr.train.create_global_step().assign_add(1)
      >>> supervisor = hr.train.Supervisor(graph=g, logdir=tempfile.mkdtemp())
      >>> with supervisor.managed_session() as session:
      ...     while not supervisor.should_stop():
      ...         n = session.run(count)
      ...         if n == 3:
      ...             supervisor.request_stop()
      >>> int(n)
      3
    """

    USE_DEFAULT: ClassVar[int] = USE_DEFAULT
    scaffold_class: ClassVar[type[Scaffold]] = Scaffold
    manager_class: ClassVar[type[SessionManager]] = SessionManager
    writer_class: ClassVar[type[FileWriter]] = FileWriter

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: Any = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = GRACE_SECONDS,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], object] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        root = self._graph = root_of(graph)
        with root:
            self._ready_op = self._piece(
                ready_op,
                "ready_op",
                lambda: report_uninitialized([*global_variables(root), *local_variables(root)]),
            )
            self._ready_for_local_init_op = self._piece(ready_for_local_init_op, "ready_for_local_init_op", None)
            self._init_op = self._piece(
                init_op,
                "init_op",
                lambda: grouping.group(*(v.initializer for v in global_variables(root)), name="init"),
            )
            self._local_init_op = self._piece(local_init_op, "local_init_op", Scaffold.default_local_init_op)
            has_variables = bool(global_variables(root))
            self._saver = self._piece(saver, "saver", self._make_saver if has_variables else None, "savers")
            self._summary_op = self._piece(summary_op, "summary_op", lambda: merged_summaries(root))
            if hasattr(self._saver, "build"):
                self._saver.build()
        self._global_step = global_step_of(root) if _is_default(global_step) else global_step
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        self._is_chief = is_chief
        self._coord = Coordinator()
        self._grace = stop_grace_secs
        self._logdir = os.fspath(logdir) if logdir and is_chief else None
        self._save_path = os.path.join(self._logdir, checkpoint_basename) if self._logdir else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._session_manager = session_manager or self.manager_class(
            local_init_op=self._local_init_op,
            ready_op=self._ready_op,
            ready_for_local_init_op=self._ready_for_local_init_op,
            graph=root,
            recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )
        self._check_shared()
        root.finalize()
        self._summary_writer: Any = self._writer(summary_writer) if is_chief else None
        self._has_graph = False  # whether the event file has the graph

    def _piece(self, given: Any, name: str, make: Callable[[], Any] | None, key: str = "") -> Any:
        """Returns an argument, or by default an object of the graph, which `make` creates."""
        if not _is_default(given):
            return given
        graph: Any = self._graph
        found = graph.get_collection(key or name) if hasattr(graph, "get_collection") else []
        if found or make is None:
            return found[0] if found else None
        return self.scaffold_class.get_or_default(name, key or name, make)

    def _make_saver(self) -> Any:
        return Saver(random_state=True)

    def _writer(self, given: Any) -> Any:
        if not _is_default(given):
            return given
        return self.writer_class(self._logdir) if self._logdir else None

    def _check_shared(self) -> None:
        """Checks that the variables of a worker are on devices of the cluster."""
        if self._is_chief:
            return
        shared = {v.op for v in global_variables(self._graph)}
        for op in self._graph.operations:
            if op.type in _VARIABLES and not op.device and (op in shared or op.type != "VarHandleOp"):
                raise ValueError(
                    f"When using replicas, all Variables must have their device set: '{op.name}' has none; create the "
                    "variables in `with device(replica_device_setter(...))`"
                )

    # *** properties ***

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief."""
        return self._is_chief

    @property
    def session_manager(self) -> Any:
        """The session manager."""
        return self._session_manager

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the threads."""
        return self._coord

    @property
    def init_op(self) -> Any:
        """See `Supervisor`."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """See `Supervisor`."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """See `Supervisor`."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """See `Supervisor`."""
        return self._ready_for_local_init_op

    @property
    def summary_writer(self) -> Any:
        """The writer of the event file, or None. Only the chief has one."""
        return self._summary_writer

    @property
    def summary_op(self) -> Any:
        """See `Supervisor`."""
        return self._summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        """Period of the summaries in seconds; None if this process is not the chief."""
        return self._save_summaries_secs

    @property
    def global_step(self) -> Any:
        """The global step, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """The saver, or None."""
        return self._saver

    @property
    def save_model_secs(self) -> float | None:
        """Period of the checkpoints in seconds; None if this process is not the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """Prefix of the checkpoints without the step; None if nothing is saved."""
        return self._save_path

    # *** sessions ***

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """Returns a context with a session that is ready for training.

        At the end of the block the threads are stopped and the session is closed. The end of the data
        (`OutOfRangeError`) ends the block without an error.

        Args:
          master: target of the session. "" is this process.
          config: configuration of the session.
          start_standard_services: whether to start the threads that save and write, and the queue runners.
          close_summary_writer: whether to close the summary writer at the end.

        Raises:
          Exception: the error of the block or of a thread, whichever was first; or see `prepare_or_wait_for_session`.
        """
        session = None
        try:
            session = self.prepare_or_wait_for_session(master, config, start_standard_services=start_standard_services)
            yield session
        except Exception as e:
            self.request_stop(e)  # `stop` raises it
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                if session is not None:
                    with contextlib.suppress(Exception):  # of a session that is lost; its error has been raised
                        session.close()

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float | None = MOST_WAIT,
        start_standard_services: bool = True,
    ) -> Any:
        """Returns a session that is ready for training.

        The chief initializes or restores its variables. Other workers wait until the chief has done so.

        Args:
          master, config, start_standard_services: see `managed_session`.
          wait_for_checkpoint: whether the chief waits for a checkpoint in `logdir`.
          max_wait_secs: longest wait in seconds. None: two hours.

        Raises:
          Exception: see `SessionManager.prepare_session` and `SessionManager.wait_for_session`.
        """
        self._coord.clear_stop()
        if self._summary_writer is not None:
            self._summary_writer.reopen()
        if self._is_chief:
            session = self._session_manager.prepare_session(
                master,
                init_op=self._init_op,
                saver=self._saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
                init_fn=self._init_fn,
            )
            self._write_graph()
            if start_standard_services:
                self.start_standard_services(session)
        else:
            session = self._session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
        if start_standard_services:
            self.start_queue_runners(session)
        return session

    def _write_graph(self) -> None:
        if self._logdir is not None:
            from headrace.interchange.files import write_graph

            write_graph(graph_def_of(self._graph), self._logdir, "graph.pbtxt")
        if self._summary_writer is not None and not self._has_graph:
            self._summary_writer.add_graph(self._graph)
            self._has_graph = True

    # *** threads ***

    def start_standard_services(self, sess: Any) -> list[LooperThread]:
        """Starts the threads that save checkpoints and write summaries and steps per second.

        Args:
          sess: the session.

        Returns:
          The threads. There are none without a `logdir`.

        Raises:
          RuntimeError: this process is not the chief.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if self._logdir is None:
            log.warning("Standard services need a 'logdir' passed to the Supervisor")
            return []
        writer, step = self._summary_writer, self._step(sess)
        threads: list[LooperThread] = []

        def service(secs: float, work: Callable[..., object], *args: Any) -> None:
            threads.append(LooperThread(self._coord, secs, work, args))

        if writer is not None and step is not None:
            writer.add_session_log(session_log(START), step)
        if writer is not None and self._save_summaries_secs:
            if self._summary_op is not None:
                service(self._save_summaries_secs, self._write_summaries, sess)
            if step is not None:
                service(self._save_summaries_secs, self._write_rate, sess, [])
        if self._saver is not None and self._save_model_secs:
            service(self._save_model_secs, self._save, sess)
        for t in threads:
            t.start()
        return threads

    def _step(self, sess: Any) -> int | None:
        return None if self._global_step is None else int(sess.run(self._global_step))

    def _write_summaries(self, sess: Any) -> None:
        if self._global_step is None:
            self._summary_writer.add_summary(sess.run(self._summary_op))
        else:
            summary, step = sess.run([self._summary_op, self._global_step])
            self._summary_writer.add_summary(summary, int(step))

    def _write_rate(self, sess: Any, last: list[float]) -> None:
        """Writes the steps per second since the last call.

        Args:
          sess: the session.
          last: time and step of the last call.
        """
        step = self._step(sess) or 0
        before, last[:] = tuple(last), (time.monotonic(), step)
        if before:
            name = f"{self._global_step.op.name}/sec"
            rate = (step - before[1]) / max(last[0] - before[0], 1e-9)
            self._summary_writer.scalar(name, rate, step)
            log.info("%s: %g", name, rate)

    def _save(self, sess: Any) -> None:
        step = self._step(sess)
        log.info("Saving checkpoint to path %s", self._save_path)
        self._saver.save(sess, self._save_path, global_step=step)
        if self._summary_writer is not None and step is not None:
            self._summary_writer.add_session_log(session_log(CHECKPOINT, self._save_path or ""), step)

    def start_queue_runners(self, sess: Any, queue_runners: Iterable[Any] | None = None) -> list[threading.Thread]:
        """Starts the threads of queue runners.

        Args:
          sess: the session.
          queue_runners: the queue runners. None: those of the graph.

        Returns:
          The threads.
        """
        runners = runners_of(self._graph) if queue_runners is None else queue_runners
        return [t for qr in runners for t in qr.create_threads(sess, coord=self._coord, daemon=True, start=True)]

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Starts a thread that calls a function repeatedly until a stop is requested.

        Args:
          timer_interval_secs, target, args, kwargs: see `LooperThread`.

        Returns:
          The thread.
        """
        return LooperThread.loop(self._coord, timer_interval_secs, target, args, kwargs)

    # *** stopping ***

    def stop(
        self,
        threads: Iterable[threading.Thread] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stops the threads and waits for their end.

        Args:
          threads: threads to wait for, in addition to those of the coordinator.
          close_summary_writer: whether to close the summary writer.
          ignore_live_threads: whether threads that still run after `stop_grace_secs` are ignored.

        Raises:
          RuntimeError: some threads still run.
          Exception: the error of a thread, or that of `request_stop`.
        """
        self._coord.request_stop()
        try:
            self._coord.join(threads, self._grace, ignore_live_threads)
        finally:
            if close_summary_writer and self._summary_writer is not None:  # last, because the threads use it
                self._summary_writer.add_session_log(session_log(STOP))
                self._summary_writer.close()
                self._has_graph = False

    def request_stop(self, ex: Any = None) -> None:
        """Requests that all threads stop. See `Coordinator.request_stop`.

        Args:
          ex: the reason, or None.
        """
        self._coord.request_stop(ex)

    def should_stop(self) -> bool:
        """Whether a stop has been requested."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that requests a stop if its block raises. See `Coordinator.stop_on_exception`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Waits until a stop is requested."""
        self._coord.wait_for_stop()

    # *** summaries ***

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Writes a summary to the event file.

        Args:
          sess: the session.
          summary: the result of a summary operation.
          global_step: step of the summary. None: the global step of the graph.

        Raises:
          RuntimeError: there is no summary writer.
        """
        if self._summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        self._summary_writer.add_summary(summary, self._step(sess) if global_step is None else global_step)


def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., object],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
    *,
    recovery: Recovery | None = None,
) -> None:
    """Calls a function with a session of a supervisor until a stop is requested.

    After an `AbortedError` or `UnavailableError` the calls continue in a new session.

    Args:
      supervisor: the supervisor.
      train_step_fn: function to call, as `train_step_fn(session, *args, **kwargs)`.
      args, kwargs: further arguments of the function.
      master: target of the sessions. "" is this process.
      recovery: policy of recovery. None: `Recovery()`.

    Raises:
      Exception: another error of the function or of a thread; or the error after the last attempt.

    Source: TensorFlow's `tf.train.basic_train_loop`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     count = hr.train.create_global_step().assign_add(1)
      >>> supervisor = hr.train.Supervisor(graph=g)
      >>> def step(session, last):
      ...     print(session.run(count))
      ...     if session.run(supervisor.global_step) == last:
      ...         supervisor.request_stop()
      >>> hr.train.basic_train_loop(supervisor, step, [2])
      1
      2
    """
    policy = recovery or Recovery()
    attempts = Attempts(policy, threading.Event().wait)
    while True:
        try:
            with supervisor.managed_session(master) as session:
                while not supervisor.should_stop():
                    train_step_fn(session, *(args or ()), **(kwargs or {}))
                    attempts.succeeded()
            return
        except policy.errors as e:
            attempts.failed(e, "a step")


def _is_default(x: Any) -> bool:
    return type(x) is int and x == USE_DEFAULT


__all__ = ["Supervisor", "basic_train_loop"]
