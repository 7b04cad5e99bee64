"""Programs with layers, losses and metrics, with headrace and with TensorFlow itself.

Names, shapes, collections and numbers are equal.

TensorFlow has its first version's layers in the package tf_keras; without it these tests are skipped. Variables are
given the same values in both, by the order of their names.
"""

from __future__ import annotations

import importlib.util
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = np.random.RandomState(3).randn(4, 8, 8, 3).astype(np.float32)

# Each is given `tf` and puts tensors into `out` (and their feeds into `feed`).
LAYERS = {
    "dense": """
x = tf.placeholder(tf.float32, [None, 8, 8, 3]); feed[x] = X
y = tf.layers.flatten(x)
y = tf.layers.dense(y, 5, tf.nn.relu, kernel_regularizer=lambda v: tf.reduce_sum(v * v))
out += [y, tf.layers.dense(x, 2, use_bias=False, activity_regularizer=lambda v: tf.reduce_sum(tf.abs(v)))]
""",
    "scopes": """
x = tf.ones([2, 3])
with tf.variable_scope("outer", initializer=tf.ones_initializer()):
    a = tf.layers.dense(x, 3, name="shared")
    b = tf.layers.dense(a, 3, name="shared", reuse=True)
    c = tf.layers.dense(b, 3)
with tf.variable_scope("outer", reuse=True):
    d = tf.layers.dense(c, 3, name="shared")
with tf.variable_scope("other", reuse=tf.AUTO_REUSE):
    e = tf.layers.dense(tf.layers.dense(d, 3, name="q"), 3, name="q")
layer = tf.layers.Dense(3)
f = layer(layer(e))
g = tf.layers.dense(tf.layers.dense(f, 3), 3, trainable=False)
out += [a, b, c, d, e, f, g]
""",
    "images": """
x = tf.placeholder(tf.float32, [None, 8, 8, 3]); feed[x] = X
y = tf.layers.conv2d(x, 4, 3, activation=tf.nn.relu, padding="same")
z = tf.layers.conv2d(y, 4, (3, 2), strides=(2, 1), name="c", bias_initializer=tf.ones_initializer())
out += [y, z, tf.layers.conv2d(x, 2, 3, dilation_rate=2, padding="SAME", use_bias=False)]
out += [tf.layers.separable_conv2d(y, 5, 3, depth_multiplier=2), tf.layers.separable_conv2d(y, 5, 3, 2, "same")]
out += [tf.layers.conv2d_transpose(y, 3, 3, 2), tf.layers.conv2d_transpose(y, 3, 3, 2, padding="same")]
out += [tf.layers.conv2d_transpose(z, 2, (2, 3), (3, 1), name="t")]
""",
    "sequences_and_volumes": """
x = tf.placeholder(tf.float32, [4, 8, 8, 3]); feed[x] = X
s = tf.reshape(x, [4, 64, 3])
v = tf.reshape(x, [4, 4, 4, 4, 3])
out += [tf.layers.conv1d(s, 5, 3, 2), tf.layers.separable_conv1d(s, 5, 3, padding="same")]
out += [tf.layers.conv3d(v, 2, 2, activation=tf.nn.tanh), tf.layers.conv3d_transpose(v, 2, 2, 2)]
out += [tf.layers.max_pooling1d(s, 3, 2), tf.layers.average_pooling1d(s, 3, 2, "same")]
out += [tf.layers.max_pooling3d(v, 2, 2), tf.layers.average_pooling3d(v, 2, 1)]
out += [tf.layers.max_pooling2d(x, 3, 2), tf.layers.average_pooling2d(x, (2, 3), (2, 1), "same")]
""",
    "batch_normalization": """
x = tf.placeholder(tf.float32, [None, 8, 8, 3]); feed[x] = X
training = tf.placeholder(tf.bool, []); feed[training] = True
other = tf.placeholder(tf.bool, []); feed[other] = False
out.append(tf.layers.batch_normalization(x, training=True))
out.append(tf.layers.batch_normalization(x, training=False, momentum=0.5))
out.append(tf.layers.batch_normalization(x, training=training, momentum=0.9))
out.append(tf.layers.batch_normalization(x, training=other, momentum=0.9, epsilon=0.1))
out.append(tf.layers.batch_normalization(x, training=True, fused=False, axis=1))
out.append(tf.layers.batch_normalization(x[:, 0, 0], training=training, center=False))
out.append(tf.layers.batch_normalization(x[:, 0], training=other, scale=False, name="bn"))
out += tf.gradients(sum(tf.reduce_sum(o * o * o) for o in out), tf.trainable_variables())
""",
    "dropout": """
x = tf.placeholder(tf.float32, [None, 8, 8, 3]); feed[x] = X
training = tf.placeholder(tf.bool, []); feed[training] = False
out += [tf.layers.dropout(x), tf.layers.dropout(x, 0.3, training=training)]
kept = tf.equal(tf.layers.dropout(tf.ones([100, 100]), 1e-9, training=True), 1.0)
out.append(tf.reduce_all(kept))
""",
    "own_layer": """
class Scale(tf.layers.Layer):
    def build(self, input_shape):
        self.factor = self.add_weight("factor", [input_shape[-1].value], initializer=tf.ones_initializer(),
                                      regularizer=lambda v: tf.reduce_sum(v))
        self.built = True
    def call(self, inputs):
        return inputs * self.factor + tf.get_variable("inner", [3])
x = tf.constant([[1.0, 2.0, 3.0]])
layer = Scale(name="s")
out += [layer(x), layer(x), Scale()(x), Scale()(x)]
""",
}  # fmt: skip

