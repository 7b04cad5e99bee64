"""`tf.print` of structures, sparse values and texts, byte for byte."""

import collections
import os
import shutil
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

Pair = collections.namedtuple("Pair", "first second")
one, vector, cube = tf.constant(1), tf.range(10), tf.reshape(tf.range(24), [2, 3, 4])
sparse = tf.SparseTensor([[0, 1], [1, 0]], [1.5, -2.0], [2, 3])
slices = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([1, 3]), tf.constant([5, 2]))
variable = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)


class Named:
    def __repr__(self):
        return "<named>"


SHOWN = [
    ["a", vector, 3, 2.5, None, True],
    [{"b": vector, "a": one, "c": "text", "d": [1, tf.constant(2.5)], "e": None, "f": (one,)}],
    [{10: one, 9: vector, 2: one}, {(1, "b"): one, (0, "z"): vector}],
    [[one, [vector, {"k": (one, 4)}]], (one,), [], {}, ()],
    [Pair(one, [vector]), Pair("text", 2)],
    [sparse],
    ["sparse:", [sparse, {"x": sparse}]],
    [slices, [slices]],
    [collections.defaultdict(list, {"z": one, "a": 2})],
    [{f"key number {i}": vector + i for i in range(6)}],
    [[one] * 30],
    [["word " * 30, one], "word " * 30],
    ["{}", one, "{} {}", ["{}", "a{}b{}2"]],
    [["it's", '"q"'], b"abc", [b"abc"], "", one],
    [np.arange(3), [np.float32(2.5)], {3, 1, 2}, 1 + 2j],
    [tf.constant("hello")],
    [tf.constant(["hello", "w\n"]), [tf.constant("x")]],
    [Named(), [Named(), one], {"n": Named()}],
    [{"outer": {"inner": {"x": [vector, {"deepest": sparse}]}}, "another": [{"abc": cube} for _ in range(2)]}],
    [variable, [variable], tf.constant([True, False]), tf.constant([float("inf"), float("nan"), 0.1])],
    [],
]
OPTIONS = [
    ([vector, {"a": cube}], {"summarize": 1}),
    ([vector, [vector]], {"summarize": -1}),
    ([vector], {"summarize": None}),
    ([one, {"a": one}, "text"], {"sep": "|", "end": "END"}),
]

folder = tempfile.mkdtemp()
paths, shown = [], []
for inputs, options in [(x, {}) for x in SHOWN] + OPTIONS:
    paths.append(os.path.join(folder, str(len(paths))))
    shown.append(tf.print(*inputs, output_stream="file://" + paths[-1], **options))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(shown)
for path in paths:
    with open(path) as file:
        print(repr(file.read()))
shutil.rmtree(folder)

named = tf.print(one, [one], name="shown")
print(named.name, [t.op.name for t in named.inputs])
