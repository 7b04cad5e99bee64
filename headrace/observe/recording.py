"""Recordings: the tokens of one step in a file, for the page of `headrace view`.

    with hr.record("step.hrrec"):
        session.run(y, {x: 3.0})

A recording is a listener of `step_events`, so `RunOptions(listener=recording)` works, too. During the step it only
appends the executor's records to lists (`firing_log`); the document is made when the recording is saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from headrace import step_events, thresholds
from headrace.errors import FailedPreconditionError
from headrace.metadata import scoped_options
from headrace.observe.firing_log import ValueBudget
from headrace.observe.recorded import write_recording
from headrace.observe.step_log import StepLog

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.metadata import RunOptions
    from headrace.observe.firing_log import FiringLog


class Recording:
    """Recording of one step: the last that ended while it listened. `hr.record` makes it.

    Args:
      path: the file that the end of the `with` block writes; None: none.
      bytes: bytes of values that are kept by reference while the step runs.
      tokens: number of firings that are kept.

    Attributes:
      wants_sizes: whether events have the bytes of outputs. It holds for workers of a cluster.
      wants_causes: whether events have the causes of deadness.
      wants_summaries: whether events of a cluster have summaries of values.
    """

    wants_sizes = True
    wants_causes = True
    wants_summaries = True

    def __init__(self, path: str | os.PathLike[str] | None, bytes: int, tokens: int) -> None:
        self._path = path
        self._bytes = bytes
        self._tokens = tokens
        self._running: dict[int, StepLog] = {}
        self._last: StepLog | None = None
        self._made: dict[str, Any] | None = None
        self._block: contextlib.ExitStack | None = None

    # *** the listener ***

    def __call__(self, event: step_events.Event) -> None:
        """Receives an event of a step."""
        if isinstance(event, step_events.StepStart):
            if event.call is not None:
                budget = ValueBudget(self._bytes, self._tokens)
                self._running[event.step] = StepLog(event, budget, 3 * self._tokens)  # a firing has two, and iterations
            return
        log = self._running.get(event.step)
        if log is None:
            return
        if isinstance(event, step_events.StepEnd):
            del self._running[event.step]
            log.end, log.error = event.time, event.error
            self._last, self._made = log, None
        else:
            log.add(event)

    def observer(self, step: int, device: str) -> FiringLog:
        """Returns the receiver of the executor's records for one device's part of a step."""
        return self._running[step].part(device)

    # *** the user's interface ***

    def __enter__(self) -> Recording:
        self._block = contextlib.ExitStack()
        self._block.enter_context(scoped_options.changed(self._heard))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None, "`with` calls __enter__ first"
        self._block.close()
        if self._path is not None and (error is None or self._last is not None):
            self.save(self._path)

    def _heard(self, options: RunOptions) -> RunOptions:
        return dataclasses.replace(options, listener=step_events.joined(options.listener, self))

    def document(self) -> dict[str, Any]:
        """Returns the contents of the file as plain data, see `headrace docs how-to/recording`.

        Raises:
          FailedPreconditionError: no step has ended.
        """
        if self._last is None:
            raise FailedPreconditionError(
                "this recording has no step: call `session.run` inside `with hr.record(...)`, in the same thread, or "
                "pass it as RunOptions(listener=...)"
            )
        if self._made is None:
            from headrace.observe.assembly import document_of_step  # here: it imports the stages and the inspector

            self._made = document_of_step(self._last)
        return self._made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recorded step to a file for `headrace view`.

        Args:
          path: the file, which is replaced as a whole; by convention it ends in `.hrrec`.

        Raises:
          FailedPreconditionError: no step has ended.
          OSError: the file cannot be written.
        """
        write_recording(path, self.document())


def record(
    path: str | os.PathLike[str] | None = None, *, bytes: int | None = None, tokens: int | None = None
) -> Recording:
    """Records the tokens of a step for `headrace view`.

    The result is a context manager, which records the runs of its thread in its block, and a listener for
    `RunOptions(listener=...)`. It holds one step: the last that has ended. A recorded step runs on the token machine,
    operation by operation, in sessions of each engine.

    Args:
      path: the file that the end of the block writes; None: call `save`.
      bytes: bytes of values that are kept by reference while the step runs; later values are summarized when they are
        computed. None: `thresholds.RECORDED_BYTES`.
      tokens: number of firings to keep; later ones are counted. None: `thresholds.RECORDED_TOKENS`.

    Returns:
      A recording, with the methods `save(path)` and `document()`.

    Raises:
      FailedPreconditionError: at the end of the block: `path` is given and no step has run in the block.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     i = hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="count")[0]
      >>> with hr.record() as recording:
      ...     hr.Session(graph=g).run(i)
      np.int32(3)
      >>> [tag["text"] for tag in recording.document()["tags"]]
      ['', 'count#0', 'count#1', 'count#2', 'count#3']
    """
    return Recording(
        path,
        thresholds.RECORDED_BYTES if bytes is None else bytes,
        thresholds.RECORDED_TOKENS if tokens is None else tokens,
    )
