"""Batches of sparse tensors: the queue holds a number, and a map keeps the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.resources.sparse_map import SparseTensorsMap
from headrace.train import input
from headrace.train.input import elements
from tests.inside import resources_of
from tests.train.pipelines import plain, taken


def numbers(n: int = 7) -> Any:
    return input.range_input_producer(n, num_epochs=1, shuffle=False).dequeue()


def example(x: Any) -> Any:
    """Sparse vector of x % 3 elements.

    The elements are 10 * x, 10 * x + 1 ..., and the length is x % 3 + 1.
    """
    k = hr.cast(x % 3, hr.int64)
    return hr.SparseTensor(hr.range(k)[:, None], 10 * x + hr.cast(hr.range(k), hr.int32), hr.stack([k + 1]))


def rows(x: Any) -> Any:
    """Sparse matrix of three rows, x + 2 wide.

    The first row has x in place 1, the second is empty, the third has -x and 7 in the places 0 and x + 1.
    """
    n = hr.cast(x, hr.int64)
    return hr.SparseTensor([[0, 1], [2, 0], [2, n + 1]], hr.stack([x, -x, 7]), hr.stack([3, n + 2]))


def batch_of(values: list[dict[int, int]], width: int) -> list[Any]:
    """Fetched value of a batch of rows {place: value}."""
    places = [[i, j] for i, r in enumerate(values) for j in sorted(r)]
    return [places, [r[j] for r in values for j in sorted(r)], [len(values), width]]


def vector(x: int) -> dict[int, int]:
    return {j: 10 * x + j for j in range(x % 3)}


def vectors(*xs: int) -> list[Any]:
    return batch_of([vector(x) for x in xs], max(x % 3 + 1 for x in xs))


def test_batches_in_order() -> None:
    def build(**more: Any) -> Any:
        x = numbers()
        number, got = input.batch([x, example(x)], 3, **more)
        assert got.shape == (None if more else 3, None)
        assert got.dtype is hr.int32
        return number, got

    want = [[[0, 1, 2], vectors(0, 1, 2)], [[3, 4, 5], vectors(3, 4, 5)]]
    assert taken(build) == want
    assert taken(lambda: build(allow_smaller_final_batch=True)) == [*want, [[6], vectors(6)]]


def test_one_sparse_tensor_alone_and_in_a_dict() -> None:
    assert taken(lambda: input.batch(example(numbers(4)), 2)) == [vectors(0, 1), vectors(2, 3)]
    got = taken(lambda: (lambda x: input.batch({"b": x, "a": example(x)}, 2))(numbers(4)))
    assert got == [{"a": vectors(0, 1), "b": [0, 1]}, {"a": vectors(2, 3), "b": [2, 3]}]


def test_values_of_sparse_tensors_are_batched() -> None:
    value = hr.SparseTensorValue([[1, 0]], [b"x"], [2, 2])
    (got, *_) = taken(lambda: input.batch([value], 2), most=1)
    assert got == [[[0, 1, 0], [1, 1, 0]], [b"x", b"x"], [2, 2, 2]]


def test_several_at_a_time() -> None:
    def build() -> Any:
        x = numbers(4)
        return input.batch([rows(x), hr.stack([x, x, x])], 4, enqueue_many=True)

    def row(x: int, i: int) -> dict[int, int]:
        return ({1: x}, {}, {0: -x, x + 1: 7})[i]

    order = [(x, i) for x in range(4) for i in range(3)]
    want = [
        [batch_of([row(*r) for r in some], max(x for x, _ in some) + 2), [x for x, _ in some]]
        for some in (order[:4], order[4:8], order[8:])
    ]
    assert taken(build) == want


def test_only_what_is_kept() -> None:
    def some() -> Any:
        x = numbers(12)
        return input.maybe_batch([example(x), x], x % 4 > 1, 3)

    assert taken(some) == [[vectors(2, 3, 6), [2, 3, 6]], [vectors(7, 10, 11), [7, 10, 11]]]

    def all_or_none() -> Any:
        x = numbers(4)
        return input.maybe_batch([rows(x)], x % 2 > 0, 3, enqueue_many=True)

    assert taken(all_or_none) == [batch_of([{1: x}, {}, {0: -x, x + 1: 7}], x + 2) for x in (1, 3)]

    def those() -> Any:
        x = numbers(4)
        return input.maybe_batch([hr.stack([x, x, x]), rows(x)], hr.stack([x > 0, False, x > 1]), 5, enqueue_many=True)

    assert taken(those) == [[[1, 2, 2, 3, 3], batch_of([{1: 1}, {1: 2}, {0: -2, 3: 7}, {1: 3}, {0: -3, 4: 7}], 5)]]


def test_several_sources() -> None:
    def build() -> Any:
        x, y = numbers(4), numbers(4) + 10
        return input.batch_join([[x, example(x)], [y, example(y)]], 8)

    ((order, got),) = taken(build)
    assert sorted(order) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert got == vectors(*order)


@pytest.mark.parametrize("join", [False, True])
def test_shuffled_batches(join: bool) -> None:
    def build() -> Any:
        x = numbers(40)
        given = [x, example(x)]
        if join:
            return input.shuffle_batch_join([given], 8, 20, 10, seed=3)
        return input.maybe_shuffle_batch(given, 8, 20, 10, hr.constant(True), seed=3)

    got = taken(build)
    assert sorted(x for order, _ in got for x in order) == list(range(40))
    assert [x for order, _ in got for x in order] != list(range(40))
    assert all(batch == vectors(*order) for order, batch in got)


def test_batches_of_batches() -> None:
    def build() -> Any:
        (pairs,) = [input.batch(example(numbers(8)), 2)]
        return hr.sparse.to_dense(input.batch([pairs], 2))

    def dense(*pairs: tuple[int, int]) -> Any:
        out = np.zeros((2, 2, max(x % 3 + 1 for p in pairs for x in p)), int)
        for i, p in enumerate(pairs):
            for k, x in enumerate(p):
                out[i, k, : x % 3] = 10 * x + np.arange(x % 3)
        return out.tolist()

    assert taken(build) == [dense((0, 1), (2, 3)), dense((4, 5), (6, 7))]


def test_buckets() -> None:
    def build() -> Any:
        x = numbers(9)
        return input.bucket([x, example(x)], x % 2, 2, 2, keep_input=x < 8, allow_smaller_final_batch=True)

    got = taken(build)
    assert sorted(x for _, (order, _) in got for x in order) == list(range(8))
    for which, (order, batch) in got:
        assert all(x % 2 == which for x in order)
        assert batch == vectors(*order)


def test_prefetching() -> None:
    got = taken(lambda: input.prefetch({"x": example(numbers(3))}))
    assert got == [{"x": [[[j] for j in vector(x)], list(vector(x).values()), [x % 3 + 1]]} for x in range(3)]


def test_what_is_not_known_of_shapes() -> None:
    with hr.Graph():
        x = hr.sparse_placeholder(hr.float32)
        assert input.batch([x], 2).shape is None
        assert input.batch([x], 2).indices.shape == (None, None)
        y = hr.sparse_placeholder(hr.float32, [None, 5])
        assert input.batch([y], 2, shapes=[(1,)]).shape == (2, None, 5)
        assert input.batch([y], 2, enqueue_many=True).shape == (2, 5)
        z = hr.sparse_placeholder(hr.float32, [4, 3])
        assert input.batch_join([[y], [z]], 2, allow_smaller_final_batch=True).shape == (None, None, None)
        assert input.batch_join([[y], [x]], 2).shape is None


def maps(session: hr.Session) -> list[SparseTensorsMap]:
    found = [r for r in resources_of(session) if isinstance(r, SparseTensorsMap)]
    return found


@pytest.mark.parametrize("keep", [True, [True, False, True]])
def test_maps_are_empty_when_queues_are(keep: Any) -> None:
    """Also if nothing sparse is fetched, and of what is not kept."""
    with hr.Graph() as g:
        x = hr.constant([1, 2, 3])
        made = input.maybe_batch([x, rows(hr.constant(5))], keep, 2, enqueue_many=True, capacity=6)
        (runner,) = [r for r in g.kept if hasattr(r, "enqueue_ops")]
    with hr.Session(graph=g) as sess:
        sess.run(runner.enqueue_ops[0])
        (found,) = maps(sess)
        assert len(found) == (3 if keep is True else 2)
        assert sess.run(made[0]).tolist() == ([1, 2] if keep is True else [1, 3])
        assert len(found) == (1 if keep is True else 0)


def test_queues_of_one_name_have_one_map() -> None:
    """A pipeline may take a batch whose examples another one enqueued."""
    with hr.Graph() as g:
        x = hr.constant(5)
        a = input.batch([example(x)], 1, shared_name="both")
        b = input.batch([example(x)], 1, shared_name="both")
        runners = [r for r in g.kept if hasattr(r, "enqueue_ops")]
    with hr.Session(graph=g) as sess:
        sess.run(runners[0].enqueue_ops[0])
        assert plain(sess.run(b)) == vectors(5)
        sess.run(runners[1].enqueue_ops[0])
        assert plain(sess.run(a)) == vectors(5)


def sparse(shape: list[int], dtype: hr.DType = hr.int32) -> Any:
    return hr.SparseTensor(np.zeros((0, len(shape)), np.int64), hr.zeros((0,), dtype), shape)


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda: input.batch_join([[sparse([2])], [hr.zeros((2,), hr.int32)]], 2), ValueError, "must be so in all"),
        (lambda: input.batch_join([[sparse([2])], [sparse([2], hr.int64)]], 2), TypeError, "int32 vs. int64"),
        (lambda: input.batch_join([[sparse([2])], [sparse([2, 2])]], 2), ValueError, r"got ranks \[1, 2\]"),
        (lambda: input.batch([sparse([2])], 2, enqueue_many=True), ValueError, "one at least"),
        (lambda: input.batch([sparse([2])], 2, shapes=[(), ()]), ValueError, "2 entries, and an example has 1"),
    ],
)
def test_what_cannot_be_batched(build: Callable[[], Any], error: type[Exception], match: str) -> None:
    with hr.Graph(), pytest.raises(error, match=match):
        build()


@pytest.mark.parametrize(
    ("keep", "places", "shape", "match"),
    [
        ([True, True], [[0, 0], [2, 0]], [3, 1], r"partitions|is not in \[0, 2\)"),  # both are so
        ([True] * 4, [[0, 0], [2, 0]], [3, 1], "partitions"),
        ([True] * 3, [[0, 0], [3, 0]], [3, 1], "3"),
        ([True] * 3, [[2, 0], [0, 0]], [3, 1], "order"),
        ([True] * 3, [[0, 0], [-1, 0]], [3, 1], "-1"),
        (True, [[0, 0], [3, 0]], [3, 1], "bounds"),
        (True, [[0, 0], [0, 0]], [3, 1], "repeated"),
        (True, [[0, 0], [1, 0]], [2**33, 1], "OOM"),
    ],
)
def test_what_is_wrong_in_a_sparse_tensor(keep: Any, places: Any, shape: Any, match: str) -> None:
    with hr.Graph() as g:
        given = hr.sparse_placeholder(hr.int32, [None, None])
        input.maybe_batch([given], keep, 2, enqueue_many=True)
        (runner,) = [r for r in g.kept if hasattr(r, "enqueue_ops")]
    error = ResourceExhaustedError if match == "OOM" else InvalidArgumentError
    with hr.Session(graph=g) as sess, pytest.raises(error, match=match):
        sess.run(runner.enqueue_ops[0], {given: (places, [1, 2], shape)})


def test_elements_say_what_is_in_the_queue() -> None:
    with hr.Graph():
        found = elements.Elements([[hr.zeros((4, 2)), sparse([4, 3])]], None, True, "here/")
    assert found.types == [hr.float32, hr.int64]
    assert found.shapes == [(2,), ()]
