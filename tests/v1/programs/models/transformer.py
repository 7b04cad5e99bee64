"""A block of the Transformer: positions, multi-head attention with a mask, layer normalisation, smoothed labels."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

batch, length, d_model, heads, vocab = 4, 6, 16, 4, 12


def layer_norm(x, scope, epsilon=1e-6):
    with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
        scale = tf.get_variable("scale", [d_model], initializer=tf.ones_initializer())
        bias = tf.get_variable("bias", [d_model], initializer=tf.zeros_initializer())
        mean, variance = tf.nn.moments(x, axes=[-1], keep_dims=True)
        return (x - mean) * tf.rsqrt(variance + epsilon) * scale + bias


def positions(length, channels):
    position = tf.to_float(tf.range(length))
    increment = np.log(1e4) / (channels // 2 - 1)
    inverse = tf.exp(tf.to_float(tf.range(channels // 2)) * -increment)
    scaled = tf.expand_dims(position, 1) * tf.expand_dims(inverse, 0)
    return tf.concat([tf.sin(scaled), tf.cos(scaled)], axis=1)[tf.newaxis]


def split_heads(x):
    return tf.transpose(tf.reshape(x, [tf.shape(x)[0], length, heads, d_model // heads]), [0, 2, 1, 3])


def multihead(x, causal, scope="attention"):
    with tf.variable_scope(scope):
        q, k, v = (split_heads(tf.layers.dense(x, d_model, use_bias=False, name=n)) for n in "qkv")
        weights = tf.matmul(q * (d_model // heads) ** -0.5, k, transpose_b=True)
        if causal:
            lower = tf.matrix_band_part(tf.ones([length, length]), -1, 0)
            weights += (1.0 - lower) * -1e9
        weights = tf.nn.softmax(weights, name="attention_weights")
        y = tf.transpose(tf.matmul(weights, v), perm=[0, 2, 1, 3])
        y = tf.reshape(y, [-1, length, d_model])
        return tf.layers.dense(y, d_model, use_bias=False, name="output_transform"), weights


ids = tf.placeholder(tf.int32, [None, length])
labels = tf.placeholder(tf.int32, [None, length])
with tf.variable_scope("model", initializer=tf.variance_scaling_initializer(1.0, "fan_avg", "uniform", seed=3)):
    table = tf.get_variable("table", [vocab, d_model], initializer=tf.random_normal_initializer(0.0, 0.25, seed=1))
    x = tf.gather(table, ids) * d_model**0.5
    x += positions(length, d_model)
    for i in range(2):
        with tf.variable_scope(f"layer_{i}"):
            y, weights = multihead(layer_norm(x, "ln_1"), causal=True)
            x = x + y
            h = tf.layers.dense(layer_norm(x, "ln_2"), 32, activation=tf.nn.relu, name="filter")
            x += tf.layers.dense(h, d_model, name="output")
    x = layer_norm(x, "ln_f")
    logits = tf.reshape(tf.matmul(tf.reshape(x, [-1, d_model]), table, transpose_b=True), [-1, length, vocab])
confidence = 0.9
soft = tf.one_hot(labels, vocab, on_value=confidence, off_value=(1 - confidence) / (vocab - 1))
xent = tf.nn.softmax_cross_entropy_with_logits_v2(logits=logits, labels=soft)
normalizing = -(confidence * tf.log(confidence) + (1 - confidence) * tf.log((1 - confidence) / (vocab - 1) + 1e-20))
loss = tf.reduce_mean(xent - normalizing)
step = tf.train.get_or_create_global_step()
warmup = 8.0
rate = (
    0.5 * d_model**-0.5 * tf.minimum((tf.to_float(step) + 1) / warmup, tf.rsqrt(tf.maximum(tf.to_float(step), warmup)))
)
train = tf.train.AdamOptimizer(rate, beta1=0.9, beta2=0.98, epsilon=1e-9).minimize(loss, global_step=step)

rng = np.random.RandomState(15)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(20):
        data = (rng.randint(vocab, size=(batch, 1)) + np.arange(length + 1)) % vocab
        feed = {ids: data[:, :-1], labels: data[:, 1:]}
        sess.run(train, feed)
        value, lr, i = sess.run([loss, rate, step], feed)
        if i % 5 == 0:
            print(i, "loss %.4f rate %.5f" % (value, lr))
    w = sess.run(weights, feed)
    print(w.shape, np.round(w[0, 0].sum(-1), 4), float(np.abs(np.triu(w[0, 0], 1)).max()))
