"""Record files, readers, images and pipelines: as TensorFlow's.

Each program runs both systems in one process, on the same files, and compares what they give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = """
import os, random, struct, sys, zlib
import numpy as np
import tensorflow
import headrace as hr, headrace.v1 as ours
from headrace.v1 import input as our_input, readers as our_readers, python_io as our_io
theirs = tensorflow.compat.v1
theirs.disable_eager_execution()
theirs.logging.set_verbosity(theirs.logging.ERROR)
sys.path.insert(0, os.getcwd())  # the working folder is headrace's
os.chdir({folder!r})
"""

RECORDS = """
rng = random.Random(1)
some = [rng.randbytes(n) for n in (0, 1, 5, 1000, 70000)]
for kind in ("", "GZIP", "ZLIB"):
    with theirs.python_io.TFRecordWriter("theirs", theirs.python_io.TFRecordOptions(kind)) as w:
        for r in some: w.write(r)
    with our_io.TFRecordWriter("ours", our_io.TFRecordOptions(kind)) as w:
        for r in some: w.write(r)
    assert list(our_io.tf_record_iterator("theirs", our_io.TFRecordOptions(kind))) == some
    assert list(theirs.python_io.tf_record_iterator("ours", theirs.python_io.TFRecordOptions(kind))) == some
    if not kind:
        assert open("theirs", "rb").read() == open("ours", "rb").read()
        # where it is torn, both lose the same
        for cut in (3, 12, 14, 40, 500):
            open("torn", "wb").write(open("ours", "rb").read()[:-cut])
            got = []
            for io in (theirs.python_io, our_io):
                out = []
                try:
                    for r in io.tf_record_iterator("torn"): out.append(r)
                except Exception as e:
                    out.append(type(e).__name__)
                got.append(out)
            assert got[0] == got[1], (cut, got)
print("fine")
"""

READERS = """
open("a", "wb").write(b"head\\none\\r\\n\\ntw\\ro\\nlast")
open("b", "wb").write(b"head\\n\\rx\\r\\r\\n\\r")
open("c", "wb").write(b"")
open("d", "wb").write(bytes(range(97, 123)))
with our_io.TFRecordWriter("r") as w:
    for r in (b"x", b"", b"three"): w.write(r)
open("bad", "wb").write(open("r", "rb").read() + b"junk that is longer than a head")
open("z", "wb").write(zlib.compress(bytes(range(97, 123))))

def outcome(f):
    try:
        return f()
    except Exception as e:
        return type(e).__name__

def run(tf, readers, make, files, many):
    with tf.Graph().as_default(), tf.Session() as sess:
        q = tf.FIFOQueue(100, [tf.string], [()])
        reader = make(readers)
        key, value = reader.read_up_to(q, 2) if many else reader.read(q)
        counts = [reader.num_records_produced(), reader.num_work_units_completed()]
        state = reader.serialize_state() if reader.supports_serialize else counts[0]
        sess.run(q.enqueue_many([files]))
        sess.run(q.close())
        out = []
        for _ in range(40):
            got = outcome(lambda: [x.tolist() if hasattr(x, "tolist") else x for x in sess.run([key, value])])
            out.append((got, [int(n) for n in sess.run(counts)], sess.run(state)))
            if got == "OutOfRangeError":
                break
        sess.run(reader.reset())
        out.append(sess.run(counts))
        return out

makes = [
    (lambda tf: tf.TextLineReader(), ["a", "b", "c", "missing", "a"]),
    (lambda tf: tf.TextLineReader(skip_header_lines=1), ["a", "b", "c", "a"]),
    (lambda tf: tf.TextLineReader(skip_header_lines=9), ["a", "b"]),
    (lambda tf: tf.WholeFileReader(), ["a", "c", "missing", "b"]),
    (lambda tf: tf.IdentityReader(), ["a", "", "nothing"]),
    (lambda tf: tf.TFRecordReader(), ["r", "c", "r"]),
    (lambda tf: tf.TFRecordReader(), ["bad"]),
    (lambda tf: tf.FixedLengthRecordReader(5), ["d", "c", "d"]),
    (lambda tf: tf.FixedLengthRecordReader(5, 3, 4, 2), ["d", "b"]),
    (lambda tf: tf.FixedLengthRecordReader(2, hop_bytes=7), ["d"]),
    (lambda tf: tf.FixedLengthRecordReader(5, 3, 4, encoding="ZLIB"), ["z"]),
]
for i, (make, files) in enumerate(makes):
    for many in (False, True) if files != ["bad"] else (False,):  # TensorFlow loses what it read before the damage
        want, got = run(theirs, theirs, make, files, many), run(ours, our_readers, make, files, many)
        assert str(want) == str(got), f"{i} {many}\\n{want}\\n{got}"
print("fine")
"""

IMAGES = """
from headrace.ops.image import png
import io
from PIL import Image
rng = np.random.default_rng(2)
session = theirs.Session()

