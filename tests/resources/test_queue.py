"""`resources.queue`: order, waiting, closing and cancelling; and random interleavings against a model."""

import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import dtypes
from headrace.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from headrace.resources.queue import FIFOQueue

f32, i32 = dtypes.float32, dtypes.int32


class Result:
    """The value that a request passes to its `done`; a second call fails."""

    def __init__(self):
        self.is_done = False

    def __call__(self, value):
        assert not self.is_done
        self.is_done = True
        self.value = value


def queue(capacity=None, shapes=((),)):
    return FIFOQueue("q", [i32] * max(1, len(shapes)), shapes, capacity)


def put(q, *values):
    r = Result()
    r.cancel = q.enqueue([np.int32(v) for v in values], r)
    return r


def put_many(q, *values):
    r = Result()
    r.cancel = q.enqueue_many([np.array(values, np.int32)], r)
    return r


def take(q):
    r = Result()
    r.cancel = q.dequeue(r)
    return r


def take_many(q, n, **kw):
    r = Result()
    r.cancel = q.dequeue_many(n, r, **kw)
    return r


def close(q, **kw):
    r = Result()
    q.close(r, **kw)
    return r


def is_error(r, error, match):
    assert r.is_done
    with pytest.raises(error, match=match):
        raise r.value
    return True


# *** plain use ***


def test_first_in_first_out():
    q = queue()
    assert put(q, 1).value is None
    assert put_many(q, 2, 3).is_done
    assert q.size() == 3
    assert take(q).value == (1,)
    (batch,) = take_many(q, 2).value
    assert batch.tolist() == [2, 3]
    assert batch.dtype == np.int32


def test_several_components():
    q = FIFOQueue("q", [f32, i32], [(2,), ()])
    r = Result()
    q.enqueue_many([np.float32([[1, 2], [3, 4]]), np.int32([5, 6])], r)
    x, y = take(q).value
    assert (x.tolist(), y) == ([1, 2], 5)
    x, y = take_many(q, 1).value
    assert (x.tolist(), y.tolist()) == ([[3, 4]], [6])
    x, y = take_many(q, 0).value
    assert (x.shape, y.shape) == ((0, 2), (0,))


def test_strings():
    q = FIFOQueue("q", [dtypes.string], [()])
    q.enqueue_many([np.array([b"a", b"bc"], object)], Result())
    (a,) = take(q).value
    assert isinstance(a, np.ndarray)
    assert a[()] == b"a"
    assert take_many(q, 1).value[0].tolist() == [b"bc"]


