"""Sequences are reversed by embedding_attention_seq2seq, in buckets of lengths."""

import numpy as np
import tensorflow as tf

PAD, GO, EOS, VOCABULARY = 0, 1, 2, 8
BUCKETS = [(3, 4), (5, 6)]
BATCH, SIZE = 16, 32


class Seq2SeqModel:
    def __init__(self, forward_only=False):
        cell = tf.contrib.rnn.GRUCell(SIZE)
        self.encoder_inputs = [tf.placeholder(tf.int32, [None], f"encoder{i}") for i in range(BUCKETS[-1][0])]
        self.decoder_inputs = [tf.placeholder(tf.int32, [None], f"decoder{i}") for i in range(BUCKETS[-1][1] + 1)]
        self.target_weights = [tf.placeholder(tf.float32, [None], f"weight{i}") for i in range(BUCKETS[-1][1] + 1)]
        targets = self.decoder_inputs[1:]
        self.feed_previous = tf.placeholder(tf.bool, [])

        def seq2seq_f(encoder_inputs, decoder_inputs):
            return tf.contrib.legacy_seq2seq.embedding_attention_seq2seq(
                encoder_inputs,
                decoder_inputs,
                cell,
                num_encoder_symbols=VOCABULARY,
                num_decoder_symbols=VOCABULARY,
                embedding_size=SIZE,
                feed_previous=self.feed_previous,
            )

        self.outputs, self.losses = tf.contrib.legacy_seq2seq.model_with_buckets(
            self.encoder_inputs, self.decoder_inputs, targets, self.target_weights, BUCKETS, seq2seq_f
        )
        params = tf.trainable_variables()
        optimizer = tf.train.AdamOptimizer(0.01)
        self.updates = []
        for loss in self.losses:
            clipped, _ = tf.clip_by_global_norm(tf.gradients(loss, params), 5.0)
            self.updates.append(optimizer.apply_gradients(zip(clipped, params)))

    def batch(self, bucket, rng):
        n, m = BUCKETS[bucket]
        rows, feeds = rng.randint(3, VOCABULARY, [BATCH, n]), {}
        wanted = np.concatenate([rows[:, ::-1], np.full([BATCH, 1], EOS)], 1)
        given = np.concatenate([np.full([BATCH, 1], GO), wanted], 1)
        for i in range(n):
            feeds[self.encoder_inputs[i]] = rows[:, i]
        for i in range(m + 1):
            feeds[self.decoder_inputs[i]] = given[:, i]
            feeds[self.target_weights[i]] = np.full(BATCH, i < m, np.float32)
        return feeds, wanted


tf.set_random_seed(4)
model = Seq2SeqModel()
print([len(outputs) for outputs in model.outputs])
print([v.name for v in tf.trainable_variables() if "embedding_attention_decoder" in v.name])
rng = np.random.RandomState(0)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(400):
        bucket = step % 2
        feeds, _ = model.batch(bucket, rng)
        sess.run(model.updates[bucket], {**feeds, model.feed_previous: False})
    for bucket in range(2):
        feeds, wanted = model.batch(bucket, rng)
        logits, loss = sess.run([model.outputs[bucket], model.losses[bucket]], {**feeds, model.feed_previous: True})
        right = np.mean(np.argmax(np.stack(logits, 1), 2) == wanted)
        print("bucket", bucket, right > 0.8, bool(np.isfinite(loss)))
