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
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.train.global_step import get_global_step

if TYPE_CHECKING:
    from headrace.train.coordinator import Coordinator

log = logging.getLogger("headrace.train")


class SessionRunArgs(NamedTuple):
    """What to run: by a hook's `before_run`, what it wants besides.

    Attributes:
      fetches: a tensor, operation, name, or a structure of them; None: nothing.
      feed_dict: values to feed; each tensor may be fed by one hook, and not by the user.
      options: a `RunOptions`; those of all hooks and the user are put together, the larger number wins.

    Source: TensorFlow's `tf.train.SessionRunArgs`.
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """What came of a step, for a hook's `after_run`.

    Attributes:
      results: the values of what the hook wanted, in its structure; None if it wanted nothing.
      options: the `RunOptions` of the step.
      run_metadata: the `RunMetadata` of the step; filled if the user gave one, or if a trace was asked for.

    Source: TensorFlow's `tf.train.SessionRunValues`.
    """

    results: Any
    options: Any
    run_metadata: Any


class SessionRunContext:
    """What a hook is told of the step that it is asked about.

    Source: TensorFlow's `tf.train.SessionRunContext`.
    """

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """What the user wants to run."""
        return self._original_args

    @property
    def session(self) -> Any:
        """The session itself; what is run in it is seen by no hook."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked to stop."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Asks that the training stops after this step: `should_stop()` is true from then on."""
        self._stop_requested = True


class SessionRunHook:
    """What other hooks are made of: it does nothing. See the module's text for when each method is called.

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
        """Called before the session is made. The graph has been entered, and operations may be made."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Called when a session has been made and initialized, or restored from a checkpoint.

        Args:
          session: the session itself.
          coord: its coordinator, which stops its threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before a step; returns what to run besides, or None."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after a step that did not fail."""

    def end(self, session: Any) -> None:
        """Called at the end, if it did not come by an error. The session still works."""

    def session_lost(self, error: BaseException) -> None:
        """Called when a session is given up because of `error` and another one will be made."""

    def release(self) -> None:
        """Called last of all, also after an error: gives back what the hook took (handlers, files, a terminal)."""


@contextlib.contextmanager
def blaming(hook: Any, method: str) -> Iterator[None]:
    """An error in the block, which calls `method` of `hook`, gets a note that says so."""
    try:
        yield
    except BaseException as e:
        blame(e, hook, method)
        raise


def blame(error: BaseException, hook: Any, method: str) -> None:
    """Gives an error a note that says that `method` of `hook` has raised it."""
    error.add_note(f"(raised by the hook {name_of(hook)}, in {method}())")


def name_of(hook: Any) -> str:
    """What a hook is called in messages."""
    return type(hook).__qualname__


def needed_global_step(hook: Any) -> Any:
    """The global step of the graph entered.

    Raises:
      RuntimeError: there is none, and `hook` needs it.
    """
    step = get_global_step()
    if step is None:
        raise RuntimeError(
            f"Global step should be created to use {name_of(hook)}: call get_or_create_global_step() while the graph "
            "is made, and give it to minimize(loss, global_step=...)"
        )
    return step


class SecondOrStepTimer:
    """Says when something is due that is done every so many seconds, or every so many steps.

    Args:
      every_secs, every_steps: one of them.
      clock: gives the time in seconds.

    Raises:
      ValueError: neither or both are given.

    Source: TensorFlow's `tf.train.SecondOrStepTimer`.

    Example:
      >>> import headrace as hr
      >>> timer = hr.train.SecondOrStepTimer(every_steps=10)
      >>> timer.should_trigger_for_step(3)  # the first time it is always due
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
        """Makes it as new."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at `step`."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            return self._clock() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was done at `step`.

        Returns:
          The seconds and the steps since the time before; (None, None) the first time.
        """
        now = self._clock()
        since = (None, None) if self._last_step is None else (now - self._last_time, step - self._last_step)
        self._last_step, self._last_time = step, now
        return since

    def last_triggered_step(self) -> int | None:
        """The step at which it was done last; None if never."""
        return self._last_step


class Never:
    """A timer that is never due."""

    def reset(self) -> None:
        """Nothing to do."""

    def should_trigger_for_step(self, step: int) -> bool:
        """False."""
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """(None, None)."""
        return None, None

    def last_triggered_step(self) -> int | None:
        """None."""
        return None
