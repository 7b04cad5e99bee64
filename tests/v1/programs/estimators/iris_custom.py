"""Iris-like flowers with a custom Estimator on feature columns (the custom estimators tutorial)."""

import argparse
import sys

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", default=50, type=int)
parser.add_argument("--train_steps", default=300, type=int)
SPECIES = ["Setosa", "Versicolor", "Virginica"]
NAMES = ["SepalLength", "SepalWidth", "PetalLength", "PetalWidth"]
MEANS = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])


def load(n, seed):
    rng = np.random.RandomState(seed)
    y = rng.randint(0, 3, n)
    x = MEANS[y] + rng.normal(0, 0.25, [n, 4])
    return {name: x[:, i].astype(np.float32) for i, name in enumerate(NAMES)}, y


def train_input_fn(features, labels, batch_size):
    dataset = tf.data.Dataset.from_tensor_slices((dict(features), labels))
    return dataset.shuffle(1000, seed=1).repeat().batch(batch_size)


def eval_input_fn(features, labels, batch_size):
    features = dict(features)
    inputs = features if labels is None else (features, labels)
    return tf.data.Dataset.from_tensor_slices(inputs).batch(batch_size)


def my_model(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["feature_columns"])
    for units in params["hidden_units"]:
        net = tf.layers.dense(net, units=units, activation=tf.nn.relu)
    logits = tf.layers.dense(net, params["n_classes"], activation=None)
    predicted_classes = tf.argmax(logits, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {
            "class_ids": predicted_classes[:, tf.newaxis],
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.metrics.accuracy(labels=labels, predictions=predicted_classes, name="acc_op")
    tf.summary.scalar("accuracy", accuracy[1])
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    assert mode == tf.estimator.ModeKeys.TRAIN
    optimizer = tf.train.AdagradOptimizer(learning_rate=0.1)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main(argv):
    args = parser.parse_args(argv[1:])
    train_x, train_y = load(200, 0)
    test_x, test_y = load(60, 1)
    columns = [tf.feature_column.numeric_column(key=key) for key in train_x]
    classifier = tf.estimator.Estimator(
        model_fn=my_model,
        params={"feature_columns": columns, "hidden_units": [10, 10], "n_classes": 3},
        config=tf.estimator.RunConfig(tf_random_seed=3),
    )
    classifier.train(input_fn=lambda: train_input_fn(train_x, train_y, args.batch_size), steps=args.train_steps)
    eval_result = classifier.evaluate(input_fn=lambda: eval_input_fn(test_x, test_y, args.batch_size))
    print("Test set accuracy above 0.9: {}".format(eval_result["accuracy"] > 0.9))
    predict_x = {name: list(MEANS[:, i].astype(np.float32)) for i, name in enumerate(NAMES)}
    predictions = classifier.predict(input_fn=lambda: eval_input_fn(predict_x, None, args.batch_size))
    for pred_dict, expec in zip(predictions, SPECIES):
        class_id = pred_dict["class_ids"][0]
        print(f'Prediction is "{SPECIES[class_id]}", expected "{expec}"')
    print([name for name in classifier.get_variable_names() if "Adagrad" not in name])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run(main)
