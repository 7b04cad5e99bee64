"""`tf.contrib.layers`: variables as in TensorFlow 1.15, values by the formulas of papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.contrib.running import drawn, names, run, softmax

layers = tf.contrib.layers
X = np.random.default_rng(2).standard_normal((4, 6, 6, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def test_variables_are_those_of_tensorflow() -> None:
    y = layers.conv2d(tf.constant(X), 8, [3, 3], normalizer_fn=layers.batch_norm, scope="conv1")
    y = layers.conv2d(y, 4, 1)
    y = layers.separable_conv2d(y, 5, 3, depth_multiplier=2)
    y = layers.separable_conv2d(y, None, 3, scope="deep")
    y = layers.conv2d_transpose(y, 3, 2, stride=2)
    y = layers.fully_connected(layers.flatten(y), 7, normalizer_fn=layers.layer_norm)
    y = layers.fully_connected(y, 2, biases_initializer=None, scope="out")
    layers.batch_norm(y, scale=True)
    layers.bias_add(y)
    assert names() == {
        "conv1/weights": [3, 3, 6, 8],
        "conv1/BatchNorm/beta": [8],
        "conv1/BatchNorm/moving_mean": [8],
        "conv1/BatchNorm/moving_variance": [8],
        "Conv/weights": [1, 1, 8, 4],
        "Conv/biases": [4],
        "SeparableConv2d/depthwise_weights": [3, 3, 4, 2],
        "SeparableConv2d/pointwise_weights": [1, 1, 8, 5],
        "SeparableConv2d/biases": [5],
        "deep/depthwise_weights": [3, 3, 5, 1],
        "deep/biases": [5],
        "Conv2d_transpose/weights": [2, 2, 3, 5],
        "Conv2d_transpose/biases": [3],
        "fully_connected/weights": [432, 7],
        "fully_connected/LayerNorm/beta": [7],
        "fully_connected/LayerNorm/gamma": [7],
        "out/weights": [7, 2],
        "BatchNorm/gamma": [2],
        "BatchNorm/beta": [2],
        "BatchNorm/moving_mean": [2],
        "BatchNorm/moving_variance": [2],
        "BiasAdd/biases": [2],
    }
    assert names("model_variables") == names()
    assert "BatchNorm/moving_mean" not in names("trainable_variables")


def test_values_are_those_of_the_operations() -> None:
    """The default activation is a ReLU."""
    x = tf.constant(X)
    made = [
        layers.conv2d(x, 3, 3, stride=2, scope="a"),
        layers.conv2d_transpose(x, 3, 3, stride=2, activation_fn=None, scope="b"),
        layers.separable_conv2d(x, 3, 3, activation_fn=tf.tanh, scope="c"),
        layers.separable_conv2d(x, None, 3, rate=2, scope="d"),
        layers.fully_connected(x, 3, scope="e"),
        layers.max_pool2d(x, 2),
        layers.avg_pool2d(x, [3, 2], stride=1, padding="SAME"),
        layers.maxout(x, 2),
        layers.unit_norm(x, 3),
    ]
    v = {v.op.name: v for v in tf.global_variables()}
    ones = [1, 2, 2, 1]
    wanted = [
        tf.nn.relu(tf.nn.conv2d(x, v["a/weights"], ones, "SAME") + v["a/biases"]),
        tf.nn.conv2d_transpose(x, v["b/weights"], [4, 12, 12, 3], ones, "SAME") + v["b/biases"],
        tf.tanh(
            tf.nn.separable_conv2d(x, v["c/depthwise_weights"], v["c/pointwise_weights"], [1, 1, 1, 1], "SAME")
            + v["c/biases"]
        ),
        tf.nn.relu(
            tf.nn.depthwise_conv2d(x, v["d/depthwise_weights"], [1, 1, 1, 1], "SAME", rate=[2, 2]) + v["d/biases"]
        ),
        tf.nn.relu(tf.tensordot(x, v["e/weights"], 1) + v["e/biases"]),
        tf.nn.max_pool(x, ones, ones, "VALID"),
        tf.nn.avg_pool(x, [1, 3, 2, 1], [1, 1, 1, 1], "SAME"),
        tf.reduce_max(tf.reshape(x, [4, 6, 6, 2, 3]), 4),
        x / tf.norm(x, axis=3, keepdims=True),
    ]
    for got, want in zip(*run([made, wanted], values=drawn()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def normal(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    found: np.ndarray = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    return found


def test_normalizations_follow_their_papers() -> None:
    x = tf.constant(X)
    made = [
        layers.layer_norm(x, scope="a"),
        layers.layer_norm(x, begin_norm_axis=3, scope="b"),
        layers.instance_norm(x, scope="c"),
        layers.group_norm(x, 3, scope="d"),
        layers.group_norm(x, 2, channels_axis=1, reduction_axes=[2, 3], scope="e"),
    ]
    v = drawn()
    grouped = normal(X.reshape(4, 6, 6, 3, 2), (1, 2, 4), 1e-6).reshape(X.shape)
    first = normal(X.reshape(4, 2, 3, 6, 6), (2, 3, 4), 1e-6).reshape(X.shape)
    column = (6, 1, 1)
    wanted = [
        normal(X, (1, 2, 3), 1e-12) * v["a/gamma"] + v["a/beta"],
        normal(X, (3,), 1e-12) * v["b/gamma"] + v["b/beta"],
        normal(X, (1, 2), 1e-6) * v["c/gamma"] + v["c/beta"],
        grouped * v["d/gamma"] + v["d/beta"],
        first * v["e/gamma"].reshape(column) + v["e/beta"].reshape(column),
    ]
    for got, want in zip(run(made, values=v), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="is not commensurate with 4 groups"):
        layers.group_norm(x, 4)
    with pytest.raises(ValueError, match="must be < rank"):
        layers.layer_norm(x, begin_norm_axis=4)


def test_batch_normalization() -> None:
    training = tf.placeholder(tf.bool, [])
    y = layers.batch_norm(tf.constant(X[:, 0, 0]), decay=0.5, is_training=training, scale=True)
    now = layers.batch_norm(tf.constant(X[:, 0, 0]), decay=0.5, updates_collections=None, scope="now")
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    x = X[:, 0, 0]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        np.testing.assert_allclose(sess.run(y, {training: True}), normal(x, (0,), 1e-3), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sess.run(y, {training: False}), x / np.sqrt(1 + 1e-3), rtol=1e-4, atol=1e-5)
        mean = tf.contrib.framework.get_variables("BatchNorm/moving_mean")[0]
        sess.run(updates, {training: True})
        np.testing.assert_allclose(sess.run(mean), x.mean(0) / 2, rtol=1e-4, atol=1e-6)
        sess.run(now)
        inner = tf.contrib.framework.get_variables("now/moving_mean")[0]
        np.testing.assert_allclose(sess.run(inner), x.mean(0) / 2, rtol=1e-4, atol=1e-6)
    with pytest.raises(tf.errors.UnimplementedError, match="renorm=True"):
        layers.batch_norm(y, renorm=True)


def test_scopes_of_arguments_repeat_and_stack() -> None:
    framework = tf.contrib.framework
    with framework.arg_scope([layers.conv2d, layers.fully_connected], outputs_collections="ends") as scope:
        y = layers.repeat(tf.constant(X), 2, layers.conv2d, 3, [3, 3], scope="conv1")
        y = layers.stack(layers.flatten(y), layers.fully_connected, [5, 4], scope="fc")
    with framework.arg_scope(scope), framework.arg_scope([layers.fully_connected], activation_fn=None):
        y = layers.linear(y, 2, scope="out")
        assert y.op.type == "BiasAdd"
    ends = layers.utils.convert_collection_to_dict("ends")
    assert list(ends) == ["conv1/conv1_1", "conv1/conv1_2", "fc/fc_1", "fc/fc_2", "out"]
    assert ends["out"] is y
    assert framework.current_arg_scope() == {}
    with pytest.raises(ValueError, match="is not decorated with @add_arg_scope"), framework.arg_scope([len], x=1):
        pass
    assert "activation_fn" in framework.arg_scoped_arguments(layers.conv2d)


def test_reuse() -> None:
    x = tf.constant(X[:, 0, 0])
    with tf.variable_scope("s") as scope:
        a = layers.fully_connected(x, 3, scope="fc")
        scope.reuse_variables()
        b = layers.fully_connected(x, 3, scope="fc")
    c = layers.fully_connected(x, 3, scope="s/fc", reuse=True)
    assert len(names()) == 2
    got = run([a, b, c])
    assert np.array_equal(got[0], got[1])
    assert np.array_equal(got[0], got[2])


def test_initializers_and_regularizers() -> None:
    limit = np.sqrt(6 / (9 * 4 + 9 * 50))
    made = run(
        [
            layers.xavier_initializer()([3, 3, 4, 50]),
            layers.xavier_initializer(uniform=False)([200, 100]),
            layers.variance_scaling_initializer()([200, 100]),
            layers.variance_scaling_initializer(mode="FAN_OUT", uniform=True)([200, 100]),
        ]
    )
    assert limit * 0.98 < np.abs(made[0]).max() <= limit
    assert 0.9 < made[1].std() / np.sqrt(2 / 300) < 1.1
    assert 0.9 < made[2].std() / np.sqrt(2 / 200) < 1.1
    assert np.abs(made[3]).max() <= np.sqrt(3 * 2 / 100)
    w = tf.constant([1.0, -3.0])
    both = layers.l1_l2_regularizer(0.5, 0.25)
    total = layers.apply_regularization(both, [w, w])
    assert run([layers.l1_regularizer(0.5)(w), both(w), total]) == [2.0, 3.25, 6.5]
    assert tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES) == [total]
    assert layers.l2_regularizer(0.0)(w) is None
    with pytest.raises(ValueError, match="scale cannot be an integer"):
        layers.l2_regularizer(1)
    layers.fully_connected(tf.ones([1, 2]), 1, weights_regularizer=layers.l2_regularizer(1.0), scope="r")
    assert len(tf.losses.get_regularization_losses()) == 2


def test_small_layers() -> None:
    x = tf.constant(X)
    ids = tf.constant([[0, 2], [1, 1]])
    hot = layers.one_hot_encoding([2, 0], 3, on_value=5.0)
    embedded = layers.embed_sequence(ids, 3, 4)
    places = layers.spatial_softmax(x)
    dropped = [layers.dropout(x, 0.5, is_training=flag, seed=1) for flag in (True, False)]
    v = drawn()
    got = run([hot, embedded, places, dropped], values=v)
    assert got[0].tolist() == [[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]
    np.testing.assert_array_equal(got[1], v["EmbedSequence/embeddings"][[[0, 2], [1, 1]]])
    weights = softmax(X.transpose(0, 3, 1, 2).reshape(4, 6, 36) / v["spatial_softmax/temperature"])
    ys, xs = np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 6), indexing="ij")
    wanted = np.stack([(weights * xs.ravel()).sum(-1), (weights * ys.ravel()).sum(-1)], -1).reshape(4, 12)
    np.testing.assert_allclose(got[2], wanted, rtol=1e-4, atol=1e-5)
    assert 0.4 < (got[3][0] == 0).mean() < 0.6
    np.testing.assert_array_equal(got[3][1], X)


@pytest.mark.parametrize(
    "optimizer", ["SGD", "Adam", tf.train.AdagradOptimizer, tf.train.GradientDescentOptimizer(0.1)]
)
def test_optimize_loss(optimizer: Any) -> None:
    w = tf.get_variable("w", initializer=[3.0, 4.0])
    step = tf.train.create_global_step()
    rate = None if isinstance(optimizer, tf.train.Optimizer) else 0.1
    train = layers.optimize_loss(tf.reduce_sum(w * w), step, rate, optimizer, clip_gradients=1.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        losses = [sess.run(train) for _ in range(4)]
        assert losses[0] == 25.0
        assert np.all(np.diff(losses) < 0)
        assert sess.run(step) == 4
    if rate is not None:
        assert "OptimizeLoss/learning_rate" in names()
    with pytest.raises(ValueError, match="Optimizer name should be one of"):
        layers.optimize_loss(w[0], step, 0.1, "Best")


def test_a_bound_of_gradients_is_that_of_all_together() -> None:
    w = tf.get_variable("w", initializer=[3.0, 4.0])
    train = layers.optimize_loss(
        tf.reduce_sum(w * w), None, 1.0, "SGD", clip_gradients=5.0, gradient_multipliers={"w:0": 2}
    )
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train)
        np.testing.assert_allclose(sess.run(w), [0.0, 0.0], atol=1e-6)
