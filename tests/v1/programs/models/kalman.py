"""A trained Kalman filter and smoother by tf.scan; a particle filter by a loop."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

A = tf.constant([[1.0, 1.0], [0.0, 1.0]])
C = tf.constant([[1.0, 0.0]])
log_q = tf.get_variable("log_q", initializer=-1.0)
log_r = tf.get_variable("log_r", initializer=0.0)
Q = tf.exp(log_q) * tf.eye(2)
R = tf.exp(log_r) * tf.eye(1)
obs = tf.placeholder(tf.float32, [None, 1], name="observations")
Belief = collections.namedtuple("Belief", ["mu", "sigma", "ll"])


def filter_step(prev, z):
    mu = tf.matmul(A, prev.mu)
    sigma = tf.matmul(tf.matmul(A, prev.sigma), A, transpose_b=True) + Q
    S = tf.matmul(C, tf.matmul(sigma, C, transpose_b=True)) + R
    K = tf.transpose(tf.matrix_solve(S, tf.matmul(C, sigma), name="gain"))
    err = z[:, None] - tf.matmul(C, mu)
    ll = -0.5 * (tf.log(2 * np.pi * tf.matrix_determinant(S)) + tf.squeeze(tf.square(err) / S))
    I_KC = tf.eye(2) - tf.matmul(K, C)
    return Belief(mu + tf.matmul(K, err), tf.matmul(I_KC, sigma), ll)


init = Belief(tf.zeros([2, 1]), tf.eye(2) * 5.0, tf.zeros([]))
filtered = tf.scan(filter_step, obs, initializer=init, name="filter")
loss = -tf.reduce_sum(filtered.ll)


def smooth_step(nxt, now):
    pred = tf.matmul(tf.matmul(A, now.sigma), A, transpose_b=True) + Q
    G = tf.matmul(tf.matmul(now.sigma, A, transpose_b=True), tf.matrix_inverse(pred))
    mu = now.mu + tf.matmul(G, nxt.mu - tf.matmul(A, now.mu))
    sigma = now.sigma + tf.matmul(tf.matmul(G, nxt.sigma - pred), G, transpose_b=True)
    return Belief(mu, sigma, now.ll)


last = Belief(*[t[-1] for t in filtered])
rest = Belief(*[t[:-1] for t in filtered])
smoothed = tf.scan(smooth_step, rest, initializer=last, reverse=True)
train = tf.train.AdagradOptimizer(0.3).minimize(loss)


def particles(n):
    def cond(t, *_):
        return tf.less(t, tf.shape(obs)[0])

    def body(t, p, w, ess):
        noise = tf.random_normal([n, 2], seed=11) * 0.5
        p = tf.matmul(p, A, transpose_b=True) + noise
        w = w * tf.exp(-0.5 * tf.square(p[:, 0] - obs[t, 0]) / tf.exp(log_r))
        w = w / tf.reduce_sum(w)
        e = 1.0 / tf.reduce_sum(tf.square(w))
        ess = ess.write(t, e)

        def resample():
            positions = (tf.range(n, dtype=tf.float32) + 0.5) / n
            idx = tf.minimum(tf.searchsorted(tf.cumsum(w), positions), n - 1)
            return tf.gather(p, idx), tf.fill([n], 1.0 / n)

        p, w = tf.cond(e < n / 2.0, resample, lambda: (p, w))
        p.set_shape([n, 2])
        w.set_shape([n])
        return t + 1, p, w, ess

    ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
    _, p, w, ess = tf.while_loop(cond, body, (0, tf.zeros([n, 2]), tf.fill([n], 1.0 / n), ta), parallel_iterations=1)
    return tf.reduce_sum(p * w[:, None], 0), ess.stack()


tf.set_random_seed(5)
estimate, ess = particles(50)
rng = np.random.RandomState(0)
truth = np.cumsum(np.cumsum(0.3 * rng.randn(25)))
z = (truth + 0.7 * rng.randn(25))[:, None]
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(30):
        l, _ = sess.run([loss, train], {obs: z})
        if i % 10 == 9:
            print(i, "%.4f" % l, "q %.4f r %.4f" % tuple(sess.run([tf.exp(log_q), tf.exp(log_r)])))
    f, s = sess.run([filtered, smoothed], {obs: z})
    print(type(f).__name__, f.mu.shape, s.mu.shape)
    print(np.round(f.mu[-1].ravel(), 3), np.round(s.mu[0].ravel(), 3))
    print(np.mean((s.mu[:, 0, 0] - truth[:-1]) ** 2) < np.mean((f.mu[:-1, 0, 0] - truth[:-1]) ** 2))
    est, e = sess.run([estimate, ess], {obs: z})
    print(np.round(est, 2), e.shape, "%.2f" % e.mean())
