"""Descriptions of models, training and settings: checks of their arguments, with TensorFlow 1's texts."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import headrace.v1 as tf
from headrace.v1.contrib import learn
from headrace.v1.estimator import functions


def model(features: Any, labels: Any = None, mode: Any = None) -> None: ...


def test_mode_keys_are_strings_of_tensorflow() -> None:
    keys = tf.estimator.ModeKeys
    assert (keys.TRAIN, keys.EVAL, keys.PREDICT) == ("train", "eval", "infer")
    assert issubclass(learn.ModeKeys, keys)
    assert learn.ModeKeys.INFER == keys.PREDICT


def test_a_spec_needs_what_its_mode_uses() -> None:
    spec = tf.estimator.EstimatorSpec
    with tf.Graph().as_default():
        loss, op = tf.constant([2.0]), tf.no_op()
        for mode, given, text in (
            ("train", {"loss": loss}, "Missing train_op."),
            ("train", {"train_op": op}, "Missing loss."),
            ("eval", {}, "Missing loss."),
            ("infer", {"loss": loss}, "Missing predictions."),
            ("eval", {"loss": tf.constant([1.0, 2.0])}, "Loss must be scalar, given"),
        ):
            with pytest.raises(ValueError, match=text):
                spec(mode, **given)
        for given, text in (
            ({"predictions": {"a": 1}}, r"predictions\[a\] must be Tensor, given: 1"),
            ({"eval_metric_ops": [1]}, "eval_metric_ops must be a dict, given"),
            ({"eval_metric_ops": {"a": loss}}, "Values of eval_metric_ops must be"),
            ({"training_hooks": ["x"]}, "All hooks must be SessionRunHook instances, given: x"),
            ({"scaffold": 3}, "scaffold must be tf.train.Scaffold. Given: 3"),
            ({"train_op": 3}, "train_op must be Operation or Tensor, given: 3"),
            ({"loss": 3.0}, "loss must be Tensor, given: 3.0"),
        ):
            with pytest.raises(TypeError, match=text):
                spec("eval", **({"loss": loss} | given))
        made = spec("train", loss=loss, train_op=op)
        assert made.loss.shape.as_list() == []
        assert (made.predictions, made.eval_metric_ops, made.training_hooks) == ({}, {}, ())
        assert isinstance(made.scaffold, tf.train.Scaffold)
        assert list(spec("infer", predictions=loss).export_outputs) == ["serving_default"]
        assert spec._fields == (
            "mode", "predictions", "loss", "train_op", "eval_metric_ops", "export_outputs", "training_chief_hooks",
            "training_hooks", "scaffold", "evaluation_hooks", "prediction_hooks",
        )  # fmt: skip


def test_specs_of_training_and_evaluation_check_their_arguments() -> None:
    with pytest.raises(ValueError, match="Must specify max_steps > 0, given: 0"):
        tf.estimator.TrainSpec(model, max_steps=0)
    with pytest.raises(ValueError, match="Must specify steps > 0, given: -1"):
        tf.estimator.EvalSpec(model, steps=-1)
    with pytest.raises(TypeError, match="`name` must be string, given: 3"):
        tf.estimator.EvalSpec(model, name=3)
    with pytest.raises(ValueError, match="Must specify throttle_secs >= 0, given: -1"):
        tf.estimator.EvalSpec(model, throttle_secs=-1)
    with pytest.raises(TypeError, match="`exporters` must be Exporter instances, given: 3"):
        tf.estimator.EvalSpec(model, exporters=[3])
    with pytest.raises(TypeError, match="`input_fn` must be callable"):
        tf.estimator.TrainSpec("data")
    found = tf.estimator.EvalSpec(model)
    assert (found.steps, found.start_delay_secs, found.throttle_secs) == (100, 120, 600)
    with pytest.raises(TypeError, match=r"`estimator` must have type `tf\.estimator\.Estimator`"):
        tf.estimator.train_and_evaluate(3, 4, 5)


def test_arguments_of_model_functions_are_checked_by_name() -> None:
    make = tf.estimator.Estimator
    with pytest.raises(ValueError, match="model_fn must be provided to Estimator"):
        make(None, "m")
    with pytest.raises(ValueError, match="must include features argument"):
        make(lambda labels: None, "m")
    with pytest.raises(ValueError, match="does not include params argument, but params"):
        make(model, "m", params={"a": 1})
    with pytest.raises(ValueError, match=r"has following not expected args: \['other'\]"):
        make(lambda features, other: None, "m")
    with pytest.raises(ValueError, match="config must be an instance of `RunConfig`"):
        make(model, "m", config={})
    with pytest.raises(ValueError, match="`model_dir` are set both in constructor and `RunConfig`"):
        make(model, "m", tf.estimator.RunConfig("n"))
    with pytest.raises(ValueError, match="warm_start_from must be a string or a WarmStartSettings"):
        make(model, "m", warm_start_from=3)
    made = make(model, config=tf.estimator.RunConfig("n"))
    assert (made.model_dir, made.config.model_dir, made.params) == ("n", "n", {})
    for steps, text in (({"steps": 1, "max_steps": 2}, "both steps and max_steps"), ({"steps": 0}, "steps > 0"),
                        ({"max_steps": -1}, "max_steps > 0")):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            made.train(model, **steps)


def test_arguments_of_partial_functions_and_methods_are_those_left() -> None:
    class Model:
        def __call__(self, features: Any, labels: Any) -> None: ...

        def method(self, features: Any, mode: Any) -> None: ...

    names = functions.argument_names
    assert names(functools.partial(model, labels=1)) == ("features", "mode")
    assert names(functools.partial(functools.partial(model, 1), mode=2)) == ("labels",)
    assert names(Model()) == ("features", "labels")
    assert names(Model().method) == ("features", "mode")


def test_settings_have_tensorflows_defaults_and_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    make = tf.estimator.RunConfig
    found = make()
    assert (found.save_checkpoints_secs, found.save_checkpoints_steps, found.save_summary_steps) == (600, None, 100)
    assert (found.keep_checkpoint_max, found.log_step_count_steps, found.model_dir) == (5, 100, None)
    assert (found.is_chief, found.master, found.task_type, found.num_worker_replicas) == (True, "", "worker", 1)
    assert found.session_config.allow_soft_placement
    assert make(save_checkpoints_steps=5).save_checkpoints_secs is None
    assert found.replace(save_checkpoints_steps=5).save_checkpoints_secs is None
    with pytest.raises(ValueError, match="cannot be both set"):
        make(save_checkpoints_steps=1, save_checkpoints_secs=1)
    with pytest.raises(ValueError, match="Replacing nothing is not supported"):
        found.replace(nothing=1)
    with pytest.raises(ValueError, match="keep_checkpoint_max should be >= 0"):
        make(keep_checkpoint_max=-1)
    with pytest.raises(tf.errors.UnimplementedError, match="train_distribute"):
        make(train_distribute="mirrored")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        found.other
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "m", "task": {"type": "chief", "index": 2}}')
    assert (make().model_dir, make().task_type, make().task_id) == ("m", "chief", 2)
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}}')
    with pytest.raises(tf.errors.UnimplementedError, match="MonitoredTrainingSession"):
        make()
    monkeypatch.setenv("TF_CONFIG", "[")
    with pytest.raises(ValueError, match="TF_CONFIG is not JSON"):
        make()
