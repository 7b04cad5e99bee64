"""Double DQN on images with `tf.summary`, a replay memory and a target network."""

import os
import tempfile
from collections import namedtuple

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class StateProcessor:
    def __init__(self):
        with tf.variable_scope("state_processor"):
            self.input_state = tf.placeholder(shape=[21, 16, 3], dtype=tf.uint8)
            self.output = tf.image.rgb_to_grayscale(self.input_state)
            self.output = tf.image.crop_to_bounding_box(self.output, 3, 0, 16, 16)
            self.output = tf.image.resize_images(self.output, [8, 8], method=tf.image.ResizeMethod.NEAREST_NEIGHBOR)
            self.output = tf.squeeze(self.output)

    def process(self, sess, state):
        return sess.run(self.output, {self.input_state: state})


class Estimator:
    def __init__(self, scope="estimator", summaries_dir=None):
        self.scope = scope
        self.summary_writer = None
        with tf.variable_scope(scope):
            self._build_model()
            if summaries_dir:
                summary_dir = os.path.join(summaries_dir, f"summaries_{scope}")
                if not os.path.exists(summary_dir):
                    os.makedirs(summary_dir)
                self.summary_writer = tf.summary.FileWriter(summary_dir)

    def _build_model(self):
        self.X_pl = tf.placeholder(shape=[None, 8, 8, 4], dtype=tf.uint8, name="X")
        self.y_pl = tf.placeholder(shape=[None], dtype=tf.float32, name="y")
        self.actions_pl = tf.placeholder(shape=[None], dtype=tf.int32, name="actions")
        X = tf.to_float(self.X_pl) / 255.0
        batch_size = tf.shape(self.X_pl)[0]
        conv1 = tf.layers.conv2d(X, 4, 3, 2, activation=tf.nn.relu, padding="same")
        conv2 = tf.layers.conv2d(conv1, 8, 2, 1, activation=tf.nn.relu)
        flattened = tf.layers.flatten(conv2)
        fc1 = tf.layers.dense(flattened, 16, activation=tf.nn.relu)
        self.predictions = tf.layers.dense(fc1, 3)
        gather_indices = tf.range(batch_size) * tf.shape(self.predictions)[1] + self.actions_pl
        self.action_predictions = tf.gather(tf.reshape(self.predictions, [-1]), gather_indices)
        self.losses = tf.squared_difference(self.y_pl, self.action_predictions)
        self.loss = tf.reduce_mean(self.losses)
        self.optimizer = tf.train.RMSPropOptimizer(0.00025, 0.99, 0.0, 1e-6)
        self.train_op = self.optimizer.minimize(self.loss, global_step=tf.train.get_global_step())
        self.summaries = tf.summary.merge(
            [
                tf.summary.scalar("loss", self.loss),
                tf.summary.histogram("loss_hist", self.losses),
                tf.summary.histogram("q_values_hist", self.predictions),
                tf.summary.scalar("max_q_value", tf.reduce_max(self.predictions)),
                tf.summary.image("frames", self.X_pl[..., :1], max_outputs=1),
            ]
        )

    def predict(self, sess, s):
        return sess.run(self.predictions, {self.X_pl: s})

    def update(self, sess, s, a, y):
        feed_dict = {self.X_pl: s, self.y_pl: y, self.actions_pl: a}
        summaries, global_step, _, loss = sess.run(
            [self.summaries, tf.train.get_global_step(), self.train_op, self.loss], feed_dict
        )
        if self.summary_writer:
            self.summary_writer.add_summary(summaries, global_step)
        return loss


class ModelParametersCopier:
    def __init__(self, estimator1, estimator2):
        e1_params = [t for t in tf.trainable_variables() if t.name.startswith(estimator1.scope)]
        e1_params = sorted(e1_params, key=lambda v: v.name)
        e2_params = [t for t in tf.trainable_variables() if t.name.startswith(estimator2.scope)]
        e2_params = sorted(e2_params, key=lambda v: v.name)
        self.update_ops = []
        for e1_v, e2_v in zip(e1_params, e2_params):
            op = e2_v.assign(e1_v)
            self.update_ops.append(op)

    def make(self, sess):
        sess.run(self.update_ops)


