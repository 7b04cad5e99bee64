"""A hook that ends training cleanly on a signal: Ctrl-C or termination by the machine.

A signal handler runs between any two instructions of the main thread, which may hold any lock, so the handler must take
none. It records the signal and starts a new thread, which asks the coordinator to stop.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.train.hooks.base import SessionRunContext, SessionRunHook, SessionRunValues, log

if TYPE_CHECKING:
    from headrace.train.coordinator import Coordinator


class StopOnSignalHook(SessionRunHook):
    """Stops the training after the current step when a signal arrives.

    The training ends as if it were complete: the `end` of all hooks is called, so that a `CheckpointSaverHook` writes a
    last checkpoint, and the program continues after the `with` block. Queue runners stop, too: a step that waits for
    data fails with `OutOfRangeError`, which also counts as the end. A second signal of the same kind has its previous
    effect: Ctrl-C raises KeyboardInterrupt.

    Args:
      signals: numbers of the signals, from the module `signal`.

    Attributes:
      received: number of the signal that arrived, or None. A program may end with `sys.exit(128 + hook.received)`.

    Raises:
      ValueError: in `begin`: this is not the main thread. Only the main thread can have signal handlers.

    Example:
      >>> import os, signal
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     one = hr.constant(1)
      >>> hook = hr.train.StopOnSignalHook()
      >>> with hr.train.MonitoredSession(graph=g, hooks=[hook]) as session:
      ...     while not session.should_stop():
      ...         os.kill(os.getpid(), signal.SIGTERM)  # as another process might
      ...         _ = session.run(one)
      >>> hook.received == signal.SIGTERM
      True
    """

    def __init__(self, signals: Iterable[int] = (signal.SIGINT, signal.SIGTERM)) -> None:
        self._signals = tuple(signals)
        self._before: dict[int, Any] = {}
        self._coord: Coordinator | None = None
        self.received: int | None = None

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        if threading.current_thread() is not threading.main_thread():
            raise ValueError(
                "StopOnSignalHook works in the main thread only: Python gives signals to no other. Train there, or let "
                "the main thread's handler call request_stop() of a coordinator"
            )
        self.received = None
        for number in self._signals:
            self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: Any) -> None:
        self.received = number
        signal.signal(number, _or_default(self._before.get(number)))
        _thread.start_new_thread(self._stop, (number,))

    def _stop(self, number: int) -> None:
        log.warning("%s: the training stops after this step (again: at once)", signal.Signals(number).name)
        coord = self._coord
        if coord is not None:
            coord.request_stop()

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """See `SessionRunHook.after_create_session`."""
        self._coord = coord
        if self.received is not None:  # the signal arrived while the session was being created
            coord.request_stop()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        if self.received is not None:
            run_context.request_stop()

    def release(self) -> None:
        """See `SessionRunHook.release`. Restores the previous handlers."""
        self._coord = None
        while self._before:
            number, handler = self._before.popitem()
            if signal.getsignal(number) == self._handle:
                signal.signal(number, _or_default(handler))


def _or_default(handler: Any) -> Any:
    """Returns the handler, or the default one in place of None.

    None stands for a handler that was not set from Python, which Python cannot set again.
    """
    return signal.SIG_DFL if handler is None else handler
