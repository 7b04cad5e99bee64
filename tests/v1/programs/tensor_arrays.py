"""TensorArrays: arrays that a loop writes element by element."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

# written one by one, stacked
ta = tf.TensorArray(tf.float32, size=3)
ta = ta.write(0, 1.0).write(1, 2.0)
ta = ta.write(2, 4.0)
whole, middle, length = ta.stack(), ta.read(1), ta.size()

# Fibonacci's numbers, each from the two before
n = tf.placeholder(tf.int32, [], name="n")
fib = tf.TensorArray(tf.int64, size=n, clear_after_read=False, element_shape=[])
fib = fib.write(0, tf.constant(0, tf.int64)).write(1, tf.constant(1, tf.int64))
_, fib = tf.while_loop(
    lambda i, t: i < n,
    lambda i, t: (i + 1, t.write(i, t.read(i - 1) + t.read(i - 2))),
    [tf.constant(2), fib],
)
numbers = fib.stack()

# a sequence read step by step: running means
series = tf.placeholder(tf.float32, [None])
count = tf.shape(series)[0]
inputs = tf.TensorArray(tf.float32, size=count).unstack(series)
outputs = tf.TensorArray(tf.float32, size=count)


def step(t, total, out):
    total += inputs.read(t)
    return t + 1, total, out.write(t, total / tf.cast(t + 1, tf.float32))


_, total, outputs = tf.while_loop(lambda t, *_: t < count, step, [tf.constant(0), tf.constant(0.0), outputs])
means = outputs.stack()

# one that grows, of as many elements as it turns out
found = tf.TensorArray(tf.int32, size=0, dynamic_size=True)


def sieve(k, m, t):
    prime = tf.reduce_all(tf.not_equal(k % tf.range(2, k), 0))
    t = tf.cond(prime, lambda: t.write(m, k), lambda: t)
    return k + 1, m + tf.cast(prime, tf.int32), t


_, how_many, found = tf.while_loop(lambda k, m, t: k < 30, sieve, [2, 0, found])
primes = found.stack()

# rows: scattered, gathered, joined, split
rows = tf.TensorArray(tf.int32, size=3).scatter([2, 0, 1], [[1, 2], [3, 4], [5, 6]])
stacked = rows.stack()
again = tf.TensorArray(tf.int32, size=3, infer_shape=False).split([10, 20, 30, 40, 50, 60], [3, 1, 2])
joined = again.concat()
pair = tf.TensorArray(tf.int32, size=4).unstack([7, 8, 9, 10]).gather([3, 1])

with tf.Session() as sess:
    print(sess.run(whole).tolist(), sess.run(length))
    print(sess.run(numbers, {n: 10}).tolist())
    print(sess.run(means, {series: [1.0, 3.0, 5.0, 7.0]}).tolist(), sess.run(total, {series: [2.0, 3.0]}))
    print(sess.run([primes, how_many]))
    print(sess.run(stacked).tolist(), sess.run(joined).tolist(), sess.run(pair).tolist())
