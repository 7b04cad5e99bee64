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
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    FeedError,
    InvalidArgumentError,
)
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


# *** Reads of variables ***


@pytest.fixture
def unverified() -> Iterator[None]:
    """Steps whose kernels have no checks of their results, as users run them."""
    with flags.override(VERIFY=0):
        yield


def with_variable(value: Any = (0.5, 1, 2), n: int = 40) -> tuple[hr.Session, hr.Variable, Any, Any]:
    """A session, a variable v, n iterations of h v + x, and x."""
    with hr.Graph() as g:
        v = hr.Variable(np.float32(value), name="v")
        x = hr.placeholder(hr.float32, v.shape)
        y = hr.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, h * v + x), [0, x])[1]
    return hr.Session(graph=g), v, y, x


def folded(v: Any, x: Any, n: int = 40) -> Any:
    h = x
    for _ in range(n):
        h = h * v + x
    return h


def set_to(session: hr.Session, v: hr.Variable) -> Any:
    """A function that assigns a value of any shape to a variable."""
    with session.graph.as_default():
        value = hr.placeholder(v.dtype, None)
        assigned = hr.raw_ops.AssignVariableOp(resource=v.handle, value=value)
    return session.make_callable(assigned, [value])


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize("value", [(0.5, 0.25, 0.75), 0.5], ids=["vector", "scalar"])
def test_variables_are_read_at_once(value: Any) -> None:
    session, v, y, feed = with_variable(value, 400)
    session.run(v.initializer)
    assign = set_to(session, v)
    f = session.make_callable(y, [feed])
    x = np.full(v.shape, 3, np.float32)
    for _ in range(3):
        assert np.array_equal(f(x), folded(np.float32(value), x, 400))
        assert is_at_once(session, y, [feed])
    assign(x / 4)
    assert np.array_equal(f(x), folded(x / 4, x, 400))
    assert np.array_equal(f(x.tolist()), folded(x / 4, x, 400))


@pytest.mark.usefixtures("unverified")
def test_a_variable_must_be_initialized_in_each_session() -> None:
    session, v, y, feed = with_variable()
    x = np.ones(3, np.float32)
    other = hr.Session(graph=session.graph)
    for each in (session, other):
        for _ in range(2):
            with pytest.raises(FailedPreconditionError, match="uninitialized value v"):
                each.run(y, {feed: x})
    session.run(v.initializer)
    for _ in range(2):
        assert np.array_equal(session.run(y, {feed: x}), folded(np.float32([0.5, 1, 2]), x))
        with pytest.raises(FailedPreconditionError, match="uninitialized value v"):
            other.run(y, {feed: x})
    set_to(other, v)(x)
    for _ in range(3):
        assert np.array_equal(other.run(y, {feed: x}), folded(x, x))
        assert np.array_equal(session.run(y, {feed: x}), folded(np.float32([0.5, 1, 2]), x))
    assert is_at_once(session, y, [feed])
    assert is_at_once(other, y, [feed])


def fed_times() -> tuple[hr.Session, Any, Any, list[Any]]:
    """A session, a function that sets v, nested loops with v, and their feeds."""
    with hr.Graph() as g:
        value = hr.placeholder(hr.float32, [3])
        v = hr.Variable(value, name="v")
        x, n, m = hr.placeholder(hr.float32, v.shape), hr.placeholder(hr.int32, ()), hr.placeholder(hr.int32, ())

        def outer(i: Any, h: Any) -> Any:
            return i + 1, hr.while_loop(lambda j, h: j < m, inner, [0, h])[1]

        def inner(j: Any, h: Any) -> Any:
            return j + 1, h * v + x

        y = hr.while_loop(lambda i, h: i < n, outer, [0, x])[1]
    session = hr.Session(graph=g)
    return session, lambda x: session.run(v.initializer, {value: x}), y, [x, n, m]


@pytest.mark.usefixtures("unverified")
def test_variables_of_loops_of_unknown_length_are_read_at_once() -> None:
    session, assign, y, feeds = fed_times()
    f = session.make_callable(y, feeds)
    x = np.float32([0.1, 0.2, 0.3])
    for value in (np.float32([0.5, 1, 2]), x):
        assign(value)
        for n, m in ((2, 3), (0, 3), (3, 0), (1, 1)):
            assert np.array_equal(f(x, np.int32(n), np.int32(m)), folded(value, x, n * m))
    assert is_at_once(session, y, feeds)


