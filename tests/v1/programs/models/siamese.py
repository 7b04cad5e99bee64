"""A siamese network by a template, with contrastive and triplet losses, nearest neighbours by `top_k`."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(39)
classes = rng.randint(4, size=40)
points = (np.eye(4)[classes] @ rng.normal(size=(4, 8)) * 2 + rng.normal(scale=0.4, size=(40, 8))).astype(np.float32)


def embed(x):
    with tf.variable_scope("fc1"):
        n_prev = x.get_shape()[1]
        W = tf.get_variable(
            "W", dtype=tf.float32, shape=[n_prev, 10], initializer=tf.truncated_normal_initializer(stddev=0.3, seed=1)
        )
        b = tf.get_variable("b", dtype=tf.float32, initializer=tf.constant(0.01, shape=[10], dtype=tf.float32))
        h = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, W), b))
    return tf.layers.dense(h, 3, kernel_initializer=tf.glorot_uniform_initializer(seed=2), name="fc2")


network = tf.make_template("network", embed)
x1, x2, x3 = (tf.placeholder(tf.float32, [None, 8]) for _ in range(3))
y = tf.placeholder(tf.float32, [None])
o1, o2, o3 = network(x1), network(x2), network(x3)
print([v.name for v in network.trainable_variables], len(tf.trainable_variables()))

margin = 2.0
eucd2 = tf.reduce_sum(tf.pow(tf.subtract(o1, o2), 2), 1)
eucd = tf.sqrt(eucd2 + 1e-6, name="eucd")
pos = tf.multiply(y, eucd2, name="yi_x_eucd2")
neg = tf.multiply(1.0 - y, tf.pow(tf.maximum(margin - eucd, 0), 2), name="Nyi_x_C-eucd_xx_2")
contrastive = tf.reduce_mean(tf.add(pos, neg), name="loss")
triplet = tf.reduce_mean(tf.nn.relu(eucd2 - tf.reduce_sum(tf.squared_difference(o1, o3), 1) + margin))
steps = [tf.train.GradientDescentOptimizer(0.02).minimize(t) for t in (contrastive, triplet)]
distances = tf.norm(tf.expand_dims(o1, 1) - tf.expand_dims(o1, 0), axis=2)
far = distances + 100.0 * tf.eye(tf.shape(o1)[0])
_, nearest = tf.nn.top_k(-far, k=3)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(30):
        a = rng.randint(40, size=16)
        same = np.array([rng.choice(np.flatnonzero(classes == classes[k])) for k in a])
        other = np.array([rng.choice(np.flatnonzero(classes != classes[k])) for k in a])
        b, is_same = (same, np.ones(16)) if i % 2 else (other, np.zeros(16))
        _, one = sess.run([steps[0], contrastive], {x1: points[a], x2: points[b], y: is_same})
        _, two = sess.run([steps[1], triplet], {x1: points[a], x2: points[same], x3: points[other]})
        if i % 10 == 9:
            print(i + 1, "contrastive %.4f triplet %.4f" % (one, two))
    found = sess.run(nearest, {x1: points})
    print("neighbours of the same class %.3f" % (classes[found] == classes[:, None]).mean())
