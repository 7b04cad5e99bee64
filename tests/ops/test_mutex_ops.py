"""Mutexes: steps take turns, in the order in which they came.

A lock ends with its tensor or its step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import headrace as hr
from headrace.api.py_func import py_func
from headrace.errors import CancelledError, DeadlineExceededError, InvalidArgumentError
from headrace.resources.mutex import Mutex
from tests.ops.running import Program


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def test_steps_take_turns(p: Program) -> None:
    """Two threads read, wait a little and write.

    Without the lock they would overwrite each other.
    """
    mutex = p.b.MutexV2(shared_name="m")
    v = p.b.VarHandleOp(dtype=hr.int32, shape=(), shared_name="v")
    lock = p.b.MutexLock(mutex)

    def slowly(x: int) -> int:
        time.sleep(0.001)
        return x

    read = p.b.after(lock).ReadVariableOp(v, dtype=hr.int32)
    kept = py_func(slowly, [read], hr.int32, stateful=False)
    write = p.b.AssignVariableOp(v, p.b.AddV2(kept, 1))
    done = p.b.after(write).ConsumeMutexLock(lock)
    p.run(p.b.AssignVariableOp(v, 0))
    threads = [threading.Thread(target=lambda: [p.run(done) for _ in range(15)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert p.run(p.b.ReadVariableOp(v, dtype=hr.int32)) == 60


def test_a_lock_that_nobody_reads_any_more_ends(p: Program) -> None:
    lock = p.b.MutexLock(p.b.MutexV2(shared_name="m"))
    second = p.b.after(lock).MutexLock(p.b.MutexV2(shared_name="m"))
    last = p.b.after(second).NoOp()
    for _ in range(3):
        p.run(last, timeout_ms=5000)


def test_a_lock_ends_with_its_step(p: Program) -> None:
    lock = p.b.MutexLock(p.b.MutexV2(shared_name="m"))
    wrong = p.b.after(lock).Assert(p.feed(False), [p.feed("wrong")])
    end = p.b.after(wrong).ConsumeMutexLock(lock)
    free = p.b.ConsumeMutexLock(lock)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError):
            p.run(end)
    p.run(free, timeout_ms=5000)


def test_waiting_can_be_given_up(p: Program) -> None:
    first = p.b.MutexLock(p.b.MutexV2(shared_name="m"))
    second = p.b.after(first).MutexLock(p.b.MutexV2(shared_name="m"))
    both = p.b.after(p.b.ConsumeMutexLock(second)).ConsumeMutexLock(first)
    with pytest.raises(DeadlineExceededError, match="MutexLock"):
        p.run(both, timeout_ms=50)
    p.run(p.b.ConsumeMutexLock(first), timeout_ms=5000)


def test_what_is_no_lock(p: Program) -> None:
    with p.fails(InvalidArgumentError, "Expected what MutexLock gives"):
        p.run(p.b.ConsumeMutexLock(p.b.OptionalNone()))
    with p.fails(InvalidArgumentError, "as a Mutex, but it is a Variable"):
        p.run(p.b.MutexLock(p.b.VarHandleOp(dtype=hr.float32, shape=(), shared_name="v")))


# *** the resource by itself ***


def test_first_come_first_served() -> None:
    mutex = Mutex("m")
    got: list[object] = []
    for _ in range(3):
        mutex.lock(got.append)
    give_up = mutex.lock(got.append)
    assert len(got) == 1
    assert give_up()
    assert isinstance(got[1], CancelledError)
    assert not give_up()
    first = got.pop(0)
    first.release()  # type: ignore[attr-defined]
    first.release()  # type: ignore[attr-defined]
    assert len(got) == 2
    del first
    assert mutex.is_held
    got.clear()  # the second hold is forgotten: the third is given, into the list, and stays
    assert len(got) == 1
    assert repr(mutex) == "Mutex('m', held, 0 waiting)"
    mutex.lock(got.append)
    mutex.release()
    assert isinstance(got[1], CancelledError)
    got.clear()
    assert not mutex.is_held
