"""The account of a device: its counts, its refusals, and the swapped values.

The order in which values leave is tested too.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, flags, thresholds
from headrace.errors import CancelledError, DataLossError, DeadlineExceededError, ResourceExhaustedError
from headrace.execute.step import Step
from headrace.resources import memory as memories
from headrace.resources.memory import Memory, SpilledTensor
from headrace.resources.step_memory import StepMemory
from headrace.resources.tensor_list import TensorList
from headrace.resources.variable import CountedVariable

N = 8192  # bytes of a value
ROOM = 16 * N


class ByHand:
    """A stream whose work is done when a test says so."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], object]] = []

    def __call__(self, work: Callable[[], object]) -> None:
        self.queue.append(work)

    def go(self) -> None:
        while self.queue:
            self.queue.pop(0)()


@pytest.fixture
def stream() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def value(k: int, n: int = N) -> np.ndarray:
    return np.full(n // 8, k, np.float64)


def states(saved: list[SpilledTensor]) -> list[str]:
    return [s._record.state for s in saved]


def test_what_is_saved_counts_until_it_goes() -> None:
    memory = Memory("/device:CPU:0", None)
    use = StepMemory(memory)
    a, b = use.save(value(1), "a", False), use.save(np.float32(2), "b", True)
    assert memory.held == N + 4
    np.testing.assert_array_equal(a.value(), value(1))
    assert b.value() == 2
    del a
    assert memory.held == 4
    del b
    assert (memory.held, memory.peak) == (0, N + 4)
    assert use.save("not an array", "c", True) == "not an array"


def test_one_byte_too_many_is_refused_with_what_is_held() -> None:
    memory = Memory("/device:CPU:0", 2 * N)
    use = StepMemory(memory)
    memory.change("variable 'v'", 0, N)
    a = use.save(value(1), "'x:0' of loop 'l' (f.py:3)", False)
    with pytest.raises(ResourceExhaustedError) as failed:
        use.save(np.int8(1), "'y:0' of loop 'm' (f.py:4)", False)
    text = str(failed.value)
    for part in (
        "/device:CPU:0 would exceed its memory limit of 16,384 bytes",
        "'y:0' of loop 'm' (f.py:4) asks for 1 bytes",
        "16,384 bytes are held",
        "8,192 for 'x:0' of loop 'l' (f.py:3)",
        "8,192 for variable 'v'",
        "swap_memory=True",
        "hr.recompute('sqrt')",
        "memory_limit",
    ):
        assert part in text
    del a
    memory.change("variable 'v'", N, 2 * N)
    assert memory.held == memory.peak == 2 * N


def test_the_oldest_leave_first_when_three_quarters_are_full() -> None:
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(13)]
    assert states(saved) == ["leaving"] * 2 + ["resident"] * 11  # a sixteenth more than need be
    hand.go()
    assert states(saved)[:2] == ["away"] * 2
    assert memory.held == 11 * N
    assert memory.spilled == 2 * N
    saved += [use.save(value(k), "x", True) for k in range(13, 16)]
    hand.go()
    assert states(saved) == ["away"] * 4 + ["resident"] * 12
    np.testing.assert_array_equal(saved[2].value(), value(2))
    assert memory.peak <= ROOM


def test_what_may_not_swap_and_what_is_small_stays() -> None:
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    stay = [use.save(value(k), "x", False) for k in range(8)] + [use.save(value(9, 800), "y", True)]
    go = [use.save(value(k), "z", True) for k in range(7)]
    hand.go()
    assert set(states(stay)) == {"resident"}
    assert states(go)[:3] == ["away"] * 3
    with pytest.raises(ResourceExhaustedError, match="All that can be swapped is; arrays of less than 4,096 bytes"):
        Memory("cpu", 700, hand).save(use, value(1, 800), "y", True)


