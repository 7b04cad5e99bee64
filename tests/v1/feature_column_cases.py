"""Feature columns, and the tensors that layers make of them, for TensorFlow 1 or `headrace.v1`.

python tests/v1/feature_column_cases.py      # with TensorFlow: writes feature_column_values.json
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

VALUES = Path(__file__).parent / "feature_column_values.json"
VOCABULARY = "ann\nbob\ncid\n"


def features(tf: Any) -> dict[str, Any]:
    """Builds a batch of three examples."""
    at = [[0, 0], [0, 1], [2, 0]]
    return {
        "age": tf.constant([[20.0], [70.0], [30.0]]),
        "size": tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        "city": tf.constant(["paris", "rome", ""]),
        "n": tf.constant([3, 7, 1]),
        "who": tf.constant(["bob", "zed", "ann"]),
        "tags": tf.SparseTensor(at, ["a", "b", "c"], [3, 2]),
        "weights": tf.SparseTensor(at, [0.5, 2.0, 3.0], [3, 2]),
    }


def columns(tf: Any, vocabulary: str) -> dict[str, list[Any]]:
    """Makes columns; the lists whose name begins with "linear" are for `linear_model`.

    Args:
      tf: the module.
      vocabulary: path of a file with the text `VOCABULARY`.
    """
    f = tf.feature_column

    def ramp(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return tf.reshape(tf.range(float(math.prod(shape))), shape)

    age, size = f.numeric_column("age", normalizer_fn=lambda x: x / 10), f.numeric_column("size", shape=2)
    ages = f.bucketized_column(f.numeric_column("age"), [18, 25, 65])
    sizes = f.bucketized_column(size, [1.5, 3.5])
    tags = f.categorical_column_with_hash_bucket("tags", 7)
    who = f.categorical_column_with_vocabulary_list("who", ["ann", "bob"], num_oov_buckets=3)
    city = f.categorical_column_with_vocabulary_list("city", ["ann", "bob", "x", "paris", "rome"])
    weighted = f.weighted_categorical_column(tags, "weights")
    out = {
        "numeric": [size, age],
        "bucketized": [ages, sizes],
        "sqrtn": [f.embedding_column(weighted, 2, combiner="sqrtn", initializer=ramp, max_norm=1.5)],
        "shared": [*f.shared_embedding_columns([who, city], 2, initializer=ramp), age],
    }
    categorical = {
        "hashed": f.categorical_column_with_hash_bucket("city", 10),
        "hashed integers": f.categorical_column_with_hash_bucket("n", 5, tf.int64),
        "tags": tags,
        "identity": f.categorical_column_with_identity("n", 7, default_value=0),
        "list": who,
        "file": f.categorical_column_with_vocabulary_file("who", vocabulary, 3, default_value=0),
        "weighted": weighted,
        "crossed": f.crossed_column(["city", "who"], 50),
        "crossed columns": f.crossed_column([ages, "tags", who], 50),
        "crossed twice": f.crossed_column([f.crossed_column([sizes, "n"], 20), "city"], 50),
        "buckets": sizes,
    }
    for name, c in categorical.items():
        out[f"indicator {name}"] = [f.indicator_column(c)]
        out[f"embedding {name}"] = [f.embedding_column(c, 2, initializer=ramp)]
        out[f"linear {name}"] = [c, age]
    return out


def describe(tf: Any, name: str, vocabulary: str) -> dict[str, Any]:
    """Makes a layer of a list of columns in a new graph, and runs it.

    Returns:
      Its value, the names and shapes of its variables, and the names and features of the columns.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        made = columns(tf, vocabulary)[name]
        cut: dict[Any, Any] = {}
        layer = tf.feature_column.linear_model if name.startswith("linear") else tf.feature_column.input_layer
        extra = {"units": 2} if name.startswith("linear") else {}
        out = layer(features(tf), made, cols_to_vars=cut, **extra)
        variables = tf.trainable_variables()
        ramps = [v.assign(tf.reshape(tf.range(float(math.prod(v.shape.as_list()))), v.shape)) for v in variables]
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        if name.startswith("linear"):
            session.run(ramps)
        spec = tf.feature_column.make_parse_example_spec(made)
        return {
            "value": session.run(out).tolist(),
            "variables": [[v.name, v.shape.as_list()] for v in variables],
            "owned": sorted([c if isinstance(c, str) else c.name, len(v)] for c, v in cut.items()),
            "columns": [c.name for c in made],
            "spec": {k: [type(x).__name__, x.dtype.name] for k, x in sorted(spec.items())},
        }


if __name__ == "__main__":
    import importlib
    import tempfile

    tensorflow: Any = importlib.import_module("tensorflow.compat.v1")
    tensorflow.disable_eager_execution()
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words.txt"
        words.write_text(VOCABULARY, encoding="utf-8")
        found = {n: describe(tensorflow, n, str(words)) for n in columns(tensorflow, str(words))}
    VALUES.write_text(json.dumps(found) + "\n", encoding="utf-8")
