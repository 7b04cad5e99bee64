"""Residuals that loops and conditionals keep for their gradients, counted while they run.

Loops keep residuals in lists, so all pushed values are recorded: `Kept` puts itself into `TensorList.push` and
`push_counted`. Bytes are those of memory: a view of one number with a large shape, such as stands for the result of a
branch that was not taken, counts as one number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.resources.tensor_list import TensorList

f64 = hr.float64
TRIPS, BATCH, WIDTH, UNITS = 7, 4, 5, 6


class Kept:
    """Values pushed to lists.

    Attributes:
      values: all pushed values that are no lists themselves, in the order of the pushes.
    """

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []

    def note(self, value: Any) -> None:
        if not isinstance(value, TensorList):
            self.values.append(np.asarray(value))

    def floats(self) -> list[np.ndarray]:
        return [v for v in self.values if v.dtype.kind == "f"]

    def elements(self) -> int:
        """Number of elements of the floats, as they are in memory."""
        return sum(_in_memory(v) for v in self.floats())

    def bytes(self) -> int:
        return sum(_in_memory(v) * v.itemsize for v in self.values)


def _in_memory(v: np.ndarray) -> int:
    """The elements of an array that are different places in memory."""
    return math.prod(n for n, step in zip(v.shape, v.strides, strict=True) if step)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Notes what is pushed from now on."""
    out = Kept()
    push, counted = TensorList.push, TensorList.push_counted

    def noting(self: TensorList, value: Any) -> Any:
        out.note(value)
        return push(self, value)

    def noting_counted(self: TensorList, value: Any, limit: int) -> Any:
        before = len(out.values)
        found = counted(self, value, limit)
        if len(out.values) == before:  # it may push by way of `push`
            out.note(value)
        return found

    monkeypatch.setattr(TensorList, "push", noting)
    monkeypatch.setattr(TensorList, "push_counted", noting_counted)
    return out


def _run(make: Callable[..., Any], *at: Any, fetch_y: bool = False) -> Any:
    """Runs the gradient of the sum of `make(*xs)` by all xs, or only the value."""
    with hr.Graph() as g:
        xs = [hr.placeholder(f64, np.shape(a)) for a in at]
        y = make(*xs)
        grads = hr.gradients(y, xs, unconnected="zero")
    with hr.Session(graph=g, engine="interpret") as session:
        return session.run(y if fetch_y else grads, dict(zip(xs, at, strict=True)))


def _random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(size=s) * 0.5 for s in shapes]


def _close(found: int, want: int) -> None:
    assert 0.9 * want <= found <= 1.1 * want, f"{found} instead of {want}"


# *** networks ***


def _rnn(x: Any, w: Any, u: Any, b: Any) -> Any:
    rows = hr.TensorArray(f64, TRIPS).unstack(x)

    def body(t: Any, h: Any) -> Any:
        return t + 1, hr.tanh(hr.matmul(rows.read(t), w) + hr.matmul(h, u) + b)

    return hr.while_loop(lambda t, h: t < TRIPS, body, (0, hr.zeros([BATCH, UNITS], f64)))[1]


_RNN = _random((TRIPS, BATCH, WIDTH), (WIDTH, UNITS), (UNITS, UNITS), (UNITS,))


def test_an_rnn_keeps_its_state(kept: Kept) -> None:
    _run(_rnn, *_RNN)
    _close(kept.elements(), TRIPS * BATCH * UNITS)  # h; the rows of x are there already, tanh gives the next h
    assert kept.bytes() == 8 * kept.elements()


def _lstm(x: Any, w: Any, b: Any) -> Any:
    rows = hr.TensorArray(f64, TRIPS).unstack(x)

    def body(t: Any, c: Any, h: Any) -> Any:
        i, j, f, o = hr.split(hr.matmul(hr.concat([rows.read(t), h], 1), w) + b, 4, 1)
        c = c * hr.sigmoid(f + 1.0) + hr.sigmoid(i) * hr.tanh(j)
        return t + 1, c, hr.tanh(c) * hr.sigmoid(o)

    start = hr.zeros([BATCH, UNITS], f64)
    return hr.while_loop(lambda t, c, h: t < TRIPS, body, (0, start, start))[2]


_LSTM = _random((TRIPS, BATCH, WIDTH), (WIDTH + UNITS, 4 * UNITS), (4 * UNITS,))


def test_an_lstm_keeps_one_copy_of_what_it_needs(kept: Kept) -> None:
    """Each iteration keeps c, h, the results of the four gates, and tanh(c).

    All other values follow from these or are available already.
    """
    _run(_lstm, *_LSTM)
    _close(kept.elements(), TRIPS * BATCH * UNITS * 7)


