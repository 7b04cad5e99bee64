"""Trees in the graph: a loop with TensorArrays, `cond` for leaves, `case` for operators."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

dim = 4
is_leaf = tf.placeholder(tf.bool, [None])
word = tf.placeholder(tf.int32, [None])
left, right = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.int32, [None])
label = tf.placeholder(tf.int32, [])
with tf.variable_scope("composition", initializer=tf.random_uniform_initializer(-0.6, 0.6, seed=1)):
    embeddings = tf.get_variable("embeddings", [6, dim])
    W1 = tf.get_variable("W1", [2 * dim, dim])
    b1 = tf.get_variable("b1", [1, dim], initializer=tf.zeros_initializer())
    U = tf.get_variable("U", [dim, 2])
node_tensors = tf.TensorArray(
    tf.float32, size=0, dynamic_size=True, clear_after_read=False, infer_shape=False, element_shape=[1, dim]
)


def loop_body(tensors, i):
    def combine():
        children = tf.concat([tensors.read(left[i]), tensors.read(right[i])], 1)
        return tf.nn.relu(tf.matmul(children, W1) + b1)

    node = tf.cond(is_leaf[i], lambda: tf.expand_dims(tf.gather(embeddings, word[i]), 0), combine)
    return tensors.write(i, node), tf.add(i, 1)


n_nodes = tf.squeeze(tf.shape(is_leaf))
node_tensors, _ = tf.while_loop(lambda _, i: tf.less(i, n_nodes), loop_body, [node_tensors, 0], parallel_iterations=1)
logits = tf.matmul(node_tensors.concat(), U)
root = logits[-1:]
loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=root, labels=[label]))
loss += 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in (W1, U)])
train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss)

# An expression on a stack, one operator a step.
codes, numbers = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])


def evaluate(i, stack):
    a, b = stack[-2:-1], stack[-1:]
    value = tf.case(
        {
            tf.equal(codes[i], 1): lambda: tf.concat([stack[:-2], a + b], 0),
            tf.equal(codes[i], 2): lambda: tf.concat([stack[:-2], a * b], 0),
            tf.equal(codes[i], 3): lambda: tf.concat([stack[:-1], tf.exp(-b)], 0),
        },
        default=lambda: tf.concat([stack, [numbers[i]]], 0),
        exclusive=True,
    )
    value.set_shape([None])
    return i + 1, value


_, stack = tf.while_loop(
    lambda i, _: i < tf.size(codes), evaluate, [0, tf.zeros([0])],
    shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
)  # fmt: skip
slopes = tf.gradients(stack, numbers)[0]

trees = [
    ([1, 1, 0, 1, 0], [0, 1, 0, 2, 0], [0, 0, 0, 0, 2], [0, 0, 1, 0, 3], 1),
    ([1, 1, 0], [3, 4, 0], [0, 0, 0], [0, 0, 1], 0),
    ([1, 1, 1, 0, 0], [5, 0, 4, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 2, 3], 0),
]
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for epoch in range(6):
        total = 0.0
        for tree in trees:
            value, _ = sess.run([loss, train_op], dict(zip((is_leaf, word, left, right, label), tree)))
            total += value
        if epoch % 2:
            print(epoch, "loss %.5f" % total)
    print(np.round(sess.run(logits, dict(zip((is_leaf, word, left, right, label), trees[0]))), 4).tolist())
    feed = {codes: [0, 0, 1, 0, 2, 3, 0, 1], numbers: [0.5, 0.25, 0, 2.0, 0, 0, 1.0, 0]}
    print(np.round(sess.run([stack, slopes[0], slopes[1], slopes[3]], feed)[0], 5), np.round(sess.run(slopes, feed), 5))
