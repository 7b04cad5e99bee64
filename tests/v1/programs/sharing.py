"""get_variable and variable_scope: one variable in several places of a program."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def layer(inputs, units):
    w = tf.get_variable("w", [inputs.get_shape()[-1], units], initializer=tf.constant_initializer(0.5))
    b = tf.get_variable("b", [units], initializer=tf.zeros_initializer())
    return tf.matmul(inputs, w) + b


def network(inputs):
    with tf.variable_scope("first"):
        hidden = layer(inputs, 3)
    with tf.variable_scope("second"):
        return layer(hidden, 1)


x1 = tf.constant([[1.0, 2.0]])
x2 = tf.constant([[10.0, 20.0]])
with tf.variable_scope("net") as scope:
    y1 = network(x1)
    scope.reuse_variables()
    y2 = network(x2)
print([v.name for v in tf.global_variables()])
print(scope.name, scope.original_name_scope, scope.reuse)

# the same again, without knowing whether it is the first time
with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
    y3 = network(x1)
    extra = tf.get_variable("extra", shape=[2], dtype=tf.int32, initializer=tf.ones_initializer())
print(len(tf.global_variables()), extra.name, extra.dtype.base_dtype.name)

# mistakes
for what, make in [
    ("twice", lambda: tf.get_variable("net/first/w", [2, 3])),
    ("shape", lambda: network(tf.constant([[1.0, 2.0, 3.0]]))),
    ("absent", lambda: tf.get_variable("absent", [1])),
]:
    try:
        with tf.variable_scope("" if what == "twice" else "net", reuse=None if what == "twice" else True):
            make()
        print(what, "worked")
    except ValueError as e:
        print(what, str(e).split(",")[0].split(". ")[0])

# ops in a variable scope have a name scope of their own each time, variables do not
with tf.variable_scope("a"):
    v = tf.get_variable("v", [])
    first = tf.add(1.0, 2.0, name="sum")
with tf.variable_scope("a", reuse=True):
    again = tf.get_variable("v")
    second = tf.add(1.0, 2.0, name="sum")
with tf.name_scope("outer"):
    u = tf.get_variable("u", [])
    w = tf.Variable(0.0, name="w")
print(v.name, again is v, first.op.name, second.op.name, u.name, w.name)

# names by default, made unique; scopes inside scopes
for _ in range(2):
    with tf.variable_scope(None, default_name="block"):
        t = tf.get_variable("t", [1])
        with tf.variable_scope("inner", initializer=tf.constant_initializer(7.0), dtype=tf.float64):
            s = tf.get_variable("s", [1])
    print(t.name, s.name, s.dtype.base_dtype.name)
with tf.variable_scope(scope, reuse=True):
    print(tf.get_variable_scope().name, tf.get_variable("first/b").name)


# a custom getter sees every variable
def loud(getter, name, *args, **kwargs):
    print("getting", name)
    return getter(name, *args, **kwargs)


with tf.variable_scope("seen", custom_getter=loud):
    tf.get_variable("x", initializer=tf.constant([1, 2]))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run([y1, y2, y3]))
    print(sess.run(extra).tolist(), sess.run(s).tolist())
