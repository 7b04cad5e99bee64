"""A linear and a wide-and-deep model for census-like rows (the wide tutorial)."""

import os
import tempfile

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)
COLUMNS = ["age", "education", "occupation", "hours_per_week", "income_bracket"]
DEFAULTS = [[0], [""], [""], [0], [""]]
EDUCATION = ["HS-grad", "Bachelors", "Masters", "Doctorate"]
OCCUPATION = ["Sales", "Tech-support", "Exec-managerial", "Farming"]


def write(path, n, seed):
    rng = np.random.RandomState(seed)
    with open(path, "w") as f:
        for _ in range(n):
            age, hours = rng.randint(18, 80), rng.randint(10, 60)
            education, occupation = rng.randint(4), rng.randint(4)
            score = education + (2 if occupation == 2 else 0) + (30 < age < 60) + hours / 30.0 + rng.normal(0, 0.2)
            bracket = ">50K" if score > 4 else "<=50K"
            f.write(f"{age},{EDUCATION[education]},{OCCUPATION[occupation]},{hours},{bracket}\n")


def input_fn(data_file, num_epochs, shuffle, batch_size):
    def parse_csv(value):
        columns = tf.decode_csv(value, record_defaults=DEFAULTS)
        features = dict(zip(COLUMNS, columns))
        labels = features.pop("income_bracket")
        return features, tf.equal(labels, ">50K")

    dataset = tf.data.TextLineDataset(data_file)
    if shuffle:
        dataset = dataset.shuffle(buffer_size=1000, seed=1)
    dataset = dataset.map(parse_csv, num_parallel_calls=2)
    return dataset.repeat(num_epochs).batch(batch_size)


def build_model_columns():
    age = tf.feature_column.numeric_column("age")
    hours = tf.feature_column.numeric_column("hours_per_week", normalizer_fn=lambda x: (tf.to_float(x) - 35) / 15)
    education = tf.feature_column.categorical_column_with_vocabulary_list("education", EDUCATION)
    occupation = tf.feature_column.categorical_column_with_hash_bucket("occupation", hash_bucket_size=100)
    buckets = tf.feature_column.bucketized_column(age, boundaries=[25, 31, 40, 50, 60, 70])
    crossed = [
        tf.feature_column.crossed_column(["education", "occupation"], hash_bucket_size=100),
        tf.feature_column.crossed_column([buckets, "education"], hash_bucket_size=100),
    ]
    deep = [
        hours,
        tf.feature_column.indicator_column(education),
        tf.feature_column.embedding_column(occupation, dimension=4),
    ]
    return [education, occupation, buckets, hours, *crossed], deep


folder = tempfile.mkdtemp()
train_file, test_file = os.path.join(folder, "train.csv"), os.path.join(folder, "test.csv")
write(train_file, 2000, 0)
write(test_file, 500, 1)
wide_columns, deep_columns = build_model_columns()
config = tf.estimator.RunConfig(tf_random_seed=2)
linear = tf.estimator.LinearClassifier(
    feature_columns=wide_columns,
    optimizer=tf.train.FtrlOptimizer(learning_rate=0.1, l1_regularization_strength=0.1, l2_regularization_strength=0.1),
    model_dir=os.path.join(folder, "linear"),
    config=config,
)
combined = tf.estimator.DNNLinearCombinedClassifier(
    model_dir=os.path.join(folder, "combined"),
    linear_feature_columns=wide_columns,
    dnn_feature_columns=deep_columns,
    dnn_hidden_units=[20, 10],
    config=config,
)
for model in (linear, combined):
    for _ in range(2):  # epochs between evaluations
        model.train(input_fn=lambda: input_fn(train_file, 2, True, 40))
        results = model.evaluate(input_fn=lambda: input_fn(test_file, 1, False, 40))
    print(type(model).__name__)
    for key in sorted(results):
        print(" ", key)
    print("  above the baseline:", results["accuracy"] > results["accuracy_baseline"] + 0.1, results["accuracy"] > 0.85)
    print("  steps:", results["global_step"], sorted(os.listdir(model.eval_dir()))[0].split(".")[:3])
weights = linear.get_variable_value("linear/linear_model/education/weights").flatten()
print("a higher degree has a higher weight:", bool(np.all(np.diff(weights) > 0)))
