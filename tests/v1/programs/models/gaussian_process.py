"""Gaussian process regression: a kernel by broadcasting, Cholesky, marginal likelihood and L-BFGS by scipy."""

import numpy as np
import scipy.optimize
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

dtype = tf.float64
rng = np.random.RandomState(7)
X_train = np.sort(rng.uniform(-3, 3, (20, 1)), 0)
y_train = np.sin(X_train[:, 0] * 1.5) + 0.1 * rng.randn(20)
X_test = np.linspace(-3, 3, 5)[:, None]


def softplus_variable(name, value):
    raw = tf.get_variable(name, dtype=dtype, initializer=tf.constant(np.log(np.expm1(value)), dtype))
    return tf.nn.softplus(raw, name=name + "_positive")


def sq_dist(a, b):
    return (
        tf.reduce_sum(tf.square(a), 1)[:, tf.newaxis]
        + tf.reduce_sum(tf.square(b), 1)[None, :]
        - 2 * tf.matmul(a, b, transpose_b=True)
    )


with tf.variable_scope("kernel", dtype=dtype):
    ls = softplus_variable("lengthscale", 0.5)
    amp = softplus_variable("amplitude", 1.0)
    noise = softplus_variable("noise", 0.3)


def k(a, b):
    return amp**2 * tf.exp(-0.5 * sq_dist(a, b) / ls**2)


X, y, Xs = tf.placeholder(dtype, [None, 1]), tf.placeholder(dtype, [None]), tf.placeholder(dtype, [None, 1])
n = tf.shape(X)[0]
K = k(X, X)
K = tf.matrix_set_diag(K, tf.matrix_diag_part(K) + noise**2 + 1e-6)
L = tf.cholesky(K)
alpha = tf.cholesky_solve(L, y[:, None])
logdet = 2.0 * tf.reduce_sum(tf.log(tf.diag_part(L)))
nll = 0.5 * (tf.squeeze(tf.matmul(y[None], alpha)) + logdet + tf.cast(n, dtype) * np.log(2 * np.pi))
mean = tf.matmul(k(Xs, X), alpha)
v = tf.matrix_triangular_solve(L, k(X, Xs))
cov = k(Xs, Xs) - tf.matmul(v, v, adjoint_a=True)
std = tf.sqrt(tf.matrix_diag_part(cov))
variables = tf.trainable_variables()
flat = tf.concat([tf.reshape(v_, [-1]) for v_ in variables], 0)
grads = tf.gradients(nll, variables)
flat_grad = tf.stack(grads)
hess = tf.hessians(nll, variables[0])[0]
new = [tf.placeholder(dtype, v_.shape) for v_ in variables]
update = tf.group(*[v_.assign(p) for v_, p in zip(variables, new)])
tfd = tf.distributions
mvn = 0.5 * tf.linalg.logdet(K) - tf.reduce_sum(tf.log(tf.linalg.diag_part(tf.linalg.cholesky(K))))

feed = {X: X_train, y: y_train, Xs: X_test}
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print("nll %.5f hessian %.5f" % tuple(sess.run([nll, hess], feed)))
    print("consistent", abs(sess.run(mvn, feed)) < 1e-6)

    def objective(x):
        sess.run(update, dict(zip(new, x)))
        f, g = sess.run([nll, flat_grad], feed)
        return f, g

    x0 = sess.run(flat)
    result = scipy.optimize.minimize(objective, x0, jac=True, method="L-BFGS-B", options={"maxiter": 50})
    sess.run(update, dict(zip(new, result.x)))
    print("nll %.4f" % result.fun, "lengthscale %.3f amplitude %.3f noise %.3f" % tuple(sess.run([ls, amp, noise])))
    m, s = sess.run([mean, std], feed)
    print(np.round(m[:, 0], 3), np.round(s, 3))
    q, r = sess.run(tf.qr(K), feed)
    e, vecs = sess.run(tf.self_adjoint_eig(K), feed)
    print(np.allclose(q.dot(r), sess.run(K, feed)), np.round(e[-3:], 3))
    s, u, w = sess.run(tf.svd(K), feed)
    print(np.round(s[:3], 3), tf.svd(K)[0].shape)
