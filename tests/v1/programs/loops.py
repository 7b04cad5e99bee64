"""Loops: counters, several variables, structures, nested loops, shapes that grow."""

import collections

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

# one variable: TensorFlow 1 gives back the tensor itself, not a list
i = tf.constant(0)
ten = tf.while_loop(lambda i: tf.less(i, 10), lambda i: tf.add(i, 1), [i])
print(ten.name, ten.get_shape())

# Newton's square root, until it is good enough
number = tf.placeholder(tf.float32, [])
root, steps = tf.while_loop(
    lambda g, n: tf.abs(g * g - number) > 1e-4,
    lambda g, n: ((g + number / g) / 2.0, n + 1),
    (number, 0),
    name="newton",
)

# Euclid's algorithm
a, b = tf.placeholder(tf.int32, [], "a"), tf.placeholder(tf.int32, [], "b")
gcd, _ = tf.while_loop(lambda a, b: tf.not_equal(b, 0), lambda a, b: [b, tf.mod(a, b)], [a, b])

# how many steps from n to 1, by Collatz's rule: a conditional in a loop
start = tf.placeholder(tf.int32, [])
_, length = tf.while_loop(
    lambda n, k: n > 1,
    lambda n, k: (tf.cond(tf.equal(n % 2, 0), lambda: n // 2, lambda: 3 * n + 1), k + 1),
    [start, tf.constant(0)],
)

# a loop in a loop: the multiplication table's sum
size = tf.constant(5)


def row(i, total):
    def cell(j, subtotal):
        return j + 1, subtotal + i * j

    _, subtotal = tf.while_loop(lambda j, s: j <= size, cell, [tf.constant(1), tf.constant(0)])
    return i + 1, total + subtotal


_, table = tf.while_loop(lambda i, t: i <= size, row, [tf.constant(1), tf.constant(0)], parallel_iterations=1)

# a shape that changes: Pascal's triangle, row by row
n = tf.placeholder(tf.int32, [])
_, pascal = tf.while_loop(
    lambda i, r: i < n,
    lambda i, r: (i + 1, tf.concat([[1], r[1:] + r[:-1], [1]], 0)),
    [tf.constant(0), tf.constant([1])],
    shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
)
print(pascal.get_shape())

# structures as loop variables
State = collections.namedtuple("State", ["position", "history"])
(final,) = tf.while_loop(
    lambda s: s.position < 20,
    lambda s: [State(s.position * 2, {"last": s.position, "sum": s.history["sum"] + s.position})],
    [State(tf.constant(1), {"last": tf.constant(-1), "sum": tf.constant(0)})],
)

# at most so many iterations
capped = tf.while_loop(lambda i: True, lambda i: i + 2, [tf.constant(0)], maximum_iterations=7)
never = tf.while_loop(lambda i: i < 0, lambda i: i - 1, [tf.constant(3)])
kept = tf.while_loop(lambda i: i < 3, lambda i: [i + 1], [tf.constant(0)], return_same_structure=True)

with tf.Session() as sess:
    print(sess.run(ten))
    for v in (2.0, 81.0):
        r, s = sess.run([root, steps], feed_dict={number: v})
        print(f"sqrt {v:.0f} = {r:.3f} in {s}")
    print("gcd", sess.run(gcd, {a: 1071, b: 462}))
    print("collatz", [int(sess.run(length, {start: k})) for k in (1, 2, 7, 27)])
    print("table", sess.run(table))
    for k in range(5):
        print(sess.run(pascal, {n: k}).tolist())
    end = sess.run(final)
    print(type(end).__name__, end.position, sorted((k, int(v)) for k, v in end.history.items()))
    print(sess.run([capped, never]), sess.run(kept))
    print(sess.run("while/Exit:0"))
