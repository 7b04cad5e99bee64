"""A multilayer perceptron of `tf.layers` with dropout, L2 losses and Adam."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.set_random_seed(1)

rng = np.random.RandomState(2)
features = rng.normal(size=(256, 20)).astype(np.float32)
targets = (np.abs(features[:, 0]) + features[:, 1] > 0.5).astype(np.int64)


def neural_net(x, is_training):
    net = x
    for i, units in enumerate([32, 16]):
        net = tf.layers.dense(
            net, units, activation=tf.nn.relu, name=f"fc{i}",
            kernel_initializer=tf.glorot_uniform_initializer(seed=i),
            kernel_regularizer=lambda w: 1e-3 * tf.nn.l2_loss(w),
        )  # fmt: skip
        net = tf.layers.dropout(net, rate=0.25, training=is_training, seed=5)
    return tf.layers.dense(net, 2, kernel_initializer=tf.truncated_normal_initializer(stddev=0.1, seed=7), name="out")


x = tf.placeholder(tf.float32, [None, 20], name="x")
y = tf.placeholder(tf.int64, [None], name="y")
training = tf.placeholder_with_default(False, [], name="training")
global_step = tf.train.get_or_create_global_step()
logits = neural_net(x, training)
xent = tf.losses.sparse_softmax_cross_entropy(labels=y, logits=logits)
loss = tf.losses.get_total_loss()
train_op = tf.train.AdamOptimizer(1e-2).minimize(loss, global_step=global_step)
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))

print([(v.op.name, v.shape.as_list()) for v in tf.trainable_variables()])
print([t.op.name for t in tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)])
with tf.Session() as sess:
    tf.global_variables_initializer().run()
    for _ in range(6):
        for i in range(0, 256, 64):
            feed = {x: features[i : i + 64], y: targets[i : i + 64], training: True}
            sess.run(train_op, feed)
        found = sess.run([xent, loss, accuracy, global_step], {x: features, y: targets})
        print("xent {:.5f} loss {:.5f} accuracy {:.4f} step {}".format(*found))