def test_nothing_is_kept_if_only_the_value_is_fetched(kept: Kept) -> None:
    _run(_rnn, *_RNN, fetch_y=True)
    _run(_lstm, *_LSTM, fetch_y=True)
    assert kept.values == []


def test_back_prop_false_keeps_nothing(kept: Kept) -> None:
    (x,) = _random((3,))
    (found,) = _run(
        lambda x: (
            hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), back_prop=False)[1]
            + hr.sin(x)
        ),
        x,
    )
    np.testing.assert_allclose(found, np.cos(x))
    assert kept.values == []


# *** values that need not be kept ***


def test_loop_constants_are_not_kept(kept: Kept) -> None:
    """Nor what follows from them alone."""
    x, w = _random((3,), (40, 40))
    _run(
        lambda x, w: hr.while_loop(
            lambda i, y: i < 5, lambda i, y: (i + 1, y * x + hr.reduce_sum(hr.matmul(w, w))), (0, x)
        )[1],
        x,
        w,
    )
    _close(kept.elements(), 5 * 3)


def test_what_a_constant_is_multiplied_with_need_not_be_kept_if_nobody_asks_for_its_gradient(kept: Kept) -> None:
    with hr.Graph() as g:
        x, w = hr.placeholder(f64, (3,)), hr.placeholder(f64, (3,))
        y = hr.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * w), (0, x))[1]
        (dx,) = hr.gradients(y, x)
        with hr.Session(graph=g, engine="interpret") as session:
            session.run(dx, {x: np.ones(3), w: np.ones(3)})
            assert kept.values == []
            (dw,) = hr.gradients(y, w)
            session.run(dw, {x: np.ones(3), w: np.ones(3)})
            assert kept.elements() == 5 * 3


def test_only_shapes_are_kept_where_shapes_suffice(kept: Kept) -> None:
    """Gradients of sums and slices need only the size of the large operand.

    The operand is made in the loop.
    """
    with hr.Graph() as g:
        x = hr.placeholder(f64, (None,))

        def body(i: Any, s: Any) -> Any:
            large = hr.concat([x] * 50, 0)[i:]
            return i + 1, s + hr.reduce_sum(large) + hr.reduce_mean(hr.concat([large, large], 0))

        y = hr.while_loop(lambda i, s: i < 4, body, (0, 0.0 * x[0]))[1]
        (dx,) = hr.gradients(y, x)
    with hr.Session(graph=g, engine="interpret") as session:
        found = session.run(dx, {x: np.arange(100.0)})
    want = np.zeros(5000)
    for i in range(4):
        want[i:] += 1 + 1 / (5000 - i)
    np.testing.assert_allclose(found, want.reshape(50, 100).sum(0))
    assert kept.floats() == []
    assert kept.bytes() <= 4 * 8 * 8  # a few integers an iteration


def test_counters_are_not_kept(kept: Kept) -> None:
    (x,) = _random((3,))

    def make(x: Any) -> Any:
        table = hr.stack([x, x * 2.0, x * 3.0, x * 4.0])

        def body(i: Any, back: Any, by_two: Any, y: Any) -> Any:
            row = hr.gather(table, i) + hr.gather(table, back) + table[by_two - i]
            return i + 1, back - 1, by_two + 2, y + row * hr.cast(i + back, f64)

        return hr.while_loop(lambda i, *_: i < 4, body, (0, 3, 0, x))[3]

    (found,) = _run(make, x)
    np.testing.assert_allclose(found, 1.0 + 3.0 * (10 + 10 + 10) * np.ones(3))
    assert kept.values == []


def test_one_list_for_a_value_that_several_gradients_need(kept: Kept) -> None:
    x, z = _random((3,), (3,))

    def make(x: Any, z: Any) -> Any:
        return hr.while_loop(
            lambda i, a, b, c: i < 5,
            lambda i, a, b, c: (i + 1, hr.sin(a), b + a * z, c + a * a * z),
            (0, x, x, x),
        )

    def several(x: Any, z: Any) -> Any:
        _, a, b, c = make(x, z)
        hr.gradients(a, x)
        hr.gradients(b, [x, z])
        return a + b + c

    _run(several, x, z)
    _close(kept.elements(), 5 * 3)


def test_nested_loops_keep_a_value_once(kept: Kept) -> None:
    (x,) = _random((11,))

    def make(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return hr.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, hr.sin(z)), (0, y))[1]

        return hr.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, inner(y)), (0, x))[1]

    _run(make, x)
    _close(kept.elements(), 4 * 3 * 11)


