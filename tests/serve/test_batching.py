"""Batches: which requests run as one step, and what an error does to the others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from headrace.errors import DeadlineExceededError, InternalError, InvalidArgumentError, UnavailableError
from headrace.serve.batching import Batcher

SECONDS = 20.0  # the longest wait of a test


class Steps:
    """The steps of a batcher: doubles its argument, and fails for negative numbers.

    Attributes:
      rows: the number of rows of each step.
      hold: a step waits for it.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        assert self.hold.wait(timeout_ms / 1000)
        self.rows.append(len(inputs[0]))
        if (inputs[0] < 0).any():
            raise InvalidArgumentError("negative")
        return [inputs[0] * 2]


def run(body: Callable[[Callable[..., Batcher]], Coroutine[Any, Any, Any]]) -> None:
    """Runs a coroutine function, to which a factory of batchers is passed."""
    with ThreadPoolExecutor(4) as executor:
        make = lambda f, **options: Batcher(f, executor, **options)
        asyncio.run(asyncio.wait_for(body(make), SECONDS))


def test_requests_of_one_turn_are_one_step() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100)
        futures = [batcher.submit([np.full((k, 2), k)]) for k in (1, 2, 3)]
        for k, (result,) in zip((1, 2, 3), await asyncio.gather(*futures), strict=True):
            assert result.tolist() == np.full((k, 2), 2 * k).tolist()

    run(body)
    assert steps.rows == [6]


def test_a_batch_has_at_most_its_rows() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=4)
        await asyncio.gather(*[batcher.submit([np.zeros(k)]) for k in (3, 1, 2, 3, 9)])

    run(body)
    assert steps.rows == [4, 2, 3, 9]


def test_requests_that_wait_for_a_step_are_the_next_one() -> None:
    steps = Steps()
    steps.hold.clear()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100)
        futures = [batcher.submit([np.zeros(1)])]
        await asyncio.sleep(0.01)
        for _ in range(5):
            futures.append(batcher.submit([np.zeros(1)]))
            await asyncio.sleep(0)
        steps.hold.set()
        await asyncio.gather(*futures)

    run(body)
    assert steps.rows == [1, 5]


def test_requests_of_other_shapes_or_dtypes_are_not_joined() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100)
        given = [np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 3)), np.zeros((1, 3), np.int32)]
        results = await asyncio.gather(*[batcher.submit([x]) for x in given])
        assert [r.dtype for (r,) in results] == [x.dtype for x in given]

    run(body)
    assert steps.rows == [2, 1, 1]


def test_arguments_of_different_rows_run_alone() -> None:
    seen = []

    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        del timeout_ms
        seen.append([len(x) for x in inputs])
        return [inputs[0]]

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step, most_rows=100)
        await asyncio.gather(*[batcher.submit([np.zeros(2), np.zeros(3)]) for _ in range(2)])

    run(body)
    assert seen == [[2, 3], [2, 3]]


def test_without_batches_each_request_runs_alone() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps)
        await asyncio.gather(*[batcher.submit([np.zeros(1)]) for _ in range(3)])

    run(body)
    assert steps.rows == [1, 1, 1]


def test_an_error_reaches_only_its_request() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100)
        futures = [batcher.submit([np.array([x])]) for x in (1, -1, 3)]
        first, second, third = await asyncio.gather(*futures, return_exceptions=True)
        assert (first[0][0], third[0][0]) == (2, 6)  # type: ignore[index]
        assert isinstance(second, InvalidArgumentError)

    run(body)
    assert steps.rows == [3, 1, 1, 1]


def test_an_error_about_time_is_not_tried_again() -> None:
    calls = []

    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        calls.append((len(inputs[0]), timeout_ms))
        raise DeadlineExceededError("late")

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step, most_rows=100)
        found = await asyncio.gather(*[batcher.submit([np.zeros(1)]) for _ in range(3)], return_exceptions=True)
        assert all(isinstance(e, DeadlineExceededError) for e in found)

    run(body)
    assert len(calls) == 1


def test_results_of_another_number_of_rows_are_those_of_single_steps() -> None:
    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        del timeout_ms
        return [inputs[0].sum(keepdims=True)]

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step, most_rows=100)
        found = await asyncio.gather(*[batcher.submit([np.array([k])]) for k in (1, 2)])
        assert [x[0].tolist() for x in found] == [[1], [2]]

    run(body)


