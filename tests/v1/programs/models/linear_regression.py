"""Linear regression on placeholders, fitted point by point."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(0)
train_x = rng.uniform(0, 10, 17).astype(np.float32)
train_y = (0.25 * train_x + 0.8 + rng.normal(0, 0.1, 17)).astype(np.float32)
n_samples = train_x.shape[0]

X = tf.placeholder("float")
Y = tf.placeholder("float")
W = tf.Variable(0.3, name="weight")
b = tf.Variable(-0.2, name="bias")

pred = tf.add(tf.multiply(X, W), b)
cost = tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * n_samples)
optimizer = tf.train.GradientDescentOptimizer(0.01).minimize(cost)
init = tf.global_variables_initializer()

with tf.Session() as sess:
    sess.run(init)
    for epoch in range(100):
        for x, y in zip(train_x, train_y):
            sess.run(optimizer, feed_dict={X: x, Y: y})
        if (epoch + 1) % 25 == 0:
            c = sess.run(cost, feed_dict={X: train_x, Y: train_y})
            print("Epoch:", "%04d" % (epoch + 1), "cost=", f"{c:.6f}", "W=", sess.run(W), "b=", sess.run(b))
    training_cost = sess.run(cost, feed_dict={X: train_x, Y: train_y})
    test_x = np.asarray([6.83, 4.668, 8.9, 7.91])
    test_y = 0.25 * test_x + 0.8
    testing_cost = sess.run(
        tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * test_x.shape[0]), feed_dict={X: test_x, Y: test_y}
    )
    print("training cost", training_cost, "difference", abs(training_cost - testing_cost))
