"""A convolutional network of slim: scopes of arguments, batch normalization, end points, regularization."""

import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim


def arg_scope(weight_decay=0.0005, is_training=True):
    batch_norm_params = {"is_training": is_training, "decay": 0.9, "updates_collections": tf.GraphKeys.UPDATE_OPS}
    with (
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            activation_fn=tf.nn.relu,
            weights_initializer=slim.variance_scaling_initializer(),
            weights_regularizer=slim.l2_regularizer(weight_decay),
        ),
        slim.arg_scope(
            [slim.conv2d], padding="SAME", normalizer_fn=slim.batch_norm, normalizer_params=batch_norm_params
        ) as scope,
    ):
        return scope


def network(inputs, num_classes=2, is_training=True, scope="net"):
    with tf.variable_scope(scope, "net", [inputs]) as sc:
        end_points_collection = sc.original_name_scope + "_end_points"
        with slim.arg_scope(
            [slim.conv2d, slim.fully_connected, slim.max_pool2d], outputs_collections=end_points_collection
        ):
            net = slim.repeat(inputs, 2, slim.conv2d, 4, [3, 3], scope="conv1")
            net = slim.max_pool2d(net, [2, 2], scope="pool1")
            net = slim.conv2d(net, 6, [1, 1], scope="conv2")
            net = slim.flatten(net)
            net = slim.dropout(net, 0.9, is_training=is_training, scope="dropout")
            net = slim.fully_connected(net, num_classes, activation_fn=None, scope="logits")
            end_points = slim.utils.convert_collection_to_dict(end_points_collection)
            return net, end_points


def images(n, rng):
    """Images with a bright vertical or horizontal bar."""
    x, y = rng.normal(0, 0.1, [n, 8, 8, 1]), rng.randint(0, 2, n)
    for i in range(n):
        at = rng.randint(0, 8)
        x[(i, slice(None), at) if y[i] else (i, at)] += 1
    return x, y


tf.set_random_seed(5)
x = tf.placeholder(tf.float32, [None, 8, 8, 1])
labels = tf.placeholder(tf.int64, [None])
with slim.arg_scope(arg_scope()):
    logits, end_points = network(x)
with slim.arg_scope(arg_scope(is_training=False)), tf.variable_scope("", reuse=True):
    predictions, _ = network(x, is_training=False)
print(list(end_points))
for v in slim.get_model_variables():
    print(v.op.name, v.shape.as_list())
tf.losses.sparse_softmax_cross_entropy(labels, logits)
print(len(tf.losses.get_regularization_losses()), len(slim.get_variables_by_suffix("weights")))
total_loss = tf.losses.get_total_loss()
train_op = slim.learning.create_train_op(total_loss, tf.train.AdamOptimizer(0.01))
accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(predictions, 1), labels)))
rng = np.random.RandomState(0)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(80):
        a, b = images(32, rng)
        loss = sess.run(train_op, {x: a, labels: b})
    a, b = images(100, rng)
    print("learned", sess.run(accuracy, {x: a, labels: b}) > 0.9)
    print(sess.run(tf.train.get_global_step()))
