"""An actor and a critic; workers copy a global network and push gradients to it."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class ACNet:
    def __init__(self, scope, optimizer=None, global_net=None):
        with tf.variable_scope(scope):
            self.s = tf.placeholder(tf.float32, [None, 3], "S")
            init = tf.random_normal_initializer(0.0, 0.3, seed=1)
            with tf.variable_scope("actor"):
                l_a = tf.layers.dense(self.s, 10, tf.nn.relu6, kernel_initializer=init, name="la")
                mu = tf.layers.dense(l_a, 1, tf.nn.tanh, kernel_initializer=init, name="mu")
                sigma = tf.layers.dense(l_a, 1, tf.nn.softplus, kernel_initializer=init, name="sigma")
            with tf.variable_scope("critic"):
                l_c = tf.layers.dense(self.s, 10, tf.nn.relu6, kernel_initializer=init, name="lc")
                self.v = tf.layers.dense(l_c, 1, kernel_initializer=init, name="v")
        self.a_params = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope + "/actor")
        self.c_params = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope + "/critic")
        if global_net is None:
            return
        with tf.name_scope(scope + "_train"):
            self.a_his = tf.placeholder(tf.float32, [None, 1], "A")
            self.v_target = tf.placeholder(tf.float32, [None, 1], "Vtarget")
            td = tf.subtract(self.v_target, self.v, name="TD_error")
            self.c_loss = tf.reduce_mean(tf.square(td))
            normal_dist = tf.distributions.Normal(mu, sigma + 1e-4)
            exp_v = normal_dist.log_prob(self.a_his) * tf.stop_gradient(td)
            self.a_loss = tf.reduce_mean(-(0.01 * normal_dist.entropy() + exp_v))
            self.action = tf.clip_by_value(tf.squeeze(normal_dist.sample(1, seed=3), axis=[0, 1]), [-1.0], [1.0])
            grads = tf.gradients(self.a_loss + 0.5 * self.c_loss, self.a_params + self.c_params)
            grads, self.norm = tf.clip_by_global_norm(grads, 0.5)
        with tf.name_scope("sync"):
            shared = global_net.a_params + global_net.c_params
            self.pull = [mine.assign(theirs) for mine, theirs in zip(self.a_params + self.c_params, shared)]
            self.update = optimizer.apply_gradients(zip(grads, shared))


optimizer = tf.train.RMSPropOptimizer(0.01, decay=0.99, epsilon=1e-5, name="RMSProp")
shared = ACNet("Global_Net")
workers = [ACNet(f"W_{i}", optimizer, shared) for i in range(2)]
print(len(tf.trainable_variables()), [v.name for v in workers[1].a_params])
rng = np.random.RandomState(13)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for update in range(8):
        for worker in workers:
            sess.run(worker.pull)
            s = rng.normal(size=(6, 3))
            a = np.stack([sess.run(worker.action, {worker.s: row[None]}) for row in s])
            reward = -np.abs(a - np.tanh(s[:, :1]))
            v_next = sess.run(worker.v, {worker.s: s[-1:]})[0, 0]
            targets = []
            for r in reward[::-1, 0]:
                v_next = r + 0.5 * v_next
                targets.append([v_next])
            feed = {worker.s: s, worker.a_his: a, worker.v_target: targets[::-1]}
            _, a_loss, c_loss, norm = sess.run([worker.update, worker.a_loss, worker.c_loss, worker.norm], feed)
        if update % 2:
            print(update, "actor %.4f critic %.4f norm %.4f" % (a_loss, c_loss, norm))
