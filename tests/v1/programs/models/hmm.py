"""A hidden Markov model: forward algorithm, Viterbi and Baum-Welch by foldl, scan and assignments."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class HMM:
    def __init__(self, initial_prob, trans_prob, obs_prob):
        self.N = np.size(initial_prob)
        self.initial_prob = tf.Variable(initial_prob, dtype=tf.float64)
        self.trans_prob = tf.Variable(trans_prob, dtype=tf.float64)
        self.emission = tf.Variable(obs_prob, dtype=tf.float64)
        assert self.initial_prob.shape == (self.N, 1)
        assert self.trans_prob.get_shape().as_list() == [self.N, self.N]
        self.obs = tf.placeholder(tf.int32, [None])
        self.fwd = tf.placeholder(tf.float64)
        self.obs_idx = tf.placeholder(tf.int32)
        self.first, self.next = self.forward_init_op(), self.forward_op()

    def get_emission(self, obs_idx):
        slice_location = [0, obs_idx]
        num_rows = tf.shape(self.emission)[0]
        slice_shape = [num_rows, 1]
        return tf.slice(self.emission, slice_location, slice_shape)

    def forward_init_op(self):
        return tf.multiply(self.initial_prob, self.get_emission(self.obs_idx))

    def forward_op(self):
        transitions = tf.matmul(self.fwd, tf.transpose(self.get_emission(self.obs_idx)))
        weighted = transitions * self.trans_prob
        return tf.reshape(tf.reduce_sum(weighted, 0), tf.shape(self.fwd))

    def log_forward(self):
        logA, logB = tf.log(self.trans_prob), tf.log(self.emission)
        first = tf.log(self.initial_prob[:, 0]) + tf.gather(logB, self.obs[0], axis=1)

        def step(alpha, o):
            return tf.reduce_logsumexp(alpha[:, None] + logA, axis=0) + logB[:, o]

        return tf.foldl(step, self.obs[1:], initializer=first), first, logA, logB

    def viterbi(self):
        _, first, logA, logB = self.log_forward()

        def step(acc, o):
            delta, _ = acc
            s = delta[:, None] + logA
            return tf.reduce_max(s, 0) + logB[:, o], tf.argmax(s, 0, output_type=tf.int32)

        delta, psi = tf.scan(step, self.obs[1:], (first, tf.zeros([self.N], tf.int32)))
        end = tf.argmax(delta[-1], output_type=tf.int32)
        back = tf.scan(lambda state, p: p[state], tf.reverse(psi, [0]), initializer=end)
        return tf.reverse(tf.concat([[end], back], 0), axis=[0])

    def baum_welch(self):
        B = tf.transpose(tf.gather(tf.transpose(self.emission), self.obs))
        e = tf.unstack(tf.transpose(B), num=12)
        alpha = [self.initial_prob[:, 0] * e[0]]
        scale = [tf.reduce_sum(alpha[0])]
        alpha[0] /= scale[0]
        for t in range(1, 12):
            a = tf.squeeze(tf.matmul(alpha[-1][None], self.trans_prob), [0]) * e[t]
            scale.append(tf.reduce_sum(a))
            alpha.append(a / scale[-1])
        beta = [tf.ones([self.N], tf.float64)]
        for t in reversed(range(1, 12)):
            beta.insert(0, tf.linalg.matvec(self.trans_prob, e[t] * beta[0]) / scale[t])
        gamma = tf.stack(alpha) * tf.stack(beta)
        xi = tf.add_n(
            [
                tf.einsum("i,ij,j->ij", alpha[t], self.trans_prob, e[t + 1] * beta[t + 1]) / scale[t + 1]
                for t in range(11)
            ]
        )
        hot = tf.one_hot(self.obs, 3, dtype=tf.float64)
        new_b = tf.matmul(gamma, hot, transpose_a=True)
        with tf.control_dependencies([gamma, xi, new_b]):
            new = [gamma[0][:, None], xi / tf.reduce_sum(xi, 1, True), new_b / tf.reduce_sum(new_b, 1, keepdims=True)]
            new = [tf.identity(v) for v in new]
        with tf.control_dependencies(new):
            update = tf.tuple([v.assign(n) for v, n in zip([self.initial_prob, self.trans_prob, self.emission], new)])
        return update, tf.reduce_sum(tf.log(scale))


def forward_algorithm(sess, hmm, observations):
    fwd = sess.run(hmm.first, feed_dict={hmm.obs_idx: observations[0]})
    for t in range(1, len(observations)):
        fwd = sess.run(hmm.next, feed_dict={hmm.obs_idx: observations[t], hmm.fwd: fwd})
    return sess.run(tf.reduce_sum(fwd))


initial_prob = np.array([[0.6], [0.4]])
trans_prob = np.array([[0.7, 0.3], [0.4, 0.6]])
obs_prob = np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]])
hmm = HMM(initial_prob, trans_prob, obs_prob)
observations = [0, 1, 1, 2, 1, 0, 0, 2, 2, 2, 1, 0]
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(f"Probability of observing {observations} is {forward_algorithm(sess, hmm, observations):.4e}")
    total = tf.reduce_logsumexp(hmm.log_forward()[0])
    print("log %.6f" % sess.run(total, {hmm.obs: observations}))
    print(sess.run(hmm.viterbi(), {hmm.obs: observations}))
    update, ll = hmm.baum_welch()
    for i in range(6):
        l = sess.run(ll, {hmm.obs: observations})
        p, a, b = sess.run(update, {hmm.obs: observations})
        print(i, "%.5f" % l)
    print(np.round(a, 3), np.round(b, 3))
