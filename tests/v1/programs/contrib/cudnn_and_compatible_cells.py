"""A network is trained by CudnnLSTM, and its checkpoint is read by CudnnCompatibleLSTMCell."""

import os
import tempfile

import numpy as np
import tensorflow as tf

LAYERS, UNITS, STEPS = 2, 12, 5
rng = np.random.RandomState(0)
x = rng.uniform(0, 1, [STEPS, 64, 1]).astype(np.float32)
y = x.sum(0)
path = os.path.join(tempfile.mkdtemp(), "model")

with tf.Graph().as_default():
    tf.set_random_seed(8)
    inputs, targets = tf.placeholder(tf.float32, [STEPS, None, 1]), tf.placeholder(tf.float32, [None, 1])
    lstm = tf.contrib.cudnn_rnn.CudnnLSTM(LAYERS, UNITS, dropout=0.0)
    outputs, (h, c) = lstm(inputs)
    predicted = tf.layers.dense(outputs[-1], 1, name="out")
    loss = tf.reduce_mean(tf.squared_difference(predicted, targets))
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(120):
            value, _ = sess.run([loss, train], {inputs: x, targets: y})
        print("learned", value < 0.02)
        known = sess.run(predicted, {inputs: x})
        saver.save(sess, path)

with tf.Graph().as_default():
    inputs = tf.placeholder(tf.float32, [STEPS, None, 1])
    with tf.variable_scope("cudnn_lstm"):
        cells = [tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(UNITS) for _ in range(LAYERS)]
        cell = tf.nn.rnn_cell.MultiRNNCell(cells)
        outputs, _ = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32, time_major=True)
    predicted = tf.layers.dense(outputs[-1], 1, name="out")
    for v in tf.global_variables():
        print(v.op.name, v.shape.as_list())
    saver = tf.train.Saver()
    with tf.Session() as sess:
        saver.restore(sess, path)
        print("the same", np.allclose(sess.run(predicted, {inputs: x}), known, atol=1e-4))
