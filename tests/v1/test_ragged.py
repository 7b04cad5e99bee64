"""`tf.ragged` and `tf.RaggedTensor`, compared with values that TensorFlow 2.21 computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.ragged_cases import VALUES, build, plain


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def value(x: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(x, feeds)


@pytest.mark.system
def test_ragged_tensors_have_tensorflows_values() -> None:
    wanted = json.loads(VALUES.read_text(encoding="utf-8"))
    assert {k: plain(v) for k, v in value(build(tf)).items()} == wanted


def test_values_are_fetched_shown_and_fed() -> None:
    found = value(tf.ragged.constant([[[1], []], [[2, 3]]]))
    assert isinstance(found, tf.ragged.RaggedTensorValue)
    assert (found.shape, found.ragged_rank, found.to_list()) == ((2, None, None), 2, [[[1], []], [[2, 3]]])
    assert repr(found.values) == (
        "tf.RaggedTensorValue(values=array([1, 2, 3], dtype=int32), row_splits=array([0, 1, 1, 3]))"
    )
    fed = tf.ragged.placeholder(tf.int32, 2)
    assert value(fed.to_tensor(), {fed: found}).tolist() == [[[1, 0], [0, 0]], [[2, 3], [0, 0]]]
    again = tf.ragged.RaggedTensorValue(found.values, found.row_splits)
    assert again.to_list() == found.to_list()


def test_rows_of_vectors() -> None:
    r = tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1)
    assert r.shape.as_list() == [2, None, 2]
    assert value(r[1]).tolist() == [[3, 4], [5, 6]]
    with pytest.raises(ValueError, match="same nesting depth"):
        tf.ragged.constant([1, [2]])
    assert tf.ragged.constant_value([1, 2]).tolist() == [1, 2]


def test_values_have_gradients_and_ragged_tensors_pass_a_conditional() -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    r = tf.RaggedTensor.from_row_lengths(x, [2, 0, 1])
    chosen = tf.cond(tf.constant(True), lambda: r * 2.0, lambda: r)
    squared = chosen.to_tensor() ** 2
    assert value(tf.gradients(squared, x)[0]).tolist() == [8, 16, 24]


@pytest.mark.parametrize("splits", [[1, 3], [0, 2], [0, 2, 1, 3]])
def test_wrong_splits_are_an_error(splits: list[int]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not form a valid RaggedTensor"):
        value(tf.RaggedTensor.from_row_splits(tf.placeholder_with_default([1, 2, 3], [3]), splits))


def test_wrong_operands_are_refused() -> None:
    r, other = tf.ragged.constant([[1], [2]]), tf.ragged.constant([[1, 2], []])
    with pytest.raises(tf.errors.InvalidArgumentError, match="identical ragged splits"):
        value(r + other)
    with pytest.raises(ValueError, match="same ragged_rank"):
        _ = r + tf.ragged.constant([[[1]], [[2]]])
    with pytest.raises(ValueError, match="of the same rows or a scalar"):
        _ = r + np.ones(2)
    with pytest.raises(ValueError, match="inner ragged dimension"):
        _ = r[:, 0]
    with pytest.raises(ValueError, match="but not both"):
        tf.RaggedTensor.from_tensor([[1]], lengths=[1], padding=0)
    with pytest.raises(ValueError, match="new first axis"):
        tf.ragged.stack([r, r], axis=1)
