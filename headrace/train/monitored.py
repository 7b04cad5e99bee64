"""Monitored sessions: training with hooks, checkpoints and recovery after failures.

    with hr.train.MonitoredTrainingSession(checkpoint_dir=folder, graph=g, hooks=[...]) as session:
        while not session.should_stop():
            session.run(train_op)

Its creation calls the hooks' `begin`, completes and finalizes the graph (`Scaffold.finalize`), creates a session,
restores the variables from the newest checkpoint or initializes them, starts the queue runners, and calls
`after_create_session`. `run` runs a step with the additional fetches and feeds of the hooks. If the step fails with
`AbortedError` or `UnavailableError`, the session is closed, a new one is created like the first, and the step runs
again there (`recovery`). The exit from the block calls `end`, stops the threads and closes the session. The end of the
data (`OutOfRangeError`, `StopIteration`) is no error.

`hooked` has the state of one session and its threads; this module has the state that outlives a session.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, TypeVar

from headrace.errors import OutOfRangeError
from headrace.ir.graph import Graph
from headrace.metadata import RunOptions
from headrace.train.coordinator import Coordinator
from headrace.train.global_step import root_of
from headrace.train.hooked import HookedSession
from headrace.train.hooks import CheckpointSaverHook, StepCounterHook, StopOnSignalHook, SummarySaverHook
from headrace.train.hooks.base import blaming, log
from headrace.train.input.running import queue_runners
from headrace.train.recovery import Attempts, Recovery, is_lost
from headrace.train.scaffold import ChiefSessionCreator, Scaffold, SessionCreator, WorkerSessionCreator

T = TypeVar("T")

END: Final = (OutOfRangeError, StopIteration)  # the data has ended, or a step function has requested a stop
GRACE_SECONDS: Final = 120.0


class StepContext:
    """Argument of the function that is passed to `run_step_fn`.

    Args:
      session: the session.
      run_with_hooks: function that runs a step with the hooks.

    Attributes:
      session: the session. A run of it calls no hooks.
    """

    def __init__(self, session: Any, run_with_hooks: Callable[..., Any]) -> None:
        self.session = session
        self._run = run_with_hooks

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a step with the hooks, as `MonitoredSession.run`.

        Args:
          *args, **kwargs: see `MonitoredSession.run`.
        """
        return self._run(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the step function and the training.

        Raises:
          StopIteration: always. It leaves the `with` block of the session, which ends without an error.
        """
        raise StopIteration("step_fn has requested the iterations to stop.")


class _Monitored:
    """Base class of `MonitoredSession` and `SingularMonitoredSession`."""

    creator_class: ClassVar[type[ChiefSessionCreator]] = ChiefSessionCreator
    StepContext = StepContext

    def __init__(
        self,
        session_creator: SessionCreator | None,
        hooks: Iterable[Any] | None,
        stop_grace_period_secs: float,
        graph: Graph | None,
        recovery: Recovery | None,
    ) -> None:
        self._root = root_of(graph)
        self._was_finalized = getattr(self._root, "finalized", False)
        self._hooks = list(hooks or ())
        self._grace = stop_grace_period_secs
        self._recovery = recovery
        self._closing = threading.Event()  # interrupts the wait before another attempt
        self._attempts = Attempts(recovery or Recovery(retries=0), self._closing.wait)
        self._live: HookedSession | None = None
        try:
            with self._root:
                for hook in self._hooks:
                    with blaming(hook, "begin"):
                        hook.begin()
                self._creator = session_creator if session_creator is not None else self.creator_class()
            self._live = self._session()
        except BaseException:
            self._release()
            raise

    # *** running ***

    @property
    def graph(self) -> Any:
        """Graph of the session; None after the session is closed."""
        return None if self._closing.is_set() else self._root

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        check_numerics: Any = False,
        watch: Any = None,
    ) -> Any:
        """Runs a step, with the additional fetches and feeds of the hooks.

        Args:
          fetches, feed_dict, options, run_metadata, check_numerics, watch: see `Session.run`.

        Raises:
          RuntimeError: the session is closed, or a hook has requested a stop.
          Exception: the error of the step, a hook or a thread. The error of a hook has a note that names the hook.
        """
        if check_numerics:
            options = dataclasses.replace(options or RunOptions(), check_numerics=check_numerics)
        if watch is not None:
            options = dataclasses.replace(options or RunOptions(), watch=watch)
        return self._again(lambda live: live.run(fetches, feed_dict, options, run_metadata), "a step")

    def run_step_fn(self, step_fn: Callable[..., T]) -> T:
        """Calls a function that may do several runs, with and without hooks.

        Args:
          step_fn: function with one parameter, `step_context`, which receives a `StepContext`. It is called again after
            an error from which the session recovers.

        Returns:
          The result of the function.

        Raises:
          ValueError: the function has other parameters.
          StopIteration: the function has called `request_stop`.

        Example:
          >>> import headrace as hr
          >>> with hr.Graph() as g:
          ...     x = hr.placeholder(hr.float32, ())
          ...     y = x * 2.0
          >>> def step(step_context):
          ...     first = step_context.session.run(y, {x: 1.0})
          ...     return step_context.run_with_hooks(y, {x: first})
          >>> with hr.train.MonitoredSession(graph=g) as session:
          ...     session.run_step_fn(step)
          np.float32(4.0)
        """
        names = tuple(inspect.signature(step_fn).parameters)
        if names not in (("step_context",), ("self", "step_context")):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's "
                f"an instance method. Got {names} instead."
            )
        return self._again(lambda live: step_fn(StepContext(live.session, live.run)), "a step function")

    def _again(self, do: Callable[[HookedSession], T], what: str) -> T:
        """Calls `do` with the session, and again with a new session after a recoverable error."""
        while True:
            if self._closing.is_set():
                raise RuntimeError("this monitored session is closed; make another one")
            live = self._live if self._live is not None else self._session()
            self._live = live
            try:
                value = do(live)
            except Exception as e:
                if not self._is_recoverable(e, live):
                    raise
                self._give_up(live, e, what)
            else:
                self._attempts.succeeded()
                return value

    def should_stop(self) -> bool:
        """Whether the training should stop.

        This is so if a hook has requested a stop, the threads have stopped, or the session is closed.

        Raises:
          Exception: without recovery, the error of a thread.
        """
        if self._closing.is_set():
            return True
        if self._live is None:
            return False
        try:
            return self._live.should_stop()
        except Exception as e:
            if self._recovery is None:
                raise
            if not self._is_recoverable(e, self._live):
                return True  # close() will raise it
            self._give_up(self._live, e, "a thread")
            self._live = self._session()
            return False

    # *** recovering ***

    def _is_recoverable(self, error: Exception, live: HookedSession) -> bool:
        if self._recovery is None or self._closing.is_set():
            return False
        return isinstance(error, self._recovery.errors) or is_lost(live.session, error)

    def _give_up(self, live: HookedSession, error: Exception, what: str) -> None:
        """Closes a session that failed, and waits until a new one may be created."""
        self._live = None
        self._close_quietly(live)
        self._attempts.failed(error, what)
        for hook in self._hooks:
            if hasattr(hook, "session_lost"):  # TensorFlow's hooks have none
                with blaming(hook, "session_lost"):
                    hook.session_lost(error)

    def _close_quietly(self, live: HookedSession) -> None:
        errors = self._recovery.errors if self._recovery is not None else ()
        try:
            live.close()
        except errors as e:
            log.error("closing a session that failed: %s: %s", type(e).__name__, e)

    def _session(self) -> HookedSession:
        """Creates a session, with as many attempts as `recovery` allows."""
        while True:
            try:
                return self._new_session()
            except Exception as e:
                if self._recovery is None or not isinstance(e, self._recovery.errors):
                    raise
                self._attempts.failed(e, "making a session")

    def _new_session(self) -> HookedSession:
        with self._root:
            session = self._creator.create_session()
        coord = Coordinator(clean_stop_exception_types=[])
        live = HookedSession(session, self._hooks, coord, self._grace)
        try:
            for runner in queue_runners(self._root):
                runner.create_threads(session, coord=coord, daemon=True, start=True)
            for hook in self._hooks:
                with blaming(hook, "after_create_session"):
                    hook.after_create_session(session, coord)
        except BaseException as e:
            try:
                live.close()
            except Exception as other:  # the first error is the one to raise
                e.add_note(f"(and closing the session failed with {type(other).__name__}: {other})")
            raise
        return live

    # *** ending ***

    def close(self) -> None:
        """Calls `end` of the hooks, stops the threads and closes the session.

        Raises:
          RuntimeError: the session is closed already.
          Exception: the error of a hook or a thread.
        """
        self._close(is_well=True)

    def _close(self, is_well: bool) -> None:
        if self._closing.is_set():
            raise RuntimeError("Session is already closed.")
        live = self._live
        try:
            if is_well and live is not None:
                self._end(live.session)
        finally:
            self._closing.set()
            self._live = None
            try:
                if live is not None and self._recovery is not None:
                    self._close_quietly(live)
                elif live is not None:
                    live.close()
            finally:
                self._release()

    def _end(self, session: Any) -> None:
        """Calls `end` of all hooks, also after one fails, because a later one may save."""
        error: BaseException | None = None
        for hook in self._hooks:
            try:
                with blaming(hook, "end"):
                    hook.end(session)
            except Exception as e:
                if error is None:
                    error = e
                else:
                    error.add_note(f"(then {type(e).__name__} {' '.join([str(e), *e.__notes__])})")
        if error is not None:
            raise error

    def _release(self) -> None:
        """Calls `release` of the hooks, and restores whether the graph is finalized."""
        self._closing.set()
        if hasattr(self._root, "finalized"):
            self._root.finalized = self._was_finalized
        with contextlib.ExitStack() as stack:  # calls all of them, even if one raises
            for hook in reversed(self._hooks):
                if hasattr(hook, "release"):
                    stack.callback(hook.release)

    def __enter__(self: Any) -> Any:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        is_end = isinstance(error, END)
        self._close(is_well=error is None or is_end)
        return is_end

    @property
    def _raw(self) -> Any:
        return None if self._live is None else self._live.session


class MonitoredSession(_Monitored):
    """Session for training with hooks, which recovers from `AbortedError` and `UnavailableError`.

    Args:
      session_creator: creator of the sessions. None: a `ChiefSessionCreator`.
      hooks: the hooks, in the order of their calls.
      stop_grace_period_secs: longest wait in seconds for the threads to end.
      graph: the graph. None: the current graph.
      recovery: policy of recovery. None: `Recovery()`.

    Raises:
      GraphError: there is no graph.
      Exception: the error of creating the session, or of a hook.

    Source: TensorFlow's `tf.train.MonitoredSession`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     step = hr.train.create_global_step()
      ...     count = step.assign_add(1)
      >>> with hr.train.MonitoredSession(graph=g, hooks=[hr.train.StopAtStepHook(last_step=3)]) as session:
      ...     while not session.should_stop():
      ...         print(session.run(count))
      1
      2
      3
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = GRACE_SECONDS,
        *,
        graph: Graph | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        super().__init__(session_creator, hooks, stop_grace_period_secs, graph, recovery or Recovery())


class SingularMonitoredSession(_Monitored):
    """Session for training with hooks, without recovery, that gives access to its session.

    Args:
      hooks: the hooks, in the order of their calls.
      scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path: see `ChiefSessionCreator`.
      stop_grace_period_secs: longest wait in seconds for the threads to end.
      graph: the graph. None: the current graph.

    Source: TensorFlow's `tf.train.SingularMonitoredSession`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.constant(7)
      ...     with hr.train.SingularMonitoredSession() as sess:
      ...         value = sess.run(x)
      >>> value
      np.int32(7)
    """

    def __init__(
        self,
        hooks: Iterable[Any] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        stop_grace_period_secs: float = GRACE_SECONDS,
        checkpoint_filename_with_path: Any = None,
        *,
        graph: Graph | None = None,
    ) -> None:
        creator = self.creator_class(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks, stop_grace_period_secs, graph, None)

    def raw_session(self) -> Any:
        """Returns the underlying session, or None after it is closed.

        A run of the underlying session calls no hooks. Savers need it.
        """
        return self._raw


class _Default:
    """Default of a parameter for which None has a meaning."""

    def __repr__(self) -> str:
        return "USE_DEFAULT"


USE_DEFAULT: Final = _Default()


def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: Any = None,
    scaffold: Scaffold | None = None,
    hooks: Iterable[Any] | None = None,
    chief_only_hooks: Iterable[Any] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = GRACE_SECONDS,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: Any = None,
    save_graph_def: bool = True,
    *,
    graph: Graph | None = None,
    recovery: Recovery | None = None,
    stop_on_signal: bool = False,
) -> MonitoredSession:
    """Returns a `MonitoredSession` that restores and saves checkpoints and writes summaries.

    It continues from the newest checkpoint, and logs the number of steps per second.

    Args:
      master: target of the sessions, such as the address of this worker's server. "" is this process.
      is_chief: whether this session initializes, restores and saves the variables. Otherwise it waits until another
        session, that of the chief, has initialized them; also again after a lost session.
      checkpoint_dir: folder of the checkpoints. None: nothing is saved.
      scaffold: the scaffold. None: a new one.
      hooks: the hooks.
      chief_only_hooks: further hooks if `is_chief`; they are called first.
      save_checkpoint_secs, save_checkpoint_steps: period of the checkpoints in seconds or steps. None: never. If
        neither is given: 600 seconds.
      save_summaries_steps, save_summaries_secs: period of the summaries. None: never. If neither is given: 100 steps.
      config: configuration of the session.
      stop_grace_period_secs: longest wait in seconds for the threads to end.
      log_step_count_steps: period in steps of logging the steps per second. None or 0: never.
      max_wait_secs: longest wait in seconds for the chief, if not `is_chief`. None: two hours.
      summary_dir: folder of the event file. None: `checkpoint_dir`.
      save_graph_def: whether to save the graph as well.
      graph: the graph. None: the current graph.
      recovery: policy of recovery. None: `Recovery()`. A worker that waits for the chief checks every
        `longest_wait_secs` whether the variables are initialized.
      stop_on_signal: whether Ctrl-C and SIGTERM end the training normally, with a last checkpoint (`StopOnSignalHook`).

    Raises:
      ValueError: both seconds and steps are given for checkpoints or for summaries.
      RuntimeError: checkpoints or summaries are to be written, and the graph has no global step.
      Exception: the error of creating the session.

    Source: TensorFlow's `tf.train.MonitoredTrainingSession`.

    Example:
      >>> import headrace as hr, tempfile
      >>> with hr.Graph() as g:
      ...     count = hr.train.create_global_step().assign_add(1)
      >>> def train(folder, last_step):
      ...     stop = hr.train.StopAtStepHook(last_step=last_step)
      ...     with hr.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=[stop], graph=g) as session:
      ...         while not session.should_stop():
      ...             print(session.run(count))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     train(folder, 2)
      ...     train(folder, 3)
      1
      2
      3
    """
    session: MonitoredSession = training_session_of(
        MonitoredSession, ChiefSessionCreator, WorkerSessionCreator, graph, recovery, stop_on_signal,
        master, is_chief, checkpoint_dir, scaffold, hooks, chief_only_hooks, save_checkpoint_secs, save_summaries_steps,
        save_summaries_secs, config, stop_grace_period_secs, log_step_count_steps, max_wait_secs, save_checkpoint_steps,
        summary_dir, save_graph_def,
    )  # fmt: skip
    return session


