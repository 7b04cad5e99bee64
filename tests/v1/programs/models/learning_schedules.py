"""Rates by every schedule, smoothed labels, weighted losses, gradients accumulated over batches."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

step = tf.train.get_or_create_global_step()
schedules = {
    "exponential": tf.train.exponential_decay(0.1, step, 4, 0.5),
    "staircase": tf.train.exponential_decay(0.1, step, 4, 0.5, staircase=True),
    "piecewise": tf.train.piecewise_constant(step, [3, 6], [1.0, 0.5, 0.1]),
    "polynomial": tf.train.polynomial_decay(0.1, step, 8, 0.01, power=2.0),
    "cycle": tf.train.polynomial_decay(0.1, step, 3, 0.01, cycle=True),
    "natural": tf.train.natural_exp_decay(0.1, step, 2, 0.4),
    "inverse": tf.train.inverse_time_decay(0.1, step, 2, 0.7),
    "cosine": tf.train.cosine_decay(0.1, step, 8, alpha=0.05),
    "restarts": tf.train.cosine_decay_restarts(0.1, step, 3, t_mul=1.5, m_mul=0.8),
    "linear cosine": tf.train.linear_cosine_decay(0.1, step, 8),
    "noam": 0.5 * tf.minimum(tf.rsqrt(tf.cast(step + 1, tf.float32)), tf.cast(step + 1, tf.float32) * 4.0**-1.5),
}
warm = tf.cond(step < 3, lambda: 0.05 * tf.cast(step, tf.float32), lambda: schedules["cosine"])

rng = np.random.RandomState(33)
x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int32, [None])
logits = tf.layers.dense(x, 3, kernel_initializer=tf.glorot_normal_initializer(seed=1))
hot = tf.one_hot(y, 3)
weighing = tf.where(tf.equal(y, 0), tf.ones_like(hot[:, 0]), 2 * hot[:, 1] + 1)
tf.losses.softmax_cross_entropy(hot, logits, weights=weighing, label_smoothing=0.1)
tf.losses.hinge_loss(hot, logits, weights=0.1)
tf.losses.huber_loss(hot, tf.nn.softmax(logits), delta=0.3)
tf.losses.log_loss(hot, tf.nn.softmax(logits), weights=0.05, reduction=tf.losses.Reduction.SUM)
tf.losses.cosine_distance(tf.nn.l2_normalize(hot, 1), tf.nn.l2_normalize(logits, 1), axis=1, weights=0.2)
tf.losses.absolute_difference(hot, logits, weights=[[0.1], [0.0], [0.1], [0.0], [0.1], [0.2]])
parts = tf.losses.get_losses()
loss = tf.losses.get_total_loss()

tvars = tf.trainable_variables()
accumulators = [tf.Variable(tf.zeros_like(v.initialized_value()), trainable=False) for v in tvars]
zero = [a.assign(tf.zeros_like(a)) for a in accumulators]
optimizer = tf.train.MomentumOptimizer(warm, 0.9)
grads = optimizer.compute_gradients(loss, tvars)
accumulate = [a.assign_add(g) for a, (g, _) in zip(accumulators, grads)]
apply = optimizer.apply_gradients([(a / 3.0, v) for a, v in zip(accumulators, tvars)], global_step=step)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    history = {name: [] for name in schedules}
    for _ in range(9):
        sess.run(zero)
        for _ in range(3):
            feed = {x: rng.normal(size=(6, 6)), y: rng.randint(3, size=6)}
            sess.run(accumulate, feed)
        for name, rate in sess.run(schedules).items():
            history[name].append(float(np.round(rate, 5)))
        sess.run(apply)
    for name, rates in history.items():
        print(name, rates)
    print(sess.run(step), "%.5f" % sess.run(loss, feed), [round(float(p), 5) for p in sess.run(parts, feed)])
