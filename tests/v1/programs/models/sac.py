"""Soft actor-critic in the style of Spinning Up: polyak targets by tf.group, two critics, entropy."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
EPS = 1e-8
LOG_STD_MAX, LOG_STD_MIN = 2, -20


def placeholders(*args):
    return [tf.placeholder(tf.float32, (None, d) if d else (None,)) for d in args]


def mlp(x, hidden_sizes=(32,), activation=tf.tanh, output_activation=None):
    for h in hidden_sizes[:-1]:
        x = tf.layers.dense(x, units=h, activation=activation)
    return tf.layers.dense(x, units=hidden_sizes[-1], activation=output_activation)


def get_vars(scope):
    return [x for x in tf.global_variables() if scope in x.name]


def gaussian_likelihood(x, mu, log_std):
    pre_sum = -0.5 * (((x - mu) / (tf.exp(log_std) + EPS)) ** 2 + 2 * log_std + np.log(2 * np.pi))
    return tf.reduce_sum(pre_sum, axis=1)


def clip_but_pass_gradient(x, l=-1.0, u=1.0):
    clip_up = tf.cast(x > u, tf.float32)
    clip_low = tf.cast(x < l, tf.float32)
    return x + tf.stop_gradient((u - x) * clip_up + (l - x) * clip_low)


def mlp_gaussian_policy(x, a, hidden_sizes, activation):
    act_dim = a.shape.as_list()[-1]
    net = mlp(x, list(hidden_sizes), activation, activation)
    mu = tf.layers.dense(net, act_dim, activation=None)
    log_std = tf.layers.dense(net, act_dim, activation=tf.tanh)
    log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
    std = tf.exp(log_std)
    pi = mu + tf.random_normal(tf.shape(mu)) * std
    return mu, pi, gaussian_likelihood(pi, mu, log_std)


def apply_squashing_func(mu, pi, logp_pi):
    mu = tf.tanh(mu)
    pi = tf.tanh(pi)
    logp_pi -= tf.reduce_sum(tf.log(clip_but_pass_gradient(1 - pi**2, l=0, u=1) + 1e-6), axis=1)
    return mu, pi, logp_pi


def actor_critic(x, a, hidden_sizes=(16, 16), activation=tf.nn.relu):
    with tf.variable_scope("pi"):
        mu, pi, logp_pi = mlp_gaussian_policy(x, a, hidden_sizes, activation)
        mu, pi, logp_pi = apply_squashing_func(mu, pi, logp_pi)
    vf_mlp = lambda x: tf.squeeze(mlp(x, [*list(hidden_sizes), 1], activation, None), axis=1)
    with tf.variable_scope("q1"):
        q1 = vf_mlp(tf.concat([x, a], axis=-1))
    with tf.variable_scope("q1", reuse=True):
        q1_pi = vf_mlp(tf.concat([x, pi], axis=-1))
    with tf.variable_scope("q2"):
        q2 = vf_mlp(tf.concat([x, a], axis=-1))
    with tf.variable_scope("q2", reuse=True):
        q2_pi = vf_mlp(tf.concat([x, pi], axis=-1))
    with tf.variable_scope("v"):
        v = vf_mlp(x)
    return mu, pi, logp_pi, q1, q2, q1_pi, q2_pi, v


tf.set_random_seed(0)
rng = np.random.RandomState(0)
x_ph, a_ph, x2_ph, r_ph, d_ph = placeholders(3, 2, 3, None, None)
with tf.variable_scope("main"):
    mu, pi, logp_pi, q1, q2, q1_pi, q2_pi, v = actor_critic(x_ph, a_ph)
with tf.variable_scope("target"):
    _, _, _, _, _, _, _, v_targ = actor_critic(x2_ph, a_ph)
alpha, gamma, polyak = 0.2, 0.99, 0.9
min_q_pi = tf.minimum(q1_pi, q2_pi)
q_backup = tf.stop_gradient(r_ph + gamma * (1 - d_ph) * v_targ)
v_backup = tf.stop_gradient(min_q_pi - alpha * logp_pi)
pi_loss = tf.reduce_mean(alpha * logp_pi - q1_pi)
q1_loss = 0.5 * tf.reduce_mean((q_backup - q1) ** 2)
q2_loss = 0.5 * tf.reduce_mean((q_backup - q2) ** 2)
v_loss = 0.5 * tf.reduce_mean((v_backup - v) ** 2)
value_loss = q1_loss + q2_loss + v_loss
pi_optimizer = tf.train.AdamOptimizer(learning_rate=1e-3)
train_pi_op = pi_optimizer.minimize(pi_loss, var_list=get_vars("main/pi"))
value_optimizer = tf.train.AdamOptimizer(learning_rate=1e-3)
value_params = get_vars("main/q") + get_vars("main/v")
with tf.control_dependencies([train_pi_op]):
    train_value_op = value_optimizer.minimize(value_loss, var_list=value_params)
with tf.control_dependencies([train_value_op]):
    target_update = tf.group(
        [
            tf.assign(v_targ, polyak * v_targ + (1 - polyak) * v_main)
            for v_main, v_targ in zip(get_vars("main"), get_vars("target"))
        ]
    )
target_init = tf.group([tf.assign(v_targ, v_main) for v_main, v_targ in zip(get_vars("main"), get_vars("target"))])
step_ops = [pi_loss, q1_loss, q2_loss, v_loss, q1, q2, v, logp_pi, train_pi_op, train_value_op, target_update]
print([len(get_vars(s)) for s in ("main/pi", "main/q1", "main/v", "target")])
sess = tf.Session()
sess.run(tf.global_variables_initializer())
sess.run(target_init)
s = rng.uniform(-1, 1, 3)
replay = []
for t in range(60):
    a = sess.run(pi, {x_ph: s.reshape(1, -1)})[0]
    s2 = np.clip(s + 0.2 * np.append(a, a.sum()), -2, 2)
    r, d = -np.square(s2).sum(), float(t % 15 == 14)
    replay.append((s, a, s2, r, d))
    s = s2 if not d else rng.uniform(-1, 1, 3)
print("action %.4f %.4f" % tuple(a))
for j in range(30):
    idx = rng.randint(0, len(replay), 16)
    b = [np.array(col)[idx] for col in zip(*replay)]
    outs = sess.run(step_ops, dict(zip([x_ph, a_ph, x2_ph, r_ph, d_ph], b)))
    if j % 10 == 0 or j == 29:
        print(
            "step", j, "LossPi %.4f LossQ1 %.4f LossQ2 %.4f LossV %.4f" % tuple(outs[:4]), "LogPi %.4f" % outs[7].mean()
        )
print(sess.run(mu, {x_ph: np.eye(3)}).round(3))
print(
    "target gap %.5f"
    % sum(np.abs(a - b).sum() for a, b in zip(sess.run(get_vars("main")), sess.run(get_vars("target"))))
)
