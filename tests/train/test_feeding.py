"""Python as a source of data; and that loading goes on while a step computes."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import FeedError, OutOfRangeError
from headrace.train import input
from headrace.train.coordinator import Coordinator
from headrace.train.input.feeding import Examples
from tests.train.pipelines import GRACE, taken

SECONDS = 30.0


def order(*args: Any, skip: int = 0) -> list[Any]:
    return [take() for take in Examples(*args).taken(skip)]


# *** examples ***


def test_a_data_set_again_and_again() -> None:
    assert order([1, 2, 3], False, None, 2) == [1, 2, 3, 1, 2, 3]
    assert order(np.arange(3)) == [0, 1, 2]
    assert order(lambda: iter([1, 2]), False, None, 2) == [1, 2, 1, 2]
    assert order({4: 0, 5: 0}, False, None, 2) == [4, 5, 4, 5]  # keys, as in an iteration, not values by index
    assert order(iter([1, 2])) == [1, 2]


def test_orders_follow_from_the_seed_and_can_be_entered_in_the_middle() -> None:
    whole = order(range(50), True, 3, 4)
    assert [sorted(whole[i : i + 50]) for i in range(0, 200, 50)] == [list(range(50))] * 4
    assert whole[:50] != whole[50:100]
    assert whole != order(range(50), True, 4, 4)
    for skip in (1, 49, 50, 137, 199, 200):
        assert order(range(50), True, 3, 4, skip=skip) == whole[skip:]
    assert order(lambda: iter(range(5)), False, None, 2, skip=7) == [2, 3, 4]


def test_sources_that_cannot_do_it() -> None:
    with pytest.raises(ValueError, match="cannot be shuffled"):
        Examples(iter([1]), shuffle=True)
    with pytest.raises(ValueError, match="only once"):
        Examples(iter([1]), epochs=2)
    with pytest.raises(ValueError, match="epochs must be positive"):
        Examples([1], epochs=0)
    with pytest.raises(ValueError, match="there is no example"):
        order([], False, None, None)


# *** pipelines ***


def test_what_is_fed_comes_out() -> None:
    words = [("one", 3), ("three", 5), ("", 0)]
    assert taken(lambda: input.feed(words, (hr.string, hr.int32), ((), ()))) == [[b"one", 3], [b"three", 5], [b"", 0]]
    named = [{"x": [1.0, 2.0], "y": 3, "more": None}]
    got = taken(lambda: input.feed(named, {"x": hr.float32, "y": hr.int64}, {"x": (2,), "y": ()}))
    assert got == [{"x": [1.0, 2.0], "y": 3}]
    assert taken(lambda: input.feed(iter(range(5)), hr.int32, ())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shape", [(None, 2), None])
def test_examples_may_differ_in_shape(shape: Any) -> None:
    data = [np.full((n, 2), n, np.float32) for n in (1, 3, 0)]

    def build() -> Any:
        x = input.feed(data, hr.float32, shape)
        assert x.shape == shape
        return x

    assert taken(build) == [x.tolist() for x in data]


def test_several_threads_lose_nothing() -> None:
    got = taken(lambda: input.feed(range(200), hr.int32, (), threads=4, epochs=2))
    assert sorted(got) == sorted([*range(200)] * 2)


def test_a_run_goes_on_where_it_was_stopped() -> None:
    def build(skip: Any) -> Any:
        return lambda: input.feed(range(10), hr.int32, (), shuffle=True, seed=1, epochs=2, skip=skip)

    assert taken(build(13)) == taken(build(0))[13:] == taken(build(lambda sess: 13))


def test_a_queue_of_ones_own() -> None:
    def build() -> Any:
        q = hr.PriorityQueue(10, hr.string, [()])
        runner = input.feed_queue([(np.int64(3), "c"), (np.int64(1), "a")], q)
        assert runner.queue is q
        with hr.control_dependencies([hr.Assert(hr.greater(q.size(), -1), [0])]):
            return q.dequeue()

    assert sorted(taken(build)) == [[1, b"a"], [3, b"c"]]


def broken() -> Iterator[int]:
    yield 1
    raise KeyError("not in the data")


def test_errors_of_the_source_reach_whoever_trains() -> None:
    with pytest.raises(KeyError, match="not in the data") as found:
        taken(lambda: input.feed(broken(), hr.int32, ()))
    assert "raise KeyError" in "".join(traceback.format_exception(found.value))
    for data, match in (([(1, 2)], "must have 1 parts, got 2"), ([1], "list or tuple"), ([[[1, 2]]], "shape")):
        with pytest.raises(FeedError, match=match):
            taken(lambda data=data: input.feed(data, (hr.int32,), ((),)))  # type: ignore[misc]
    with pytest.raises(FeedError, match=r"has no \['y'\]"):
        taken(lambda: input.feed([{"x": 1}], {"x": hr.int32, "y": hr.int32}, {"x": (), "y": ()}))


def test_each_session_begins_anew() -> None:
    with hr.Graph() as g:
        x = input.feed([1, 2, 3], hr.int32, ())
    for _ in range(2):
        with hr.Session(graph=g) as sess:
            coord = Coordinator()
            input.start_queue_runners(sess, coord)
            assert [sess.run(x) for _ in range(3)] == [1, 2, 3]
            with pytest.raises(OutOfRangeError):
                sess.run(x)
            coord.request_stop()
            coord.join(stop_grace_period_secs=GRACE)


# *** loading while a step computes ***


class Held:
    """A data set that records reads of its examples, with a kernel that waits."""

    def __init__(self, n: int) -> None:
        self.read = [threading.Event() for _ in range(n)]

    def __len__(self) -> int:
        return len(self.read)

    def __getitem__(self, i: int) -> int:
        self.read[i].set()
        return i

    def compute(self, x: np.ndarray) -> np.ndarray:
        """Work of a step that ends only after the example after next was read."""
        later = int(x) + 2
        if later < len(self) and not self.read[later].wait(SECONDS):
            raise AssertionError(f"step {x}: example {later} was not read while it computed")
        return x * 10


def test_examples_are_read_while_a_step_computes() -> None:
    """A step need not end before the next example is read.

    If it had to, the first step would wait in vain.
    """
    held = Held(8)

    def build() -> Any:
        x = input.prefetch(input.feed(held, hr.int32, (), capacity=2))
        return hr.py_func(held.compute, [x], hr.int32)

    assert taken(build) == [10 * i for i in range(8)]


def test_files_are_read_while_a_step_computes(tmp_path: Path) -> None:
    """A step waits until the reader has produced two more lines than were used."""
    (tmp_path / "a").write_text("".join(f"{i}\n" for i in range(8)))
    with hr.Graph() as g:
        names = input.string_input_producer([str(tmp_path / "a")], num_epochs=1)
        reader = hr.io.TextLineReader()
        line = input.prefetch(reader.read(names)[1], 4)
        produced = reader.num_records_produced()

        def compute(x: bytes) -> bytes:
            for _ in range(int(SECONDS * 1000)):
                if sess.run(produced) >= min(int(x) + 3, 8):
                    return x
                threading.Event().wait(0.001)
            raise AssertionError(f"no line was read while the step of line {x!r} computed")

        step = hr.py_func(compute, [line], hr.string)
    with hr.Session(graph=g) as sess:
        sess.run(hr.variables_initializer(g.variables))
        coord = Coordinator()
        input.start_queue_runners(sess, coord)
        assert [int(sess.run(step)) for _ in range(8)] == list(range(8))
        coord.request_stop()
        coord.join(stop_grace_period_secs=GRACE)
