"""Gradients: of loops and conditionals, of variables and gathered rows, custom ones, second derivatives."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.disable_control_flow_v2()

x = tf.placeholder(tf.float32, [], name="x")

# x^5 by a loop, and what TensorFlow 1 calls its gradient
_, power = tf.while_loop(lambda i, p: i < 5, lambda i, p: (i + 1, p * x), [tf.constant(0), tf.constant(1.0)])
(d_power,) = tf.gradients(power, x)

# a conditional in a loop
_, zigzag = tf.while_loop(
    lambda i, a: i < 4,
    lambda i, a: (i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * x, lambda: tf.sin(a) + x)),
    [tf.constant(0), x],
)
(d_zigzag,) = tf.gradients([zigzag], [x])

# xs on the way to others; tensors in stop_gradients; tensors that do not depend on x at all
a = x * 2.0
b = a + x * 3.0
through = tf.gradients(a + b, [x, a, b])
partial = tf.gradients(a + b, [a, b], stop_gradients=[a, b])
other = tf.placeholder_with_default([1.0, 2.0], [2])
print(tf.gradients(x, [other]), tf.gradients(x, tf.placeholder(tf.int32, [])))
zeros = tf.gradients(x, [other], unconnected_gradients=tf.UnconnectedGradients.ZERO)
weighted = tf.gradients([x * x, x * 4.0], x, [10.0, 100.0])

# variables, and rows that are gathered from them
v = tf.get_variable("v", initializer=np.float32([[1, 2], [3, 4], [5, 6]]), use_resource=True)
rows = tf.gather(v, [2, 0, 2])
(d_rows,) = tf.gradients(tf.reduce_sum(rows * rows), v)
print(isinstance(d_rows, tf.IndexedSlices))
d_rows = tf.convert_to_tensor(d_rows)

# second derivatives
point = tf.placeholder(tf.float32, [3])
(hessian,) = tf.hessians(tf.reduce_sum(point * point * point) + point[0] * point[1], [point])
print(hessian.get_shape())


# gradients of one's own
@tf.custom_gradient
def clipped(z):
    def back(dz):
        return tf.clip_by_value(dz, -1.0, 1.0)

    return tf.identity(z), back


@tf.RegisterGradient("programs.StraightThrough")
def straight_through(op, dy):
    return dy * tf.cast(tf.shape(op.inputs)[0], tf.float32)


with tf.get_default_graph().gradient_override_map({"Round": "programs.StraightThrough"}):
    rounded = tf.round(x)
own = [tf.gradients(clipped(x) * 100.0, x)[0], tf.gradients(rounded, x)[0], tf.gradients(tf.stop_gradient(x) * x, x)[0]]
passed = tf.gradients(tf.grad_pass_through(tf.sign)(x) * 3.0, x)

# errors
for attempt in (
    lambda: tf.gradients(tf.complex(x, x), x),
    lambda: tf.gradients(x, x, [x, x]),
    lambda: tf.gradients(x, x, unconnected_gradients="nothing"),
):
    try:
        attempt()
    except (TypeError, ValueError) as e:
        print(type(e) is TypeError or "ValueError")

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for value in (0.5, 2.0):
        print([round(float(t), 3) for t in sess.run([power, d_power, zigzag, d_zigzag], {x: value})])
        print(sess.run([through, partial, weighted, own, passed], {x: value}))
    print(sess.run(zeros, {x: 1.0}))
    print(sess.run(d_rows))
    print(sess.run(hessian, {point: [1.0, 2.0, 3.0]}))
    print(tf.test.compute_gradient_error(x, [], power, [], np.float32(0.5)) < 1e-3)
    jacobians = tf.test.compute_gradient(point, [3], point * point, [3], np.float32([1, 2, 3]), delta=0.0078125)
    print(jacobians[0], np.abs(jacobians[0] - jacobians[1]).max() < 1e-3)
    at = [np.float32(2), np.float32([3, 4])]
    print(tf.test.compute_gradient([x, other], [[], [2]], x * other, [2], at, 0.125, None, {x: 2.0}))
