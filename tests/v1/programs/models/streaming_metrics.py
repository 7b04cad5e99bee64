"""Metrics over batches in local variables that are reset in each epoch."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(31)
labels, predictions, weights = (tf.placeholder(tf.float32, [None], n) for n in ("labels", "predictions", "weights"))
ids = tf.placeholder(tf.int64, [None], "ids")
logits = tf.placeholder(tf.float32, [None, 4], "logits")
with tf.variable_scope("metrics"):
    metrics = {
        "accuracy": tf.metrics.accuracy(labels, tf.round(predictions), weights),
        "precision": tf.metrics.precision(labels, predictions > 0.5),
        "recall": tf.metrics.recall(labels, predictions > 0.5, weights=weights),
        "auc": tf.metrics.auc(labels, predictions, num_thresholds=50),
        "pr": tf.metrics.auc(labels, predictions, curve="PR", summation_method="careful_interpolation"),
        "mae": tf.metrics.mean_absolute_error(labels, predictions),
        "rmse": tf.metrics.root_mean_squared_error(labels, predictions),
        "mean": tf.metrics.mean(predictions, weights),
        "cosine": tf.metrics.mean_cosine_distance(
            tf.nn.l2_normalize(logits, 1), tf.nn.l2_normalize(tf.one_hot(ids, 4), 1), dim=1
        ),
        "iou": tf.metrics.mean_iou(ids, tf.argmax(logits, 1), num_classes=4),
        "per class": tf.metrics.mean_per_class_accuracy(ids, tf.argmax(logits, 1), 4),
        "recall at 2": tf.metrics.recall_at_k(ids, logits, 2),
        "precision at": tf.metrics.precision_at_thresholds(labels, predictions, [0.3, 0.7]),
        "sensitivity": tf.metrics.sensitivity_at_specificity(labels, predictions, 0.6, num_thresholds=40),
        "false": tf.metrics.false_positives(labels, predictions > 0.5),
        "below": tf.metrics.percentage_below(predictions, 0.5),
    }
values = {k: v[0] for k, v in metrics.items()}
updates = [v[1] for v in metrics.values()]
local = tf.get_collection(tf.GraphKeys.LOCAL_VARIABLES, scope="metrics")
reset = tf.variables_initializer(local)
confusion = tf.confusion_matrix(ids, tf.argmax(logits, 1), num_classes=4)
print(len(local), len(tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)), len(tf.global_variables()))
print([v.name for v in local if "accuracy" in v.name])
with tf.Session() as sess:
    for epoch in range(2):
        sess.run(reset)
        for _ in range(3):
            truth = rng.randint(2, size=16)
            feed = {
                labels: truth,
                predictions: (truth * 0.4 + rng.rand(16) * 0.6).astype(np.float32),
                weights: rng.randint(3, size=16),
                ids: rng.randint(4, size=16),
                logits: rng.normal(size=(16, 4)),
            }
            sess.run(updates, feed)
        print(epoch, {k: np.round(v.astype(np.float64), 5).tolist() for k, v in sess.run(values).items()})
    print(sess.run(confusion, feed).tolist())
