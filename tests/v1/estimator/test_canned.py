"""Canned estimators: names of variables, metrics and predictions are those that TensorFlow 1 documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = [pytest.mark.system, pytest.mark.one_engine]  # every test trains

BINARY = [
    "accuracy", "accuracy_baseline", "auc", "auc_precision_recall", "average_loss", "label/mean", "loss", "precision",
    "prediction/mean", "recall", "global_step",
]  # fmt: skip
RNG = np.random.default_rng(0)
AGE = np.float32(RNG.uniform(-1, 1, 100))
JOB = RNG.choice(["a", "b", "c"], 100)
LABEL = ((AGE > 0) ^ (JOB == "b")).astype(np.int64)

SEEDED = tf.estimator.RunConfig(tf_random_seed=1)


def fed(labels: Any, **more: Any) -> Any:
    features = {"age": AGE, "job": JOB, **more}
    return (
        tf.estimator.inputs.numpy_input_fn(features, labels, batch_size=50, num_epochs=None, shuffle=False),
        tf.estimator.inputs.numpy_input_fn(features, labels, batch_size=50, shuffle=False),
    )


def columns() -> tuple[Any, Any, Any]:
    fc = tf.feature_column
    age, job = fc.numeric_column("age"), fc.categorical_column_with_vocabulary_list("job", ["a", "b", "c"])
    return age, job, fc.crossed_column([fc.bucketized_column(age, [0.0]), "job"], 50)


def test_a_linear_classifier_learns_crossed_columns(tmp_path: Path) -> None:
    train, check = fed(LABEL)
    made = tf.estimator.LinearClassifier(columns(), str(tmp_path)).train(train, steps=40)
    found = made.evaluate(check)
    assert list(found) == BINARY
    assert found["accuracy"] > 0.95
    np.testing.assert_allclose(found["accuracy_baseline"], max(np.mean(LABEL), 1 - np.mean(LABEL)), rtol=1e-6)
    np.testing.assert_allclose(found["loss"], 50 * found["average_loss"], rtol=1e-5)  # the sum over a batch
    assert [n for n in made.get_variable_names() if "Ftrl" not in n] == [
        "global_step", "linear/linear_model/age/weights", "linear/linear_model/age_bucketized_X_job/weights",
        "linear/linear_model/bias_weights", "linear/linear_model/job/weights",
    ]  # fmt: skip
    one = next(made.predict(check))
    assert sorted(one) == [
        "all_class_ids", "all_classes", "class_ids", "classes", "logistic", "logits", "probabilities",
    ]  # fmt: skip
    assert (one["class_ids"].tolist(), one["classes"].tolist()) == ([LABEL[0]], [str(LABEL[0]).encode()])
    assert one["all_classes"].tolist() == [b"0", b"1"]


def test_a_network_of_three_named_classes(tmp_path: Path) -> None:
    names = np.array(["low", "mid", "high"])[np.digitize(AGE, [-0.3, 0.3])]
    train, check = fed(names, w=np.ones(100))
    age, job, _ = columns()
    made = tf.estimator.DNNClassifier(
        [16], [age, tf.feature_column.indicator_column(job)], str(tmp_path), n_classes=3, weight_column="w",
        label_vocabulary=["low", "mid", "high"], optimizer=lambda: tf.train.AdamOptimizer(0.05), config=SEEDED,
    ).train(train, steps=80)  # fmt: skip
    found = made.evaluate(check)
    assert list(found) == ["accuracy", "average_loss", "loss", "global_step"]
    assert found["accuracy"] > 0.9
    assert [n for n in made.get_variable_names() if "Adam" not in n and "power" not in n] == [
        "dnn/hiddenlayer_0/bias", "dnn/hiddenlayer_0/kernel", "dnn/logits/bias", "dnn/logits/kernel", "global_step",
    ]  # fmt: skip
    assert next(made.predict(check))["classes"].tolist() == [names[0].encode()]


def test_a_wide_and_deep_model_counts_one_step_for_both_parts(tmp_path: Path) -> None:
    train, check = fed(LABEL)
    age, job, crossed = columns()
    made = tf.estimator.DNNLinearCombinedClassifier(
        str(tmp_path), linear_feature_columns=[crossed], dnn_hidden_units=[8],
        dnn_feature_columns=[age, tf.feature_column.indicator_column(job)],
    ).train(train, steps=10)  # fmt: skip
    assert made.get_variable_value("global_step") == 10
    names = made.get_variable_names()
    assert {"dnn/logits/kernel/Adagrad", "linear/linear_model/bias_weights/Ftrl"} <= set(names)
    assert list(made.evaluate(check)) == BINARY
    with pytest.raises(ValueError, match="Either linear_feature_columns or dnn_feature_columns must be defined"):
        tf.estimator.DNNLinearCombinedClassifier(str(tmp_path))


def test_regressors_and_baselines(tmp_path: Path) -> None:
    train, check = fed(2.0 * AGE + 1.0)
    age = columns()[0]
    for name, made in (
        ("linear", tf.estimator.LinearRegressor([age], str(tmp_path / "a"), optimizer="SGD")),
        ("dnn", tf.estimator.DNNRegressor([8], [age], str(tmp_path / "b"), config=SEEDED)),
        ("baseline", tf.estimator.BaselineRegressor(str(tmp_path / "c"))),
    ):
        if name == "linear":  # a step of the sum of 50 losses at TensorFlow's default rate diverges
            made = tf.estimator.LinearRegressor(
                [age], str(tmp_path / "a"), optimizer=tf.train.GradientDescentOptimizer(0.01)
            )
        found = made.train(train, steps=60).evaluate(check)
        assert list(found) == ["average_loss", "label/mean", "loss", "prediction/mean", "global_step"]
        np.testing.assert_allclose(found["label/mean"], np.mean(2.0 * AGE + 1.0), rtol=1e-5)
        assert found["average_loss"] < {"linear": 1e-4, "dnn": 0.1, "baseline": np.var(2.0 * AGE) * 1.05}[name]
        assert list(next(made.predict(check))) == ["predictions"]
    train, check = fed(LABEL)
    found = tf.estimator.BaselineClassifier(str(tmp_path / "d")).train(train, steps=60).evaluate(check)
    np.testing.assert_allclose(found["prediction/mean"], np.mean(LABEL), atol=0.05)


def test_wrong_labels_and_optimizers_are_refused(tmp_path: Path) -> None:
    age = columns()[0]
    with pytest.raises(ValueError, match=r"Length of `label_vocabulary` must be equal to n_classes"):
        tf.estimator.LinearClassifier([age], str(tmp_path), label_vocabulary=["a"])
    made = tf.estimator.LinearClassifier([age], str(tmp_path), optimizer="Nothing")
    with pytest.raises(ValueError, match="Unsupported optimizer name: Nothing"):
        made.train(fed(LABEL)[0], steps=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Labels must be <= n_classes - 1"):
        tf.estimator.LinearClassifier([age], str(tmp_path / "x")).train(fed(LABEL + 5)[0], steps=1)
