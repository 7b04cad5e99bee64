"""A model saved and restored: by `import_meta_graph`, in part, and from averages."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

folder = tempfile.mkdtemp()
rng = np.random.RandomState(28)
xs = rng.normal(size=(30, 5))
ys = xs @ np.arange(5)[:, None] / 5


def build():
    x = tf.placeholder(tf.float32, [None, 5], name="x")
    y = tf.placeholder(tf.float32, [None, 1], name="y")
    with tf.variable_scope("model"):
        h = tf.layers.dense(x, 6, tf.nn.tanh, kernel_initializer=tf.glorot_uniform_initializer(seed=1), name="hidden")
        out = tf.layers.dense(h, 1, kernel_initializer=tf.glorot_uniform_initializer(seed=2), name="out")
    return x, y, tf.losses.mean_squared_error(y, out), out


with tf.Graph().as_default() as g, tf.Session() as sess:
    x, y, loss, out = build()
    tf.identity(out, name="prediction")
    global_step = tf.train.get_or_create_global_step()
    train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step)
    ema = tf.train.ExponentialMovingAverage(0.8)
    with tf.control_dependencies([train_op]):
        train_op = ema.apply(tf.trainable_variables())
    tf.add_to_collection("train_op", train_op)
    tf.add_to_collection("loss", loss)
    saver = tf.train.Saver(max_to_keep=2)
    sess.run(tf.global_variables_initializer())
    for i in range(9):
        sess.run(train_op, {x: xs, y: ys})
        if i % 3 == 2:
            path = saver.save(sess, os.path.join(folder, "model.ckpt"), global_step=global_step)
            print(os.path.basename(path), "%.6f" % loss.eval({x: xs, y: ys}))
    print([os.path.basename(p) for p in saver.last_checkpoints])

with tf.Graph().as_default(), tf.Session() as sess:
    state = tf.train.get_checkpoint_state(folder)
    saver = tf.train.import_meta_graph(state.model_checkpoint_path + ".meta", clear_devices=True)
    saver.restore(sess, state.model_checkpoint_path)
    graph = tf.get_default_graph()
    feed = {graph.get_tensor_by_name("x:0"): xs, "y:0": ys}
    print(
        "restored %.6f" % sess.run(tf.get_collection("loss")[0], feed), graph.get_operation_by_name("prediction").type
    )
    sess.run(tf.get_collection("train_op"), feed)
    print("one step more %.6f" % sess.run(tf.get_collection("loss")[0], feed), sess.run("global_step:0"))

with tf.Graph().as_default(), tf.Session() as sess:
    x, y, loss, _ = build()
    averaged = tf.train.ExponentialMovingAverage(0.8).variables_to_restore()
    print(sorted(averaged))
    tf.train.Saver(averaged).restore(sess, tf.train.latest_checkpoint(folder))
    print("averages %.6f" % sess.run(loss, {x: xs, y: ys}))
    tf.train.Saver({v.op.name: v for v in tf.trainable_variables("model/hidden")}).restore(
        sess, os.path.join(folder, "model.ckpt-6")
    )
    print("in part %.6f" % sess.run(loss, {x: xs, y: ys}), sess.run(tf.report_uninitialized_variables()).tolist())

reader = tf.train.NewCheckpointReader(tf.train.latest_checkpoint(folder))
for key, shape in sorted(reader.get_variable_to_shape_map().items()):
    print(key, shape)
print(round(float(reader.get_tensor("model/out/bias")[0]), 5), [n for n, _ in tf.train.list_variables(folder)][:2])
