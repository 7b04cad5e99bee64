"""Input by `tf.data`: records and text to batches, with initializable, reinitializable and feedable iterators."""

import os
import tempfile

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

folder = tempfile.mkdtemp()
path = os.path.join(folder, "data.tfrecord")
options = tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP)
with tf.python_io.TFRecordWriter(path, options=options) as writer:
    for i in range(20):
        example = tf.train.Example()
        example.features.feature["x"].float_list.value.extend([i / 10, 1.0 - i / 10])
        example.features.feature["y"].int64_list.value.append(int(i > 9))
        example.features.feature["words"].bytes_list.value.extend([b"w"] * (i % 3))
        writer.write(example.SerializeToString())
with open(os.path.join(folder, "lines.csv"), "w") as f:
    f.write("a,b\n" + "".join(f"{i},{i * i / 2}\n" for i in range(6)))


def parse_fn(serialized):
    parsed = tf.parse_single_example(
        serialized,
        {
            "x": tf.FixedLenFeature([2], tf.float32),
            "y": tf.FixedLenFeature([], tf.int64, default_value=0),
            "words": tf.VarLenFeature(tf.string),
        },
    )
    return {"x": parsed["x"], "n": tf.size(parsed["words"].values)}, parsed["y"]


def input_fn(repeats, shuffled):
    dataset = tf.data.TFRecordDataset([path], compression_type="GZIP").map(parse_fn, num_parallel_calls=2)
    if shuffled:
        dataset = dataset.shuffle(8, seed=3)
    return dataset.repeat(repeats).batch(6).prefetch(1)


training, validation = input_fn(3, True), input_fn(1, False)
iterator = tf.data.Iterator.from_structure(training.output_types, training.output_shapes)
features, labels = iterator.get_next()
training_init, validation_init = iterator.make_initializer(training), iterator.make_initializer(validation)
logits = tf.squeeze(tf.layers.dense(features["x"], 1, kernel_initializer=tf.ones_initializer()), 1)
loss = tf.losses.sigmoid_cross_entropy(labels, logits)
train_op = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
batch_size = tf.shape(labels)[0]
lines = tf.data.TextLineDataset(os.path.join(folder, "lines.csv")).skip(1)
rows = lines.map(lambda line: tf.decode_csv(line, [[0], [0.0]])).filter(lambda a, _: tf.not_equal(a % 3, 1))
row = rows.make_one_shot_iterator().get_next()

handle = tf.placeholder(tf.string, shape=[])
limit = tf.placeholder(tf.int64, [])
counted = tf.data.Dataset.range(limit).flat_map(lambda i: tf.data.Dataset.from_tensors(i).repeat(i))
padded = tf.data.Dataset.from_generator(lambda: ([i] * i for i in (3, 1, 2)), tf.int64, tf.TensorShape([None]))
padded_sums = tf.reduce_sum(padded.padded_batch(2, padded_shapes=[4]).make_one_shot_iterator().get_next(), 1)
other = tf.data.Dataset.from_tensor_slices([10, 20, 30]).map(lambda x: tf.cast(x, tf.int64))
zipped = tf.data.Dataset.zip((other, tf.data.Dataset.range(5))).map(lambda a, b: a + b)
initializable, one_shot = counted.make_initializable_iterator(), zipped.make_one_shot_iterator()
names = [initializable.string_handle(), one_shot.string_handle()]
fed = tf.data.Iterator.from_string_handle(handle, tf.int64, tf.TensorShape([])).get_next()

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for epoch in range(2):
        sess.run(training_init)
        while True:
            try:
                _, value, size = sess.run([train_op, loss, batch_size])
            except tf.errors.OutOfRangeError:
                break
        sess.run(validation_init)
        found, n = sess.run([loss, features["n"]])
        print("epoch", epoch, "loss %.5f last batch %d validation %.5f" % (value, size, found), n)
    print([tuple(sess.run(row)) for _ in range(4)])
    print([sess.run(padded_sums).tolist() for _ in range(2)])
    sess.run(initializable.initializer, {limit: 4})
    handles = sess.run(names)
    print([int(sess.run(fed, {handle: handles[i]})) for i in (0, 1, 0, 1, 0, 1, 0)])
