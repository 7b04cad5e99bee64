"""Gradients of one's own: RegisterGradient with gradient_override_map, custom_gradient, py_func, reversal, stopping."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


@tf.RegisterGradient("GuidedReluOfModels")
def _guided_relu_grad(op, grad):
    gate_f, gate_r = tf.cast(op.outputs[0] > 0, "float32"), tf.cast(grad > 0, "float32")
    return gate_f * gate_r * grad


@tf.custom_gradient
def straight_through(x):
    def grad(dy):
        return tf.where(tf.abs(x) < 1, dy, tf.zeros_like(dy))

    return tf.sign(x), grad


@tf.custom_gradient
def log1pexp(x):
    e = tf.exp(x)
    return tf.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))


class FlipGradientBuilder:
    def __init__(self):
        self.num_calls = 0

    def __call__(self, x, scale=1.0):
        grad_name = f"FlipGradientOfModels{self.num_calls}"

        @tf.RegisterGradient(grad_name)
        def _flip_gradients(op, grad):
            return [tf.negative(grad) * scale]

        with tf.get_default_graph().gradient_override_map({"Identity": grad_name}):
            y = tf.identity(x)
        self.num_calls += 1
        return y


def py_func(func, inp, tout, name, grad):
    tf.RegisterGradient(name)(grad)
    with tf.get_default_graph().gradient_override_map({"PyFunc": name, "PyFuncStateless": name}):
        return tf.py_func(func, inp, tout, stateful=True, name=name)


x = tf.placeholder(tf.float32, [None, 3], name="x")
w = tf.constant([[1.0, -2.0], [0.5, 1.5], [-1.0, 0.25]])
with tf.get_default_graph().gradient_override_map({"Relu": "GuidedReluOfModels"}):
    guided = tf.nn.relu(tf.matmul(x, w))
plain = tf.nn.relu(tf.matmul(x, w))
weights = tf.constant([1.0, -3.0])
squared = py_func(lambda v: np.square(v), [x], tf.float32, "SquareOfModels", lambda op, g: g * 2 * op.inputs[0] + 0.5)
squared.set_shape(x.shape)
flip = FlipGradientBuilder()
cases = {
    "plain": plain * weights,
    "guided": guided * weights,
    "straight": straight_through(x) * [1.0, 2.0, 3.0],
    "log1pexp": log1pexp(x * 100.0),
    "flipped": flip(tf.square(x), 2.0),
    "py_func": squared,
    "stopped": x * tf.stop_gradient(tf.exp(x)),
    "both": flip(plain) + guided,
}
with tf.Session() as sess:
    feed = {x: [[0.5, -0.25, 2.0], [-1.5, 1.0, 0.1]]}
    for name, y in cases.items():
        value, (grad,) = sess.run([y, tf.gradients(y, x)], feed)
        print(name, np.round(np.clip(value, -99, 999), 4).tolist(), np.round(grad, 4).tolist())
