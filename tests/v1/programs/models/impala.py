"""IMPALA: V-trace from importance weights by tf.scan, an LSTM core and a policy loss."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
nest = tf.nest
VTraceReturns = collections.namedtuple("VTraceReturns", "vs pg_advantages")
VTraceFromLogitsReturns = collections.namedtuple(
    "VTraceFromLogitsReturns",
    ["vs", "pg_advantages", "log_rhos", "behaviour_action_log_probs", "target_action_log_probs"],
)
StepOutputInfo = collections.namedtuple("StepOutputInfo", "episode_return episode_step")
StepOutput = collections.namedtuple("StepOutput", "reward info done observation")


def log_probs_from_logits_and_actions(policy_logits, actions):
    policy_logits = tf.convert_to_tensor(policy_logits, dtype=tf.float32)
    actions = tf.convert_to_tensor(actions, dtype=tf.int32)
    policy_logits.shape.assert_has_rank(3)
    actions.shape.assert_has_rank(2)
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(logits=policy_logits, labels=actions)


def from_importance_weights(
    log_rhos,
    discounts,
    rewards,
    values,
    bootstrap_value,
    clip_rho_threshold=1.0,
    clip_pg_rho_threshold=1.0,
    name="vtrace_from_importance_weights",
):
    log_rhos = tf.convert_to_tensor(log_rhos, dtype=tf.float32)
    if clip_rho_threshold is not None:
        clip_rho_threshold = tf.convert_to_tensor(clip_rho_threshold, dtype=tf.float32)
    if clip_pg_rho_threshold is not None:
        clip_pg_rho_threshold = tf.convert_to_tensor(clip_pg_rho_threshold, dtype=tf.float32)
    rho_rank = log_rhos.shape.ndims
    values.shape.assert_has_rank(rho_rank)
    bootstrap_value.shape.assert_has_rank(rho_rank - 1)
    with tf.name_scope(name, values=[log_rhos, discounts, rewards, values, bootstrap_value]):
        rhos = tf.exp(log_rhos)
        clipped_rhos = (
            tf.minimum(clip_rho_threshold, rhos, name="clipped_rhos") if clip_rho_threshold is not None else rhos
        )
        cs = tf.minimum(1.0, rhos, name="cs")
        values_t_plus_1 = tf.concat([values[1:], tf.expand_dims(bootstrap_value, 0)], axis=0)
        deltas = clipped_rhos * (rewards + discounts * values_t_plus_1 - values)
        sequences = (tf.reverse(discounts, axis=[0]), tf.reverse(cs, axis=[0]), tf.reverse(deltas, axis=[0]))

        def scanfunc(acc, sequence_item):
            discount_t, c_t, delta_t = sequence_item
            return delta_t + discount_t * c_t * acc

        initial_values = tf.zeros_like(bootstrap_value)
        vs_minus_v_xs = tf.scan(
            fn=scanfunc,
            elems=sequences,
            initializer=initial_values,
            parallel_iterations=1,
            back_prop=False,
            name="scan",
        )
        vs_minus_v_xs = tf.reverse(vs_minus_v_xs, [0], name="vs_minus_v_xs")
        vs = tf.add(vs_minus_v_xs, values, name="vs")
        vs_t_plus_1 = tf.concat([vs[1:], tf.expand_dims(bootstrap_value, 0)], axis=0)
        clipped_pg_rhos = tf.minimum(clip_pg_rho_threshold, rhos, name="clipped_pg_rhos")
        pg_advantages = clipped_pg_rhos * (rewards + discounts * vs_t_plus_1 - values)
        return VTraceReturns(vs=tf.stop_gradient(vs), pg_advantages=tf.stop_gradient(pg_advantages))


class Core(tf.nn.rnn_cell.RNNCell):
    def __init__(self, cell):
        super().__init__()
        self._c = cell

    @property
    def state_size(self):
        return self._c.state_size

    @property
    def output_size(self):
        return self._c.output_size

    def call(self, inputs, state):
        return self._c(inputs, state)


T, B, A = 6, 3, 4
rng = np.random.RandomState(7)
tf.set_random_seed(1)
queue = tf.FIFOQueue(
    4,
    [tf.float32, tf.int32, tf.float32, tf.float32, tf.bool],
    [[T, B, 5], [T, B], [T, B, A], [T, B], [T, B]],
    shared_name="buffer",
)
ph = [tf.placeholder(t, s) for t, s in zip(queue.dtypes, queue.shapes)]
enqueue = queue.enqueue(ph)
obs, actions, behaviour, rewards, done = queue.dequeue()
area = tf.contrib if False else None


def torso(x):
    x = tf.layers.dense(x, 8, tf.nn.relu, name="torso")
    return tf.layers.batch_normalization(x, training=True, name="bn") * 0.5 + x


with tf.variable_scope("agent"):
    feats = tf.map_fn(torso, obs) if False else tf.reshape(torso(tf.reshape(obs, [-1, 5])), [T, B, 8])
    cell = Core(tf.nn.rnn_cell.LSTMCell(6, name="lstm"))
    initial = cell.zero_state(B, tf.float32)
    state, outs = initial, []
    for inp, d in zip(tf.unstack(feats), tf.unstack(done)):
        state = nest.map_structure(lambda a, b, d=d: tf.where(d, a, b), cell.zero_state(B, tf.float32), state)
        out, state = cell(inp, state)
        outs.append(out)
    core = tf.stack(outs)
    logits = tf.layers.dense(core, A, name="policy_logits")
    baseline = tf.squeeze(tf.layers.dense(core, 1, name="baseline"), axis=-1)
bootstrap = baseline[-1]
discounts = tf.to_float(~done) * 0.99
target_lp = log_probs_from_logits_and_actions(logits, actions)
behaviour_lp = log_probs_from_logits_and_actions(behaviour, actions)
log_rhos = target_lp - behaviour_lp
with tf.device("/cpu"):
    vt = from_importance_weights(log_rhos, discounts, rewards, baseline, bootstrap)
ret = VTraceFromLogitsReturns(
    log_rhos=log_rhos, behaviour_action_log_probs=behaviour_lp, target_action_log_probs=target_lp, **vt._asdict()
)
pg = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits) * ret.pg_advantages)
bl = 0.5 * tf.reduce_sum(tf.square(ret.vs - baseline))
policy = tf.nn.softmax(logits)
ent = -tf.reduce_sum(tf.reduce_sum(-policy * tf.nn.log_softmax(logits), axis=-1))
total_loss = pg + 0.5 * bl + 0.01 * ent
num_env_frames = tf.train.get_or_create_global_step()
lr = tf.train.polynomial_decay(0.02, num_env_frames, 100, 0)
opt = tf.train.RMSPropOptimizer(lr, 0.99, 0.0, 0.1)
train_op = opt.minimize(total_loss)
with tf.control_dependencies([train_op]):
    frames = num_env_frames.assign_add(T * B)
info = (
    StepOutput(
        reward=tf.reduce_mean(rewards),
        info=StepOutputInfo(tf.reduce_sum(rewards), tf.shape(rewards)[0]),
        done=tf.reduce_any(done),
        observation=None,
    )
    if False
    else StepOutput(
        reward=tf.reduce_mean(rewards),
        info=StepOutputInfo(tf.reduce_sum(rewards), tf.shape(rewards)[0]),
        done=tf.reduce_any(done),
        observation=tf.shape(obs),
    )
)
with tf.train.MonitoredSession() as sess:
    for _i in range(5):
        sess.run(
            enqueue,
            dict(
                zip(
                    ph,
                    [
                        rng.normal(size=(T, B, 5)),
                        rng.randint(0, A, (T, B)),
                        rng.normal(size=(T, B, A)),
                        rng.normal(size=(T, B)),
                        rng.rand(T, B) < 0.2,
                    ],
                )
            ),
        )
        f, losses, out, r = sess.run((frames, [pg, bl, ent], ret._replace(behaviour_action_log_probs=lr), info))
        print(
            f,
            "pg %.4f bl %.4f ent %.4f" % tuple(losses),
            "vs %.4f adv %.4f lr %.5f" % (out.vs.sum(), out.pg_advantages.sum(), out.behaviour_action_log_probs),
            r.info.episode_step,
            r.done,
            r.observation,
        )
print([v.name for v in tf.trainable_variables()])
