"""SavedModels of estimators, and the exporters of `train_and_evaluate`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.estimator.models import X, estimator, line, points

pytestmark = pytest.mark.one_engine
trains = pytest.mark.system  # builds and trains graphs


def receiver() -> Any:
    x = tf.placeholder(tf.float32, [None, 1], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, x)


def served(path: bytes) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        call = tf.saved_model.load(session, ["serve"], path.decode()).signature_def["serving_default"]
        return session.run({k: v.name for k, v in call.outputs.items()}, {call.inputs["input"].name: X})


@trains
def test_an_export_has_the_values_of_a_checkpoint(tmp_path: Path) -> None:
    made = estimator(tmp_path, save_checkpoints_steps=2).train(points(), steps=4)
    before = int(time.time())
    first = made.export_saved_model(
        str(tmp_path / "e"), receiver, as_text=True, checkpoint_path=f"{tmp_path}/model.ckpt-2"
    )
    second = made.export_savedmodel(tmp_path / "e", receiver, strip_default_attrs=True)
    stamps = [int(os.path.basename(path)) for path in (first, second)]
    assert before <= stamps[0] < stamps[1] <= before + 60
    assert sorted(os.listdir(tmp_path / "e")) == [str(n) for n in stamps]  # no temp-
    assert sorted(os.listdir(first)) == [b"saved_model.pbtxt", b"variables"]
    w, b = made.get_variable_value("w"), made.get_variable_value("b")
    got = served(second)
    np.testing.assert_allclose(got["y"], X * w + b, rtol=1e-6)
    assert got.keys() == {"y", "twice"}
    assert not np.allclose(served(first)["y"], got["y"])
    np.testing.assert_allclose([row["y"] for row in made.predict(points(1))], got["y"], rtol=1e-6)


@trains
def test_a_model_starts_from_an_export(tmp_path: Path) -> None:
    first = estimator(tmp_path / "a").train(points(), steps=3)
    path = first.export_saved_model(tmp_path / "e", receiver)
    second = tf.estimator.Estimator(line, str(tmp_path / "b"), params={"rate": 0.0}, warm_start_from=path)
    exported = second.export_saved_model(tmp_path / "e", receiver)  # it has no checkpoint of its own
    np.testing.assert_array_equal(served(exported)["y"], served(path)["y"])
    second.train(points(), steps=1)
    assert second.get_variable_value("w") == first.get_variable_value("w") != 0.0
    assert second.get_variable_value("global_step") == 1


@trains
def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    made = estimator(tmp_path)
    with pytest.raises(ValueError, match=f"Couldn't find trained model at {tmp_path}"):
        made.export_saved_model(tmp_path / "e", receiver)
    made.train(points(), steps=1)
    with pytest.raises(ValueError, match="An input_receiver_fn must be defined"):
        made.export_saved_model(tmp_path / "e", None)
    with pytest.raises(ValueError, match=r"No valid modes for exporting found. Got \['other'\]"):
        made.experimental_export_all_saved_models(tmp_path / "e", {"other": receiver})
    for name in ("../x", "/x", ".", "a/../../x"):
        with pytest.raises(ValueError, match="expected the path of a file below assets"):
            made.export_saved_model(tmp_path / "e", receiver, {name: __file__})
    with pytest.raises(tf.errors.NotFoundError):
        made.export_saved_model(tmp_path / "e", receiver, {"x": str(tmp_path / "none")})
    assert os.listdir(tmp_path / "e") == []

    def larger(features: Any, mode: str) -> Any:
        return tf.estimator.EstimatorSpec(mode, features["x"] * tf.get_variable("another", []))

    with pytest.raises(ValueError, match="Could not load all requested variables from checkpoint"):
        tf.estimator.Estimator(larger, str(tmp_path)).export_saved_model(tmp_path / "e", receiver)
    assert os.listdir(tmp_path / "e") == []


@trains
def test_exporters_write_the_latest_the_best_and_the_final_model(tmp_path: Path) -> None:
    made = estimator(tmp_path, save_checkpoints_steps=2)
    exporters = [
        tf.estimator.LatestExporter("latest", receiver, exports_to_keep=2),
        tf.estimator.BestExporter("best", receiver, exports_to_keep=None),
        tf.estimator.FinalExporter("final", receiver, {"notes": __file__}),
    ]
    spec = tf.estimator.EvalSpec(points(epochs=1), None, throttle_secs=0, exporters=exporters)
    _, exported = tf.estimator.train_and_evaluate(made, tf.estimator.TrainSpec(points(), max_steps=6), spec)
    kept = {name: sorted(os.listdir(tmp_path / "export" / name)) for name in ("latest", "best", "final")}
    assert {name: len(found) for name, found in kept.items()} == {"latest": 2, "best": 3, "final": 1}
    assert [os.path.basename(path).decode() for path in exported] == [found[-1] for found in kept.values()]
    assert os.path.isfile(os.path.join(exported[2], b"assets.extra", b"notes"))
    w = made.get_variable_value("w")
    for path in exported:
        np.testing.assert_allclose(served(path)["y"], X * w + made.get_variable_value("b"), rtol=1e-6)


class Model:
    """Stands for an estimator: makes empty folders."""

    def __init__(self, folder: Path) -> None:
        self.model_dir, self.count = str(folder), 1_700_000_000

    def export_saved_model(self, folder: str, *given: Any) -> bytes:
        self.count += 1
        os.makedirs(os.path.join(folder, str(self.count)))
        return os.path.join(folder, str(self.count)).encode()


def exported(exporter: Any, model: Model, results: list[Any]) -> list[int]:
    """Numbers of the evaluations after which a model was exported."""
    path = os.path.join(model.model_dir, "export")
    return [i for i, r in enumerate(results) if exporter.export(model, path, "checkpoint", r, False) is not None]


def test_the_best_exporter_compares_with_the_best_so_far(tmp_path: Path) -> None:
    losses = [{"loss": x} for x in (3.0, 4.0, 2.0, 2.0, 1.0)]
    assert exported(tf.estimator.BestExporter(serving_input_receiver_fn=receiver), Model(tmp_path), losses) == [0, 2, 4]

    def is_better(best_eval_result: Any, current_eval_result: Any) -> bool:
        return bool(current_eval_result["auc"] > best_eval_result["auc"])

    mine = tf.estimator.BestExporter("b", receiver, None, is_better, exports_to_keep=1)
    scores = [{"auc": x} for x in (0.5, 0.4, 0.7, 0.6)]
    assert exported(mine, Model(tmp_path / "b"), scores) == [0, 2]
    assert os.listdir(tmp_path / "b" / "export") == ["1700000002"]
    assert mine.name == "b"


def test_the_best_exporter_reads_earlier_evaluations(tmp_path: Path) -> None:
    from headrace.v1.estimator.evaluation import write_results

    for step, loss in enumerate((3.0, 1.0, 2.0)):
        write_results(str(tmp_path / "eval_dev"), {"loss": loss, "global_step": step}, step, None)
    tf.summary.FileWriterCache.clear()
    seen: list[tuple[float, float]] = []

    def is_better(best_eval_result: Any, current_eval_result: Any) -> bool:
        seen.append((best_eval_result["loss"], current_eval_result["loss"]))
        return seen[-1][0] > seen[-1][1]

    exporter = tf.estimator.BestExporter("b", receiver, "eval_dev/*.tfevents.*", is_better)
    assert exported(exporter, Model(tmp_path), [{"loss": 1.5}, {"loss": 1.2}]) == [0, 1]  # the first one always is
    assert seen == [(3.0, 1.0), (1.0, 2.0), (1.5, 1.2)]


def test_older_exports_are_deleted_and_other_files_kept(tmp_path: Path) -> None:
    latest, model = tf.estimator.LatestExporter("l", receiver, exports_to_keep=2), Model(tmp_path)
    for name in ("temp-1700000000", "notes", "17"):
        (tmp_path / "export" / name).mkdir(parents=True)
    assert exported(latest, model, [None] * 4) == [0, 1, 2, 3]
    found = ["17", "1700000003", "1700000004", "notes", "temp-1700000000"]
    assert sorted(os.listdir(tmp_path / "export")) == found


def test_wrong_arguments_of_exporters() -> None:
    e = tf.estimator
    with pytest.raises(ValueError, match="`exports_to_keep`, if provided, must be a positive number"):
        e.LatestExporter("a", receiver, exports_to_keep=0)
    with pytest.raises(ValueError, match="`compare_fn` must not be None"):
        e.BestExporter("a", receiver, compare_fn=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must include current_eval_result argument"):
        e.BestExporter("a", receiver, compare_fn=lambda best_eval_result: True)
    with pytest.raises(ValueError, match=r"has following not expected args: \['c'\]"):
        e.BestExporter("a", receiver, compare_fn=lambda best_eval_result, current_eval_result, c: True)
    exporter = e.BestExporter("a", receiver)
    with pytest.raises(ValueError, match="best_eval_result cannot be empty or no loss is found in it"):
        exporter._is_better(best_eval_result={}, current_eval_result={"loss": 1})
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Features and labels must have distinct keys"):
        e.experimental.build_raw_supervised_input_receiver_fn({"a": tf.ones(1)}, {"a": tf.ones(1)})
