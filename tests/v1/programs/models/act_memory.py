"""Adaptive computation time: a loop that halts by example, and a memory addressed by content."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

batch, size, slots, limit = 5, 6, 4, 6
x = tf.placeholder(tf.float32, [batch, size])
target = tf.placeholder(tf.float32, [batch, 1])
with tf.variable_scope("model", initializer=tf.random_normal_initializer(stddev=0.5, seed=2), dtype=tf.float32):
    cell = tf.nn.rnn_cell.GRUCell(size, kernel_initializer=tf.random_normal_initializer(stddev=0.4, seed=1))
    cell.build([None, size + 1])
    w_halt, b_halt = tf.get_variable("w_halt", [size, 1]), tf.get_variable("b_halt", initializer=[0.4])
    memory = tf.get_variable("memory", [slots, size])
    w_out = tf.get_variable("w_out", [size, 1])


def not_halted(halted, n, *_):
    return tf.logical_and(tf.less(n, limit), tf.logical_not(tf.reduce_all(halted >= 1.0 - 0.05)))


def step(halted, n, state, ponder, accumulated):
    first = tf.fill([batch, 1], tf.cast(tf.equal(n, 0), tf.float32))
    read = tf.matmul(tf.nn.softmax(tf.matmul(tf.nn.l2_normalize(state, 1), memory, transpose_b=True)), memory)
    _, new_state = cell(tf.concat([x + 0.1 * read, first], 1), state)
    p = tf.sigmoid(tf.matmul(new_state, w_halt) + b_halt)
    running = tf.cast(halted < 1.0 - 0.05, tf.float32)
    last = tf.logical_or(halted + p * running >= 1.0 - 0.05, tf.fill([batch, 1], tf.equal(n, limit - 1)))
    weight = tf.where(last, 1.0 - halted, p) * running
    accumulated += weight * new_state
    new_state = running * new_state + (1 - running) * state
    return halted + weight, n + 1, new_state, ponder + running, accumulated


zeros = tf.zeros([batch, 1])
halted, count, _, ponder, accumulated = tf.while_loop(
    not_halted, step, [zeros, tf.constant(0), tf.zeros_like(x), zeros, tf.zeros_like(x)], swap_memory=True
)
loss = tf.reduce_mean(tf.square(tf.matmul(accumulated, w_out) - target)) + 0.01 * tf.reduce_mean(ponder)
train_op = tf.train.AdamOptimizer(0.02).minimize(loss)

rng = np.random.RandomState(37)
feed = {x: rng.normal(size=(batch, size)), target: rng.normal(size=(batch, 1))}
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(12):
        _, value, n = sess.run([train_op, loss, count], feed)
        if i % 3 == 2:
            print(i + 1, "loss %.5f" % value, "steps", n, sess.run(ponder, feed).ravel().astype(int).tolist())
    print(np.round(sess.run(halted, feed).ravel(), 4))
