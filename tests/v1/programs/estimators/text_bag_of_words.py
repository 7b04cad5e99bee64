"""Sentiment of short texts by a bag of words (the text tutorial)."""

import os
import tempfile

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)
GOOD = "good great fine lovely superb".split()
BAD = "bad awful poor dull terrible".split()
NEUTRAL = "the a film plot actor was with and scene music".split()
VOCABULARY = GOOD + BAD + NEUTRAL


def reviews(n, seed):
    rng = np.random.RandomState(seed)
    texts, labels = [], []
    for _ in range(n):
        label = rng.randint(2)
        words = list(rng.choice(NEUTRAL, rng.randint(3, 9))) + list(rng.choice(GOOD if label else BAD, 2))
        rng.shuffle(words)
        texts.append(" ".join(words))
        labels.append(label)
    return np.array(texts), np.array(labels, np.int32)


def input_fn(texts, labels, training):
    def make():
        dataset = tf.data.Dataset.from_tensor_slices((texts, labels))
        if training:
            dataset = dataset.shuffle(500, seed=4).repeat()
        dataset = dataset.batch(25)
        iterator = dataset.make_initializable_iterator()
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        text, label = iterator.get_next()
        return {"text": text}, label

    return make


def model_fn(features, labels, mode, params):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(VOCABULARY, list(range(1, len(VOCABULARY) + 1)), tf.string, tf.int64), 0
    )
    words = tf.string_split(features["text"])
    ids = tf.SparseTensor(words.indices, table.lookup(words.values), words.dense_shape)
    embeddings = tf.get_variable("embeddings", [len(VOCABULARY) + 1, params["size"]])
    bag = tf.nn.embedding_lookup_sparse(embeddings, ids, None, combiner="mean")
    logits = tf.layers.dense(bag, 1)
    probability = tf.sigmoid(logits[:, 0])
    head = {"probability": probability, "positive": probability > 0.5}
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"predict": tf.estimator.export.PredictOutput(head)}
        return tf.estimator.EstimatorSpec(mode, predictions=head, export_outputs=outputs)
    loss = tf.losses.sigmoid_cross_entropy(labels[:, tf.newaxis], logits)
    metrics = {
        "accuracy": tf.metrics.accuracy(labels, head["positive"]),
        "auc": tf.metrics.auc(labels, probability),
    }
    optimizer = tf.train.AdamOptimizer(params["learning_rate"])
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, tf.train.get_or_create_global_step()),
        eval_metric_ops=metrics,
    )


folder = tempfile.mkdtemp()
config = tf.estimator.RunConfig(model_dir=folder, save_checkpoints_steps=60, keep_checkpoint_max=2, tf_random_seed=9)
estimator = tf.estimator.Estimator(model_fn, config=config, params={"size": 8, "learning_rate": 0.05})
train_spec = tf.estimator.TrainSpec(input_fn(*reviews(500, 0), training=True), max_steps=150)
eval_spec = tf.estimator.EvalSpec(input_fn(*reviews(200, 1), training=False), steps=None, throttle_secs=0)
results, exports = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
print(sorted(results), exports, results["global_step"])
print("learned:", results["accuracy"] > 0.95, results["auc"] > 0.95)
state = tf.train.get_checkpoint_state(folder)
print([os.path.basename(path) for path in state.all_model_checkpoint_paths])
steps = [
    (event.step, value.tag)
    for name in os.listdir(os.path.join(folder, "eval"))
    for event in tf.train.summary_iterator(os.path.join(folder, "eval", name))
    for value in event.summary.value
]
print(steps)
texts = ["the plot was great and the music superb", "a dull film with awful scene"]
predict_fn = tf.estimator.inputs.numpy_input_fn({"text": np.array(texts)}, shuffle=False)
print([bool(p["positive"]) for p in estimator.predict(predict_fn)])
with tf.Graph().as_default():
    spec = {"text": tf.FixedLenFeature([], tf.string)}
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()
    served = estimator.model_fn(receiver.features, None, tf.estimator.ModeKeys.PREDICT, config)
    print(sorted(served.export_outputs), list(receiver.receiver_tensors))
    requests = []
    for text in texts:
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
        requests.append(tf.train.Example(features=tf.train.Features(feature={"text": feature})).SerializeToString())
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        saver.restore(sess, estimator.latest_checkpoint())
        print(sess.run(served.predictions["positive"], {receiver.receiver_tensors["examples"]: requests}).tolist())
