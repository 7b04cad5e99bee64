"""`tf.layers`: TensorFlow 1's names, scopes and collections.

tests/conformance/test_layers.py compares them with TensorFlow.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from headrace import layers as plain

X = np.random.default_rng(2).standard_normal((4, 6, 6, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def names(key: str = "variables") -> list[str]:
    return [v.name for v in tf.get_collection(key)]


def test_names_of_functions_and_objects() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.layers.dense(x, 4)
    y = tf.layers.dense(y, 4)
    layer = tf.layers.Dense(4, use_bias=False, name="dense")
    layer(layer(y))
    with tf.variable_scope("net"):
        y = tf.layers.dense(y, 2, name="out", activation=tf.nn.relu)
    assert names() == [
        "dense/kernel:0", "dense/bias:0", "dense_1/kernel:0", "dense_1/bias:0", "dense_2/kernel:0",
        "net/out/kernel:0", "net/out/bias:0",
    ]  # fmt: skip
    assert names("trainable_variables") == names()
    assert y.name == "net/out/Relu:0"
    assert y.get_shape().as_list() == [None, 2]
    assert layer.scope_name == "dense_2"
    assert layer.weights == layer.trainable_weights == layer.variables == [layer.kernel]
    assert layer.non_trainable_weights == []


def test_reuse() -> None:
    x = tf.ones([2, 3])
    a = tf.layers.dense(x, 3, name="a")
    b = tf.layers.dense(x, 3, name="a", reuse=True)
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        c = tf.layers.dense(x, 3, name="a")
    assert names() == ["a/kernel:0", "a/bias:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values = sess.run([a, b, c])
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[0], values[2])
    with pytest.raises(ValueError, match="Variable a/kernel already exists, disallowed"):
        tf.layers.dense(x, 3, name="a")
    with pytest.raises(ValueError, match="Variable b/kernel does not exist"):
        tf.layers.dense(x, 3, name="b", reuse=True)
    with pytest.raises(ValueError, match=r"share variable a/kernel, but specified shape \(3, 4\)"):
        tf.layers.dense(x, 4, name="a", reuse=True)
    with pytest.raises(ValueError, match="layer 'dense' has no scope before its first call"):
        tf.layers.Dense(1).scope_name
    shared = tf.layers.Dense(3, _scope="a", _reuse=True)
    shared(x)
    assert shared.variables == tf.global_variables()


def test_defaults_of_scopes() -> None:
    with tf.variable_scope("s", initializer=tf.ones_initializer(), regularizer=tf.reduce_sum):
        tf.layers.dense(tf.ones([1, 2]), 1, bias_regularizer=lambda v: tf.reduce_sum(v) + 5.0)
        tf.layers.dense(tf.ones([1, 2]), 1, trainable=False, kernel_initializer=tf.zeros_initializer, name="z")
    assert names("trainable_variables") == ["s/dense/kernel:0", "s/dense/bias:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        losses = sess.run(tf.losses.get_regularization_losses())
        assert [float(v) for v in losses] == [2.0, 0.0, 5.0, 0.0, 0.0]


def test_updates_and_losses_are_collected() -> None:
    x = tf.placeholder(tf.float32, [None, 6, 6, 3])
    training = tf.placeholder_with_default(False, [])
    y = tf.layers.conv2d(x, 2, 3, kernel_regularizer=lambda v: tf.reduce_sum(v * v))
    y = tf.layers.batch_normalization(y, training=training, momentum=0.5)
    z = tf.layers.dropout(y, 0.5, training=training)
    tf.layers.batch_normalization(z)  # not in training: nothing to update
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert names()[2:] == [
        f"batch_normalization{n}/{v}:0" for n in ("", "_1") for v in ("gamma", "beta", "moving_mean", "moving_variance")
    ]
    assert [u.name for u in updates] == [
        "batch_normalization/AssignMovingAvg", "batch_normalization/AssignMovingAvg_1",
    ]  # fmt: skip
    assert [t.name for t in tf.losses.get_regularization_losses()] == ["conv2d/kernel/Regularizer/Sum:0"]
    moving = tf.global_variables()[4]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(updates, {x: X})
        assert not sess.run(moving).any(), "nothing is noted where it is not trained"
        convolved = sess.run(y.graph.get_tensor_by_name("conv2d/BiasAdd:0"), {x: X})
        sess.run(updates, {x: X, training: True})
        np.testing.assert_allclose(sess.run(moving), convolved.mean((0, 1, 2)) / 2, rtol=1e-4, atol=1e-6)


def test_a_layer_of_ones_own() -> None:
    class Scale(tf.layers.Layer):
        def build(self, input_shape: Any) -> None:
            assert isinstance(input_shape, tf.TensorShape)
            self.factor = self.add_weight(
                "factor", [input_shape[-1].value], None, tf.ones_initializer(), lambda v: tf.reduce_sum(v), True
            )
            self.built = True

        def call(self, inputs: Any) -> Any:
            return inputs * self.factor

    layer = Scale(name="mine")
    y = layer.apply(layer(tf.ones([2, 3])), scope="nowhere")
    assert names() == ["mine/factor:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run([y, layer.losses])[1] == [3.0]
    assert isinstance(tf.layers.Dense(1), tf.layers.Layer)
    assert isinstance(tf.layers.Dense(1), plain.Dense)


def test_in_a_branch() -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.layers.dense(x, 3, name="d"), lambda: x)
    again = tf.layers.dense(x, 3, name="d", reuse=True)
    assert names() == ["d/kernel:0", "d/bias:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        a, b = sess.run([y, again], {x: np.ones((2, 3))})
    np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("dense", "inputs units activation use_bias kernel_initializer bias_initializer kernel_regularizer "
         "bias_regularizer activity_regularizer kernel_constraint bias_constraint trainable name reuse"),
        ("conv2d", "inputs filters kernel_size strides padding data_format dilation_rate activation use_bias "
         "kernel_initializer bias_initializer kernel_regularizer bias_regularizer activity_regularizer "
         "kernel_constraint bias_constraint trainable name reuse"),
        ("max_pooling2d", "inputs pool_size strides padding data_format name"),
        ("flatten", "inputs name data_format"),
        ("dropout", "inputs rate noise_shape seed training name"),
    ],
)  # fmt: skip
def test_arguments_are_tensorflows(function: str, arguments: str) -> None:
    assert list(inspect.signature(getattr(tf.layers, function)).parameters) == arguments.split()


def test_every_function_makes_its_layer() -> None:
    """Each function of an image gives the result of headrace's layer of the same weights."""
    for title, options in {
        "conv2d": {"filters": 2, "kernel_size": 3}, "separable_conv2d": {"filters": 2, "kernel_size": 2},
        "conv2d_transpose": {"filters": 2, "kernel_size": 3, "strides": 2}, "max_pooling2d": {"pool_size": 2},
        "average_pooling2d": {"pool_size": 2, "strides": 1}, "flatten": {}, "dense": {"units": 2}, "dropout": {},
        "batch_normalization": {},
    }.items():  # fmt: skip
        tf.reset_default_graph()
        y = getattr(tf.layers, title)(tf.constant(X), **options)
        (cls,) = [c for n in plain.__all__ if (c := getattr(plain, n)) and n.lower() == title.replace("_", "")]
        layer = cls(**options)
        layer(X)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            got, values = sess.run([y, {v.name: v for v in tf.global_variables()}])
        assert sorted(values) == sorted(v.name for v in layer.variables)
        for v in layer.variables:
            v.assign(values[v.name])
        np.testing.assert_allclose(got, layer(X).numpy(), rtol=1e-5, atol=1e-5)


