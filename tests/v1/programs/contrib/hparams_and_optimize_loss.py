"""A classifier whose hyperparameters are read from text, trained by optimize_loss."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, learn

hparams = tf.contrib.training.HParams(learning_rate=0.1, hidden_units=[4], optimizer="SGD", dropout=0.5, steps=10)
hparams.parse("hidden_units=[16,8],optimizer=Adam,learning_rate=0.02,dropout=0.1,steps=150")
print(sorted(hparams.values().items()))


def model_fn(features, targets, mode):
    net = layers.stack(
        features,
        layers.fully_connected,
        hparams.hidden_units,
        activation_fn=tf.nn.elu,
        weights_regularizer=layers.l1_l2_regularizer(1e-4, 1e-4),
        scope="hidden",
    )
    net = layers.dropout(net, keep_prob=1 - hparams.dropout, is_training=mode == learn.ModeKeys.TRAIN)
    logits = layers.linear(net, 3, scope="logits")
    classes = tf.argmax(layers.softmax(logits), 1)
    if mode == learn.ModeKeys.INFER:
        return classes, None, None
    onehot = layers.one_hot_encoding(targets, 3)
    tf.contrib.losses.softmax_cross_entropy(logits, onehot)
    loss = tf.contrib.losses.get_total_loss()
    train_op = layers.optimize_loss(
        loss,
        tf.train.get_or_create_global_step(),
        hparams.learning_rate,
        hparams.optimizer,
        clip_gradients=5.0,
        learning_rate_decay_fn=lambda lr, step: tf.train.exponential_decay(lr, step, 100, 0.5),
        summaries=["loss", "gradient_norm", "learning_rate"],
    )
    return classes, loss, train_op


tf.set_random_seed(7)
x, y = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [None])
with tf.variable_scope("model"):
    _, loss, train_op = model_fn(x, y, learn.ModeKeys.TRAIN)
with tf.variable_scope("model", reuse=True):
    classes, _, _ = model_fn(x, y, learn.ModeKeys.INFER)
metrics = tf.contrib.metrics.aggregate_metric_map(
    {
        "accuracy": tf.contrib.metrics.streaming_accuracy(classes, y),
        "mean class": tf.contrib.metrics.streaming_mean(tf.to_float(classes)),
    }
)
print([v.op.name for v in tf.trainable_variables()])
rng = np.random.RandomState(0)


def points(n):
    found = rng.uniform(-1, 1, [n, 2])
    return found, np.digitize(np.hypot(found[:, 0], found[:, 1]), [0.5, 0.8])


with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(hparams.steps):
        a, b = points(64)
        value = sess.run(train_op, {x: a, y: b})
    sess.run(tf.local_variables_initializer())
    for _ in range(5):
        a, b = points(100)
        sess.run(metrics[1], {x: a, y: b})
    found = sess.run(metrics[0])
    print("learned", found["accuracy"] > 0.8, sorted(found))
    print(sess.run(tf.train.get_global_step()), len(tf.get_collection(tf.GraphKeys.SUMMARIES)) > 4)
