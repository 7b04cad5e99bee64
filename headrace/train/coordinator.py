"""A coordinator: several threads that stop together and report their first error.

    coord = Coordinator()
    threads = [threading.Thread(target=work, args=(coord,)) for _ in range(4)]

where `work` runs `while not coord.should_stop(): ...`, inside `with coord.stop_on_exception():`. Any thread may call
`request_stop()` to stop all of them. `join(threads)` waits until they have stopped, and raises the error that stopped
them, if any. The end of the data (`OutOfRangeError`) and a cancelled step (`CancelledError`) are no errors here,
because they are the normal end of a queue.

Source: TensorFlow's `tf.train.Coordinator`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.errors import CancelledError, OutOfRangeError

GRACE_SECONDS = 120.0


class Coordinator:
    """Coordinates the end of several threads. The methods are thread safe.

    Args:
      clean_stop_exception_types: exceptions that stop the threads without being reported as errors. None:
        `OutOfRangeError` and `CancelledError`.

    Attributes:
      joined: whether `join` has ended.

    Example:
      >>> coord = Coordinator()
      >>> def work() -> None:
      ...     with coord.stop_on_exception():
      ...         raise ValueError("no more")
      >>> t = threading.Thread(target=work)
      >>> t.start()
      >>> coord.join([t])
      Traceback (most recent call last):
      ...
      ValueError: no more
    """

    def __init__(self, clean_stop_exception_types: Sequence[type[BaseException]] | None = None) -> None:
        clean = (OutOfRangeError, CancelledError) if clean_stop_exception_types is None else clean_stop_exception_types
        self._clean = tuple(clean)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self.joined = False

    def should_stop(self) -> bool:
        """Whether a stop has been requested."""
        return self._stop.is_set()

    def request_stop(self, ex: Any = None) -> None:
        """Requests that all threads stop.

        Args:
          ex: the reason: an exception, or the result of `sys.exc_info()`. `join` raises the exception of the first
            request.

        Raises:
          TypeError: `ex` is neither an exception nor such a result.
          Exception: `ex` itself, if it is an error and `join` has ended, because `join` can no longer raise it.
        """
        error: BaseException | None = ex[1] if isinstance(ex, tuple) else ex
        if error is not None and not isinstance(error, BaseException):
            raise TypeError(f"request_stop takes an error or what sys.exc_info() gives, got {ex!r}")
        with self._lock:
            if isinstance(error, self._clean):
                error = None
            if not self.joined:
                if not self._stop.is_set():
                    self._error = error
                error = None
            self._stop.set()
        if error is not None:
            raise error

    def clear_stop(self) -> None:
        """Clears the stop request and its error."""
        with self._lock:
            self._stop.clear()
            self._error = None
            self.joined = False

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits for a stop request, and returns whether there is one.

        Args:
          timeout: longest wait in seconds. None: no limit.
        """
        return self._stop.wait(timeout)

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Catches an exception of the block, and requests a stop with it."""
        try:
            yield
        except Exception as e:
            self.request_stop(e)

    def register_thread(self, thread: threading.Thread) -> None:
        """Adds a thread to the threads for which `join` waits.

        Args:
          thread: the thread.
        """
        with self._lock:
            if thread not in self._threads:
                self._threads.append(thread)

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = GRACE_SECONDS,
        ignore_live_threads: bool = False,
    ) -> None:
        """Waits until the threads have ended, then raises the error of the stop request.

        Args:
          threads: threads to wait for, in addition to the registered ones.
          stop_grace_period_secs: longest wait in seconds after a stop request.
          ignore_live_threads: whether threads that still run after this time are ignored.

        Raises:
          RuntimeError: some threads still run; the text names them.
          Exception: the error that was passed to `request_stop`. It has precedence.
        """
        with self._lock:
            waiting = [*self._threads, *(t for t in threads or () if t not in self._threads)]
        me = threading.current_thread()  # a thread cannot wait for its own end
        waiting = [t for t in waiting if t is not me]
        while any(t.is_alive() for t in waiting) and not self._stop.wait(0.01):
            pass
        until = time.monotonic() + stop_grace_period_secs
        for t in waiting:
            while t.is_alive() and time.monotonic() < until:
                t.join(0.05)
        alive = [t.name for t in waiting if t.is_alive()]
        with self._lock:
            self.joined = True
            self._threads.clear()
        self.raise_requested_exception()
        if alive and not ignore_live_threads:
            raise RuntimeError(
                f"Coordinator stopped with threads still running: {' '.join(alive)}; they must look at should_stop(), "
                "and what they wait for (a queue) must be closed"
            )

    def raise_requested_exception(self) -> None:
        """Raises the error of the stop request, if there is one."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error


class LooperThread(threading.Thread):
    """Thread that calls a function repeatedly until its coordinator requests a stop.

    An exception ends the thread, and requests a stop of the coordinator. The work is a `target`, or a subclass
    overrides `run_loop`. The thread calls `start_loop` at its start, and `stop_loop` at its end if there was no
    exception.

    Args:
      coord: the coordinator. It registers the thread.
      timer_interval_secs: seconds between the starts of two calls. None: no pause. If a call takes longer than this,
        later calls follow without a pause until the delay is made up.
      target: function to call.
      args, kwargs: arguments of the function.

    Raises:
      TypeError: `coord` is not a `Coordinator`.
      ValueError: there are `args` or `kwargs` but no `target`.

    Source: TensorFlow's `tf.train.LooperThread`.

    Example:
      >>> coord, seen = Coordinator(), []
      >>> def work() -> None:
      ...     seen.append(len(seen))
      ...     if len(seen) == 3:
      ...         coord.request_stop()
      >>> coord.join([LooperThread.loop(coord, None, work)])
      >>> seen
      [0, 1, 2]
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise TypeError(f"'coord' argument must be a Coordinator: {coord!r}")
        if target is None and (args or kwargs):
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        super().__init__(daemon=True)
        self._coord = coord
        self._interval = timer_interval_secs
        self._work = target
        self._work_args = tuple(args or ())
        self._work_kwargs = dict(kwargs or {})
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Returns a looper thread that has been started.

        Args:
          coord, timer_interval_secs, target, args, kwargs: see `LooperThread`.
        """
        looper = LooperThread(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """See `threading.Thread.run`."""
        with self._coord.stop_on_exception():
            self.start_loop()
            if self._interval is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                due = time.monotonic()
                while not self._coord.wait_for_stop(max(due - time.monotonic(), 0.0)):
                    due += self._interval
                    self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Hook for subclasses: runs in the thread before the first call."""

    def stop_loop(self) -> None:
        """Hook for subclasses: runs in the thread after the last call without an exception."""

    def run_loop(self) -> None:
        """Does the work of one iteration: by default calls `target`."""
        if self._work is not None:
            self._work(*self._work_args, **self._work_kwargs)