def training_session_of(
    session_class: Any,
    chief_class: type[ChiefSessionCreator],
    worker_class: type[WorkerSessionCreator],
    graph: Graph | None,
    recovery: Recovery | None,
    stop_on_signal: bool,
    master: str,
    is_chief: bool,
    checkpoint_dir: Any,
    scaffold: Scaffold | None,
    hooks: Iterable[Any] | None,
    chief_only_hooks: Iterable[Any] | None,
    save_checkpoint_secs: Any,
    save_summaries_steps: Any,
    save_summaries_secs: Any,
    config: Any,
    stop_grace_period_secs: float,
    log_step_count_steps: int | None,
    max_wait_secs: float | None,
    save_checkpoint_steps: Any,
    summary_dir: Any,
    save_graph_def: bool,
) -> Any:
    """Implements `MonitoredTrainingSession` for the classes of `headrace` or `headrace.v1`.

    Args:
      session_class: class of the result.
      chief_class: class of the session creator if `is_chief`.
      worker_class: class of the session creator otherwise.
      graph, recovery, stop_on_signal, master, is_chief, checkpoint_dir, scaffold, hooks, chief_only_hooks,
        save_checkpoint_secs, save_summaries_steps, save_summaries_secs, config, stop_grace_period_secs,
        log_step_count_steps, max_wait_secs, save_checkpoint_steps, summary_dir, save_graph_def: see
        `MonitoredTrainingSession`.
    """
    save_secs, save_steps = _how_often(save_checkpoint_secs, save_checkpoint_steps, (600, None))
    summary_secs, summary_steps = _how_often(save_summaries_secs, save_summaries_steps, (None, 100))
    scaffold = scaffold if scaffold is not None else chief_class.scaffold_class()
    creator: SessionCreator
    all_hooks: list[Any] = [StopOnSignalHook()] if stop_on_signal else []
    if not is_chief:
        pause = (recovery or Recovery()).longest_wait_secs
        creator = worker_class(scaffold, master, config, max_wait_secs, recovery_wait_secs=pause)
    else:
        creator = chief_class(scaffold, master, config, checkpoint_dir)
        all_hooks += chief_only_hooks or ()
        summary_dir = summary_dir or checkpoint_dir
        if summary_dir and log_step_count_steps:
            all_hooks.append(StepCounterHook(log_step_count_steps, output_dir=summary_dir))
        if summary_dir and (summary_secs or summary_steps):
            all_hooks.append(SummarySaverHook(summary_steps, summary_secs, summary_dir, scaffold=scaffold))
        if checkpoint_dir and (save_secs or save_steps):
            all_hooks.append(
                CheckpointSaverHook(
                    checkpoint_dir, save_secs, save_steps, scaffold=scaffold, save_graph_def=save_graph_def
                )
            )
    all_hooks += hooks or ()
    return session_class(creator, all_hooks, stop_grace_period_secs, graph=graph, recovery=recovery)


def _how_often(secs: Any, steps: Any, default: tuple[int | None, int | None]) -> tuple[Any, Any]:
    """Returns the period in seconds and in steps; the default if neither is given."""
    if secs is USE_DEFAULT and steps is USE_DEFAULT:
        return default
    return (None if secs is USE_DEFAULT else secs), (None if steps is USE_DEFAULT else steps)
