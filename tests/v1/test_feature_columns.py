"""`tf.feature_column`, compared with values that TensorFlow 2.21 computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.feature_column_cases import VALUES, VOCABULARY, describe

F = tf.feature_column
WANTED: dict[str, Any] = json.loads(VALUES.read_text(encoding="utf-8"))
QUICK = ("numeric", "shared", "linear crossed")  # the others are in the system tier


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.system) for n in WANTED])
def test_layers_have_tensorflows_values_and_variables(name: str, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text(VOCABULARY, encoding="utf-8")
    got, wanted = describe(tf, name, str(words)), WANTED[name]
    np.testing.assert_allclose(got.pop("value"), wanted["value"], rtol=1e-5, atol=1e-6)
    assert got == {k: v for k, v in wanted.items() if k != "value"}


def test_a_parsed_batch_goes_into_a_layer() -> None:
    columns = [F.numeric_column("x", (2,)), F.indicator_column(F.categorical_column_with_identity("k", 3))]
    parsed = tf.parse_example(tf.placeholder(tf.string, [None]), F.make_parse_example_spec(columns))
    assert F.input_layer(parsed, columns).shape.as_list() == [None, 5]


def test_a_layer_with_a_table_of_a_partitioned_scope() -> None:
    column = F.embedding_column(F.categorical_column_with_identity("k", 4), 2, initializer=tf.ones_initializer())
    with tf.variable_scope("m", partitioner=tf.fixed_size_partitioner(2)):
        out = F.input_layer({"k": [[0], [3]]}, [column])
    assert [v.shape.as_list() for v in tf.trainable_variables()] == [[2, 2], [2, 2]]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(out).tolist() == [[1, 1], [1, 1]]


def test_sequences_are_described_and_refused_by_layers_of_examples() -> None:
    steps = F.sequence_numeric_column("t")
    assert F.make_parse_example_spec([steps]) == {"t": tf.VarLenFeature(tf.float32)}
    column = F.indicator_column(F.sequence_categorical_column_with_identity("s", 3))
    with pytest.raises(ValueError, match="of sequences"):
        F.input_layer({"s": tf.sparse_placeholder(tf.int64)}, [column])


def test_wrong_columns_and_features_are_refused() -> None:
    k, x = F.categorical_column_with_identity("k", 3), F.numeric_column("x")
    with pytest.raises(ValueError, match="must be a _DenseColumn"):
        F.input_layer({"k": [[1]]}, [k])
    with pytest.raises(ValueError, match="Duplicate feature column name"):
        F.input_layer({"x": [[1.0]]}, [x, F.numeric_column("x", dtype=tf.int32)])
    with pytest.raises(ValueError, match="not in features dictionary"):
        F.input_layer({"y": tf.constant([[1.0]])}, [x])
    with pytest.raises(ValueError, match="cannot have rank 0"):
        F.input_layer({"x": tf.constant(1.0)}, [x])
    with pytest.raises(ValueError, match="different parse_spec"):
        F.make_parse_example_spec([x, F.numeric_column("x", dtype=tf.int32)])
    with pytest.raises(ValueError, match="sorted list"):
        F.bucketized_column(x, [2, 1])
    with pytest.raises(ValueError, match="length > 1"):
        F.crossed_column(["a"], 5)
    with pytest.raises(ValueError, match="not supported for crossing"):
        F.crossed_column([F.categorical_column_with_hash_bucket("a", 3), "b"], 5)
    with pytest.raises(ValueError, match="Duplicate keys"):
        F.categorical_column_with_vocabulary_list("k", ["a", "a"])
    with pytest.raises(ValueError, match="same type and number"):
        F.shared_embedding_columns([k, F.categorical_column_with_identity("j", 4)], 2)


def test_an_id_outside_of_the_range_is_an_error_of_the_step() -> None:
    out = F.input_layer({"k": [[5]]}, F.indicator_column(F.categorical_column_with_identity("k", 3)))
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(out)
