"""VAE variants: conditional, beta with annealing, Gumbel-softmax, importance-weighted bound, KL by tf.distributions."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
ds = tf.distributions


def gumbel_softmax(logits, temperature, hard=False):
    U = tf.random_uniform(tf.shape(logits), minval=0, maxval=1, seed=21)
    y = tf.nn.softmax((logits - tf.log(-tf.log(U + 1e-20) + 1e-20)) / temperature)
    if hard:
        y_hard = tf.cast(tf.equal(y, tf.reduce_max(y, 1, keep_dims=True)), y.dtype)
        y = tf.stop_gradient(y_hard - y) + y
    return y


def dense(x, n, seed, act=None, name=None):
    return tf.layers.dense(x, n, act, kernel_initializer=tf.glorot_uniform_initializer(seed=seed), name=name)


rng = np.random.RandomState(2)
protos = rng.rand(3, 12) > 0.5
labels_np = rng.randint(0, 3, 48)
data = np.logical_xor(protos[labels_np], rng.rand(48, 12) > 0.9).astype(np.float32)
hot = np.eye(3, dtype=np.float32)[labels_np]

# conditional, with annealed beta
x = tf.placeholder(tf.float32, [None, 12])
c = tf.placeholder(tf.float32, [None, 3])
step = tf.train.get_or_create_global_step()
beta = tf.minimum(1.0, tf.to_float(step) / 20.0)
with tf.variable_scope("cvae"):
    h = dense(tf.concat([x, c], 1), 10, 1, tf.nn.tanh)
    q = ds.Normal(dense(h, 3, 2), tf.nn.softplus(dense(h, 3, 3)) + 1e-3, name="posterior")
    z = q.sample(seed=5)
    p = ds.Bernoulli(logits=dense(dense(tf.concat([z, c], 1), 10, 4, tf.nn.tanh), 12, 5))
    prior = ds.Normal(tf.zeros_like(q.loc), tf.ones_like(q.scale))
    kl = tf.reduce_sum(ds.kl_divergence(q, prior), 1)
    rec = -tf.reduce_sum(p.log_prob(x), 1)
    loss = tf.reduce_mean(rec + beta * kl)
train = tf.train.AdamOptimizer(0.02).minimize(loss, global_step=step)

# categorical latent
with tf.variable_scope("gumbel"):
    tau = tf.placeholder_with_default(1.0, shape=(), name="tau")
    logits = tf.reshape(dense(dense(x, 10, 6, tf.nn.relu), 2 * 3, 7), [-1, 3])
    sample = tf.reshape(gumbel_softmax(logits, tau), [-1, 2, 3])
    hard = gumbel_softmax(logits, tau, hard=True)
    rec_logits = dense(dense(tf.layers.flatten(sample), 10, 8, tf.nn.relu), 12, 9)
    q_y = ds.Categorical(logits=logits)
    kl_y = tf.reduce_sum(tf.reshape(np.log(3.0) - q_y.entropy(), [-1, 2]), 1)
    g_rec = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=rec_logits), 1)
    g_loss = tf.reduce_mean(g_rec + kl_y)
g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "gumbel")
g_train = tf.train.AdamOptimizer(0.02).minimize(g_loss, var_list=g_vars)

# importance weights, with the path derivative's stopped gradient
with tf.variable_scope("iwae"):
    k = 5
    h = dense(x, 8, 10, tf.nn.tanh)
    mu, sigma = dense(h, 2, 11), tf.exp(0.5 * dense(h, 2, 12))
    eps = tf.random_normal([k, tf.shape(x)[0], 2], seed=13)
    zs = mu[None] + sigma[None] * eps
    log_q = tf.reduce_sum(ds.Normal(tf.stop_gradient(mu), tf.stop_gradient(sigma)).log_prob(zs), -1)
    log_p = tf.reduce_sum(ds.Normal(0.0, 1.0).log_prob(zs), -1)
    log_x = tf.reduce_sum(ds.Bernoulli(logits=dense(dense(zs, 8, 14, tf.nn.tanh), 12, 15)).log_prob(x[None]), -1)
    log_w = log_p + log_x - log_q
    bound = tf.reduce_mean(tf.reduce_logsumexp(log_w, 0) - tf.log(float(k)))
    weights = tf.stop_gradient(tf.nn.softmax(log_w, axis=0))
    iw_loss = -tf.reduce_mean(tf.reduce_sum(weights * log_w, 0))
iw_train = tf.train.AdamOptimizer(0.02).minimize(iw_loss, var_list=tf.trainable_variables("iwae"))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(30):
        l, r, kk, b, _ = sess.run([loss, rec, kl, beta, train], {x: data, c: hot})
        t = max(0.5, np.exp(-0.02 * i))
        gl, _ = sess.run([g_loss, g_train], {x: data, tau: t})
        bd, _ = sess.run([bound, iw_train], {x: data})
        if i % 10 == 9:
            print(
                i,
                "cvae %.3f rec %.3f kl %.3f beta %.2f" % (l, r.mean(), kk.mean(), b),
                "gumbel %.3f iwae %.3f" % (gl, bd),
            )
    print(sess.run(hard, {x: data[:2], tau: 0.5}).sum(1))
    print(np.round(sess.run(p.mean(), {x: data[:2], c: hot[:2]})[:, :4], 2), p.batch_shape, q.event_shape)
    print(q.name, p.dtype.name, q.reparameterization_type, p.reparameterization_type)
