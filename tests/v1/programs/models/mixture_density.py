"""A mixture density network with L2 in a collection, and `tf.distributions` for its samples."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

KMIX = 4
rng = np.random.RandomState(36)
t = rng.uniform(-2, 2, size=(80, 1))
x_data = (t + 0.6 * np.sin(3 * t) + rng.normal(scale=0.1, size=t.shape)).astype(np.float32)
y_data = t.astype(np.float32)

x = tf.placeholder(dtype=tf.float32, shape=[None, 1], name="x")
y = tf.placeholder(dtype=tf.float32, shape=[None, 1], name="y")
Wh = tf.Variable(tf.random_normal([1, 12], stddev=0.5, dtype=tf.float32, seed=1))
bh = tf.Variable(tf.random_normal([1, 12], stddev=0.5, dtype=tf.float32, seed=2))
Wo = tf.Variable(tf.random_normal([12, KMIX * 3], stddev=0.5, dtype=tf.float32, seed=3))
bo = tf.Variable(tf.random_normal([1, KMIX * 3], stddev=0.5, dtype=tf.float32, seed=4))
output = tf.matmul(tf.nn.tanh(tf.matmul(x, Wh) + bh), Wo) + bo


def get_mixture_coef(output):
    out_pi, out_sigma, out_mu = tf.split(output, 3, axis=1)
    max_pi = tf.reduce_max(out_pi, 1, keepdims=True)
    out_pi = tf.exp(tf.subtract(out_pi, max_pi))
    return tf.multiply(tf.reciprocal(tf.reduce_sum(out_pi, 1, keepdims=True)), out_pi), tf.exp(out_sigma), out_mu


def tf_normal(y, mu, sigma):
    result = tf.multiply(tf.subtract(y, mu), tf.reciprocal(sigma))
    result = -tf.square(result) / 2
    return tf.multiply(tf.exp(result), tf.reciprocal(sigma)) / np.sqrt(2 * np.pi)


pi, sigma, mu = get_mixture_coef(output)
lossfunc = tf.reduce_mean(-tf.log(tf.reduce_sum(tf_normal(y, mu, sigma) * pi, 1, keepdims=True)))
train_op = tf.train.AdamOptimizer(learning_rate=0.03).minimize(lossfunc)
checked = tf.reduce_logsumexp(tf.distributions.Normal(mu, sigma).log_prob(y) + tf.log(pi), 1)
component = tf.distributions.Categorical(probs=pi).sample(seed=5)
mean, variance = tf.nn.weighted_moments(mu, axes=[1], frequency_weights=pi)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    losses = np.zeros(30)
    for i in range(30):
        _, losses[i] = sess.run([train_op, lossfunc], {x: x_data, y: y_data})
    print(np.round(losses[9::10], 4))
    nll, expected = sess.run([lossfunc, checked], {x: x_data, y: y_data})
    print("%.5f %.5f" % (nll, -expected.mean()))
    at = [[-1.0], [0.0], [1.0]]
    print(np.round(sess.run(mean, {x: at}), 4), np.round(sess.run(variance, {x: at}), 4), sess.run(component, {x: at}))
