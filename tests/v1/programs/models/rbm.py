"""A restricted Boltzmann machine: contrastive divergence by Gibbs steps in a loop, without any optimizer."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

n_visible, n_hidden, rate = 12, 5, tf.constant(0.1)
X = tf.placeholder(tf.float32, [None, n_visible], name="X")
W = tf.get_variable("W", [n_visible, n_hidden], initializer=tf.random_normal_initializer(stddev=0.2, seed=1))
bh = tf.get_variable("bh", [1, n_hidden], initializer=tf.zeros_initializer())
bv = tf.get_variable("bv", [1, n_visible], initializer=tf.zeros_initializer())
noise_h, noise_v = (
    tf.placeholder(tf.float32, [None, None, n_hidden]),
    tf.placeholder(tf.float32, [None, None, n_visible]),
)


def sample(probs, noise):
    return tf.floor(probs + noise)


def gibbs_step(k, xk):
    hk = sample(tf.sigmoid(tf.matmul(xk, W) + bh), noise_h[k])
    return k + 1, sample(tf.sigmoid(tf.matmul(hk, tf.transpose(W)) + bv), noise_v[k])


_, x_sample = tf.while_loop(lambda k, _: k < tf.shape(noise_v)[0], gibbs_step, [tf.constant(0), X], back_prop=False)
h, h_sample = tf.sigmoid(tf.matmul(X, W) + bh), tf.sigmoid(tf.matmul(x_sample, W) + bh)
size = tf.cast(tf.shape(X)[0], tf.float32)
W_adder = tf.multiply(rate / size, tf.matmul(tf.transpose(X), h) - tf.matmul(tf.transpose(x_sample), h_sample))
bv_adder = tf.multiply(rate / size, tf.reduce_sum(X - x_sample, 0, True))
bh_adder = tf.multiply(rate / size, tf.reduce_sum(h - h_sample, 0, True))
with tf.control_dependencies([W_adder, bv_adder, bh_adder]):
    updates = tf.group(W.assign_add(W_adder), bv.assign_add(bv_adder), bh.assign_add(bh_adder))


def free_energy(v):
    return -tf.matmul(v, tf.transpose(bv)) - tf.reduce_sum(tf.nn.softplus(tf.matmul(v, W) + bh), 1, keep_dims=True)


def by_gradients():
    gap = tf.reduce_mean(free_energy(X)) - tf.reduce_mean(free_energy(tf.stop_gradient(x_sample)))
    return [-rate * g for g in tf.gradients(gap, [W, bv, bh])]


energy, same = tf.reduce_mean(free_energy(X)), by_gradients()
rng = np.random.RandomState(38)
data = (np.arange(n_visible) // 4 == rng.randint(3, size=(40, 1))).astype(np.float32)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for epoch in range(30):
        feed = {X: data, noise_h: rng.rand(2, 40, n_hidden), noise_v: rng.rand(2, 40, n_visible)}
        sess.run(updates, feed)
        if epoch % 10 == 9:
            print(epoch + 1, "energy %.4f weights %.4f" % (sess.run(energy, feed), sess.run(W).std()))
    print(all(np.allclose(a, b, atol=1e-5) for a, b in zip(*sess.run([same, [W_adder, bv_adder, bh_adder]], feed))))
