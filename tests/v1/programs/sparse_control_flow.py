"""Slices and sparse tensors in conditionals and loops, and over rows."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.disable_control_flow_v2()

table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
(slices,) = tf.gradients(tf.reduce_sum(tf.square(tf.gather(table, [2, 0, 2]))), table)
rows = tf.IndexedSlices(tf.constant([[3.0, -4.0], [0.5, 0.0]]), tf.constant([1, 3]))  # of a table of unknown size
sparse = tf.SparseTensor([[0, 1], [1, 0]], [1.0, -2.0], [2, 3])
yes = tf.placeholder_with_default(True, [])

columns = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def longer(i, x):
    last = tf.SparseTensor([[0, 0]], [10.0], tf.cast(tf.stack([1, 3]), tf.int64))
    return i + 1, tf.sparse.concat(0, [tf.square(x), last])


def more_rows(i, x):
    values = tf.concat([x.values, [[7.0, 8.0]]], 0)
    return i + 1, tf.IndexedSlices(values, tf.concat([x.indices, [i]], 0), x.dense_shape)


def nested(i, d):
    return i + 1, {"a": tf.square(d["a"]), "b": (tf.negative(d["b"][0]), -d["b"][1])}


# in conditionals and loops
loops = [
    tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.scalar_mul(2.0, x)), [0, rows]),
    tf.while_loop(lambda i, x: i < 2, longer, [0, sparse]),
    tf.while_loop(lambda i, x: i < 2, longer, [0, sparse], [tf.TensorShape([]), tf.TensorShape([2])]),
    tf.while_loop(lambda i, x: i < 2, more_rows, [0, rows], [tf.TensorShape([]), tf.TensorShape([None, 2])]),
    tf.while_loop(lambda i, d: i < 3, nested, [0, {"a": sparse, "b": (sparse, slices)}]),
    tf.while_loop(
        lambda x: tf.reduce_sum(x.values) < 9.0, lambda x: tf.square(x), [tf.SparseTensor([[0]], [2.0], [3])]
    ),
    tf.cond(yes, lambda: sparse, lambda: tf.square(sparse)),
    tf.cond(yes, lambda: [slices], lambda: [-slices]),
    tf.cond(yes, lambda: {"a": rows, "b": (1, sparse)}, lambda: {"a": tf.scalar_mul(3.0, rows), "b": (2, sparse)}),
    tf.cond(yes, lambda: rows, lambda: tf.IndexedSlices(rows.values[:1], tf.cast(rows.indices[:1], tf.int64))),
    tf.case([(tf.logical_not(yes), lambda: rows)], default=lambda: -rows),
    tf.switch_case(tf.cast(yes, tf.int32), [lambda: sparse, lambda: tf.abs(sparse)]),
]
print([type(x).__name__ for x in loops], loops[9].values.get_shape().ndims)
of_loop = tf.gradients(loops[0][1].values, rows.values) + tf.gradients(loops[6].values, sparse.values)
for attempt in (
    lambda: tf.while_loop(lambda i, x: i < 2, more_rows, [0, rows]),
    lambda: tf.while_loop(lambda i, x: i < 2, longer, [0, sparse], [tf.TensorShape([]), tf.TensorShape([3])]),
    lambda: tf.while_loop(lambda i, x: i < 2, longer, [0, sparse], [tf.TensorShape([]), tf.TensorShape([2, 2])]),
    lambda: tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x.values), [0, rows]),
    lambda: tf.cond(yes, lambda: rows, lambda: slices),
    lambda: tf.cond(yes, lambda: slices, lambda: table),
    lambda: tf.cond(yes, lambda: sparse, lambda: tf.to_int32(sparse)),
):
    try:
        attempt()
        print("nothing")
    except ValueError:
        print("ValueError")

# over rows
over_rows = [
    tf.map_fn(lambda x: tf.sparse.reduce_sum(x), sparse, dtype=tf.float32),
    tf.map_fn(tf.abs, sparse),
    tf.map_fn(lambda x: tf.sparse.to_dense(x["a"]) + x["b"], {"a": sparse, "b": tf.constant([10.0, 20.0])}, tf.float32),
    tf.map_fn(tf.sparse.from_dense, columns - 3.0, fn_output_signature=tf.SparseTensorSpec([3], tf.float32)),
    tf.scan(lambda a, x: a + x, slices, tf.constant([0.0, 0.0])),
    tf.foldl(lambda a, x: tf.square(a), tf.constant([1.0, 2.0]), sparse),
]


def show(x):
    if isinstance(x, dict):
        return {k: show(x[k]) for k in sorted(x)}
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *map(show, x)]
    return x if x is None else np.round(np.asarray(x, np.float64), 5).tolist()


with tf.Session() as sess:
    for value in sess.run(loops + of_loop + over_rows):
        print(show(value))
    print(show(sess.run(loops[6], {yes: False})), show(sess.run(loops[9], {yes: False})))
