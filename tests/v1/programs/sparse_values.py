"""Slices and sparse tensors as values: clipped, cast, fetched and fed."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
(slices,) = tf.gradients(tf.reduce_sum(tf.square(tf.gather(table, [2, 0, 2]))), table)
rows = tf.IndexedSlices(tf.constant([[3.0, -4.0], [0.5, 0.0]]), tf.constant([1, 3]))  # of a table of unknown size
sparse = tf.SparseTensor([[0, 1], [1, 0]], [1.0, -2.0], [2, 3])

# functions that keep slices
clipped, norm = tf.clip_by_global_norm([slices, None, tf.constant(3.0), rows], 2.0)
scaled = [
    -slices, -rows, tf.scalar_mul(2.0, rows), tf.scalar_mul(tf.constant(2.0), slices), tf.clip_by_norm(rows, 1.0),
    tf.clip_by_norm(slices, tf.constant(3.0), [1]), tf.clip_by_norm(rows, -1.0), tf.clip_by_value(rows, -1.0, 1.0),
    tf.cast(rows, tf.int32), tf.to_double(rows), tf.identity(rows), tf.stop_gradient(rows), tf.tuple([rows, slices])[0],
    clipped[0], clipped[3], tf.convert_to_tensor_or_indexed_slices(rows),
]  # fmt: skip
print([isinstance(x, tf.IndexedSlices) for x in scaled], clipped[1], type(clipped) is list)
dense = [tf.negative(slices), tf.clip_by_average_norm(slices, 0.1), tf.add_n([slices, slices]), norm]
dense += [tf.global_norm([rows]), tf.global_norm([slices, None, rows])]

# functions that map the values of sparse tensors
half = tf.SparseTensor(sparse.indices, sparse.values / 4.0, sparse.dense_shape)
names = "abs negative square tanh sign sin tan asin atan asinh atanh erf".split()
mapped = [getattr(tf, name)(half) for name in names]
mapped += [tf.math.bessel_i0e(half), tf.math.bessel_i1e(half), tf.sqrt(tf.square(sparse)), tf.cast(sparse, tf.int64)]
mapped += [tf.to_int32(sparse), tf.identity(sparse), tf.stop_gradient(sparse), tf.tuple([sparse])[0]]
columns = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
mapped += [sparse * columns, columns * sparse, sparse * 2.0, sparse / columns, sparse / 2, tf.divide(sparse, columns)]
print(all(isinstance(x, tf.SparseTensor) for x in mapped), mapped[0].get_shape(), mapped[13].dtype == tf.float32)
about = [tf.shape(sparse), tf.shape(sparse, out_type=tf.int64), tf.size(sparse), tf.rank(sparse), tf.zeros_like(sparse)]
print(tf.get_static_value(sparse), tf.is_tensor(sparse), tf.is_tensor(rows), tf.assert_type(sparse, tf.float32) is None)
for attempt in (
    lambda: -sparse,
    lambda: 2.0 * sparse,
    lambda: sparse + sparse,
    lambda: tf.exp(sparse),
    lambda: tf.multiply(sparse, 2.0),
    lambda: tf.convert_to_tensor(rows),
    lambda: tf.scalar_mul([1.0, 2.0], rows),
    lambda: tf.gradients(mapped[0], sparse.values),
    lambda: tf.gradients(tf.sparse.reduce_sum(sparse), sparse),
    lambda: tf.scan(lambda a, x: a, sparse, 0.0),
):
    try:
        attempt()
        print("nothing")
    except (TypeError, ValueError) as e:
        print("TypeError" if isinstance(e, TypeError) and not isinstance(e, ValueError) else "ValueError")


# fed
fed_sparse = tf.sparse_placeholder(tf.float32)
known_shape = tf.sparse_placeholder(tf.float32, [2, 4])
fed_rows = tf.IndexedSlices(tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [None]))
fed_slices = tf.IndexedSlices(*map(tf.placeholder, [tf.float32, tf.int64, tf.int64]))
used = [tf.square(fed_sparse), tf.scalar_mul(2.0, fed_rows), tf.negative(fed_slices)]


def show(x):
    if isinstance(x, dict):
        return {k: show(x[k]) for k in sorted(x)}
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *map(show, x)]
    return x if x is None else np.round(np.asarray(x, np.float64), 5).tolist()


with tf.Session() as sess:
    for what in (scaled, dense, mapped, about, {"x": (slices, [rows, {"y": sparse}])}):
        values = sess.run(what)
        for value in values if isinstance(values, list) else [values]:
            print(show(value))
    values, indices, shape = sess.run(rows)
    print(show(values), show(indices), shape)
    value = sess.run(rows)
    feeds = [([[0, 1]], [3.0], [2, 5]), tf.SparseTensorValue(np.array([[0, 1]]), np.array([3.0]), [2, 5])]
    for sparse_feed in feeds:
        for row_feed in (value, ([[1.0, 2.0]], [3])):
            feed = {fed_sparse: sparse_feed, fed_rows: row_feed, fed_slices: ([[1.0], [2.0]], [0, 2], [3, 1])}
            print(show(sess.run(used, feed)))
    print(show(sess.run([known_shape, rows], {known_shape.indices: [[0, 1]], known_shape.values: [3.0], rows: value})))
    call = sess.make_callable([used[0], {"rows": used[1]}], [fed_sparse, fed_rows])
    print(show(call(feeds[0], value)), show(call(feeds[1], value)))
    handle = sess.partial_run_setup([used[0].values, used[1].values], [fed_sparse, fed_rows])
    print(show(sess.partial_run(handle, used[1].values, {fed_rows: value})))
    print(show(sess.partial_run(handle, used[0].values, {fed_sparse: feeds[1]})))
