"""A MonitoredTrainingSession with own and library hooks, stopped and resumed."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

folder = tempfile.mkdtemp()


class LoggerHook(tf.train.SessionRunHook):
    def __init__(self, loss):
        self._loss = loss

    def begin(self):
        self._step = -1
        print("begin")

    def after_create_session(self, session, coord):
        print("session", session.run(tf.train.get_global_step()), coord.should_stop())

    def before_run(self, run_context):
        self._step += 1
        return tf.train.SessionRunArgs({"loss": self._loss})

    def after_run(self, run_context, run_values):
        if self._step % 3 == 0:
            step = run_context.session.run(tf.train.get_global_step())
            print("step", step, "loss %.5f" % run_values.results["loss"])
        if run_values.results["loss"] < 0.02:
            run_context.request_stop()

    def end(self, session):
        print("end", session.run(tf.train.get_global_step()))


def train(last_step):
    with tf.Graph().as_default():
        rng = np.random.RandomState(30)
        x = tf.constant(rng.normal(size=(20, 3)), tf.float32)
        y = tf.reduce_sum(x, 1, keepdims=True) * 0.5
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        loss = tf.losses.mean_squared_error(y, tf.matmul(x, w))
        global_step = tf.train.get_or_create_global_step()
        rate = tf.train.piecewise_constant(global_step, [4, 8], [0.1, 0.05, 0.02])
        train_op = tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
        saver = tf.train.Saver(max_to_keep=5)
        hooks = [
            tf.train.StopAtStepHook(last_step=last_step),
            tf.train.NanTensorHook(loss),
            LoggerHook(loss),
            tf.train.FinalOpsHook(w),
            tf.train.CheckpointSaverHook(folder, save_steps=4, saver=saver),
        ]
        scaffold = tf.train.Scaffold(saver=saver, init_fn=lambda scaffold, session: print("init_fn"))
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, scaffold=scaffold,
            save_checkpoint_secs=None, save_checkpoint_steps=None,
            save_summaries_steps=2, save_summaries_secs=None, log_step_count_steps=None,
        ) as mon_sess:  # fmt: skip
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
        print("final", np.round(hooks[3].final_ops_values.ravel(), 5))


train(6)
print(os.path.basename(tf.train.latest_checkpoint(folder)))
train(11)
print(sorted(n for n in os.listdir(folder) if n.endswith(".index")))
(events,) = [n for n in sorted(os.listdir(folder)) if n.startswith("events")][:1]
tags = [(e.step, v.tag) for e in tf.train.summary_iterator(os.path.join(folder, events)) for v in e.summary.value]
print(tags[:3])
