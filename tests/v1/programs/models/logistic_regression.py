"""Softmax regression on made pictures, in batches that are fed, with accuracy by `eval`."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(1)
centres = rng.normal(size=(10, 64))
labels = rng.randint(10, size=500)
images = (centres[labels] + rng.normal(size=(500, 64))).astype(np.float32)
one_hot = np.eye(10, dtype=np.float32)[labels]

batch_size = 50
x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.float32, [None, 10])
W = tf.Variable(tf.zeros([64, 10]))
b = tf.Variable(tf.zeros([10]))
pred = tf.nn.softmax(tf.matmul(x, W) + b)
cost = tf.reduce_mean(-tf.reduce_sum(y * tf.log(tf.clip_by_value(pred, 1e-10, 1.0)), reduction_indices=1))
optimizer = tf.train.GradientDescentOptimizer(0.01).minimize(cost)

with tf.Session() as sess:
    sess.run(tf.initialize_all_variables())
    for epoch in range(5):
        avg_cost = 0.0
        total_batch = len(images) // batch_size
        for i in range(total_batch):
            chosen = slice(i * batch_size, (i + 1) * batch_size)
            _, c = sess.run([optimizer, cost], feed_dict={x: images[chosen], y: one_hot[chosen]})
            avg_cost += c / total_batch
        print("Epoch:", epoch + 1, "cost =", f"{avg_cost:.6f}")
    correct_prediction = tf.equal(tf.argmax(pred, 1), tf.argmax(y, 1))
    accuracy = tf.reduce_mean(tf.cast(correct_prediction, tf.float32))
    print("Accuracy:", accuracy.eval({x: images, y: one_hot}))
