"""Tables, accumulators, staging areas and barriers as users make them."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from tests.api.running import run


def test_a_static_table(g: hr.Graph) -> None:
    words = hr.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], value_dtype=hr.int64)
    table = hr.lookup.StaticHashTable(words, -1)
    sparse = hr.SparseTensor([[0, 1]], ["b"], [2, 2])
    fetches = [table[["b", "q"]], table.size(), table.lookup(sparse).values, table.export()]
    assert (table.name, table.key_dtype, table.value_dtype) == ("hash_table", hr.string, hr.int64)
    with hr.Session(graph=g) as session:
        with pytest.raises(FailedPreconditionError, match=r"[Tt]able not initialized"):
            session.run(fetches[0])
        session.run(table.initializer)
        found, n, of_sparse, (keys, values) = session.run(fetches)
        assert (found.tolist(), n, of_sparse.tolist()) == ([2, -1], 2, [2])
        assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == {b"a": 1, b"b": 2}
    with pytest.raises(TypeError, match="Dtype of argument `keys` must be string, received: int32"):
        table.lookup(hr.constant([1]))
    with pytest.raises(ValueError, match="must be a scalar"):
        hr.lookup.StaticHashTable(words, [1, 2])
    with pytest.raises(TypeError, match="Invalid key_dtype"):
        words.initialize(hr.lookup.MutableHashTable(hr.int64, hr.int64, 0))


def test_a_text_file(g: hr.Graph, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("cat 10\ndog 20\n")
    index = hr.lookup.TextFileIndex
    columns = hr.lookup.TextFileInitializer(str(path), hr.string, 0, hr.int64, 1, delimiter=" ")
    lines = hr.lookup.TextFileInitializer(str(path), hr.string, index.WHOLE_LINE, hr.int64, index.LINE_NUMBER)
    first, second = hr.lookup.StaticHashTable(columns, -1), hr.lookup.StaticHashTable(lines, -1)
    with hr.Session(graph=g) as session:
        session.run([first.initializer, second.initializer])
        assert session.run(first.lookup(["dog", "cow"])).tolist() == [20, -1]
        assert session.run(second.lookup(["dog 20", "dog"])).tolist() == [1, -1]
    for wrong, phrase in (
        ({"key_index": -3}, "should be >= -2"),
        ({"key_index": -1}, "must be int64"),
        ({"vocab_size": 0}, "should be > 0"),
        ({"filename": ""}, "argument required"),
        ({"value_index": -2, "value_dtype": hr.float32}, "either integer or string"),
    ):
        given = {"filename": "f", "key_dtype": hr.string, "key_index": 0, "value_dtype": hr.int64, "value_index": 1}
        with pytest.raises(ValueError, match=phrase):
            hr.lookup.TextFileInitializer(**(given | wrong))  # type: ignore[arg-type]


def test_a_vocabulary(g: hr.Graph) -> None:
    words = hr.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1], value_dtype=hr.int64)
    table = hr.lookup.StaticVocabularyTable(words, 3)
    run_first, found = table.initializer, table.lookup(["b", "q", "r"])
    with hr.Session(graph=g) as session:
        session.run(run_first)
        ids = session.run(found).tolist()
        assert ids[0] == 1
        assert set(ids[1:]) <= {2, 3, 4}
        assert session.run(table.size()) == 5
    assert run(hr.lookup.StaticVocabularyTable(None, 3)[["a"]]) < 3
    numbers = hr.lookup.KeyValueTensorInitializer([7], [0], hr.int64, hr.int64)
    assert hr.lookup.StaticVocabularyTable(numbers, 1, hr.int32).key_dtype is hr.int32
    for initializer, n, error in ((words, 0, ValueError), (numbers, 0, ValueError)):
        with pytest.raises(error, match="num_oov_buckets"):
            hr.lookup.StaticVocabularyTable(initializer, n)
    with pytest.raises(TypeError, match="Invalid `value_dtype`"):
        hr.lookup.StaticVocabularyTable(hr.lookup.KeyValueTensorInitializer(["a"], [0.5]), 1)


def test_tables_that_change() -> None:
    simple = hr.lookup.experimental.MutableHashTable(hr.int64, hr.float32, -1.0)
    rows = hr.lookup.experimental.MutableHashTable(hr.string, hr.int64, [0, 0])
    dense = hr.lookup.experimental.DenseHashTable(hr.int64, hr.int64, -1, empty_key=0, deleted_key=-1)
    simple.insert([1, 2], [0.5, 1.5])
    rows.insert(["a"], [[3, 4]])
    dense.insert([5, 6], [50, 60])
    assert simple.lookup([2, 9]).numpy().tolist() == [1.5, -1]
    assert simple.lookup([2, 9], hr.constant([7.0, 8.0])).numpy().tolist() == [1.5, 8]
    assert rows[["a", "b"]].numpy().tolist() == [[3, 4], [0, 0]]
    dense.erase([5])
    assert (dense[[5, 6]].numpy().tolist(), int(dense.size())) == ([-1, 60], 1)
    simple.remove([1])
    assert [x.numpy().tolist() for x in simple.export()] == [[2], [1.5]]
    with pytest.raises(InvalidArgumentError):
        dense.insert([0], [1])


def test_v1_tables_are_initialized_together() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.tables_initializer()) is None
        words = tf.lookup.KeyValueTensorInitializer(["a"], [5])
        table = tf.lookup.StaticHashTable(words, -1)
        assert tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS) == [table.initializer]
        session.run(tf.tables_initializer())
        assert table.lookup(tf.constant(["a", "b"])).eval().tolist() == [5, -1]


def test_accumulators(g: hr.Graph) -> None:
    mean = hr.ConditionalAccumulator(hr.float32, (2,))
    total = hr.ConditionalAccumulator(hr.float32, (2,), reduction_type="SUM")
    rows = hr.SparseConditionalAccumulator(hr.float32, (4, 1))
    x = hr.placeholder(hr.float32, (2,))
    put, stale = [mean.apply_grad(x), total.apply_grad(x)], mean.apply_grad(x, local_step=-1)
    step, n = mean.set_global_step(3), mean.num_accumulated()
    some = rows.apply_indexed_slices_grad(hr.IndexedSlices(hr.constant([[1.0], [2.0]]), hr.constant([0, 2]), None))
    other = rows.apply_grad([2], [[4.0]], [4, 1])
    assert (mean.name, mean.take_grad(1).shape) == ("conditional_accumulator", (2,))
    takes = [mean.take_grad(2), total.take_grad(2)]
    with hr.Session(graph=g) as session:
        for value in ([1.0, 2.0], [3.0, 6.0]):
            session.run(put, {x: value})
        session.run(stale, {x: [9.0, 9.0]})
        assert session.run(n) == 2
        assert [t.tolist() for t in session.run(takes)] == [[2, 4], [4, 8]]
        session.run(step)
        session.run(put[0], {x: [1.0, 1.0]})  # of step 0
        assert session.run(n) == 0
        session.run([some, other])
        got = session.run(rows.take_indexed_slices_grad(2))
        assert (got.indices.tolist(), got.values.tolist()) == ([0, 2], [[1], [3]])
    with pytest.raises(ValueError, match="incompatible"):
        mean.apply_grad([1.0, 2.0, 3.0])


def test_staging_areas(g: hr.Graph) -> None:
    area = hr.StagingArea([hr.float32, hr.int32], [(), (2,)], ["a", "b"], capacity=2)
    x = hr.placeholder(hr.float32, ())
    put, take, peek, n, clear = area.put({"a": x, "b": [1, 2]}), area.get(), area.peek(0), area.size(), area.clear()
    assert take["b"].shape == (2,)
    by_key = hr.MapStagingArea([hr.float32, hr.int32], ordered=True)
    k = hr.placeholder(hr.int64, ())
    one, two = by_key.put(k, [x], [0]), by_key.put(k, [7], [1])
    any_key, values = by_key.get()
    part = by_key.get(k, [1])[1]
    with hr.Session(graph=g) as session:
        session.run(put, {x: 1.0})
        session.run(put, {x: 2.0})
        waiting = threading.Thread(target=session.run, args=(put, {x: 3.0}))
        waiting.start()
        assert (session.run(peek)["a"], session.run(take)["a"]) == (1, 1)
        waiting.join(5)
        assert not waiting.is_alive()
        assert session.run(n) == 2
        session.run(clear)
        assert session.run(n) == 0
        for key in (5, 3):
            session.run(one, {k: key, x: key / 2})
        assert session.run([by_key.size(), by_key.incomplete_size()]) == [0, 2]
        for key in (5, 3):
            session.run(two, {k: key})
        assert session.run((any_key, values)) == (3, [1.5, 7])
        assert session.run(part, {k: 5}) == [7]
    for make, phrase in (
        (lambda: area.put([x, [1, 2]]), "must enqueue a dictionary"),
        (lambda: by_key.put(k, {"a": x}), "must have names"),
        (lambda: area.put({"q": x}), "do not match names"),
        (lambda: by_key.put(k, [x], [0, 1]), "doesn't match number of values"),
        (lambda: by_key.put(k, [k], [0]), "Datatypes do not match"),
        (lambda: area.put({"a": x, "b": [1, 2, 3]}), "incompatible"),
        (lambda: by_key.get(k, []), "Empty indices"),
        (lambda: by_key.get(k, ["a"]), "not in Staging Area names"),
    ):
        with pytest.raises(ValueError, match=phrase):
            make()  # type: ignore[no-untyped-call]


def test_a_barrier(g: hr.Graph) -> None:
    barrier = hr.Barrier([hr.float32, hr.int32], [(), (2,)])
    first = barrier.insert_many(0, ["x", "y"], [1.0, 2.0])
    second = barrier.insert_many(1, ["y", "x"], [[1, 1], [2, 2]])
    sizes = [barrier.ready_size(), barrier.incomplete_size()]
    _, keys, values = barrier.take_many(2)
    assert (keys.shape, values[1].shape) == ((2,), (2, 2))
    with hr.Session(graph=g) as session:
        session.run(first)
        assert session.run(sizes) == [0, 2]
        session.run(second)
        assert session.run(sizes) == [2, 0]
        got, (numbers, rows) = session.run((keys, values))
        assert dict(zip(got.tolist(), numbers.tolist(), strict=True)) == {b"x": 1, b"y": 2}
        np.testing.assert_array_equal(rows[got.tolist().index(b"x")], [2, 2])
        session.run(barrier.close())
        with pytest.raises(OutOfRangeError):
            session.run(keys)
    with pytest.raises(ValueError, match="Empty tensors"):
        hr.Barrier(hr.float32, [(0,)])
