"""A residual network after the model zoo: fixed padding, projections, blocks, batch normalisation."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

_BATCH_NORM_DECAY, _BATCH_NORM_EPSILON = 0.9, 1e-5


def batch_norm(inputs, training):
    return tf.layers.batch_normalization(
        inputs=inputs, axis=-1, momentum=_BATCH_NORM_DECAY, epsilon=_BATCH_NORM_EPSILON, center=True, scale=True,
        training=training, fused=True,
    )  # fmt: skip


def conv2d_fixed_padding(inputs, filters, kernel_size, strides):
    if strides > 1:
        pad_beg = (kernel_size - 1) // 2
        pads = [pad_beg, kernel_size - 1 - pad_beg]
        inputs = tf.pad(inputs, [[0, 0], pads, pads, [0, 0]])
    return tf.layers.conv2d(
        inputs=inputs, filters=filters, kernel_size=kernel_size, strides=strides, use_bias=False,
        padding=("SAME" if strides == 1 else "VALID"),
        kernel_initializer=tf.variance_scaling_initializer(seed=filters + kernel_size),
    )  # fmt: skip


def building_block(inputs, filters, training, projection_shortcut, strides):
    shortcut = inputs
    inputs = tf.nn.relu(batch_norm(inputs, training))
    if projection_shortcut is not None:
        shortcut = projection_shortcut(inputs)
    inputs = conv2d_fixed_padding(inputs, filters, 3, strides)
    inputs = tf.nn.relu(batch_norm(inputs, training))
    return conv2d_fixed_padding(inputs, filters, 3, 1) + shortcut


def block_layer(inputs, filters, blocks, strides, training, name):
    def projection_shortcut(inputs):
        return conv2d_fixed_padding(inputs, filters, 1, strides)

    inputs = building_block(inputs, filters, training, projection_shortcut, strides)
    for _ in range(1, blocks):
        inputs = building_block(inputs, filters, training, None, 1)
    return tf.identity(inputs, name)


def model(inputs, training):
    inputs = tf.identity(conv2d_fixed_padding(inputs, 4, 3, 1), "initial_conv")
    for i, filters in enumerate([4, 8]):
        inputs = block_layer(inputs, filters, 1, 1 if i == 0 else 2, training, f"block_layer{i + 1}")
    inputs = tf.nn.relu(batch_norm(inputs, training))
    inputs = tf.squeeze(tf.identity(tf.reduce_mean(inputs, [1, 2], keepdims=True), "final_reduce_mean"), [1, 2])
    return tf.identity(tf.layers.dense(inputs, 3, kernel_initializer=tf.glorot_uniform_initializer(seed=1)), "final")


rng = np.random.RandomState(34)
labels = rng.randint(3, size=24)
images = rng.normal(scale=0.5, size=(24, 8, 8, 3)).astype(np.float32)
images[np.arange(24), :, :, labels] += 1.0
x, y = tf.placeholder(tf.float32, [None, 8, 8, 3]), tf.placeholder(tf.int32, [None])
training = tf.placeholder(tf.bool, [])
logits = model(x, training)
cross_entropy = tf.losses.sparse_softmax_cross_entropy(logits=logits, labels=y)
decayed = [
    tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in tf.trainable_variables() if "batch_normalization" not in v.name
]
loss = cross_entropy + 2e-4 * tf.add_n(decayed)
global_step = tf.train.get_or_create_global_step()
optimizer = tf.train.MomentumOptimizer(tf.train.piecewise_constant(global_step, [4], [0.1, 0.05]), 0.9)
minimize_op = optimizer.minimize(loss, global_step)
train_op = tf.group(minimize_op, tf.get_collection(tf.GraphKeys.UPDATE_OPS))
accuracy = tf.reduce_mean(tf.cast(tf.nn.in_top_k(logits, y, 1), tf.float32))
print(len(tf.trainable_variables()), sum(int(np.prod(v.shape.as_list())) for v in tf.trainable_variables()))
with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(6):
        chosen = slice(i % 2 * 12, i % 2 * 12 + 12)
        value, _ = sess.run([loss, train_op], {x: images[chosen], y: labels[chosen], training: True})
        print("loss %.4f" % value)
    print("accuracy %.4f" % sess.run(accuracy, {x: images, y: labels, training: True}))
    print("loss %.4f" % sess.run(cross_entropy, {x: images, y: labels, training: False}))
