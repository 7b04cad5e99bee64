"""A multilayer perceptron in a class: dictionaries of weights, momentum, a fed learning rate."""

import itertools

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class Network:
    def __init__(self, sizes, scope="network"):
        self.x = tf.placeholder(tf.float32, (None, sizes[0]))
        self.y = tf.placeholder(tf.float32, (None, sizes[-1]))
        self.keep_prob = tf.placeholder(tf.float32)
        self.learning_rate = tf.placeholder(tf.float32, shape=[])
        with tf.name_scope(scope):
            self.weights = {
                f"h{i}": tf.Variable(tf.random_normal([n, m], stddev=0.3, seed=i), name=f"h{i}")
                for i, (n, m) in enumerate(itertools.pairwise(sizes))
            }
            self.biases = {f"b{i}": tf.Variable(tf.constant(0.1, shape=[m])) for i, m in enumerate(sizes[1:])}
        layer = self.x
        for i in range(len(sizes) - 2):
            layer = tf.nn.tanh(tf.add(tf.matmul(layer, self.weights[f"h{i}"]), self.biases[f"b{i}"]))
            layer = tf.nn.dropout(layer, self.keep_prob, seed=i)
        i = len(sizes) - 2
        self.logits = tf.nn.xw_plus_b(layer, self.weights[f"h{i}"], self.biases[f"b{i}"])
        self.loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=self.y, logits=self.logits))
        optimizer = tf.train.MomentumOptimizer(self.learning_rate, 0.9, use_nesterov=True)
        self.grads = optimizer.compute_gradients(self.loss)
        capped = [(tf.clip_by_norm(g, 1.0), v) for g, v in self.grads if g is not None]
        self.train_op = optimizer.apply_gradients(capped)


rng = np.random.RandomState(3)
inputs = rng.rand(128, 6) * 2 - 1
outputs = np.stack([inputs[:, 0] * inputs[:, 1] > 0, inputs[:, 2] > inputs[:, 3]], 1).astype(float)
network = Network([6, 24, 12, 2])
print([v.name for _, v in network.grads])
config = tf.ConfigProto(log_device_placement=False, allow_soft_placement=True)
config.gpu_options.allow_growth = True
sess = tf.InteractiveSession(config=config)
sess.run(tf.global_variables_initializer())
rate = 0.5
for step in range(60):
    feed_dict = {network.x: inputs, network.y: outputs, network.keep_prob: 0.9, network.learning_rate: rate}
    network.train_op.run(feed_dict)
    if step % 15 == 14:
        rate *= 0.7
        feed_dict[network.keep_prob] = 1.0
        print(step, round(float(network.loss.eval(feed_dict)), 5))
hits = tf.equal(tf.round(tf.sigmoid(network.logits)), network.y)
print("hits", tf.reduce_sum(tf.to_int32(hits)).eval({network.x: inputs, network.y: outputs, network.keep_prob: 1.0}))
sess.close()
