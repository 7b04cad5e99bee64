"""Embeddings trained by clipped gradients of the rows looked up: other rows do not change."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adam": lambda: tf.train.AdamOptimizer(0.1),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}
ids, wanted = tf.placeholder(tf.int32, [3]), tf.placeholder(tf.float32, [3, 2])
first = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)


def clipped(grads):
    grads, _ = tf.clip_by_global_norm(grads, 1.5)
    negated = [-tf.clip_by_value(tf.clip_by_norm(g, 1.0), -0.6, 0.6) for g in grads]
    return [tf.scalar_mul(-1.0, g) for g in negated]


steps, tables = [], []
for name, make in OPTIMIZERS.items():
    with tf.variable_scope(name):
        table = tf.get_variable("table", initializer=first, use_resource=True)
        scale = tf.get_variable("scale", initializer=np.float32([1.0, 2.0]), use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids) * scale - wanted))
    optimizer = make()
    pairs = optimizer.compute_gradients(loss, [table, scale])
    grads = clipped([g for g, _ in pairs])
    print(name, [type(g).__name__ == "IndexedSlices" for g in grads])
    steps.append(optimizer.apply_gradients(zip(grads, [table, scale])))
    tables += [table, scale]

rng = np.random.default_rng(0)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(8):
        sess.run(steps, {ids: rng.integers(0, 4, 3), wanted: rng.normal(size=(3, 2))})
    for name, value in zip([v.name for v in tables], sess.run(tables)):
        print(name, np.round(value.astype(np.float64), 5).tolist())
