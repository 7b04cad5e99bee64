"""`tf.contrib.lookup`, `metrics`, `losses` and `image`."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.contrib.running import run

lookup = tf.contrib.lookup


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def test_tables_of_strings(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("the\ncat\nsat\n")
    words = tf.constant(["cat", "dog", "the"])
    ids = tf.constant([2, 5, 0], tf.int64)
    made = [
        lookup.index_table_from_file(str(path), default_value=9).lookup(words),
        lookup.index_table_from_tensor(["the", "cat"]).lookup(words),
        lookup.index_table_from_file(str(path), num_oov_buckets=1, vocab_size=2).lookup(words),
        lookup.index_table_from_tensor([7, 8], dtype=tf.int64).lookup(tf.constant([8], tf.int64)),
        lookup.string_to_index(words, ["cat"]),
    ]
    names = [
        lookup.index_to_string_table_from_file(str(path)).lookup(ids),
        lookup.index_to_string_table_from_tensor(["a", "b", "c"], default_value="?").lookup(ids),
        lookup.index_to_string(ids, ["x"]),
    ]
    table = lookup.HashTable(lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    found = table.lookup(tf.constant(["b", "z"]))
    got, strings, last = run([made, names, found])
    assert [x.tolist() for x in got] == [[1, 9, 0], [1, -1, 0], [1, 2, 0], [1], [0, -1, -1]]
    assert [x.tolist() for x in strings] == [[b"sat", b"UNK", b"the"], [b"c", b"?", b"a"], [b"UNK", b"UNK", b"x"]]
    assert last.tolist() == [2, -1]
    assert table.init is table.initializer
    with pytest.raises(ValueError, match="vocabulary_file must be specified"):
        lookup.index_table_from_file("")
    with pytest.raises(ValueError, match="is FastHashSpec"):
        lookup.index_table_from_tensor(["a"], hasher_spec=lookup.HasherSpec("other", None))


def test_a_table_with_insertions() -> None:
    table = lookup.MutableHashTable(tf.string, tf.int64, -1, name="t")
    with tf.Session() as sess:
        sess.run(table.insert(tf.constant(["a"]), tf.constant([4], tf.int64)))
        assert sess.run(table.lookup(tf.constant(["a", "b"]))).tolist() == [4, -1]


def test_metrics_take_predictions_first() -> None:
    metrics = tf.contrib.metrics
    labels, predictions = tf.constant([1, 0, 1, 1]), tf.constant([1, 1, 0, 0])
    made = {n: getattr(metrics, f"streaming_{n}")(predictions, labels) for n in ("accuracy", "precision", "recall")}
    values, updates = metrics.aggregate_metric_map(made)
    error = metrics.streaming_mean_absolute_error(tf.constant([1.0]), labels=tf.constant([3.0]))
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        sess.run(updates)
        got = sess.run(values)
        assert got["accuracy"] == 0.25
        assert got["precision"] == 0.5
        np.testing.assert_allclose(got["recall"], 1 / 3, rtol=1e-6)
        assert sess.run(error[1]) == 2.0
        assert sess.run(metrics.accuracy(predictions, labels)) == 0.25
    assert list(inspect.signature(metrics.streaming_auc).parameters)[:4] == [
        "predictions",
        "labels",
        "weights",
        "num_thresholds",
    ]
    with pytest.raises(TypeError, match=r"streaming_recall\(\): missing a required argument: 'labels'"):
        metrics.streaming_recall(predictions)
    with pytest.raises(ValueError, match="Dtypes must match"):
        metrics.accuracy(predictions, tf.constant([1.0]))


def test_losses_take_predictions_first() -> None:
    losses = tf.contrib.losses
    logits, labels = tf.constant([[0.0, 0.0]]), tf.constant([[1.0, 0.0]])
    got = run(
        [
            losses.softmax_cross_entropy(logits, labels),
            losses.log_loss(tf.constant([0.5]), tf.constant([1.0])),
            losses.sparse_softmax_cross_entropy(logits, tf.constant([1])),
        ]
    )
    np.testing.assert_allclose(got, [np.log(2)] * 3, rtol=1e-5)
    assert len(losses.get_losses()) == 3


def test_projections_of_images() -> None:
    image = tf.contrib.image
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    turned, moved, same, many = run(
        [
            image.rotate(x, np.pi),
            image.translate(x, [1.0, 0.0]),
            image.transform(x[None, :, :, None], [1.0, 0, 0, 0, 1, 0, 0, 0], "bilinear"),
            image.compose_transforms([1.0, 0, 2, 0, 1, 0, 0, 0], [1.0, 0, 3, 0, 1, 1, 0, 0]),
        ]
    )
    np.testing.assert_allclose(turned, x[::-1, ::-1])
    np.testing.assert_allclose(moved, np.pad(x, [(0, 0), (1, 0)])[:, :4])
    np.testing.assert_allclose(same[0, :, :, 0], x)
    assert many.tolist() == [[1, 0, 5, 0, 1, 1, 0, 0]]
    with pytest.raises(ValueError, match="rank between 2 and 4"):
        image.rotate(tf.zeros([2]), 1.0)
