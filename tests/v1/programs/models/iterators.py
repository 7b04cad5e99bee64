"""tf.data with one-shot, initializable, reinitializable and feedable iterators, and their state in checkpoints."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

folder = tempfile.mkdtemp()
tf.set_random_seed(7)
# initializable
max_value = tf.placeholder(tf.int64, shape=[])
dataset = tf.data.Dataset.range(max_value)
iterator = dataset.make_initializable_iterator()
next_element = iterator.get_next()
sess = tf.Session()
for m in (3, 5):
    sess.run(iterator.initializer, feed_dict={max_value: m})
    print([int(sess.run(next_element)) for _ in range(m)])
try:
    sess.run(next_element)
except tf.errors.OutOfRangeError:
    print("End of dataset")
# reinitializable
training = (
    tf.data.Dataset.range(100)
    .map(lambda x: x + tf.random_uniform([], -10, 10, tf.int64, seed=3))
    .shuffle(20, seed=4)
    .batch(8)
)
validation = tf.data.Dataset.range(50).batch(8, drop_remainder=False)
iterator = tf.data.Iterator.from_structure(training.output_types, tf.TensorShape([None]))
nxt = iterator.get_next()
train_init, val_init = iterator.make_initializer(training), iterator.make_initializer(validation)
for _ in range(2):
    sess.run(train_init)
    print(sess.run(nxt).tolist(), sess.run(nxt).tolist())
    sess.run(val_init)
    print(sess.run(nxt).tolist())
# feedable
handle = tf.placeholder(tf.string, shape=[])
a = tf.data.Dataset.from_tensor_slices({"x": np.arange(6.0).reshape(3, 2), "y": ["a", "b", "c"]}).repeat()
b = tf.data.Dataset.from_tensor_slices({"x": -np.ones((4, 2)), "y": ["v"] * 4})
feedable = tf.data.Iterator.from_string_handle(handle, a.output_types, a.output_shapes)
elem = feedable.get_next()
ia, ib = a.make_one_shot_iterator(), tf.data.make_initializable_iterator(b)
ha, hb = sess.run([ia.string_handle(), ib.string_handle()])
sess.run(ib.initializer)
total = tf.get_variable("total", [], tf.float64, tf.zeros_initializer())
sess.run(total.initializer)
upd = total.assign_add(tf.reduce_sum(elem["x"]))
for h in (ha, ha, hb, ha, hb):
    print(sess.run([upd, elem["y"]], {handle: h}))
print(elem["x"].shape, elem["y"].dtype, sorted(feedable.output_classes), type(ha).__name__)
# errors
try:
    sess.run(tf.data.make_initializable_iterator(b).get_next())
except tf.errors.FailedPreconditionError as e:
    print(type(e).__name__)
try:
    iterator.make_initializer(tf.data.Dataset.from_tensors(1.0))
except TypeError:
    print("TypeError")
try:
    tf.data.Dataset.range(3).map(lambda x: x + tf.get_variable("q", [], tf.int64)).make_one_shot_iterator()
except ValueError:
    print("ValueError")
try:
    tf.data.Dataset.zip((a, b)).batch(0).make_one_shot_iterator()
    sess.run(tf.data.Dataset.range(3).batch(0).make_one_shot_iterator().get_next())
except tf.errors.InvalidArgumentError as e:
    print(type(e).__name__)
# saveable iterator
tf.reset_default_graph()
ds = (
    tf.data.Dataset.range(20)
    .shuffle(5, seed=1, reshuffle_each_iteration=False)
    .map(lambda x: x * 10)
    .batch(3)
    .repeat(2)
)
it = ds.make_initializable_iterator()
n = it.get_next()
saveable = tf.data.experimental.make_saveable_from_iterator(it)
tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
v = tf.get_variable("v", [], tf.int32, tf.zeros_initializer())
inc = v.assign_add(1)
saver = tf.train.Saver(max_to_keep=2)
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), it.initializer])
    for _ in range(3):
        print(sess.run([n, inc]))
    path = saver.save(sess, os.path.join(folder, "it"), global_step=3)
    rest = [sess.run(n).tolist() for _ in range(3)]
with tf.Session() as sess:
    sess.run(it.initializer)
    saver.restore(sess, path)
    print([sess.run(n).tolist() for _ in range(3)] == rest, rest, sess.run(v))
print(os.path.basename(path), sorted(k for k, _ in tf.train.list_variables(path))[-1])
