"""A LeNet of `tf.nn` with losses in a collection, a decaying rate and averages."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(5)
labels = rng.randint(3, size=30)
images = rng.normal(scale=0.4, size=(30, 10, 10, 3)).astype(np.float32)
images[np.arange(30), :, :, labels] += 0.6


def _variable_with_weight_decay(name, shape, stddev, wd, seed):
    initializer = tf.truncated_normal_initializer(stddev=stddev, dtype=tf.float32, seed=seed)
    var = tf.get_variable(name, shape, initializer=initializer)
    if wd is not None:
        tf.add_to_collection("losses", tf.multiply(tf.nn.l2_loss(var), wd, name="weight_loss"))
    return var


def inference(images):
    with tf.variable_scope("conv1") as scope:
        kernel = _variable_with_weight_decay("weights", [5, 5, 3, 8], 0.1, None, 1)
        conv = tf.nn.conv2d(images, kernel, [1, 1, 1, 1], padding="SAME")
        biases = tf.get_variable("biases", [8], initializer=tf.constant_initializer(0.0))
        conv1 = tf.nn.relu(tf.nn.bias_add(conv, biases), name=scope.name)
    pool1 = tf.nn.max_pool(conv1, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME", name="pool1")
    norm1 = tf.nn.lrn(pool1, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm1")
    with tf.variable_scope("local2") as scope:
        reshape = tf.reshape(norm1, [-1, 5 * 5 * 8])
        weights = _variable_with_weight_decay("weights", [200, 16], 0.1, 0.004, 2)
        local2 = tf.nn.relu(tf.matmul(reshape, weights) + tf.get_variable("biases", [16]), name=scope.name)
    with tf.variable_scope("softmax_linear") as scope:
        weights = _variable_with_weight_decay("weights", [16, 3], 0.2, 0.0, 3)
        biases = tf.get_variable("biases", initializer=tf.zeros([3]))
        return tf.add(tf.matmul(local2, weights), biases, name=scope.name)


tf.set_random_seed(11)
x, y = tf.placeholder(tf.float32, [10, 10, 10, 3]), tf.placeholder(tf.int64, [10])
logits = inference(x)
cross_entropy = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
tf.add_to_collection("losses", cross_entropy)
total_loss = tf.add_n(tf.get_collection("losses"), name="total_loss")
global_step = tf.Variable(0, name="global_step", trainable=False)
lr = tf.train.exponential_decay(0.1, global_step, 6, 0.5, staircase=True)
opt = tf.train.GradientDescentOptimizer(lr)
apply_gradient_op = opt.apply_gradients(opt.compute_gradients(total_loss), global_step=global_step)
variable_averages = tf.train.ExponentialMovingAverage(0.9, global_step)
with tf.control_dependencies([apply_gradient_op]):
    train_op = variable_averages.apply(tf.trainable_variables())
averaged = variable_averages.average(tf.trainable_variables()[-1])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(18):
        i = step % 3 * 10
        _, loss, rate = sess.run([train_op, total_loss, lr], {x: images[i : i + 10], y: labels[i : i + 10]})
        if step % 6 == 5:
            print(step, "loss %.4f rate %.4f" % (loss, rate))
    print(np.round(sess.run([tf.trainable_variables()[-1], averaged]), 4))
    print(sorted(variable_averages.variables_to_restore())[:3])
