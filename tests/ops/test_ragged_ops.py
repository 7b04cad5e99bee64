"""Ops on ragged tensors: errors, their gradients in steps, and crosses of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from tests.ops.running import Program, check_gradient


def longs(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


VALUES = np.arange(6.0)


@pytest.mark.parametrize(
    ("splits", "at", "match"),
    [
        (longs(0, 2, 6), 2, "is not in"),
        (longs(0, 2, 6), -1, "is not in"),
        (longs(0, 2, 9), 1, "point past values"),
        (longs(0, 4, 2), 1, "must be sorted"),
        (longs(), 0, "vectors with an element"),
    ],
)
def test_gather_refuses_rows_that_are_not_there(splits: np.ndarray, at: int, match: str) -> None:
    p = Program()
    out = p.b.RaggedGather([p.feed(splits)], p.feed(VALUES), p.feed(longs(at)), OUTPUT_RAGGED_RANK=1)
    with p.fails(InvalidArgumentError, match):
        p.run(list(out))


@pytest.mark.parametrize(
    ("splits", "match"),
    [
        (longs(1, 6), "First value"),
        (longs(0, 4, 2, 6), "non decreasing"),
        (longs(0, 5), "Final value"),
        (longs(), "may not be empty"),
    ],
)
def test_bad_splits_do_not_become_sparse(splits: np.ndarray, match: str) -> None:
    p = Program()
    with p.fails(InvalidArgumentError, match):
        p.run(list(p.b.RaggedTensorToSparse([p.feed(splits)], p.feed(VALUES))))


def dense(p: Program, shape: Any, partitions: list[Any], kinds: tuple[str, ...], default: Any = 0.0) -> Any:
    feeds = [p.feed(np.array(x, np.int64)) for x in partitions]
    values = p.feed(VALUES, dtypes.float64)
    return p.b.RaggedTensorToTensor(
        p.feed(np.array(shape, np.int64)), values, p.feed(default, dtypes.float64), feeds, row_partition_types=kinds
    )


SPLITS, ROWIDS, FIRST = "ROW_SPLITS", "VALUE_ROWIDS", "FIRST_DIM_SIZE"


@pytest.mark.parametrize(
    ("shape", "partitions", "kinds", "match"),
    [
        (3, [[0, 6]], (SPLITS,), "only valid scalar"),
        ([-2, 3], [[0, 6]], (SPLITS,), "must be >= -1"),
        ([-1], [[0, 6]], (SPLITS,), "shape.rank = 1"),
        ([-1, -1], [[0, 9]], (SPLITS,), "9 values"),
        ([-1, -1], [[1, 6]], (SPLITS,), "Invalid row split"),
        ([-1, -1], [[]], (SPLITS,), "at least one element"),
        ([-1, -1], [[0, 6]], ("ROWS",), "Unknown string"),
        ([-1, -1], [], (), "No row_partition_types"),
        ([-1, -1], [[0, 1]], (ROWIDS,), "Cannot handle VALUE_ROWIDS"),
        ([-1, -1], [2, [0, 3]], (FIRST, ROWIDS), "next_value_rowid=3"),
        ([-1, -1], [2, [1, 0]], (FIRST, ROWIDS), "must never fall"),
        ([-1, -1], [-2, [0]], (FIRST, ROWIDS), "must be >= 0"),
    ],
)
def test_bad_partitions_do_not_become_dense(shape: Any, partitions: Any, kinds: Any, match: str) -> None:
    p = Program()
    if not partitions:
        partitions = [[0]]
    with p.fails(InvalidArgumentError, match):
        p.run(dense(p, shape, partitions, kinds))


def test_a_dense_tensor_too_large_for_memory_is_refused() -> None:
    p = Program()
    with p.fails(ResourceExhaustedError, "OOM"):
        p.run(dense(p, [2**24, 2**24], [[0, 6]], (SPLITS,)))
    with p.fails(InvalidArgumentError, "incompatible"):
        p.run(dense(p, [-1, -1], [[0, 6]], (SPLITS,), default=[1.0]))


def test_rows_are_cut_off_and_filled_up() -> None:
    p = Program()
    out = dense(p, [3, 3], [[0, 2, 6]], (SPLITS,), default=-1.0)
    assert p.run(out).tolist() == [[0, 1, -1], [2, 3, 4], [-1, -1, -1]]


def test_gradients_of_a_chain() -> None:
    """Gathered rows, made dense: the gradient of rows is that of the gather's slices, twice."""
    p = Program()
    x = p.b.Placeholder(dtype=dtypes.float64, shape=(6,))
    splits, values = p.b.RaggedGather([longs(0, 2, 6)], x, longs(1, 0, 1), OUTPUT_RAGGED_RANK=1)
    y = p.b.RaggedTensorToTensor(
        longs(-1, 3), p.b.Mul(values, values), np.float64(1), [splits], row_partition_types=(SPLITS,)
    )
    check_gradient(p, y, {x: VALUES})


def test_an_empty_cross_has_no_rows() -> None:
    p = Program()
    out = p.b.RaggedCross(
        [], [], [], [], [], [],
        ragged_values_types=(), ragged_splits_types=(), Nsparse=0, sparse_values_types=(), dense_types=(),
        input_order="", hashed_output=False, num_buckets=0, hash_key=1,
        out_values_type=dtypes.string, out_row_splits_type=dtypes.int64,
    )  # fmt: skip
    values, splits = p.run(list(out))
    assert values.tolist() == []
    assert splits.tolist() == [0]


def test_numbers_in_hashed_crosses() -> None:
    """The values are TensorFlow's.

    Of numbers the last four bytes are hashed, except in dense features.
    """
    p = Program()
    at, shape, numbers = longs([0, 0], [0, 1], [1, 0]), longs(2, 2), longs(1, 2, 3)
    texts = np.array([[b"x", b"y"], [b"z", b"w"]], object)
    for features, strong, want in (
        ([], True, [4627747934794379145, 6890311299066555194, 8327230620147078024]),
        ([texts], False, [8843515983683691235, 1936497303340044600, 3124850565147914197]),
    ):
        out = p.b.SparseCrossHashed([at], [numbers], [shape], features, np.int64(0), np.bool_(strong), longs(137, 173))
        assert p.run(list(out))[1].tolist()[:3] == want


def test_crosses_refuse_features_of_other_rows() -> None:
    p = Program()
    feature = ([p.feed(longs([0, 0]))], [p.feed(longs(1))], [p.feed(longs(1, 1))])
    for other, sep, match in (
        (longs([1], [2]), b"-", "Expected batch size 1 got 2"),
        (longs(1), b"-", "should be a matrix"),
        (longs([1]), [b"-"], "separator should be a scalar"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(list(p.b.SparseCrossV2(*feature, [p.feed(other)], p.feed(sep, dtypes.string))))
