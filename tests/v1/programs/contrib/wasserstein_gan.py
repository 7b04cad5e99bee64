"""A Wasserstein GAN with a gradient penalty, of the layers of contrib."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers

tf.set_random_seed(9)
BATCH = 16


def generator(z):
    with tf.variable_scope("generator", reuse=tf.AUTO_REUSE):
        net = layers.fully_connected(z, 2 * 2 * 8, normalizer_fn=layers.batch_norm, scope="fc")
        net = tf.reshape(net, [-1, 2, 2, 8])
        net = layers.conv2d_transpose(net, 4, 4, stride=2, normalizer_fn=layers.batch_norm, scope="up1")
        return layers.conv2d_transpose(net, 1, 4, stride=2, activation_fn=tf.nn.sigmoid, scope="up2")


def critic(x):
    with tf.variable_scope("critic", reuse=tf.AUTO_REUSE):
        with tf.contrib.framework.arg_scope([layers.conv2d], activation_fn=tf.nn.leaky_relu, stride=2):
            net = layers.conv2d(x, 4, 4, scope="down1")
            net = layers.conv2d(net, 8, 4, normalizer_fn=layers.layer_norm, scope="down2")
        return layers.linear(layers.flatten(net), 1, scope="out")


real = tf.placeholder(tf.float32, [BATCH, 8, 8, 1])
fake = generator(tf.random_normal([BATCH, 4]))
mixed = fake + tf.random_uniform([BATCH, 1, 1, 1]) * (real - fake)
slopes = tf.gradients(critic(mixed), [mixed])[0]
norms = tf.sqrt(tf.reduce_sum(tf.square(slopes), [1, 2, 3]) + 1e-8)
penalty = tf.reduce_mean(tf.square(norms - 1.0))
distance = tf.reduce_mean(critic(real)) - tf.reduce_mean(critic(fake))
critic_loss, generator_loss = 10.0 * penalty - distance, -tf.reduce_mean(critic(fake))
critic_vars = tf.contrib.framework.get_trainable_variables("critic")
generator_vars = tf.contrib.framework.get_trainable_variables("generator")
print([v.op.name for v in critic_vars])
print([v.op.name for v in generator_vars])
train_critic = tf.train.AdamOptimizer(0.01, 0.5).minimize(critic_loss, var_list=critic_vars)
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS, "generator")):
    train_generator = tf.train.AdamOptimizer(0.01, 0.5).minimize(generator_loss, var_list=generator_vars)
images = np.zeros([BATCH, 8, 8, 1])
images[:, 2:6, 2:6] = 1.0
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    first = np.abs(sess.run(fake) - images).mean()
    for _ in range(120):
        for _ in range(2):
            sess.run(train_critic, {real: images})
        sess.run(train_generator, {real: images})
    steep, last = sess.run([norms, fake], {real: images})
    print("nearer", np.abs(last - images).mean() < 0.7 * first, "slopes near 1", abs(steep.mean() - 1) < 0.5)
