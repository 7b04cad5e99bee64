"""A GAN with variable scopes and two optimizers, and a WGAN-GP."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def init(seed):
    return tf.random_normal_initializer(stddev=0.3, seed=seed)


def generator(z):
    with tf.variable_scope("Generator"):
        h = tf.layers.dense(z, 12, tf.nn.relu, kernel_initializer=init(1))
        return tf.layers.dense(h, 2, kernel_initializer=init(2))


def discriminator(x, reuse=False):
    with tf.variable_scope("Discriminator", reuse=reuse):
        h = tf.layers.dense(x, 12, tf.nn.leaky_relu, kernel_initializer=init(3))
        return tf.layers.dense(h, 1, kernel_initializer=init(4))


def run(kind):
    tf.reset_default_graph()
    z = tf.placeholder(tf.float32, [None, 4])
    real = tf.placeholder(tf.float32, [None, 2])
    fake = generator(z)
    d_real, d_fake = discriminator(real), discriminator(fake, reuse=True)
    if kind == "gan":
        ones, zeros = tf.ones_like(d_real), tf.zeros_like(d_fake)
        d_loss = tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(logits=d_real, labels=0.9 * ones)
            + tf.nn.sigmoid_cross_entropy_with_logits(logits=d_fake, labels=zeros)
        )
        g_loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=d_fake, labels=tf.ones_like(d_fake)))
    else:
        alpha = tf.random_uniform([tf.shape(real)[0], 1], 0.0, 1.0, seed=5)
        between = alpha * real + (1 - alpha) * fake
        (slope,) = tf.gradients(discriminator(between, reuse=True), [between])
        norm = tf.sqrt(tf.reduce_sum(tf.square(slope), reduction_indices=[1]))
        d_loss = tf.reduce_mean(d_fake) - tf.reduce_mean(d_real) + 10.0 * tf.reduce_mean((norm - 1.0) ** 2)
        g_loss = -tf.reduce_mean(d_fake)
    t_vars = tf.trainable_variables()
    d_vars = [v for v in t_vars if v.name.startswith("Discriminator")]
    g_vars = [v for v in t_vars if "Generator" in v.name]
    d_step = tf.train.AdamOptimizer(0.01, beta1=0.5).minimize(d_loss, var_list=d_vars)
    g_step = tf.train.AdamOptimizer(0.01, beta1=0.5, beta2=0.9).minimize(g_loss, var_list=g_vars)
    rng = np.random.RandomState(11)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(20):
            batch = {real: rng.normal([2, -1], 0.5, size=(32, 2)), z: rng.normal(size=(32, 4))}
            for _ in range(1 if kind == "gan" else 2):
                _, d = sess.run([d_step, d_loss], batch)
            _, g = sess.run([g_step, g_loss], batch)
            if i % 5 == 4:
                print(kind, i, "d %.4f g %.4f" % (d, g))
        print(np.round(sess.run(fake, {z: rng.normal(size=(200, 4))}).mean(0), 3))


run("gan")
run("wgan-gp")
