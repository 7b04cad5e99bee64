"""`tf.data`: iterators, their errors, checkpoints, and graphs in files."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

Dataset = tf.data.Dataset


def _rest(sess: tf.Session, x: Any) -> list[Any]:
    out = []
    while True:
        try:
            out.append(np.asarray(sess.run(x)).tolist())
        except tf.errors.OutOfRangeError:
            return out


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with tf.Graph().as_default():
        yield


def test_a_one_shot_iterator_runs_once_in_each_session() -> None:
    x = Dataset.range(3).make_one_shot_iterator().get_next()
    for _ in range(2):
        with tf.Session() as sess:
            assert _rest(sess, x) == [0, 1, 2]
            assert _rest(sess, x) == []


@pytest.mark.parametrize("what", ["placeholder", "variable"])
def test_a_one_shot_iterator_of_values_outside_of_the_dataset_is_refused(what: str) -> None:
    n: Any = tf.placeholder(tf.int64, ()) if what == "placeholder" else tf.get_variable("n", (), tf.int64)
    dataset = Dataset.from_tensors(n)
    with pytest.raises(ValueError, match=r"by value.*make_initializable_iterator"):
        tf.data.make_one_shot_iterator(dataset)


def test_an_initializer_is_fed_and_restarts_the_pass() -> None:
    n = tf.placeholder(tf.int64, ())
    iterator = tf.data.make_initializable_iterator(Dataset.range(n).map(lambda x: x * n))
    x = iterator.get_next()
    with tf.Session() as sess:
        with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
            sess.run(x)
        sess.run(iterator.initializer, {n: 3})
        assert _rest(sess, x) == [0, 3, 6]
        sess.run(iterator.initializer, {n: 2})
        assert sess.run(x) == 0
        sess.run(iterator.initializer, {n: 2})
        assert _rest(sess, x) == [0, 2]


def test_functions_use_variables_and_tables_of_the_session() -> None:
    v = tf.get_variable("v", initializer=np.int64(10), use_resource=True)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [7, 8], tf.int64, tf.int64), -1)
    iterator = Dataset.range(3).map(lambda x: (x + v, table.lookup(x))).make_initializable_iterator()
    x = iterator.get_next()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        sess.run(iterator.initializer)
        assert sess.run(x) == (10, 7)
        sess.run(v.assign(20))
        assert [sess.run(x), sess.run(x)] == [(21, 8), (22, -1)]


def test_a_reinitializable_iterator_takes_datasets_of_its_structure_alone() -> None:
    iterator = tf.data.Iterator.from_structure((tf.int64, {"a": tf.string}), ([], {"a": [None]}))
    assert iterator.output_types == (tf.int64, {"a": tf.string})
    assert iterator.output_shapes[1]["a"].as_list() == [None]
    assert iterator.output_classes == (tf.Tensor, {"a": tf.Tensor})
    text = {"a": tf.constant(["x", "y"])}
    start = iterator.make_initializer(Dataset.zip((Dataset.range(2), Dataset.from_tensors(text).repeat())))
    x = iterator.get_next()
    with tf.Session() as sess:
        sess.run(start)
        assert sess.run(x)[1]["a"].tolist() == [b"x", b"y"]
    with pytest.raises(TypeError, match="elements are"):
        iterator.make_initializer(Dataset.range(3))
    with pytest.raises(TypeError, match="shapes"):
        tf.data.Iterator.from_structure(tf.int64, [3]).make_initializer(Dataset.range(4).batch(2))


def test_a_feedable_iterator_is_the_one_whose_handle_is_fed() -> None:
    handle = tf.placeholder(tf.string, ())
    iterator = tf.data.Iterator.from_string_handle(handle, tf.int64, [])
    first = Dataset.range(3).make_one_shot_iterator()
    second = Dataset.range(10, 20).make_initializable_iterator()
    x = iterator.get_next()
    with tf.Session() as sess:
        a, b = sess.run([first.string_handle(), second.string_handle()])
        sess.run(second.initializer)
        assert [int(sess.run(x, {handle: h})) for h in (a, b, a, b)] == [0, 10, 1, 11]
        with pytest.raises(tf.errors.InvalidArgumentError, match="no string handle"):
            sess.run(x, {handle: b"other"})
        other = sess.run(Dataset.from_tensors("text").make_one_shot_iterator().string_handle())
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected"):
            sess.run(x, {handle: other})


def test_the_position_of_an_iterator_is_in_a_checkpoint(tmp_path: Path) -> None:
    dataset = Dataset.range(30).shuffle(7, seed=2).batch(2).prefetch(2)
    iterator = tf.data.make_initializable_iterator(dataset)
    x = iterator.get_next()
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator))
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(iterator.initializer)
        sess.run(x)
        path = saver.save(sess, str(tmp_path / "position"))
        want = _rest(sess, x)
    with tf.Session() as sess:
        sess.run(iterator.initializer)
        saver.restore(sess, path)
        assert _rest(sess, x) == want
    assert len(want) == 14


def test_an_error_of_a_function_names_the_request_and_the_next_one_continues() -> None:
    x = (
        Dataset.range(3)
        .map(lambda x: tf.check_numerics(1.0 / tf.to_float(x - 1), "bad"))
        .make_one_shot_iterator()
        .get_next()
    )
    with tf.Session() as sess:
        assert sess.run(x) == -1
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
            sess.run(x)
        assert _rest(sess, x) == [1]


def test_a_graph_with_datasets_survives_a_file() -> None:
    dataset = Dataset.range(9).filter(lambda x: x % 2 > 0).map(lambda x: x * x).shuffle(2, seed=1)
    iterator = dataset.make_initializable_iterator()
    tf.identity(iterator.get_next(), name="x")
    start = iterator.initializer.name
    message = tf.get_default_graph().as_graph_def()
    with tf.Session() as sess:
        sess.run(iterator.initializer)
        want = _rest(sess, "x:0")
    with tf.Graph().as_default() as other, tf.Session() as sess:
        tf.import_graph_def(message, name="")
        sess.run(other.get_operation_by_name(start))
        assert _rest(sess, "x:0") == want
    assert sorted(want) == [1, 9, 25, 49]


def test_a_training_step_takes_elements_until_the_end() -> None:
    xs = np.arange(8, dtype=np.float32)
    x, y = Dataset.from_tensor_slices((xs, 3 * xs)).repeat(20).batch(4).make_one_shot_iterator().get_next()
    w = tf.get_variable("w", initializer=0.0)
    loss = tf.reduce_mean(tf.square(w * x - y))
    train = tf.train.GradientDescentOptimizer(0.02).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(40):
            sess.run(train)
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(train)
        assert abs(sess.run(w) - 3) < 1e-3


@pytest.mark.system
@pytest.mark.one_engine
def test_a_request_that_waits_ends_with_its_time_limit_and_with_the_session() -> None:
    may_end = threading.Event()

    def hangs(x: Any) -> Any:
        if x:
            may_end.wait(10)
        return x

    dataset = Dataset.range(5).map(lambda x: tf.py_func(hangs, [x], tf.int64)).prefetch(2)
    x = dataset.make_one_shot_iterator().get_next()
    sess = tf.Session()
    assert sess.run(x) == 0
    began = time.monotonic()
    with pytest.raises(tf.errors.DeadlineExceededError):
        sess.run(x, options=tf.RunOptions(timeout_in_ms=100))
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            sess.run(x)
        except tf.errors.CancelledError as e:
            errors.append(e)

    asks = threading.Thread(target=ask)
    asks.start()
    time.sleep(0.05)
    sess.close()
    asks.join(10)
    assert not asks.is_alive()
    assert len(errors) == 1
    assert time.monotonic() - began < 8
    may_end.set()


@pytest.mark.system
@pytest.mark.one_engine
def test_threads_end_with_the_session() -> None:
    dataset = (
        Dataset.range(10**6).map(lambda x: tf.py_func(lambda v: v, [x], tf.int64), num_parallel_calls=3).prefetch(4)
    )
    x = dataset.make_one_shot_iterator().get_next()
    with tf.Session() as sess:
        assert [int(sess.run(x)) for _ in range(50)] == list(range(50))
    until = time.monotonic() + 10
    mine = ("headrace-prefetch", "headrace-map")
    while any(t.name.startswith(mine) for t in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_functions_that_run_first_do_not_let_the_step_be_compiled_again() -> None:
    x = Dataset.range(4).map(lambda i: i * 2).filter(lambda i: i > 0).make_one_shot_iterator().get_next()
    with tf.Session() as sess:
        assert _rest(sess, x) == [2, 4, 6]
        made = sess.statistics().made
    assert made == 1


def test_tables_are_filled_by_datasets() -> None:
    words = Dataset.from_tensor_slices(["a", "b", "c"])
    e = tf.data.experimental
    index = e.index_table_from_dataset(words, vocab_size=2)
    buckets = e.index_table_from_dataset(words, num_oov_buckets=1)
    pairs = e.table_from_dataset(Dataset.from_tensor_slices((["x", "y"], [1.5, 2.5])), default_value=-1.0)
    keys = tf.constant(["b", "c", "z"])
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        assert sess.run(index.lookup(keys)).tolist() == [1, -1, -1]
        assert sess.run(buckets.lookup(keys)).tolist() == [1, 2, 3]
        assert sess.run(pairs.lookup(tf.constant(["y", "b"]))).tolist() == [2.5, -1.0]
    few = e.index_table_from_dataset(words, vocab_size=9)
    with (
        tf.Session() as sess,
        pytest.raises(tf.errors.FailedPreconditionError, match="9 elements but contained only 3"),
    ):
        sess.run(few.initializer)
    for bad, text in (
        ({"num_oov_buckets": -1}, "num_oov_buckets"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"hasher_spec": ("stronghash", [1, 2])}, "FastHashSpec"),
    ):
        with pytest.raises(ValueError, match=text):
            e.index_table_from_dataset(words, **bad)
    with pytest.raises(ValueError, match="pairs of a key and a value"):
        e.table_from_dataset(words)


def test_a_record_file_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    writer = tf.data.experimental.TFRecordWriter(path, "GZIP")
    made = writer.write(Dataset.from_tensor_slices(["one", "two"]))
    x = tf.data.make_one_shot_iterator(tf.data.TFRecordDataset(path, "GZIP", name="records")).get_next()
    with tf.Session() as sess:
        sess.run(made)
        assert _rest(sess, x) == [b"one", b"two"]
    with pytest.raises(TypeError, match="scalar strings"):
        writer.write(Dataset.range(3))


def test_an_optional_of_an_iterator_of_a_graph() -> None:
    iterator = tf.data.make_one_shot_iterator(Dataset.range(1))
    following = tf.data.experimental.get_next_as_optional(iterator)
    value = tf.cond(following.has_value(), following.get_value, lambda: tf.constant(-1, tf.int64))
    with tf.Session() as sess:
        assert [sess.run(value), sess.run(value)] == [0, -1]


def test_an_iterator_of_a_handle_is_given_by_types_shapes_and_classes() -> None:
    made = Dataset.range(3).make_initializable_iterator()
    other = tf.data.Iterator(made._resource, made.initializer, tf.int64, tf.TensorShape([]), tf.Tensor)
    x = other.get_next()
    with tf.Session() as sess:
        sess.run(other.initializer)
        assert _rest(sess, x) == [0, 1, 2]
    with pytest.raises(ValueError, match="must be specified"):
        tf.data.Iterator(made._resource, None, None, None, None)


def test_descriptions_of_all_leaves_go_to_types_and_back() -> None:
    e = tf.data.experimental
    spec = {
        "dense": e.TensorStructure(tf.int32, [2]),
        "sparse": e.SparseTensorStructure(tf.int32, [2]),
        "ragged": e.RaggedTensorStructure(tf.int32, [2, None], 1),
        "array": e.TensorArrayStructure(tf.int32, [2], False, True),
        "optional": e.OptionalStructure(tf.TensorSpec([])),
        "data": e.DatasetStructure(tf.TensorSpec([])),
    }
    iterator = tf.data.Iterator.from_spec(spec)
    found = iterator.output_types, iterator.output_shapes, iterator.output_classes
    assert found[0]["ragged"] is tf.int32
    assert found[1]["ragged"].as_list() == [2, None]
    assert tf.data.Iterator.from_structure(*found[:2], output_classes=found[2]).element_spec == spec
    assert repr(spec["ragged"]) == "RaggedTensorSpec(TensorShape([2, None]), int32, 1, int64)"


def test_columns_of_files_must_fit(tmp_path: Path) -> None:
    make = tf.data.experimental.make_csv_dataset
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("a,b\n1,x\n")
    second.write_text("a,c\n1,x\n")
    for files, more, text in (
        ([second, first], {}, "same column names"),
        ([first], {"label_name": "z"}, "label_name"),
        ([first], {"select_columns": ["z"]}, "Column z"),
        ([first], {"select_columns": [0, "a"]}, "duplicate columns"),
        ([first], {"select_columns": [5]}, "Column index 5"),
        ([first], {"column_names": ["q", "q"]}, "duplicate column names"),
        ([first], {"header": False}, "column_names"),
        ([first], {"select_columns": [0], "column_defaults": [1, 2]}, "same length"),
        ([first], {"compression_type": "ZLIB"}, "probing"),
        ([first], {"column_names": ["a", "b", "c"]}, "Expected: 3"),
        ([tmp_path / "none*"], {}, "No files match"),
    ):
        with pytest.raises(ValueError, match=text):
            make([str(f) for f in files], 1, **more)


def test_random_ops_of_a_function_begin_anew_in_each_pass_and_function() -> None:
    tf.set_random_seed(7)
    first, second = (
        tf.data.make_initializable_iterator(
            Dataset.range(4).map(lambda x: x + tf.random_uniform([], -10, 10, tf.int64, seed=3)).repeat(2)
        )
        for _ in range(2)
    )
    wanted = [-9, -1, 3, 10, 6, 0, -6, 1]  # TensorFlow's
    with tf.Session() as sess:
        for iterator in (first, first, second):
            x = iterator.get_next()
            sess.run(iterator.initializer)
            assert [sess.run(x) for _ in range(8)] == wanted
