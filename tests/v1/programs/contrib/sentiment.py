"""Sentences of different lengths, read by cells with layer normalization and attention."""

import numpy as np
import tensorflow as tf

GOOD, BAD, OTHER = ["good", "fine", "great"], ["bad", "poor", "awful"], ["a", "the", "film", "is", "very", "it"]
rng = np.random.RandomState(0)


def sentences(n):
    found, labels = [], rng.randint(0, 2, n)
    for label in labels:
        words = list(rng.choice(OTHER, rng.randint(2, 6)))
        words.insert(rng.randint(0, len(words)), rng.choice(GOOD if label else BAD))
        found.append(" ".join(words))
    return found, labels


tf.set_random_seed(10)
texts, labels = tf.placeholder(tf.string, [None]), tf.placeholder(tf.int32, [None])
table = tf.contrib.lookup.index_table_from_tensor(tf.constant(GOOD + BAD + OTHER[:3]), num_oov_buckets=4)
words = tf.string_split(texts)
tokens = tf.sparse_tensor_to_dense(words, default_value="")
lengths = tf.reduce_sum(tf.to_int32(tf.not_equal(tokens, "")), 1)
ids = table.lookup(tokens)
embedded = tf.contrib.layers.embed_sequence(ids, 13, 12, scope="words")
cell = tf.contrib.rnn.MultiRNNCell(
    [
        tf.contrib.rnn.LayerNormBasicLSTMCell(12, dropout_keep_prob=0.9),
        tf.contrib.rnn.AttentionCellWrapper(tf.contrib.rnn.GRUCell(12), attn_length=3),
    ]
)
_, state = tf.nn.dynamic_rnn(cell, embedded, lengths, dtype=tf.float32)
logits = tf.contrib.layers.fully_connected(state[1][0], 2, activation_fn=None)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
optimizer = tf.contrib.opt.AdamWOptimizer(weight_decay=1e-4, learning_rate=0.02)
train_op = optimizer.minimize(loss)
accuracy = tf.contrib.metrics.accuracy(tf.argmax(logits, 1, output_type=tf.int32), labels)
names = [v.op.name for v in tf.trainable_variables()]
print(len(names), names[0], names[1], names[-1])
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
    for _ in range(60):
        a, b = sentences(32)
        sess.run(train_op, {texts: a, labels: b})
    a, b = sentences(100)
    print("learned", sess.run(accuracy, {texts: a, labels: b}) > 0.9)
    known = sess.run(table.lookup(tf.constant(["good", "the", "unknown"]))).tolist()
    print(known[:2], 9 <= known[2] < 13, sess.run(table.size()))
