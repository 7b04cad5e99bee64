"""Sentences by convolutions of several widths; words become ids by a table of the vocabulary."""

import os
import tempfile

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

sentences = [
    "a fine film with a fine cast", "dull and far too long", "bright funny and warm", "a dull cast and a dull plot",
    "warm and bright", "too long and not funny", "fine plot", "far from fine too dull",
]  # fmt: skip
labels = [1, 0, 1, 0, 1, 0, 1, 0]
vocabulary = sorted({w for s in sentences[:6] for w in s.split()})
path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
with tf.gfile.GFile(path, "w") as f:
    f.write("<pad>\n" + "\n".join(vocabulary) + "\n")
size = len(vocabulary) + 1

text = tf.placeholder(tf.string, [None])
input_y = tf.placeholder(tf.int32, [None])
keep = tf.placeholder_with_default(1.0, [])
initializer = tf.lookup.TextFileInitializer(
    path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
)
table = tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets=2)
words = tf.string_split(text)
ids = table.lookup(tf.sparse_tensor_to_dense(words, default_value="<pad>"))
reverse = tf.lookup.StaticHashTable(
    tf.lookup.TextFileInitializer(
        path, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE
    ),
    default_value="<unk>",
)
back = reverse.lookup(ids)
with tf.device("/cpu:0"), tf.name_scope("embedding"):
    W = tf.Variable(tf.random_uniform([size + 2, 6], -1.0, 1.0, seed=1), name="W")
    embedded = tf.expand_dims(tf.nn.embedding_lookup(W, ids), -1)
pooled_outputs = []
for i, filter_size in enumerate([1, 2]):
    with tf.name_scope("conv-maxpool-%s" % filter_size):
        filters = tf.Variable(tf.truncated_normal([filter_size, 6, 1, 4], stddev=0.3, seed=i + 2), name="W")
        b = tf.Variable(tf.constant(0.1, shape=[4]), name="b")
        conv = tf.nn.conv2d(embedded, filters, strides=[1, 1, 1, 1], padding="VALID", name="conv")
        h = tf.nn.relu(tf.nn.bias_add(conv, b), name="relu")
        pooled_outputs.append(tf.reduce_max(h, axis=[1, 2]))
h_drop = tf.nn.dropout(tf.concat(pooled_outputs, 1), rate=1 - keep, seed=5)
with tf.name_scope("output"):
    weights = tf.get_variable("weights", [8, 2], initializer=tf.glorot_uniform_initializer(seed=6))
    scores = tf.matmul(h_drop, weights, name="scores")
predictions = tf.argmax(scores, 1, name="predictions", output_type=tf.int32)
loss = tf.losses.sparse_softmax_cross_entropy(input_y, scores) + 0.01 * tf.nn.l2_loss(weights)
accuracy, update = tf.metrics.accuracy(input_y, predictions)
train_op = tf.train.AdamOptimizer(0.05).minimize(loss)
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
    print(sess.run(table.size()), sess.run(ids, {text: sentences[6:]}).tolist())
    print([b" ".join(row).decode() for row in sess.run(back, {text: sentences[5:7]})])
    for step in range(20):
        _, value = sess.run([train_op, loss], {text: sentences[:6], input_y: labels[:6], keep: 0.8})
        if step % 5 == 4:
            print("step", step + 1, "loss %.4f" % value)
    sess.run(update, {text: sentences, input_y: labels})
    print("accuracy %.4f" % sess.run(accuracy))
