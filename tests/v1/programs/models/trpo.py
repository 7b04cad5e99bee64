"""TRPO: flat gradients, Fisher vector products, conjugate gradients."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

ALREADY_INITIALIZED = set()


class _Function:
    def __init__(self, inputs, outputs, updates, givens):
        for inpt in inputs:
            if not hasattr(inpt, "make_feed_dict") and not (isinstance(inpt, tf.Tensor) and len(inpt.op.inputs) == 0):
                raise AssertionError("inputs should all be placeholders, constants, or have a make_feed_dict method")
        self.inputs = inputs
        updates = updates or []
        self.update_group = tf.group(*updates)
        self.outputs_update = [*list(outputs), self.update_group]
        self.givens = {} if givens is None else givens

    def __call__(self, *args):
        feed_dict = dict(zip(self.inputs, args))
        for inpt in self.givens:
            feed_dict[inpt] = feed_dict.get(inpt, self.givens[inpt])
        return tf.get_default_session().run(self.outputs_update, feed_dict=feed_dict)[:-1]


def function(inputs, outputs, updates=None, givens=None):
    if isinstance(outputs, list):
        return _Function(inputs, outputs, updates, givens=givens)
    elif isinstance(outputs, (dict,)):
        f = _Function(inputs, outputs.values(), updates, givens=givens)
        return lambda *args, **kwargs: type(outputs)(zip(outputs.keys(), f(*args, **kwargs)))
    else:
        f = _Function(inputs, [outputs], updates, givens=givens)
        return lambda *args, **kwargs: f(*args, **kwargs)[0]


def initialize():
    new_variables = set(tf.global_variables()) - ALREADY_INITIALIZED
    tf.get_default_session().run(tf.variables_initializer(new_variables))
    ALREADY_INITIALIZED.update(new_variables)


def var_shape(x):
    out = x.get_shape().as_list()
    assert all(isinstance(a, int) for a in out), "shape function assumes that shape is fully known"
    return out


def numel(x):
    return intprod(var_shape(x))


def intprod(x):
    return int(np.prod(x))


def flatgrad(loss, var_list, clip_norm=None):
    grads = tf.gradients(loss, var_list)
    if clip_norm is not None:
        grads = [tf.clip_by_norm(grad, clip_norm=clip_norm) for grad in grads]
    return tf.concat(
        axis=0,
        values=[
            tf.reshape(grad if grad is not None else tf.zeros_like(v), [numel(v)]) for (v, grad) in zip(var_list, grads)
        ],
    )


class SetFromFlat:
    def __init__(self, var_list, dtype=tf.float32):
        assigns = []
        shapes = list(map(var_shape, var_list))
        total_size = np.sum([intprod(shape) for shape in shapes])
        self.theta = theta = tf.placeholder(dtype, [total_size])
        start = 0
        assigns = []
        for shape, v in zip(shapes, var_list):
            size = intprod(shape)
            assigns.append(tf.assign(v, tf.reshape(theta[start : start + size], shape)))
            start += size
        self.op = tf.group(*assigns)

    def __call__(self, theta):
        tf.get_default_session().run(self.op, feed_dict={self.theta: theta})


class GetFlat:
    def __init__(self, var_list):
        self.op = tf.concat(axis=0, values=[tf.reshape(v, [numel(v)]) for v in var_list])

    def __call__(self):
        return tf.get_default_session().run(self.op)


def normc_initializer(std=1.0, axis=0):
    def _initializer(shape, dtype=None, partition_info=None):
        out = np.random.RandomState(sum(shape)).randn(*shape).astype(np.float32)
        out *= std / np.sqrt(np.square(out).sum(axis=axis, keepdims=True))
        return tf.constant(out)

    return _initializer


def dense(x, size, name, weight_init=None, bias=True):
    w = tf.get_variable(name + "/w", [x.get_shape()[1], size], initializer=weight_init)
    ret = tf.matmul(x, w)
    if bias:
        b = tf.get_variable(name + "/b", [size], initializer=tf.zeros_initializer())
        return ret + b
    return ret


class CategoricalPd:
    def __init__(self, logits):
        self.logits = logits

    def neglogp(self, x):
        one_hot_actions = tf.one_hot(x, self.logits.get_shape().as_list()[-1])
        return tf.nn.softmax_cross_entropy_with_logits(logits=self.logits, labels=one_hot_actions)

    def logp(self, x):
        return -self.neglogp(x)

    def kl(self, other):
        a0 = self.logits - tf.reduce_max(self.logits, axis=-1, keepdims=True)
        a1 = other.logits - tf.reduce_max(other.logits, axis=-1, keepdims=True)
        ea0, ea1 = tf.exp(a0), tf.exp(a1)
        z0 = tf.reduce_sum(ea0, axis=-1, keepdims=True)
        z1 = tf.reduce_sum(ea1, axis=-1, keepdims=True)
        p0 = ea0 / z0
        return tf.reduce_sum(p0 * (a0 - tf.log(z0) - a1 + tf.log(z1)), axis=-1)

    def entropy(self):
        a0 = self.logits - tf.reduce_max(self.logits, axis=-1, keepdims=True)
        ea0 = tf.exp(a0)
        z0 = tf.reduce_sum(ea0, axis=-1, keepdims=True)
        p0 = ea0 / z0
        return tf.reduce_sum(p0 * (tf.log(z0) - a0), axis=-1)

    def sample(self):
        u = tf.random_uniform(tf.shape(self.logits), dtype=self.logits.dtype)
        return tf.argmax(self.logits - tf.log(-tf.log(u)), axis=-1)


class MlpPolicy:
    def __init__(self, name, ob):
        with tf.variable_scope(name):
            self.scope = tf.get_variable_scope().name
            with tf.variable_scope("vf"):
                last = tf.nn.tanh(dense(ob, 8, "fc1", weight_init=normc_initializer(1.0)))
                self.vpred = dense(last, 1, "final", weight_init=normc_initializer(1.0))[:, 0]
            with tf.variable_scope("pol"):
                last = tf.nn.tanh(dense(ob, 8, "fc1", weight_init=normc_initializer(1.0)))
                self.pd = CategoricalPd(dense(last, 3, "final", weight_init=normc_initializer(0.01)))
            self.ac = self.pd.sample()

    def get_variables(self):
        return tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, self.scope)

    def get_trainable_variables(self):
        return tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, self.scope)


def cg(f_Ax, b, cg_iters=10, residual_tol=1e-10):
    p, r, x = b.copy(), b.copy(), np.zeros_like(b)
    rdotr = r.dot(r)
    for _i in range(cg_iters):
        z = f_Ax(p)
        v = rdotr / p.dot(z)
        x += v * p
        r -= v * z
        newrdotr = r.dot(r)
        p = r + newrdotr / rdotr * p
        rdotr = newrdotr
        if rdotr < residual_tol:
            break
    return x


tf.set_random_seed(3)
rng = np.random.RandomState(1)
with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)).as_default():
    ob = tf.placeholder(tf.float32, [None, 4], name="ob")
    pi, oldpi = MlpPolicy("pi", ob), MlpPolicy("oldpi", ob)
    atarg = tf.placeholder(dtype=tf.float32, shape=[None])
    ret = tf.placeholder(dtype=tf.float32, shape=[None])
    ac = tf.placeholder(tf.int32, [None])
    kloldnew = oldpi.pd.kl(pi.pd)
    meankl, meanent = tf.reduce_mean(kloldnew), tf.reduce_mean(pi.pd.entropy())
    entbonus = 0.01 * meanent
    vferr = tf.reduce_mean(tf.square(pi.vpred - ret))
    ratio = tf.exp(pi.pd.logp(ac) - oldpi.pd.logp(ac))
    surrgain = tf.reduce_mean(ratio * atarg)
    optimgain = surrgain + entbonus
    losses = [optimgain, meankl, entbonus, surrgain, meanent]
    all_var_list = pi.get_trainable_variables()
    var_list = [v for v in all_var_list if v.name.split("/")[1].startswith("pol")]
    vf_var_list = [v for v in all_var_list if v.name.split("/")[1].startswith("vf")]
    get_flat, set_from_flat = GetFlat(var_list), SetFromFlat(var_list)
    klgrads = tf.gradients(meankl, var_list)
    flat_tangent = tf.placeholder(dtype=tf.float32, shape=[None], name="flat_tan")
    shapes = [var.get_shape().as_list() for var in var_list]
    start, tangents = 0, []
    for shape in shapes:
        sz = intprod(shape)
        tangents.append(tf.reshape(flat_tangent[start : start + sz], shape))
        start += sz
    gvp = tf.add_n([tf.reduce_sum(g * tangent) for (g, tangent) in zip(klgrads, tangents)])
    fvp = flatgrad(gvp, var_list)
    assign_old_eq_new = function(
        [], [], updates=[tf.assign(oldv, newv) for (oldv, newv) in zip(oldpi.get_variables(), pi.get_variables())]
    )
    compute_losses = function([ob, ac, atarg], losses)
    compute_lossandgrad = function([ob, ac, atarg], [*losses, flatgrad(optimgain, var_list)])
    compute_fvp = function([flat_tangent, ob, ac, atarg], fvp)
    compute_vflossandgrad = function([ob, ret], flatgrad(vferr, vf_var_list, clip_norm=5.0))
    vf_get, vf_set = GetFlat(vf_var_list), SetFromFlat(vf_var_list)
    act = function([ob], [pi.ac, pi.vpred])
    initialize()
    for it in range(5):
        obs = rng.normal(size=(32, 4)).astype(np.float32)
        acs, vpred = act(obs)
        rew = obs[np.arange(32), acs] - obs[:, 3]
        adv = rew - vpred
        adv = (adv - adv.mean()) / adv.std()
        args = obs, acs, adv
        fvpargs = [arr[::2] for arr in args]
        fisher = lambda p, fvpargs=fvpargs: compute_fvp(p, *fvpargs) + 0.1 * p
        assign_old_eq_new()
        *lossbefore, g = compute_lossandgrad(*args)
        stepdir = cg(fisher, g)
        shs = 0.5 * stepdir.dot(fisher(stepdir))
        lm = np.sqrt(shs / 0.01)
        fullstep = stepdir / lm
        expectedimprove = g.dot(fullstep)
        surrbefore, stepsize, thbefore = lossbefore[0], 1.0, get_flat()
        for _ in range(10):
            set_from_flat(thbefore + fullstep * stepsize)
            surr, kl, *_ = compute_losses(*args)
            improve = surr - surrbefore
            if kl > 0.015 or improve < 0:
                stepsize *= 0.5
            else:
                break
        for _ in range(3):
            vf_set(vf_get() - 0.05 * compute_vflossandgrad(obs, rew))
        print("it", it, "improve %.4f expected %.4f kl %.5f" % (improve, expectedimprove, kl), acs[:8].tolist())
    print(sorted(v.name for v in var_list))
