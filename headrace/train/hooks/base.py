"""Base class of hooks, which a monitored session calls at each step.

For each step the session asks all hooks for further fetches and feeds (`before_run`), runs the step once for itself and
all hooks, and passes its fetches to each hook (`after_run`). So a hook that reads the loss needs no additional step.

    begin                   once, while operations can still be created
    after_create_session    for each session: at first, and when a lost one has been replaced
    before_run, after_run   for each step (`after_run` not if the step failed)
    session_lost            after an error that ended the session, before a new session
    end                     at the end, if there was no error (the end of the data is not an error)
    release                 at the end in every case, to release the hook's resources

Source: TensorFlow's `tf.train.SessionRunHook`; `session_lost` and `release` are headrace's.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.api import scopes
from headrace.api.reference import ReferenceVariable
from headrace.train.global_step import get_global_step

if TYPE_CHECKING:
    from headrace.train.coordinator import Coordinator

log = logging.getLogger("headrace.train")

_BEFORE: Final = "before_updates"  # name of the sum in the name scope of the global step


class SessionRunArgs(NamedTuple):
    """Arguments of a step: the fetches, feeds and options that a hook adds.

    Attributes:
      fetches: a tensor, operation or name, or a structure of them. None: nothing.
      feed_dict: values to feed. Two hooks, or a hook and the caller, must not feed the same tensor.
      options: a `RunOptions`. The options of all hooks and the caller are merged; of limits and levels the larger
        counts.

    Source: TensorFlow's `tf.train.SessionRunArgs`.

    Example:
      >>> import headrace as hr
      >>> hr.train.SessionRunArgs(fetches=["loss:0"]).fetches
      ['loss:0']
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """Results of a step, for the `after_run` of a hook.

    Attributes:
      results: values of the hook's fetches, in their structure. None: it had no fetches.
      options: the `RunOptions` of the step.
      run_metadata: the `RunMetadata` of the step. It is filled if the caller passed one or requested a trace.
      watched: the values that the hook watches by `RunOptions(watch=...)` in its `SessionRunArgs`. None: no watch.

    Source: TensorFlow's `tf.train.SessionRunValues`; `watched` is headrace's.

    Example:
      >>> import headrace as hr
      >>> class Loss(hr.train.SessionRunHook):
      ...     def before_run(self, run_context):
      ...         return hr.train.SessionRunArgs({"loss": loss})
      ...
      ...     def after_run(self, run_context, run_values):
      ...         print(run_values.results)
      >>> with hr.Graph() as g:
      ...     loss = hr.constant(0.5)
      >>> with hr.train.MonitoredSession(graph=g, hooks=[Loss()]) as session:
      ...     session.run([])
      {'loss': np.float32(0.5)}
      []
    """

    results: Any
    options: Any
    run_metadata: Any
    watched: Any = None


class SessionRunContext:
    """Description of a step for the hooks.

    Args:
      original_args: the fetches and feeds of the caller.
      session: the session that runs the step.

    Source: TensorFlow's `tf.train.SessionRunContext`.

    Example:
      >>> import headrace as hr
      >>> context = hr.train.SessionRunContext(hr.train.SessionRunArgs("loss:0"), session=None)
      >>> context.request_stop()
      >>> context.stop_requested, context.original_args.fetches
      (True, 'loss:0')
    """

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """Fetches and feeds of the caller."""
        return self._original_args

    @property
    def session(self) -> Any:
        """Session that runs the step. A run of it calls no hooks."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has requested a stop."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Requests a stop of the training after this step. Then `should_stop()` returns True."""
        self._stop_requested = True


