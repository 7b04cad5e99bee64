"""Model-agnostic meta-learning: gradients through inner gradient steps, over tasks by `map_fn`."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

update_lr, meta_lr, hidden, num_updates = 0.05, 0.01, 8, 2


def construct_weights():
    return {
        "w1": tf.Variable(tf.truncated_normal([1, hidden], stddev=0.5, seed=1)),
        "b1": tf.Variable(tf.zeros([hidden])),
        "w2": tf.Variable(tf.truncated_normal([hidden, 1], stddev=0.5, seed=2), name="w2"),
        "b2": tf.Variable(tf.zeros([1]), name="b2"),
    }


def forward(inp, weights):
    return tf.matmul(tf.tanh(tf.matmul(inp, weights["w1"]) + weights["b1"]), weights["w2"]) + weights["b2"]


def mse(pred, label):
    return tf.reduce_mean(tf.square(tf.reshape(pred, [-1]) - tf.reshape(label, [-1])))


weights = construct_weights()
inputa, labela, inputb, labelb = (tf.placeholder(tf.float32, [None, None, 1]) for _ in range(4))


def task_metalearn(inp, stop=False):
    inputa, inputb, labela, labelb = inp
    loss_a, fast, losses_b = mse(forward(inputa, weights), labela), weights, []
    first = loss_a
    for _ in range(num_updates):
        grads = tf.gradients(loss_a, list(fast.values()))
        if stop:
            grads = [tf.stop_gradient(grad) for grad in grads]
        fast = dict(zip(fast.keys(), [w - update_lr * g for w, g in zip(fast.values(), grads)]))
        losses_b.append(mse(forward(inputb, fast), labelb))
        loss_a = mse(forward(inputa, fast), labela)
    return [first, losses_b]


elems = (inputa, inputb, labela, labelb)
losses_a, losses_b = tf.map_fn(task_metalearn, elems=elems, dtype=[tf.float32, [tf.float32] * num_updates])
total = [tf.reduce_mean(loss) for loss in losses_b]
optimizer = tf.train.AdamOptimizer(meta_lr)
gvs = optimizer.compute_gradients(total[-1])
metatrain_op = optimizer.apply_gradients([(tf.clip_by_value(g, -10, 10), v) for g, v in gvs])
one = [x[0] for x in elems]
second = tf.gradients(task_metalearn(one)[1][-1], weights["w1"])[0]
first_order = tf.gradients(task_metalearn(one, stop=True)[1][-1], weights["w1"])[0]

rng = np.random.RandomState(17)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for itr in range(12):
        amplitude, phase = rng.uniform(0.5, 2, (3, 1, 1)), rng.uniform(0, np.pi, (3, 1, 1))
        xs = rng.uniform(-2, 2, (3, 10, 1))
        ys = amplitude * np.sin(xs - phase)
        feed = {inputa: xs[:, :5], inputb: xs[:, 5:], labela: ys[:, :5], labelb: ys[:, 5:]}
        before, after, _ = sess.run([losses_a, total, metatrain_op], feed)
        if itr % 4 == 3:
            print(itr, "pre %.5f post" % before.mean(), " ".join("%.5f" % t for t in after))
    a, b = sess.run([second, first_order], feed)
    print(np.round(a[0, :4], 5), np.round(b[0, :4], 5))
