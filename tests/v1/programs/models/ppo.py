"""PPO with tf.distributions, a dataset of the batch, clipped ratio and value."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class PPO:
    def __init__(self, s_dim, a_dim, summary_dir):
        tf.reset_default_graph()
        tf.set_random_seed(5)
        self.sess = tf.Session(
            config=tf.ConfigProto(device_count={"GPU": 0}, log_device_placement=False, allow_soft_placement=True)
        )
        self.actions = tf.placeholder(tf.float32, [None, a_dim], "action")
        self.state = tf.placeholder(tf.float32, [None, s_dim], "state")
        self.advantage = tf.placeholder(tf.float32, [None, 1], "advantage")
        self.rewards = tf.placeholder(tf.float32, [None, 1], "discounted_r")
        self.dataset = tf.data.Dataset.from_tensor_slices(
            {"state": self.state, "actions": self.actions, "rewards": self.rewards, "advantage": self.advantage}
        )
        self.dataset = self.dataset.batch(16)
        self.dataset = self.dataset.cache()
        self.dataset = self.dataset.repeat(3)
        self.iterator = tf.data.make_initializable_iterator(self.dataset)
        batch = self.iterator.get_next()
        pi_old, pi_old_params, _, _ = self.build_anet(batch["state"], a_dim, "oldpi")
        pi, pi_params, _pi_i, self.sigma = self.build_anet(batch["state"], a_dim, "pi")
        pi_eval, _, self.eval_i, _ = self.build_anet(self.state, a_dim, "pi", reuse=True)
        vf_old, vf_old_params = self.build_cnet(batch["state"], "oldvf")
        self.vf, vf_params = self.build_cnet(batch["state"], "vf")
        self.vf_eval, _ = self.build_cnet(self.state, "vf", reuse=True)
        self.sample_op = tf.squeeze(pi_eval.sample(1, seed=11), axis=0, name="sample_action")
        self.eval_action = pi_eval.mode()
        self.global_step = tf.train.get_or_create_global_step()
        self.saver = tf.train.Saver()
        with tf.variable_scope("loss"):
            epsilon_decay = tf.train.polynomial_decay(0.2, self.global_step, 1e5, 0.01, power=0.0)
            with tf.variable_scope("policy"):
                ratio = tf.maximum(pi.prob(batch["actions"]), 1e-6) / tf.maximum(pi_old.prob(batch["actions"]), 1e-6)
                ratio = tf.clip_by_value(ratio, 0, 10)
                surr1 = batch["advantage"] * ratio
                surr2 = batch["advantage"] * tf.clip_by_value(ratio, 1 - epsilon_decay, 1 + epsilon_decay)
                loss_pi = -tf.reduce_mean(tf.minimum(surr1, surr2))
                tf.summary.scalar("loss", loss_pi)
            with tf.variable_scope("value_function"):
                clipped = vf_old + tf.clip_by_value(self.vf - vf_old, -0.2, 0.2)
                loss_vf = (
                    tf.reduce_mean(
                        tf.maximum(tf.square(clipped - batch["rewards"]), tf.square(self.vf - batch["rewards"]))
                    )
                    * 0.5
                )
                tf.summary.scalar("loss", loss_vf)
            with tf.variable_scope("entropy"):
                entropy = pi.entropy()
                pol_entpen = -0.01 * tf.reduce_mean(entropy)
            self.kl = tf.reduce_mean(tf.distributions.kl_divergence(pi_old, pi))
            loss = loss_pi + loss_vf * 1.0 + pol_entpen
            tf.summary.scalar("total", loss)
            tf.summary.scalar("sigma", tf.reduce_mean(self.sigma))
        with tf.variable_scope("train"):
            opt = tf.train.AdamOptimizer(0.01)
            grads, vs = zip(*opt.compute_gradients(loss, var_list=pi_params + vf_params))
            grads, self.norm = tf.clip_by_global_norm(grads, 0.5)
            self.train_op = opt.apply_gradients(zip(grads, vs), global_step=self.global_step)
        with tf.variable_scope("update_old"):
            self.update_pi_old_op = [oldp.assign(p) for p, oldp in zip(pi_params, pi_old_params)]
            self.update_vf_old_op = [oldp.assign(p) for p, oldp in zip(vf_params, vf_old_params)]
        self.writer = tf.summary.FileWriter(summary_dir, self.sess.graph)
        self.sess.run(tf.global_variables_initializer())
        self.summarise = tf.summary.merge(tf.get_collection(tf.GraphKeys.SUMMARIES))
        self.loss = loss

    def build_anet(self, state_in, a_dim, name, reuse=False):
        reg = None
        with tf.variable_scope(name, reuse=reuse):
            layer_a1 = tf.layers.dense(state_in, 24, tf.nn.relu, kernel_regularizer=reg)
            layer_a2 = tf.layers.dense(layer_a1, 16, tf.nn.relu, kernel_regularizer=reg)
            mu = tf.layers.dense(layer_a2, a_dim, tf.nn.tanh, kernel_regularizer=reg)
            log_sigma = tf.get_variable(name="pi_sigma", shape=a_dim, initializer=tf.zeros_initializer())
            norm_dist = tf.distributions.Normal(loc=mu, scale=tf.maximum(tf.exp(log_sigma), 0.0))
        params = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope=name)
        return norm_dist, params, None, tf.exp(log_sigma)

    def build_cnet(self, state_in, name, reuse=False):
        with tf.variable_scope(name, reuse=reuse):
            l1 = tf.layers.dense(state_in, 24, tf.nn.relu)
            vf = tf.layers.dense(l1, 1)
        return vf, tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope=name)

    def update(self, s, a, r, adv):
        self.sess.run(
            [self.update_pi_old_op, self.update_vf_old_op, self.iterator.initializer],
            feed_dict={self.state: s, self.actions: a, self.rewards: r, self.advantage: adv},
        )
        n = 0
        while True:
            try:
                summary, step, loss, kl, norm, _ = self.sess.run(
                    [self.summarise, self.global_step, self.loss, self.kl, self.norm, self.train_op]
                )
                n += 1
            except tf.errors.OutOfRangeError:
                break
        self.writer.add_summary(summary, step)
        self.writer.flush()
        return n, loss, kl, norm


folder = tempfile.mkdtemp()
ppo = PPO(3, 2, folder)
rng = np.random.RandomState(3)
target = np.array([[0.5, -0.5], [0.2, 0.1], [-0.3, 0.4]])
for episode in range(4):
    s = rng.normal(size=(40, 3)).astype(np.float32)
    a, v = ppo.sess.run([ppo.sample_op, ppo.vf_eval], {ppo.state: s})
    r = -np.square(np.clip(a, -2, 2) - np.tanh(s @ target)).sum(1, keepdims=True)
    adv = r - v
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    n, loss, kl, norm = ppo.update(s, a, r, adv)
    print("episode", episode, "batches", n, "reward %.4f loss %.4f kl %.5f norm %.4f" % (r.mean(), loss, kl, norm))
print(ppo.sess.run(ppo.eval_action, {ppo.state: np.eye(3)}).round(4))
ppo.writer.close()
for f in sorted(os.listdir(folder)):
    for e in tf.train.summary_iterator(os.path.join(folder, f)):
        if e.summary.value:
            print(e.step, [(v.tag, round(v.simple_value, 3)) for v in e.summary.value])
