"""Values kept between runs: `partial_run`, `make_callable`, control dependencies, py_func."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(40)
log = []


def record(value):
    log.append(round(float(value), 4))
    return np.float32(value * 2)


with tf.Graph().as_default(), tf.Session() as sess:
    x, advantage = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None])
    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2))
    logits = tf.matmul(x, w)
    loss = tf.reduce_mean(advantage * tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=logits, labels=tf.argmax(logits, 1)))  # fmt: skip
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.control_dependencies([train]):
        trained = tf.identity(loss)
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        handle = sess.partial_run_setup([logits, trained], [x, advantage])
        scores = sess.partial_run(handle, logits, {x: rng.normal(size=(4, 3))})
        value = sess.partial_run(handle, trained, {advantage: scores.max(1) - scores.mean(1)})
        print("partial %.5f" % value)
    step = sess.make_callable([loss, train], feed_list=[x, advantage])
    print("callable %.5f" % step(np.ones([2, 3], np.float32), np.ones(2, np.float32))[0])

    counted = tf.get_variable("counted", initializer=0.0, use_resource=True)
    doubled = tf.py_func(record, [counted], tf.float32)
    with tf.control_dependencies([doubled]):
        bump = counted.assign_add(1.5)
    with tf.control_dependencies([bump]):
        after = counted.read_value() + doubled
    sess.run(counted.initializer)
    print([float(sess.run(after)) for _ in range(3)], log)
    shown = tf.Print(after, [after], "after: ", summarize=2)
    checked = tf.verify_tensor_all_finite(tf.log(shown - 100.0), "log of a negative number")
    try:
        sess.run(checked)
    except tf.errors.InvalidArgumentError as e:
        print("InvalidArgumentError", "log of a negative number" in e.message, e.op.type)
    assertion = tf.Assert(tf.less(after, 0.0), ["after", after], name="check")
    try:
        sess.run(assertion)
    except tf.errors.InvalidArgumentError as e:
        print("assertion failed" in e.message, e.op.name.split("/")[0])
    numeric = tf.numpy_function(lambda a, b: (a + b, np.int64(a.size)), [w, w[:1]], [tf.float32, tf.int64])
    print([np.round(v, 3).tolist() for v in sess.run(numeric)])
