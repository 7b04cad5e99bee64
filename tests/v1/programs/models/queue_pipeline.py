"""Input by queues: record files, a reader, parsed examples, batches and a coordinator."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

folder = tempfile.mkdtemp()


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


rng = np.random.RandomState(26)
names = []
for part in range(2):
    names.append(os.path.join(folder, f"train-{part}.tfrecords"))
    with tf.python_io.TFRecordWriter(names[-1]) as writer:
        for index in range(12):
            label = (part * 12 + index) % 3
            picture = (rng.randint(0, 50, size=(4, 4)) + 80 * (np.arange(4) == label)).astype(np.uint8)
            feature = {
                "height": _int64_feature(4),
                "label": _int64_feature(label),
                "image_raw": _bytes_feature(picture.tobytes()),
                "weights": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, float(index)])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
print(sum(1 for name in names for _ in tf.python_io.tf_record_iterator(name)))


def read_and_decode(filename_queue):
    _, serialized_example = tf.TFRecordReader().read(filename_queue)
    features = tf.parse_single_example(
        serialized_example,
        features={
            "image_raw": tf.FixedLenFeature([], tf.string),
            "label": tf.FixedLenFeature([], tf.int64),
            "weights": tf.VarLenFeature(tf.float32),
        },
    )
    image = tf.decode_raw(features["image_raw"], tf.uint8)
    image.set_shape([16])
    image = tf.cast(image, tf.float32) * (1.0 / 255) - 0.5
    return image, tf.cast(features["label"], tf.int32), tf.sparse_tensor_to_dense(features["weights"])[1]


with tf.Graph().as_default(), tf.Session() as sess:
    filename_queue = tf.train.string_input_producer(names, num_epochs=5, shuffle=False)
    image, label, index = read_and_decode(filename_queue)
    images, sparse_labels, indices = tf.train.batch([image, label, index], batch_size=8, capacity=32)
    shuffled = tf.train.shuffle_batch([images, sparse_labels], 8, 60, 16, enqueue_many=True, seed=1)
    logits = tf.layers.dense(images, 3, kernel_initializer=tf.zeros_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(labels=sparse_labels, logits=logits)
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    sess.run(tf.group(tf.global_variables_initializer(), tf.local_variables_initializer()))
    print(shuffled[0].shape.as_list(), [q.name for q in tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)])
    coord = tf.train.Coordinator()
    runners = [q for q in tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS) if "shuffle" not in q.name]
    threads = [t for q in runners for t in q.create_threads(sess, coord=coord, start=True)]
    step = 0
    try:
        while not coord.should_stop():
            _, value, ids = sess.run([train_op, loss, indices])
            if step % 5 == 0:
                print("Step %d: loss = %.4f" % (step, value), ids.astype(int).tolist())
            step += 1
    except tf.errors.OutOfRangeError:
        print("Done training for %d steps." % step)
    finally:
        coord.request_stop()
    coord.join(threads)
