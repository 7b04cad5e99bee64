"""An image variable whose features and Gram matrices become those of two others."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(20)
filters = [rng.normal(scale=0.3, size=s).astype(np.float32) for s in ((3, 3, 3, 6), (3, 3, 6, 8))]
content_image = rng.uniform(0, 1, (1, 12, 12, 3)).astype(np.float32)
style_image = np.sin(np.arange(12 * 12 * 3)).reshape(1, 12, 12, 3).astype(np.float32)


def network(image):
    net, out = image, {}
    for i, w in enumerate(filters):
        net = tf.nn.relu(tf.nn.conv2d(net, tf.constant(w), strides=(1, 1, 1, 1), padding="SAME"))
        out[f"relu{i}"] = net
        net = tf.nn.avg_pool(net, ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1), padding="SAME")
    return out


def gram(features):
    _, height, width, number = (d.value for d in features.get_shape())
    flat = tf.reshape(features, (-1, number))
    return tf.matmul(tf.transpose(flat), flat) / (height * width * number)


with tf.Graph().as_default(), tf.Session():
    image = tf.placeholder("float", shape=style_image.shape)
    net = network(image)
    style_features = {k: gram(v).eval(feed_dict={image: style_image}) for k, v in net.items()}
    content_features = net["relu1"].eval(feed_dict={image: content_image})

with tf.Graph().as_default():
    image = tf.Variable(tf.random_normal(content_image.shape, stddev=0.256, seed=1))
    net = network(image)
    content_loss = 2 * tf.nn.l2_loss(net["relu1"] - content_features) / content_features.size
    style_losses = [2 * tf.nn.l2_loss(gram(net[k]) - g) / g.size for k, g in style_features.items()]
    style_loss = 50.0 * tf.add_n(style_losses)
    across = tf.nn.l2_loss(image[:, 1:, :, :] - image[:, :11, :, :])
    down = tf.nn.l2_loss(image[:, :, 1:, :] - image[:, :, :11, :])
    tv_loss = 0.01 * 2 * (across / content_image.size + down / content_image.size)
    by_op = tf.reduce_sum(tf.image.total_variation(image))
    loss = content_loss + style_loss + tv_loss
    learning_rate = tf.placeholder(tf.float32, [])
    train_step = tf.train.AdamOptimizer(learning_rate, 0.9, 0.999, 1e-08).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        best = float("inf")
        for i in range(30):
            train_step.run({learning_rate: 0.1 if i < 20 else 0.03})
            best = min(best, loss.eval())
            if i % 10 == 9:
                parts = sess.run([content_loss, style_loss, tv_loss, by_op])
                print("content %.5f style %.5f tv %.6f sum %.3f" % tuple(parts))
        print("best %.5f" % best, np.round(image.eval()[0, 0, 0], 3))
