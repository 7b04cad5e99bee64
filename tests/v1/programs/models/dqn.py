"""Q-learning with a target network, replay and epsilon-greedy actions on a corridor made here."""

import collections
import random

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class Corridor:
    size, actions = 6, 2

    def reset(self):
        self.at = 2
        return self.observation()

    def observation(self):
        return np.eye(self.size)[self.at]

    def step(self, action):
        self.at += 1 if action else -1
        done = self.at in (0, self.size - 1)
        return self.observation(), (1.0 if self.at == self.size - 1 else -0.2 * done - 0.01), done


class DQN:
    def __init__(self, n_states, n_actions, gamma=0.9):
        self.s = tf.placeholder(tf.float32, [None, n_states], name="s")
        self.s_ = tf.placeholder(tf.float32, [None, n_states], name="s_")
        self.r = tf.placeholder(tf.float32, [None], name="r")
        self.a = tf.placeholder(tf.int32, [None], name="a")
        self.done = tf.placeholder(tf.float32, [None], name="done")
        with tf.variable_scope("eval_net"):
            self.q_eval = self.build(self.s, n_actions, ["eval_net_params", tf.GraphKeys.GLOBAL_VARIABLES])
        with tf.variable_scope("target_net"):
            self.q_next = self.build(self.s_, n_actions, ["target_net_params", tf.GraphKeys.GLOBAL_VARIABLES])
        t_params, e_params = tf.get_collection("target_net_params"), tf.get_collection("eval_net_params")
        with tf.variable_scope("soft_replacement"):
            self.target_replace_op = [tf.assign(t, e) for t, e in zip(t_params, e_params)]
        q_target = tf.stop_gradient(self.r + gamma * (1.0 - self.done) * tf.reduce_max(self.q_next, axis=1))
        a_indices = tf.stack([tf.range(tf.shape(self.a)[0], dtype=tf.int32), self.a], axis=1)
        q_taken = tf.gather_nd(params=self.q_eval, indices=a_indices)
        by_mask = tf.reduce_sum(self.q_eval * tf.one_hot(self.a, n_actions), axis=1)
        self.agree = tf.reduce_all(tf.equal(q_taken, by_mask))
        self.loss = tf.reduce_mean(tf.squared_difference(q_target, q_taken, name="TD_error"))
        self.train_op = tf.train.RMSPropOptimizer(0.02).minimize(self.loss, var_list=e_params)

    def build(self, s, n_actions, c_names):
        w_init, b_init = tf.random_normal_initializer(0.0, 0.3, seed=1), tf.constant_initializer(0.1)
        with tf.variable_scope("l1"):
            w1 = tf.get_variable("w1", [s.shape[1], 10], initializer=w_init, collections=c_names)
            b1 = tf.get_variable("b1", [1, 10], initializer=b_init, collections=c_names)
            l1 = tf.nn.relu(tf.matmul(s, w1) + b1)
        with tf.variable_scope("l2"):
            w2 = tf.get_variable("w2", [10, n_actions], initializer=w_init, collections=c_names, trainable=False)
            return tf.matmul(l1, w2)


env, memory = Corridor(), collections.deque(maxlen=60)
agent, chance = DQN(env.size, env.actions), random.Random(0)
tf.get_default_graph().finalize()
with tf.Session() as sess:
    init = [v.initializer for v in tf.global_variables()]
    sess.run(init)
    steps = 0
    for _ in range(15):
        s, done = env.reset(), False
        while not done:
            q = sess.run(agent.q_eval, {agent.s: s[np.newaxis]})
            a = chance.randrange(2) if chance.random() < 0.3 else int(np.argmax(q))
            s_, r, done = env.step(a)
            memory.append((s, a, r, s_, done))
            s = s_
            if len(memory) >= 16:
                if steps % 10 == 0:
                    sess.run(agent.target_replace_op)
                ss, aa, rr, ss_, dd = map(np.array, zip(*chance.sample(memory, 16)))
                feed = {agent.s: ss, agent.a: aa, agent.r: rr, agent.s_: ss_, agent.done: dd}
                _, loss, agree = sess.run([agent.train_op, agent.loss, agent.agree], feed)
                steps += 1
    print("steps", steps, "loss %.5f" % loss, agree)
    print(np.round(sess.run(agent.q_eval, {agent.s: np.eye(env.size)[1:-1]}), 4).tolist())