@pytest.mark.parametrize("limit", ["constant", "fed"])
def test_trip_counts_of_inner_loops_are_not_kept(kept: Kept, limit: str) -> None:
    (x,) = _random((11,))

    def nested(depth: int, y: Any, n: Any) -> Any:
        if not depth:
            return hr.sin(y)
        return hr.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, nested(depth - 1, y, n)), (0, y))[1]

    def make(x: Any) -> Any:
        return nested(3, x, 2 if limit == "constant" else hr.placeholder_with_default(np.int32(2), []))

    _run(make, x)
    assert sum(v.size == 1 for v in kept.values if isinstance(v, (np.ndarray, np.generic))) == 0
    _close(kept.elements(), 8 * 11)


# *** conditionals ***


def _a_cond(branch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, hr.cond(y[0] > 0.0, lambda: branch(y) - x, lambda: x - y)

        return hr.while_loop(lambda i, y: i < 6, body, (0, x))[1]

    return make


@pytest.mark.parametrize("branch", [lambda y: y + y, lambda y: y * 0.5], ids=["sum", "product with a constant"])
def test_a_predicate_is_kept_once_an_iteration(kept: Kept, branch: Callable[[Any], Any]) -> None:
    """Its operands are not kept if no other gradient needs them."""
    _run(_a_cond(branch), *_random((3,)))
    assert [v.size for v in kept.values] == [1] * 6
    assert all(v.dtype == bool for v in kept.values)


def test_a_predicate_is_kept_once_for_several_conditionals_and_gradients(kept: Kept) -> None:
    def make(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            p = y[0] > 0.0
            a = hr.cond(p, lambda: y + y - x, lambda: x - y)
            return i + 1, a + hr.cond(p, lambda: x, lambda: -y)

        y = hr.while_loop(lambda i, y: i < 6, body, (0, x))[1]
        hr.gradients(y[0], x)
        return y

    _run(make, *_random((3,)))
    assert sum(v.size for v in kept.values if v.dtype == bool) == 6


@pytest.mark.parametrize("taken", [True, False])
def test_values_of_a_branch_that_is_not_taken_are_not_kept(kept: Kept, taken: bool) -> None:
    """The large product of one branch is kept only if that branch is taken.

    The other branch has nothing to keep.
    """
    n, trips = 1000, 5
    x, w = _random((n,), (n,))

    def make(x: Any, w: Any) -> Any:
        def body(i: Any, s: Any) -> Any:
            def large() -> Any:
                return hr.reduce_sum(hr.exp(hr.cumsum(w * s)) * x)

            p = s < 1e9 if taken else s > 1e9
            return i + 1, hr.tanh(hr.cond(p, large, lambda: s * 0.5))

        return hr.while_loop(lambda i, s: i < trips, body, (0, hr.reduce_sum(x) * 0.001))[1]

    _run(make, x, w * 0.01)
    if taken:
        _close(kept.elements(), trips * n)  # the exponentials, and a few scalars
    else:
        assert kept.elements() <= trips * 10
        assert kept.bytes() <= trips * 100


# *** a limit ***


def test_a_list_beyond_the_limit_says_what_and_where_and_what_to_do() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (1000,))
        y = hr.while_loop(
            lambda i, y: i < 100,
            lambda i, y: (i + 1, hr.exp(hr.sin(y), name="large") * x),
            (0, x),
            name="my_loop",
        )[1]
        (dx,) = hr.gradients(y, x)
    at = {x: np.zeros(1000)}
    with flags.override(ACCUMULATOR_LIMIT=100_000):
        with hr.Session(graph=g) as session, pytest.raises(hr.errors.ResourceExhaustedError) as failed:
            session.run(dx, at)
        text = str(failed.value)
        assert "my_loop" in text
        assert "100,000 bytes" in text
        assert "test_memory.py" in text
        assert "while_loop(..., save=hr.recompute('sqrt'))" in text
        assert "HEADRACE_ACCUMULATOR_LIMIT" in text
        with hr.Session(graph=g) as session:
            session.run(y, at)  # the value alone keeps nothing
    with flags.override(ACCUMULATOR_LIMIT=1_000_000), hr.Session(graph=g) as session:
        session.run(dx, at)


def test_the_limit_holds_for_lists_of_lists() -> None:
    """Residuals of the loops inside an iteration count as residuals of that iteration."""
    with hr.Graph() as g:
        x = hr.placeholder(f64, (1000,))

        def inner(y: Any) -> Any:
            return hr.while_loop(lambda j, z: j < 5, lambda j, z: (j + 1, hr.sin(z)), (0, y), name="inside")[1]

        y = hr.while_loop(lambda i, y: i < 20, lambda i, y: (i + 1, inner(y)), (0, x), name="outside")[1]
        (dx,) = hr.gradients(y, x)
    with (
        flags.override(ACCUMULATOR_LIMIT=400_000),  # 5 states are 40,000 bytes, 20 times that 800,000
        hr.Session(graph=g) as session,
        pytest.raises(hr.errors.ResourceExhaustedError, match="outside"),
    ):
        session.run(dx, {x: np.zeros(1000)})
