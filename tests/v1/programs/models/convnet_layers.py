"""A convolutional network of `tf.layers` with batch normalisation and its update ops."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(4)
labels = rng.randint(4, size=48)
images = rng.normal(scale=0.3, size=(48, 12, 12, 1)).astype(np.float32)
for i, k in enumerate(labels):
    images[i, 3 * k : 3 * k + 3] += 1.0


def init(seed):
    return tf.variance_scaling_initializer(scale=2.0, seed=seed)


def conv_net(x, reuse, is_training):
    with tf.variable_scope("ConvNet", reuse=reuse):
        x = tf.layers.conv2d(x, 8, 3, padding="same", use_bias=False, kernel_initializer=init(1))
        x = tf.layers.batch_normalization(x, training=is_training, momentum=0.9)
        x = tf.nn.relu(x)
        x = tf.layers.max_pooling2d(x, 2, 2)
        x = tf.layers.conv2d(x, 12, kernel_size=[3, 3], activation=tf.nn.elu, kernel_initializer=init(2))
        x = tf.layers.average_pooling2d(x, 2, 2)
        x = tf.layers.flatten(x)
        return tf.layers.dense(x, 4, kernel_initializer=init(3), name="logits")


x = tf.placeholder(tf.float32, [None, 12, 12, 1])
y = tf.placeholder(tf.int32, [None])
logits_train = conv_net(x, reuse=False, is_training=True)
logits_test = conv_net(x, reuse=True, is_training=False)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits_train, labels=y))
update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS, scope="ConvNet/batch")
print(len(update_ops), len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)))
with tf.control_dependencies(update_ops):
    train_op = tf.train.RMSPropOptimizer(0.01, momentum=0.5).minimize(loss)
top = tf.nn.in_top_k(predictions=logits_test, targets=y, k=1)
print([(v.name, v.shape.as_list()) for v in tf.global_variables("ConvNet") if "RMS" not in v.name])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(4):
        for i in range(0, 48, 16):
            batch = {x: images[i : i + 16], y: labels[i : i + 16]}
            _, value = sess.run([train_op, loss], batch)
        print("loss %.4f" % value, "right", sess.run(top, {x: images, y: labels}).sum())
    mean = tf.global_variables("ConvNet/batch_normalization/moving_mean")[0]
    print(np.round(sess.run(mean), 4))