def test_what_comes_back_is_in_the_file_still() -> None:
    """So if it leaves again nothing is written; and each may read it often."""
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(13)]
    hand.go()
    assert saved[0].want()
    assert not saved[1].want()  # there is room only for values that are newly saved
    assert saved[0]._record.state == "coming"
    np.testing.assert_array_equal(saved[0].value(), value(0))  # it does not wait for its turn
    assert saved[0]._record.state == "resident"
    hand.go()
    used = memory.spilled
    saved += [use.save(value(k), "x", True) for k in range(13, 14)]
    hand.queue.clear()
    assert saved[0]._record.state == "away"  # it was read, and so is needed last: it left first, without a copy
    np.testing.assert_array_equal(saved[0].value(), value(0))
    assert memory.spilled == used


def test_who_is_asked_for_soon_does_not_leave() -> None:
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(13)]
    assert states(saved)[0] == "leaving"
    assert saved[0].want()
    hand.go()
    assert states(saved)[:2] == ["resident", "away"]


def test_what_goes_while_it_is_copied_leaves_nothing_behind() -> None:
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(16)]
    del saved[:2]  # leaving
    hand.go()
    assert states(saved[:2]) == ["away"] * 2
    del saved[2:6]
    assert saved[0].want()
    assert saved[1].want()
    del saved[0]  # coming
    hand.go()
    saved.clear()
    assert memory.held == memory.spilled == 0
    assert memory._leaving == memory._coming == 0
    assert not memory._allocations
    assert not memory._resident


def test_who_wants_room_waits_for_the_copies(stream: ThreadPoolExecutor) -> None:
    memory = Memory("cpu", ROOM, stream.submit)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(500)]
    assert memory.peak <= ROOM
    assert memory.spilled >= (500 - 16) * N
    for k in reversed(range(500)):
        memories.prefetch(saved, k - 1, -1)
        np.testing.assert_array_equal(saved[k].value(), value(k))
        saved.pop()
    assert memory.peak <= ROOM
    assert memory.held == memory.spilled == 0


def test_a_step_that_waits_can_be_cancelled() -> None:
    memory = Memory("cpu", ROOM, ByHand())  # copies never come to an end
    step = Step(None, lambda: None)
    use = StepMemory(memory, step)
    saved = [use.save(value(k), "x", True) for k in range(16)]
    timer = threading.Timer(0.1, step.cancel, (CancelledError("stop"),))
    timer.start()
    with pytest.raises(CancelledError, match="stop"):
        use.save(value(99), "x", True)
    step.cancelled, step.deadline = None, 0.0
    with pytest.raises(DeadlineExceededError, match="waited for a copy"):
        use.save(value(99), "x", True)
    assert len(saved) == 16


def test_a_disk_that_is_full_is_told(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, stream: ThreadPoolExecutor
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.resources.spill.os.pwritev", full)
    memory = Memory("cpu", ROOM, stream.submit)
    use = StepMemory(memory)
    saved: list[SpilledTensor] = []
    with pytest.raises(ResourceExhaustedError, match=r"No space left on device.*HEADRACE_SPILL_FOLDER"):
        saved.extend(use.save(value(k), "x", True) for k in range(100))
    assert len(saved) <= 16
    assert [s.value()[0] for s in saved] == list(range(len(saved)))
    saved.clear()
    stream.submit(int).result()  # further copies may be under way: each fails and frees its slot
    assert memory.held == memory.spilled == 0
    with flags.override(SPILL_FOLDER=str(tmp_path / "nowhere")):
        use = StepMemory(Memory("cpu", ROOM, stream.submit))
        with pytest.raises(ResourceExhaustedError, match="nowhere"):
            saved += [use.save(value(k), "x", True) for k in range(100)]


def test_what_cannot_be_read_again_is_told() -> None:
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(13)]
    hand.go()
    memory.close()
    memory.close()
    for _ in range(2):
        with pytest.raises(DataLossError, match="x was swapped, and cannot be read again"):
            saved[0].value()
    saved.clear()
    assert memory.held == 0


def test_a_listener_that_fails_does_not_end_the_copies(stream: ThreadPoolExecutor) -> None:
    def fail(_: Any) -> None:
        raise ValueError("a listener")

    memory = Memory("cpu", ROOM, stream.submit)
    use = StepMemory(memory, None, fail)
    saved = [use.save(value(k), "x", True) for k in range(100)]
    assert len(saved) == 100
    assert memory.peak <= ROOM