def test_elements_are_checked():
    q = FIFOQueue("q", [f32, i32], [(2,), ()])
    x, y = np.zeros(2, np.float32), np.int32(1)
    for use, match in (
        (lambda: q.enqueue([x], Result()), "Wrong number of components in tuple. Expected 2, got 1"),
        (lambda: q.enqueue([y, y], Result()), "Type mismatch in tuple component 0. Expected float32, got int32"),
        (lambda: q.enqueue([x[:1], y], Result()), r"Shape mismatch in tuple component 0. Expected \[2\], got \[1\]"),
        (
            lambda: q.enqueue_many([x[None], y], Result()),
            "component 1. Expected at least a vector",
        ),
        (lambda: q.enqueue_many([x, np.int32([1, 2])], Result()), r"Expected \[2,2\], got \[2\]"),
        (lambda: q.enqueue_many([x[None], np.int32([1, 2])], Result()), "Component 1 has 2, and should have 1"),
        (lambda: take_many(q, -1), "requested -1 < 0 elements"),
        (lambda: take_many(FIFOQueue("u", [f32]), 1), "require the components to have specified shapes"),
        (lambda: FIFOQueue("q", [f32], [(2,), ()]), "Different number of component types"),
        (lambda: FIFOQueue("q", [f32], [(None,)]), r"Shape \[\?\] is not fully defined"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            use()
    assert q.size() == 0


def test_sharing_a_queue_checks_the_declaration():
    q = queue(3)
    q.check_same(queue(3))
    for other, match in (
        (queue(4), "has capacity 3 but requested capacity was 4"),
        (FIFOQueue("q", [f32], [()], 3), "has component types"),
        (FIFOQueue("q", [i32], [(2,)], 3), "has component shapes"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            q.check_same(other)


# *** waiting ***


def test_a_full_queue_makes_enqueues_wait_in_order():
    q = queue(1)
    first, second, third = put(q, 1), put(q, 2), put(q, 3)
    assert (first.is_done, second.is_done, third.is_done) == (True, False, False)
    assert take(q).value == (1,)
    assert (second.is_done, third.is_done) == (True, False)
    assert repr(q) == "FIFOQueue('q', 1 elements, 1 waiting)"


def test_an_empty_queue_makes_dequeues_wait_in_order():
    q = queue()
    first, second = take(q), take(q)
    put(q, 1)
    assert first.value == (1,)
    assert not second.is_done
    put(q, 2)
    assert second.value == (2,)


def test_batches_pass_through_a_smaller_queue():
    q = queue(2)
    r = put_many(q, 1, 2, 3, 4, 5)
    assert (r.is_done, q.size()) == (False, 2)
    big = take_many(q, 4)
    assert big.value[0].tolist() == [1, 2, 3, 4]
    assert (r.is_done, q.size()) == (True, 1)


def test_done_may_use_the_queue():
    q = queue(1)
    again = Result()
    q.dequeue(lambda value: q.enqueue(value, again))
    put(q, 7)
    assert again.is_done
    assert take(q).value == (7,)


# *** closing ***


def test_a_closed_queue():
    q = queue()
    put(q, 1)
    assert close(q).value is None
    assert q.is_closed
    assert is_error(put(q, 2), CancelledError, "FIFOQueue 'q' is closed")
    assert put_many(q).value is None  # nothing to put in
    assert is_error(close(q), CancelledError, "is already closed")
    assert close(q, cancel_pending=True).value is None
    assert is_error(take_many(q, 2), OutOfRangeError, r"insufficient elements \(requested 2, current size 1\)")
    assert take(q).value == (1,)
    assert is_error(take(q), OutOfRangeError, r"insufficient elements \(requested 1, current size 0\)")


def test_what_is_left_may_be_fewer():
    q = queue()
    put_many(q, 1, 2, 3)
    waiting = take_many(q, 5, may_be_fewer=True)
    assert not waiting.is_done
    close(q)
    assert waiting.value[0].tolist() == [1, 2, 3]
    assert is_error(take_many(q, 5, may_be_fewer=True), OutOfRangeError, "insufficient")


def test_closing_waits_for_the_enqueues_before_it():
    q = queue(1)
    put(q, 1)
    waiting, closing, late = put(q, 2), close(q), put(q, 3)
    assert (waiting.is_done, closing.is_done, q.is_closed) == (False, False, False)
    take(q)
    assert (waiting.value, closing.value) == (None, None)
    assert is_error(late, CancelledError, "is closed")
    assert take(q).value == (2,)


def test_closing_can_cancel_the_enqueues_before_it():
    q = queue(1)
    put(q, 1)
    waiting = put_many(q, 2, 3)
    assert close(q, cancel_pending=True).is_done
    assert is_error(waiting, CancelledError, "Enqueue operation was cancelled")
    assert take(q).value == (1,)


def test_closing_fails_a_dequeue_that_cannot_be_met_and_keeps_its_elements():
    q = queue()
    put_many(q, 1, 2)
    four, two = take_many(q, 4), take_many(q, 2)
    assert (four.is_done, two.is_done, q.size()) == (False, False, 0)
    close(q)
    assert is_error(four, OutOfRangeError, "requested 4, current size 2")
    assert two.value[0].tolist() == [1, 2]


# *** cancelling ***


def test_a_cancelled_dequeue_gives_back_what_it_took():
    q = queue()
    put_many(q, 1, 2)
    r, behind = take_many(q, 3), take(q)
    assert r.cancel() is True
    assert is_error(r, CancelledError, "Dequeue operation was cancelled")
    assert behind.value == (1,)
    assert take(q).value == (2,)
    assert r.cancel() is False


def test_a_cancelled_enqueue_lets_the_next_one_try():
    q = queue(1)
    put(q, 1)
    first, second = put_many(q, 2, 3), put(q, 4)
    assert first.cancel()
    assert is_error(first, CancelledError, "Enqueue operation was cancelled")
    assert take(q).value == (1,)
    assert second.is_done
    assert take(q).value == (4,)


def test_release_cancels_everything():
    q = queue(1)
    put(q, 1)
    waiting = put(q, 2)
    empty = queue()
    hungry = take_many(empty, 2)
    q.release()
    empty.release()
    assert is_error(waiting, CancelledError, "Enqueue")
    assert is_error(hungry, CancelledError, "Dequeue")
    assert "closed" in repr(q)


def test_a_batch_that_cannot_be_made_keeps_the_elements():
    class Broken(FIFOQueue):
        def _batch(self, elements):
            raise MemoryError("too large")

    q = Broken("q", [i32], [()])
    put_many(q, 1, 2)
    assert is_error(take_many(q, 2), MemoryError, "too large")
    assert q.size() == 2


# *** random interleavings ***


class Model:
    """A queue in twenty lines of Python.

    Requests are in two lists, and are done in order as soon as possible.
    """

    def __init__(self, capacity):
        self.capacity, self.items, self.closed = capacity, deque(), False
        self.puts, self.takes, self.out = [], [], {}

    def settle(self):
        moved = True
        while moved:
            moved = False
            while self.puts:
                key, values = self.puts[0]
                if values == "close" or self.closed:
                    self.out[key] = "closed" if self.closed else None
                    self.closed = True
                else:
                    while values and len(self.items) < self.capacity:
                        self.items.append(values.pop(0))
                        moved = True
                    if values:
                        break
                    self.out[key] = None
                self.puts.pop(0)
                moved = True
            while self.takes:
                key, n, fewer, got = self.takes[0]
                while self.items and len(got) < n:
                    got.append(self.items.popleft())
                    moved = True
                if len(got) < n and not self.closed:
                    break
                if len(got) == n or (fewer and got):
                    self.out[key] = got
                else:
                    self.items.extendleft(reversed(got))
                    self.out[key] = "range"
                self.takes.pop(0)
                moved = True

    def cancel(self, key):
        for line in (self.puts, self.takes):
            for request in line:
                if request[0] == key and request[1] != "close":
                    line.remove(request)
                    if line is self.takes:
                        self.items.extendleft(reversed(request[3]))
                    self.out[key] = "cancelled"
        self.settle()


def outcome(r):
    if isinstance(r.value, OutOfRangeError):
        return "range"
    if isinstance(r.value, CancelledError):
        return "cancelled" if "was cancelled" in str(r.value) else "closed"
    return None if r.value is None else np.ravel(r.value[0]).tolist()


REQUESTS = st.tuples(
    st.sampled_from(["put", "put_many", "take", "take_many", "up_to", "cancel", "cancel", "close"]), st.integers(1, 4)
)


@given(st.integers(1, 3), st.lists(REQUESTS, max_size=25))
def test_against_a_model(capacity, requests):
    q, model, results = queue(capacity), Model(capacity), {}
    for key, (kind, n) in enumerate(requests):
        if kind == "cancel":
            if key - n in results and hasattr(results[key - n], "cancel"):
                results[key - n].cancel()
                model.cancel(key - n)
        elif kind in ("put", "put_many"):
            values = [10 * key + i for i in range(1 if kind == "put" else n)]
            model.puts.append((key, list(values)))
            results[key] = put_many(q, *values) if kind == "put_many" else put(q, *values)
        elif kind == "close":
            model.puts.append((key, "close"))
            results[key] = close(q)
        else:
            n = 1 if kind == "take" else n
            model.takes.append((key, n, kind == "up_to", []))
            results[key] = take(q) if kind == "take" else take_many(q, n, may_be_fewer=kind == "up_to")
        model.settle()
        assert q.size() == len(model.items)
        assert {k: outcome(r) for k, r in results.items() if r.is_done} == model.out
    q.release()
    assert all(r.is_done for r in results.values())


def test_many_threads_lose_and_repeat_nothing():
    q = queue(3)
    taken = deque()
    left = threading.Semaphore(0)

    def got(value):
        taken.append(int(value[0]))
        left.release()

    def producer(k):
        for i in range(50):
            q.enqueue([np.int32(100 * k + i)], lambda _: None)

    def consumer():
        for _ in range(50):
            q.dequeue(got)

    threads = [threading.Thread(target=producer, args=(k,)) for k in range(4)]
    threads += [threading.Thread(target=consumer) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for _ in range(200):
        assert left.acquire(timeout=10)
    assert sorted(taken) == sorted(100 * k + i for k in range(4) for i in range(50))
    assert q.size() == 0
