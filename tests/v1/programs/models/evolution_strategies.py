"""Evolution strategies with shared noise and ranks, and a contextual bandit."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class Policy:
    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs
        self.scope = self._initialize(*args, **kwargs)
        self.all_variables = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, self.scope.name)
        self.trainable_variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, self.scope.name)
        self.num_params = sum(int(np.prod(v.get_shape().as_list())) for v in self.trainable_variables)
        self._setfromflat = self._make_set()
        self._getflat = tf.concat([tf.reshape(v, [-1]) for v in self.trainable_variables], 0)
        placeholders = [tf.placeholder(v.value().dtype, v.get_shape().as_list()) for v in self.all_variables]
        self.set_all = (placeholders, tf.group(*[v.assign(p) for v, p in zip(self.all_variables, placeholders)]))

    def _make_set(self):
        theta = tf.placeholder(tf.float32, [self.num_params])
        splits = tf.split(theta, [v.shape.num_elements() for v in self.trainable_variables])
        return theta, tf.group(
            *[tf.assign(v, tf.reshape(s, v.shape)) for v, s in zip(self.trainable_variables, splits)]
        )

    def set_trainable_flat(self, x):
        sess = tf.get_default_session()
        sess.run(self._setfromflat[1], {self._setfromflat[0]: x})

    def _initialize(self, ob_dim, ac_dim, hidden):
        with tf.variable_scope(type(self).__name__) as scope:
            o = tf.placeholder(tf.float32, [None, ob_dim])
            ob_mean = tf.get_variable("ob_mean", [ob_dim], tf.float32, tf.constant_initializer(0.1), trainable=False)
            ob_std = tf.get_variable("ob_std", [ob_dim], tf.float32, tf.constant_initializer(1.5), trainable=False)
            x = tf.clip_by_value((o - ob_mean) / ob_std, -5.0, 5.0)
            for i, h in enumerate(hidden):
                x = tf.tanh(
                    tf.layers.dense(
                        x,
                        h,
                        name="l%d" % i,
                        kernel_initializer=tf.random_normal_initializer(stddev=0.3, seed=i),
                        bias_initializer=tf.initializers.constant(0.0),
                    )
                )
            bins = tf.layers.dense(
                x, ac_dim * 3, name="out", kernel_initializer=tf.random_normal_initializer(stddev=0.01, seed=9)
            )
            scores = tf.reshape(bins, [-1, ac_dim, 3])
            self._act = 1.0 / 2.0 * 2 * tf.to_float(tf.argmax(scores, 2)) - 1.0
            self._soft = tf.reduce_sum(tf.nn.softmax(scores * 5) * tf.constant([-1.0, 0.0, 1.0]), -1)
            self.o = o
        return scope


def compute_centered_ranks(x):
    ranks = np.empty(len(x), dtype=int)
    ranks[x.argsort()] = np.arange(len(x))
    y = ranks.astype(np.float32) / (len(x) - 1) - 0.5
    return y


with tf.Session() as sess:
    pol = Policy(3, 2, [6])
    sess.run(tf.global_variables_initializer())
    print(pol.num_params, pol.scope.name, [v.name for v in pol.all_variables])
    theta = sess.run(pol._getflat)
    noise = np.random.RandomState(123).randn(4000).astype(np.float32)
    rs = np.random.RandomState(1)
    obs = rs.normal(size=(10, 3))
    want = np.sign(obs[:, :2])

    def fitness(t):
        pol.set_trainable_flat(t)
        return -np.square(sess.run(pol._soft, {pol.o: obs}) - want).mean()

    m = v = np.zeros_like(theta)
    for it in range(6):
        idx = rs.randint(0, len(noise) - pol.num_params + 1, 8)
        eps = np.stack([noise[i : i + pol.num_params] for i in idx])
        f = np.array([[fitness(theta + 0.2 * e), fitness(theta - 0.2 * e)] for e in eps])
        ranks = compute_centered_ranks(f.ravel()).reshape(f.shape)
        g = np.dot(ranks[:, 0] - ranks[:, 1], eps) / len(eps)
        m = 0.9 * m + 0.1 * g
        theta = theta + 0.3 * m * np.sqrt(it + 1) - 0.005 * theta
        print("iter", it, "best %.4f mean %.4f" % (f.max(), f.mean()), "%.4f" % fitness(theta))
    print(sess.run(pol._act, {pol.o: obs[:3]}))

tf.reset_default_graph()
weights = tf.Variable(tf.ones([3, 4]))
state_in = tf.placeholder(shape=[1], dtype=tf.int32)
output = tf.nn.sigmoid(tf.gather(weights, state_in))
output = tf.reshape(output, [-1])
chosen = tf.argmax(output, 0)
reward_holder = tf.placeholder(tf.float32, [1])
action_holder = tf.placeholder(tf.int32, [1])
responsible = tf.slice(output, action_holder, [1])
loss = -(tf.log(responsible) * reward_holder)
update = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
counts = tf.Variable(tf.zeros([4], tf.float32))
inc = tf.scatter_add(counts, action_holder, tf.ones_like(reward_holder))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    rng = np.random.RandomState(2)
    total = np.zeros([3, 4])
    for _i in range(150):
        s = rng.randint(3)
        a = rng.randint(4) if rng.rand() < 0.25 else sess.run(chosen, {state_in: [s]})
        r = 1.0 if rng.randn() > [0.2, -0.0, -5.0, 0.5][(a + s) % 4] else -1.0
        _, ww, c = sess.run([update, weights, inc], {reward_holder: [r], action_holder: [a], state_in: [s]})
        total[s, a] += r
    print(total.tolist())
    print(ww.round(4).argmax(1), c.sum(), weights.eval().round(3)[0])
