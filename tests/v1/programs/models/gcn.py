"""Graph convolution on a sparse adjacency, with sparse dropout, masked losses and flags."""

import numpy as np
import scipy.sparse as sp
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

flags = tf.app.flags
FLAGS = flags.FLAGS
for name in ("gcn_rate", "gcn_hidden", "gcn_decay"):
    if name in FLAGS:
        delattr(FLAGS, name)
flags.DEFINE_float("gcn_rate", 0.02, "Initial learning rate.")
flags.DEFINE_integer("gcn_hidden", 8, "Number of units in hidden layer 1.")
flags.DEFINE_float("gcn_decay", 5e-3, "Weight for L2 loss on embedding matrix.")


def sparse_to_tuple(mx):
    mx = mx.tocoo()
    return np.vstack((mx.row, mx.col)).transpose().astype(np.int64), mx.data.astype(np.float32), mx.shape


def sparse_dropout(x, keep_prob, noise_shape):
    mask = tf.cast(tf.floor(keep_prob + tf.random_uniform(noise_shape, seed=3)), dtype=tf.bool)
    return tf.sparse_retain(x, mask) * (1.0 / keep_prob)


def masked_softmax_cross_entropy(preds, labels, mask):
    loss = tf.nn.softmax_cross_entropy_with_logits(logits=preds, labels=labels)
    mask = tf.cast(mask, dtype=tf.float32)
    mask /= tf.reduce_mean(mask)
    return tf.reduce_mean(loss * mask)


def glorot(shape, seed):
    bound = np.sqrt(6.0 / (shape[0] + shape[1]))
    return tf.Variable(tf.random_uniform(shape, minval=-bound, maxval=bound, dtype=tf.float32, seed=seed))


rng = np.random.RandomState(16)
n, classes = 24, 3
kind = rng.randint(classes, size=n)
edges = (rng.rand(n, n) < np.where(kind[:, None] == kind, 0.5, 0.05)).astype(float)
adjacency = sp.coo_matrix(np.maximum(edges, edges.T) * (1 - np.eye(n)) + np.eye(n))
d_inv_sqrt = sp.diags(np.power(np.array(adjacency.sum(1)).flatten(), -0.5))
support = adjacency.dot(d_inv_sqrt).transpose().dot(d_inv_sqrt)
features = sp.random(n, 10, density=0.4, random_state=rng)
mask = rng.rand(n) < 0.4

placeholders = {
    "support": tf.sparse_placeholder(tf.float32),
    "features": tf.sparse_placeholder(tf.float32, shape=tf.constant(features.shape, dtype=tf.int64)),
    "labels": tf.placeholder(tf.float32, shape=(None, classes)),
    "labels_mask": tf.placeholder(tf.int32),
    "dropout": tf.placeholder_with_default(0.0, shape=()),
    "num_features_nonzero": tf.placeholder(tf.int32),
}
w1, w2 = glorot([10, FLAGS.gcn_hidden], 1), glorot([FLAGS.gcn_hidden, classes], 2)
x = sparse_dropout(placeholders["features"], 1 - placeholders["dropout"], [placeholders["num_features_nonzero"]])
hidden = tf.nn.relu(tf.sparse_tensor_dense_matmul(placeholders["support"], tf.sparse_tensor_dense_matmul(x, w1)))
outputs = tf.sparse.matmul(placeholders["support"], tf.matmul(hidden, w2))
loss = FLAGS.gcn_decay * tf.nn.l2_loss(w1)
loss += masked_softmax_cross_entropy(outputs, placeholders["labels"], placeholders["labels_mask"])
right = tf.equal(tf.argmax(outputs, 1), tf.argmax(placeholders["labels"], 1))
accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
opt_op = tf.train.AdamOptimizer(learning_rate=FLAGS.gcn_rate).minimize(loss)

feed_dict = {
    placeholders["support"]: sparse_to_tuple(support),
    placeholders["features"]: tf.SparseTensorValue(*sparse_to_tuple(features)),
    placeholders["labels"]: np.eye(classes)[kind],
    placeholders["labels_mask"]: mask,
    placeholders["num_features_nonzero"]: features.nnz,
}
sess = tf.Session()
sess.run(tf.global_variables_initializer())
for epoch in range(40):
    feed_dict[placeholders["dropout"]] = 0.3
    outs = sess.run([opt_op, loss, accuracy], feed_dict=feed_dict)
    if epoch % 10 == 9:
        del feed_dict[placeholders["dropout"]]
        cost, acc = sess.run([loss, accuracy], feed_dict=feed_dict)
        print(
            "Epoch:",
            "%04d" % (epoch + 1),
            "train_loss=",
            f"{outs[1]:.5f}",
            "loss=",
            f"{cost:.5f}",
            "acc=",
            f"{acc:.4f}",
        )
sess.close()
