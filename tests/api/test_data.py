"""`hr.data`: structures of elements, eager and jitted iteration, and errors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, OutOfRangeError, SignatureError

D = hr.data.Dataset


def test_each_pass_is_an_iterator_of_its_own() -> None:
    dataset = D.range(3)
    first, second = iter(dataset), iter(dataset)
    assert [int(next(first)), int(next(first)), int(next(second))] == [0, 1, 0]
    assert [int(x) for x in dataset] == [0, 1, 2]
    assert list(second) != []
    assert next(second, None) is None
    with pytest.raises(OutOfRangeError, match="End of sequence"):
        second.get_next()


def test_lengths_are_known_where_the_sources_tell_them() -> None:
    assert len(D.range(10).batch(3)) == 4
    assert len(D.zip((D.range(3), D.range(9).skip(2)))) == 3
    assert int(D.range(3).repeat().cardinality()) == hr.data.INFINITE_CARDINALITY
    assert int(D.range(3).filter(lambda x: x > 0).cardinality()) == hr.data.UNKNOWN_CARDINALITY
    with pytest.raises(TypeError, match="infinite"):
        len(D.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(D.range(3).filter(lambda x: x > 0))


def test_structures_stay_what_they_are() -> None:
    element = {"b": (np.float32([1, 2]), [[1], [2]]), "a": np.array(["x", "y"])}
    (row, _) = list(D.from_tensor_slices(element))
    assert list(row) == ["b", "a"] or list(row) == ["a", "b"]
    assert (float(row["b"][0]), row["b"][1].numpy().tolist(), row["a"].numpy()) == (1.0, [1], b"x")
    sums = D.from_tensor_slices(element).map(lambda e: (e["b"][0] + 1, hr.strings.length(e["a"])))
    assert [(float(x), int(n)) for x, n in sums] == [(2.0, 1), (3.0, 1)]
    assert sums.element_spec == (hr.TensorSpec((), hr.float32), hr.TensorSpec((), hr.int32))


def test_sparse_tensors_are_leaves() -> None:
    sparse = hr.SparseTensor([[0, 1], [1, 0]], [5, 6], [2, 3])
    rows = [hr.sparse.to_dense(x).numpy().tolist() for x in D.from_tensor_slices(sparse)]
    assert rows == [[0, 5, 0], [6, 0, 0]]
    (batch,) = D.from_tensor_slices(sparse).batch(2)
    assert hr.sparse.to_dense(batch).numpy().tolist() == rows


def test_functions_see_eager_variables() -> None:
    v = hr.Variable(2.0)
    scaled = D.range(3).map(lambda x: hr.cast(x, hr.float32) * v)
    assert [float(x) for x in scaled] == [0, 2, 4]
    v.assign(10.0)
    assert [float(x) for x in scaled] == [0, 10, 20]


def test_a_jitted_function_takes_elements_in_order() -> None:
    numbers = iter(D.range(100).map(lambda x: x * 2))

    @hr.jit
    def difference() -> Any:
        first = next(numbers)
        return next(numbers) - first * 10

    assert [int(difference()) for _ in range(3)] == [2, 6 - 40, 10 - 80]
    assert int(next(numbers)) == 12


def test_a_jitted_function_reduces_a_dataset_around_it() -> None:
    dataset = D.range(5)
    total = hr.jit(lambda start: dataset.map(lambda x: x + start).reduce(start, lambda s, x: s + x))
    assert int(total(hr.constant(1, hr.int64))) == 16


def test_a_dataset_in_a_graph_has_no_values() -> None:
    with hr.Graph():
        dataset = D.range(3)
        with pytest.raises(RuntimeError, match="make_initializable_iterator"):
            iter(dataset)
        with pytest.raises(TypeError, match="cardinality"):
            len(dataset)


def test_random_numbers_of_a_function_differ_between_elements() -> None:
    drawn = [float(x) for x in D.range(4).map(lambda x: hr.random.uniform((), seed=1))]
    assert len(set(drawn)) == 4


def test_a_generator_is_started_by_each_pass_and_checked() -> None:
    starts = []

    def pairs() -> Any:
        starts.append(1)
        yield 1, [1.0]
        yield 2, [1.0, 2.0]

    dataset = D.from_generator(
        pairs, output_signature=(hr.TensorSpec((), hr.int32), hr.TensorSpec((None,), hr.float32))
    )
    for _ in range(2):
        assert [(int(n), x.numpy().tolist()) for n, x in dataset] == [(1, [1.0]), (2, [1.0, 2.0])]
    assert len(starts) == 2
    with pytest.raises(InvalidArgumentError, match="expected structure"):
        list(D.from_generator(lambda: iter([(1, 2)]), hr.int32, ()))
    with pytest.raises(InvalidArgumentError, match="shape"):
        list(D.from_generator(lambda: iter([[1, 2]]), hr.int32, (3,)))
    with pytest.raises(InvalidArgumentError, match="expected type"):
        list(D.from_generator(lambda: iter(["text"]), hr.int32, ()))
    with pytest.raises(TypeError, match="output_signature"):
        D.from_generator(pairs)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda d: d.map(lambda x: object()), SignatureError, "cannot be a tensor"),
        (lambda d: d.map(lambda x: None), SignatureError, "returned None"),
        (lambda d: d.map(3), TypeError, "callable"),
        (lambda d: d.filter(lambda x: x), ValueError, "boolean scalar"),
        (lambda d: d.flat_map(lambda x: x), TypeError, "must return a `Dataset`"),
        (lambda d: d.reduce(0.0, lambda s, x: x), TypeError, "Expected float32"),
        (lambda d: d.reduce((0, 0), lambda s, x: s[0]), TypeError, "element structure"),
        (lambda d: d.concatenate(D.from_tensors("a")), TypeError, "Incompatible"),
        (lambda d: d.unbatch(), ValueError, "scalar components"),
        (lambda d: d.window(2).batch(2), TypeError, "flat_map"),
        (lambda d: d.shard(3, 3), ValueError, "index"),
        (lambda d: d.apply(lambda d: 3), TypeError, "must return a `Dataset`"),
        (lambda d: d.group_by_window(lambda x: x, lambda k, g: g), ValueError, "window_size"),
        (lambda d: D.zip((d, 3)), TypeError, "structure of `Dataset`"),
        (lambda d: D.from_tensor_slices(3), ValueError, "from_tensors"),
        (lambda d: D.sample_from_datasets([d], [0.5, 0.5]), ValueError, "2 weights"),
        (lambda d: list(d.batch(0)), InvalidArgumentError, "greater than zero"),
        (lambda d: list(d.shuffle(0)), InvalidArgumentError, "buffer_size"),
        (lambda d: list(D.from_tensor_slices(([1], [1, 2]))), InvalidArgumentError, "same size in the 0th"),
        (lambda d: d.bucket_by_sequence_length(lambda x: x, [1], [2]), ValueError, "bucket_batch_sizes"),
    ],
)
def test_mistakes_are_named(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(D.range(4))


def test_a_record_may_be_an_element() -> None:
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any

    points = D.range(2).map(lambda n: Point(n, n + 1))
    assert [(int(p.x), int(p.y)) for p in points] == [(0, 1), (1, 2)]
