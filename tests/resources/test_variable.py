"""`resources.variable`: values that are replaced, never written."""

import threading

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.resources.variable import Ref, Variable, update_together


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
