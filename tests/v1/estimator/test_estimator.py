"""`tf.estimator.Estimator`: files, results and errors are those that TensorFlow 1 documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.estimator.models import X, Y, estimator, line, points

pytestmark = [pytest.mark.system, pytest.mark.one_engine]  # every test builds and trains graphs


def summaries(folder: str) -> dict[str, list[tuple[int, float]]]:
    out: dict[str, list[tuple[int, float]]] = {}
    for name in sorted(os.listdir(folder)):
        if ".tfevents." in name:
            for event in tf.train.summary_iterator(os.path.join(folder, name)):
                for value in event.summary.value:
                    if value.WhichOneof("value") == "simple_value":
                        out.setdefault(value.tag, []).append((event.step, value.simple_value))
    return out


def test_training_continues_from_the_folder_and_writes_tensorflows_files(tmp_path: Path) -> None:
    made = estimator(tmp_path, save_checkpoints_steps=4, save_summary_steps=5)
    assert made.train(points(), steps=6) is made
    names = {name for name in os.listdir(tmp_path) if not name.startswith("events.out.tfevents.")}
    assert names == {"checkpoint", "graph.pbtxt"} | {
        f"model.ckpt-{n}.{end}" for n in (0, 4, 6) for end in ("index", "meta", "data-00000-of-00001")
    }
    assert 'model_checkpoint_path: "model.ckpt-6"' in (tmp_path / "checkpoint").read_text()
    estimator(tmp_path).train(points(), max_steps=7)
    assert made.latest_checkpoint() == str(tmp_path / "model.ckpt-7")
    assert made.get_variable_names() == ["b", "global_step", "w"]
    assert made.get_variable_value("global_step") == 7
    assert [step for step, _ in summaries(str(tmp_path))["loss"]] == [1, 6, 7]


def test_training_is_that_of_a_plain_session(tmp_path: Path) -> None:
    made = estimator(tmp_path).train(points(), steps=5)
    with tf.Graph().as_default(), tf.Session() as session:
        count = tf.train.create_global_step()
        spec = line({"x": tf.constant(X)}, tf.constant(Y), "train", {"rate": 0.1})
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            session.run(spec.train_op)
        w, b, n = session.run([tf.global_variables("w")[0], tf.global_variables("b")[0], count])
    assert made.get_variable_value("w") == w
    assert made.get_variable_value("b") == b
    assert made.get_variable_value("global_step") == n == 5


def test_a_reached_max_steps_trains_nothing(tmp_path: Path) -> None:
    made = estimator(tmp_path).train(points(), max_steps=2)
    made.train(lambda: pytest.fail("called"), max_steps=2)
    assert made.get_variable_value("global_step") == 2


def test_the_end_of_the_input_ends_the_training(tmp_path: Path) -> None:
    assert estimator(tmp_path).train(points(epochs=3)).get_variable_value("global_step") == 3


def test_evaluation_gives_metrics_loss_and_step_and_writes_them(tmp_path: Path) -> None:
    made = estimator(tmp_path).train(points(), steps=3)
    w, b = made.get_variable_value("w"), made.get_variable_value("b")
    found = made.evaluate(points(epochs=1, batch=2))
    assert list(found) == ["loss", "mean", "global_step"]
    assert found["global_step"] == 3
    np.testing.assert_allclose(found["mean"], np.mean(w * X + b), rtol=1e-6)
    np.testing.assert_allclose(found["loss"], np.mean((w * X + b - Y) ** 2), rtol=1e-6)
    assert summaries(str(tmp_path / "eval")) == {"loss": [(3, found["loss"])], "mean": [(3, found["mean"])]}
    some = made.evaluate(points(), steps=1, name="some", checkpoint_path=str(tmp_path / "model.ckpt-0"))
    assert (some["global_step"], os.path.isdir(made.eval_dir("some"))) == (0, True)
    np.testing.assert_allclose(some["loss"], np.mean(Y**2), rtol=1e-6)


def test_an_untrained_model_is_evaluated_with_its_initial_values(tmp_path: Path) -> None:
    made = estimator(tmp_path)
    assert made.latest_checkpoint() is None
    assert made.evaluate(points(epochs=1))["mean"] == 0.0
    with pytest.raises(ValueError, match="Couldn't find trained model at"):
        made.get_variable_names()
    with pytest.raises(ValueError, match="Couldn't find trained model at"):
        made.get_variable_value("w")


def test_predictions_are_yielded_by_example_or_by_batch(tmp_path: Path) -> None:
    made = estimator(tmp_path).train(points(), steps=3)
    w, b = made.get_variable_value("w"), made.get_variable_value("b")
    found = list(made.predict(points(epochs=1, batch=3)))
    assert [sorted(p) for p in found] == [["twice", "y"]] * 4
    np.testing.assert_allclose([p["y"] for p in found], w * X + b, rtol=1e-6)
    batches = list(made.predict(points(epochs=1, batch=3), predict_keys=["twice"], yield_single_examples=False))
    assert [{k: v.shape for k, v in p.items()} for p in batches] == [{"twice": (3, 1)}, {"twice": (1, 1)}]
    outside = tf.get_default_graph()
    one = made.predict(points(epochs=1))
    next(one)
    assert tf.get_default_graph() is outside  # between two predictions
    one.close()
    with pytest.raises(ValueError, match="Expected to run at least one output from"):
        next(made.predict(points(epochs=1), predict_keys="nothing"))


def test_hooks_and_listeners_are_called(tmp_path: Path) -> None:
    class Listener(tf.train.CheckpointSaverListener):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def after_save(self, session: Any, global_step_value: int) -> None:
            self.steps.append(global_step_value)

    class Hook(tf.train.SessionRunHook):
        count = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.count += 1

    listener, hook = Listener(), Hook()
    made = estimator(tmp_path, save_checkpoints_steps=2)
    made.train(points(), [hook], steps=5, saving_listeners=[listener])
    assert (listener.steps, hook.count) == ([0, 2, 4, 5], 5)
    made.evaluate(points(), steps=3, hooks=[hook])
    assert hook.count == 8
    none = estimator(tmp_path / "none", save_checkpoints_secs=None)
    with pytest.raises(ValueError, match="There should be a CheckpointSaverHook"):
        none.train(points(), steps=1, saving_listeners=[listener])


def test_model_and_input_functions_take_any_part_of_their_arguments(tmp_path: Path) -> None:
    seen: list[Any] = []

    def input_fn(mode: str, params: Any, config: Any) -> Any:
        seen.append((mode, params, config.model_dir))
        return tf.constant([1.0])

    def model_fn(features: Any, mode: str, config: Any) -> Any:
        v = tf.get_variable("v", [])
        loss = tf.reduce_sum(features * v)
        return tf.estimator.EstimatorSpec(mode, v, loss, tf.assign_add(tf.train.get_global_step(), 1))

    made = tf.estimator.Estimator(model_fn, str(tmp_path)).train(input_fn, steps=1)
    assert seen == [("train", {}, str(tmp_path))]
    with pytest.raises(ValueError, match="model_fn does not take labels, but input_fn returns labels"):
        made.train(lambda: ([1.0], [2.0]), steps=1)
    with pytest.raises(ValueError, match=r"input_fn should return \(features, labels\) as a len 2 tuple"):
        made.train(lambda: (1.0, 2.0, 3.0), steps=1)
    wrong = tf.estimator.Estimator(lambda features: None, str(tmp_path / "wrong"))
    with pytest.raises(ValueError, match="model_fn should return an EstimatorSpec"):
        wrong.train(input_fn, steps=1)


def test_train_and_evaluate_evaluates_the_last_checkpoint(tmp_path: Path) -> None:
    exports: list[Any] = []

    class Exporter(tf.estimator.Exporter):
        name = "mine"

        def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
                   is_the_final_export: bool) -> Any:  # fmt: skip
            exports.append((os.path.relpath(export_path, tmp_path), os.path.basename(checkpoint_path),
                            is_the_final_export))  # fmt: skip
            return b"done"

    made = estimator(tmp_path, save_checkpoints_steps=4)
    train = tf.estimator.TrainSpec(points(), max_steps=10)
    found, exported = tf.estimator.train_and_evaluate(
        made, train, tf.estimator.EvalSpec(points(epochs=1), None, throttle_secs=0, exporters=Exporter())
    )
    assert (found["global_step"], exported) == (10, [b"done"])
    assert exports == [
        ("export/mine", "model.ckpt-4", False), ("export/mine", "model.ckpt-8", False),
        ("export/mine", "model.ckpt-10", True),
    ]  # fmt: skip
    assert [step for step, _ in summaries(str(tmp_path / "eval"))["loss"]] == [4, 8, 10]
    again = tf.estimator.train_and_evaluate(made, train, tf.estimator.EvalSpec(points(epochs=1)))
    assert again == (None, [])


def test_a_model_starts_with_the_variables_of_another(tmp_path: Path) -> None:
    first = estimator(tmp_path / "first").train(points(), steps=5)
    settings = tf.estimator.WarmStartSettings(str(tmp_path / "first"), vars_to_warm_start="w")
    second = tf.estimator.Estimator(
        line, str(tmp_path / "second"), params={"rate": 0.0}, warm_start_from=settings
    ).train(points(), steps=1)
    assert second.get_variable_value("w") == first.get_variable_value("w")
    assert second.get_variable_value("b") == 0.0
    assert second.get_variable_value("global_step") == 1


def test_a_loss_that_is_nan_ends_the_training(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: str) -> Any:
        v = tf.get_variable("v", [])
        return tf.estimator.EstimatorSpec(
            mode, loss=v * float("nan"), train_op=tf.assign_add(tf.train.get_global_step(), 1)
        )

    made = tf.estimator.Estimator(model_fn, str(tmp_path))
    with pytest.raises(tf.train.NanLossDuringTrainingError):
        made.train(lambda: 1.0, steps=2)
