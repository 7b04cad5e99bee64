"""`resources.variable`: values that are replaced, and written only where nothing else refers to them."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.resources.variable import FedVariable, Ref, Variable, change_together, update_together


def test_reading_before_assigning_names_the_variable():
    v = Variable("weights", dtypes.float32, (2,))
    assert not v.is_initialized
    with pytest.raises(FailedPreconditionError, match="Attempting to use uninitialized value weights"):
        v.read()
    with pytest.raises(FailedPreconditionError, match="weights"):
        v.update(lambda x: x)


def test_assign_and_read():
    v = Variable("v", dtypes.float32.ref, (2,))
    x = np.float32([1, 2])
    v.assign(x)
    assert v.read() is x
    assert v.dtype is dtypes.float32
    v.release()
    assert not v.is_initialized


def test_what_was_read_stays():
    v = Variable("v", dtypes.int32, (3,))
    v.assign(np.int32([1, 2, 3]))
    before = v.read()
    assert v.update(lambda x: x + np.int32(1)).tolist() == [2, 3, 4]
    assert before.tolist() == [1, 2, 3]
    assert v.read().tolist() == [2, 3, 4]


def test_an_update_that_fails_changes_nothing():
    v = Variable("v", dtypes.int32, ())
    v.assign(np.int32(5))
    with pytest.raises(ZeroDivisionError):
        v.update(lambda x: 1 // 0)
    assert v.read() == 5


def test_shapes_are_kept_when_asked():
    v = Variable("v", dtypes.float32, (2, None))
    with pytest.raises(
        InvalidArgumentError, match=r"shapes of both tensors to match. lhs shape= \[2,\?\] rhs shape= \[3\]"
    ):
        v.assign(np.zeros(3, np.float32), same_shape=True)
    v.assign(np.zeros((2, 5), np.float32), same_shape=True)
    with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[2,5\]"):
        v.assign(np.zeros((2, 4), np.float32), same_shape=True)
    v.assign(np.zeros(3, np.float32))
    assert v.read().shape == (3,)


def test_a_wrong_dtype_is_refused():
    v = Variable("v", dtypes.float32, ())
    with pytest.raises(InvalidArgumentError, match=r"wrong dtype\. Expected float32 got int32"):
        v.assign(np.int32(1))


def test_updates_do_not_lose_each_other():
    v = Variable("v", dtypes.int64, ())
    v.assign(np.int64(0))

    def work():
        for _ in range(200):
            v.update(lambda x: x + np.int64(1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert v.read() == 800


def test_updates_of_several_at_once():
    a, b = (Variable(name, dtypes.int64, ()) for name in "ab")
    a.assign(np.int64(0))
    with pytest.raises(FailedPreconditionError, match="uninitialized value b"):
        update_together([a, b], lambda x, y: (x + np.int64(1), y))
    assert a.read() == 0
    b.assign(np.int64(0))

    def work(first, second):
        for _ in range(200):  # in either order: neither waits for the other forever
            update_together([first, second], lambda x, y: (x + np.int64(1), x + y))

    threads = [threading.Thread(target=work, args=args) for args in ((a, b), (b, a))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not any(t.is_alive() for t in threads)
    with pytest.raises(ZeroDivisionError):
        update_together([a, b], lambda x, y: 1 / 0)
    assert update_together([a], lambda x: (x * np.int64(0),)) is None
    assert a.read() == 0


def test_a_reference_reads_when_asked():
    v = Variable("v", dtypes.float32, ())
    r = Ref(v)
    assert "uninitialized" in repr(r)
    v.assign(np.float32(1))
    assert r.read() == 1
    v.assign(np.float32(2))
    assert r.read() == 2


# *** Changes in place ***


def put(row: int, value: int) -> Callable[[np.ndarray], None]:
    def fn(x: np.ndarray) -> None:
        x[row] = value

    return fn


def test_a_change_writes_into_a_value_that_only_the_variable_has() -> None:
    v = Variable("v", dtypes.int32, (3,))
    v.assign(np.zeros(3, np.int32))
    address = v.read().ctypes.data
    v.change(put(1, 5))
    assert (v.read().tolist(), v.read().ctypes.data) == ([0, 5, 0], address)


@pytest.mark.parametrize("held", [lambda x: x, lambda x: x[1:], lambda x: memoryview(x), lambda x: [x]])
def test_a_change_copies_a_value_with_other_references(held: Callable[[np.ndarray], Any]) -> None:
    v = Variable("v", dtypes.int32, (3,))
    v.assign(np.zeros(3, np.int32))
    other = held(v.read())
    v.change(put(1, 5))
    assert not np.any(np.asarray(other))
    assert v.read().tolist() == [0, 5, 0]


def test_a_change_copies_memory_that_is_not_its_own() -> None:
    v = Variable("v", dtypes.int32, (3,))
    memory = bytes(12)
    v.assign(np.frombuffer(memory, np.int32))
    v.change(put(1, 5))
    assert v.read().tolist() == [0, 5, 0]
    assert memory == bytes(12)
    fixed = np.zeros(3, np.int32)
    fixed.flags.writeable = False
    v.assign(fixed)
    del fixed
    v.change(put(2, 6))
    assert v.read().tolist() == [0, 0, 6]


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_change_that_raises_leaves_the_value(is_shared: bool) -> None:
    v = Variable("v", dtypes.int32, (3,))
    v.assign(np.arange(3, dtype=np.int32))
    other = v.read() if is_shared else None
    with pytest.raises(ZeroDivisionError):
        v.change(lambda x: 1 / 0)
    assert v.read().tolist() == [0, 1, 2]
    assert other is None or other is v.read()
    v.release()
    with pytest.raises(FailedPreconditionError):
        v.change(lambda x: None)
    assert not v.is_initialized


def test_a_read_waits_for_the_end_of_a_change() -> None:
    v = Variable("v", dtypes.int32, (2,))
    v.assign(np.zeros(2, np.int32))
    is_begun, found = threading.Event(), []

    def read() -> None:
        assert is_begun.wait(20)
        found.append((v.is_initialized, v.read().tolist()))

    def fn(x: np.ndarray) -> None:
        x[0] = 1
        is_begun.set()
        reader.join(0.01)
        assert reader.is_alive()
        x[1] = 1

    reader = threading.Thread(target=read)
    reader.start()
    v.change(fn)
    reader.join(20)
    assert found == [(True, [1, 1])]


def test_several_variables_change_together_or_not_at_all() -> None:
    a, b, c = (Variable(name, dtypes.int32, (2,)) for name in "abc")
    for v in (a, b):
        v.assign(np.zeros(2, np.int32))
    kept, address = b.read(), a.read().ctypes.data

    def fn(x: np.ndarray, y: np.ndarray) -> None:
        x[0], y[0] = 1, 2

    change_together([a, b], fn)
    assert (a.read().tolist(), b.read().tolist(), kept.tolist()) == ([1, 0], [2, 0], [0, 0])
    assert a.read().ctypes.data == address
    with pytest.raises(ZeroDivisionError):
        change_together([a, b], lambda x, y: 1 / 0)
    with pytest.raises(FailedPreconditionError, match="uninitialized value c"):
        change_together([a, c, b], lambda *_: None)
    assert (a.read().tolist(), b.read().tolist()) == ([1, 0], [2, 0])


def test_a_fed_variable_cannot_be_changed() -> None:
    v = FedVariable("v", dtypes.int32, (2,), np.zeros(2, np.int32))
    with pytest.raises(InvalidArgumentError, match="fed in this step"):
        v.change(put(0, 1))
    assert not np.any(v.read())
