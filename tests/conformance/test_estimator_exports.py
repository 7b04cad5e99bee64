"""Models that estimators export load in TensorFlow, which gives the same values; signatures are TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable

COMMON = """
import os, tempfile
import numpy as np
import tensorflow
import headrace.v1 as ours

theirs = tensorflow.compat.v1
theirs.disable_eager_execution()
theirs.logging.set_verbosity(theirs.logging.ERROR)
"""

VALUES = """
folder = tempfile.mkdtemp()
words = os.path.join(folder, "words.txt")
with open(words, "w") as f:
    f.write("cat\\ndog\\ncow\\n")
age = np.linspace(1, 5, 24).astype(np.float32)
pet = np.array(["cat", "cow", "dog", "cat"] * 6)
rows = {"age": age, "pet": pet}
spec = {"age": ours.FixedLenFeature([1], ours.float32), "pet": ours.FixedLenFeature([1], ours.string)}

def examples(n):
    made = []
    for i in range(n):
        one = theirs.train.Example()
        one.features.feature["age"].float_list.value.append(age[i])
        one.features.feature["pet"].bytes_list.value.append(pet[i].encode())
        made.append(one.SerializeToString())
    return np.array(made, object)

def columns():
    c = ours.feature_column
    by_file = c.categorical_column_with_vocabulary_file("pet", words)
    return [c.numeric_column("age")], [by_file, c.bucketized_column(c.numeric_column("age"), [2.0, 4.0])], by_file

def models():
    e, (dense, sparse, by_file) = ours.estimator, columns()
    config = e.RunConfig(tf_random_seed=3)
    both = [*dense, ours.feature_column.embedding_column(by_file, 3)]
    yield e.LinearClassifier(dense + sparse, os.path.join(folder, "a"), config=config), (age > 3).astype(np.int64)
    yield e.DNNClassifier([5], both, os.path.join(folder, "b"), 3, label_vocabulary=["x", "y", "z"], config=config), \\
        np.array(["x", "z", "y", "y"] * 6)
    yield e.DNNLinearCombinedRegressor(
        os.path.join(folder, "c"), sparse, dnn_feature_columns=both, dnn_hidden_units=[4], config=config), age * 2
    yield e.BaselineRegressor(os.path.join(folder, "d"), config=config), age * 2

def told(tf, path, feed):
    with tf.Graph().as_default(), tf.Session() as sess:
        meta = tf.saved_model.load(sess, ["serve"], path)
        out = {}
        for name, call in sorted(meta.signature_def.items()):
            (given,) = call.inputs.values()
            out[name] = sess.run({k: v.name for k, v in call.outputs.items()}, {given.name: feed})
        return {n: (call.method_name, list(call.inputs)) for n, call in meta.signature_def.items()}, out

for model, labels in models():
    inputs = ours.estimator.inputs.numpy_input_fn
    model.train(inputs(rows, labels, batch_size=8, num_epochs=2, shuffle=False))
    receiver = ours.estimator.export.build_parsing_serving_input_receiver_fn(spec)
    path = model.export_saved_model(tempfile.mkdtemp(dir=folder), receiver, {"deep/words": words}).decode()
    with open(os.path.join(path, "assets.extra", "deep", "words")) as f:
        assert f.read() == "cat\\ndog\\ncow\\n"
    moved = path + "_moved"
    os.rename(path, moved)
    os.rename(words, words + "_away")  # the copy in the SavedModel is read
    feed = examples(7)
    (calls, mine), (calls_there, yours) = told(ours, moved, feed), told(theirs, moved, feed)
    assert calls == calls_there, (calls, calls_there)
    os.rename(words + "_away", words)
    assert {"predict", "serving_default"} <= set(mine) <= {"predict", "serving_default", "classification", "regression"}
    predicted = list(model.predict(inputs({k: v[:7] for k, v in rows.items()}, shuffle=False)))
    for name, outs in mine.items():
        assert outs.keys() == yours[name].keys()
        for key, value in outs.items():
            there = yours[name][key]
            assert (value.dtype, value.shape) == (there.dtype, there.shape)
            if value.dtype == object:
                assert value.tolist() == there.tolist()
            else:
                np.testing.assert_allclose(value, there, rtol=2e-6, atol=1e-6)
            if name == "predict":
                own = np.array([row[key] for row in predicted])
                assert own.tolist() == value.tolist() if own.dtype == object else np.allclose(own, value, 2e-6, 1e-6)
