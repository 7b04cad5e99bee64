"""A hook that writes traces: the operations of a step with their times."""

from __future__ import annotations

import io
import os
from typing import Any

from headrace import step_events
from headrace.files.commit import replacing
from headrace.metadata import RunOptions
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

_MOST_TAGS = 100  # largest number of traces of one step


class ProfilerHook(SessionRunHook):
    """Writes a trace of a step to "timeline-<global step>.json" periodically.

    The files open in chrome://tracing and in Perfetto. The run metadata, with times of operations, goes to the event
    file of the folder, from which TensorBoard shows them in the graph. A traced step is interpreted, so it takes longer
    than other steps; its results are the same.

    Args:
      save_steps: period in steps.
      save_secs: period in seconds. One of the two is given. The first trace is at the end of the first period.
      output_dir: the folder. It is created if necessary.
      show_dataflow, show_memory: accepted as in TensorFlow, without effect.

    Raises:
      ValueError: not exactly one of `save_steps` and `save_secs` is given.
      RuntimeError: in `begin`: the graph has no global step.

    Source: TensorFlow's `tf.train.ProfilerHook`.

    Example:
      >>> import headrace as hr
      >>> hook = hr.train.ProfilerHook(save_steps=10, output_dir="logs")
      >>> isinstance(hook, hr.train.SessionRunHook)
      True
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: Any = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._folder = os.fspath(output_dir) or os.curdir

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._step = needed_global_step(self)
        self._writer = writer_of(self._folder)
        self._next: int | None = None

    def session_lost(self, error: BaseException) -> None:
        """See `SessionRunHook.session_lost`. The new session continues from an older step."""
        self._next = None
        self._timer.reset()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        self._events: list[Any] | None = None
        options = None
        if self._next is not None and self._timer.should_trigger_for_step(self._next):
            self._events = []
            options = RunOptions(trace_level=RunOptions.FULL_TRACE, listener=self._events.append)
        return SessionRunArgs(before_updates(self._step), options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        seen = int(run_values.results)
        if self._next is None:
            self._timer.update_last_triggered_step(seen)
        step = seen + 1
        if self._events is not None:
            step = int(run_context.session.run(self._step))
            self._timer.update_last_triggered_step(step)
            path = os.path.join(self._folder, f"timeline-{step}.json")
            log.info("Saving timeline for %d into '%s'.", step, path)
            with replacing(path) as file:  # a killed process leaves no partial file
                text = io.TextIOWrapper(file, encoding="utf-8")
                step_events.write_chrome(self._events, text)
                text.flush()
                text.detach()
            self._events = None
            self._add(run_values.run_metadata, step)
        self._next = step + 1

    def _add(self, metadata: Any, step: int) -> None:
        """Writes `metadata` to the event file, under a tag for the step.

        After a recovery, a step may be traced again. Then the tag has a suffix, because each tag can be used only once.
        """
        for n in range(_MOST_TAGS):
            try:
                self._writer.add_run_metadata(metadata, f"step_{step}" + (f"_{n}" if n else ""), step)
            except ValueError:
                if n == _MOST_TAGS - 1:
                    raise
            else:
                return

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        self._writer.flush()
