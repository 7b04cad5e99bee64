"""A hook that shows the progress of training: steps, speed, remaining time, loss.

On a terminal it is a bar by tqdm. Without tqdm, or without a terminal (a file, a pipe), it is a plain line from time to
time, and a message states this once.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

import numpy as np

from headrace.train.hooks.base import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    before_updates,
    needed_global_step,
)
from headrace.train.hooks.watching import element

if TYPE_CHECKING:
    from headrace.train.coordinator import Coordinator

EVERY: Final = 0.2  # seconds between two updates of a bar
EVERY_LINE: Final = 10.0  # seconds between two lines


class ProgressHook(SessionRunHook):
    """Shows the progress of the training, as a progress bar or as lines of text.

    Args:
      last_step: global step at which the training will stop, as in `StopAtStepHook`. None: it is not known, and the
        remaining time is not shown.
      tensors: scalars to show as well: a mapping from labels to tensors or names of tensors, such as {"loss": loss}.
        They are fetched only in steps whose values are shown.
      every_secs: seconds between two updates. None: 0.2 for a bar, 10 for lines.
      out: stream for the output. None: standard error.
      name: label of the bar or the lines.
      clock: function that returns the time in seconds.

    Raises:
      RuntimeError: in `begin`: the graph has no global step.
      ValueError, KeyError: in `begin`: a tensor does not exist, or belongs to another graph.

    Example:
      >>> import headrace as hr, sys
      >>> with hr.Graph() as g:
      ...     train = hr.train.get_or_create_global_step().assign_add(1)
      >>> hooks = [hr.train.ProgressHook(last_step=2, out=sys.stdout, clock=lambda: 0.0)]
      >>> with hr.train.MonitoredSession(graph=g, hooks=hooks) as session:
      ...     for _ in range(2):
      ...         _ = session.run(train)
      train: progress in plain lines, as ...
      train: step 2 of 2
    """

    def __init__(
        self,
        last_step: int | None = None,
        tensors: Mapping[str, Any] | None = None,
        every_secs: float | None = None,
        out: TextIO | None = None,
        name: str = "train",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._last = last_step
        self._tensors = dict(tensors or {})
        self._every = every_secs
        self._out = out
        self._name = name
        self._clock = clock
        self._view: _Bar | _Lines | None = None

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._step = needed_global_step(self)
        self._shown = {tag: element(t) for tag, t in self._tensors.items()}

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """See `SessionRunHook.after_create_session`."""
        step = int(session.run(self._step))
        if self._view is None:
            out = sys.stderr if self._out is None else self._out
            self._view = self._make_view(out, step)
            every = self._every
            if every is None:
                every = EVERY if isinstance(self._view, _Bar) else EVERY_LINE
            self._timer = SecondOrStepTimer(every_secs=every, clock=self._clock)
        else:
            self._view.back(step)
        self._timer.reset()
        self._timer.update_last_triggered_step(step)
        self._next = step + 1

    def _make_view(self, out: TextIO, step: int) -> _Bar | _Lines:
        is_terminal = out.isatty()
        if is_terminal and importlib.util.find_spec("tqdm") is not None:
            return _Bar(out, self._name, step, self._last)
        lacks = "tqdm is not installed (pip install 'headrace[train]')" if is_terminal else "this is no terminal"
        return _Lines(out, self._name, step, self._last, self._clock, lacks)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        self._is_due = self._timer.should_trigger_for_step(self._next)
        return SessionRunArgs([before_updates(self._step), self._shown if self._is_due else {}])

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        assert self._view is not None
        seen, values = run_values.results
        step = int(seen) + 1
        if self._is_due:
            step = int(run_context.session.run(self._step))
            self._timer.update_last_triggered_step(step)
            self._view.show(step, _texts(values))
        self._next = step + 1

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        if self._view is not None:
            self._view.show(int(session.run(self._step)), None)

    def release(self) -> None:
        """See `SessionRunHook.release`."""
        if self._view is not None:
            self._view.close()
            self._view = None


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {tag: f"{float(v):.4g}" if np.ndim(v) == 0 else str(v) for tag, v in values.items()}


class _Bar:
    """Progress bar of tqdm."""

    def __init__(self, out: TextIO, name: str, step: int, last: int | None) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            desc=name, initial=step, total=last, file=out, unit="step", dynamic_ncols=True, mininterval=0, miniters=1
        )

    def show(self, step: int, values: dict[str, str] | None) -> None:
        if values:
            self._bar.set_postfix(values, refresh=False)
        self._bar.update(step - self._bar.n)
        self._bar.refresh()

    def back(self, step: int) -> None:
        """Restarts the rate at the step of a new session."""
        self._bar.reset(total=self._bar.total)
        self._bar.initial = self._bar.n = self._bar.last_print_n = step
        self._bar.refresh()

    def close(self) -> None:
        self._bar.close()


class _Lines:
    """Progress as lines of text."""

    def __init__(
        self, out: TextIO, name: str, step: int, last: int | None, clock: Callable[[], float], lacks: str
    ) -> None:
        self._out, self._name, self._last, self._clock = out, name, last, clock
        self._values: dict[str, str] = {}
        self._written: int | None = None
        self.back(step)
        self._write(f"{name}: progress in plain lines, as {lacks}")

    def back(self, step: int) -> None:
        self._began, self._at = self._clock(), step

    def show(self, step: int, values: dict[str, str] | None) -> None:
        if values is None and step == self._written:
            return
        self._written = step
        self._values = values if values is not None else self._values
        done, seconds = step - self._at, self._clock() - self._began
        text = f"{self._name}: step {step}" + (f" of {self._last}" if self._last is not None else "")
        if done > 0 and seconds > 0:
            text += f", {done / seconds:.4g} steps/s"
            if self._last is not None and step < self._last:
                text += f", {_duration((self._last - step) * seconds / done)} left"
        self._write(text + "".join(f", {tag} = {v}" for tag, v in self._values.items()))

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def close(self) -> None:
        pass


def _duration(seconds: float) -> str:
    """Returns a time in tqdm's format: "03:20", "1:02:03"."""
    minutes, s = divmod(int(seconds + 0.5), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m:02d}:{s:02d}"
