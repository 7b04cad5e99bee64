"""Reversal of sequences by an encoder and a decoder with attention, run greedily."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

vocab, size, length, batch = 8, 16, 4, 12
GO = 0


def attention(query, memory, mask):
    with tf.variable_scope("attention", reuse=tf.AUTO_REUSE):
        keys = tf.layers.dense(memory, size, use_bias=False, name="keys")
        q = tf.expand_dims(tf.layers.dense(query, size, use_bias=False, name="query"), 1)
        v = tf.get_variable("v", [size])
        score = tf.reduce_sum(v * tf.tanh(keys + q), [2])
        score = tf.where(mask, score, tf.fill(tf.shape(score), -1e9))
        a = tf.nn.softmax(score)
        return tf.reduce_sum(tf.expand_dims(a, -1) * memory, [1]), a


source = tf.placeholder(tf.int32, [None, length], "source")
target = tf.placeholder(tf.int32, [None, length], "target")
source_length = tf.placeholder(tf.int32, [None])
with tf.variable_scope("seq2seq", initializer=tf.random_uniform_initializer(-0.3, 0.3, seed=4)):
    table = tf.get_variable("embedding", [vocab, size])
    memory, (fw, bw) = tf.nn.bidirectional_dynamic_rnn(
        tf.nn.rnn_cell.GRUCell(size // 2), tf.nn.rnn_cell.GRUCell(size // 2), tf.nn.embedding_lookup(table, source),
        source_length, dtype=tf.float32, scope="encoder",
    )  # fmt: skip
    memory = tf.concat(memory, 2)
    mask = tf.sequence_mask(source_length, length)
    cell = tf.nn.rnn_cell.GRUCell(size)

    def decode(ids_at):
        state, logits, ids = tf.concat([fw, bw], 1), [], tf.fill(tf.shape(source)[:1], GO)
        alignments = []
        for t in range(length):
            with tf.variable_scope("decoder", reuse=tf.AUTO_REUSE):
                context, alignment = attention(state, memory, mask)
                x = tf.concat([tf.nn.embedding_lookup(table, ids), context], 1)
                output, state = cell(x, state)
                logits.append(tf.layers.dense(output, vocab, name="projection"))
            ids = ids_at(t, logits[-1])
            alignments.append(alignment)
        return tf.stack(logits, 1), tf.stack(alignments, 1)

    logits, _ = decode(lambda t, _: target[:, t])
    greedy, alignments = decode(lambda _, logit: tf.argmax(logit, 1, output_type=tf.int32))
weights = tf.sequence_mask(source_length, length, dtype=tf.float32)
crossent = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits)
loss = tf.reduce_sum(crossent * weights) / tf.reduce_sum(weights)
train = tf.train.AdamOptimizer(0.02).minimize(loss)
found = tf.argmax(greedy, 2)

rng = np.random.RandomState(14)
with tf.Session() as sess:
    tf.global_variables_initializer().run()
    for step in range(30):
        xs = rng.randint(1, vocab, size=(batch, length))
        n = rng.randint(2, length + 1, size=batch)
        ys = np.zeros_like(xs)
        for row, k in enumerate(n):
            ys[row, :k] = xs[row, :k][::-1]
        feed = {source: xs, target: ys, source_length: n}
        _, value = sess.run([train, loss], feed)
        if step % 10 == 9:
            print("step", step + 1, "loss %.4f" % value)
    answers, a = sess.run([found, alignments], feed)
    print("right", int(((answers == ys) & (ys > 0)).sum()), "of", int((ys > 0).sum()))
    print(np.round(a[0, 0], 3), bool((np.abs(a.sum(-1) - 1) < 1e-5).all()))
