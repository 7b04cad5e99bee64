"""TFRecords of Examples and SequenceExamples written, then read by parse_single_example, queues and datasets."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float_feature(value):
    return tf.train.Feature(float_list=tf.train.FloatList(value=value))


folder = tempfile.mkdtemp()
rng = np.random.RandomState(0)
paths = []
for shard in range(2):
    path = os.path.join(folder, "train-%05d-of-%05d.tfrecord" % (shard, 2))
    paths.append(path)
    options = tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP)
    with tf.python_io.TFRecordWriter(path, options=options) as writer:
        for i in range(4):
            n = shard * 4 + i
            image = rng.randint(0, 256, (4, 4, 1)).astype(np.uint8)
            example = tf.train.Example(
                features=tf.train.Features(
                    feature={
                        "image/encoded": _bytes_feature(image.tobytes()),
                        "image/height": _int64_feature([4]),
                        "label": _int64_feature([n % 3]),
                        "bbox": _float_feature(rng.rand(n % 3 * 2).astype(np.float32)),
                        "name": _bytes_feature(b"img%d" % n),
                    }
                )
            )
            writer.write(example.SerializeToString())
print([os.path.basename(p) for p in sorted(tf.gfile.Glob(os.path.join(folder, "train-*")))])
first = next(tf.python_io.tf_record_iterator(paths[0], options=options))
ex = tf.train.Example.FromString(first)
print(
    sorted(ex.features.feature),
    ex.features.feature["label"].int64_list.value,
    ex.features.feature["name"].bytes_list.value[0],
)

features = {
    "image/encoded": tf.FixedLenFeature([], tf.string),
    "label": tf.FixedLenFeature([], tf.int64),
    "image/height": tf.FixedLenFeature((), tf.int64, default_value=1),
    "bbox": tf.VarLenFeature(tf.float32),
    "missing": tf.FixedLenFeature([2], tf.float32, default_value=[0.5, 1.5]),
    "seq": tf.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
}
with tf.Graph().as_default():
    filename_queue = tf.train.string_input_producer(paths, num_epochs=1, shuffle=False)
    reader = tf.TFRecordReader(options=options)
    key, serialized = reader.read(filename_queue)
    parsed = tf.parse_single_example(serialized, features=features)
    image = tf.decode_raw(parsed["image/encoded"], tf.uint8)
    image = tf.reshape(image, [4, 4, 1])
    image.set_shape([4, 4, 1])
    image = tf.cast(image, tf.float32) * (1.0 / 255) - 0.5
    label = tf.cast(parsed["label"], tf.int32)
    images, labels, boxes, missing = tf.train.batch(
        [image, label, tf.sparse_tensor_to_dense(parsed["bbox"]), parsed["missing"]],
        batch_size=3,
        capacity=10,
        num_threads=1,
        dynamic_pad=True,
        allow_smaller_final_batch=True,
    )
    print(images.get_shape(), labels.get_shape(), boxes.get_shape())
    with tf.Session() as sess:
        sess.run(tf.group(tf.global_variables_initializer(), tf.local_variables_initializer()))
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        try:
            while not coord.should_stop():
                im, lb, bx, ms = sess.run([images, labels, boxes, missing])
                print(im.shape, "%.4f" % im.mean(), lb, bx.round(3).tolist(), ms[0])
        except tf.errors.OutOfRangeError as e:
            print("Done training -- epoch limit reached", type(e).__name__)
        finally:
            coord.request_stop()
        coord.join(threads)
        print(len(threads), reader.num_records_produced().eval(), reader.num_work_units_completed().eval())

seq_path = os.path.join(folder, "seq.tfrecord")
with tf.python_io.TFRecordWriter(seq_path) as w:
    for n in (3, 1, 4):
        ex = tf.train.SequenceExample()
        ex.context.feature["length"].int64_list.value.append(n)
        ex.context.feature["id"].bytes_list.value.append(b"s%d" % n)
        tokens, labels = ex.feature_lists.feature_list["tokens"], ex.feature_lists.feature_list["labels"]
        for t in range(n):
            tokens.feature.add().int64_list.value.append(t + n)
            labels.feature.add().float_list.value.extend([t * 0.5, 1.0])
        w.write(ex.SerializeToString())


def parse(record):
    context, sequence = tf.parse_single_sequence_example(
        serialized=record,
        context_features={"length": tf.FixedLenFeature([], dtype=tf.int64), "id": tf.FixedLenFeature([], tf.string)},
        sequence_features={
            "tokens": tf.FixedLenSequenceFeature([], dtype=tf.int64),
            "labels": tf.FixedLenSequenceFeature([2], dtype=tf.float32),
        },
    )
    return context["id"], context["length"], sequence["tokens"], sequence["labels"]


with tf.Graph().as_default(), tf.Session() as sess:
    ds = tf.data.TFRecordDataset([seq_path]).map(parse, num_parallel_calls=2)
    ds = ds.padded_batch(
        2,
        padded_shapes=([], [], [None], [None, 2]),
        padding_values=(b"", tf.constant(0, tf.int64), tf.constant(-1, tf.int64), 0.0),
    )
    print(ds.output_types, ds.output_shapes)
    nxt = ds.make_one_shot_iterator().get_next()
    mask = tf.sequence_mask(nxt[1])
    for _ in range(2):
        out, m = sess.run([nxt, mask])
        print(out[0], out[1], out[2].tolist(), out[3].sum(), m.tolist())
    try:
        sess.run(nxt)
    except tf.errors.OutOfRangeError as e:
        print(type(e).__name__)
    for kind, spec in (
        ("dtype", {"label": tf.FixedLenFeature([], tf.float32)}),
        ("absent", {"nothing": tf.FixedLenFeature([], tf.int64)}),
        ("size", {"bbox": tf.FixedLenFeature([7], tf.float32)}),
    ):
        try:
            sess.run(tf.parse_single_example(first, spec))
        except tf.errors.InvalidArgumentError as e:
            print(kind, type(e).__name__, ("Key: " + next(iter(spec))) in e.message)
    try:
        sess.run(tf.io.parse_tensor(tf.constant(b"garbage\xff"), tf.float32))
    except tf.errors.InvalidArgumentError as e:
        print(type(e).__name__)
    try:
        for _ in tf.python_io.tf_record_iterator(os.path.join(folder, "no.tfrecord")):
            pass
    except tf.errors.NotFoundError as e:
        print(type(e).__name__)
    with open(seq_path, "r+b") as f:
        f.seek(14)
        f.write(b"\x00\x00")
    try:
        list(tf.python_io.tf_record_iterator(seq_path))
    except tf.errors.DataLossError as e:
        print(type(e).__name__)