def make_epsilon_greedy_policy(estimator, nA, rng):
    def policy_fn(sess, observation, epsilon):
        A = np.ones(nA, dtype=float) * epsilon / nA
        q_values = estimator.predict(sess, np.expand_dims(observation, 0))[0]
        best_action = np.argmax(q_values)
        A[best_action] += 1.0 - epsilon
        return A

    return policy_fn


tf.reset_default_graph()
tf.set_random_seed(12)
experiment_dir = tempfile.mkdtemp()
global_step = tf.Variable(0, name="global_step", trainable=False)
q_estimator = Estimator(scope="q_estimator", summaries_dir=experiment_dir)
target_estimator = Estimator(scope="target_q")
copier = ModelParametersCopier(q_estimator, target_estimator)
state_processor = StateProcessor()
Transition = namedtuple("Transition", ["state", "action", "reward", "next_state", "done"])
rng = np.random.RandomState(8)


def frame():
    return rng.randint(0, 256, (21, 16, 3)).astype(np.uint8)


with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    saver = tf.train.Saver()
    checkpoint_path = os.path.join(experiment_dir, "model")
    latest_checkpoint = tf.train.latest_checkpoint(experiment_dir)
    print("latest", latest_checkpoint)
    policy = make_epsilon_greedy_policy(q_estimator, 3, rng)
    state = state_processor.process(sess, frame())
    print(state.dtype, state.shape, int(state.sum()))
    state = np.stack([state] * 4, axis=2)
    replay = []
    for t in range(24):
        if t % 8 == 0:
            copier.make(sess)
        probs = policy(sess, state, 0.5)
        action = rng.choice(3, p=probs)
        nxt = np.append(state[:, :, 1:], np.expand_dims(state_processor.process(sess, frame()), 2), axis=2)
        replay.append(Transition(state, action, float(action == 1), nxt, t % 10 == 9))
        state = nxt
        if len(replay) >= 8:
            samples = [replay[i] for i in rng.randint(0, len(replay), 8)]
            sb, ab, rb, nb, db = map(np.array, zip(*samples))
            q_next = q_estimator.predict(sess, nb)
            best = np.argmax(q_next, axis=1)
            q_t = target_estimator.predict(sess, nb)
            targets = rb + np.invert(db).astype(np.float32) * 0.99 * q_t[np.arange(8), best]
            loss = q_estimator.update(sess, sb, ab, targets)
            if t % 4 == 0:
                print(f"\rStep {sess.run(global_step)} loss: {loss:.5f}")
    print(os.path.basename(saver.save(sess, checkpoint_path)))
    episode_summary = tf.Summary()
    episode_summary.value.add(simple_value=0.5, node_name="episode_reward", tag="episode_reward")
    episode_summary.value.add(simple_value=24, node_name="episode_length", tag="episode_length")
    q_estimator.summary_writer.add_summary(episode_summary, 1)
    q_estimator.summary_writer.flush()
d = os.path.join(experiment_dir, "summaries_q_estimator")
for e in tf.train.summary_iterator(os.path.join(d, os.listdir(d)[0])):
    if e.step in (1, 5, 17):
        for v in e.summary.value:
            kind = v.WhichOneof("value")
            print(
                e.step,
                v.tag,
                kind,
                "%.4f" % v.simple_value
                if kind == "simple_value"
                else "%.3f %.3f %d" % (v.histo.min, v.histo.max, v.histo.num)
                if kind == "histo"
                else (v.image.height, v.image.width, v.image.colorspace),
            )
print(sorted(os.listdir(experiment_dir)))
