"""A character model whose LSTM state is fed back, with tuples as keys."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

text = "hello world, how are you world? " * 8
chars = sorted(set(text))
char_to_id = {c: i for i, c in enumerate(chars)}
data = np.array([char_to_id[c] for c in text])
seq_length, hidden, batch = 8, 24, 4

tf.set_random_seed(7)
inputs = tf.placeholder(tf.int32, [None, None])
targets = tf.placeholder(tf.int32, [None, None])
embedding = tf.get_variable("embedding", [len(chars), 10])
layers = [tf.nn.rnn_cell.LSTMCell(hidden, use_peepholes=True), tf.nn.rnn_cell.LSTMCell(hidden, num_proj=16)]
cells = tf.nn.rnn_cell.MultiRNNCell(layers)
initial_state = cells.zero_state(tf.shape(inputs)[0], tf.float32)
outputs, final_state = tf.nn.dynamic_rnn(cells, tf.nn.embedding_lookup(embedding, inputs), initial_state=initial_state)
logits = tf.tensordot(outputs, tf.get_variable("w", [16, len(chars)]), [[2], [0]]) + tf.get_variable("b", [len(chars)])
probabilities = tf.nn.softmax(logits)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=targets))
grads, variables = zip(*tf.train.AdamOptimizer(0.02).compute_gradients(loss))
grads, norm = tf.clip_by_global_norm(grads, 1.0)
train_op = tf.train.AdamOptimizer(0.02).apply_gradients(zip(grads, variables))

columns = len(data) // batch
x_all = data[: batch * columns].reshape(batch, columns)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for epoch in range(4):
        state = None
        for i in range(0, columns - seq_length - 1, seq_length):
            feed = {inputs: x_all[:, i : i + seq_length], targets: x_all[:, i + 1 : i + seq_length + 1]}
            if state is not None:
                feed[initial_state] = state
            value, size, state, _ = sess.run([loss, norm, final_state, train_op], feed)
        print("epoch", epoch, "loss %.4f norm %.3f" % (value, size), type(state[0]).__name__, state[1].h.shape)
    state, sample = sess.run(initial_state, {inputs: [[0]]}), "h"
    for _ in range(12):
        p, state = sess.run([probabilities, final_state], {inputs: [[char_to_id[sample[-1]]]], initial_state: state})
        sample += chars[int(p[0, -1].argmax())]
    print(repr(sample), np.round(p[0, -1].max(), 3))
