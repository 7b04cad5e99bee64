"""`tf.losses` and `tf.metrics`, compared with numpy.

tests/conformance/test_layers.py compares them with TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

RNG = np.random.default_rng(4)
LABELS, GUESS = RNG.uniform(0.1, 0.9, (2, 4, 3)).astype(np.float32)
WEIGHTS = np.array([[0.0], [1.0], [2.0], [0.5]], np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def run(*tensors: Any, feeds: Any = None) -> Any:
    with tf.Session() as sess:
        return sess.run(list(tensors), feeds)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


FORMULAS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "absolute_difference": lambda y, x: np.abs(y - x),
    "mean_squared_error": lambda y, x: (y - x) ** 2,
    "hinge_loss": lambda y, x: np.maximum(0, 1 - (2 * y - 1) * x),
    "huber_loss": lambda y, x: np.where(np.abs(y - x) <= 0.2, (y - x) ** 2 / 2, 0.2 * (np.abs(y - x) - 0.1)),
    "log_loss": lambda y, x: -y * np.log(x + 1e-7) - (1 - y) * np.log(1 - x + 1e-7),
    "sigmoid_cross_entropy": lambda y, x: y * softplus(-x) + (1 - y) * softplus(x),
    "cosine_distance": lambda y, x: 1 - (y * x).sum(1, keepdims=True),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_weights_and_reductions(name: str) -> None:
    more = {"huber_loss": {"delta": 0.2}, "cosine_distance": {"axis": 1}}.get(name, {})
    function = getattr(tf.losses, name)
    each = FORMULAS[name](LABELS.astype(np.float64), GUESS.astype(np.float64))
    factors = np.broadcast_to(WEIGHTS, each.shape)
    total, count = (each * factors).sum(), (factors != 0).sum()
    R = tf.losses.Reduction
    want = {
        R.NONE: each * factors, R.SUM: total, R.MEAN: total / factors.sum(),
        R.SUM_OVER_BATCH_SIZE: total / each.size, R.SUM_BY_NONZERO_WEIGHTS: total / count,
    }  # fmt: skip
    got = run(
        *(function(LABELS, GUESS, weights=WEIGHTS, reduction=r, **more) for r in want),
        function(LABELS, GUESS, **more),
        function(LABELS, GUESS, weights=0.0, **more),
    )
    for a, b in zip(got, [*want.values(), each.mean(), 0.0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_classes() -> None:
    classes = np.array([0, 2, 1, 1])
    logits = GUESS * 5
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    each = -np.log(chances[np.arange(4), classes])
    onehot = np.eye(3)[classes]
    smooth = -((onehot * 0.7 + 0.1) * np.log(chances)).sum(1)
    got = run(
        tf.losses.sparse_softmax_cross_entropy(classes, logits),
        tf.losses.sparse_softmax_cross_entropy(classes[:, None], logits, WEIGHTS),
        tf.losses.softmax_cross_entropy(onehot, logits),
        tf.losses.softmax_cross_entropy(onehot, logits, label_smoothing=0.3),
    )
    want = [each.mean(), (each * WEIGHTS[:, 0]).sum() / 3, each.mean(), smooth.mean()]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_pairs() -> None:
    d = (GUESS - LABELS).astype(np.float64)
    pairs = sum((row[i] - row[j]) ** 2 for row in d for i in range(3) for j in range(3)) / 6
    np.testing.assert_allclose(run(tf.losses.mean_pairwise_squared_error(LABELS, GUESS))[0], pairs, rtol=1e-5)


def test_collections() -> None:
    a = tf.losses.mean_squared_error(LABELS, GUESS)
    b = tf.losses.absolute_difference(LABELS, GUESS, scope="here")
    tf.losses.hinge_loss(LABELS, GUESS, loss_collection=None)
    tf.losses.log_loss(LABELS, GUESS, loss_collection="mine")
    assert (a.name, b.name) == ("mean_squared_error/value:0", "here/value:0")
    assert tf.losses.get_losses() == [a, b]
    assert tf.losses.get_losses("here") == [b]
    assert len(tf.losses.get_losses(loss_collection="mine")) == 1
    none = tf.losses.get_regularization_loss()
    tf.layers.dense(tf.ones([1, 2]), 1, kernel_regularizer=lambda v: tf.constant(2.5))
    total, without = tf.losses.get_total_loss(), tf.losses.get_total_loss(False, name="t")
    assert (total.name, without.name) == ("total_loss:0", "t:0")
    values = run(a, b, none, tf.losses.get_regularization_loss(), total, without)
    assert values[2:4] == [0.0, 2.5]
    np.testing.assert_allclose(values[4:], [values[0] + values[1] + 2.5, values[0] + values[1]], rtol=1e-6)
    assert tf.losses.compute_weighted_loss(tf.constant([1.0], tf.float64)).dtype == tf.float64


def test_weights_are_checked_when_shapes_are_known() -> None:
    for wrong in (np.ones(3), np.ones((4, 2)), np.ones((1, 4, 3))):
        with pytest.raises(ValueError, match="do not fit values of shape"):
            tf.losses.mean_squared_error(LABELS, GUESS, wrong)
    w = tf.placeholder(tf.float32)
    loss = tf.losses.mean_squared_error(LABELS[:1], GUESS[:1], w)
    assert run(loss, feeds={w: 0.0}) == [0.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights do not fit"):
        run(loss, feeds={w: np.ones((2, 3))})
    with pytest.raises(ValueError, match="is no Reduction"):
        tf.losses.mean_squared_error(LABELS, GUESS, reduction="average")
    with pytest.raises(ValueError, match="labels must not be None"):
        tf.losses.mean_squared_error(None, GUESS)
    with pytest.raises(ValueError, match="must be of the same shape"):
        tf.losses.mean_squared_error(LABELS, GUESS[:, :2])
    with pytest.raises(ValueError, match="must be of the same shape"):
        tf.losses.sigmoid_cross_entropy(LABELS, GUESS[:, :2])
    with pytest.raises(ValueError, match="needs an axis"):
        tf.losses.cosine_distance(LABELS, GUESS)
    with pytest.raises(ValueError, match="there are no losses to add"):
        tf.losses.get_total_loss(False, scope="nothing")


# *** metrics ***


def over_steps(measure: tuple[Any, Any], placeholder: Any, batches: list[np.ndarray]) -> list[Any]:
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        out = [sess.run(measure[1], {placeholder: b}) for b in batches]
        assert sess.run(measure[0]) == pytest.approx(out[-1], nan_ok=False)
    return out


def test_a_mean_over_steps() -> None:
    x = tf.placeholder(tf.float32, [None])
    batches = [np.array([1.0, 2.0]), np.array([6.0]), np.array([])]
    assert over_steps(tf.metrics.mean(x), x, batches) == [1.5, 3.0, 3.0]
    assert over_steps(tf.metrics.mean(x, x), x, batches) == pytest.approx([5 / 3, 41 / 9, 41 / 9])
    assert [v.name for v in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)] == [
        "mean/total:0", "mean/count:0", "mean_1/total:0", "mean_1/count:0",
    ]  # fmt: skip
    assert tf.local_variables() == tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)
    assert tf.global_variables() == []


def test_accuracy_and_counts() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    y, z = x[:, 0] > 0, x[:, 1] > 0
    batches = [RNG.standard_normal((n, 2)) for n in (3, 5, 8)]
    seen = np.concatenate(batches) > 0
    a, b = seen.T
    want = {
        "accuracy": (a == b).mean(), "true_positives": (a & b).sum(), "false_positives": (~a & b).sum(),
        "false_negatives": (a & ~b).sum(), "true_negatives": (~a & ~b).sum(),
        "precision": (a & b).sum() / b.sum(), "recall": (a & b).sum() / a.sum(),
    }  # fmt: skip
    for name, value in want.items():
        measure = getattr(tf.metrics, name)(y, z, metrics_collections=["m"], updates_collections=["u"])
        assert over_steps(measure, x, batches)[-1] == pytest.approx(value)
        assert (tf.get_collection("m")[-1], tf.get_collection("u")[-1]) == measure
    assert "precision/true_positives/count:0" in [v.name for v in tf.local_variables()]
    nothing = over_steps(tf.metrics.precision(y, z, 0.0), x, batches)
    assert nothing[-1] == 0


def test_the_area_under_a_curve() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    labels, guess = RNG.integers(0, 2, 400), RNG.uniform(0, 1, 400)
    guess = np.clip(guess + 0.3 * labels - 0.15, 0, 1)
    batches = np.split(np.stack([labels, guess], 1), 4)
    got = over_steps(tf.metrics.auc(x[:, 0], x[:, 1], num_thresholds=2000), x, batches)[-1]
    # how often a true example is before a false one
    pairs = guess[labels == 1][:, None] - guess[labels == 0][None]
    assert got == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean(), abs=2e-3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="predictions must be from 0 to 1"):
        over_steps(tf.metrics.auc(x[:, 0], x[:, 1]), x, [np.array([[1.0, 1.5]])])
    for wrong in ({"curve": "R"}, {"summation_method": "x"}, {"thresholds": [2.0]}, {"num_thresholds": 1}):
        with pytest.raises(ValueError, match="must be"):
            tf.metrics.auc(x[:, 0], x[:, 1], **wrong)


def test_errors_and_classes() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    batches = [RNG.standard_normal((n, 2)) for n in (3, 5)]
    d = np.concatenate(batches) @ [1.0, -1.0]
    y, z = x[:, 0], x[:, 1]
    assert over_steps(tf.metrics.mean_squared_error(y, z), x, batches)[-1] == pytest.approx((d**2).mean())
    assert over_steps(tf.metrics.mean_absolute_error(y, z), x, batches)[-1] == pytest.approx(np.abs(d).mean())
    rmse = over_steps(tf.metrics.root_mean_squared_error(y, z), x, batches)[-1]
    assert rmse == pytest.approx(np.sqrt((d**2).mean()))
    below = over_steps(tf.metrics.percentage_below(y, 0.0), x, batches)[-1]
    assert below == pytest.approx((np.concatenate(batches)[:, 0] < 0).mean())
    with pytest.raises(ValueError, match="must be of the same shape"):
        tf.metrics.accuracy([1, 2], [1, 2, 3])
    value, update = tf.metrics.mean_per_class_accuracy([0, 0, 1], [0, 1, 1], 3)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        assert sess.run(update).tolist() == [0.5, 1.0, 0.0]
        assert sess.run(value) == np.float32(0.5)


def test_more_metrics() -> None:
    x = tf.placeholder(tf.float32, [2, 2])
    batches = [RNG.uniform(0, 1, (2, 2)) for _ in range(3)]
    whole = np.stack(batches)
    np.testing.assert_allclose(over_steps(tf.metrics.mean_tensor(x), x, batches)[-1], whole.mean(0), rtol=1e-5)
    relative = over_steps(tf.metrics.mean_relative_error(x, x * 2.0, x), x, batches)
    assert relative == pytest.approx([1.0, 1.0, 1.0])
    cosine = over_steps(tf.metrics.mean_cosine_distance(x, x, 1), x, batches)[-1]
    assert cosine == pytest.approx(1 - (whole**2).sum(2).mean(), rel=1e-5)
    thresholds = [0.25, 0.5, 0.75]
    labels, guess = whole[..., 0].ravel() > 0.5, whole[..., 1].ravel()
    above = guess > np.array(thresholds)[:, None]
    got = over_steps(tf.metrics.recall_at_thresholds(x[:, 0] > 0.5, x[:, 1], thresholds), x, batches)[-1]
    np.testing.assert_allclose(got, (above & labels).sum(1) / labels.sum(), rtol=1e-5)
    got = over_steps(tf.metrics.false_positives_at_thresholds(x[:, 0] > 0.5, x[:, 1], thresholds), x, batches)[-1]
    assert got.tolist() == (above & ~labels).sum(1).tolist()
    value, update = tf.metrics.mean_iou([0, 0, 1, 1], [0, 1, 1, 1], 3)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        assert sess.run(update).tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
        assert sess.run(value) == pytest.approx((1 / 2 + 2 / 3) / 2)
    with pytest.raises(ValueError, match="mean_tensor needs values of a known shape"):
        tf.metrics.mean_tensor(tf.placeholder(tf.float32, [None]))


SPARSE_WEIGHTS = {
    "number": np.float32(2.0),
    "vector": WEIGHTS[:, 0],
    "column": WEIGHTS,
    "one": np.array([2.0], np.float32),
}


@pytest.mark.parametrize("weights", SPARSE_WEIGHTS)
@pytest.mark.parametrize("shaped", [(1, 1, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0), (0, 1, 1), (0, 0, 1)])
def test_sparse_softmax_cross_entropy_compares_unknown_ranks_when_the_step_runs(
    weights: str, shaped: tuple[int, int, int]
) -> None:
    classes, logits, factors = np.array([0, 2, 1, 1]), GUESS * 5, SPARSE_WEIGHTS[weights]
    each = -np.log((np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(4), classes])
    want = each * (factors[:, 0] if factors.ndim == 2 else factors)
    for labels in (classes, classes[:, None]):
        values = (labels, logits, factors)
        given = [tf.placeholder(v.dtype, v.shape if known else None) for v, known in zip(values, shaped, strict=True)]
        loss = tf.losses.sparse_softmax_cross_entropy(*given, reduction=tf.losses.Reduction.NONE)
        (got,) = run(loss, feeds=dict(zip(given, values, strict=True)))
        assert got.shape == (4,)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_gradients_pass_through_a_loss_of_unknown_ranks() -> None:
    logits, labels, weights = (tf.placeholder(t) for t in (tf.float32, tf.int64, tf.float32))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits, weights)
    (slope,) = tf.gradients(loss, logits)
    chances = np.exp(GUESS) / np.exp(GUESS).sum(1, keepdims=True)
    classes = np.array([0, 2, 1, 1])
    want = (chances - np.eye(3)[classes]) * WEIGHTS / 3
    (got,) = run(slope, feeds={logits: GUESS, labels: classes[:, None], weights: WEIGHTS})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_weights_that_do_not_fit_fail_when_the_step_runs() -> None:
    weights = tf.placeholder(tf.float32)
    squares = tf.losses.mean_squared_error(LABELS, GUESS, weights)
    classes = tf.losses.sparse_softmax_cross_entropy([0, 2, 1, 1], GUESS, weights)
    for loss, wrong in [(squares, np.ones(3)), (squares, np.ones(4)), (squares, np.ones((4, 2))), (classes, np.ones(3)),
                        (squares, np.ones((1, 4, 3)))]:  # fmt: skip
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(loss, feeds={weights: wrong})


def test_pairwise_errors_of_unknown_rank_are_those_of_known_rank() -> None:
    x, y, w = (tf.placeholder(tf.float32) for _ in range(3))
    for weights in (np.float32(1.0), WEIGHTS):
        got, want = run(
            tf.losses.mean_pairwise_squared_error(y, x, w),
            tf.losses.mean_pairwise_squared_error(LABELS, GUESS, weights),
            feeds={x: GUESS, y: LABELS, w: weights},
        )
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_metrics_take_labels_and_weights_of_unknown_rank() -> None:
    x, y, w = (tf.placeholder(tf.float32) for _ in range(3))
    ones = np.ones((4, 3))
    for labels, weights, factors in [
        (LABELS, WEIGHTS, WEIGHTS * ones),
        (LABELS[..., None], WEIGHTS[:, 0], WEIGHTS * ones),
        (LABELS, np.float32(3.0), 3 * ones),
        (LABELS, ones[..., None], ones),
    ]:
        value, update = tf.metrics.mean_squared_error(y, x, w)
        with tf.Session() as sess:
            sess.run(tf.local_variables_initializer())
            sess.run(update, {x: GUESS, y: labels, w: weights})
            got = sess.run(value)
        np.testing.assert_allclose(got, ((LABELS - GUESS) ** 2 * factors).sum() / factors.sum(), rtol=1e-5)
