"""Interactive use: a default session, eval and run, seeds, new graphs."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

sess = tf.InteractiveSession()
a = tf.constant(5.0)
b = tf.constant(6.0)
c = a * b
print(c.eval(), tf.get_default_session() is sess)
x = tf.placeholder(tf.float32, [2])
print((x + 1.0).eval({x: [1.0, 2.0]}).tolist(), (x[0] - x[1]).eval(feed_dict={x: [3.0, 5.0]}))

v = tf.Variable(tf.range(4), name="v")
v.initializer.run()
v.assign(v * 3).op.run()
print(v.eval().tolist(), v[1:3].eval().tolist(), v.value().eval()[-1])
tf.global_variables_initializer().run()

# operators
n, d = tf.constant([7, -7]), tf.constant([2, 2])
print((n + d).eval().tolist(), (n // d).eval().tolist(), (n % d).eval().tolist(), (-n).eval().tolist())
print(tf.div(n, d).eval().tolist(), tf.truediv(n, d).eval().tolist(), (n / d).eval().tolist(), (n**2).eval().tolist())
print((n > d).eval().tolist(), tf.logical_not(n > d).eval().tolist(), abs(n).eval().tolist(), (1 - n).eval().tolist())
m = tf.reshape(tf.range(12), [3, 4])
print(m[1].eval().tolist(), m[:, -1].eval().tolist(), m[::2, 1:3].eval().tolist(), m[..., tf.newaxis].get_shape())

# the names that TensorFlow 1 had for arguments
f = tf.cast(m, tf.float32)
print(tf.reduce_sum(f, reduction_indices=1).eval().tolist(), tf.reduce_mean(f, axis=0, keep_dims=True).eval().tolist())
print(
    tf.argmax(f, dimension=1).eval().tolist(),
    tf.expand_dims(m, dim=0).get_shape(),
    tf.squeeze(f[:1], squeeze_dims=[0]).eval().tolist(),
)
print([t.eval().tolist() for t in tf.split(m, 2, axis=1)], tf.concat([n, d], axis=0).eval().tolist())
print(tf.to_float(n).eval().tolist(), tf.to_int32([1.7]).eval().tolist(), tf.nn.relu([-1.0, 2.0]).eval().tolist())
print(tf.nn.softmax([[0.0, 0.0]], dim=-1).eval().tolist(), tf.one_hot([0, 2], 3).eval().tolist())

# a session that is the default for a while
with tf.Graph().as_default() as g:
    t = tf.constant(2) + 3
    with tf.Session() as inner:
        print(t.eval(), tf.get_default_session() is inner, tf.get_default_graph() is g)
    other = tf.Session(graph=g)
    with other.as_default():
        print(t.eval(), other.run(t))
    print(t.eval(session=other))
    other.close()
print(tf.get_default_session() is sess)
sess.close()

try:
    t.eval()
except ValueError:
    print("no default session")

# a graph of one's own to begin with again
tf.reset_default_graph()
print(len(tf.get_default_graph().get_operations()), tf.constant(1, name="a").name)

# the same seed, the same numbers
runs = []
for _ in range(2):
    tf.reset_default_graph()
    tf.set_random_seed(1234)
    noise = tf.random_normal([3], seed=5)
    with tf.Session() as s:
        runs.append([s.run(noise).tolist(), s.run(noise).tolist()])
print(runs[0] == runs[1], runs[0][0] != runs[0][1], [round(t, 4) for t in runs[0][0]])
print([d.name for d in (tf.float32, tf.as_dtype("int64"), tf.string, tf.bool)], tf.float32.base_dtype == tf.float32)
shape = tf.TensorShape([None, 3])
print(shape, shape.ndims, shape.as_list(), shape[1].value, shape.is_fully_defined(), shape.merge_with([2, None]))
