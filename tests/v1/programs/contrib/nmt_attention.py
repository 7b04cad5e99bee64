"""Neural machine translation: an encoder, a decoder with attention, greedy decoding and beam search."""

import numpy as np
import tensorflow as tf

VOCABULARY, UNITS, GO, EOS, WIDTH, LENGTH = 8, 32, 0, 1, 3, 4


def build(mode, source, source_length, target=None, target_length=None):
    batch = tf.shape(source)[0]
    with tf.variable_scope("encoder"):
        embedding = tf.get_variable("embedding", [VOCABULARY, UNITS])
        cells = [tf.contrib.rnn.GRUCell(UNITS // 2) for _ in range(2)]
        outputs, states = tf.nn.bidirectional_dynamic_rnn(
            cells[0], cells[1], tf.nn.embedding_lookup(embedding, source), source_length, dtype=tf.float32
        )
        memory, state = tf.concat(outputs, 2), tf.concat(states, 1)
    if mode == "beam":
        memory, state, source_length = tf.contrib.seq2seq.tile_batch((memory, state, source_length), WIDTH)
    with tf.variable_scope("decoder_part"):
        embedding = tf.get_variable("embedding", [VOCABULARY, UNITS])
        attention = tf.contrib.seq2seq.BahdanauAttention(UNITS, memory, source_length, normalize=True)
        cell = tf.contrib.seq2seq.AttentionWrapper(
            tf.contrib.rnn.GRUCell(UNITS), attention, attention_layer_size=UNITS, name="attention"
        )
        layer = tf.layers.Dense(VOCABULARY, use_bias=False, name="projection")
        first = cell.zero_state(batch * (WIDTH if mode == "beam" else 1), tf.float32).clone(cell_state=state)
        if mode == "train":
            inputs = tf.concat([tf.fill([batch, 1], GO), target[:, :-1]], 1)
            helper = tf.contrib.seq2seq.TrainingHelper(tf.nn.embedding_lookup(embedding, inputs), target_length)
            decoder = tf.contrib.seq2seq.BasicDecoder(cell, helper, first, layer)
            outputs, _, _ = tf.contrib.seq2seq.dynamic_decode(decoder, impute_finished=True)
            weights = tf.sequence_mask(target_length, tf.shape(target)[1], tf.float32)
            return tf.contrib.seq2seq.sequence_loss(outputs.rnn_output, target, weights)
        start = tf.fill([batch], GO)
        if mode == "greedy":
            helper = tf.contrib.seq2seq.GreedyEmbeddingHelper(embedding, start, EOS)
            decoder = tf.contrib.seq2seq.BasicDecoder(cell, helper, first, layer)
        else:
            decoder = tf.contrib.seq2seq.BeamSearchDecoder(
                cell, embedding, start, EOS, first, WIDTH, layer, length_penalty_weight=0.5
            )
        outputs, _, _ = tf.contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=LENGTH + 3)
        return outputs.sample_id if mode == "greedy" else outputs.predicted_ids


def sentences(n, rng):
    """The translation of a sentence is the sentence in reverse, each word plus one."""
    lengths = rng.randint(2, LENGTH + 1, n)
    source, target = np.zeros([n, LENGTH], np.int32), np.full([n, LENGTH + 1], EOS, np.int32)
    for i, m in enumerate(lengths):
        source[i, :m] = rng.randint(2, VOCABULARY - 1, m)
        target[i, :m] = source[i, :m][::-1] + 1
    return source, lengths, target, lengths + 1


tf.set_random_seed(3)
source = tf.placeholder(tf.int32, [None, None])
source_length = tf.placeholder(tf.int32, [None])
target = tf.placeholder(tf.int32, [None, None])
target_length = tf.placeholder(tf.int32, [None])
with tf.variable_scope("nmt"):
    loss = build("train", source, source_length, target, target_length)
with tf.variable_scope("nmt", reuse=True):
    greedy = build("greedy", source, source_length)
    beams = build("beam", source, source_length)
params = tf.trainable_variables()
for v in params:
    print(v.name, v.shape.as_list())
gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, params), 5.0)
train = tf.train.AdamOptimizer(0.01).apply_gradients(zip(gradients, params))

rng = np.random.RandomState(0)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(250):
        x, n, y, m = sentences(32, rng)
        value, _ = sess.run([loss, train], {source: x, source_length: n, target: y, target_length: m})
    print("learned", value < 0.2)
    x, n, y, m = sentences(20, rng)
    feed = {source: x, source_length: n}
    ids, found = sess.run([greedy, beams], feed)
    right = [list(ids[i, : m[i]]) == list(y[i, : m[i]]) for i in range(20)]
    best = [list(found[i, : m[i], 0]) == list(y[i, : m[i]]) for i in range(20)]
    print("greedy", np.mean(right) > 0.8, "beam", np.mean(best) > 0.8, found.shape[2])
