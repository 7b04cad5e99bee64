"""REINFORCE: actions drawn by multinomial, discounted returns, gradients accumulated in buffers and applied."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def discount_rewards(r, gamma=0.9):
    discounted, running = np.zeros_like(r), 0.0
    for t in reversed(range(len(r))):
        running = running * gamma + r[t]
        discounted[t] = running
    return discounted


state_in = tf.placeholder(shape=[None, 4], dtype=tf.float32)
reward_holder = tf.placeholder(shape=[None], dtype=tf.float32)
action_holder = tf.placeholder(shape=[None], dtype=tf.int32)
hidden = tf.layers.dense(
    state_in, 8, activation=tf.nn.relu, use_bias=False, kernel_initializer=tf.random_normal_initializer(seed=1)
)
logits = tf.layers.dense(hidden, 3, use_bias=False, kernel_initializer=tf.random_normal_initializer(seed=2))
output = tf.nn.softmax(logits)
chosen = tf.squeeze(tf.multinomial(logits, 1, seed=9), 1)
indexes = tf.range(0, tf.shape(output)[0]) * tf.shape(output)[1] + action_holder
responsible = tf.gather(tf.reshape(output, [-1]), indexes)
entropy = -tf.reduce_sum(output * tf.log(output + 1e-8), axis=1)
loss = -tf.reduce_mean(tf.log(responsible) * reward_holder) - 0.01 * tf.reduce_mean(entropy)
tvars = tf.trainable_variables()
gradient_holders = [tf.placeholder(tf.float32, name=f"{i}_holder") for i, _ in enumerate(tvars)]
gradients = tf.gradients(loss, tvars)
update_batch = tf.train.AdamOptimizer(learning_rate=0.05).apply_gradients(zip(gradient_holders, tvars))

rng = np.random.RandomState(12)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    grad_buffer = [np.zeros_like(g) for g in sess.run(tvars)]
    for episode in range(30):
        states = rng.normal(size=(10, 4))
        actions = sess.run(chosen, {state_in: states})
        rewards = (actions == np.argmax(states[:, :3], 1)).astype(np.float32)
        feed = {reward_holder: discount_rewards(rewards), action_holder: actions, state_in: states}
        for i, g in enumerate(sess.run(gradients, feed)):
            grad_buffer[i] += g
        if episode % 5 == 4:
            sess.run(update_batch, dict(zip(gradient_holders, grad_buffer)))
            grad_buffer = [g * 0 for g in grad_buffer]
            print(episode + 1, "reward", rewards.sum(), "loss %.4f" % sess.run(loss, feed))
