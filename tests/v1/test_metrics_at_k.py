"""`tf.metrics` of the k best predictions and at wanted rates, by hand and by numpy.

(tests/conformance/test_layers.py asks TensorFlow.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

RNG = np.random.default_rng(11)
CLASSES = 6
BATCHES = [RNG.permuted(np.tile(np.arange(CLASSES) / CLASSES, (n, 1)), axis=1) for n in (3, 5, 2)]
LABELS = [[{0, 2}, {1}, {3, 4, 5}], [{1, 2}, {0}, {5}, {2, 4}, {0, 1, 2}], [{4}, {3, 0}]]
WEIGHTS = [np.array([1.0, 0.0, 2.0]), np.array([0.5, 1.0, 1.0, 0.0, 3.0]), np.array([2.0, 2.0])]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def dense(rows: list[set[int]]) -> np.ndarray:
    """Sets as rows that are filled up with what is in them."""
    return np.array([(sorted(r) + [max(r)] * 3)[:3] for r in rows])


def sparse(rows: list[set[int]]) -> Any:
    places = [[i, j] for i, r in enumerate(rows) for j in range(len(r))]
    return tf.SparseTensorValue(places, [c for r in rows for c in sorted(r)], [len(rows), CLASSES])


def over_steps(measure: Any, x: Any, y: Any, w: Any, form: Any) -> list[float]:
    """Values of the measure after each batch."""
    out = []
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        for batch, labels, weights in zip(BATCHES, LABELS, WEIGHTS, strict=True):
            updated = sess.run(measure[1], {x: batch, y: form(labels), w: weights})
            out.append(sess.run(measure[0]))
            assert updated == pytest.approx(out[-1], nan_ok=True)
    return out


@pytest.fixture(params=["dense", "sparse", "of unknown rank"])
def given(request: pytest.FixtureRequest) -> tuple[Any, Any, Any, Any]:
    """Placeholders for predictions, labels and weights, and what makes labels of sets."""
    w = tf.placeholder(tf.float32, [None])
    if request.param == "of unknown rank":
        return tf.placeholder(tf.float32), tf.sparse_placeholder(tf.int64), w, sparse
    x = tf.placeholder(tf.float32, [None, CLASSES])
    if request.param == "dense":
        return x, tf.placeholder(tf.int64, [None, 3]), w, dense
    return x, tf.sparse_placeholder(tf.int64, [None, CLASSES]), w, sparse


@pytest.mark.matrix
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("class_id", [None, 2])
@pytest.mark.parametrize("weighs", [False, True])
def test_recall_and_precision(given: Any, k: int, class_id: int | None, weighs: bool) -> None:
    x, y, w, form = given
    wanted = range(CLASSES) if class_id is None else [class_id]
    hits = missed = wrong = 0.0
    recall, precision = [], []
    for batch, rows, weights in zip(BATCHES, LABELS, WEIGHTS, strict=True):
        for row, labels, weight in zip(batch, rows, weights if weighs else np.ones(len(rows)), strict=True):
            best, right = set(np.argsort(-row)[:k]) & set(wanted), labels & set(wanted)
            hits += weight * len(best & right)
            missed += weight * len(right - best)
            wrong += weight * len(best - right)
        recall.append(hits / (hits + missed) if hits + missed else np.nan)
        precision.append(hits / (hits + wrong) if hits + wrong else np.nan)
    more = {"class_id": class_id, "weights": w if weighs else None}
    got = over_steps(tf.metrics.recall_at_k(y, x, k, **more), x, y, w, form)
    assert got == pytest.approx(recall, nan_ok=True)
    got = over_steps(tf.metrics.precision_at_k(y, x, k, **more), x, y, w, form)
    assert got == pytest.approx(precision, nan_ok=True)
    best = tf.nn.top_k(x, k)[1]
    assert over_steps(tf.metrics.recall_at_top_k(y, best, k, **more), x, y, w, form) == pytest.approx(
        recall, nan_ok=True
    )
    assert over_steps(tf.metrics.precision_at_top_k(y, best, **more), x, y, w, form) == pytest.approx(
        precision, nan_ok=True
    )


@pytest.mark.parametrize("k", [1, 3, CLASSES])
@pytest.mark.parametrize("weighs", [False, True])
def test_average_precision(given: Any, k: int, weighs: bool) -> None:
    x, y, w, form = given
    total = most = 0.0
    want = []
    for batch, rows, weights in zip(BATCHES, LABELS, WEIGHTS, strict=True):
        for row, labels, weight in zip(batch, rows, weights if weighs else np.ones(len(rows)), strict=True):
            best = np.argsort(-row)[:k]
            number = 3 if form is dense else len(labels)  # of dense labels one that comes twice counts twice
            hits = np.isin(best, list(labels))
            average = (np.cumsum(hits) / np.arange(1, k + 1) * hits).sum() / min(number, k)
            total, most = total + weight * average, most + weight
        want.append(total / most)
    measure = tf.metrics.average_precision_at_k(y, x, k, w if weighs else None)
    assert over_steps(measure, x, y, w, form) == pytest.approx(want)


def test_what_is_no_class_is_missed_but_does_not_count_for_average_precision() -> None:
    predictions = [[0.1, 0.6, 0.3], [0.9, 0.0, 0.1]]
    _, recall = tf.metrics.recall_at_k(tf.constant([[1, -1], [0, 3]], tf.int64), predictions, 1)
    _, average = tf.metrics.average_precision_at_k(tf.constant([[1, -1], [0, 3]], tf.int64), predictions, 2)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        assert sess.run([recall, average]) == [0.5, 1.0]


def test_one_label_for_each_example() -> None:
    predictions = [[[0.1, 0.6, 0.3], [0.9, 0.0, 0.1]]]
    one = tf.SparseTensor(
        [[0, 0], [0, 1]], tf.constant([2, 1], tf.int64), tf.placeholder_with_default(np.array([1, 2]), None)
    )
    for labels in (tf.constant([[2, 1]], tf.int64), one, tf.placeholder_with_default(np.array([[2, 1]]), None)):
        _, recall = tf.metrics.recall_at_k(labels, predictions, 2)
        _, average = tf.metrics.average_precision_at_k(labels, predictions, 2)
        with tf.Session() as sess:
            sess.run(tf.local_variables_initializer())
            assert sess.run([recall, average]) == [0.5, 0.25]


def test_names_and_collections() -> None:
    labels, predictions = tf.constant([[0]], tf.int64), [[0.5, 0.2]]
    measures = [
        tf.metrics.recall_at_k(labels, predictions, 1, metrics_collections=["m"], updates_collections=["u"]),
        tf.metrics.sparse_precision_at_k(labels, predictions, 2, 1, None, ["m"], ["u"]),
        tf.metrics.sparse_average_precision_at_k(labels, predictions, 1, None, ["m"], ["u"], "mine"),
    ]
    assert [tuple(pair) for pair in zip(tf.get_collection("m"), tf.get_collection("u"), strict=True)] == measures
    names = [v.name for v in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)]
    assert names == [
        "recall_at_1/true_positive_at_1:0", "recall_at_1/false_negative_at_1:0",
        "precision_at_2_class1/true_positive_at_2_class1:0", "precision_at_2_class1/false_positive_at_2_class1:0",
        "mine/max_1:0", "mine/total:0",
    ]  # fmt: skip
    assert [v.name for v in tf.local_variables()] == names
    assert {v.dtype.base_dtype for v in tf.local_variables()} == {tf.float64}


def test_what_does_not_fit_is_refused() -> None:
    labels, predictions = tf.constant([[0]], tf.int64), [[0.5, 0.2]]
    for wrong, error, match in (
        (lambda: tf.metrics.recall_at_k([[0]], predictions, 1), TypeError, "int64 vs int32"),
        (lambda: tf.metrics.recall_at_k(labels[0, 0], predictions, 1), ValueError, "labels of rank 0"),
        (lambda: tf.metrics.precision_at_k(labels[None], predictions, 1), ValueError, "labels of rank 3"),
        (lambda: tf.metrics.recall_at_k(labels, predictions, 1, weights=[[1.0]]), ValueError, "do not fit"),
        (lambda: tf.metrics.average_precision_at_k(labels, predictions, 0), ValueError, "k must be 1 at least, got 0"),
        (lambda: tf.metrics.recall_at_k(labels, predictions, 3), ValueError, "k"),
    ):
        with pytest.raises(error, match=match):
            wrong()
    w = tf.placeholder(tf.float32, None)
    _, update = tf.metrics.recall_at_k(labels, predictions, 1, weights=w)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit"):
            sess.run(update, {w: [1.0, 2.0]})
        assert sess.run(update, {w: [1.0]}) == 1.0


# *** at wanted rates ***


def counts(y: np.ndarray, p: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, ...]:
    above = p > thresholds[:, None]
    return (above & y).sum(1), (~above & y).sum(1), (~above & ~y).sum(1), (above & ~y).sum(1)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.85, 1.0])
def test_sensitivity_and_specificity(rate: float) -> None:
    labels = RNG.integers(0, 2, 300) > 0
    guess = np.clip(RNG.uniform(0, 1, 300) + 0.4 * labels - 0.2, 0, 1).astype(np.float32)
    x = tf.placeholder(tf.float32, [None, 2])
    inner = np.arange(1, 49) / 49
    measures = [
        tf.metrics.sensitivity_at_specificity(x[:, 0] > 0.5, x[:, 1], rate, num_thresholds=50),
        tf.metrics.specificity_at_sensitivity(x[:, 0] > 0.5, x[:, 1], rate, num_thresholds=50),
    ]
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        for some in np.split(np.stack([labels, guess], 1), 3):
            updated = sess.run([u for _, u in measures], {x: some})
        assert sess.run([v for v, _ in measures]) == updated
    tp, fn, tn, fp = counts(labels, guess, np.array([-1e-7, *inner, 1 + 1e-7], np.float32))
    at = np.argmin(np.abs(tn / (tn + fp) - rate))
    assert updated[0] == pytest.approx(tp[at] / labels.sum(), abs=1e-5)
    tp, fn, tn, fp = counts(labels, guess, np.array([-1e-7, *inner, 1 - 1e-7], np.float32))
    far = np.abs(tp / (tp + fn) - rate).astype(np.float32)
    at = np.flatnonzero(far == far.min())[-1]
    assert updated[1] == pytest.approx(tn[at] / (~labels).sum(), abs=1e-5)


def test_rates_that_are_none_are_refused() -> None:
    for wrong in (
        lambda: tf.metrics.sensitivity_at_specificity([True], [0.5], 1.1),
        lambda: tf.metrics.specificity_at_sensitivity([True], [0.5], -0.1),
        lambda: tf.metrics.specificity_at_sensitivity([True], [0.5], 0.5, num_thresholds=1),
    ):
        with pytest.raises(ValueError, match="must be"):
            wrong()


def test_the_area_between_points_with_care() -> None:
    """Against the integral of precision by recall, in small steps."""
    labels = np.array([True] * 4 + [False] * 6)
    guess = np.array([0.9, 0.6, 0.55, 0.2, 0.7, 0.65, 0.4, 0.35, 0.3, 0.1])
    inner = np.array([0.25, 0.5, 0.8])
    _, update = tf.metrics.auc(
        labels, guess, curve="PR", summation_method="careful_interpolation", thresholds=list(inner)
    )
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        got = sess.run(update)
    tp, _, _, fp = counts(labels, guess, np.array([-1, *inner, 2]))
    area, steps = 0.0, (np.arange(20000) + 0.5) / 20000
    for i in range(len(tp) - 1):
        hits = tp[i + 1] + (tp[i] - tp[i + 1]) * steps
        wrong = fp[i + 1] + (fp[i] - fp[i + 1]) * steps
        area += (hits / (hits + wrong)).mean() * (tp[i] - tp[i + 1]) / labels.sum()
    assert got == pytest.approx(area, abs=1e-4)
