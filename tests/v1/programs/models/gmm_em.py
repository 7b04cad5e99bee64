"""A mixture of Gaussians fitted by expectation and maximisation, each step of it one run."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

K, D = 3, 2
rng = np.random.RandomState(22)
data = np.concatenate([rng.normal(c, s, size=(40, D)) for c, s in (((0, 0), 0.6), ((4, 0), 0.9), ((1, 4), 0.4))])

x = tf.placeholder(tf.float64, [None, D])
means = tf.Variable(data[[0, 50, 100]] + 0.5, dtype=tf.float64)
covariances = tf.Variable(np.tile(np.eye(D), (K, 1, 1)))
weights = tf.Variable(tf.cast(tf.fill([K], 1.0 / K), tf.float64))

difference = tf.expand_dims(x, 0) - tf.expand_dims(means, 1)
cholesky = tf.cholesky(covariances)
solved = tf.matrix_triangular_solve(cholesky, tf.transpose(difference, [0, 2, 1]))
quadratic = tf.reduce_sum(tf.square(solved), 1)
log_det = 2 * tf.reduce_sum(tf.log(tf.matrix_diag_part(cholesky)), 1)
log_probs = -0.5 * (quadratic + tf.expand_dims(log_det, 1) + D * np.log(2 * np.pi)) + tf.log(weights)[:, None]
log_sum = tf.reduce_logsumexp(log_probs, axis=0, keepdims=True)
log_likelihood = tf.reduce_mean(log_sum)
gamma = tf.exp(log_probs - log_sum)
total = tf.reduce_sum(gamma, 1)
new_means = tf.matmul(gamma, x) / total[:, None]
centred = tf.expand_dims(x, 0) - tf.expand_dims(new_means, 1)
weighted = tf.einsum("kn,knd,kne->kde", gamma, centred, centred) / total[:, None, None]
new_covariances = weighted + 1e-6 * tf.eye(D, batch_shape=[K], dtype=tf.float64)
with tf.control_dependencies([log_likelihood, new_means, new_covariances]):
    step = tf.group(
        tf.assign(means, new_means),
        tf.assign(covariances, new_covariances),
        weights.assign(total / tf.reduce_sum(total)),
    )

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(30):
        value, _ = sess.run([log_likelihood, step], {x: data})
        if i % 6 == 5:
            print(i + 1, "log likelihood %.6f" % value)
    for mean, weight, covariance in zip(*sess.run([means, weights, covariances])):
        print(np.round(mean, 4), np.round(weight, 4), np.round(np.linalg.det(covariance), 5))
