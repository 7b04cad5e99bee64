"""`resources.queue_kinds`: padding, shuffling and priorities. How queues wait is tested in `test_queue.py`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import dtypes
from headrace.errors import InvalidArgumentError, OutOfRangeError
from headrace.resources.philox import Philox
from headrace.resources.queue_kinds import PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue

f32, i32, i64 = dtypes.float32, dtypes.int32, dtypes.int64


def put(q, *components):
    done = []
    q.enqueue(components, done.append)
    return done


def take(q):
    done = []
    q.dequeue(done.append)
    return done


def take_many(q, n, **kw):
    done = []
    q.dequeue_many(n, done.append, **kw)
    return done


def floats(*values):
    return np.array(values, np.float32)


# *** padding ***


def test_batches_are_padded():
    q = PaddingFIFOQueue("q", [f32, f32], [(None, 2), (1,)])
    put(q, floats([1, 2]), floats(7))
    put(q, floats([3, 4], [5, 6]), floats(8))
    put(q, np.zeros((0, 2), np.float32), floats(9))
    x, y = take_many(q, 3)[0]
    assert x.tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]], [[0, 0], [0, 0]]]
    assert y.tolist() == [[7], [8], [9]]
    x, y = take_many(q, 0)[0]
    assert (x.shape, y.shape) == ((0, 0, 2), (0, 1))


def test_strings_are_padded_with_empty_ones():
    q = PaddingFIFOQueue("q", [dtypes.string], [(None,)])
    put(q, np.array([b"a"], object))
    put(q, np.array([b"b", b"c"], object))
    assert take_many(q, 2)[0][0].tolist() == [[b"a", b""], [b"b", b"c"]]


def test_single_elements_keep_their_shape():
    q = PaddingFIFOQueue("q", [f32], [(None,)])
    put(q, floats(1, 2, 3))
    assert take(q)[0][0].tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match=r"Expected \[\?\], got \[1,1\]"):
        put(q, floats([1]))
    q.enqueue_many([floats([1, 2], [3, 4])], lambda _: None)
    assert take_many(q, 2)[0][0].tolist() == [[1, 2], [3, 4]]


def test_every_component_needs_a_rank():
    for shapes in ((), (None,)):
        with pytest.raises(InvalidArgumentError, match="Shapes must be provided for all components"):
            PaddingFIFOQueue("q", [f32], shapes)


# *** shuffling ***


def test_the_order_is_tensorflows():
    q = RandomShuffleQueue("q", [i32], [()], seed=87654321, seed2=7)
    model = list(range(10))
    for i in model:
        put(q, np.int32(i))
    want = []
    for word in Philox(87654321, 7).reserve(3).words(10).tolist():
        i = word % len(model)
        want.append(model[i])
        model[i] = model[-1]
        model.pop()
    assert [int(take(q)[0][0]) for _ in range(4)] == want[:4]
    assert take_many(q, 6)[0][0].tolist() == want[4:]


def test_it_keeps_elements_back_until_it_is_closed():
    q = RandomShuffleQueue("q", [i32], [()], min_after_dequeue=2)
    for i in range(3):
        put(q, np.int32(i))
    assert len(take(q)) == 1
    waiting, batch = take(q), take_many(q, 5, may_be_fewer=True)
    assert (waiting, batch) == ([], [])
    put(q, np.int32(3))
    assert len(waiting) == 1
    q.close(lambda _: None)
    assert len(batch[0][0]) == 2


def test_what_is_given_back_is_there_again():
    q = RandomShuffleQueue("q", [i32], [()])
    for i in range(3):
        put(q, np.int32(i))
    batch = take_many(q, 5)
    q.close(lambda _: None)
    assert isinstance(batch[0], OutOfRangeError)
    assert sorted(take_many(q, 3)[0][0].tolist()) == [0, 1, 2]


def test_its_declaration():
    q = RandomShuffleQueue("q", [i32], [()], 10, 2, seed=1)
    q.check_same(RandomShuffleQueue("q", [i32], [()], 10, 2))  # without seeds it takes what is there
    for other in (
        RandomShuffleQueue("q", [i32], [()], 10, 3, seed=1),
        RandomShuffleQueue("q", [i32], [()], 10, 2, seed=2),
        PaddingFIFOQueue("q", [i32], [()], 10),
    ):
        with pytest.raises(InvalidArgumentError, match="Shared queue 'q' has"):
            q.check_same(other)
    for capacity, least, match in ((None, -1, "must be >= 0"), (3, 3, "must be < capacity 3")):
        with pytest.raises(InvalidArgumentError, match=match):
            RandomShuffleQueue("q", [i32], [()], capacity, least)


# *** priorities ***


def test_the_least_priority_comes_first():
    q = PriorityQueue("q", [f32], [()])
    for priority in (3, -1, 2):
        put(q, np.int64(priority), np.float32(10 * priority))
    assert take(q)[0] == (-1, -10)
    priorities, x = take_many(q, 2)[0]
    assert (priorities.tolist(), x.tolist()) == ([2, 3], [20, 30])
    assert priorities.dtype == np.int64


def test_many_are_taken_at_once_and_so_in_order():
    q = PriorityQueue("q", [], [])
    put(q, np.int64(5))
    batch = take_many(q, 2)
    assert (batch, q.size()) == ([], 1)
    put(q, np.int64(1))
    assert batch[0][0].tolist() == [1, 5]
    put(q, np.int64(7))
    rest = take_many(q, 2, may_be_fewer=True)
    q.close(lambda _: None)
    assert rest[0][0].tolist() == [7]


def test_equal_priorities_come_in_the_order_of_tensorflows_heap():
    q = PriorityQueue("q", [i32], [()])
    for i in range(8):
        put(q, np.int64(0), np.int32(i))
    assert [int(take(q)[0][1]) for _ in range(8)] == [0, 2, 6, 5, 7, 4, 1, 3]


@given(st.lists(st.one_of(st.integers(-5, 5), st.none()), max_size=60))
def test_against_a_sorted_list(steps):
    """An integer: put it in; None: take the least out."""
    q, model = PriorityQueue("q", [], []), []
    for step in steps:
        if step is not None:
            put(q, np.int64(step))
            model.append(step)
        elif model:
            least = min(model)
            model.remove(least)
            assert take(q)[0] == (least,)
    assert q.size() == len(model)
