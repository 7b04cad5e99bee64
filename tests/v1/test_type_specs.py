"""`tf.TypeSpec` and the descriptions of values."""

from __future__ import annotations

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def _graph() -> object:
    with tf.Graph().as_default() as g:
        yield g


def test_values_are_described() -> None:
    sparse = tf.SparseTensor([[0, 1]], [1.0], [2, 3])
    slices = tf.IndexedSlices(tf.zeros([2, 3]), tf.constant([0, 4]), tf.constant([5, 3]))
    array = tf.TensorArray(tf.int32, 2, element_shape=[2])
    dataset = tf.data.Dataset.range(3)
    values = [
        (tf.zeros([2]), tf.TensorSpec([2], tf.float32)),
        (np.zeros((2, 1), np.int64), tf.TensorSpec([2, 1], tf.int64)),
        ([1, 2], tf.TensorSpec([2], tf.int64)),
        (tf.get_variable("v", [3]), tf.TensorSpec([3], tf.float32)),
        (sparse, tf.SparseTensorSpec([2, 3], tf.float32)),
        (tf.ragged.constant([[1], []]), tf.RaggedTensorSpec([2, None], tf.int32)),
        (slices, tf.IndexedSlicesSpec([5, 3], tf.float32, tf.int32, tf.int32, [2])),
        (array, tf.TensorArraySpec([2], tf.int32)),
        (dataset, tf.data.DatasetSpec(tf.TensorSpec([], tf.int64))),
        (None, tf.NoneTensorSpec()),
    ]
    for value, spec in values:
        n = len(tf.get_default_graph().get_operations())
        found = tf.type_spec_from_value(value)
        assert found == spec
        assert isinstance(found, tf.TypeSpec)
        assert len(tf.get_default_graph().get_operations()) == n
    with pytest.raises(TypeError, match="Could not build a TypeSpec"):
        tf.type_spec_from_value({1, 2})


def test_descriptions_fit_values() -> None:
    spec = tf.TensorSpec([None, 3], tf.float32)
    assert spec.is_compatible_with(tf.zeros([2, 3]))
    assert spec.is_compatible_with(np.zeros((1, 3), np.float32))
    assert spec.is_compatible_with(tf.TensorSpec(None, tf.float32))
    assert not spec.is_compatible_with(tf.zeros([3]))
    assert not spec.is_compatible_with(tf.zeros([2, 3], tf.int32))
    assert not spec.is_compatible_with("text")
    assert spec.value_type is tf.Tensor
    assert tf.TensorSpec.from_tensor(tf.zeros([2], name="z")).name == "z"
    assert tf.TensorSpec.from_spec(spec, "n").name == "n"
    sparse = tf.SparseTensorSpec([None, 3])
    assert sparse.is_compatible_with(tf.SparseTensor([[0, 1]], [1.0], [2, 3]))
    assert not sparse.is_compatible_with(tf.SparseTensor([[0, 1]], [1.0], [2, 4]))
    assert issubclass(tf.SparseTensor, sparse.value_type)
    slices = tf.IndexedSlices(tf.zeros([2, 3]), tf.constant([0, 4]))
    assert tf.IndexedSlicesSpec([None, 3], indices_dtype=tf.int32).is_compatible_with(slices)
    assert not tf.IndexedSlicesSpec([None, 3]).is_compatible_with(slices)
    assert tf.IndexedSlicesSpec().value_type is tf.IndexedSlices
    assert tf.NoneTensorSpec().is_compatible_with(None)
    assert not tf.NoneTensorSpec().is_compatible_with(0)
    assert len({tf.NoneTensorSpec(), tf.NoneTensorSpec(), tf.IndexedSlicesSpec(), tf.IndexedSlicesSpec()}) == 2


def test_datasets_and_optionals_fit_their_descriptions() -> None:
    dataset = tf.data.Dataset.range(3)
    spec = tf.type_spec_from_value(dataset)
    assert spec.is_compatible_with(dataset)
    assert not spec.is_compatible_with(dataset.batch(2))
    assert issubclass(tf.data.Dataset, spec.value_type)
    optional = tf.data.experimental.Optional.from_value(tf.constant(1))
    assert tf.type_spec_from_value(optional).is_compatible_with(optional)
    assert not tf.OptionalSpec(tf.TensorSpec([2], tf.int32)).is_compatible_with(optional)
    dense = tf.RaggedTensorSpec([2], tf.float32, 0)
    assert dense.is_compatible_with(tf.zeros([2]))
    assert not dense.is_compatible_with(tf.zeros([3]))
