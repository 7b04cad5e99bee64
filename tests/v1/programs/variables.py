"""Variables: made, initialized, read, assigned; each session has its own values."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="weights")
bias = tf.Variable(tf.zeros([2]), name="bias")
step = tf.Variable(0, trainable=False, name="step")
twice = tf.Variable(weights.initialized_value() * 2.0, name="twice")
print(weights.name, weights.dtype.base_dtype.name, weights.get_shape(), bias.op.name)
print([v.name for v in tf.global_variables()], [v.name for v in tf.trainable_variables()])

x = tf.placeholder(tf.float32, [None, 2])
y = tf.matmul(x, weights) + bias
count = tf.assign_add(step, 1)
shift = bias.assign_add([0.5, -0.5])
scale = tf.assign(weights, weights * 10.0)
one_row = tf.scatter_update(weights, [1], [[0.0, 0.0]])
less = tf.assign_sub(step, 2)
init = tf.global_variables_initializer()
not_ready = tf.report_uninitialized_variables()

with tf.Session() as sess:
    try:
        sess.run(y, {x: [[1.0, 1.0]]})
    except tf.errors.FailedPreconditionError:
        print("not initialized")
    print(sorted(name.decode() for name in sess.run(not_ready)))
    sess.run(init)
    print(sess.run(not_ready).tolist())
    print(sess.run(y, {x: [[1.0, 1.0]]}).tolist(), sess.run(twice).tolist())
    for _ in range(3):
        sess.run(count)
    sess.run([shift, scale])
    print(sess.run(step), sess.run(bias).tolist(), sess.run(weights).tolist())
    sess.run(one_row)
    sess.run(less)
    print(weights.eval().tolist(), step.eval(), (bias * 2.0).eval().tolist())
    step.load(100, sess)
    print(sess.run([step, step + 1]), tf.is_variable_initialized(step).eval())

# another session has no initialized variables
with tf.Session() as sess:
    print(sess.run(tf.is_variable_initialized(weights)))
    sess.run(tf.variables_initializer([weights, step]))
    print(sess.run(weights[1]).tolist(), sess.run(step), sess.run(tf.is_variable_initialized(bias)))

# variables change in the order that control dependencies give
with tf.Graph().as_default():
    v = tf.Variable(1.0)
    with tf.control_dependencies([v.assign(5.0)]):
        after = v.read_value()
        with tf.control_dependencies([after]):
            later = tf.assign_add(v, 1.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        print(sess.run(later), sess.run(v))

# a loop that carries on with what a variable has
with tf.Graph().as_default():
    total = tf.get_variable("total", shape=[], initializer=tf.zeros_initializer())

    def body(i):
        with tf.control_dependencies([tf.assign_add(total, tf.cast(i, tf.float32))]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 5, body, [tf.constant(0)], parallel_iterations=1)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        print(sess.run(loop), sess.run(total))
