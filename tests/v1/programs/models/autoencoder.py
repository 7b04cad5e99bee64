"""A denoising autoencoder with tied weights, and a sparse one with a KL penalty."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def xavier_init(fan_in, fan_out, seed):
    high = np.sqrt(6.0 / (fan_in + fan_out))
    return tf.random_uniform((fan_in, fan_out), minval=-high, maxval=high, dtype=tf.float32, seed=seed)


class AdditiveGaussianNoiseAutoencoder:
    def __init__(self, n_input, n_hidden, scale=0.1):
        self.scale = tf.placeholder(tf.float32)
        self.x = tf.placeholder(tf.float32, [None, n_input])
        self.weights = {
            "w1": tf.Variable(xavier_init(n_input, n_hidden, 1)),
            "b1": tf.Variable(tf.zeros([n_hidden], dtype=tf.float32)),
            "b2": tf.Variable(tf.zeros([n_input], dtype=tf.float32)),
        }
        noisy = self.x + self.scale * tf.random_normal((n_input,), seed=2)
        self.hidden = tf.nn.softplus(tf.add(tf.matmul(noisy, self.weights["w1"]), self.weights["b1"]))
        self.reconstruction = tf.matmul(self.hidden, tf.transpose(self.weights["w1"])) + self.weights["b2"]
        self.cost = 0.5 * tf.reduce_sum(tf.pow(tf.subtract(self.reconstruction, self.x), 2.0))
        self.optimizer = tf.train.AdamOptimizer(learning_rate=0.02).minimize(self.cost)
        self.sess = tf.Session()
        self.sess.run(tf.global_variables_initializer())

    def partial_fit(self, X):
        cost, _ = self.sess.run((self.cost, self.optimizer), feed_dict={self.x: X, self.scale: 0.1})
        return cost

    def transform(self, X):
        return self.sess.run(self.hidden, feed_dict={self.x: X, self.scale: 0.0})


rng = np.random.RandomState(9)
codes = rng.normal(size=(60, 3))
data = (codes @ rng.normal(size=(3, 16))).astype(np.float32)
model = AdditiveGaussianNoiseAutoencoder(16, 8)
for epoch in range(30):
    total = sum(model.partial_fit(data[i : i + 20]) for i in range(0, 60, 20))
    if epoch % 10 == 9:
        print("epoch", epoch + 1, "cost %.2f" % total)
print(np.round(model.transform(data[:2]).mean(axis=1), 4))
print(model.sess.run(model.weights["b1"]).shape)
model.sess.close()

x = tf.placeholder(tf.float32, [None, 16])
with tf.variable_scope("sparse", initializer=tf.orthogonal_initializer(seed=4)):
    hidden = tf.layers.dense(x, 12, tf.sigmoid, name="encode")
    decoded = tf.layers.dense(hidden, 16, name="decode")
rho, rho_hat = 0.05, tf.reduce_mean(hidden, 0)
penalty = tf.reduce_sum(rho * tf.log(rho / rho_hat) + (1 - rho) * tf.log((1 - rho) / (1 - rho_hat)))
loss = tf.losses.mean_squared_error(x, decoded) + 0.1 * penalty
train = tf.train.AdagradOptimizer(0.2).minimize(loss, var_list=tf.trainable_variables("sparse"))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(20):
        sess.run(train, {x: data})
    print("sparse %.4f %.4f" % tuple(sess.run([loss, penalty], {x: data})))
