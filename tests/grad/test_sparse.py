"""Sparse gradients: rows stay rows through sums, conditionals and loops.

Their own gradients are right too.
"""

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


@pytest.mark.matrix
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


@pytest.mark.parametrize("known", [True, False])
def test_rows_without_elements(known: bool) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (5, 0) if known else None)
        (d,) = hr.gradients(hr.gather(x, hr.placeholder_with_default(hr.constant([3, 3, 1]), (None,))), x)
        with hr.Session(graph=g) as session:
            values, indices, whole = session.run([d.values, d.indices, hr.convert_to_tensor(d)], {x: TABLE[:, :0]})
    assert values.shape == (3, 0)
    assert indices.tolist() == [3, 3, 1]
    assert whole.shape == (5, 0)


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
        assert isinstance(dense, hr.SymbolicTensor)
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


def test_rows_stay_rows_where_a_tensor_is_only_handed_on() -> None:
    with hr.Graph() as g:
        v = hr.Variable(TABLE)
        x = hr.identity(v)
        dx, dv = hr.gradients(hr.reduce_sum(hr.gather(hr.identity(x), [3, 3]) ** 2), [x, v])
        assert isinstance(dx, hr.IndexedSlices)
        assert isinstance(dv, hr.IndexedSlices)
        with hr.Session(graph=g) as session:
            session.run(v.initializer)
            np.testing.assert_allclose(session.run(dv.values), 2 * TABLE[[3, 3]])


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


# *** lists in loops ***


def reads_and_writes(x: hr.Tensor) -> hr.Tensor:
    def body(i, ta):
        return i + 1, ta.write(i, ta.read(4 - i) * hr.sin(ta.read(i)))

    return hr.while_loop(lambda i, ta: i < 5, body, (0, hr.TensorArray(f64, 5).unstack(x)))[1].stack()


def ragged_rows(x: hr.Tensor) -> hr.Tensor:
    """Rows of growing length; each then takes the place of another, of another length."""

    def first(i, ta):
        return i + 1, ta.write(i, hr.sin(x[i, :i]))

    def second(i, ta):
        return i + 1, ta.write(i, hr.concat([ta.read(3 - i) ** 2, ta.read(i)], 0))

    ta = hr.TensorArray(f64, 4, infer_shape=False, element_shape=(None,))
    ta = hr.while_loop(lambda i, ta: i < 4, first, (0, ta))[1]
    return hr.while_loop(lambda i, ta: i < 4, second, (0, ta))[1].concat()


def rows_of_unknown_shape_that_grow(x: hr.Tensor) -> hr.Tensor:
    ta = hr.TensorArray(f64, 0, dynamic_size=True, infer_shape=False)

    def body(i, ta):
        return i + 1, ta.write(2 * i, hr.exp(x[:i, 0])).write(2 * i + 1, x[i] * x[0])

    ta = hr.while_loop(lambda i, ta: i < 3, body, (0, ta))[1]
    return ta.read(4) * ta.read(1)[:2] + ta.read(5)[1:]


def gathers_and_scatters(x: hr.Tensor) -> hr.Tensor:
    """Gathers and scatters at indices that occur twice, which is unknown before the step runs."""

    def body(i, ta):
        at = hr.stack([i, 4 - i, i])
        return i + 1, ta.scatter(at, hr.sin(ta.gather(at)) * x[i])

    return hr.while_loop(lambda i, ta: i < 4, body, (0, hr.TensorArray(f64, 5).unstack(x)))[1].stack()


def lists_joined(x: hr.Tensor) -> hr.Tensor:
    b = hr.api.scopes.builder(x)
    first = b.TensorListFromTensor(x[:1], -1)

    def body(i, handle):
        b = hr.api.scopes.builder(handle)
        row = b.TensorListGetItem(handle, 0, -1, element_dtype=f64)
        more = b.TensorListPushBack(b.EmptyTensorList(-1, -1, element_dtype=f64), hr.concat([row, x[i]], 0))
        more = b.TensorListConcatLists(b.TensorListResize(more, 2), handle, element_dtype=f64)
        more = b.Pack([more, handle])
        more = b.TensorListPushBackBatch(more, hr.stack([hr.sin(x[i]), x[i] * x[i]]))
        return i + 1, b.Unpack(more, num=2)[0]

    handle = hr.while_loop(lambda i, _: i < 3, body, (0, first))[1]
    b = hr.api.scopes.builder(x)
    sizes = hr.constant([0, 1] * 5, hr.int64)
    return hr.sin(b.TensorListConcatV2(handle, -1, sizes, element_dtype=f64)[0])


def lists_of_lists(x: hr.Tensor) -> hr.Tensor:
    b = hr.api.scopes.builder(x)
    outer = b.TensorListReserve(hr.constant([], hr.int32), 3, element_dtype=hr.variant)

    def body(i, outer, inner):
        b = hr.api.scopes.builder(outer)
        inner = b.TensorListPushBack(inner, hr.sin(x[i]))
        outer = b.TensorListSetItem(outer, i % 3, inner)
        return i + 1, outer, inner

    empty = b.EmptyTensorList([3], -1, element_dtype=f64)
    outer = hr.while_loop(lambda i, *_: i < 5, body, (0, outer, empty))[1]
    lists = [b.TensorListGetItem(outer, k, -1, element_dtype=hr.variant) for k in (0, 1, 2)]
    one, two, three = (b.TensorListStack(v, [3], element_dtype=f64) for v in lists)
    return hr.concat([one, two, three], 0) ** 2


@pytest.mark.matrix
@pytest.mark.parametrize(
    "make",
    [
        reads_and_writes,
        ragged_rows,
        rows_of_unknown_shape_that_grow,
        gathers_and_scatters,
        lists_joined,
        lists_of_lists,
    ],
    ids=lambda f: f.__name__,
)
def test_lists_to_order_three(make) -> None:
    check(make, TABLE)


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
