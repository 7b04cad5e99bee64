"""Kernels that may block their thread, and the supervision of compiled steps that call them.

**The problem.** A Python function of the user may wait for anything, for another function of the same step too, and may
never return. It cannot be interrupted. A deadline, `Session.close` and Ctrl-C must end the step nevertheless, and at
once.

**In the token machine**, a blocking kernel (`Facts.blocking`) is called on a thread of its own as soon as anything else
of the step is in flight.

**In compiled code**, a blocking kernel is called in place, because no other one can be in flight there
(`ir.analysis.concurrency`). If the step has a deadline, or if there are other threads, which could close the session,
the compiled code as a whole runs on a thread of its own, and the calling thread waits for it (`watched`).

A function that is still running when its step ends keeps its thread until it returns; its result is dropped.

**Cost.** A change of threads takes 20 to 40 microseconds, several times as long as a short function. So a thread is
used only where the step could otherwise not be ended.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace import thresholds
from headrace.denormals import unflushed, user_mode
from headrace.errors import DeadlineExceededError, ResourceExhaustedError
from headrace.execute.waits import next_look, note_interrupt, tell_long_wait
from headrace.ir.kernel_errors import place

if TYPE_CHECKING:
    from headrace.execute.step import Step

T = TypeVar("T")

_FOREVER: Final = 1e9  # seconds


def is_observed(step: Step) -> bool:
    """Whether an event other than Ctrl-C could end `step` while its calling thread is blocked."""
    return step.deadline is not None or threading.active_count() > 1


def watched(step: Step, work: Callable[[], T]) -> T:
    """Returns `work()`, computed on a thread of its own while the calling thread supervises it.

    If the step is cancelled, this function returns after the compiled code has stopped, so the step changes no state
    afterwards. Only a Python function that is being called may continue.

    Args:
      step: the step.
      work: the compiled code of the step.

    Raises:
      DeadlineExceededError: the deadline passed before `work` returned.
      BaseException: the error that `work` raised, or the error with which the step was cancelled.
    """
    completions = step.completions
    mode, context = user_mode(), contextvars.copy_context()

    def job() -> None:
        try:
            with unflushed(mode):
                result = context.run(work)
        except BaseException as e:  # raised again in the calling thread of the step
            completions.put((None, e))
        else:
            completions.put((result, None))

    submit(step, job)
    entry: Any = None
    waited = 0.0
    try:
        while entry is None:
            if step.cancelled is not None:
                raise step.cancelled
            left = step.time_left()
            patience = next_look(step, _FOREVER if left is None else left, waited)
            try:
                entry = step.clock.take(completions, patience)
            except queue.Empty:
                left = step.time_left()
                if left is not None and left <= 0:
                    raise _too_late(step) from None
                waited += patience
                tell_long_wait(step, waited, _waits(step) or "its code to end")
    except BaseException as e:
        note_interrupt(e, _waits(step))
        step.cancel(e)
        while entry is None and step.blocked_in is None:
            try:
                entry = step.clock.take(completions, thresholds.CANCELLED_POLL)
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


def submit(step: Step, work: Callable[[], object]) -> None:
    """Runs `work` for `step` on a thread of its pool.

    Raises:
      ResourceExhaustedError: no thread is available.
      BaseException: the error with which the step was cancelled.
    """
    try:
        step.threads.submit(work)
    except RuntimeError as e:
        if step.cancelled is not None:
            raise step.cancelled from e
        raise ResourceExhaustedError(f"step {step.id} cannot start a thread for a Python function: {e}") from e


def _waits(step: Step) -> str:
    op = step.blocked_in
    return "" if op is None else f"{place(op)}, whose Python function has not returned"


def _too_late(step: Step) -> DeadlineExceededError:
    waits = _waits(step)
    return step.past_deadline(f"; it waits for {waits}" if waits else "")
