"""map_fn, scan and the folds."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

elems = tf.constant([1, 2, 3, 4, 5, 6], name="elems")
squares = tf.map_fn(lambda x: x * x, elems)
print(squares.get_shape(), squares.dtype.name)

# two sequences in, one out, of another dtype
left, right = np.array([1.0, 2.0, 3.0], np.float32), np.array([3.0, 2.0, 1.0], np.float32)
same = tf.map_fn(lambda p: tf.equal(p[0], p[1]), (left, right), dtype=tf.bool)
both = tf.map_fn(lambda x: (x, -x), elems, dtype=(tf.int32, tf.int32), parallel_iterations=2)

total = tf.foldl(lambda acc, x: acc + x, elems)
backwards = tf.foldr(lambda acc, x: 2 * acc + x, elems)
digits = tf.foldl(lambda acc, x: 10 * acc + x, elems, initializer=0)

sums = tf.scan(lambda acc, x: acc + x, elems)
# Horner's rule; and Fibonacci's numbers, as a pair that goes along
horner = tf.scan(lambda acc, c: acc * 2.0 + c, tf.constant([1.0, -3.0, 0.5]), initializer=0.0)
pairs = tf.scan(lambda a, _: (a[1], a[0] + a[1]), elems, initializer=(np.array(0), np.array(1)))
reverse = tf.scan(lambda acc, x: acc + x, elems, reverse=True)

# a map in a map: all products
table = tf.map_fn(lambda x: tf.map_fn(lambda y: x * y, elems[:3]), elems[:3])

# a matrix power, by a fold over its exponent's bits
m = tf.constant([[1, 1], [1, 0]])
bits = tf.constant([1, 0, 1, 0])
power = tf.foldl(
    lambda acc, bit: tf.cond(bit > 0, lambda: tf.matmul(tf.matmul(acc, acc), m), lambda: tf.matmul(acc, acc)),
    bits,
    initializer=tf.constant([[1, 0], [0, 1]]),
)

with tf.Session() as sess:
    print(sess.run(squares).tolist(), sess.run(same).tolist())
    print([v.tolist() for v in sess.run(both)])
    print(sess.run([total, backwards, digits]))
    print(sess.run(sums).tolist(), sess.run(horner).tolist(), sess.run(reverse).tolist())
    print([v.tolist() for v in sess.run(pairs)])
    print(sess.run(table).tolist())
    print(sess.run(power).tolist())