_GIVEN = """
labels = tf.placeholder(tf.float32, [4, 3]); feed[labels] = np.abs(X[:, 0, 0]) / 5
guess = tf.placeholder(tf.float32, [None, 3]); feed[guess] = np.abs(X[:, 0, 1]) / 5
weights = tf.constant([[0.0], [1.0], [2.0], [0.5]])
"""
LOSSES = {
    name: _GIVEN + f"""
f = tf.losses.{name}
out += [f(labels, guess{more}), f(labels, guess{more}, weights=weights), f(labels, guess{more}, weights=0.0)]
out += [f(labels, guess{more}, weights=weights[:1], scope="here")]
out += [f(labels, guess{more}, weights=2.0, reduction=r) for r in tf.losses.Reduction.all()]
out += [f(labels, guess{more}, weights=weights, reduction=r) for r in tf.losses.Reduction.all()]
out.append(f(labels, guess{more}, loss_collection=None))
out.append(tf.losses.get_total_loss(scope="here"))
"""
    for name, more in {
        "absolute_difference": "", "mean_squared_error": "", "hinge_loss": "", "huber_loss": "", "log_loss": "",
        "cosine_distance": ", axis=1", "sigmoid_cross_entropy": "",
    }.items()
}  # fmt: skip
LOSSES |= {
    "classes": _GIVEN + """
onehot = tf.one_hot([0, 2, 1, 1], 3)
out += [tf.losses.softmax_cross_entropy(onehot, guess), tf.losses.softmax_cross_entropy(onehot, guess, [1.0, 0, 0, 2])]
out += [tf.losses.softmax_cross_entropy(onehot, guess, label_smoothing=0.2)]
out += [tf.losses.sigmoid_cross_entropy(onehot, guess, label_smoothing=0.2)]
out += [tf.losses.sparse_softmax_cross_entropy([0, 2, 1, 1], guess)]
out += [tf.losses.sparse_softmax_cross_entropy([[0], [2], [1], [1]], guess, weights)]
out += [tf.losses.huber_loss(labels, guess, delta=0.1), tf.losses.log_loss(labels, guess, epsilon=0.1)]
out.append(tf.losses.get_total_loss())
""",
    "pairs": _GIVEN + """
out += [tf.losses.mean_pairwise_squared_error(labels, guess, w) for w in (1.0, weights, 0.0)]
out.append(tf.losses.get_regularization_loss())
out += tf.gradients(tf.losses.get_total_loss(), [guess])
""",
}  # fmt: skip

