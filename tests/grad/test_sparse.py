"""Sparse gradients: rows stay rows, through sums, conditionals and loops, and their own gradients are right."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.resources import tensor_list
from tests.grad.numeric import check

f64 = hr.float64
TABLE = np.random.default_rng(3).uniform(0.2, 0.9, (5, 3))


def in_a_loop(x: hr.Tensor) -> hr.Tensor:
    idx = hr.constant([0, 2, 1, 0, 4])

    def body(i, h):
        rows = hr.gather(x, [idx[i], i])
        return i + 1, hr.sin(h) * hr.reduce_sum(rows * rows, 0) + 0.1 * h

    return hr.while_loop(lambda i, h: i < 5, body, (0, hr.constant([0.1, 0.2, 0.3], f64)))[1]


def in_a_branch(x: hr.Tensor) -> hr.Tensor:
    return hr.cond(x[0, 0] > 0.0, lambda: hr.exp(hr.gather(x, [1, 1, 4])), lambda: hr.ones([3, 3], f64))


def in_a_branch_in_a_loop(x: hr.Tensor) -> hr.Tensor:
    def body(i, h):
        return i + 1, hr.cond(i % 2 < 1, lambda: h * hr.sin(hr.gather(x, i)), lambda: h * 1.1)

    return hr.while_loop(lambda i, h: i < 5, body, (0, hr.ones([3], f64)))[1]


def in_both_branches(x: hr.Tensor) -> hr.Tensor:
    return hr.cond(x[0, 0] > 0.0, lambda: hr.sin(hr.gather(x, [1, 3])), lambda: hr.sin(x[:2]))


def in_nested_loops(x: hr.Tensor) -> hr.Tensor:
    def body(i, h):
        return i + 1, hr.while_loop(lambda j, h: j <= i, lambda j, h: (j + 1, h * hr.sin(hr.gather(x, j))), (0, h))[1]

    return hr.while_loop(lambda i, h: i < 3, body, (0, hr.ones([3], f64)))[1]


def of_a_variable_of_the_loop(x: hr.Tensor) -> hr.Tensor:
    def body(i, t):
        return i + 1, t * 0.5 + hr.reduce_sum(hr.gather(t, [i, i]) ** 2)

    return hr.while_loop(lambda i, t: i < 3, body, (0, x))[1]


@pytest.mark.parametrize(
    "make",
    [in_a_loop, in_a_branch, in_a_branch_in_a_loop, in_both_branches, in_nested_loops, of_a_variable_of_the_loop],
    ids=lambda f: f.__name__,
)
def test_derivatives_to_order_three(make) -> None:
    check(make, TABLE)


@pytest.mark.parametrize("make", [in_a_loop, in_a_branch, in_a_branch_in_a_loop, in_nested_loops])
def test_rows_come_out_as_rows(make) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (5, 3))
        (d,) = hr.gradients(make(x), x)
        assert isinstance(d, hr.IndexedSlices)
        whole = hr.convert_to_tensor(d)
        with hr.Session(graph=g) as session:
            values, indices, dense = session.run([d.values, d.indices, whole], {x: TABLE})
    total = np.zeros((5, 3))
    np.add.at(total, indices, values)
    np.testing.assert_allclose(total, dense)


@pytest.mark.parametrize("trips", [0, 3])
def test_no_trips_no_rows(trips: int) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (5, 3))
        h = hr.while_loop(lambda i, h: i < trips, lambda i, h: (i + 1, h + hr.gather(x, i)), (0, hr.ones([3], f64)))[1]
        (d,) = hr.gradients(h, x)
        with hr.Session(graph=g) as session:
            assert session.run(d.values, {x: TABLE}).shape == (trips, 3)
            assert sorted(session.run(d.indices, {x: TABLE})) == list(range(trips))


def test_sums_of_rows_and_of_rows_with_a_tensor() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (5, 3))
        a, b = hr.gather(x, [1, 2]), hr.gather(x, hr.constant([[2], [2]], hr.int64))
        (rows,) = hr.gradients([a, b], x)
        assert isinstance(rows, hr.IndexedSlices)
        (dense,) = hr.gradients([a, x * 2.0], x)
        assert isinstance(dense, hr.Tensor)
        with hr.Session(graph=g) as session:
            assert sorted(session.run(rows.indices, {x: TABLE})) == [1, 2, 2, 2]
            assert session.run(dense, {x: TABLE}).tolist() == [[2] * 3, [3] * 3, [3] * 3, [2] * 3, [2] * 3]


def test_of_a_variable_only_the_rows_are_touched() -> None:
    with hr.Graph() as g:
        v = hr.Variable(TABLE)
        y = hr.reduce_sum(v.sparse_read([3, 3]) ** 2)
        (d,) = hr.gradients(y, v)
        assert isinstance(d, hr.IndexedSlices)
        with hr.Session(graph=g) as session:
            session.run(v.initializer)
            np.testing.assert_allclose(session.run(d.values), 2 * TABLE[[3, 3]])


def test_reading_a_list_in_a_loop_adds_one_element_each_time(monkeypatch) -> None:
    """To walk the whole list each time would be quadratic."""
    added = 0
    add = tensor_list._add

    def counted(a, b):
        nonlocal added
        added += 1
        return add(a, b)

    monkeypatch.setattr(tensor_list, "_add", counted)
    n = 200
    with hr.Graph() as g:
        x = hr.placeholder(f64, (n,))
        ta = hr.TensorArray(f64, n).unstack(x)
        y = hr.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + ta.read(i) ** 2), (0, hr.constant(0.0, f64)))
        (d,) = hr.gradients(y[1], x)
        with hr.Session(graph=g) as session:
            at = np.linspace(0, 1, n)
            np.testing.assert_allclose(session.run(d, {x: at}), 2 * at)
    assert added <= n


def test_an_accumulator_beyond_the_limit() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (100,))
        _, y = hr.while_loop(lambda i, y: i < 50, lambda i, y: (i + 1, hr.tanh(y) * x), (0, x))
        (d,) = hr.gradients(y, x)
        with flags.override(ACCUMULATOR_LIMIT=20_000), hr.Session(graph=g) as session:
            with pytest.raises(hr.errors.ResourceExhaustedError) as e:
                session.run(d, {x: np.ones(100)})
            text = str(e.value)
            assert "keeps more than 20,000 bytes of 'while/Tanh:0' of loop 'while'" in text
            assert "test_sparse.py" in text
            assert "25 values of 20,000 bytes" in text
            assert "save=hr.recompute" in text
            session.run(y, {x: np.ones(100)})