def test_notes_do_not_grow() -> None:
    memory = Memory("cpu", ROOM)
    use = StepMemory(memory)
    saved = [use.save(np.float32(1), "x", True) for _ in range(2000)]
    saved.clear()
    assert len(memory._notes) <= thresholds.RELEASE_NOTES + 1


@pytest.mark.system
def test_many_threads(stream: ThreadPoolExecutor) -> None:
    """Threads save, read and drop values, of which the memory holds an eighth."""
    memory = Memory("cpu", 2 * ROOM, stream.submit)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        use, saved = StepMemory(memory), {}
        try:
            for k in range(300):
                saved[k] = use.save(value(seed * 1000 + k, int(rng.integers(1, 3)) * N), f"thread {seed}", True)
                if len(saved) > 60:
                    chosen = int(rng.choice(list(saved)))
                    if rng.random() < 0.5:
                        saved[chosen].want()
                    assert saved[chosen].value()[0] == seed * 1000 + chosen
                    if rng.random() < 0.7:
                        del saved[chosen]
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert not errors
    gc.collect()
    until = time.monotonic() + 10
    while (memory.held or memory.spilled) and time.monotonic() < until:
        time.sleep(0.01)
    assert memory.held == memory.spilled == 0
    assert memory.peak <= 2 * ROOM


# *** in lists and variables ***


def test_lists_give_values_wherever_they_are(stream: ThreadPoolExecutor) -> None:
    memory = Memory("cpu", ROOM, stream.submit)
    use, n = StepMemory(memory), 40
    full = TensorList(dtypes.float64, (N // 8,))
    for k in range(n):
        full = full.push(use.save(value(k), "x", True))
    assert memory.spilled > 0
    rest = full
    for k in reversed(range(n)):
        rest, got = rest.pop()
        np.testing.assert_array_equal(got, value(k))
    for k in range(n):  # the popped elements are still in the other list
        np.testing.assert_array_equal(full.get(k), value(k))
    every = np.stack([value(k) for k in range(n)])
    np.testing.assert_array_equal(full.stack(), every)
    np.testing.assert_array_equal(full.gather(np.array([3, 0])), every[[3, 0]])
    np.testing.assert_array_equal(full.concat()[0], every.ravel())
    np.testing.assert_array_equal(full.add(full).stack(), 2 * every)
    assert full.zeros_like().get(0).shape == (N // 8,)
    assert memory.peak <= ROOM
    del full, rest, got
    assert memory.held == memory.spilled == 0


def test_elements_come_back_before_they_are_asked_for() -> None:
    hand = ByHand()
    memory = Memory("cpu", ROOM, hand)
    use = StepMemory(memory)
    saved = [use.save(value(k), "x", True) for k in range(14)]
    for k in range(14, 30):
        hand.go()
        saved.append(use.save(value(k), "x", True))
    hand.go()
    items: list[Any] = saved[:16]
    del saved[16:]
    assert set(states(saved[:14])) == {"away"}
    use.pop(items)
    assert states(saved[15 - thresholds.PREFETCHED_ELEMENTS : 15]) == ["coming"] * thresholds.PREFETCHED_ELEMENTS
    assert states(saved[: 15 - thresholds.PREFETCHED_ELEMENTS]) == ["away"] * (15 - thresholds.PREFETCHED_ELEMENTS)
    nested: list[Any] = [items, [saved[0]]]
    assert use.pop(nested) == [saved[0]]
    assert use.get(5) == 5
    assert use.get(saved[3])[0] == 3


def test_a_variable_is_refused_before_it_changes() -> None:
    memory = Memory("cpu", 3 * N)
    v = CountedVariable("v", dtypes.float64, None, memory)
    v.assign(value(1))
    assert v.read()[0] == 1
    with pytest.raises(ResourceExhaustedError, match="variable 'v' asks for 24,576 bytes"):
        v.assign(value(2, 4 * N))
    with pytest.raises(ResourceExhaustedError, match="variable 'v'"):
        v.update(lambda x: np.tile(x, 4))
    assert v.read()[0] == 1
    v.update(lambda x: np.tile(x, 3))
    assert memory.held == 3 * N
    v.release()
    assert memory.held == 0
    assert not v.is_initialized
