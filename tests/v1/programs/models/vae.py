"""A variational autoencoder: reparametrised samples, KL divergence, a decoder that is reused to make samples."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.set_random_seed(5)

rng = np.random.RandomState(10)
data = (rng.rand(64, 24) < np.linspace(0.1, 0.9, 24)).astype(np.float32)
latent = 3


def encoder(x):
    with tf.variable_scope("encoder", initializer=tf.glorot_normal_initializer(seed=1)):
        h = tf.layers.dense(x, 16, activation=tf.nn.leaky_relu)
        return tf.layers.dense(h, latent, name="mean"), tf.layers.dense(h, latent, name="log_var")


def decoder(z):
    with tf.variable_scope("decoder", reuse=tf.AUTO_REUSE, initializer=tf.glorot_normal_initializer(seed=2)):
        h = tf.layers.dense(z, 16, activation=tf.nn.selu, name="hidden")
        return tf.layers.dense(h, 24, name="logits")


x = tf.placeholder(tf.float32, [None, 24])
mean, log_var = encoder(x)
eps = tf.random_normal(tf.shape(log_var), seed=3)
z = mean + tf.exp(log_var / 2) * eps
logits = decoder(z)
recon = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=x), axis=1)
kl = -0.5 * tf.reduce_sum(1 + log_var - tf.square(mean) - tf.exp(log_var), axis=1)
p, q = tf.distributions.Normal(0.0, 1.0), tf.distributions.Normal(mean, tf.exp(log_var / 2))
same = tf.reduce_sum(tf.distributions.kl_divergence(q, p), 1)
loss = tf.reduce_mean(recon + kl)
train_op = tf.train.AdamOptimizer(0.01).minimize(loss)
z_in = tf.placeholder(tf.float32, [None, latent])
samples = tf.nn.sigmoid(decoder(z_in))
print(len(tf.trainable_variables()), [v.name for v in tf.trainable_variables(scope="decoder")])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(40):
        _, value, divergence = sess.run([train_op, loss, kl], {x: data})
        if step % 10 == 9:
            print("step %d elbo %.4f kl %.4f" % (step + 1, -value, divergence.mean()))
    print("closed form", np.allclose(*sess.run([kl, same], {x: data}), atol=1e-5))
    print(np.round(sess.run(samples, {z_in: np.zeros([1, latent])})[0, ::6], 4))
