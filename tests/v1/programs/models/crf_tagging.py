"""Tags by a linear-chain CRF: log likelihood by `scan`, gradients, and Viterbi's path."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

num_tags, num_features, steps, batch = 4, 6, 7, 5


def log_norm(unary, transitions, lengths):
    first, rest = unary[:, 0], tf.transpose(unary[:, 1:], [1, 0, 2])

    def forward(carry, inputs):
        alphas, t = carry
        new = inputs + tf.reduce_logsumexp(tf.expand_dims(alphas, 2) + transitions, 1)
        keep = tf.expand_dims(t + 1 < lengths, 1)
        return tf.where(tf.tile(keep, [1, num_tags]), new, alphas), t + 1

    alphas, _ = tf.scan(forward, rest, initializer=(first, tf.constant(0)))
    return tf.reduce_logsumexp(alphas[-1], [1])


def score(unary, tags, transitions, lengths):
    mask = tf.sequence_mask(lengths, steps, dtype=tf.float32)
    single = tf.reduce_sum(unary * tf.one_hot(tags, num_tags), 2) * mask
    pairs = tf.gather_nd(transitions, tf.stack([tags[:, :-1], tags[:, 1:]], 2)) * mask[:, 1:]
    return tf.reduce_sum(single, 1) + tf.reduce_sum(pairs, 1)


def viterbi(unary, transitions):
    def step(i, trellis, pointers):
        v = tf.expand_dims(trellis, 1) + transitions
        best = tf.reduce_max(v, axis=0) + unary[i]
        return i + 1, best, pointers.write(i - 1, tf.argmax(v, 0, output_type=tf.int32))

    pointers = tf.TensorArray(tf.int32, size=steps - 1)
    _, trellis, pointers = tf.while_loop(lambda i, *_: i < steps, step, [1, unary[0], pointers])
    pointers = pointers.stack()
    last = tf.argmax(trellis, output_type=tf.int32)
    path = tf.scan(lambda tag, row: row[tag], tf.reverse(pointers, [0]), initializer=last)
    return tf.concat([tf.reverse(path, [0]), [last]], 0), tf.reduce_max(trellis)


x = tf.placeholder(tf.float32, [batch, steps, num_features])
y = tf.placeholder(tf.int32, [batch, steps])
n = tf.placeholder(tf.int32, [batch])
weights = tf.get_variable("weights", [num_features, num_tags], initializer=tf.truncated_normal_initializer(seed=1))
transitions = tf.get_variable("transitions", [num_tags, num_tags], initializer=tf.zeros_initializer)
unary = tf.reshape(tf.matmul(tf.reshape(x, [-1, num_features]), weights), [batch, steps, num_tags])
log_likelihood = score(unary, y, transitions, n) - log_norm(unary, transitions, n)
loss = tf.reduce_mean(-log_likelihood)
train_op = tf.train.GradientDescentOptimizer(0.3).minimize(loss)
path, best = viterbi(unary[0], transitions)

rng = np.random.RandomState(19)
tags = np.cumsum(rng.randint(0, 2, size=(batch, steps)), 1) % num_tags
features = rng.normal(scale=0.3, size=(batch, steps, num_features)) + np.eye(num_features)[tags]
lengths = [7, 4, 6, 2, 7]
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    feed = {x: features, y: tags, n: lengths}
    for i in range(60):
        value, _ = session.run([loss, train_op], feed)
        if i % 20 == 19:
            print(i + 1, "loss %.5f" % value)
    found, top = session.run([path, best], feed)
    print(found.tolist(), tags[0].tolist(), "%.4f" % top)
    print(np.round(session.run(transitions), 3).tolist())
