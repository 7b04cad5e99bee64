"""Memory networks: an end-to-end memory network with position encoding, and a DNC's allocation by sorting."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def position_encoding(sentence_size, embedding_size):
    encoding = np.ones((embedding_size, sentence_size), dtype=np.float32)
    ls, le = sentence_size + 1, embedding_size + 1
    for i in range(1, le):
        for j in range(1, ls):
            encoding[i - 1, j - 1] = (i - (embedding_size + 1) / 2) * (j - (sentence_size + 1) / 2)
    encoding = 1 + 4 * encoding / embedding_size / sentence_size
    encoding[:, -1] = 1.0
    return np.transpose(encoding)


def zero_nil_slot(t, name=None):
    with tf.name_scope(name, "zero_nil_slot", [t]) as name:
        t = tf.convert_to_tensor(t, name="t")
        s = tf.shape(t)[1]
        z = tf.zeros(tf.stack([1, s]))
        return tf.concat(axis=0, values=[z, tf.slice(t, [1, 0], [-1, -1])], name=name)


def add_gradient_noise(t, stddev=1e-3, name=None):
    with tf.name_scope(name, "add_gradient_noise", [t, stddev]) as name:
        t = tf.convert_to_tensor(t, name="t")
        gn = tf.random_normal(tf.shape(t), stddev=stddev, seed=6)
        return tf.add(t, gn, name=name)


class MemN2N:
    def __init__(
        self, batch_size, vocab_size, sentence_size, memory_size, embedding_size, hops=2, session=None, name="MemN2N"
    ):
        self._hops, self._name, self._embedding_size = hops, name, embedding_size
        self._stories = tf.placeholder(tf.int32, [None, memory_size, sentence_size], name="stories")
        self._queries = tf.placeholder(tf.int32, [None, sentence_size], name="queries")
        self._answers = tf.placeholder(tf.int32, [None, vocab_size], name="answers")
        self._lr = tf.placeholder(tf.float32, [], name="learning_rate")
        self._encoding = tf.constant(position_encoding(sentence_size, embedding_size), name="encoding")
        init = tf.random_normal_initializer(stddev=0.1, seed=3)
        with tf.variable_scope(name):
            nil = tf.zeros([1, embedding_size])
            A = tf.concat(axis=0, values=[nil, init([vocab_size - 1, embedding_size])])
            C = tf.concat(axis=0, values=[nil, init([vocab_size - 1, embedding_size])])
            self.A_1 = tf.Variable(A, name="A")
            self.C = []
            for hopn in range(hops):
                with tf.variable_scope(f"hop_{hopn}"):
                    self.C.append(tf.Variable(C, name="C"))
        self._nil_vars = set([self.A_1.name] + [x.name for x in self.C])
        logits = self._inference(self._stories, self._queries)
        cross_entropy = tf.nn.softmax_cross_entropy_with_logits(
            logits=logits, labels=tf.cast(self._answers, tf.float32), name="cross_entropy"
        )
        self.loss_op = tf.reduce_sum(cross_entropy, name="cross_entropy_sum")
        self._opt = tf.train.GradientDescentOptimizer(learning_rate=self._lr)
        grads_and_vars = self._opt.compute_gradients(self.loss_op)
        grads_and_vars = [(tf.clip_by_norm(g, 4.0), v) for g, v in grads_and_vars]
        grads_and_vars = [(add_gradient_noise(g), v) for g, v in grads_and_vars]
        nil_grads_and_vars = []
        for g, v in grads_and_vars:
            nil_grads_and_vars.append((zero_nil_slot(g), v) if v.name in self._nil_vars else (g, v))
        self.train_op = self._opt.apply_gradients(nil_grads_and_vars, name="train_op")
        self.predict_op = tf.argmax(logits, 1, name="predict_op")
        self.log_proba = tf.log(tf.nn.softmax(logits))

    def _inference(self, stories, queries):
        with tf.variable_scope(self._name):
            q_emb = tf.nn.embedding_lookup(self.A_1, queries)
            u = [tf.reduce_sum(q_emb * self._encoding, 1)]
            for hopn in range(self._hops):
                m_emb_A = tf.nn.embedding_lookup(self.A_1 if hopn == 0 else self.C[hopn - 1], stories)
                m_A = tf.reduce_sum(m_emb_A * self._encoding, 2)
                u_temp = tf.transpose(tf.expand_dims(u[-1], -1), [0, 2, 1])
                probs = tf.nn.softmax(tf.reduce_sum(m_A * u_temp, 2))
                probs_temp = tf.transpose(tf.expand_dims(probs, -1), [0, 2, 1])
                m_C = tf.reduce_sum(tf.nn.embedding_lookup(self.C[hopn], stories) * self._encoding, 2)
                c_temp = tf.transpose(m_C, [0, 2, 1])
                u.append(u[-1] + tf.reduce_sum(c_temp * probs_temp, 2))
            return tf.matmul(u[-1], tf.transpose(self.C[-1], [1, 0]))


def allocation(usage):
    """DNC: allocation weighting from the free list."""
    sorted_nonusage, indices = tf.nn.top_k(1 - usage, k=5, name="sort")
    sorted_usage = 1 - sorted_nonusage
    prod = tf.cumprod(sorted_usage, axis=1, exclusive=True)
    sorted_allocation = sorted_nonusage * prod
    inverse = tf.map_fn(tf.invert_permutation, indices)
    b = tf.shape(usage)[0]
    rows = tf.tile(tf.range(b)[:, None], [1, 5])
    return tf.gather_nd(sorted_allocation, tf.stack([rows, inverse], -1))


def link(prev_link, prev_precedence, write):
    w_i, w_j = tf.expand_dims(write, 2), tf.expand_dims(write, 1)
    new = (1 - w_i - w_j) * prev_link + w_i * tf.expand_dims(prev_precedence, 1)
    new = tf.matrix_set_diag(new, tf.zeros(tf.shape(write)))
    return new, (1 - tf.reduce_sum(write, 1, keepdims=True)) * prev_precedence + write


model = MemN2N(8, 10, 3, 4, 6)
usage = tf.placeholder(tf.float32, [None, 5])
alloc = allocation(usage)
L, prec = link(tf.zeros([2, 5, 5]), tf.one_hot([0, 1], 5), alloc)
alloc_grad = tf.gradients(tf.reduce_sum(tf.square(L)), usage)[0]
rng = np.random.RandomState(4)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for e in range(40):
        stories = rng.randint(1, 10, [8, 4, 3])
        which = rng.randint(0, 4, 8)
        queries = np.zeros([8, 3], np.int64)
        queries[:, 0] = stories[np.arange(8), which, 0]
        answers = np.eye(10)[stories[np.arange(8), which, 2]]
        feed = {model._stories: stories, model._queries: queries, model._answers: answers, model._lr: 0.05}
        cost, _ = sess.run([model.loss_op, model.train_op], feed_dict=feed)
        if e % 10 == 9:
            print(e, "%.4f" % cost)
    print(sess.run(model.A_1)[0], sess.run(model.predict_op, feed))
    u = [[0.1, 0.9, 0.4, 0.2, 0.6], [0.5, 0.3, 0.2, 0.8, 0.9]]
    print(np.round(sess.run(alloc, {usage: u}), 4))
    print(np.round(sess.run(L, {usage: u})[1], 3), np.round(sess.run(alloc_grad, {usage: u}), 3))
