"""Order of execution: control dependencies, group, tuple, Print, Assert."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

v = tf.Variable(0, name="v")
log = tf.Variable([0, 0, 0], name="log")

# a chain of changes
with tf.control_dependencies([tf.assign(v, 10)]):
    half = tf.assign(v, v.read_value() // 2)
    with tf.control_dependencies([half]):
        result = tf.identity(v.read_value() + 1, name="result")

# an assignment that is not fetched does not happen
ignored = tf.assign(v, -999)

# all of several
both = tf.group(tf.assign_add(v, 1), tf.scatter_update(log, [1], [7]), name="both")
nothing = tf.no_op(name="nothing")
print(both.type, nothing.name, tf.group().type)

# values that are passed on only when all of them are there
left, right = tf.tuple([tf.constant(1), tf.constant(2)], control_inputs=[tf.assign_add(v, 100)])

# outside all dependencies again
with tf.control_dependencies([tf.assign(v, -1)]), tf.control_dependencies(None):
    free = tf.constant(4) * 2
print([op.name for op in free.op.control_inputs])

# an assertion in the way of a value
x = tf.placeholder(tf.float32, [None], name="x")
with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0.0), [x], summarize=2, name="positive")]):
    root = tf.sqrt(x)
checked = tf.placeholder(tf.int32, [None])
checks = [tf.assert_equal(tf.reduce_sum(checked), 10, message="the sum"), tf.assert_rank(checked, 1)]
with tf.control_dependencies(checks):
    twice = checked * 2

# values that pass a Print are printed, to the standard error
i = tf.constant(0)
loop = tf.while_loop(
    lambda i: i < 3, lambda i: tf.Print(i, [i, i * i], "print: in the loop ") + 1, [i], parallel_iterations=1
)
shown = tf.Print(x, [tf.shape(x), x], message="print: x is ", first_n=2, summarize=2)

# operations in a branch run only if the branch is taken
p = tf.placeholder(tf.bool, [])
outside = tf.assign_add(v, 1000)


def taken():
    with tf.control_dependencies([tf.assign_add(v, 5)]):
        return tf.identity(1)


branch = tf.cond(p, taken, lambda: tf.constant(0))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run(result), sess.run(v))
    print(sess.run(both), sess.run(v), sess.run(log).tolist())
    print(sess.run([left, right]), sess.run(v))
    print(sess.run(free), sess.run(v))
    print(sess.run(root, {x: [4.0, 9.0]}).tolist())
    try:
        sess.run(root, {x: [4.0, -9.0, 3.0]})
    except tf.errors.InvalidArgumentError as e:
        print("assertion failed:", e.op.type, "[4 -9" in e.message)
    print(sess.run(twice, {checked: [1, 2, 3, 4]}).tolist())
    try:
        sess.run(twice, {checked: [1]})
    except tf.errors.InvalidArgumentError as e:
        print("the sum" in e.message)
    print(sess.run(loop))
    for k in range(3):
        sess.run(shown, {x: [1.0 + k, 2.0, 3.0]})
    sess.run(tf.assign(v, 0))
    print(sess.run(branch, {p: False}), sess.run(v), sess.run(branch, {p: True}), sess.run(v))
    try:
        tf.assert_equal(tf.constant(1), tf.constant(2))
    except tf.errors.InvalidArgumentError:
        print("known while the graph is built")