print("fine")
"""

MODES = """
def model_fn(features, labels, mode):
    tf = ours
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    y = tf.reduce_sum(features["x"] * w, 1)
    if mode == "infer":
        out = tf.estimator.export.PredictOutput
        outputs = {"first": out(y), "serving_default": out({"y": y, "double": y * 2.0}), "fed": out(features["z"])}
        return tf.estimator.EstimatorSpec(mode, {"y": y}, export_outputs=outputs)
    loss = tf.losses.mean_squared_error(labels, y)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    metrics = {"mean": tf.metrics.mean(y)} if mode == "eval" else None
    return tf.estimator.EstimatorSpec(mode, {"y": y}, loss, step, metrics)

folder = tempfile.mkdtemp()
data = lambda: ours.data.Dataset.from_tensors(({"x": [[1.0, 2.0]]}, [1.0])).repeat()
model = ours.estimator.Estimator(model_fn, folder).train(data, steps=2)
w = model.get_variable_value("w")

def serving():
    x, z = ours.placeholder(ours.float32, [None, 2], "x"), ours.placeholder(ours.float32, [None], "z")
    raw = ours.placeholder(ours.float32, [None], "raw")
    features = {"x": x, "z": z}
    return ours.estimator.export.ServingInputReceiver(features, {"x": x}, {"other": {"x": x, "z": z}, "raw": raw})

supervised = ours.estimator.experimental.build_raw_supervised_input_receiver_fn
with ours.Graph().as_default():
    given = supervised({"x": ours.ones([1, 2], name="x")}, ours.ones([1], name="labels"))
modes = {"train": given, "eval": given, "infer": serving}
path = model.experimental_export_all_saved_models(os.path.join(folder, "e"), modes, as_text=True).decode()
assert sorted(os.listdir(path)) == ["saved_model.pbtxt", "variables"]
x, labels = np.float32([[1, 2], [3, 4]]), np.float32([0, 1])
results = []
for tf in (ours, theirs):
    with tf.Graph().as_default(), tf.Session() as sess:
        meta = tf.saved_model.load(sess, ["serve"], path)
        calls = {k: (c.method_name, sorted(c.inputs), sorted(c.outputs)) for k, c in sorted(meta.signature_def.items())}
        call = meta.signature_def["serving_default"]
        got = sess.run({k: v.name for k, v in call.outputs.items()}, {call.inputs["x"].name: x})
        np.testing.assert_allclose(got["y"], x @ w, rtol=1e-6)
        np.testing.assert_allclose(got["double"], 2 * (x @ w), rtol=1e-6)
    kinds = []
    for tag in ("train", "eval"):
        with tf.Graph().as_default(), tf.Session() as sess:
            call = tf.saved_model.load(sess, [tag], path).signature_def[tag]
            feed = {call.inputs["x"].name: x, call.inputs["label"].name: labels}
            assert sorted(call.inputs) == ["label", "x"]
            kinds.append((call.method_name, sorted(call.outputs)))
            loss = sess.run(call.outputs["loss"].name, feed)
            np.testing.assert_allclose(loss, np.mean((x @ w - labels) ** 2), rtol=1e-6)
            if tag == "eval":
                sess.run(call.outputs["metrics/mean/update_op"].name, feed)
                np.testing.assert_allclose(sess.run(call.outputs["metrics/mean/value"].name), np.mean(x @ w), rtol=1e-6)
            else:
                (step,) = tf.get_collection("saved_model_train_op")
                for _ in range(3):
                    sess.run(step, feed)
                kinds.append(float(sess.run(call.outputs["loss"].name, feed)))
    results.append((calls, kinds))
np.testing.assert_allclose(results[0][1].pop(1), results[1][1].pop(1), rtol=1e-4)
assert results[0] == results[1], results
predict = "tensorflow/serving/predict"
assert results[0] == ({
    "first": (predict, ["x"], ["output"]), "serving_default": (predict, ["x"], ["double", "y"]),
    "other:first": (predict, ["x", "z"], ["output"]), "other:fed": (predict, ["x", "z"], ["output"]),
    "other:serving_default": (predict, ["x", "z"], ["double", "y"]),
}, [("tensorflow/supervised/training", ["loss", "predictions/y"]),
    ("tensorflow/supervised/eval", ["loss", "metrics/mean/update_op", "metrics/mean/value", "predictions/y"])]), results
