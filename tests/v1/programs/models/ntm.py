"""A neural Turing machine, an RNNCell of its own, on the copy task."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

NTMState = collections.namedtuple("NTMState", ("controller_state", "read_vector", "w_list", "M"))


def learned_init(units, name, seed):
    return tf.squeeze(
        tf.layers.dense(
            tf.ones([1, 1]),
            units,
            activation=None,
            bias_initializer=None,
            use_bias=False,
            kernel_initializer=tf.random_normal_initializer(stddev=0.1, seed=seed),
            name=name,
        )
    )


class NTMCell(tf.nn.rnn_cell.RNNCell):
    def __init__(self, units, N, W, output_dim, shift_range=1):
        super().__init__()
        self.N, self.W, self.output_dim, self.shift_range = N, W, output_dim, shift_range
        self.controller = tf.nn.rnn_cell.BasicLSTMCell(units)
        self.step = 0

    @property
    def state_size(self):
        return NTMState(self.controller.state_size, self.W, [self.N, self.N], tf.TensorShape([self.N, self.W]))

    @property
    def output_size(self):
        return self.output_dim

    def __call__(self, x, prev_state, scope=None):
        inputs = tf.concat([x, prev_state.read_vector], axis=1)
        with tf.variable_scope("controller", reuse=tf.AUTO_REUSE):
            h, controller_state = self.controller(inputs, prev_state.controller_state)
        per_head = self.W + 1 + 1 + (self.shift_range * 2 + 1) + 1
        with tf.variable_scope("o2p", reuse=tf.AUTO_REUSE):
            params = tf.layers.dense(
                h,
                per_head * 2 + 2 * self.W,
                kernel_initializer=tf.random_normal_initializer(stddev=0.3, seed=7),
                name="p",
            )
            params = tf.clip_by_value(params, -20, 20)
        heads = tf.split(params[:, : per_head * 2], 2, axis=1)
        erase_add = tf.split(params[:, per_head * 2 :], 2, axis=1)
        w_list = []
        for i, head in enumerate(heads):
            key = tf.tanh(head[:, 0 : self.W])
            beta = tf.nn.softplus(head[:, self.W])
            gate = tf.sigmoid(head[:, self.W + 1])
            shift = tf.nn.softmax(head[:, self.W + 2 : self.W + 2 + self.shift_range * 2 + 1])
            gamma = tf.nn.softplus(head[:, -1]) + 1
            with tf.variable_scope("addressing_head_%d" % i):
                w_list.append(self.addressing(key, beta, gate, shift, gamma, prev_state.M, prev_state.w_list[i]))
        read = tf.reduce_sum(tf.expand_dims(w_list[0], 2) * prev_state.M, axis=1)
        w = tf.expand_dims(w_list[1], axis=2)
        erase = tf.expand_dims(tf.sigmoid(erase_add[0]), axis=1)
        add = tf.expand_dims(tf.tanh(erase_add[1]), axis=1)
        M = prev_state.M * (tf.ones(prev_state.M.get_shape()) - tf.matmul(w, erase)) + tf.matmul(w, add)
        with tf.variable_scope("o2o", reuse=tf.AUTO_REUSE):
            out = tf.layers.dense(
                tf.concat([h, read], 1),
                self.output_dim,
                kernel_initializer=tf.random_normal_initializer(stddev=0.3, seed=8),
                name="o",
            )
        self.step += 1
        return tf.clip_by_value(out, -20, 20), NTMState(controller_state, read, w_list, M)

    def addressing(self, key, beta, gate, shift, gamma, M, w_prev):
        key = tf.expand_dims(key, axis=2)
        inner = tf.matmul(M, key)
        k_norm = tf.sqrt(tf.reduce_sum(tf.square(key), axis=1, keepdims=True))
        m_norm = tf.sqrt(tf.reduce_sum(tf.square(M), axis=2, keepdims=True))
        K = tf.squeeze(inner / (m_norm * k_norm + 1e-8), axis=[2])
        K_amplified = tf.exp(tf.expand_dims(beta, axis=1) * K)
        w_c = K_amplified / tf.reduce_sum(K_amplified, axis=1, keepdims=True)
        g = tf.expand_dims(gate, axis=1)
        w_g = g * w_c + (1 - g) * w_prev
        s = tf.concat(
            [shift[:, : self.shift_range + 1], tf.zeros([shift.get_shape()[0], self.N - 3]), shift[:, -1:]], 1
        )
        t = tf.concat([tf.reverse(s, axis=[1]), tf.reverse(s, axis=[1])], axis=1)
        s_matrix = tf.stack([t[:, self.N - i - 1 : self.N * 2 - i - 1] for i in range(self.N)], axis=1)
        w_ = tf.reduce_sum(tf.expand_dims(w_g, axis=1) * s_matrix, axis=2)
        w_sharpen = tf.pow(w_, tf.expand_dims(gamma, axis=1))
        return w_sharpen / tf.reduce_sum(w_sharpen, axis=1, keepdims=True)

    def zero_state(self, batch_size, dtype):
        def expand(x, n):
            return tf.tile(tf.expand_dims(x, 0), [n] + [1] * len(x.shape.as_list()))

        with tf.variable_scope("init", reuse=tf.AUTO_REUSE):
            read = expand(tf.tanh(learned_init(self.W, "r", 1)), batch_size)
            w = [expand(tf.nn.softmax(learned_init(self.N, "w%d" % i, 2 + i)), batch_size) for i in range(2)]
            state = self.controller.zero_state(batch_size, dtype)
            M = expand(tf.get_variable("M", [self.N, self.W], initializer=tf.constant_initializer(1e-6)), batch_size)
            return NTMState(state, read, w, M)


B, T, V = 4, 3, 4
tf.set_random_seed(12)
x = tf.placeholder(tf.float32, [B, 2 * T + 1, V + 1])
y = tf.placeholder(tf.float32, [B, T, V])
cell = NTMCell(10, 6, 5, V)
with tf.variable_scope("root", initializer=tf.random_uniform_initializer(-0.3, 0.3, seed=5)):
    outputs, final = tf.nn.dynamic_rnn(cell, x, initial_state=cell.zero_state(B, tf.float32), time_major=False)
logits = outputs[:, T + 1 :, :]
loss = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)) / B
optimizer = tf.train.RMSPropOptimizer(1e-2, momentum=0.9, decay=0.9)
trainable = tf.trainable_variables()
grads, norm = tf.clip_by_global_norm(tf.gradients(loss, trainable), 5.0)
train = optimizer.apply_gradients(zip(grads, trainable))
rng = np.random.RandomState(3)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(12):
        bits = rng.randint(0, 2, [B, T, V])
        seq = np.zeros([B, 2 * T + 1, V + 1])
        seq[:, :T, :V] = bits
        seq[:, T, V] = 1
        l, n, _ = sess.run([loss, norm, train], {x: seq, y: bits})
        if i % 4 == 3:
            print(i, "loss %.4f norm %.4f" % (l, n))
    state = sess.run(final, {x: seq})
    print(type(state).__name__, state.M.shape, len(state.w_list), np.round(state.w_list[1].sum(1), 3))
print(sorted(v.name for v in trainable))
