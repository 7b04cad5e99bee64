"""Rows of pictures classified by an LSTM: static, dynamic, bidirectional, stacked with dropout."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(6)
timesteps, num_input, num_hidden, num_classes = 6, 5, 12, 3
labels = rng.randint(num_classes, size=40)
rows = rng.normal(scale=0.5, size=(40, timesteps, num_input)).astype(np.float32)
rows[np.arange(40), :, labels] += 1.0
lengths = rng.randint(3, timesteps + 1, size=40)

X = tf.placeholder("float", [None, timesteps, num_input])
Y = tf.placeholder(tf.int64, [None])
L = tf.placeholder(tf.int32, [None])


def cell(size=num_hidden):
    return tf.nn.rnn_cell.BasicLSTMCell(size, forget_bias=1.0)


def static(x):
    outputs, _ = tf.nn.static_rnn(cell(), tf.unstack(x, timesteps, 1), dtype=tf.float32)
    return outputs[-1]


def dynamic(x):
    outputs, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(num_hidden), x, sequence_length=L, dtype=tf.float32)
    last = tf.gather_nd(outputs, tf.stack([tf.range(tf.shape(x)[0]), L - 1], axis=1))
    return tf.concat([last, state], 1)


def bidirectional(x):
    (fw, bw), states = tf.nn.bidirectional_dynamic_rnn(cell(), cell(), x, sequence_length=L, dtype=tf.float32)
    return tf.concat([tf.reduce_mean(fw, 1), tf.reduce_max(bw, axis=1), states[0].h], axis=-1)


def static_bidirectional(x):
    outputs, _, _ = tf.nn.static_bidirectional_rnn(cell(), cell(), tf.unstack(x, axis=1), dtype=tf.float32)
    return outputs[-1]


def stacked(x):
    layers = [tf.nn.rnn_cell.DropoutWrapper(cell(8), output_keep_prob=0.8, seed=3) for _ in range(2)]
    multi = tf.nn.rnn_cell.MultiRNNCell(layers, state_is_tuple=True)
    initial_state = multi.zero_state(tf.shape(x)[0], tf.float32)
    outputs, final_state = tf.nn.static_rnn(multi, tf.unstack(x, axis=1), initial_state)
    return tf.concat([outputs[-1], final_state[1][1]], 1)


losses, steps = [], []
for model in (static, dynamic, bidirectional, static_bidirectional, stacked):
    with tf.variable_scope(model.__name__, initializer=tf.random_uniform_initializer(-0.4, 0.4, seed=1)):
        features = model(X)
        logits = tf.layers.dense(features, num_classes, name="logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=Y))
    losses.append(loss)
    steps.append(tf.train.AdamOptimizer(0.02).minimize(loss, var_list=tf.trainable_variables(model.__name__ + "/")))
    print(model.__name__, [v.op.name.split("/", 1)[1] for v in tf.trainable_variables(model.__name__ + "/")])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(4):
        chosen = slice(step % 2 * 20, step % 2 * 20 + 20)
        found = sess.run(losses, {X: rows[chosen], Y: labels[chosen], L: lengths[chosen]})
        print("losses", *(f"{float(loss):.4f}" for loss in found))
        sess.run(steps, {X: rows[chosen], Y: labels[chosen], L: lengths[chosen]})
