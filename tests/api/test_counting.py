"""Counting, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError


def test_bincount() -> None:
    x = np.array([[1, 1, 3], [0, 3, 3]], np.int32)
    assert hr.bincount(x).numpy().tolist() == np.bincount(x.ravel()).tolist()
    assert hr.bincount(x, minlength=6).numpy().tolist() == [1, 2, 0, 3, 0, 0]
    assert hr.bincount(x, maxlength=2).numpy().tolist() == [1, 2]
    assert hr.bincount(x, axis=-1).numpy().tolist() == [[0, 2, 0, 1], [1, 0, 0, 2]]
    assert hr.bincount(x, binary_output=True, dtype=hr.float32).numpy().tolist() == [1, 1, 0, 1]
    assert hr.bincount(x, weights=x * 0.5).numpy().tolist() == [0, 1, 0, 4.5]
    assert hr.bincount(np.zeros(0, np.int32)).numpy().tolist() == []
    sparse = hr.sparse.from_dense(x)
    assert hr.bincount(sparse).numpy().tolist() == [0, 2, 0, 3]
    assert hr.bincount(sparse, axis=-1).numpy().tolist() == [[0, 2, 0, 1], [0, 0, 0, 2]]
    with pytest.raises(ValueError, match="mutually exclusive"):
        hr.bincount(x, weights=x, binary_output=True)
    with pytest.raises(ValueError, match="axis=1"):
        hr.bincount(x, axis=1)
    with pytest.raises(InvalidArgumentError):
        hr.bincount([-1, 2])


def test_sparse_bincount() -> None:
    x = np.array([[1, 1, 3], [0, 3, 3]], np.int32)
    got = hr.sparse.bincount(x)
    assert (got.indices.numpy().ravel().tolist(), got.values.numpy().tolist()) == ([0, 1, 3], [1, 2, 3])
    assert got.dense_shape.numpy().tolist() == [4]
    got = hr.sparse.bincount(hr.sparse.from_dense(x), axis=-1, minlength=9)
    assert got.indices.numpy().tolist() == [[0, 1], [0, 3], [1, 3]]
    assert (got.values.numpy().tolist(), got.dense_shape.numpy().tolist()) == ([2, 1, 2], [2, 9])
    with pytest.raises(ValueError, match="must be a SparseTensor"):
        hr.sparse.bincount(hr.sparse.from_dense(x), weights=x * 0.5, axis=-1)


def test_histograms() -> None:
    values, ends = np.float32([-1, 0, 1.5, 2, 5, 15]), np.float32([0, 5])
    want = np.histogram(np.clip(values, 0, 5), 5, (0, 5))[0]
    np.testing.assert_array_equal(hr.histogram_fixed_width(values, ends, 5).numpy(), want)
    assert hr.histogram_fixed_width(values, ends, 5, hr.int64).dtype is hr.int64
    bins = hr.histogram_fixed_width_bins(values.reshape(2, 3), ends, 5).numpy()
    assert bins.tolist() == [[0, 0, 1], [2, 4, 4]]
    np.testing.assert_array_equal(np.bincount(bins.ravel(), minlength=5), want)
    with pytest.raises(InvalidArgumentError, match="nbins"):
        hr.histogram_fixed_width_bins(values, ends, 0)


def test_places() -> None:
    x = np.array([[3, 1, 2], [9, 8, 7]], np.int32)
    assert hr.nth_element(x, 1).numpy().tolist() == np.sort(x)[:, 1].tolist()
    assert hr.nth_element(x, 0, reverse=True).numpy().tolist() == [3, 9]
    np.testing.assert_array_equal(hr.unravel_index([5, 7], [2, 4]).numpy(), np.unravel_index([5, 7], (2, 4)))
    edges = [0.0, 10.0, 100.0]
    np.testing.assert_array_equal(hr.bucketize([-5, 0, 150], edges).numpy(), np.digitize([-5, 0, 150], edges))
    with pytest.raises(InvalidArgumentError):
        hr.unravel_index([8], [2, 4])
