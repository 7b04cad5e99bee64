"""Deep deterministic policy gradients: a critic's gradients by actions, soft copies of both networks, noise."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

s_dim, a_dim, gamma, tau = 3, 2, 0.9, 0.1


def build_a(s, reuse=None, custom_getter=None):
    with tf.variable_scope("Actor", reuse=bool(reuse), custom_getter=custom_getter):
        net = tf.layers.dense(s, 8, activation=tf.nn.relu, name="l1", trainable=not reuse, kernel_initializer=init(1))
        a = tf.layers.dense(net, a_dim, activation=tf.nn.tanh, name="a", kernel_initializer=init(2))
        return tf.multiply(a, [2.0, 1.0], name="scaled_a")


def build_c(s, a, reuse=None, custom_getter=None):
    with tf.variable_scope("Critic", reuse=bool(reuse), custom_getter=custom_getter):
        w1_s = tf.get_variable("w1_s", [s_dim, 8], initializer=init(3))
        w1_a = tf.get_variable("w1_a", [a_dim, 8], initializer=init(4))
        b1 = tf.get_variable("b1", [1, 8], initializer=tf.zeros_initializer())
        net = tf.nn.relu(tf.matmul(s, w1_s) + tf.matmul(a, w1_a) + b1)
        return tf.layers.dense(net, 1, kernel_initializer=init(5))


def init(seed):
    return tf.random_uniform_initializer(-0.4, 0.4, seed=seed)


S = tf.placeholder(tf.float32, [None, s_dim], "s")
S_ = tf.placeholder(tf.float32, [None, s_dim], "s_")
R = tf.placeholder(tf.float32, [None, 1], "r")
a = build_a(S)
q = build_c(S, a)
a_params = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="Actor")
c_params = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="Critic")
ema = tf.train.ExponentialMovingAverage(decay=1 - tau)


def ema_getter(getter, name, *args, **kwargs):
    return ema.average(getter(name, *args, **kwargs))


target_update = [ema.apply(a_params), ema.apply(c_params)]
a_ = build_a(S_, reuse=True, custom_getter=ema_getter)
q_ = build_c(S_, a_, reuse=True, custom_getter=ema_getter)
a_loss = -tf.reduce_mean(q)
atrain = tf.train.AdamOptimizer(0.01).minimize(a_loss, var_list=a_params)
td_error = tf.losses.mean_squared_error(labels=R + gamma * q_, predictions=q)
ctrain = tf.train.AdamOptimizer(0.02).minimize(td_error, var_list=c_params)
action_grads = tf.gradients(q, a)[0]
by_hand = tf.gradients(a, a_params, grad_ys=-action_grads / tf.cast(tf.shape(S)[0], tf.float32))
direct = tf.gradients(a_loss, a_params)
print([v.op.name for v in a_params + c_params], [ema.average(v).op.name for v in a_params[:2]])

rng = np.random.RandomState(35)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    state, spread = rng.normal(size=(1, s_dim)), 1.0
    memory = []
    for step in range(60):
        action = np.clip(rng.normal(sess.run(a, {S: state}), spread), -2, 2)
        following = 0.8 * state + 0.1 * rng.normal(size=(1, s_dim))
        memory.append((state, action, -np.square(action - state[:, :2]).sum(keepdims=True), following))
        state = following
        if step >= 20:
            spread *= 0.98
            rows = [memory[i] for i in rng.randint(len(memory), size=8)]
            bs, ba, br, bs_ = (np.concatenate(part) for part in zip(*rows))
            sess.run(atrain, {S: bs})
            sess.run(target_update)
            error, _ = sess.run([td_error, ctrain], {S: bs, a: ba, R: br.reshape(-1, 1), S_: bs_})
            if step % 10 == 9:
                print(step, "td %.4f q %.4f" % (error, -sess.run(a_loss, {S: bs})))
    one, other = sess.run([by_hand, direct], {S: bs})
    print("the same", all(np.allclose(g, h, atol=1e-6) for g, h in zip(one, other)))
    print(np.round(sess.run([a_params[1], ema.average(a_params[1])]), 4).tolist())
