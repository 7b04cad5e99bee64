"""Runge-Kutta of a network in a `while_loop`, gradients through it and by the adjoint."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

steps, h = 12, 0.15
true_a = np.array([[-0.1, 1.5], [-1.5, -0.1]])
w1 = tf.get_variable("w1", [2, 10], tf.float64, initializer=tf.glorot_uniform_initializer(seed=1, dtype=tf.float64))
b1 = tf.get_variable("b1", initializer=np.zeros(10))
w2 = tf.get_variable("w2", [10, 2], tf.float64, initializer=tf.glorot_uniform_initializer(seed=2, dtype=tf.float64))
parameters = [w1, b1, w2]


def f(y, w1, b1, w2):
    return tf.matmul(tf.tanh(tf.matmul(y, w1) + b1), w2)


def rk4(f, y, *args):
    k1 = f(y, *args)
    k2 = f(y + h * k1 / 2, *args)
    k3 = f(y + h * k2 / 2, *args)
    k4 = f(y + h * k3, *args)
    return y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6


y0 = tf.placeholder(tf.float64, [None, 2])
wanted = tf.placeholder(tf.float64, [steps, None, 2])
ta = tf.TensorArray(tf.float64, size=steps, element_shape=[None, 2])
_, y_end, ta = tf.while_loop(
    lambda i, y, ta: tf.less(i, steps),
    lambda i, y, ta: (lambda new: (i + 1, new, ta.write(i, new)))(rk4(f, y, *parameters)),
    [tf.constant(0), y0, ta],
    parallel_iterations=1,
)
trajectory = ta.stack()
loss = tf.reduce_mean(tf.abs(trajectory - wanted))
train = tf.train.AdamOptimizer(0.03).minimize(loss)

# The gradient of the end through the loop and by the adjoint equation, solved backwards with the states of the forward
# pass.
end_loss = tf.reduce_sum(tf.square(y_end))
direct = tf.gradients(end_loss, [y0, *parameters])


def adjoint(i, a, totals):
    y = tf.cond(i > 0, lambda: trajectory[i - 1], lambda: y0)
    inside = [y, *map(tf.identity, parameters)]
    found = tf.gradients(rk4(f, *inside), inside, grad_ys=a)
    return i - 1, found[0], [t + g for t, g in zip(totals, found[1:])]


_, a0, totals = tf.while_loop(
    lambda i, *_: i >= 0, adjoint, [steps - 1, 2 * y_end, [tf.zeros_like(p) for p in parameters]]
)

rng = np.random.RandomState(23)
start = rng.normal(size=(8, 2))
points = [start]
for _ in range(steps):
    y = points[-1]
    points.append(y + h * (y @ true_a + 0.5 * h * y @ true_a @ true_a))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    feed = {y0: start, wanted: np.array(points[1:])}
    for i in range(20):
        _, value = sess.run([train, loss], feed)
        if i % 5 == 4:
            print(i + 1, "loss %.6f" % value)
    one, other = sess.run([direct, [a0, *totals]], feed)
    print("adjoint agrees", all(np.allclose(a, b) for a, b in zip(one, other)), np.round(one[2], 4)[:4])
