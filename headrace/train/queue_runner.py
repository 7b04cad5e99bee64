"""A queue runner: threads that run enqueue operations until the data ends.

Source: TensorFlow's `tf.train.QueueRunner`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from headrace.errors import CancelledError, OutOfRangeError
from headrace.train.coordinator import Coordinator

_log = logging.getLogger("headrace")


class QueueRunner:
    """Fills a queue from several threads, one for each enqueue operation.

    When all threads have reached the end of their data, the queue is closed. When the coordinator stops, pending
    enqueue operations are cancelled.

    Args:
      queue: the queue. It may be None if `close_op` and `cancel_op` are given.
      enqueue_ops: the operation of each thread. An operation may occur several times, for several threads.
      close_op: operation that closes the queue and leaves pending enqueue operations alone. None: made from `queue`.
      cancel_op: operation that closes the queue and cancels pending enqueue operations. None: made from `queue`.
      queue_closed_exception_types: exceptions that mean the end of the data. None: `OutOfRangeError`.

    Attributes:
      queue: the queue, or None.
      enqueue_ops: the operation of each thread.
      close_op, cancel_op: the operations that close the queue.

    Raises:
      ValueError: `enqueue_ops` is empty, or there is neither a queue nor the two operations.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.FIFOQueue(10, [hr.int32])
      ...     runner = hr.train.QueueRunner(queue, [queue.enqueue(1)] * 2)
      >>> len(runner.enqueue_ops)
      2
    """

    def __init__(
        self,
        queue: Any = None,
        enqueue_ops: Sequence[Any] = (),
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: Sequence[type[BaseException]] | None = None,
    ) -> None:
        if not enqueue_ops:
            raise ValueError("QueueRunner needs enqueue_ops: a list with one operation for each thread")
        if queue is None and (close_op is None or cancel_op is None):
            raise ValueError("QueueRunner needs a queue, or a close_op and a cancel_op")
        self.queue = queue
        self.enqueue_ops = list(enqueue_ops)
        self.close_op = queue.close() if close_op is None else close_op
        self.cancel_op = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        self._closed = tuple(queue_closed_exception_types or (OutOfRangeError,))
        self._lock = threading.Lock()
        self._running: dict[int, int] = {}  # number of running threads, by id of the session
        self._errors: list[BaseException] = []

    @property
    def name(self) -> str:
        """Name of the queue."""
        name: str = self.queue.name
        return name

    @property
    def queue_closed_exception_types(self) -> tuple[type[BaseException], ...]:
        """Exceptions that mean the end of the data."""
        return self._closed

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """Errors of the enqueue operations in threads without a coordinator."""
        return list(self._errors)

    def has_run(self, sess: Any) -> bool:
        """Whether threads of the queue runner were created in a session."""
        return id(sess) in self._running

    def create_threads(
        self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Creates the threads that run the enqueue operations in a session.

        Args:
          sess: the session.
          coord: coordinator that registers the threads, stops them and receives their errors, or None.
          daemon: whether the threads are daemon threads, which do not keep the program alive.
          start: whether to start the threads.

        Returns:
          The threads. The list is empty if threads of an earlier call still run in `sess`.
        """
        with self._lock:
            if self._running.get(id(sess), 0) > 0:
                return []
            self._running[id(sess)] = len(self.enqueue_ops)
            self._errors = []
        threads = [
            threading.Thread(
                target=self._run, args=(sess, op, coord), daemon=daemon, name=f"QueueRunner-{self.name}-{i}"
            )
            for i, op in enumerate(self.enqueue_ops)
        ]
        if coord is not None:
            name = f"QueueRunner-{self.name}-cancel"
            threads.append(threading.Thread(target=self._cancel, args=(sess, coord), daemon=True, name=name))
            for t in threads:
                coord.register_thread(t)
        if start:
            for t in threads:
                t.start()
        return threads

    def _run(self, sess: Any, enqueue_op: Any, coord: Coordinator | None) -> None:
        is_counted = True
        try:
            enqueue = sess.make_callable(enqueue_op)  # `run` without the look-ups
            while coord is None or not coord.should_stop():
                try:
                    enqueue()
                except self._closed:
                    with self._lock:
                        self._running[id(sess)] -= 1
                        is_counted = False
                        is_last = not self._running[id(sess)]
                    if is_last:
                        self._close(sess)
                    return
        except Exception as e:
            if coord is not None and coord.joined:
                _log.debug("the queue runner of %s has stopped late: %s", self.name, e)  # `join` has returned already
            elif coord is not None:
                coord.request_stop(e)
            else:
                _log.error("the queue runner of %s has stopped: %s", self.name, e)
                with self._lock:
                    self._errors.append(e)
        finally:
            if is_counted:
                with self._lock:
                    self._running[id(sess)] -= 1

    def _close(self, sess: Any) -> None:
        try:
            sess.run(self.close_op)
        except (CancelledError, RuntimeError) as e:  # the session has been closed
            _log.debug("closing the queue %s: %s", self.name, e)

    def _cancel(self, sess: Any, coord: Coordinator) -> None:
        """Waits for a stop request, then cancels pending enqueue operations."""
        while not coord.wait_for_stop(1.0):
            with self._lock:
                if not self._running.get(id(sess)):
                    return
        try:
            sess.run(self.cancel_op)
        except (CancelledError, RuntimeError) as e:
            _log.debug("cancelling the queue %s: %s", self.name, e)
