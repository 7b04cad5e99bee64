"""A tagger: bidirectional LSTM cells and a conditional random field."""

import numpy as np
import tensorflow as tf

WORDS, TAGS, SIZE, LENGTH = 10, 3, 16, 6


def sentences(n, rng):
    """Small words have the tag 0; in a run of others the first has 1."""
    lengths = rng.randint(2, LENGTH + 1, n)
    words, tags = rng.randint(0, WORDS, [n, LENGTH]), np.zeros([n, LENGTH], np.int32)
    for i in range(n):
        for t in range(lengths[i]):
            if words[i, t] >= 5:
                tags[i, t] = 2 if t > 0 and tags[i, t - 1] > 0 else 1
    return words, tags, lengths


tf.set_random_seed(6)
word_ids = tf.placeholder(tf.int32, [None, None], name="word_ids")
labels = tf.placeholder(tf.int32, [None, None], name="labels")
sequence_lengths = tf.placeholder(tf.int32, [None], name="sequence_lengths")
with tf.variable_scope("words"):
    embeddings = tf.get_variable("_word_embeddings", [WORDS, SIZE])
    inputs = tf.nn.embedding_lookup(embeddings, word_ids)
with tf.variable_scope("bi-lstm"):
    cell_fw, cell_bw = tf.contrib.rnn.LSTMCell(SIZE), tf.contrib.rnn.LSTMCell(SIZE)
    (output_fw, output_bw), _ = tf.nn.bidirectional_dynamic_rnn(
        cell_fw, cell_bw, inputs, sequence_length=sequence_lengths, dtype=tf.float32
    )
    output = tf.nn.dropout(tf.concat([output_fw, output_bw], axis=-1), 0.9)
with tf.variable_scope("proj"):
    W = tf.get_variable(
        "W", dtype=tf.float32, shape=[2 * SIZE, TAGS], initializer=tf.contrib.layers.xavier_initializer()
    )
    b = tf.get_variable("b", shape=[TAGS], dtype=tf.float32, initializer=tf.zeros_initializer())
    nsteps = tf.shape(output)[1]
    logits = tf.reshape(tf.matmul(tf.reshape(output, [-1, 2 * SIZE]), W) + b, [-1, nsteps, TAGS])
log_likelihood, trans_params = tf.contrib.crf.crf_log_likelihood(logits, labels, sequence_lengths)
loss = tf.reduce_mean(-log_likelihood)
decoded, score = tf.contrib.crf.crf_decode(logits, trans_params, sequence_lengths)
train_op = tf.train.AdamOptimizer(0.02).minimize(loss)
print(trans_params.name, trans_params.shape.as_list())
rng = np.random.RandomState(0)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(150):
        words, tags, lengths = sentences(32, rng)
        value, _ = sess.run([loss, train_op], {word_ids: words, labels: tags, sequence_lengths: lengths})
    print("learned", value < 1.0)
    words, tags, lengths = sentences(50, rng)
    unary, moves, found, best = sess.run(
        [logits, trans_params, decoded, score], {word_ids: words, sequence_lengths: lengths}
    )
    same = right = total = 0
    for i, n in enumerate(lengths):
        viterbi_seq, viterbi_score = tf.contrib.crf.viterbi_decode(unary[i, :n], moves)
        same += viterbi_seq == list(found[i, :n]) and abs(viterbi_score - best[i]) < 1e-3
        right += np.sum(np.array(viterbi_seq) == tags[i, :n])
        total += n
    print("the same as viterbi_decode", same, "right", right / total > 0.9)
    print("a 2 after a 0 is unlikely", bool(moves[0, 2] < moves[1, 2]))