@pytest.mark.usefixtures("unverified")
def test_an_uninitialized_variable_is_an_error_only_if_an_iteration_reads_it() -> None:
    session, assign, y, feeds = fed_times()
    f = session.make_callable(y, feeds)
    x = np.ones(3, np.float32)
    for _ in range(3):
        assert np.array_equal(f(x, np.int32(0), np.int32(2)), x)
        assert np.array_equal(f(x, np.int32(2), np.int32(0)), x)
        with pytest.raises(FailedPreconditionError, match="uninitialized value v") as e:
            f(x, np.int32(1), np.int32(1))
        assert "in inner" in "".join(e.value.__notes__)  # the line of the read
    assign(2 * x)
    assert np.array_equal(f(x, np.int32(1), np.int32(1)), folded(2 * x, x, 1))


@pytest.mark.usefixtures("unverified")
def test_dropped_variables_are_not_read() -> None:
    session, v, y, feed = with_variable()
    session.run(v.initializer)
    f = session.make_callable(y, [feed])
    x = np.ones(3, np.float32)
    for _ in range(2):
        f(x)
    assert is_at_once(session, y, [feed])
    session.clear_container()
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match="uninitialized value v"):
            f(x)
    set_to(session, v)(2 * x)
    for _ in range(2):
        assert np.array_equal(f(x), folded(2 * x, x))
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        f(x)


@pytest.mark.usefixtures("unverified")
def test_values_of_variables_in_another_form_are_read() -> None:
    session, v, y, feed = with_variable([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    with session.graph.as_default():
        turned = hr.raw_ops.AssignVariableOp(resource=v.handle, value=hr.transpose(v))
    session.run(v.initializer)
    f = session.make_callable(y, [feed])
    x = np.ones((3, 3), np.float32)
    w = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    for _ in range(4):
        assert np.array_equal(f(x), folded(w, x))
        session.run(turned)
        w = w.T


@pytest.mark.usefixtures("unverified")
def test_a_variable_with_another_shape_than_the_graph_states_is_an_error() -> None:
    session, v, y, feed = with_variable()
    session.run(v.initializer)
    assign = set_to(session, v)
    f = session.make_callable(y, [feed])
    x = np.ones(3, np.float32)
    for _ in range(2):
        f(x)
    assign(np.ones((2, 3), np.float32))
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=r"ReadVariableOp_1' read a value of shape \[2,3\]"):
            f(x)
    assign(2 * x)
    assert np.array_equal(f(x), folded(2 * x, x))


@pytest.mark.usefixtures("unverified")
def test_a_fetched_variable_is_a_copy_of_its_value() -> None:
    session, v, y, feed = with_variable()
    session.run(v.initializer)
    f = session.make_callable([v, y], [feed])
    x = np.ones(3, np.float32)
    for _ in range(3):
        value, result = f(x)
        assert value.tolist() == [0.5, 1, 2]
        value[:] = result[:] = 7
    assert session.run(v).tolist() == [0.5, 1, 2]
    assert x.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("unverified")
def test_a_result_that_is_the_variable_is_a_copy_of_its_value() -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.float32([0.5, 1, 2]), name="v")
        n = hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, h * 2), [0, v.read_value()])[1]
    session = hr.Session(graph=g)
    session.run(v.initializer)
    f = session.make_callable(y, [n])
    for _ in range(3):
        result = f(0)
        assert result.tolist() == [0.5, 1, 2]
        result[:] = 7
    assert is_at_once(session, y, [n])
    assert f(1).tolist() == [1, 2, 4]


@pytest.mark.system
@pytest.mark.usefixtures("unverified")
def test_a_run_keeps_the_value_that_it_has_read() -> None:
    size, times = 1000, 2_000_000
    session, v, y, feed = with_variable(np.ones(size), times)
    session.run(v.initializer)
    assign = set_to(session, v)
    f = session.make_callable(y, [feed])
    x = np.zeros(size, np.float32)
    f(x)
    x[:] = 1
    results: list[Any] = []
    runner = threading.Thread(target=lambda: results.append(f(x)))
    runner.start()
    count = 0
    while runner.is_alive():
        assign(np.full(size, count % 7, np.float32))
        count += 1
    runner.join()
    assert count > 3  # else the test shows nothing
    assert is_at_once(session, y, [feed])
    assert np.array_equal(results[0], np.full(size, times + 1, np.float32))


@pytest.mark.system
@pytest.mark.usefixtures("unverified")
def test_threads_read_variables_that_others_assign() -> None:
    session, v, y, feed = with_variable(np.zeros(64), 40)
    session.run(v.initializer)
    assign = set_to(session, v)
    f = session.make_callable(y, [feed])
    x = np.ones(64, np.float32)
    f(x)
    stop = threading.Event()
    wrong: list[Any] = []

    def read() -> None:
        while not stop.is_set():
            found = f(x)
            if len(set(found.tolist())) != 1:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for k in range(2000):
        assign(np.full(64, k, np.float32))
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
