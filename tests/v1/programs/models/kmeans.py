"""K-means in the graph: nearest centroids, means by segments, a loop until no assignment changes."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

N, K, MAX_ITERS = 90, 3, 50
rng = np.random.RandomState(21)
data = np.concatenate([rng.normal(c, 0.5, size=(N // K, 2)) for c in ((0, 0), (3, 1), (-1, 4))]).astype(np.float32)

points = tf.Variable(data)
cluster_assignments = tf.Variable(tf.zeros([N], dtype=tf.int64))
centroids = tf.Variable(tf.slice(points.initialized_value(), [0, 0], [K, 2]))
rep_centroids = tf.reshape(tf.tile(centroids, [N, 1]), [N, K, 2])
rep_points = tf.reshape(tf.tile(points, [1, K]), [N, K, 2])
sum_squares = tf.reduce_sum(tf.square(rep_points - rep_centroids), reduction_indices=2)
best_centroids = tf.argmin(sum_squares, 1)
did_assignments_change = tf.reduce_any(tf.not_equal(best_centroids, cluster_assignments))


def bucket_mean(data, bucket_ids, num_buckets):
    total = tf.unsorted_segment_sum(data, bucket_ids, num_buckets)
    count = tf.unsorted_segment_sum(tf.ones_like(data), bucket_ids, num_buckets)
    return total / count


means = bucket_mean(points, best_centroids, K)
with tf.control_dependencies([did_assignments_change]):
    do_updates = tf.group(centroids.assign(means), cluster_assignments.assign(best_centroids))


def body(i, centres, _):
    distances = tf.reduce_sum(tf.squared_difference(points[:, tf.newaxis], centres), 2)
    nearest = tf.argmin(distances, 1, output_type=tf.int32)
    parts = tf.dynamic_partition(points, nearest, K)
    new = tf.stack([tf.reduce_mean(part, 0) for part in parts])
    return i + 1, new, tf.reduce_max(tf.abs(new - centres))


count, at_once, _ = tf.while_loop(
    lambda i, _, moved: tf.logical_and(i < MAX_ITERS, moved > 1e-6), body, [0, points[:K], tf.constant(1.0)]
)

sess = tf.Session()
sess.run(tf.initialize_all_variables())
changed, iters = True, 0
while changed and iters < MAX_ITERS:
    iters += 1
    [changed, _] = sess.run([did_assignments_change, do_updates])
[found, assignments] = sess.run([centroids, cluster_assignments])
print("Found in", iters, "iterations:", np.round(found, 4).tolist(), np.bincount(assignments).tolist())
iterations, other = sess.run([count, at_once])
print(iterations, "the same", bool(np.allclose(found, other, atol=1e-5)))
sess.close()
