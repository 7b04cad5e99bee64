"""Sparse tensors, sets and embeddings as users make them, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import FeedError, InvalidArgumentError
from tests.api.running import run

DENSE = np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [-3, 0, 0, 4]], np.float32)
OTHER = np.array([[1, 0, 0, 2], [0, 0, 5, 0], [-3, 0, 0, -4]], np.float32)


def whole(x: hr.SparseTensor) -> np.ndarray:
    """The dense value of a sparse tensor that was made outside of graphs."""
    value: np.ndarray = x.numpy()
    return value


@pytest.fixture
def a() -> hr.SparseTensor:
    return hr.sparse.from_dense(DENSE)


@pytest.fixture
def b() -> hr.SparseTensor:
    return hr.sparse.from_dense(OTHER)


def test_layouts(a: hr.SparseTensor) -> None:
    sparse = hr.sparse
    np.testing.assert_array_equal(sparse.to_dense(a).numpy(), DENSE)
    np.testing.assert_array_equal(sparse.to_dense(a, 7.0).numpy(), np.where(DENSE == 0, 7, DENSE))
    np.testing.assert_array_equal(whole(sparse.reshape(a, [2, -1])), DENSE.reshape(2, 6))
    np.testing.assert_array_equal(whole(sparse.transpose(a)), DENSE.T)
    np.testing.assert_array_equal(whole(sparse.slice(a, [0, 1], [2, 5])), DENSE[:2, 1:])
    for axis in (0, 1, -1, -3):
        np.testing.assert_array_equal(whole(sparse.expand_dims(a, axis)), np.expand_dims(DENSE, axis))
    for part, want in zip(sparse.split(a, 3, 1), (DENSE[:, :2], DENSE[:, 2:3], DENSE[:, 3:]), strict=True):
        np.testing.assert_array_equal(whole(part), want)
    np.testing.assert_array_equal(whole(sparse.retain(a, a.values > 0)), np.maximum(DENSE, 0))
    np.testing.assert_array_equal(whole(sparse.reset_shape(a, [4, 5])), np.pad(DENSE, ((0, 1), (0, 1))))
    assert whole(sparse.reset_shape(sparse.retain(a, [True, False, False, False]))).shape == (1, 2)
    filled, was_empty = sparse.fill_empty_rows(a, 9.0)
    assert (whole(filled)[1].tolist(), was_empty.numpy().tolist()) == ([9, 0, 0, 0], [False, True, False])
    shuffled = hr.SparseTensor([[2, 0], [0, 1]], [5, 6], [3, 2])
    assert sparse.reorder(shuffled).values.numpy().tolist() == [6, 5]
    np.testing.assert_array_equal(whole(sparse.eye(2, 3)), np.eye(2, 3))


def test_concat(a: hr.SparseTensor, b: hr.SparseTensor) -> None:
    np.testing.assert_array_equal(whole(hr.sparse.concat(-1, [a, b])), np.concatenate([DENSE, OTHER], -1))
    smaller = hr.sparse.slice(b, [0, 0], [2, 4])
    with pytest.raises(InvalidArgumentError):
        hr.sparse.concat(1, [a, smaller])
    got = whole(hr.sparse.concat(1, [a, smaller], expand_nonconcat_dims=True))
    np.testing.assert_array_equal(got, np.concatenate([DENSE, np.pad(OTHER[:2], ((0, 1), (0, 0)))], 1))
    assert hr.sparse.concat(0, [a]) is a


def test_sparse_operations_match_dense_ones(a: hr.SparseTensor, b: hr.SparseTensor) -> None:
    sparse = hr.sparse
    np.testing.assert_array_equal(whole(sparse.add(a, b)), DENSE + OTHER)
    assert sparse.add(a, b).values.shape == (6,)  # elements whose sum is 0 stay in it
    assert sparse.add(a, b, 0.5).values.shape == (5,)  # ... but for what is below the threshold
    np.testing.assert_array_equal(sparse.add(OTHER, a).numpy(), DENSE + OTHER)
    np.testing.assert_array_equal(whole(sparse.maximum(a, b)), np.maximum(DENSE, OTHER))
    np.testing.assert_array_equal(whole(sparse.minimum(a, b)), np.minimum(DENSE, OTHER))
    np.testing.assert_array_equal(whole(a * np.float32([1, 2, 3, 4])), DENSE * [1, 2, 3, 4])
    np.testing.assert_array_equal(whole(a / 2.0), DENSE / 2)
    np.testing.assert_array_equal(whole(sparse.map_values(hr.multiply, a, 3.0)), DENSE * 3)
    added = sparse.map_values(lambda xs, by: hr.add_n([*xs["b"], xs["a"]]) * by, {"b": [a, a], "a": a}, by=2.0)
    np.testing.assert_array_equal(whole(added), DENSE * 6)
    for axis, keep in ((None, False), (0, True), ([0, 1], False), (-1, False)):
        axes = tuple(axis) if isinstance(axis, list) else axis
        want = DENSE.sum(axes, keepdims=keep)
        np.testing.assert_array_equal(sparse.reduce_sum(a, axis, keep).numpy(), want)
        np.testing.assert_array_equal(whole(sparse.reduce_sum(a, axis, keep, output_is_sparse=True)), want)
    assert sparse.reduce_max(a, 1).numpy().tolist() == [2, 0, 4]  # of what is there
    exp = np.exp([1.5, 2.0])
    np.testing.assert_allclose(whole(sparse.softmax(a))[0], [0, exp[0] / exp.sum(), 0, exp[1] / exp.sum()], rtol=1e-6)


@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_products(a: hr.SparseTensor, adjoint_a: bool, adjoint_b: bool) -> None:
    left = DENSE.T if adjoint_a else DENSE
    y = np.arange(left.shape[1] * 2, dtype=np.float32).reshape(-1, 2)
    given = y.T if adjoint_b else y
    got = hr.sparse.sparse_dense_matmul(a, given, adjoint_a, adjoint_b)
    np.testing.assert_array_equal(got.numpy(), left @ y)
    flipped = hr.sparse.sparse_dense_matmul(given, a, not adjoint_b, not adjoint_a)
    np.testing.assert_array_equal(flipped.numpy(), (left @ y).T)


def test_ids() -> None:
    ids = hr.SparseTensor([[0, 0], [0, 1], [2, 0]], [3, 1, 0], [3, 2])
    want = [[False, True, False, True], [False] * 4, [True, False, False, False]]
    assert hr.sparse.to_indicator(ids, 4).numpy().tolist() == want
    merged = hr.sparse.merge(ids, ids.with_values([0.5, 0.25, 2.0]), 4)
    np.testing.assert_array_equal(whole(merged), [[0, 0.25, 0, 0.5], [0] * 4, [2, 0, 0, 0]])
    rows = hr.IndexedSlices(hr.constant([[1.0], [2.0], [3.0]]), hr.constant([0, 4, 7]), None)
    kept = hr.sparse.mask(rows, [4])
    assert (kept.indices.numpy().tolist(), kept.values.numpy().tolist()) == ([0, 7], [[1], [3]])
    one, two = hr.sparse.from_dense([["a", "b"], ["c", ""]]), hr.constant([["x"], ["y"]])
    assert hr.sparse.cross([one, two]).values.numpy().tolist() == [b"a_X_x", b"b_X_x", b"c_X_y"]
    assert hr.sparse.cross([one, two], separator="-").values.numpy()[0] == b"a-x"
    hashed = hr.sparse.cross_hashed([one, two], num_buckets=10).values.numpy()
    assert hashed.shape == (3,)
    assert (hashed < 10).all()


def test_it_is_fetched_fed_and_goes_through_structures() -> None:
    with hr.Graph() as g:
        x = hr.sparse_placeholder(hr.float32, name="x")
        y = hr.sparse_placeholder(hr.float32, [3, None])
        p = hr.placeholder(hr.bool, ())
        assert (x.name, x.shape, y.shape) == ("x/values:0", None, (3, None))
        chosen = hr.cond(p, lambda: x, lambda: x.with_values(-x.values))
        _, looped = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.0), (0, x))
        total = hr.sparse.reduce_sum(y)
    indices, values, shape = [[0, 1], [2, 0]], [1.0, 2.0], [3, 2]
    with hr.Session(graph=g) as session:
        got = session.run({"it": [chosen]}, {x: (indices, values, shape), p: False})["it"][0]
        assert isinstance(got, hr.SparseTensorValue)
        assert (got.indices.tolist(), got.values.tolist(), got.dense_shape.tolist()) == (indices, [-1, -2], shape)
        assert session.run(looped, {x: got}).values.tolist() == [-8, -16]
        assert session.run(total, {y: hr.SparseTensorValue(indices, values, shape)}) == 3
        assert session.run(total, {y.indices: indices, y.values: values, y.dense_shape: shape}) == 3
        assert session.make_callable(total, [y])(got) == -3
        handle = session.partial_run_setup(total, [y])
        assert session.partial_run(handle, total, {y: got}) == -3
        for wrong in (3.0, (indices, values), np.zeros((3, 2))):
            with pytest.raises(FeedError, match="a key of 3 tensors is fed a tuple of 3 values"):
                session.run(total, {y: wrong})
        with pytest.raises(FeedError, match="fed twice"):
            session.run(total, {y: got, y.values: values})


def test_static_shapes(g: hr.Graph) -> None:
    x = hr.SparseTensor([[0, 1]], [1.0], [3, 4])
    assert x.shape == (3, 4)
    assert hr.sparse.concat(1, [x, x]).shape == (3, 8)
    assert hr.sparse.transpose(x).shape == (4, 3)
    assert hr.sparse.reshape(x, [2, -1]).shape == (2, 6)
    assert hr.sparse.add(x, x).shape == (3, 4)
    unknown = hr.sparse_placeholder(hr.float32, [None, 4])
    assert hr.sparse.reorder(unknown).shape == (None, 4)
    assert hr.sparse.concat(0, [x, unknown]).shape == (None, 4)
    with pytest.raises(ValueError, match="Cannot reshape a tensor with 12 elements"):
        hr.sparse.reshape(x, [5, 2])
    with pytest.raises(ValueError, match="At most one dimension"):
        hr.sparse.reshape(x, [-1, -1])
    with pytest.raises(ValueError, match=r"dimension sizes >= sp_input\.shape"):
        hr.sparse.reset_shape(x, [2, 9])
    late = hr.sparse.reset_shape(unknown, [2, 9])
    with pytest.raises(InvalidArgumentError):
        run(late, {unknown: ([[0, 1]], [1.0], [3, 4])})


def test_malformed_sparse_tensors_are_refused(a: hr.SparseTensor) -> None:
    for make, error, phrase in (
        (lambda: hr.SparseTensor([0], [1], [3]), ValueError, "rank 2"),
        (lambda: hr.SparseTensor([[0], [1]], [1], [3]), ValueError, "2 and 1 are not compatible"),
        (lambda: hr.SparseTensor([[0, 1]], [1], [3]), ValueError, "2 and 1 are not compatible"),
        (lambda: hr.sparse.to_dense(DENSE), TypeError, "must be a SparseTensor"),
        (lambda: hr.sparse.add(DENSE, DENSE), TypeError, "At least one input should be SparseTensor"),
        (lambda: hr.sparse.concat(0, a), TypeError, "must be a list or tuple"),
        (lambda: hr.sparse.merge(a, a, "many"), TypeError, "vocab_size must be"),
        (lambda: hr.sparse.merge([a], a, [2, 3]), ValueError, "equal lengths"),
        (lambda: hr.sparse.split(a, 2), ValueError, "needs sp_input, num_split and axis"),
        (lambda: hr.sparse.retain(a, [True]), ValueError, "not compatible"),
        (lambda: hr.sparse.expand_dims(a, "x"), TypeError, "axis must be an integer"),
        (lambda: hr.sparse.cross(a), TypeError, "must be a list"),
        (lambda: hr.sparse.map_values(hr.abs, DENSE), ValueError, "No SparseTensor"),
        (lambda: hr.sparse.map_values(hr.add, a, hr.sparse.transpose(a)), InvalidArgumentError, "Mismatched"),
        (lambda: hr.convert_to_tensor_or_sparse_tensor(a, hr.int32), RuntimeError, "Sparse dtype mismatch"),
        (lambda: hr.sets.size([1, 2]), TypeError, "Expected `SparseTensor`"),
        (lambda: hr.sets.union([[1.0]], [[2.0]]), TypeError, "invalid dtype"),
        (lambda: hr.sets.union([[1]], hr.constant([[2]], hr.int64)), TypeError, "Types don't match"),
        (lambda: hr.nn.embedding_lookup_sparse(DENSE, [1], None), TypeError, "sp_ids must be SparseTensor"),
        (lambda: hr.nn.embedding_lookup_sparse(DENSE, a, None, "max"), ValueError, "combiner must be one of"),
        (lambda: hr.nn.safe_embedding_lookup_sparse([], a), ValueError, "Missing embedding_weights"),
    ):  # fmt: skip
        with pytest.raises(error, match=phrase):
            make()  # type: ignore[no-untyped-call]


def test_sets() -> None:
    one, two = [[1, 2, 2], [3, 4, 5]], [[2, 9, 2], [5, 3, 3]]
    dense, sparse = (hr.constant(one), hr.constant(two)), (hr.sparse.from_dense(one), hr.sparse.from_dense(two))

    def rows(x: hr.SparseTensor) -> list[list[int]]:
        at = x.indices.numpy()[:, 0]
        return [x.values.numpy()[at == i].tolist() for i in range(2)]

    for a, b in ((dense[0], dense[1]), (dense[0], sparse[1]), (sparse[0], dense[1]), sparse):
        assert rows(hr.sets.intersection(a, b)) == [[2], [3, 5]]
        assert rows(hr.sets.union(a, b)) == [[1, 2, 9], [3, 4, 5]]
        assert rows(hr.sets.difference(a, b)) == [[1], [4]]
        assert rows(hr.sets.difference(a, b, aminusb=False)) == [[9], []]
    assert hr.sets.size(sparse[0]).numpy().tolist() == [2, 3]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_embeddings(combiner: str, is_weighted: bool, parts: int) -> None:
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    given: Any = [hr.constant(t) for t in np.split(table, [3])] if parts == 2 else hr.constant(table)
    ids = hr.SparseTensor([[0, 0], [0, 1], [1, 0]], hr.constant([1, 4, 3], hr.int64), [2, 2])
    weights = [1.0, 3.0, 0.5] if is_weighted else [1.0, 1.0, 1.0]

    def together(at: list[int], w: list[float]) -> Any:
        by = {"sum": 1, "mean": sum(w), "sqrtn": np.sqrt(np.square(w).sum())}[combiner]
        return (table[at] * np.array(w)[:, None]).sum(0) / by

    want = [together([1, 4], weights[:2]), together([3], weights[2:])]
    sp_weights = ids.with_values(weights) if is_weighted else None
    got = hr.nn.embedding_lookup_sparse(given, ids, sp_weights, combiner)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    # an example without ids, and an id that does not count
    more = hr.SparseTensor(
        [[0, 0], [0, 1], [1, 0], [1, 1]], hr.constant([1, 4, 3, -2], hr.int64), hr.constant([3, 2], hr.int64)
    )
    sp_weights = more.with_values([*weights, 7.0]) if is_weighted else None
    got = hr.nn.safe_embedding_lookup_sparse(given, more, sp_weights, combiner)
    np.testing.assert_allclose(got.numpy(), [*want, [0, 0]], rtol=1e-6)
    got = hr.nn.safe_embedding_lookup_sparse(given, more, sp_weights, combiner, default_id=2)
    np.testing.assert_allclose(got.numpy()[2], table[2], rtol=1e-6)


def test_the_gradient_of_an_embedding_is_the_rows_that_were_asked_for(g: hr.Graph) -> None:
    table = hr.placeholder(hr.float32, (1000, 2))
    ids = hr.SparseTensor([[0, 0], [0, 1]], [7, 3], [1, 2])
    (d,) = hr.gradients(hr.reduce_sum(hr.nn.embedding_lookup_sparse(table, ids, None)), table)
    got = run(d, {table: np.zeros((1000, 2))})
    assert got.values.shape == (2, 2)
    assert sorted(got.indices.tolist()) == [3, 7]
