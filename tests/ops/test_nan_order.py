"""Sorting, ranking and extremes of rows with NaN: where TensorFlow 2.21 leaves it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import headrace as hr

nan, inf = float("nan"), float("inf")

# row: argsort, argsort of DESCENDING, and the indices that top_k gives for k = 1, 2, 3
ROWS: list[tuple[list[float], ...]] = [
    ([1, nan, 3, 2], [0, 1, 3, 2], [2, 0, 1, 3], [2], [1, 2], [1, 2, 0]),
    ([nan, 1, 2, 3], [0, 1, 2, 3], [0, 3, 2, 1], [3], [0, 3], [0, 3, 2]),
    ([3, 2, 1, nan], [2, 1, 0, 3], [0, 1, 2, 3], [0], [0, 1], [0, 1, 2]),
    ([nan, nan, 1, 2], [0, 1, 2, 3], [0, 1, 3, 2], [3], [0, 1], [0, 1, 3]),
    ([inf, nan, -inf, 0], [2, 0, 1, 3], [0, 1, 3, 2], [3], [0, 1], [0, 1, 3]),
    ([nan, 1, nan, -1], [0, 1, 2, 3], [0, 1, 2, 3], [3], [0, 1], [0, 1, 2]),
    ([inf, inf, nan, 1], [3, 0, 1, 2], [0, 1, 2, 3], [3], [0, 1], [0, 1, 2]),
    ([-inf, nan, -inf, -inf], [0, 1, 2, 3], [0, 1, 2, 3], [0], [0, 1], [0, 1, 2]),
    ([nan, -inf, nan, inf], [0, 1, 2, 3], [0, 1, 2, 3], [3], [0, 3], [0, 3, 1]),
    ([nan, nan, nan, nan], [0, 1, 2, 3], [0, 1, 2, 3], [0], [0, 1], [0, 1, 2]),
]


def same(got: Any, want: Any) -> None:
    np.testing.assert_array_equal(np.asarray(got).astype(np.float64), np.asarray(want, np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_rows_with_nan_are_sorted_and_ranked_as_in_tensorflow(dtype: Any) -> None:
    x = np.array([row[0] for row in ROWS]).astype(dtype)
    for i, direction in ((1, "ASCENDING"), (2, "DESCENDING")):
        order = np.array([row[i] for row in ROWS])
        same(hr.argsort(x, direction=direction), order)
        same(hr.sort(x, direction=direction), np.take_along_axis(x, order, 1).astype(np.float64))
    for k in (1, 2, 3):
        values, indices = hr.nn.top_k(x, k)
        same(indices, [row[2 + k] for row in ROWS])
        same(values, np.take_along_axis(x, np.asarray(indices), 1).astype(np.float64))


def test_a_long_row_with_nan_is_sorted_as_in_tensorflow() -> None:
    given = [26, None, 0, 32, 18, 20, 25, 11, None, 2, 11, 15, 22, 16, 5, 1, 0, 1, None, 39, None, 26, 30, 9, 11, 17,
             10, 38, 7, 35, 31, 33, 4, 15, None, 19, 26, 27, 26, None, 38, 22, 36, 10, 14, 35, 7, 2, 14, None, 4, 34,
             13, 9, 21, 35, 35, 34, None, 0]  # fmt: skip
    order = [19, 27, 40, 42, 29, 45, 55, 56, 51, 57, 31, 3, 30, 22, 37, 0, 21, 36, 38, 6, 12, 41, 54, 5, 35, 4, 25, 26,
             28, 58, 13, 11, 33, 44, 48, 52, 7, 10, 24, 43, 23, 53, 46, 14, 32, 50, 9, 47, 15, 17, 59, 49, 39, 34, 20,
             18, 16, 8, 2, 1]  # fmt: skip
    x = np.array([nan if v is None else v for v in given], np.float32)
    assert hr.argsort(x, direction="DESCENDING").numpy().tolist() == order
    assert hr.nn.top_k(x, 7)[1].numpy().tolist() == [1, 19, 27, 40, 42, 29, 45]


def test_rows_without_nan_beside_rows_with_it_stay_as_they_were() -> None:
    x = np.array([[3, 1, 2, 1], [nan, 1, 2, 3], [0, 0, 5, 5]], np.float32)
    assert hr.argsort(x).numpy().tolist() == [[1, 3, 2, 0], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert hr.nn.top_k(x, 2)[1].numpy().tolist() == [[0, 2], [0, 3], [2, 3]]


def test_the_gradient_of_a_sort_follows_its_order() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, 4))
        (slope,) = hr.gradients(hr.sort(x) * np.array([1, 2, 3, 4], np.float32), [x])
    with hr.Session(graph=g) as s:
        assert s.run(slope, {x: [[1, nan, 3, 2], [3, 2, 1, nan]]}).tolist() == [[1, 2, 4, 3], [3, 2, 1, 4]]


def test_extremes_of_segments_forget_nan_when_a_number_follows() -> None:
    x = np.array([[1, nan, 3], [nan, 1, 2], [nan, nan, 0], [5, 4, nan], [nan, nan, nan]], np.float32)
    same(hr.segment_max(x, [0, 0, 1, 1, 2]), [[nan, 1, 3], [5, 4, nan], [nan] * 3])
    same(hr.segment_min(x, [0, 0, 1, 1, 2]), [[nan, 1, 2], [5, 4, nan], [nan] * 3])
    same(hr.unsorted_segment_max(x, [1, 1, 0, 0, -1], 2), [[5, 4, nan], [nan, 1, 3]])
    same(hr.unsorted_segment_min(x, [1, 1, 0, 0, -1], 2), [[5, 4, nan], [nan, 1, 2]])


def test_reductions_and_elementwise_extremes_keep_nan() -> None:
    x = np.array([[1, nan, 3], [nan, 1, 2], [1, 2, 3]], np.float32)
    same(hr.reduce_max(x, 1), [nan, nan, 3])
    same(hr.reduce_min(x, 1), [nan, nan, 1])
    same(hr.maximum(x, 2.0), [[2, nan, 3], [nan, 2, 2], [2, 2, 3]])
    same(hr.minimum(2.0, x), [[1, nan, 2], [nan, 1, 2], [1, 2, 2]])


def test_bounds_in_rows_that_are_searched_for_nan() -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16):
        values = np.array([[1, nan, 3, 2], [nan, -inf, nan, inf]]).astype(dtype)
        keys = np.array([[1, 2, 3]] * 2).astype(dtype)
        assert hr.searchsorted(keys, values).numpy().tolist() == [[0, 0, 2, 1], [0, 0, 0, 3]]
        assert hr.searchsorted(keys, values, side="right").numpy().tolist() == [[1, 3, 3, 2], [3, 0, 3, 3]]