def test_v1_layers_name_the_wrong_argument() -> None:
    x = tf.ones([2, 3])
    with pytest.raises(TypeError, match=r"dense\(\): got an unexpected keyword argument 'size'; its arguments are inp"):
        tf.layers.dense(x, 2, size=3)
    with pytest.raises(TypeError, match=r"dense\(\): missing a required argument: 'units'"):
        tf.layers.dense(x)
    with pytest.raises(tf.errors.UnimplementedError, match="renorm"):
        tf.layers.batch_normalization(x, renorm=True)


def test_a_layer_is_built_after_its_build_is_called() -> None:
    with tf.variable_scope("m"):
        cell, dense = tf.nn.rnn_cell.GRUCell(3), tf.layers.Dense(3)
        for layer in (cell, dense):
            layer.build([None, 4])
            assert layer.built
        names = [v.name for v in cell.variables + dense.variables]
        cell(tf.ones([2, 4]), cell.zero_state(2, tf.float32))
        dense(tf.ones([2, 4]))
    assert names == [
        "m/gru_cell/gates/kernel:0", "m/gru_cell/gates/bias:0", "m/gru_cell/candidate/kernel:0",
        "m/gru_cell/candidate/bias:0", "m/dense/kernel:0", "m/dense/bias:0",
    ]  # fmt: skip
    assert names == [v.name for v in tf.global_variables()]


def test_a_layer_whose_build_fails_is_not_built() -> None:
    layer = tf.layers.Dense(3)
    with pytest.raises(ValueError, match="size of axis 1"):
        layer.build([4, None])
    assert not layer.built
    layer.build([4, 2])
    assert [v.name for v in layer.variables] == ["dense/kernel:0", "dense/bias:0"]


def test_a_layer_is_built_after_the_build_of_its_own_class() -> None:
    class Scaled(tf.layers.Dense):
        def build(self, input_shape: Any) -> None:
            super().build(input_shape)
            assert not self.built
            self.scale = self.add_variable("scale", [])

    layer = Scaled(2)
    layer.build([None, 3])
    layer(tf.ones([1, 3]))
    assert layer.built
    assert [v.name for v in layer.variables] == ["scaled/kernel:0", "scaled/bias:0", "scaled/scale:0"]
