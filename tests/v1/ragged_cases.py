"""Ragged tensors for TensorFlow 1 or `headrace.v1`, by name.

python tests/v1/ragged_cases.py              # with TensorFlow: writes ragged_values.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VALUES = Path(__file__).parent / "ragged_values.json"


def build(tf: Any) -> dict[str, Any]:
    """Builds ragged tensors, and tensors made of them, in the default graph."""
    make, ragged = tf.RaggedTensor, tf.ragged
    r, deep = ragged.constant([[1, 2], [], [3, 4, 5]]), ragged.constant([[[1, 2], []], [[3]], []])
    mask = ragged.constant([[True, False], [], [False, True, True]])
    uniform = make.from_row_lengths([[1, 2], [3, 4], [5, 6]], [2, 1])
    words, more = ragged.constant([["a"], ["b", "c"]]), tf.constant([["d", "e"], ["f", "g"]])
    numbers = tf.sparse.from_dense([[1, 2], [0, 3]])
    reals = tf.cast(r, tf.float32)
    return {
        "tf.add": tf.add(r, 1),
        "tf.multiply": tf.multiply(2, r),
        "tf.maximum": tf.maximum(r, r * 2 - 3),
        "tf.cast": reals,
        "tf.sqrt": tf.sqrt(reals),
        "tf.zeros_like": tf.zeros_like(deep),
        "tf.equal": tf.equal(r, 3),
        "tf.strings.upper": tf.strings.upper(words),
        "tf.nn.relu": tf.nn.relu(reals - 2.0),
        "tf.where": tf.where(r > 2, r, -r),
        "tf.concat": tf.concat([r, r * 10], 0),
        "tf.concat of rows": tf.concat([r, r * 10, r], axis=1),
        "tf.concat with a tensor": tf.concat([r, [[7, 8], [9, 10], [11, 12]]], axis=1),
        "tf.concat deep": tf.concat([deep, deep], -2),
        "tf.reduce_sum": tf.reduce_sum(r, 1),
        "tf.reduce_sum of columns": tf.reduce_sum(r, axis=0),
        "tf.reduce_sum of all": tf.reduce_sum(r),
        "tf.reduce_sum deep": tf.reduce_sum(deep, axis=2),
        "tf.reduce_sum of two axes": tf.reduce_sum(r, [0, 1]),
        "tf.reduce_max": tf.reduce_max(r, 1),
        "tf.reduce_min of columns": tf.reduce_min(r, 0),
        "tf.reduce_prod": tf.reduce_prod(r, -1),
        "tf.reduce_mean": tf.reduce_mean(tf.cast(ragged.constant([[1, 2], [3]]), tf.float32), axis=1),
        "tf.reduce_any": tf.reduce_any(r > 2, axis=1),
        "tf.reduce_all": tf.reduce_all(r > 2, axis=1),
        "tf.size": tf.size(r),
        "tf.rank": tf.rank(deep),
        "tf.gather": tf.gather(r, [2, 0]),
        "cross": ragged.cross([words, more]),
        "cross of three kinds": ragged.cross([more, words, numbers]),
        "cross_hashed": ragged.cross_hashed([words, more, numbers]),
        "cross_hashed to buckets": ragged.cross_hashed([words, more], 100),
        "cross_hashed with a key": ragged.cross_hashed([words, words], 1000, 7),
        "from_nested_value_rowids": make.from_nested_value_rowids([1, 2, 3], [[0, 0, 2], [0, 0, 2]], [4, 3]),
        "nested_value_rowids": deep.nested_value_rowids()[1],
        "merge_dims": deep.merge_dims(0, 1),
        "merge_dims of inner axes": deep.merge_dims(1, 2),
        "merge_dims of all": deep.merge_dims(0, -1),
        "merge_dims of a uniform axis": uniform.merge_dims(1, 2),
        "merge_dims of all, uniform": uniform.merge_dims(0, 2),
        "uniform_row_length": make.from_uniform_row_length([1, 2, 3, 4], 2).uniform_row_length,
        "constant": r,
        "deep": deep,
        "add": r + 1,
        "multiply": r * r,
        "reversed": 10 - r,
        "minus": -r,
        "less": r < 3,
        "from_row_splits": make.from_row_splits([1, 2, 3], [0, 2, 2, 3]),
        "from_row_lengths": make.from_row_lengths([1, 2, 3], [2, 0, 1]),
        "from_row_starts": make.from_row_starts([1, 2, 3], [0, 2, 2]),
        "from_row_limits": make.from_row_limits([1, 2, 3], [2, 2, 3]),
        "from_value_rowids": make.from_value_rowids([1, 2, 3], [0, 0, 2], 5),
        "from_value_rowids without nrows": make.from_value_rowids([1, 2, 3], [0, 0, 2]),
        "from_uniform_row_length": make.from_uniform_row_length([1, 2, 3, 4], 2),
        "from_nested_row_splits": make.from_nested_row_splits([1, 2, 3], [[0, 1, 2], [0, 2, 3]]),
        "from_nested_row_lengths": make.from_nested_row_lengths([1, 2, 3], [[1, 1], [2, 1]]),
        "from_tensor": make.from_tensor([[1, 2, 0], [3, 0, 0]]),
        "padding": make.from_tensor([[1, 2, 0], [3, 0, 0]], padding=0),
        "lengths": make.from_tensor([[1, 2, 0], [3, 0, 0]], lengths=[1, 3]),
        "to_tensor": r.to_tensor(),
        "default": r.to_tensor(-1),
        "to_tensor deep": deep.to_tensor(),
        "shape": r.to_tensor(shape=[None, 2]),
        "to_sparse": tf.sparse.to_dense(r.to_sparse()),
        "from_sparse": make.from_sparse(r.to_sparse()),
        "nrows": r.nrows(),
        "row_starts": r.row_starts(),
        "row_limits": r.row_limits(),
        "row_lengths": r.row_lengths(),
        "row_lengths deep": deep.row_lengths(2),
        "value_rowids": r.value_rowids(),
        "bounding_shape": deep.bounding_shape(),
        "bounding_shape of an axis": r.bounding_shape(axis=1),
        "[2]": r[2],
        "[-1]": r[-1],
        "deep [0]": deep[0],
        "[1:]": r[1:],
        "[::2]": r[::2],
        "[2, 1]": r[2, 1],
        "[:, 1:]": r[:, 1:],
        "[:, -1:]": r[:, -1:],
        "[:, :2]": r[:, :2],
        "deep [:, :1]": deep[:, :1],
        "deep [:2, :, :1]": deep[:2, :, :1],
        "range": ragged.range([0, 3], [4, 5]),
        "range of limits": ragged.range([3, 1, 2]),
        "range of floats": ragged.range([0.0, 1.0], 2.0, 0.5),
        "stack": ragged.stack([[1, 2], [3]]),
        "stack ragged": ragged.stack([r, r]),
        "boolean_mask": ragged.boolean_mask([[1, 2, 3], [4, 5, 6]], [[True, False, True], [False, False, True]]),
        "boolean_mask of rows": ragged.boolean_mask(r, [True, False, True]),
        "boolean_mask ragged": ragged.boolean_mask(r, mask),
        "map_flat_values": ragged.map_flat_values(tf.square, r),
        "row_splits_to_segment_ids": ragged.row_splits_to_segment_ids([0, 2, 2, 3]),
        "segment_ids_to_row_splits": ragged.segment_ids_to_row_splits([0, 0, 2, 2]),
        "stack_dynamic_partitions": ragged.stack_dynamic_partitions([7, 8, 9, 5, 6], [3, 0, 2, 2, 3], 5),
        "with_row_splits_dtype": r.with_row_splits_dtype(tf.int32),
        "with_values": r.with_values([1.0, 2, 3, 4, 5]),
    }


def plain(value: Any) -> Any:
    """Nested lists of a fetched value, and its dtype."""
    found = value.to_list() if hasattr(value, "to_list") else value.tolist()
    return [[[x.decode() for x in row] for row in found] if value.dtype == object else found, value.dtype.name]


if __name__ == "__main__":
    import importlib

    tensorflow: Any = importlib.import_module("tensorflow.compat.v1")
    tensorflow.disable_eager_execution()
    with tensorflow.Graph().as_default(), tensorflow.Session() as session:
        found = {k: plain(v) for k, v in session.run(build(tensorflow)).items()}
    VALUES.write_text(json.dumps(found) + "\n", encoding="utf-8")
