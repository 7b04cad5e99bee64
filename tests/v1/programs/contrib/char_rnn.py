"""A character-level language model, unrolled by legacy_seq2seq.rnn_decoder, and text sampled from it."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import legacy_seq2seq, rnn

TEXT = "to be or not to be, that is the question. " * 6
VOCABULARY = sorted(set(TEXT))
IDS = {c: i for i, c in enumerate(VOCABULARY)}
SIZE, LAYERS, STEPS, BATCH = 32, 2, 12, 4


class Model:
    def __init__(self, infer=False):
        batch, steps = (1, 1) if infer else (BATCH, STEPS)
        cells = [rnn.BasicLSTMCell(SIZE) for _ in range(LAYERS)]
        self.cell = cell = rnn.MultiRNNCell(cells, state_is_tuple=True)
        self.input_data = tf.placeholder(tf.int32, [batch, steps])
        self.targets = tf.placeholder(tf.int32, [batch, steps])
        self.initial_state = cell.zero_state(batch, tf.float32)
        with tf.variable_scope("rnnlm"):
            softmax_w = tf.get_variable("softmax_w", [SIZE, len(VOCABULARY)])
            softmax_b = tf.get_variable("softmax_b", [len(VOCABULARY)])
        embedding = tf.get_variable("embedding", [len(VOCABULARY), SIZE])
        inputs = tf.nn.embedding_lookup(embedding, self.input_data)
        inputs = [tf.squeeze(x, [1]) for x in tf.split(inputs, steps, 1)]

        def loop(prev, _):
            prev = tf.matmul(prev, softmax_w) + softmax_b
            return tf.nn.embedding_lookup(embedding, tf.stop_gradient(tf.argmax(prev, 1)))

        outputs, last_state = legacy_seq2seq.rnn_decoder(
            inputs, self.initial_state, cell, loop_function=loop if infer else None, scope="rnnlm"
        )
        output = tf.reshape(tf.concat(outputs, 1), [-1, SIZE])
        self.logits = tf.matmul(output, softmax_w) + softmax_b
        self.probs = tf.nn.softmax(self.logits)
        self.final_state = last_state
        if infer:
            return
        loss = legacy_seq2seq.sequence_loss_by_example(
            [self.logits], [tf.reshape(self.targets, [-1])], [tf.ones([batch * steps])]
        )
        self.cost = tf.reduce_sum(loss) / batch / steps
        self.lr = tf.Variable(0.0, trainable=False)
        tvars = tf.trainable_variables()
        grads, _ = tf.clip_by_global_norm(tf.gradients(self.cost, tvars), 5.0)
        self.train_op = tf.train.AdamOptimizer(self.lr).apply_gradients(zip(grads, tvars))


data = np.array([IDS[c] for c in TEXT])
usable = (len(data) - 1) // (BATCH * STEPS) * BATCH * STEPS
xs = np.split(data[:usable].reshape(BATCH, -1), usable // BATCH // STEPS, 1)
ys = np.split(data[1 : usable + 1].reshape(BATCH, -1), usable // BATCH // STEPS, 1)

tf.set_random_seed(1)
model = Model()
with tf.variable_scope("", reuse=True):
    sampler = Model(infer=True)
print([v.name for v in tf.trainable_variables()])
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(tf.assign(model.lr, 0.01))
    for _ in range(40):
        state = sess.run(model.initial_state)
        for x, y in zip(xs, ys):
            feed = {model.input_data: x, model.targets: y}
            for i, (c, h) in enumerate(model.initial_state):
                feed[c], feed[h] = state[i].c, state[i].h
            cost, state, _ = sess.run([model.cost, model.final_state, model.train_op], feed)
    print("learned", cost < 0.3)

    def fed(c, state):
        feed = {sampler.input_data: [[IDS[c]]]}
        for i, (cell_state, h) in enumerate(sampler.initial_state):
            feed[cell_state], feed[h] = state[i].c, state[i].h
        return feed

    text, state = "to be", sess.run(sampler.initial_state)
    for c in text[:-1]:
        state = sess.run(sampler.final_state, fed(c, state))
    for _ in range(30):
        probs, state = sess.run([sampler.probs, sampler.final_state], fed(text[-1], state))
        text += VOCABULARY[int(np.argmax(probs[0]))]
    print("in the text", text[5:20] in TEXT)