class SessionRunHook:
    """Base class of hooks. Its methods do nothing.

    A subclass overrides some of the methods, which a monitored session calls in the order of their definition.

    Source: TensorFlow's `tf.train.SessionRunHook`.

    Example:
      >>> import headrace as hr
      >>> class Count(hr.train.SessionRunHook):
      ...     steps = 0
      ...
      ...     def after_run(self, run_context, run_values):
      ...         self.steps += 1
      ...         if self.steps == 3:
      ...             run_context.request_stop()
      >>> with hr.Graph() as g:
      ...     y = hr.constant(1) + 1
      >>> with hr.train.MonitoredSession(graph=g, hooks=[Count()]) as session:
      ...     while not session.should_stop():
      ...         print(session.run(y))
      2
      2
      2
    """

    def begin(self) -> None:
        """Called once before the first session is created.

        The graph has been entered, and operations can be added to it.
        """

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Called when a session has been created, and its variables initialized or restored.

        Args:
          session: the session.
          coord: coordinator of the session's threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each step. Returns additional fetches and feeds, or None.

        Args:
          run_context: description of the step.
        """
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each successful step.

        Args:
          run_context: description of the step.
          run_values: results of the step.
        """

    def end(self, session: Any) -> None:
        """Called at the end of the training, unless an error ended it.

        Args:
          session: the session, which is still open.
        """

    def session_lost(self, error: BaseException) -> None:
        """Called when a session is closed after an error, before a new one is created.

        Args:
          error: the error.
        """

    def release(self) -> None:
        """Called last, also after an error, to release resources such as files or signal handlers."""


@contextlib.contextmanager
def blaming(hook: Any, method: str) -> Iterator[None]:
    """Adds a note with the hook and its method to an error of the block."""
    try:
        yield
    except BaseException as e:
        blame(e, hook, method)
        raise


def blame(error: BaseException, hook: Any, method: str) -> None:
    """Adds a note to an error: `method` of `hook` has raised it."""
    error.add_note(f"(raised by the hook {name_of(hook)}, in {method}())")


def name_of(hook: Any) -> str:
    """Returns the name of a hook for messages."""
    return type(hook).__qualname__


def needed_global_step(hook: Any) -> Any:
    """Returns the global step of the current graph.

    Raises:
      RuntimeError: there is none; the text names `hook`.
    """
    step = get_global_step()
    if step is None:
        raise RuntimeError(
            f"Global step should be created to use {name_of(hook)}: call get_or_create_global_step() while the graph "
            "is made, and give it to minimize(loss, global_step=...)"
        )
    is_reference = isinstance(step, ReferenceVariable) and step.graph is not None
    if is_reference and f"{step.op.name}/{_BEFORE}" not in step.graph:
        with scopes.control_dependencies(None), scopes.name_scope(f"{step.op.name}/"):
            scopes.builder().Add(step, 0, name=_BEFORE)
    return step


def before_updates(step: Any) -> Any:
    """Returns a fetch of a global step's value before the updates of a run.

    A fetch of a reference variable sees the updates, so the fetch is a sum, as in TensorFlow. `needed_global_step` has
    added it, since a session finalizes the graph.
    """
    is_reference = isinstance(step, ReferenceVariable)
    return step.graph.get_tensor_by_name(f"{step.op.name}/{_BEFORE}:0") if is_reference else step


class SecondOrStepTimer:
    """Timer for a periodic action, with a period in seconds or in steps.

    Args:
      every_secs: period in seconds.
      every_steps: period in steps. One of the two is given.
      clock: function that returns the time in seconds.

    Raises:
      ValueError: neither or both are given.

    Source: TensorFlow's `tf.train.SecondOrStepTimer`.

    Example:
      >>> import headrace as hr
      >>> timer = hr.train.SecondOrStepTimer(every_steps=10)
      >>> timer.should_trigger_for_step(3)  # the first time the action is always due
      True
      >>> timer.update_last_triggered_step(3)
      (None, None)
      >>> timer.should_trigger_for_step(12), timer.should_trigger_for_step(13)
      (False, True)
    """

    def __init__(
        self,
        every_secs: float | None = None,
        every_steps: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Returns the timer to its initial state."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether the action is due at `step`.

        Args:
          step: the global step.
        """
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            return self._clock() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Records that the action was done at `step`.

        Args:
          step: the global step.

        Returns:
          The seconds and the steps since the previous time; (None, None) the first time.
        """
        now = self._clock()
        since = (None, None) if self._last_step is None else (now - self._last_time, step - self._last_step)
        self._last_step, self._last_time = step, now
        return since

    def last_triggered_step(self) -> int | None:
        """Returns the step of the last action; None if there was none."""
        return self._last_step


class Never:
    """Timer whose action is never due."""

    def reset(self) -> None:
        """Does nothing."""

    def should_trigger_for_step(self, step: int) -> bool:
        """Returns False."""
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Returns (None, None)."""
        return None, None

    def last_triggered_step(self) -> int | None:
        """Returns None."""
        return None