METRICS = {
    "means": """
x = tf.placeholder(tf.float32, [None, 3]); steps[x] = [X[:, 0, i] for i in range(4)]
w = [[1.0], [0.0], [2.0], [0.5]]
measures += [tf.metrics.mean(x), tf.metrics.mean(x, w), tf.metrics.mean(x, 2.0, name="m"), tf.metrics.mean(x, w)]
measures += [tf.metrics.mean_squared_error(x, x * x), tf.metrics.mean_absolute_error(x, x * x, w)]
measures += [tf.metrics.root_mean_squared_error(x, x * 2.0), tf.metrics.percentage_below(x, 0.3)]
x = tf.ensure_shape(x, [4, 3])
measures += [tf.metrics.mean_tensor(x), tf.metrics.mean_tensor(x, w, name="t"), tf.metrics.mean_tensor(x, 2.0)]
measures += [tf.metrics.mean_relative_error(x, x * x, tf.nn.relu(x)), tf.metrics.mean_cosine_distance(x, x * x, 1)]
""",
    "counts": """
x = tf.placeholder(tf.float32, [4, 3]); steps[x] = [X[:, 0, i] for i in range(4)]
w = [[1.0], [0.0], [2.0], [0.5]]
y, z = x > 0.0, x * x > 0.4
for f in (tf.metrics.true_positives, tf.metrics.false_positives, tf.metrics.true_negatives,
          tf.metrics.false_negatives, tf.metrics.precision, tf.metrics.recall, tf.metrics.accuracy):
    measures += [f(y, z), f(y, z, w)]
classes = tf.argmax(x, 1)
measures += [tf.metrics.accuracy(classes[:, None], tf.argmin(x, 1), metrics_collections=["a"])]
measures += [tf.metrics.mean_per_class_accuracy(classes, tf.argmax(x * x, 1), 3)]
measures.append(tf.metrics.mean_iou(classes, tf.argmax(x * x, 1), 4))
measures.append(tf.metrics.mean_iou(classes, classes, 3, tf.constant([1.0, 0.0, 2.0, 1.0])))
""",
    "auc": """
x = tf.placeholder(tf.float32, [4, 3]); steps[x] = [X[:, 0, i] for i in range(4)]
w = [[1.0], [0.0], [2.0], [0.5]]
p = tf.sigmoid(x * 3.0)
for more in ({}, {"curve": "PR", "summation_method": "minoring"}, {"num_thresholds": 7, "weights": 2.0},
             {"thresholds": [0.3, 0.7]}, {"summation_method": "majoring"}):
    measures.append(tf.metrics.auc(x * x > 0.4, p, **more))
for name in ("true_positives", "false_positives", "true_negatives", "false_negatives", "precision", "recall"):
    measures.append(getattr(tf.metrics, name + "_at_thresholds")(x * x > 0.4, p, [0.2, 0.5, 0.9], weights=w))
""",
    "rates": """
x = tf.placeholder(tf.float32, [4, 3]); steps[x] = [X[:, 0, i] for i in range(4)]
w = [[1.0], [0.0], [2.0], [0.5]]
p = tf.sigmoid(x * 3.0)
for f in (tf.metrics.sensitivity_at_specificity, tf.metrics.specificity_at_sensitivity):
    for y in (x * x > 0.4, x > 0.3, x < 0.1, x > 9.0):
        measures += [f(y, p, r) for r in (0.0, 0.25, 0.7, 1.0)]
    measures += [f(x * x > 0.4, p, 0.6, w, 9, ["m"], ["u"])]
    measures += [f(x * x > 0.4, tf.round(p), 0.5, num_thresholds=2, name="r")]
for more in ({}, {"num_thresholds": 7}, {"thresholds": [0.3, 0.7]}):
    measures += [tf.metrics.auc(y, p, v, curve="PR", summation_method="careful_interpolation", **more)
                 for y in (x * x > 0.4, x > 0.3, x > 9.0) for v in (None, w)]
""",
    "at_k": """
x = tf.placeholder(tf.float32, [None, 5])
steps[x] = [np.concatenate([X[:, 0, i], X[:, 1, i, :2]], 1) for i in range(4)]
y = tf.placeholder(tf.int64, [None, 2])
steps[y] = [[[0, 1], [2, 2], [-1, 3], [4, 0]], [[1, 1], [7, 2], [3, 0], [0, 0]], [[0, 4]] * 4, [[2, 3]] * 4]
one = tf.placeholder(tf.int64, None)
steps[one] = [[0, 1, 2, 3], [4, 4, 1, -1], [0] * 4, [9, 2, 2, 2]]
z = tf.SparseTensor(tf.placeholder(tf.int64, [None, 2]), tf.placeholder(tf.int64, [None]), [4, 4])
steps[z.indices] = [[[0, 0], [0, 1], [1, 0], [3, 0]], [[0, 0], [1, 0], [2, 0], [3, 0], [3, 3]]]
steps[z.indices] += [[[i, 0] for i in range(4)], [[i, i] for i in range(4)]]
steps[z.values] = [[0, 1, 1, 4], [2, 3, 3, 0, 4], [0, 1, 2, 3], [4, 4, 9, -1]]
w = tf.placeholder(tf.float32, None); steps[w] = [[1.0, 0, 2, 3], [0.5] * 4, 2.0, [1.0]]
for labels in (y, z, one):
    for f in (tf.metrics.recall_at_k, tf.metrics.precision_at_k, tf.metrics.sparse_precision_at_k):
        measures += [f(labels, x, 2), f(labels, x, 3, weights=w), f(labels, x, 1, class_id=2)]
        measures += [f(labels, x, 3, 0, name="mine"), f(labels, x, 2, 1, w, ["m"], ["u"])]
    for f in (tf.metrics.average_precision_at_k, tf.metrics.sparse_average_precision_at_k):
        measures += [f(labels, x, 1), f(labels, x, 3, w), f(labels, x, 2, 2.0, ["m"], ["u"], "ap")]
    best = tf.math.top_k(x, 3)[1]
    for f in (tf.metrics.recall_at_top_k, tf.metrics.precision_at_top_k):
        measures += [f(labels, best), f(labels, best, class_id=3), f(labels, best, 3, 4, [2.0], name="top")]
with tf.variable_scope("outer"), tf.name_scope("inner"):
    measures += [tf.metrics.recall_at_k(y, x, 2), tf.metrics.average_precision_at_k(y, x, 2)]
    measures += [tf.metrics.sensitivity_at_specificity(x > 0.0, tf.sigmoid(x), 0.5)]
""",
}  # fmt: skip

