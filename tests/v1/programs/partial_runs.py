"""Partial runs: a step that is fed and fetched a bit at a time."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

a = tf.placeholder(tf.float32, shape=[], name="a")
b = tf.placeholder(tf.float32, shape=[], name="b")
c = tf.placeholder(tf.float32, shape=[], name="c")
r1 = tf.add(a, b)
r2 = tf.multiply(r1, c)

with tf.Session() as sess:
    h = sess.partial_run_setup([r1, r2], [a, b, c])
    first = sess.partial_run(h, r1, feed_dict={a: 1, b: 2})
    # the next feeds may depend on earlier results
    second = sess.partial_run(h, r2, feed_dict={c: first * 10})
    print(first, second)

    # in another order, several at once
    counter = tf.Variable(0)
    bump = tf.assign_add(counter, 1)
    sess.run(counter.initializer)
    h = sess.partial_run_setup([r1, r2, bump], [a, b, c])
    print(sess.partial_run(h, [], feed_dict={c: 5}))
    print(sess.partial_run(h, [r1, bump], feed_dict={a: 1, b: 1}), sess.run(counter))
    print(sess.partial_run(h, r2))

    # two of them side by side
    h1, h2 = sess.partial_run_setup([r1, r2], [a, b, c]), sess.partial_run_setup([r1], [a, b])
    x = sess.partial_run(h1, r1, {a: 1, b: 1})
    y = sess.partial_run(h2, r1, {a: 10, b: 10})
    print(x, y, sess.partial_run(h1, r2, {c: y}))

    # mistakes
    h = sess.partial_run_setup([r1], [a, b])
    try:
        sess.partial_run(h, r1, feed_dict={a: 1})
    except tf.errors.InvalidArgumentError:
        print("b is missing")
    h = sess.partial_run_setup([r1, r2], [a, b, c])
    sess.partial_run(h, r1, feed_dict={a: 1, b: 2})
    try:
        sess.partial_run(h, r1, feed_dict={c: 1})
    except tf.errors.InvalidArgumentError:
        print("r1 was fetched before")

    # with a conditional in it
    p = tf.placeholder(tf.bool, [])
    choice = tf.cond(p, lambda: r1 * 100.0, lambda: -r1)
    h = sess.partial_run_setup([r1, choice], [a, b, p])
    total = sess.partial_run(h, r1, {a: 2, b: 3})
    print(total, sess.partial_run(h, choice, {p: bool(total > 4)}))
