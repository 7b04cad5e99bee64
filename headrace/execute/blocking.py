"""Kernels that may block their thread, and steps that call them: the caller of a step keeps watch.

A Python function of the user's may wait for anything, another one of the same step included, and may never return. So
the token machine calls a blocking kernel (`Facts.blocking`) on a thread of its own as soon as anything else of the step
is in flight. Compiled code calls it in place, where no other one can be in flight (`ir.analysis.concurrency`). If the
step has a deadline or there are other threads, which may close the session, it then runs on a thread of its own as a
whole, and the caller waits for it (`watched`). So a deadline, `Session.close` and Ctrl-C end the step at once. The
function itself cannot be interrupted: its thread ends when it returns, and its result is dropped.

A change of threads takes 20 to 40 microseconds, several times as long as a short function; hence the distinctions.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.denormals import unflushed, user_mode
from headrace.errors import DeadlineExceededError, ResourceExhaustedError
from headrace.execute.threads import taken
from headrace.ir.kernel_errors import place

if TYPE_CHECKING:
    from headrace.execute.step import StepState

T = TypeVar("T")

LOOK: Final = 0.005  # seconds between two looks whether a step that was given up has stopped
_FOREVER: Final = 1e9  # seconds


def is_observed(step: StepState) -> bool:
    """Whether anything but Ctrl-C could end `step` while a Python function blocks the calling thread."""
    return step.deadline is not None or threading.active_count() > 1


def watched(step: StepState, work: Callable[[], T]) -> T:
    """`work()`, the compiled code of `step`, on a thread of its own; the calling thread waits and keeps watch.

    When the step is given up, the code of headrace in it has stopped before this returns: it can change nothing
    afterwards. Only a Python function that is being called may go on.

    Raises:
      Whatever `work` raises or the step was cancelled with; DeadlineExceededError.
    """
    completions = step.completions
    mode, context = user_mode(), contextvars.copy_context()

    def job() -> None:
        try:
            with unflushed(mode):
                result = context.run(work)
        except BaseException as e:  # raised in the thread that asked for the step
            completions.put((None, e))
        else:
            completions.put((result, None))

    submit(step, job)
    entry: Any = None
    try:
        while entry is None:
            if step.cancelled is not None:
                raise step.cancelled
            left = step.time_left()
            try:
                entry = taken(completions, _FOREVER if left is None else left)
            except queue.Empty:
                raise _too_late(step) from None
    except BaseException as e:
        step.cancel(e)
        while entry is None and step.blocked_in is None:
            try:
                entry = completions.get(timeout=LOOK)
            except queue.Empty:
                continue
        raise
    result, error = entry
    if error is not None:
        try:
            raise error
        finally:
            del error, entry
    out: T = result
    return out


def submit(step: StepState, work: Callable[[], object]) -> None:
    """Has a thread of its own do `work` for `step`.

    Raises:
      ResourceExhaustedError: there is none. Whatever the step was cancelled with.
    """
    try:
        step.threads.submit(work)
    except RuntimeError as e:
        if step.cancelled is not None:
            raise step.cancelled from e
        raise ResourceExhaustedError(f"step {step.id} gets no thread for a Python function: {e}") from e


def _too_late(step: StepState) -> DeadlineExceededError:
    op = step.blocked_in
    busy = "" if op is None else f"; it waits for {place(op)}, whose Python function has not returned"
    return DeadlineExceededError(f"Timed out: step {step.id} ran past its time limit{busy}")
