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
import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, TypeVar

from headrace.errors import OutOfRangeError
from headrace.ir.graph import Graph
from headrace.train.coordinator import Coordinator
from headrace.train.global_step import root_of
from headrace.train.hooked import HookedSession
from headrace.train.hooks import CheckpointSaverHook, StepCounterHook, StopOnSignalHook, SummarySaverHook
from headrace.train.hooks.base import blaming, log
from headrace.train.input.running import queue_runners
from headrace.train.recovery import Attempts, Recovery, is_lost
from headrace.train.scaffold import ChiefSessionCreator, Scaffold, SessionCreator, WorkerSessionCreator

T = TypeVar("T")

END: Final = (OutOfRangeError, StopIteration)  # the data is used up, or a step function asked to stop
GRACE_SECONDS: Final = 120.0


class StepContext:
    """What the function given to `run_step_fn` gets.

    Attributes:
      session: the session itself; hooks do not see what is run in it.
    """

    def __init__(self, session: Any, run_with_hooks: Callable[..., Any]) -> None:
        self.session = session
        self._run = run_with_hooks

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """As `MonitoredSession.run`."""
        return self._run(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the function, and the training.

        Raises:
          StopIteration: which leaves the session's block, and is no error there.
        """
        raise StopIteration("step_fn has requested the iterations to stop.")


class _Monitored:
    """What `MonitoredSession` and `SingularMonitoredSession` share."""

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
        self._closing = threading.Event()  # cuts a wait before another attempt short
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
        """The graph that is trained; None once the session is closed."""
        return None if self._closing.is_set() else self._root

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs a step, with what the hooks want besides. See `Session.run`.

        Raises:
          RuntimeError: the session is closed, or a hook has asked to stop.
          What the step, or a hook, fails with. (An error of a hook has a note that names it.)
        """
        return self._again(lambda live: live.run(fetches, feed_dict, options, run_metadata), "a step")

    def run_step_fn(self, step_fn: Callable[..., T]) -> T:
        """Calls a function that may run several things for one step, with and without hooks.

        Args:
          step_fn: takes one argument, `step_context`: a `StepContext`. If the step fails in a way that is recovered
            from, it is called again.

        Returns:
          What it returns.

        Raises:
          ValueError: it takes other arguments. StopIteration: it asked to stop.

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
        """What `do` gives, in this session or, if it fails and that can be helped, in a new one."""
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
        """Whether the training should stop: a hook asked for it, the threads have ended, or the session is closed."""
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
        """Closes a session that `error` came of, and waits until another one may be made."""
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
        """A new session; tried as often as `recovery` says."""
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
            except Exception as other:  # the first error is the one to tell
                e.add_note(f"(and closing the session failed with {type(other).__name__}: {other})")
            raise
        return live

    # *** ending ***

    def close(self) -> None:
        """Tells the hooks that it is over, stops the threads, and closes the session.

        Raises:
          RuntimeError: it is closed already. What a hook or a thread has failed with.
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
        """Calls `end` of all hooks; also of those behind one that fails, as one of them may save what was learned."""
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
        """Lets the hooks give back what they took, and opens the graph again."""
        self._closing.set()
        if hasattr(self._root, "finalized"):
            self._root.finalized = self._was_finalized
        with contextlib.ExitStack() as stack:  # all of them, whatever one raises
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
    """A session for training; see the module's text. It recovers from steps that fail with `AbortedError` or
    `UnavailableError`.

    Args:
      session_creator: makes the sessions; None: a `ChiefSessionCreator`.
      hooks: are told what happens, in this order.
      stop_grace_period_secs: how long threads may take to end.
      graph: what is trained; None: the graph entered.
      recovery: how often to try again; None: `Recovery()`.

    Raises:
      GraphError: there is no graph. What making a session raises, or a hook.

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
    """A session for training that does not recover from steps that fail, and whose session itself can be had.

    Args:
      hooks: are told what happens, in this order.
      scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path: see `ChiefSessionCreator`.
      stop_grace_period_secs: how long threads may take to end.
      graph: what is trained; None: the graph entered.

    Source: TensorFlow's `tf.train.SingularMonitoredSession`.
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
        """The session itself: what is run in it is seen by no hook; savers take it. None once it is closed."""
        return self._raw


class _Default:
    """Stands for an argument that was not given, where None means something."""

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
    """A `MonitoredSession` that saves checkpoints and summaries, counts steps a second, and begins where the newest
    checkpoint left off.

    Args:
      master: "" (this process).
      is_chief: whether it initializes, restores and saves; else it waits for who does.
      checkpoint_dir: the folder of the checkpoints; None: nothing is saved.
      scaffold: None: one of its own.
      hooks: are told what happens.
      chief_only_hooks: the same if it `is_chief`; they come first.
      save_checkpoint_secs, save_checkpoint_steps: how often to save; None: never. Neither given: every 600 seconds.
      save_summaries_steps, save_summaries_secs: the same of summaries. Neither given: every 100 steps.
      config: of the session.
      stop_grace_period_secs: how long threads may take to end.
      log_step_count_steps: how often to count steps a second; None or 0: never.
      max_wait_secs: how long to wait, if it is not chief.
      summary_dir: the folder of the event file; None: `checkpoint_dir`.
      save_graph_def: whether to save the graph as well.
      graph: what is trained; None: the graph entered.
      recovery: how often to try again after a step that failed; None: `Recovery()`.
      stop_on_signal: whether Ctrl-C and SIGTERM end the training well, with a last checkpoint (`StopOnSignalHook`).

    Raises:
      ValueError: seconds and steps are given. RuntimeError: files are to be written, and the graph has no global step.
      What making the session raises.

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
    """`MonitoredTrainingSession` by the classes of `headrace`, or by those of `headrace.v1`."""
    save_secs, save_steps = _how_often(save_checkpoint_secs, save_checkpoint_steps, (600, None))
    summary_secs, summary_steps = _how_often(save_summaries_secs, save_summaries_steps, (None, 100))
    scaffold = scaffold if scaffold is not None else chief_class.scaffold_class()
    creator: SessionCreator
    all_hooks: list[Any] = [StopOnSignalHook()] if stop_on_signal else []
    if not is_chief:
        creator = worker_class(scaffold, master, config, max_wait_secs)
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
    """Seconds and steps, where what was not given is None, and if neither was, the default counts."""
    if secs is USE_DEFAULT and steps is USE_DEFAULT:
        return default
    return (None if secs is USE_DEFAULT else secs), (None if steps is USE_DEFAULT else steps)
