"""Word vectors by skip-grams with NCE, sampled softmax and CBOW, and the nearest words."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

sentence = "the quick brown fox jumps over the lazy dog and the slow red fox walks under the quick cat".split() * 4
count = collections.Counter(sentence).most_common()
dictionary = {word: i for i, (word, _) in enumerate(count)}
data = [dictionary[w] for w in sentence]
vocabulary_size, embedding_size, num_sampled = len(dictionary), 8, 5
pairs = [(data[i], data[j]) for i in range(len(data)) for j in (i - 1, i + 1) if 0 <= j < len(data)]

graph = tf.Graph()
with graph.as_default():
    tf.set_random_seed(3)
    train_inputs = tf.placeholder(tf.int32, shape=[None])
    train_labels = tf.placeholder(tf.int32, shape=[None, 1])
    valid_dataset = tf.constant([dictionary["fox"], dictionary["the"]], dtype=tf.int32)
    embeddings = tf.Variable(tf.random_uniform([vocabulary_size, embedding_size], -1.0, 1.0, seed=1))
    embed = tf.nn.embedding_lookup(embeddings, train_inputs)
    nce_weights = tf.Variable(tf.truncated_normal([vocabulary_size, embedding_size], stddev=0.3, seed=2))
    nce_biases = tf.Variable(tf.zeros([vocabulary_size]))

    def sampled(seed):
        return tf.nn.log_uniform_candidate_sampler(
            tf.cast(train_labels, tf.int64), 1, num_sampled, unique=True, range_max=vocabulary_size, seed=seed
        )

    nce = tf.reduce_mean(
        tf.nn.nce_loss(
            weights=nce_weights, biases=nce_biases, labels=train_labels, inputs=embed, num_sampled=num_sampled,
            num_classes=vocabulary_size, sampled_values=sampled(4), remove_accidental_hits=True,
        )
    )  # fmt: skip
    softmax = tf.reduce_mean(
        tf.nn.sampled_softmax_loss(
            nce_weights, nce_biases, train_labels, embed, num_sampled, vocabulary_size, sampled_values=sampled(5)
        )
    )
    step = tf.train.GradientDescentOptimizer(1.0).minimize(nce + 0.5 * softmax)
    full = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=train_labels[:, 0], logits=tf.matmul(embed, nce_weights, transpose_b=True) + nce_biases
        )
    )
    norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
    normalized = embeddings / norm
    similarity = tf.matmul(tf.nn.embedding_lookup(normalized, valid_dataset), normalized, transpose_b=True)

with tf.Session(graph=graph) as session:
    session.run(tf.variables_initializer(graph.get_collection("variables")))
    for i in range(30):
        chunk = pairs[(i * 10) % len(pairs) :][:10]
        feed = {train_inputs: [a for a, _ in chunk], train_labels: [[b] for _, b in chunk]}
        _, a, b = session.run([step, nce, softmax], feed)
        if i % 10 == 9:
            print("nce %.4f softmax %.4f full %.4f" % (a, b, full.eval(feed)))
    sim = similarity.eval()
    for row, word in zip(sim, ("fox", "the")):
        print(word, [count[k][0] for k in (-row).argsort()[1:4]], np.round(np.sort(row)[-3:], 4))
