"""Embeddings in partitioned variables, looked up by dense and sparse ids, with combiners."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

vocabulary, size = 11, 4
first = np.linspace(-1, 1, vocabulary * size, dtype=np.float32).reshape(vocabulary, size)


def part_of_first(shape, dtype=None, partition_info=None):
    start = partition_info.var_offset[0]
    return tf.constant(first[start : start + shape[0]], dtype)


with tf.variable_scope("shards", partitioner=tf.fixed_size_partitioner(3)):
    table = tf.get_variable("table", [vocabulary, size], initializer=part_of_first)
with tf.variable_scope("axis", partitioner=tf.min_max_variable_partitioner(max_partitions=2, min_slice_size=16)):
    other = tf.get_variable("other", [vocabulary, size], initializer=tf.random_normal_initializer(seed=3))
print([(v.name, v.shape.as_list()) for v in table], [v.shape.as_list() for v in other])

ids = tf.placeholder(tf.int64, [None])
sparse_ids = tf.sparse_placeholder(tf.int64)
sparse_weights = tf.sparse_placeholder(tf.float32)
dense = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
mod = tf.nn.embedding_lookup([first[i::3] for i in range(3)], ids)
combined = {
    how: tf.nn.embedding_lookup_sparse(table, sparse_ids, sparse_weights, partition_strategy="div", combiner=how)
    for how in ("sum", "mean", "sqrtn")
}
safe = tf.nn.safe_embedding_lookup_sparse(list(table), sparse_ids, None, partition_strategy="div", default_id=2)
clipped = tf.nn.embedding_lookup(table, ids, max_norm=0.5, partition_strategy="div")
wanted = tf.constant(np.ones([3, size], np.float32))
loss = tf.reduce_mean(tf.square(combined["mean"] - wanted)) + tf.reduce_mean(tf.square(dense))
loss += 0.1 * tf.reduce_mean(tf.square(tf.nn.embedding_lookup(other, ids, partition_strategy="div")))
pairs = tf.train.AdamOptimizer(0.1).compute_gradients(loss)
print([type(g).__name__ == "IndexedSlices" for g, _ in pairs])
train_op = tf.train.AdamOptimizer(0.1).apply_gradients(pairs)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    where = [[0, 0], [0, 1], [2, 0], [2, 1], [2, 2]]
    feed = {
        ids: [0, 4, 7, 10],
        sparse_ids: tf.SparseTensorValue(where, [1, 5, 0, 9, 5], [3, 3]),
        sparse_weights: tf.SparseTensorValue(where, [1.0, 0.5, 2.0, 1.0, 0.25], [3, 3]),
    }
    print(np.round(sess.run(dense, feed), 4).tolist())
    print(np.round(sess.run(mod, feed)[:, 0], 4).tolist(), np.round(sess.run(clipped, feed)[:, 0], 4).tolist())
    for how, value in sorted(sess.run(combined, feed).items()):
        print(how, value.shape, np.round(value[[0, -1]], 4).tolist())
    print(np.round(sess.run(safe, feed)[:, 1], 4).tolist())
    for i in range(6):
        _, value = sess.run([train_op, loss], feed)
        if i % 2:
            print(i, "loss %.5f" % value)
    whole = sess.run(tf.convert_to_tensor(table))
    print(whole.shape, np.flatnonzero(np.abs(whole - first).max(1) > 1e-6).tolist())
