"""Steps that are one call of machine code, which takes values as they are fed.

The first run of a step compiles it and takes the way of other steps; later runs are made at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import CancelledError, DeadlineExceededError, FeedError, InvalidArgumentError
from tests.inside import is_at_once, step_of

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    with flags.override(NATIVE="on", CACHE="off"):
        yield


def repeated(shape: Any = (3,), dtype: Any = hr.float32) -> tuple[hr.Session, Any, list[Any]]:
    """A session, v n times (x v + 1), and the feeds x and n."""
    with hr.Graph() as g:
        x, n = hr.placeholder(dtype, shape), hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v * x + 1), [0, x])[1]
    return hr.Session(graph=g), y, [x, n]


def expected(x: Any, n: int) -> Any:
    v = x
    for _ in range(n):
        v = v * x + np.ones((), x.dtype)
    return v


def test_the_second_run_of_a_loop_is_at_once() -> None:
    session, y, feeds = repeated()
    f = session.make_callable(y, feeds)
    assert not is_at_once(session, y, feeds)
    x = np.float32([0.5, 1, 2])
    first, second = f(x, np.int32(3)), f(x, np.int32(3))
    assert is_at_once(session, y, feeds)
    assert np.array_equal(first, second)
    assert np.array_equal(session.run(y, dict(zip(feeds, (x, 3), strict=True))), expected(x, 3))


@pytest.mark.parametrize(
    "x",
    [[0.5, 1, 2], np.float64([0.5, 1, 2]), np.float32([2, 1, 0.5])[::-1], np.float32([0.5, 0, 1, 0, 2, 0])[::2]],
    ids=["list", "float64", "reversed", "strided"],
)
def test_values_in_another_form_are_converted(x: Any) -> None:
    session, y, feeds = repeated()
    f = session.make_callable(y, feeds)
    for n in (2, np.int32(2), np.int64(2), np.array(2)):
        assert np.array_equal(f(x, n), expected(np.float32(x), 2))
    assert is_at_once(session, y, feeds)


def test_values_that_do_not_fit_are_errors_of_feeds() -> None:
    session, y, feeds = repeated()
    f = session.make_callable(y, feeds)
    for _ in range(2):
        f(np.ones(3, np.float32), 1)
        with pytest.raises(FeedError, match=r"Cannot feed value of shape \(4,\)"):
            f(np.ones(4, np.float32), 1)
        with pytest.raises(FeedError, match="takes 2 values"):
            f(np.ones(3, np.float32))
        with pytest.raises(FeedError, match="symbolic"):
            f(y, 1)


def test_each_shape_keeps_its_own_code() -> None:
    session, y, feeds = repeated([None])
    f = session.make_callable(y, feeds)
    for size in (3, 4, 3, 3, 4, 5, 4):
        x = np.linspace(0, 1, size, dtype=np.float32)
        assert np.array_equal(f(x, 3), expected(x, 3))
        assert is_at_once(session, y, feeds)
    assert len(step_of(session, y, feeds).variants) == 3


def test_results_keep_the_order_and_the_structure_of_the_fetches() -> None:
    with hr.Graph() as g:
        a, b, n = (hr.placeholder(hr.float32, ()) for _ in range(3))
        _, y, z = hr.while_loop(lambda i, *_: i < n, lambda i, y, z: (i + 1, y * b, z + a), [0.0, a, b])
    session = hr.Session(graph=g)
    f = session.make_callable({"z": z, "more": (y, [z])}, [n, b, a])
    for _ in range(2):
        assert f(2.0, np.float32(3), np.float32(5)) == {"z": 13, "more": (45, [13])}
    assert type(f(2.0, 3.0, 5.0)["z"]) is np.float32


def test_results_are_arrays_of_their_own() -> None:
    session, y, feeds = repeated()
    f = session.make_callable(y, feeds)
    x = np.float32([0.5, 1, 2])
    kept = [f(x, 0) for _ in range(3)]
    for result in kept:
        assert result.flags.owndata
        result[:] = 7
    assert x.tolist() == [0.5, 1, 2]
    assert f(x, 0).tolist() == [0.5, 1, 2]


@pytest.mark.system
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_small_arrays_and_integers_are_read_before_the_lock_is_released(dtype: Any) -> None:
    size = 1000 if dtype is np.float32 else thresholds.LENT_FEED_BYTES  # integers are copied at any size
    with hr.Graph() as g:
        x, n = hr.placeholder(dtype, (size,)), hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v + x), [0, x])[1]
    session = hr.Session(graph=g)
    f = session.make_callable(y, [x, n])
    fed, times = np.zeros(size, dtype), np.int32(200_000_000 // size)
    f(fed, np.int32(1))
    assert is_at_once(session, y, [x, n])
    results: list[Any] = []
    runner = threading.Thread(target=lambda: results.append(f(fed, times)))
    runner.start()
    time.sleep(0.005)
    fed[:] = 1
    assert runner.is_alive()  # else the test shows nothing
    runner.join()
    assert not results[0].any()


def test_an_error_names_the_operation_and_the_iteration() -> None:
    with hr.Graph() as g:
        x, n = hr.placeholder(hr.int32, ()), hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, hr.floordiv(v + 10, x - i)), [0, x])[1]
    session = hr.Session(graph=g)
    f = session.make_callable(y, [x, n])
    texts = []
    for _ in range(2):
        f(np.int32(8), np.int32(3))
        with pytest.raises(InvalidArgumentError, match=r"(?s)by zero.*iteration 2") as caught:
            f(np.int32(2), np.int32(3))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert is_at_once(session, y, [x, n])


def endless() -> tuple[hr.Session, Any, Any]:
    """A session, a loop that ends only if its feed is 0, and the feed."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.int64, ())
        y = hr.while_loop(lambda v: v > 0, lambda v: hr.maximum(v * 3, hr.constant(1, hr.int64)), [x])
    session = hr.Session(graph=g)
    for _ in range(2):
        session.run(y, {x: 0})
    assert is_at_once(session, y, [x])
    return session, y, x


def test_a_time_limit_holds() -> None:
    session, y, x = endless()
    with pytest.raises(DeadlineExceededError):
        session.run(y, {x: 1}, timeout_ms=20)


@pytest.mark.system
def test_closing_the_session_ends_the_run() -> None:
    session, y, x = endless()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            session.run(y, {x: np.int64(1)})
        except CancelledError as e:
            errors.append(e)

    runner = threading.Thread(target=run)
    runner.start()
    time.sleep(0.05)
    session.close()
    runner.join(10)
    assert not runner.is_alive()
    assert "closed while this step ran" in str(errors[0])
    with pytest.raises(RuntimeError, match="closed"):
        session.run(y, {x: np.int64(0)})


def test_a_session_with_a_time_limit_makes_no_run_at_once() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.int64, ())
        y = hr.while_loop(lambda v: v > 0, lambda v: hr.maximum(v * 3, hr.constant(1, hr.int64)), [x])
    session = hr.Session(graph=g, config={"operation_timeout_in_ms": 20})
    for _ in range(2):
        session.run(y, {x: 0})
    assert not is_at_once(session, y, [x])
    with pytest.raises(DeadlineExceededError):
        session.run(y, {x: 1})
