"""Conditionals: one of two computations, one of several, one inside another."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

x = tf.placeholder(tf.float32, [], name="x")
y = tf.placeholder(tf.float32, [], name="y")

# the text book's first conditional: x + z if x < y, else y squared
z = tf.constant(10.0, name="z")
r = tf.cond(x < y, lambda: tf.add(x, z), lambda: tf.square(y))
print(r.name, r.dtype.name, r.get_shape())

# several results, in a structure
low, high = tf.cond(tf.less(x, y), lambda: (x, y), lambda: (y, x), name="order")
print(low.op.name.split("/")[0])

# one conditional inside another
sign = tf.cond(
    x > 0.0,
    lambda: tf.constant("positive"),
    lambda: tf.cond(x < 0.0, lambda: tf.constant("negative"), lambda: tf.constant("zero")),
)

# one of several, the first whose condition holds
grade = tf.case(
    [(x >= 90.0, lambda: tf.constant(1)), (x >= 75.0, lambda: tf.constant(2)), (x >= 50.0, lambda: tf.constant(3))],
    default=lambda: tf.constant(6),
)
only = tf.case(
    {x < 0.0: lambda: tf.constant(-1), x > 0.0: lambda: tf.constant(1)}, lambda: tf.constant(0), exclusive=True
)
month = tf.placeholder(tf.int32, [], name="month")
days = tf.switch_case(month % 3, [lambda: tf.constant(31), lambda: tf.constant(28), lambda: tf.constant(30)])

# TensorFlow 1's old argument names
old = tf.cond(pred=x > y, fn1=lambda: x - y, fn2=lambda: y - x, name="difference")

# where: both computed, chosen element by element; a vector condition chooses rows
picked = tf.where([True, False, True], [1, 2, 3], [10, 20, 30])
rows = tf.where([True, False], [[1, 1], [2, 2]], [[3, 3], [4, 4]])
there = tf.where([[True, False], [False, True]])

with tf.Session() as sess:
    for a, b in [(1.0, 2.0), (5.0, 4.0), (3.0, 3.0)]:
        print(a, b, "->", sess.run([r, low, high, old], {x: a, y: b}))
    for a in (4.0, -4.0, 0.0):
        print(a, "is", sess.run(sign, {x: a}).decode(), "sign", sess.run(only, {x: a}))
    print("grades", [int(sess.run(grade, {x: v})) for v in (99.0, 80.0, 60.0, 10.0)])
    print("days", [int(sess.run(days, {month: m})) for m in range(4)])
    print(sess.run(picked).tolist(), sess.run(rows).tolist(), sess.run(there).tolist())
    # the result has the name that TensorFlow 1 gives it
    print(sess.run("cond/Merge:0", {x: 1.0, y: 2.0}))