PROGRAMS = LAYERS | LOSSES | METRICS

RUNNER = """
import logging, pickle, sys, warnings
import numpy as np


def run(tf, programs, X):
    results = {}
    for name, text in programs.items():
        with tf.Graph().as_default() as graph:
            out, feed, measures, steps = [], {}, [], {}
            exec(text, {"tf": tf, "np": np, "X": X, "out": out, "feed": feed, "measures": measures, "steps": steps})
            found = {}
            for key in sorted(graph.get_all_collection_keys()):
                if key != "cond_context" and graph.get_collection(key):
                    things = [t for t in graph.get_collection(key) if hasattr(t, "get_shape")]
                    found[key] = [(t.name if "varia" in key else "", str(t.get_shape().as_list())) for t in things]
                    found[key].append(len(graph.get_collection(key)))
            found["shapes"] = [str(t.get_shape().as_list()) for t in out]
            with tf.Session() as session:
                session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
                random = np.random.RandomState(0)
                for v in sorted(tf.global_variables(), key=lambda v: v.name):
                    v.load(random.uniform(0.2, 1.0, v.get_shape().as_list()).astype(v.dtype.base_dtype.name), session)
                values = session.run(out, feed)
                for i in range(len(next(iter(steps.values()), []))):
                    values += session.run([update for _, update in measures], {x: v[i] for x, v in steps.items()})
                values += session.run([value for value, _ in measures])
                for _ in range(3):
                    session.run(tf.get_collection(tf.GraphKeys.UPDATE_OPS), feed)
                values += session.run(tf.global_variables())
                values += session.run(tf.losses.get_losses() + tf.losses.get_regularization_losses(), feed)
            results[name] = found, [np.asarray(v) for v in values]
    return results
"""

TENSORFLOW = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
{runner}
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
programs, x = pickle.load(open({given!r}, "rb"))
pickle.dump(run(tf, programs, x), open({made!r}, "wb"))
"""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tensorflow_does_the_same(
    name: str, run_python: Callable[[str], bytes], recorded: dict[str, Any], tmp_path: Path
) -> None:
    if importlib.util.find_spec("tf_keras") is None:
        pytest.skip("tf_keras is not installed (pip install -e '.[conformance]')")
    if not recorded:
        recorded["begun"] = True
        given, made = tmp_path / "given", tmp_path / "made"
        given.write_bytes(pickle.dumps((PROGRAMS, X)))
        run_python(TENSORFLOW.format(runner=RUNNER, given=str(given), made=str(made)))
        recorded.update(pickle.loads(made.read_bytes()))
    if name not in recorded:
        pytest.fail("TensorFlow did not run the programs: see the first of these tests")
    import headrace.v1 as tf

    scope: dict[str, Any] = {}
    exec(RUNNER, scope)
    found, values = scope["run"](tf, {name: PROGRAMS[name]}, X)[name]
    expected, numbers = recorded[name]
    assert found == expected
    assert len(values) == len(numbers)
    for got, want in zip(values, numbers, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * max(1.0, float(np.max(np.abs(want), initial=0))))
