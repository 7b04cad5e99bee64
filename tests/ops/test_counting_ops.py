"""Counting, ranking and a few other ops, beyond their cases.

Most tests are of arguments that the ops refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ShapeError, UnimplementedError
from tests.ops.running import Program

i32, i64, f32 = np.int32, np.int64, np.float32


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def refused(p: Program, match: str, type: str, *inputs: Any, error: Any = InvalidArgumentError, **attrs: Any) -> None:
    """Checks that the op fails when it runs, for inputs known or unknown before."""
    with p.fails(error, match):
        p.run(p.b.make(type, [p.feed(np.array(x)) for x in inputs], attrs))


NONE = np.zeros(0, f32)
AT = np.array([[0, 0], [2, 1]])
SHAPE = np.array([3, 4])


@pytest.mark.parametrize(
    ("type", "inputs", "match"),
    [
        ("Bincount", (i32([1, -2]), i32(4), NONE), "must be non-negative"),
        ("Bincount", (i32([1]), i32(-1), NONE), r"size \(-1\) must be non-negative"),
        ("Bincount", (i32([1]), i32([3]), NONE), "rank 0"),
        ("Bincount", (i32([1, 2]), i32(4), f32([1])), "[Ww]eights"),
        ("DenseBincount", (i32([[1, -2]]), i32(4), NONE), "must be non-negative"),
        ("DenseBincount", (i32([[[1]]]), i32(4), NONE), "at most rank 2"),
        ("DenseBincount", (i32([1]), i32([4, 4]), NONE), "rank 0"),
        ("SparseBincount", (AT, i32([1, -1]), SHAPE, i32(4), NONE), "must be non-negative"),
        ("SparseBincount", (AT + 1, i32([1, 1]), SHAPE, i32(4), NONE), "out of bounds"),
        ("SparseBincount", (-AT, i32([1, 1]), SHAPE, i32(4), NONE), "out of bounds"),
        ("SparseBincount", (AT, i32([1]), SHAPE, i32(4), NONE), "indices must be a matrix"),
        ("SparseBincount", (AT, i32([1, 1]), SHAPE[:1], i32(4), NONE), "indices must be a matrix"),
        ("SparseBincount", (AT, i32([1, 1]), -SHAPE, i32(4), NONE), "sizes >= 0"),
        ("RaggedBincount", (np.array([1, 1]), i32([1]), i32(4), NONE), "Splits must start with 0"),
        ("RaggedBincount", (np.array([0, 5]), i32([1]), i32(4), NONE), "end with the number of values"),
        ("RaggedBincount", (np.zeros(0, i64), i32([1]), i32(4), NONE), "Splits must start with 0"),
    ],
)
def test_bincounts_refuse(p: Program, type: str, inputs: tuple[Any, ...], match: str) -> None:
    refused(p, match, type, *inputs)


def test_huge_bincounts(p: Program) -> None:
    from headrace.errors import ResourceExhaustedError

    with p.fails((ResourceExhaustedError, InvalidArgumentError), "too large|elements|bytes|memory"):
        p.run(p.b.DenseBincount(p.feed(i64([1])), p.feed(i64(2**60)), NONE))


@pytest.mark.parametrize(
    ("type", "inputs", "match"),
    [
        ("DenseCountSparseOutput", (i32([1, -2]), NONE), "must be non-negative"),
        ("DenseCountSparseOutput", (i32(1), NONE), "1 or 2-dimensional"),
        ("DenseCountSparseOutput", (i32([[[1]]]), NONE), "at most rank 2"),
        ("DenseCountSparseOutput", (i32([1, 2]), f32([[1, 2]])), "must have the same shape"),
        ("SparseCountSparseOutput", (AT, i32([1, 2]), SHAPE, f32([1])), "[Ww]eights"),
        ("SparseCountSparseOutput", (AT + 1, i32([1, 2]), SHAPE, NONE), "out of bounds"),
        ("SparseCountSparseOutput", (AT[:0], i32([]), np.array([0, 4]), NONE), "at least one row"),
        ("RaggedCountSparseOutput", (np.array([0]), i32([]), NONE), "at least one row"),
        ("RaggedCountSparseOutput", (np.array([0, 1]), i32([1, 2]), NONE), "end with the number"),
    ],
)
def test_sparse_counts_refuse(p: Program, type: str, inputs: tuple[Any, ...], match: str) -> None:
    refused(p, match, type, *inputs, binary_output=False)


def test_what_is_known_of_counts_before_they_run(p: Program) -> None:
    b = p.b
    rows = b.Placeholder(dtype=dtypes.int32, shape=(3, None))
    assert b.DenseBincount(rows, 4, NONE).shape == (3, 4)
    assert b.DenseBincount(rows, p.feed(i32(4)), NONE).shape == (3, None)
    assert b.SparseBincount(AT, i32([1, 1]), SHAPE, 4, NONE).shape == (3, 4)
    assert b.RaggedBincount(np.array([0, 1, 2]), i32([1, 1]), 4, NONE).shape == (2, 4)
    with p.fails(ShapeError, "at most rank 2"):
        b.DenseBincount(i32([[[1]]]), 4, NONE)


def test_intervals_refuse(p: Program) -> None:
    refused(p, "Expected sorted boundaries", "Bucketize", f32([1]), boundaries=(2.0, 1.0))
    unit = f32([0, 1])
    for values, limits, n, match in (
        (f32([np.nan]), unit, 2, "must not contain NaN"),
        (f32([1]), f32([1, 0]), 2, r"should satisfy value_range\[0\] < value_range\[1\]"),
        (f32([1]), f32([0, np.nan]), 2, "should satisfy"),
        (f32([1]), f32([0, 1, 2]), 2, "vector of 2 elements"),
        (f32([1]), unit, 0, "positive number"),
        (f32([1]), unit, [2], "should be a scalar"),
    ):
        refused(p, match, "HistogramFixedWidth", values, limits, np.array(n, i32))
    with p.fails(ShapeError, "nbins > 0"):
        p.b.HistogramFixedWidth(f32([1]), unit, -1)


def test_numbers_at_the_ends_of_intervals(p: Program) -> None:
    x = f32([-1, 0, 1, 2, np.nan, np.inf, -np.inf])
    assert p.run(p.b.Bucketize(x, boundaries=(0.0, 1.5))).tolist() == [0, 1, 1, 2, 2, 2, 0]
    lowest, highest = -(2**31), 2**31 - 1
    ends = i32([highest, lowest, 0])
    assert p.run(p.b.HistogramFixedWidth(ends, i32([lowest, highest]), 3)).tolist() == [1, 1, 1]
    assert p.run(p.b.HistogramFixedWidth(f32([1, np.inf]), f32([0, np.inf]), 2)).tolist() == [1, 1]


# *** ranks ***


def test_ranks_refuse(p: Program) -> None:
    row = f32([3, 1])
    for n, match in ((2, "must have last dimension > n"), (-1, "must be non-negative"), ([1], "must be scalar")):
        refused(p, match, "NthElement", row, np.array(n, i32))
    refused(p, "at least rank 1", "NthElement", f32(3), i32(0))
    with p.fails(ShapeError, "must have last dimension > n = 2"):
        p.b.NthElement(row, 2)
    scores = f32([[0.1, 0.2]])
    refused(p, "k must be 0-D", "InTopKV2", scores, i32([0]), i32([1]))
    refused(p, "must match length of targets", "InTopKV2", scores, i32([0, 0]), i32(1))
    refused(p, "predictions must be 2-dimensional", "InTopKV2", scores[0], i32([0]), i32(1))
    refused(p, "targets must be 1-dimensional", "InTopKV2", scores, i32([[0]]), i32(1))
    refused(p, "at least k columns", "ApproxTopK", row, k=3)
    refused(p, "recall_target", "ApproxTopK", row, k=1, recall_target=0.0)


def test_infinities_say_nothing_of_ranks(p: Program) -> None:
    scores = f32([[0.1, np.inf, 0.2], [0.1, 0.3, 0.2], [-np.inf, 0.3, 0.2]])
    assert p.run(p.b.InTopKV2(scores, [2, 2, 1], 2)).tolist() == [False, True, False]


# *** others ***


def test_coordinates(p: Program) -> None:
    assert p.run(p.b.UnravelIndex(i32([0]), np.zeros(0, i32))).shape == (0, 1)
    for indices, sizes, match in (
        ([12], [3, 4], "out of bound"),
        ([-1], [3, 4], "out of bound"),
        ([0], 5, "dims a vector"),
        ([[0]], [5], "scalar or vector"),
        ([0], [0, 4], "contain a dim of zero"),
        ([0], [-3, -4], "be negative"),
        ([], [3, 4], "empty"),
        ([1], [2**30, 2**30], "overflow"),
    ):
        refused(p, match, "UnravelIndex", np.array(indices, i32), np.array(sizes, i32))


def test_reversing_by_flags(p: Program) -> None:
    refused(p, "must have the same number of values", "Reverse", i32([[1]]), np.array([True]))
    refused(p, "must be 1-dimension", "Reverse", i32([1]), np.array([[True]]))
    refused(p, "rank > 8", "Reverse", np.zeros([1] * 9, i32), np.array([True] * 9), error=UnimplementedError)
    assert p.run(p.b.Reverse(p.feed(i32(1)), p.feed(np.array([True])))) == 1


def test_tiles_that_do_not_fit(p: Program) -> None:
    for multiples in ([4], [0], [-1], [2, 1], [[2]]):
        refused(p, "multiples|rank|vector", "TileGrad", f32(np.arange(6)), np.array(multiples, i32))


@pytest.mark.parametrize(("bad", "kinds"), [(np.nan, "NaN"), (np.inf, r"\+Inf"), (-np.inf, "-Inf")])
def test_numerics(p: Program, bad: float, kinds: str) -> None:
    refused(p, f"here : Tensor had {kinds} values", "CheckNumericsV2", f32([1, bad]), message="here")


def test_all_that_is_no_number_is_named(p: Program) -> None:
    x = f32([np.nan, np.inf, 0, -np.inf])
    refused(p, "Tensor had -Inf, \\+Inf and NaN values", "CheckNumericsV2", x, message="")
    refused(p, "Tensor had -Inf and NaN values", "CheckNumericsV2", x[[0, 3]], message="")


def test_segments_with_sorted_ids(p: Program) -> None:
    rows = f32([[1], [2], [3]])
    assert p.run(p.b.SegmentSumV2(rows, [-1, 0, 0], 3)).tolist() == [[5], [0], [0]]
    refused(p, "not increasing", "SegmentSumV2", rows, i32([1, 0, 2]), i32(3))
    refused(p, "should be a vector", "SegmentMaxV2", rows, i32([[0], [0], [1]]), i32(3))
    refused(p, "out of range", "SegmentProdV2", rows, i32([0, 1, 5]), i32(3))


def test_what_a_graph_asks_of_its_runtime(p: Program) -> None:
    assert p.run(p.b.DeviceIndex(device_names=("GPU", "CPU"))) == 1
    assert p.run(p.b.DeviceIndex(device_names=("GPU",))) == 1
    assert p.run(p.b.GraphDefVersion()) > 0


def test_watching_a_reference(p: Program) -> None:
    v = p.b.VariableV2(dtype=dtypes.float32, shape=(1,), shared_name="v")
    p.run(p.b.Assign(p.b.DebugGradientRefIdentity(v), [2.0]))
    assert p.run(v).tolist() == [2]