def check(type, data, exact=True, **attrs):
    t = {k: getattr(theirs, v.name) if isinstance(v, hr.DType) else v for k, v in attrs.items()}
    want = session.run(getattr(theirs.raw_ops, type)(contents=data, **t))
    got = getattr(hr.raw_ops, type)(contents=data, **attrs).numpy()
    assert want.dtype == got.dtype and want.shape == got.shape, (type, attrs, want.shape, got.shape)
    far = np.abs(want.astype(float) - got.astype(float)).max()
    assert far == 0 if exact else far <= 8, (type, attrs, far)

for bits, dtype in ((8, np.uint8), (16, np.uint16)):
    for n in (1, 2, 3, 4):
        pixels = rng.integers(0, 2**bits, (9, 7, n)).astype(dtype)
        written = session.run(theirs.raw_ops.EncodePng(image=pixels))
        for data in (png.encoded(pixels), written):
            for channels in (0, 1, 3, 4):
                for t in (hr.uint8, hr.uint16):
                    check("DecodePng", data, channels=channels, dtype=t)
                    check("DecodeImage", data, channels=channels, dtype=t)
                check("DecodeImage", data, channels=channels, dtype=hr.float32)
y, x = np.mgrid[0:60, 0:81]
smooth = np.stack([x * 3, y * 4, (x + y) * 255 // 150], -1).astype(np.uint8)
def saved(image, kind, **more):
    out = io.BytesIO(); image.save(out, kind, **more); return out.getvalue()
first = Image.fromarray(smooth)
second = first.copy(); second.paste((255, 0, 0), (5, 5, 20, 20))
check("DecodePng", saved(first.quantize(16), "PNG"))
animation = saved(first, "GIF", save_all=True, append_images=[second, first])
check("DecodeGif", animation)
for t in (hr.uint8, hr.uint16, hr.float32):
    check("DecodeImage", animation, dtype=t)
    check("DecodeImage", animation, dtype=t, expand_animations=False)
for mode in ("L", "RGB", "RGBA"):
    for channels in (0, 3, 4):
        check("DecodeBmp", saved(first.convert(mode), "BMP"), channels=channels)
for mode in ("L", "RGB"):
    data = saved(first.convert(mode), "JPEG", quality=95)
    check("DecodeJpeg", data, exact=False)
    check("DecodeJpeg", data, exact=False, channels=1)
    check("DecodeJpeg", data, exact=False, ratio=2)
    check("DecodeJpeg", data, dct_method="INTEGER_ACCURATE")  # the method that Pillow has
    check("ExtractJpegShape", data)
    check("DecodeJpeg", hr.image.encode_jpeg(np.asarray(first.convert(mode)).reshape(60, 81, -1)).numpy(), exact=False)
print("fine")
"""

PIPELINES = """
def run(tf, train, build):
    with tf.Graph().as_default(), tf.Session() as sess:
        fetch = build(tf, train)
        sess.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        out = []
        try:
            while len(out) < 60:
                got = sess.run(fetch)
                out.append([np.asarray(x).tolist() for x in (got if isinstance(got, (list, tuple)) else [got])])
        except tf.errors.OutOfRangeError:
            out.append("end")
        coord.request_stop()
        coord.join(threads)
        names = sorted(op.name for op in sess.graph.get_operations() if "Queue" in op.type or "_queue" in op.name)
        return out, [v.name for v in tf.local_variables()]

def numbers(train, n=23, **more):
    return train.range_input_producer(n, num_epochs=2, **{"shuffle": False, **more}).dequeue()

builds = [
    lambda tf, train: numbers(train, shuffle=True, seed=5),
    lambda tf, train: train.string_input_producer(["a", "b", "c"], num_epochs=3, seed=9).dequeue(),
    lambda tf, train: train.slice_input_producer([[1, 2, 3], [4.0, 5.0, 6.0]], num_epochs=2, seed=2),
    lambda tf, train: train.batch([numbers(train)], 5),
    lambda tf, train: train.batch([numbers(train)], 5, allow_smaller_final_batch=True),
    lambda tf, train: train.batch([tf.range(numbers(train, 6))], 4, dynamic_pad=True),
    lambda tf, train: (lambda x: train.maybe_batch([x, -x], tf.equal(x % 3, 1), 4))(numbers(train)),
    lambda tf, train: train.limit_epochs(tf.constant(3), 4),
]
for i, build in enumerate(builds):
    want, got = run(theirs, theirs.train, build), run(ours, our_input, build)
    assert want == got, f"{i}\\n{want}\\n{got}"

# Shuffling chooses among what is there when a batch is taken; so that this is the same, everything is there first.
def shuffled(tf, train):
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.int32, [100])
        batch = train.shuffle_batch([x], 7, 200, 20, seed=4, enqueue_many=True)
        (runner,) = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        sess.run(runner.enqueue_ops[0], {x: range(100)})
        sess.run(runner.close_op)
        out = []
        try:
            while True:
                out.append(sess.run(batch).tolist())
        except tf.errors.OutOfRangeError:
            return out
want, got = shuffled(theirs, theirs.train), shuffled(ours, our_input)
assert want == got and len(got) == 14, f"{want}\\n{got}"
print("fine")
"""


SPARSE = """
theirs.disable_control_flow_v2()  # with it TensorFlow does not find the map behind a keep_input

def run(tf, train, build):
    with tf.Graph().as_default(), tf.Session() as sess:
        fetch = build(tf, train)
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        out = []
        try:
            while len(out) < 60:
                out.append(plain(sess.run(fetch)))
        except tf.errors.OutOfRangeError:
            out.append("end")
        coord.request_stop()
        coord.join(threads)
        return out

def plain(x):
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else (np.asarray(x).dtype.name, np.asarray(x).tolist())

def numbers(train, n=23):
    return train.range_input_producer(n, num_epochs=2, shuffle=False).dequeue()

def one(tf, x, rank=1):
    x = tf.cast(x, tf.int64)
    k = x % 4
    at = tf.expand_dims(tf.range(k), 1)
    at = tf.concat([at % 2, at], 1) if rank == 2 else at
    return tf.SparseTensor(at, tf.as_string(tf.range(k) + 10 * x), tf.stack([k + 1] * rank))

def many(tf, x):
    n = tf.cast(x, tf.int64)
    return tf.SparseTensor([[0, 1], [0, n + 2], [2, 0]], tf.stack([n, n * 2, -n]), tf.stack([3, n + 3]))

def both(tf, x, make=one):
    return [make(tf, x), x if make is one else [x, x + 1, x + 2]]

builds = [
    lambda tf, train, x: train.batch(both(tf, x), 5),
    lambda tf, train, x: train.batch({"a": one(tf, x, 2)}, 5, allow_smaller_final_batch=True),
    lambda tf, train, x: train.batch([one(tf, x), tf.range(x)], 3, dynamic_pad=True),
    lambda tf, train, x: train.batch(both(tf, x, many), 4, enqueue_many=True),
    lambda tf, train, x: train.batch_join([[one(tf, x)]], 4),
    lambda tf, train, x: train.batch_join([both(tf, x, many)], 4, enqueue_many=True),
    lambda tf, train, x: train.maybe_batch(both(tf, x), tf.equal(x % 3, 1), 4),
    lambda tf, train, x: train.maybe_batch(both(tf, x, many), x > 2, 4, enqueue_many=True),
    lambda tf, train, x: train.maybe_batch(both(tf, x, many), [True, False, True], 4, enqueue_many=True),
    lambda tf, train, x: train.maybe_batch_join([both(tf, x, many)], [x > 1, True, x > 2], 4, enqueue_many=True),
    lambda tf, train, x: train.batch(train.batch(both(tf, x), 3), 2),
    lambda tf, train, x: train.batch(both(tf, x), 5)[1],
]
for i, build in enumerate(builds):
    want, got = (run(tf, train, lambda tf, train: build(tf, train, numbers(train)))
                 for tf, train in ((theirs, theirs.train), (ours, our_input)))
    assert want == got and len(want) > 3, f"{i}\\n{want}\\n{got}"

def shuffled(tf, train, join, many, keep):
    with tf.Graph().as_default(), tf.Session() as sess:
        if many:
            x = tf.placeholder(tf.int64, [100])
            given = tf.SparseTensor(tf.placeholder(tf.int64, [None, 2]), tf.placeholder(tf.int64, [None]), [100, 5])
            at = np.array([[i, j] for i in range(100) for j in range(i % 5)])
            feeds = [{x: range(100), given.indices: at, given.values: at @ [10, 1]}]
        else:
            x = tf.placeholder(tf.int64, [])
            given = one(tf, x)
            feeds = [{x: i} for i in range(100)]
        f = train.maybe_shuffle_batch_join if join else train.maybe_shuffle_batch
        some = [[given, x]] if join else [given, x]
        keep = x % 3 > 0 if keep else True
        batch = f(some, 7, 200, 20, keep_input=keep, seed=4, enqueue_many=many, allow_smaller_final_batch=True)
        (runner,) = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        for feed in feeds:
            sess.run(runner.enqueue_ops[0], feed)
        sess.run(runner.close_op)
        out = []
        try:
            while True:
                out.append(plain(sess.run(batch)))
        except tf.errors.OutOfRangeError:
            return out
for join in (False, True):
    for many in (False, True):
        for keep in (False, True):
            want, got = (shuffled(tf, train, join, many, keep)
                         for tf, train in ((theirs, theirs.train), (ours, our_input)))
            assert want == got and len(got) == (10 if keep else 15), f"{join} {many} {keep}\\n{want}\\n{got}"
print("fine")
"""


@pytest.mark.parametrize("program", ["RECORDS", "READERS", "IMAGES", "PIPELINES", "SPARSE"])
def test_input_is_as_in_tensorflow(program: str, run_python: Callable[[str], bytes], tmp_path: Path) -> None:
    text = START.format(folder=str(tmp_path)) + globals()[program]
    assert run_python(text).decode().split()[-1] == "fine"
