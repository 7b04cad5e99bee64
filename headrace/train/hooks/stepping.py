"""Hooks that read the global step: stop, wait, count steps per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.errors import DeadlineExceededError
from headrace.train.hooks.base import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    before_updates,
    log,
    needed_global_step,
)
from headrace.train.hooks.writing import writer_of

if TYPE_CHECKING:
    from headrace.train.coordinator import Coordinator


class StopAtStepHook(SessionRunHook):
    """Stops the training at a step.

    Args:
      num_steps: number of steps from the start of the first session.
      last_step: global step after which to stop, in place of `num_steps`. One of the two is given.

    Raises:
      ValueError: neither or both are given.
      RuntimeError: in `begin`: the graph has no global step.

    Source: TensorFlow's `tf.train.StopAtStepHook`.

    Example:
      >>> import headrace as hr
      >>> hook = hr.train.StopAtStepHook(last_step=100)
      >>> isinstance(hook, hr.train.SessionRunHook)
      True
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._step = needed_global_step(self)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """See `SessionRunHook.after_create_session`."""
        if self._last_step is None:  # a new session after an error keeps the last step of the first one
            assert self._num_steps is not None
            self._last_step = int(session.run(self._step)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        return SessionRunArgs(before_updates(self._step))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        # the fetched value may be older than the increment of the step
        assert self._last_step is not None
        if run_values.results + 1 >= self._last_step and run_context.session.run(self._step) >= self._last_step:
            run_context.request_stop()


class StepCounterHook(SessionRunHook):
    """Logs the number of steps per second, and writes it as the summary "global_step/sec".

    Args:
      every_n_steps: period in steps.
      every_n_secs: period in seconds. One of the two is given, the other is None.
      output_dir: folder of the event file.
      summary_writer: a `FileWriter`, in place of `output_dir`. If neither is given, the number is only logged.

    Raises:
      ValueError: not exactly one of `every_n_steps` and `every_n_secs` is given.

    Source: TensorFlow's `tf.train.StepCounterHook`.

    Example:
      >>> import headrace as hr
      >>> isinstance(hr.train.StepCounterHook(every_n_steps=10), hr.train.SessionRunHook)
      True
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: Any = None,
        summary_writer: Any = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = SecondOrStepTimer(every_steps=every_n_steps, every_secs=every_n_secs)
        self._writer = summary_writer
        self._folder = output_dir
        self._before: int | None = None
        self._warned = False

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._step = needed_global_step(self)
        self._tag = self._step.op.name + "/sec"
        if self._writer is None and self._folder is not None:
            self._writer = writer_of(self._folder)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """See `SessionRunHook.after_create_session`."""
        self._timer.reset()  # a restored session may continue from an older step
        self._before = None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        return SessionRunArgs(before_updates(self._step))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        seen = int(run_values.results)
        if self._timer.should_trigger_for_step(seen + 1):
            step = int(run_context.session.run(self._step))
            if self._timer.should_trigger_for_step(step):
                self._tell(step, *self._timer.update_last_triggered_step(step))
        if seen == self._before and not self._warned:
            self._warned = True
            log.warning(
                "the global step '%s' stays at %d from step to step: give it to minimize(loss, global_step=...) or to "
                "apply_gradients, which count it",
                self._step.name, seen,
            )  # fmt: skip
        self._before = seen

    def _tell(self, step: int, seconds: float | None, steps: int | None) -> None:
        if not seconds or steps is None:
            return
        rate = steps / seconds
        if self._writer is not None:
            self._writer.scalar(self._tag, rate, step)
        log.info("%s: %g", self._tag, rate)

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        if self._writer is not None:
            self._writer.flush()


class GlobalStepWaiterHook(SessionRunHook):
    """Delays the first step until the global step, which another session increments, has a value.

    Args:
      wait_until_step: the value to wait for. 0: no wait.
      max_wait_secs: longest wait in seconds.
      poll_secs: seconds between two reads of the global step.
      sleep: function that waits a number of seconds.

    Raises:
      DeadlineExceededError: in the first step: the value was not reached in `max_wait_secs`.

    Source: TensorFlow's `tf.train.GlobalStepWaiterHook`, which has no limit of the wait.

    Example:
      >>> import headrace as hr
      >>> isinstance(hr.train.GlobalStepWaiterHook(100), hr.train.SessionRunHook)
      True
    """

    def __init__(
        self,
        wait_until_step: int,
        *,
        max_wait_secs: float = 7200.0,
        poll_secs: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._until = wait_until_step
        self._most = max_wait_secs
        self._poll = poll_secs
        self._sleep = sleep
        self._started = False

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._started = False
        self._step = needed_global_step(self)

    def before_run(self, run_context: SessionRunContext) -> None:
        """See `SessionRunHook.before_run`."""
        if self._started or self._until <= 0:
            self._started = True
            return
        log.info("Waiting for global step %d before starting training.", self._until)
        waited = 0.0
        while (step := run_context.session.run(self._step)) < self._until:
            if waited >= self._most:
                raise DeadlineExceededError(
                    f"the global step '{self._step.name}' is {step} after {waited:g} s of waiting for "
                    f"{self._until} (max_wait_secs={self._most:g}): does something else count it?"
                )
            self._sleep(self._poll)
            waited += self._poll
        self._started = True
