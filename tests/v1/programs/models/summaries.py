"""Summaries of scalars, histograms and images by a FileWriter, read back."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

log_dir = tempfile.mkdtemp()


def variable_summaries(var):
    with tf.name_scope("summaries"):
        mean = tf.reduce_mean(var)
        tf.summary.scalar("mean", mean)
        with tf.name_scope("stddev"):
            stddev = tf.sqrt(tf.reduce_mean(tf.square(var - mean)))
        tf.summary.scalar("stddev", stddev)
        tf.summary.histogram("histogram", var)


def nn_layer(input_tensor, input_dim, output_dim, layer_name, act=tf.nn.relu):
    with tf.name_scope(layer_name):
        with tf.name_scope("weights"):
            weights = tf.Variable(tf.truncated_normal([input_dim, output_dim], stddev=0.1, seed=1))
            variable_summaries(weights)
        with tf.name_scope("Wx_plus_b"):
            preactivate = tf.matmul(input_tensor, weights) + tf.Variable(tf.constant(0.1, shape=[output_dim]))
            tf.summary.histogram("pre_activations", preactivate)
        return act(preactivate, name="activation")


rng = np.random.RandomState(27)
xs, ys = rng.normal(size=(40, 16)).astype(np.float32), rng.randint(3, size=40)
with tf.name_scope("input"):
    x = tf.placeholder(tf.float32, [None, 16], name="x-input")
    y_ = tf.placeholder(tf.int64, [None], name="y-input")
with tf.name_scope("input_reshape"):
    tf.summary.image("input", tf.reshape(x, [-1, 4, 4, 1]), 2)
y = nn_layer(nn_layer(x, 16, 8, "layer1"), 8, 3, "layer2", act=tf.identity)
with tf.name_scope("cross_entropy"):
    cross_entropy = tf.losses.sparse_softmax_cross_entropy(labels=y_, logits=y)
tf.summary.scalar("cross_entropy", cross_entropy)
train_step = tf.train.AdamOptimizer(0.01).minimize(cross_entropy)
merged = tf.summary.merge_all()
some = tf.summary.merge([s for s in tf.get_collection(tf.GraphKeys.SUMMARIES) if "mean" in s.op.name])
with tf.Session() as sess:
    train_writer = tf.summary.FileWriter(os.path.join(log_dir, "train"), sess.graph)
    sess.run(tf.global_variables_initializer())
    for i in range(4):
        train_writer.add_summary(merged.eval({x: xs, y_: ys}), i)
        train_step.run({x: xs, y_: ys})
        train_writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="by_hand", simple_value=i / 4)]), i)
    train_writer.add_summary(sess.run(some), 9)
    train_writer.close()

(name,) = os.listdir(os.path.join(log_dir, "train"))
print(name.startswith("events.out.tfevents."))
for event in tf.train.summary_iterator(os.path.join(log_dir, "train", name)):
    kind = event.WhichOneof("what")
    if kind != "summary":
        print(kind, event.step)
        continue
    for value in event.summary.value:
        which = value.WhichOneof("value")
        if which == "simple_value":
            print(event.step, value.tag, "%.5f" % value.simple_value)
        elif which == "histo" and event.step == 3:
            print(event.step, value.tag, int(value.histo.num), "%.5f %.5f" % (value.histo.min, value.histo.sum_squares))
        elif which == "image" and event.step == 0:
            print(event.step, value.tag, value.image.height, value.image.width, value.image.colorspace)
