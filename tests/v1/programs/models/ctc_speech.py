"""A bidirectional LSTM over frames, trained by CTC, decoded greedily and by beams."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

num_features, num_hidden, num_classes, batch, frames = 6, 10, 5, 3, 14
rng = np.random.RandomState(18)
transcripts = [rng.randint(num_classes - 1, size=n) for n in (3, 4, 2)]
audio = rng.normal(scale=0.2, size=(batch, frames, num_features)).astype(np.float32)
lengths = np.array([12, 14, 9])
for i, words in enumerate(transcripts):
    for k, word in enumerate(words):
        audio[i, 3 * k + 1 : 3 * k + 3, word] += 2.0


def sparse_tuple_from(sequences, dtype=np.int32):
    indices = [(n, i) for n, seq in enumerate(sequences) for i in range(len(seq))]
    shape = np.asarray([len(sequences), np.asarray(indices).max(0)[1] + 1], dtype=np.int64)
    return np.asarray(indices, dtype=np.int64), np.concatenate(sequences).astype(dtype), shape


graph = tf.Graph()
with graph.as_default():
    inputs = tf.placeholder(tf.float32, [None, None, num_features])
    targets = tf.sparse_placeholder(tf.int32)
    seq_len = tf.placeholder(tf.int32, [None])
    with tf.variable_scope("net", initializer=tf.random_uniform_initializer(-0.3, 0.3, seed=2)):
        fw, bw = (tf.nn.rnn_cell.LSTMCell(num_hidden, state_is_tuple=True) for _ in range(2))
        outputs, _ = tf.nn.bidirectional_dynamic_rnn(fw, bw, inputs, seq_len, dtype=tf.float32)
    shape = tf.shape(inputs)
    flat = tf.reshape(tf.concat(outputs, 2), [-1, 2 * num_hidden])
    W = tf.Variable(tf.truncated_normal([2 * num_hidden, num_classes], stddev=0.1, seed=3))
    b = tf.Variable(tf.constant(0.0, shape=[num_classes]))
    logits = tf.transpose(tf.reshape(tf.matmul(flat, W) + b, [shape[0], -1, num_classes]), (1, 0, 2))
    loss = tf.nn.ctc_loss(targets, logits, seq_len)
    cost = tf.reduce_mean(loss)
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9).minimize(cost)
    greedy, neg_sum = tf.nn.ctc_greedy_decoder(logits, seq_len)
    beams, log_prob = tf.nn.ctc_beam_search_decoder(logits, seq_len, beam_width=8, top_paths=2)
    ler = tf.reduce_mean(tf.edit_distance(tf.cast(beams[0], tf.int32), targets))

with tf.Session(graph=graph) as session:
    tf.global_variables_initializer().run()
    feed = {inputs: audio, targets: sparse_tuple_from(transcripts), seq_len: lengths}
    for epoch in range(40):
        batch_cost, _ = session.run([cost, optimizer], feed)
        if epoch % 10 == 9:
            print("Epoch %d train_cost = %.3f, train_ler = %.3f" % (epoch + 1, batch_cost, session.run(ler, feed)))
    d, probability, n = session.run([greedy[0], log_prob, neg_sum], feed)
    print(d.dense_shape.tolist(), [str(w) for w in np.split(d.values, np.flatnonzero(np.diff(d.indices[:, 0])) + 1)])
    print(np.round(probability[:, 0], 3), np.round(n[:, 0], 2))
