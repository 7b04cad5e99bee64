"""Feeds and fetches: inputs and results of a step."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

x = tf.placeholder(tf.float32, shape=(None, 3), name="x")
w = tf.constant([[1.0], [2.0], [3.0]], name="w")
y = tf.matmul(x, w, name="y")
scale = tf.placeholder_with_default(2.0, shape=[], name="scale")
z = tf.multiply(y, scale, name="z")
text = tf.placeholder(tf.string, [], name="text")
loud = tf.string_join([text, "!"], name="loud")
flag = tf.placeholder_with_default(False, [], name="flag")
print(x.get_shape().as_list(), y.get_shape(), x.op.type, x.dtype.name, x.name)

Pair = collections.namedtuple("Pair", ["left", "right"])

with tf.Session() as sess:
    batch = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]], np.float32)
    print(sess.run(y, feed_dict={x: batch}).tolist())
    print(sess.run("z:0", {"x:0": batch}).tolist(), sess.run(z, {x: batch, scale: 0.5}).tolist())
    # any tensor can be fed: the operation that makes it does not run
    print(sess.run(z, {y: [[7.0]]}).tolist(), sess.run(y, {x: [[1, 2, 3]], w: [[1.0], [1.0], [1.0]]}).tolist())
    print(sess.run(loud, {text: "hello"}), sess.run(flag), sess.run(flag, {flag: True}))

    # structures of fetches
    out = sess.run({"y": y, "both": [scale, (w, y)], "none": tf.no_op()}, {x: batch})
    print(sorted(out), out["both"][0], out["both"][1][0].tolist(), out["none"])
    pair = sess.run(Pair(scale, [w]))
    print(type(pair).__name__, pair.left, pair.right[0].shape, sess.run([]), sess.run(()))
    print([type(v).__name__ for v in sess.run([scale, y, loud], {x: batch, text: b"x"})])

    # mistakes
    for name, fetch, feed in [
        ("not fed", y, {}),
        ("shape", y, {x: np.zeros([2, 4])}),
        ("dtype", y, {x: "text"}),
        ("key", y, {"nothing:0": 1.0}),
        ("fetch", "nothing:0", {}),
        ("fetch", 3, {}),
        ("symbolic", y, {x: tf.zeros([1, 3])}),
    ]:
        try:
            sess.run(fetch, feed)
        except tf.errors.InvalidArgumentError:
            print(name, "InvalidArgumentError")
        except (ValueError, TypeError):
            print(name, "ValueError or TypeError")

    # the same run many times
    call = sess.make_callable(z, [x, scale])
    print(call(batch, 1.0).tolist(), call(batch, -1.0).tolist())
    with_options = sess.run(y, {x: batch}, options=tf.RunOptions(timeout_in_ms=10000), run_metadata=tf.RunMetadata())
    print(with_options.shape)

# a function of Python in the graph
with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    numbers = tf.placeholder(tf.float32, [None])
    ordered = tf.py_func(lambda v: np.sort(v)[::-1].copy(), [numbers], tf.float32)
    ordered.set_shape([None])
    print(sess.run(ordered[0], {numbers: [3.0, 9.0, 4.0]}), sess.run(ordered, {numbers: [1.0, 2.0]}).tolist())
    many, few = tf.py_func(lambda v: (v * 2, np.int64(len(v))), [numbers], [tf.float32, tf.int64])
    print(sess.run([many, few], {numbers: [1.0, 2.0]}))

closed = tf.Session()
closed.close()
try:
    closed.run(scale)
except RuntimeError as e:
    print(e)
