"""A convolutional network for small digits, as a custom Estimator with hooks (the layers tutorial)."""

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)

SHAPES = np.array(
    [
        [0b01110, 0b10001, 0b10001, 0b10001, 0b01110],
        [0b00100, 0b01100, 0b00100, 0b00100, 0b01110],
        [0b11110, 0b00001, 0b01110, 0b10000, 0b11111],
        [0b11110, 0b00001, 0b00110, 0b00001, 0b11110],
    ]
)


def digits(n, seed):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 4, n).astype(np.int32)
    images = rng.normal(0, 0.2, [n, 8, 8]).astype(np.float32)
    for image, label in zip(images, labels):
        y, x = rng.randint(0, 4, 2)
        image[y : y + 5, x : x + 5] += (SHAPES[label][:, None] >> np.arange(4, -1, -1)) & 1
    return images, labels


def cnn_model_fn(features, labels, mode):
    input_layer = tf.reshape(features["x"], [-1, 8, 8, 1])
    conv1 = tf.layers.conv2d(inputs=input_layer, filters=8, kernel_size=[3, 3], padding="same", activation=tf.nn.relu)
    pool1 = tf.layers.max_pooling2d(inputs=conv1, pool_size=[2, 2], strides=2)
    conv2 = tf.layers.conv2d(inputs=pool1, filters=16, kernel_size=[3, 3], padding="same", activation=tf.nn.relu)
    pool2 = tf.layers.max_pooling2d(inputs=conv2, pool_size=[2, 2], strides=2)
    dense = tf.layers.dense(inputs=tf.reshape(pool2, [-1, 2 * 2 * 16]), units=64, activation=tf.nn.relu)
    dropout = tf.layers.dropout(inputs=dense, rate=0.2, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf.layers.dense(inputs=dropout, units=4)
    predictions = {
        "classes": tf.argmax(input=logits, axis=1),
        "probabilities": tf.nn.softmax(logits, name="softmax_tensor"),
    }
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = tf.train.AdamOptimizer(learning_rate=0.005)
        train_op = optimizer.minimize(loss=loss, global_step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train_op)
    eval_metric_ops = {"accuracy": tf.metrics.accuracy(labels=labels, predictions=predictions["classes"])}
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, eval_metric_ops=eval_metric_ops)


def main(unused_argv):
    train_data, train_labels = digits(600, 0)
    eval_data, eval_labels = digits(200, 1)
    classifier = tf.estimator.Estimator(model_fn=cnn_model_fn, config=tf.estimator.RunConfig(tf_random_seed=5))
    logging_hook = tf.train.LoggingTensorHook(tensors={"probabilities": "softmax_tensor"}, every_n_iter=50)
    train_input_fn = tf.estimator.inputs.numpy_input_fn(
        x={"x": train_data}, y=train_labels, batch_size=50, num_epochs=None, shuffle=True
    )
    classifier.train(input_fn=train_input_fn, steps=1, hooks=[logging_hook])
    first = classifier.evaluate(
        tf.estimator.inputs.numpy_input_fn({"x": eval_data}, eval_labels, num_epochs=1, shuffle=False)
    )
    classifier.train(input_fn=train_input_fn, steps=150)
    eval_input_fn = tf.estimator.inputs.numpy_input_fn(x={"x": eval_data}, y=eval_labels, num_epochs=1, shuffle=False)
    results = classifier.evaluate(input_fn=eval_input_fn)
    print(sorted(results), results["global_step"])
    print("better than after a step:", results["loss"] < first["loss"], "learned:", results["accuracy"] > 0.9)
    found = [p["classes"] for p in classifier.predict(eval_input_fn)]
    print("as evaluated:", abs(np.mean(np.array(found) == eval_labels) - results["accuracy"]) < 1e-6)


if __name__ == "__main__":
    tf.app.run()
