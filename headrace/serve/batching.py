"""Batches: requests of one signature that wait run as one step.

A step costs a fixed time and a time for each row. Rows of several requests that arrive while a step runs, or in one
turn of the event loop, are joined along axis 0, and the results are cut again. No request waits for further ones unless
`delay` is positive: on an idle server each runs alone, and under load batches form by themselves.

A batch fails as a whole, and one malformed request must not fail the others. So after an error each request of the
batch runs alone, unless the error is about time or memory, which another run makes worse.

Steps with an expected time below `INLINE_SECONDS` run in the thread of the event loop, because a change of threads
takes as long. All other requests wait for that thread, and the time of a step with loops depends on its arguments. So
the step has `MOST_INLINE_SECONDS` there; then it starts again in another thread. Steps with effects cannot start twice,
and run in other threads only.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np

from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
)
from headrace.records import record

INLINE_SECONDS: Final = 1e-3
MOST_INLINE_SECONDS: Final = 2e-2
_LEARNING: Final = 0.2  # weight of the newest step in the mean of their times
_FINAL: Final = (DeadlineExceededError, ResourceExhaustedError, CancelledError, UnavailableError, MemoryError)

Run = Callable[[Sequence[np.ndarray], int], list[np.ndarray]]


@record(slots=True)
class _Waiting:
    """A request in the queue.

    Attributes:
      inputs: its arguments.
      rows: their size on axis 0.
      kind: dtypes and shapes of a row; requests of different kinds cannot be joined.
      future: its results.
      until: the end of its time, by `time.monotonic`.
    """

    inputs: list[np.ndarray]
    rows: int
    kind: Any
    future: asyncio.Future[list[np.ndarray]]
    until: float


class Batcher:
    """Queue of the requests of one signature.

    Args:
      run: a function from arguments and a time limit in milliseconds to results; called in this thread, or in those of
        `executor`.
      executor: threads for long steps.
      most_rows: the largest batch, in rows; 0: each request runs alone.
      delay: the longest wait for further requests, in seconds.
      most_waiting: the largest number of requests in the queue; more fail with `UnavailableError`.
      seconds: time of a request in the queue and in its step; later it fails with `DeadlineExceededError`.
      parallel: steps that may run at the same time in `executor`.
      is_repeatable: whether a step has no effects.
    """

    def __init__(
        self,
        run: Run,
        executor: Executor,
        *,
        most_rows: int = 0,
        delay: float = 0.0,
        most_waiting: int = 1000,
        seconds: float = 60.0,
        parallel: int = 1,
        is_repeatable: bool = True,
    ) -> None:
        self._run = run
        self._executor = executor
        self._most_rows = most_rows
        self._delay = delay
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._parallel = parallel
        self._is_repeatable = is_repeatable
        self._queue: deque[_Waiting] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._running = 0
        self._mean = 1.0  # of the times of steps, in seconds; a first step is compiled
        self._idle: asyncio.Future[None] | None = None

    def submit(self, inputs: list[np.ndarray]) -> asyncio.Future[list[np.ndarray]]:
        """Queues a request; returns the future of its results.

        Args:
          inputs: the arguments in the order of the signature.

        Raises:
          UnavailableError: the queue is full.
        """
        if len(self._queue) >= self._most_waiting:
            raise UnavailableError(f"{self._most_waiting} requests are waiting; try again later")
        future: asyncio.Future[list[np.ndarray]] = self._loop.create_future()
        rows, kind = 1, None  # type: int, object
        if self._most_rows:
            rows = len(inputs[0])
            kind = tuple([(x.dtype, x.shape[1:]) for x in inputs])
            if any(len(x) != rows for x in inputs):
                kind = object()  # not joined with others; the step says what it does not like
        self._queue.append(_Waiting(inputs, rows, kind, future, time.monotonic() + self._seconds))
        if not self._is_scheduled:
            self._is_scheduled = True
            if self._delay:
                self._loop.call_later(self._delay, self._flush)
            else:
                self._loop.call_soon(self._flush)
        return future

    async def finished(self) -> None:
        """Waits until no request is queued or running."""
        while self._queue or self._running or self._is_scheduled:
            self._idle = self._loop.create_future()
            await self._idle

    def _flush(self) -> None:
        """Starts steps until the queue is empty or all threads are taken."""
        self._is_scheduled = False
        while self._queue and self._running < self._parallel:
            batch = self._take()
            if not batch:
                continue
            if self._mean < INLINE_SECONDS and not self._running and self._is_repeatable:
                outcomes, seconds = self._outcomes(batch, MOST_INLINE_SECONDS)
                if not any(isinstance(x, DeadlineExceededError) for x in outcomes):
                    self._end(batch, outcomes, seconds)
                    continue
            self._running += 1
            started = self._loop.run_in_executor(self._executor, self._outcomes, batch, self._seconds)
            started.add_done_callback(functools.partial(self._done, batch))
        if self._idle is not None and not (self._queue or self._running):
            self._idle.set_result(None)
            self._idle = None

    def _take(self) -> list[_Waiting]:
        """The requests of the next step: the oldest, and others of its kind that fit."""
        out: list[_Waiting] = []
        rows, now = 0, time.monotonic()
        while self._queue:
            first = self._queue[0]
            if out and (first.kind != out[0].kind or rows + first.rows > self._most_rows):
                break
            self._queue.popleft()
            if first.future.done():  # the connection has ended
                continue
            if first.until < now:
                first.future.set_exception(DeadlineExceededError(f"the request waited {self._seconds:g} s"))
                continue
            out.append(first)
            rows += first.rows
            if not self._most_rows:
                break
        return out

    def _outcomes(self, batch: list[_Waiting], most: float) -> tuple[list[Any], float]:
        """Runs a batch for at most `most` seconds; returns outcomes and the time taken."""
        began = time.perf_counter()
        found = self._joined(batch, most)
        if found is None:
            found = [self._outcome(w.inputs, [w], most) for w in batch]
        return found, time.perf_counter() - began

    def _joined(self, batch: list[_Waiting], most: float) -> list[Any] | None:
        """Runs several requests as one step; None if each has to run alone."""
        if len(batch) == 1:
            return None
        joined = [np.concatenate(parts) for parts in zip(*[w.inputs for w in batch], strict=True)]
        values = self._outcome(joined, batch, most)
        found: list[Any] | BaseException = values if isinstance(values, BaseException) else _cut(values, batch)
        if isinstance(found, _FINAL):
            return [found] * len(batch)
        return None if isinstance(found, BaseException) else found

    def _outcome(self, inputs: list[np.ndarray], batch: list[_Waiting], most: float) -> Any:
        left = min(w.until for w in batch) - time.monotonic()
        if left <= 0:
            return DeadlineExceededError(f"the request waited {self._seconds:g} s")
        try:
            return self._run(inputs, max(1, int(1000 * min(left, most))))
        except Exception as e:
            return e

    def _done(self, batch: list[_Waiting], done: asyncio.Future[Any]) -> None:
        self._running -= 1
        error = done.exception()
        if error is not None:
            self._end(batch, [error] * len(batch), self._mean)
        else:
            self._end(batch, *done.result())
        if not self._is_scheduled:
            self._flush()

    def _end(self, batch: list[_Waiting], outcomes: list[Any], seconds: float) -> None:
        self._mean += (seconds - self._mean) * (1.0 if seconds > self._mean else _LEARNING)
        for w, outcome in zip(batch, outcomes, strict=True):
            if w.future.done():
                continue
            if isinstance(outcome, BaseException):
                w.future.set_exception(outcome)
            else:
                w.future.set_result(outcome)


def _cut(values: Sequence[np.ndarray], batch: Sequence[_Waiting]) -> list[list[np.ndarray]] | OpError:
    """Cuts the results of a batch at the rows of its requests."""
    total = sum(w.rows for w in batch)
    if any(np.ndim(v) == 0 or len(v) != total for v in values):
        return InternalError("the results of the batch have another number of rows")
    out, start = [], 0
    for w in batch:
        out.append([v[start : start + w.rows] for v in values])
        start += w.rows
    return out
