"""Categorical DQN (C51) with projection of distributions, double action selection and dueling heads."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class FLAGS:
    atoms, v_min, v_max, double = 11, -5.0, 5.0, True


class Chain:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.RandomState(seed)

    def reset(self):
        self.pos = 0
        self.t = 0
        return np.eye(self.n)[self.pos]

    def step(self, a):
        if self.rng.rand() < 0.1:
            a = 1 - a
        self.pos = min(self.pos + 1, self.n - 1) if a == 1 else max(self.pos - 1, 0)
        self.t += 1
        return np.eye(self.n)[self.pos], float(self.pos == self.n - 1) - 0.05 * a, self.t >= 12


class Net:
    def __init__(self, scope, n_states, n_actions):
        with tf.variable_scope(scope):
            self.state = tf.placeholder(tf.float32, [None, n_states], name="state")
            h = tf.layers.dense(
                self.state, 16, activation=tf.nn.selu, kernel_initializer=tf.orthogonal_initializer(seed=1), name="h"
            )
            adv = tf.layers.dense(
                h,
                n_actions * FLAGS.atoms,
                kernel_initializer=tf.variance_scaling_initializer(seed=2, mode="fan_avg", distribution="uniform"),
                name="adv",
            )
            val = tf.layers.dense(h, FLAGS.atoms, kernel_initializer=tf.glorot_normal_initializer(seed=3), name="val")
            adv = tf.reshape(adv, [-1, n_actions, FLAGS.atoms])
            self.logits = val[:, tf.newaxis, :] + adv - tf.reduce_mean(adv, axis=1, keepdims=True)
            self.probs = tf.nn.softmax(self.logits)
            self.support = tf.lin_space(FLAGS.v_min, FLAGS.v_max, FLAGS.atoms)
            self.q = tf.tensordot(self.probs, self.support, axes=[[2], [0]])
            self.greedy = tf.argmax(self.q, axis=1, output_type=tf.int32)
        self.vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope)


def project(support, r, done, probs, gamma):
    dz = (FLAGS.v_max - FLAGS.v_min) / (FLAGS.atoms - 1)
    tz = tf.clip_by_value(r[:, None] + gamma * (1 - done)[:, None] * support[None, :], FLAGS.v_min, FLAGS.v_max)
    dist = tf.clip_by_value(1 - tf.abs(tz[:, None, :] - support[None, :, None]) / dz, 0, 1)
    return tf.einsum("bij,bj->bi", dist, probs)


def main(argv):
    env = Chain(5, 4)
    main_net, target = Net("main", 5, 2), Net("target", 5, 2)
    action = tf.placeholder(tf.int32, [None])
    reward = tf.placeholder(tf.float32, [None])
    done = tf.placeholder(tf.float32, [None])
    weights = tf.placeholder_with_default(tf.ones([1]), [None])
    best = tf.placeholder(tf.int32, [None])
    rows = tf.range(tf.shape(action)[0])
    next_probs = tf.gather_nd(target.probs, tf.stack([rows, best], axis=1))
    proj = tf.stop_gradient(project(target.support, reward, done, next_probs, 0.95))
    logits = tf.reduce_sum(main_net.logits * tf.one_hot(action, 2)[..., None], axis=1)
    ce = tf.nn.softmax_cross_entropy_with_logits_v2(labels=proj, logits=logits)
    loss = tf.reduce_mean(ce * weights)
    optimizer = tf.train.RMSPropOptimizer(0.005, decay=0.95, momentum=0.0, epsilon=1e-5, centered=True)
    gvs = [(tf.clip_by_norm(g, 1.0), v) for g, v in optimizer.compute_gradients(loss, main_net.vars) if g is not None]
    step = tf.Variable(0, trainable=False, name="gs")
    train = optimizer.apply_gradients(gvs, global_step=step)
    sync = [t.assign(m) for t, m in zip(target.vars, main_net.vars)]
    rng = np.random.RandomState(0)
    memory = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(sync)
        for ep in range(10):
            s, total, d = env.reset(), 0, False
            while not d:
                a = (
                    rng.randint(2)
                    if rng.rand() < max(0.1, 1 - ep / 6.0)
                    else sess.run(main_net.greedy, {main_net.state: [s]})[0]
                )
                s2, r, d = env.step(a)
                memory.append((s, a, r, s2, float(d)))
                total += r
                s = s2
                if len(memory) >= 16:
                    prio = np.arange(1, len(memory) + 1) ** 0.5
                    p = prio / prio.sum()
                    idx = rng.choice(len(memory), 16, p=p)
                    w = (len(memory) * p[idx]) ** -0.4
                    bs, ba, br, bs2, bd = [np.array(c)[...] for c in zip(*[memory[i] for i in idx])]
                    b = sess.run(
                        main_net.greedy if FLAGS.double else target.greedy,
                        {(main_net if FLAGS.double else target).state: bs2},
                    )
                    _, l, n = sess.run(
                        [train, loss, step],
                        {
                            main_net.state: bs,
                            target.state: bs2,
                            best: b,
                            action: ba,
                            reward: br,
                            done: bd,
                            weights: w / w.max(),
                        },
                    )
                    if n % 20 == 0:
                        sess.run(sync)
            print("episode %d return %.2f" % (ep, total) + (" loss %.4f" % l if len(memory) >= 16 else ""))
        print(sess.run(main_net.q, {main_net.state: np.eye(5)}).round(3))
        print([v.op.name for v in main_net.vars], [v.shape.as_list() for v in main_net.vars])


if __name__ == "__main__":
    main([])