# TensorFlow 2's loader of the same folder
found = tensorflow.saved_model.load(path, tags=["serve"]).signatures
assert sorted(found) == sorted(results[0][0]), sorted(found)
print("fine")
"""

SIGNATURES = """
from tensorflow.python.saved_model.model_utils import export_output, export_utils
from headrace.v1.estimator import exporting
from headrace.v1.estimator.export_outputs import EvalOutput, TrainOutput

def made(build):
    try:
        return build()
    except (ValueError, TypeError) as e:
        return type(e).__name__, str(e).split(":")[0].split(" got ")[0].split(";")[0]

def outcomes(tf, e, eval_output, train_output, signatures):
    x, s = tf.placeholder(tf.float32, [None], "x"), tf.placeholder(tf.string, [None], "s")
    apart = tf.placeholder(tf.float32, [None], "apart")
    y, names = tf.multiply(x, 2.0, name="y"), tf.as_string(x, name="names")
    number = tf.strings.to_number(s, name="number")
    with tf.variable_scope("m"):
        metric = (tf.identity(x, name="value"), tf.no_op("update"))
    out = {"bad": [
        made(lambda: e.PredictOutput({"a": 1})), made(lambda: e.PredictOutput({3: x})),
        made(lambda: e.PredictOutput(None)), made(lambda: e.RegressionOutput(s)),
        made(lambda: e.RegressionOutput(3.0)), made(lambda: e.ClassificationOutput()),
        made(lambda: e.ClassificationOutput(s)), made(lambda: e.ClassificationOutput(x, x)),
        made(lambda: eval_output(3)), made(lambda: eval_output(x, {"a": 3})),
        made(lambda: eval_output(x, x, {"a": (3, x)})), made(lambda: eval_output(x, x, {"a": (x, 3)})),
        made(lambda: eval_output(x, x, {3: (x, x)})),
    ]}
    outputs = {
        "p": e.PredictOutput(y), "q": e.PredictOutput({"a": y, ("b", "c"): names}), "far": e.PredictOutput(apart + y),
        "r": e.RegressionOutput(number), "c": e.ClassificationOutput(number, s), "d": e.ClassificationOutput(None, s),
        "t": train_output(y, x, (x, x)),
        "v": eval_output({"a": y, "loss_b": x}, {"predictions_z": y, "q": x}, {"m": metric}),
        None: e.PredictOutput(number),
    }
    both = {"alt": s, None: {"x": x, "apart": apart}}
    groups = [({"x": x}, None), ({"s": s}, None), (x, both), ({"s": s, "x": x}, None)]
    for i, (fed, others) in enumerate(groups):
        for is_served in (True, False):
            found = signatures(fed, outputs, others, is_served)
            out[i, is_served] = {k: v.SerializeToString(deterministic=True) for k, v in found.items()}
    return out

def mine(fed, outputs, others, is_served):
    receiver = ours.estimator.export.ServingInputReceiver(fed, fed, others)
    return exporting.signatures(receiver, outputs, "infer" if is_served else "eval")

with ours.Graph().as_default():
    a = outcomes(ours, ours.estimator.export, EvalOutput, TrainOutput, mine)
with theirs.Graph().as_default():
    kinds = export_output.EvalOutput, export_output.TrainOutput
    b = outcomes(theirs, export_output, *kinds, export_utils.build_all_signature_defs)
for key, value in b.items():
    assert a[key] == value, (key, a[key], value)
assert sum(map(len, b.values())) > 40
print("fine")
"""


def test_exported_canned_models_give_the_same_values(run_python: Callable[[str], bytes]) -> None:
    assert run_python(COMMON + VALUES) == b"fine\n"


def test_graphs_of_several_modes_load_train_and_evaluate(run_python: Callable[[str], bytes]) -> None:
    assert run_python(COMMON + MODES) == b"fine\n"


def test_signatures_and_errors_are_those_of_tensorflow(run_python: Callable[[str], bytes]) -> None:
    assert run_python(COMMON + SIGNATURES) == b"fine\n"