def test_a_full_queue_refuses() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100, most_waiting=2)
        futures = [batcher.submit([np.zeros(1)]) for _ in range(2)]
        with pytest.raises(UnavailableError, match="2 requests are waiting; try again later"):
            batcher.submit([np.zeros(1)])
        await asyncio.gather(*futures)
        await batcher.submit([np.zeros(1)])

    run(body)


def test_a_request_has_a_deadline_in_the_queue() -> None:
    steps = Steps()
    steps.hold.clear()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100, seconds=0.05)
        first = batcher.submit([np.zeros(1)])
        await asyncio.sleep(0.01)
        second = batcher.submit([np.zeros(1)])
        errors = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(errors[0], AssertionError)  # the step's own wait
        assert isinstance(errors[1], (DeadlineExceededError, AssertionError))

    run(body)


def test_a_cancelled_request_does_not_run() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100)
        gone, kept = batcher.submit([np.zeros(1)]), batcher.submit([np.zeros(2)])
        gone.cancel()
        await kept

    run(body)
    assert steps.rows == [2]


def test_a_delay_collects_requests() -> None:
    steps = Steps()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=100, delay=0.05)
        futures = [batcher.submit([np.zeros(1)])]
        await asyncio.sleep(0.005)
        futures.append(batcher.submit([np.zeros(1)]))
        await asyncio.gather(*futures)

    run(body)
    assert steps.rows == [2]


def test_parallel_steps_run_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        both.wait(timeout_ms / 1000)
        return [inputs[0]]

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step, parallel=2, seconds=SECONDS)
        found = await asyncio.gather(*[batcher.submit([np.full(1, k)]) for k in (1, 2)])
        assert [x[0].tolist() for x in found] == [[1], [2]]  # of steps alone the barrier is broken

    run(body)


def test_short_steps_run_in_the_thread_of_the_event_loop() -> None:
    threads = []

    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        del timeout_ms
        threads.append(threading.get_ident())
        return [inputs[0]]

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step)
        for _ in range(60):
            await batcher.submit([np.zeros(1)])

    run(body)
    assert threads[0] != threading.get_ident()  # the first one is compiled and takes long
    assert threads[-1] == threading.get_ident()


def test_a_step_that_takes_longer_than_expected_leaves_the_event_loop() -> None:
    calls = []

    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        calls.append((threading.get_ident(), timeout_ms))
        if inputs[0][0] and timeout_ms < 1000:
            raise DeadlineExceededError("the time is over")
        return [inputs[0]]

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step)
        for _ in range(60):
            await batcher.submit([np.zeros(1)])
        assert (await batcher.submit([np.ones(1)]))[0] == 1

    run(body)
    assert calls[-2] == (threading.get_ident(), 20)
    assert calls[-1][0] != threading.get_ident()
    assert calls[-1][1] > 1000


def test_a_step_with_effects_never_runs_in_the_event_loop() -> None:
    threads = set()

    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        del timeout_ms
        threads.add(threading.get_ident())
        return [inputs[0]]

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(step, is_repeatable=False)
        for _ in range(60):
            await batcher.submit([np.zeros(1)])

    run(body)
    assert threading.get_ident() not in threads


def test_finished_waits_for_all_requests() -> None:
    steps = Steps()
    steps.hold.clear()

    async def body(make: Callable[..., Batcher]) -> None:
        batcher = make(steps, most_rows=1)
        futures = [batcher.submit([np.zeros(1)]) for _ in range(3)]
        asyncio.get_running_loop().call_later(0.02, steps.hold.set)
        await batcher.finished()
        assert all(f.done() for f in futures)
        await batcher.finished()  # of an idle one returns at once

    run(body)


def test_an_exception_that_is_no_error_of_headrace_reaches_the_request() -> None:
    def step(inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        raise ZeroDivisionError

    async def body(make: Callable[..., Batcher]) -> None:
        with pytest.raises(ZeroDivisionError):
            await make(step).submit([np.zeros(1)])

    run(body)


def test_internal_error_is_the_text_of_wrong_rows() -> None:
    from headrace.serve.batching import _cut, _Waiting

    w = _Waiting([np.zeros(1)], 1, None, None, time.monotonic())  # type: ignore[arg-type]
    assert isinstance(_cut([np.zeros(3)], [w]), InternalError)
