"""Ops on sparse tensors: errors, state, variants, and gradients beyond the registry's cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from headrace.ir.indexed_slices import IndexedSlices
from tests.ops.running import Program, check_gradient, gradients

f32, f64 = dtypes.float32, dtypes.float64


def longs(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


PLACES = longs([0, 0], [0, 2], [1, 1])
VALUES = np.array([1, 2, 3], np.float32)
SHAPE = longs(2, 3)
HUGE = longs(2**40, 2**40)


@pytest.fixture
def p() -> Program:
    return Program()


def sparse(p: Program, at: Any = PLACES, values: Any = VALUES, shape: Any = SHAPE) -> tuple[Any, Any, Any]:
    """The three tensors of a sparse one, of unknown static shapes."""
    return p.feed(at), p.feed(values), p.feed(shape)


def refused(p: Program, out: Any, match: str, error: type[Exception] = InvalidArgumentError) -> None:
    with p.fails(error, match):
        p.run(list(out) if isinstance(out, tuple) else out)


# *** Arranging ***


def test_reorder_needs_no_bounds(p: Program) -> None:
    places, values = p.run(list(p.b.SparseReorder(*sparse(p, longs([5, 0], [0, 9], [5, 0]), shape=HUGE))))
    assert places.tolist() == [[0, 9], [5, 0], [5, 0]]
    assert values.tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    ("shape", "new", "match"),
    [
        (SHAPE, longs(7), "requested shape has 7"),
        (SHAPE, longs(4, -1), "multiple of 4"),
        (SHAPE, longs(-1, -1), "only one output dimension"),
        (SHAPE, longs(-2, 3), "must be non-negative, not -2"),
        (longs(2, 0), longs(0, -1), "cannot infer"),
        (HUGE, longs(-1), "overflow"),
        (longs(-1, 6), longs(6), "non-negative, got -1"),
        (longs(1, 6, 1), longs(6), "dimensions must match"),
        (SHAPE, longs([6]), "should be a vector"),
    ],
)
def test_reshape_refuses(p: Program, shape: Any, new: Any, match: str) -> None:
    refused(p, p.b.SparseReshape(p.feed(PLACES), p.feed(shape), p.feed(new)), match)


@pytest.mark.parametrize(
    ("shapes", "axis", "error", "match"),
    [
        ((SHAPE, SHAPE), 2, InvalidArgumentError, "must be in range"),
        ((SHAPE, longs(3, 3)), 1, InvalidArgumentError, "expected 2 for dimension 0 but got 3 at position 1"),
        ((longs(2, 2**62), longs(2, 2**62)), 1, InternalError, "overflow"),
    ],
)
def test_concat_refuses(p: Program, shapes: Any, axis: int, error: type[Exception], match: str) -> None:
    tensors = zip(*(sparse(p, shape=s) for s in shapes), strict=True)
    refused(p, p.b.SparseConcat(*map(list, tensors), concat_dim=axis), match, error)


@pytest.mark.parametrize(
    ("axis", "at", "n", "match"),
    [
        (longs(1), PLACES, 2, "should be a scalar"),
        (np.int64(2), PLACES, 2, r"in range \[-2, 2\)"),
        (np.int64(1), PLACES, 4, "between 1 and the splitting dimension size"),
        (np.int64(1), PLACES * 3, 2, "out of bounds"),
    ],
)
def test_split_refuses(p: Program, axis: Any, at: Any, n: int, match: str) -> None:
    refused(p, p.b.SparseSplit(p.feed(axis), *sparse(p, at), num_split=n), match)


def test_slice_refuses(p: Program) -> None:
    refused(p, p.b.SparseSlice(*sparse(p), p.feed(longs(0)), p.feed(longs(1, 1))), "vector of length 2")
    refused(p, p.b.SparseSlice(*sparse(p), p.feed(longs(0, 0)), p.feed(longs(-1, 1))), "non-negative size")
    lost = p.b.SparseSliceGrad(p.feed(VALUES[:1]), p.feed(PLACES), p.feed(longs(0, 0)), p.feed(longs([0, 1])))
    refused(p, lost, "aren't all propagated", InternalError)


def test_fill_empty_rows_refuses(p: Program) -> None:
    def made(at: Any = PLACES, shape: Any = SHAPE, default: Any = 9.0) -> Any:
        return p.b.SparseFillEmptyRows(*sparse(p, at, shape=shape), p.feed(default, f32))

    refused(p, made(PLACES * 3), r"indices\(2, 0\) is invalid: 3 >= 2")
    refused(p, made(shape=longs(0, 3)), r"dense_shape\[0\] = 0")
    refused(p, made(default=[1.0]), "must be a scalar")
    refused(p, made(shape=longs(2**50, 3)), "OOM", ResourceExhaustedError)
    grad = p.b.SparseFillEmptyRowsGrad(p.feed(longs(0, -1)), p.feed(VALUES))
    refused(p, grad, r"reverse index must be in \[0, 3\) but got -1")


# *** With dense tensors ***


@pytest.mark.parametrize(
    ("at", "shape", "values", "default", "match"),
    [
        (longs(0, 3), longs(4), VALUES, 0.0, "incorrect shape"),
        (longs(3, 0), longs(4), VALUES[:2], 0.0, "out of order"),
        (longs(3, 3), longs(4), VALUES[:2], 0.0, "repeated"),
        (longs(3, 4), longs(4), VALUES[:2], 0.0, "out of bounds"),
        (longs(0, 3), longs(4, 4), VALUES[:2], 0.0, "should be: 1"),
        (longs(0, 3), longs(-4), VALUES[:2], 0.0, "must be >= 0"),
        (longs(0, 3), longs(4), VALUES[:2], [0.0], "should be a scalar"),
        (longs([[0]]), longs(4), VALUES[:1], 0.0, "scalar, vector, or matrix"),
    ],
)
def test_to_dense_refuses(p: Program, at: Any, shape: Any, values: Any, default: Any, match: str) -> None:
    refused(p, p.b.SparseToDense(p.feed(at), p.feed(shape), p.feed(values), p.feed(default, f32)), match)


def test_one_value_for_many_places(p: Program) -> None:
    x = p.b.Placeholder(dtype=f64, shape=None)
    out = p.b.SparseToDense(longs(3, 0, 3), longs(4), x, np.float64(7), validate_indices=False)
    assert p.run(out, {x: 2.0}).tolist() == [2, 7, 7, 2]
    y = p.b.SparseToDense(longs(0, 3), longs(4), x, np.float64(7))
    check_gradient(p, y, {x: np.array(2.0)})


def test_arithmetic_with_dense_tensors_refuses(p: Program) -> None:
    for dense, match in ((np.ones((2, 4)), "dense side 4"), (np.ones(3), "different ranks")):
        refused(p, p.b.SparseTensorDenseAdd(*sparse(p), p.feed(dense.astype(np.float32))), match)
    refused(p, p.b.SparseTensorDenseAdd(*sparse(p, PLACES * 2), p.feed(np.ones((2, 3), np.float32))), "invalid index")
    for dense in (np.ones((2, 4)), np.ones((1, 1, 1))):
        refused(p, p.b.SparseDenseCwiseMul(*sparse(p), p.feed(dense.astype(np.float32))), "broadcasts dense to sparse")
    refused(p, p.b.SparseDenseCwiseAdd(*sparse(p, PLACES * 2), p.feed(np.ones((2, 3), np.float32))), "out-of-bounds")
    numbers = (np.array([1, 2, 3], np.int32), np.zeros((2, 1), np.int32))
    refused(p, p.b.SparseDenseCwiseDiv(*sparse(p, values=numbers[0]), p.feed(numbers[1])), "cannot divide by zero")


@pytest.mark.parametrize(
    ("at", "shape", "b", "match"),
    [
        (PLACES, SHAPE, (4, 2), "inner dimension does not match: 3 vs. 4"),
        (PLACES, SHAPE, (3,), "'b' is not a matrix"),
        (PLACES, longs(2, 3, 4), (3, 2), "must have 2 elements"),
        (PLACES, longs(1, 3), (3, 2), r"m \(1\) from index\[2,0\]"),
        (PLACES, longs(2, 2), (2, 2), r"k \(2\) from index\[1,1\]"),
        (PLACES, longs(-2, 3), (3, 2), "non-negative"),
        (PLACES[:2], SHAPE, (3, 2), "Number of rows of a_indices"),
    ],
)
def test_matmul_refuses(p: Program, at: Any, shape: Any, b: Any, match: str) -> None:
    refused(p, p.b.SparseTensorDenseMatMul(*sparse(p, at, shape=shape), p.feed(np.ones(b, np.float32))), match)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gradient_of_matmul_of_matrices_with_zeros(p: Program, transpose_a: bool, transpose_b: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s[::-1] if t else s) for s, t in (((2, 3), transpose_a), ((3, 4), transpose_b)))
    x, y = (p.b.const(v.astype(np.float32)) for v in (a, b))
    out = p.b.SparseMatMul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    weight = rng.integers(-3, 4, (2, 4)).astype(np.float32)
    dx, dy = p.run(gradients(p.b, {out: p.b.const(weight)}, [x, y]))
    first, second = a.T if transpose_a else a, b.T if transpose_b else b
    want = weight @ second.T, first.T @ weight
    assert dx.tolist() == (want[0].T if transpose_a else want[0]).tolist()
    assert dy.tolist() == (want[1].T if transpose_b else want[1]).tolist()


# *** Merging and reducing ***


def test_add_leaves_out_only_what_vanishes_in_the_sum(p: Program) -> None:
    other = (longs([0, 1], [0, 2]), np.array([-1, -2], np.float32), SHAPE)
    places, values, _ = p.run(list(p.b.SparseAdd(*sparse(p), *sparse(p, *other), np.float32(1.5))))
    assert places.tolist() == [[0, 0], [0, 1], [1, 1]]
    assert values.tolist() == [1, -1, 3]
    refused(p, p.b.SparseAdd(*sparse(p), *sparse(p, shape=longs(3, 3)), np.float32(0)), "2 and 3 for dimension 0")
    refused(p, p.b.SparseAdd(*sparse(p), *sparse(p), p.feed(VALUES)), "must be a scalar")


def test_repeated_coordinates_are_merged_in_pairs(p: Program) -> None:
    twice = longs([0, 1], [0, 1])
    out = p.b.SparseAdd(
        twice, VALUES[:2], SHAPE, twice[:1], np.array([-1], np.float32), SHAPE, np.float32(0)
    )  # fmt: skip
    assert [x.tolist() for x in p.run(list(out))] == [[[0, 1], [0, 1]], [0, 2], [2, 3]]


def test_extremes_pass_nan_on_and_share_ties(p: Program) -> None:
    x, y = p.b.Placeholder(dtype=f64, shape=(3,)), p.b.Placeholder(dtype=f64, shape=(3,))
    _, out = p.b.SparseSparseMaximum(PLACES, x, SHAPE, PLACES, y, SHAPE)
    feeds = {x: np.array([1.0, 5.0, np.nan]), y: np.array([1.0, 2.0, 3.0])}
    assert p.run(out, feeds).tolist()[:2] == [1, 5]
    assert np.isnan(p.run(out, feeds)[2])
    dx, dy = p.run(gradients(p.b, {out: p.b.const(np.ones(3))}, [x, y]), feeds)
    assert (dx[:2].tolist(), dy[:2].tolist()) == ([0.5, 1], [0.5, 0])


@pytest.mark.parametrize("type", ["SparseReduceSum", "SparseReduceMax", "SparseReduceSumSparse"])
def test_reductions_refuse(p: Program, type: str) -> None:
    def made(axes: Any, **args: Any) -> Any:
        return p.b.make(type, [*sparse(p, **args), p.feed(np.array(axes, np.int32))], {})

    refused(p, made([-3]), "Invalid reduction dimension -3, for input with 2 dimensions")
    refused(p, made([0], shape=longs(2**32, 2**31)), "overflow when multiplying 4294967296 with 2147483648")
    refused(p, made([0], shape=longs(-2, 3)), "non-negative, got -2")
    refused(p, made([0], at=PLACES * 2), "out of bounds", InternalError)


def test_a_reduction_of_huge_shape_stays_sparse(p: Program) -> None:
    shape = longs(2**40, 2**20)
    out = p.run(list(p.b.SparseReduceMaxSparse(*sparse(p, shape=shape), [1])))
    assert [x.tolist() for x in out] == [[[0], [1]], [2, 3], [2**40]]
    refused(p, p.b.SparseReduceMax(*sparse(p, shape=shape), [1]), "OOM", ResourceExhaustedError)


def test_softmax_refuses(p: Program) -> None:
    refused(p, p.b.SparseSoftmax(*sparse(p, PLACES[:, :1], shape=longs(2))), "rank >= 2")
    refused(p, p.b.SparseSoftmax(*sparse(p, shape=longs(2, -1))), "non-negative, got -1")


# *** Segments ***


@pytest.mark.parametrize(
    ("rows", "ids", "n", "match"),
    [
        ([0, 1], [1, 0], 2, "not increasing"),
        ([0, 1], [-1, 0], 2, "must be >= 0"),
        ([0, 4], [0, 1], 2, "out of range"),
        ([0, 1], [0, 2], 2, "must be < num_segments"),
        ([0, 1], [0], 2, "same size"),
        ([[0]], [0], 2, "should be a vector"),
        ([0, 1], [0, 1], -1, "must be >= 0"),
        ([0, 1], [0, 1], [2], "should be a scalar"),
    ],
)
def test_segments_refuse(p: Program, rows: Any, ids: Any, n: Any, match: str) -> None:
    data = p.feed(np.ones((4, 2), np.float32))
    refused(p, p.b.SparseSegmentSumWithNumSegments(data, p.feed(rows), p.feed(ids), p.feed(n)), match)


def test_gradients_of_segments_refuse(p: Program) -> None:
    dy = p.feed(np.ones((2, 2), np.float32))
    for type in ("SparseSegmentMeanGrad", "SparseSegmentMeanGradV2"):
        for rows, ids, n, match in (
            ([0, 4], [0, 1], 4, r"Index 4 out of range \[0, 4\)"),
            ([0, 1], [0, 2], 4, "Invalid number of segments"),
            ([0, 1], [0, 1], -4, "non-negative size"),
            ([0, 1], [0, 1], [4], "should be a scalar"),
        ):
            refused(p, p.b.make(type, [dy, p.feed(rows), p.feed(ids), p.feed(n, dtypes.int32)], {}), match)


def test_sparse_gradient_of_segments(p: Program) -> None:
    from headrace.grad.backward import backward

    x = p.b.Placeholder(dtype=f64, shape=(1000, 2))
    out = p.b.SparseSegmentMean(x, [7, 3, 7], [0, 0, 1], sparse_gradient=True)
    (d,) = backward(p.b, [out], [p.b.const(np.ones((2, 2)))], [x])
    assert isinstance(d, IndexedSlices)
    rows, numbers = p.run([d.values, d.indices], {x: np.zeros((1000, 2))})
    assert (rows.tolist(), numbers.tolist()) == ([[0.5, 0.5], [1.5, 1.5]], [3, 7])


# *** Distances ***


def test_distances_refuse_groups_out_of_bounds(p: Program) -> None:
    for at in (PLACES * 3, -PLACES, PLACES * 2**61):
        refused(p, p.b.EditDistance(*sparse(p, at), *sparse(p)), "would require writing to outside", InternalError)
    refused(p, p.b.EditDistance(*sparse(p), *sparse(p, shape=longs(2, 3, 4))), "Expected truth_shape.NumElements")
    refused(p, p.b.EditDistance(*sparse(p), *sparse(p, shape=longs(-2, 3))), "non-negative, got -2")
    refused(p, p.b.EditDistance(*[*sparse(p, PLACES[:, :1], shape=longs(2))] * 2), "rank at least 2")


# *** Storing ***


@pytest.mark.parametrize("out_type", [dtypes.string, dtypes.variant])
def test_serialized_tensors_come_back(p: Program, out_type: dtypes.DType) -> None:
    texts = np.array([b"a", b"", b"ccc"], object)
    one = p.b.SerializeSparse(PLACES, texts, SHAPE, out_type=out_type)
    many = p.b.SerializeManySparse(PLACES, texts, SHAPE, out_type=out_type)
    for serialized in (one, many):
        back = p.run(list(p.b.DeserializeSparse(serialized, dtype=dtypes.string)))
        assert [x.tolist() for x in back] == [PLACES.tolist(), texts.tolist(), SHAPE.tolist()]
    stacked = p.run(list(p.b.DeserializeSparse(p.b.Pack([one, one]), dtype=dtypes.string)))
    assert stacked[0].tolist() == [[k, *row] for k in range(2) for row in PLACES.tolist()]
    assert stacked[2].tolist() == [2, 2, 3]
    refused(p, p.b.DeserializeSparse(one, dtype=f32), "type float32 but")


def test_what_is_no_serialized_tensor_is_refused(p: Program) -> None:
    def back(x: Any) -> Any:
        return p.b.DeserializeSparse(p.feed(x, dtypes.string), dtype=f32)

    one = p.run(p.b.SerializeSparse(PLACES, VALUES, SHAPE))
    other = p.run(p.b.SerializeSparse(PLACES[:, :1], VALUES, SHAPE[:1]))
    refused(p, back(one[:2]), "3 as the last dimension")
    refused(p, back(one.reshape(1, 3)[:0]), "at least 1 serialized tensor")
    refused(p, back(np.array([b"x", b"y", b"z"], object)), "Cannot parse|Could not parse")
    refused(p, back(np.stack([one, other])), "Inconsistent shape across SparseTensors")
    refused(p, p.b.SerializeManySparse(*sparse(p, PLACES[::-1])), "out of order")


def test_a_map_gives_each_tensor_once(p: Program) -> None:
    def take(*numbers: int, dtype: Any = f32, name: str = "m") -> Any:
        return p.b.TakeManySparseFromTensorsMap(p.feed(longs(*numbers)), dtype=dtype, shared_name=name)

    add = p.b.AddSparseToTensorsMap(PLACES, VALUES, SHAPE, shared_name="m")
    add_rows = p.b.AddManySparseToTensorsMap(PLACES, VALUES, longs(3, 3), shared_name="m")
    assert [int(p.run(add)) for _ in range(2)] == [0, 1]
    assert p.run(add_rows).tolist() == [2, 3, 4]
    places, values, shape = p.run(list(take(3, 4, 2)))
    assert (places.tolist(), values.tolist(), shape.tolist()) == ([[0, 1], [2, 0], [2, 2]], [3, 1, 2], [3, 3])
    refused(p, take(3), "Unable to find SparseTensor: 3")
    refused(p, take(0, 0), "Unable to find SparseTensor: 0")
    refused(p, take(0), "Unable to find SparseTensor: 0")  # the first of the two has taken it
    refused(p, take(1, dtype=f64), "type float64 but")
    refused(p, take(), "at least 1")
    refused(p, take(0, name="other"), "in map: other")
    refused(p, p.b.AddManySparseToTensorsMap(*sparse(p, PLACES * 3)), "out of bounds")
    refused(p, p.b.AddSparseToTensorsMap(*sparse(p, shape=longs(1, 2, 3))), "Number of dimensions")


# *** Matrices in compressed rows ***


def matrices(batch: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of 3 rows and 4 columns, or a batch, and coordinates.

    The coordinates are those of the elements to be kept.
    """
    rng = np.random.default_rng(1)
    kept = rng.random((*batch, 3, 4)) < 0.5
    kept[..., 0] = True
    return rng.uniform(0.5, 1, kept.shape), np.argwhere(kept)


@pytest.mark.matrix
@pytest.mark.parametrize("batch", [(), (2,)])
def test_matrices(p: Program, batch: tuple[int, ...]) -> None:
    whole, at = matrices(batch)
    kept = np.zeros(whole.shape)
    kept[tuple(at.T)] = whole[tuple(at.T)]
    x, y = (p.b.Placeholder(dtype=f64, shape=s) for s in (whole.shape, (*batch, 4, 2)))
    feeds = {x: whole, y: np.random.default_rng(2).uniform(0.5, 1, (*batch, 4, 2))}
    m = p.b.DenseToCSRSparseMatrix(x, at)

    def dense(a: Any) -> Any:
        return p.b.CSRSparseMatrixToDense(a, type=f64)

    scaled = p.b.SparseMatrixMul(m, p.b.ExpandDims(p.b.Sum(y, [-1], keep_dims=False), -2))
    e = np.exp(kept) * (kept != 0)
    for out, want in (
        (dense(m), kept),
        (p.b.SparseMatrixMatMul(m, y), kept @ feeds[y]),
        (p.b.SparseMatrixMatMul(m, x, transpose_a=True, transpose_output=True), whole.swapaxes(-1, -2) @ kept),
        (p.b.SparseMatrixMatMul(m, x, adjoint_b=True), kept @ whole.swapaxes(-1, -2)),
        (dense(p.b.SparseMatrixSparseMatMul(m, m, adjoint_b=True, type=f64)), kept @ kept.swapaxes(-1, -2)),
        (dense(p.b.SparseMatrixAdd(m, m, np.float64(2), np.float64(-3))), -kept),
        (dense(scaled), kept * feeds[y].sum(-1)[..., None, :]),
        (dense(p.b.SparseMatrixTranspose(m, type=f64)), kept.swapaxes(-1, -2)),
        (dense(p.b.SparseMatrixSoftmax(m, type=f64)), e / e.sum(-1, keepdims=True)),
        (p.b.CSRSparseMatrixToSparseTensor(m, type=f64)[1], whole[tuple(at.T)]),
    ):
        assert out.shape is None or out.shape in (want.shape, (None,))
        np.testing.assert_allclose(p.run(out, feeds), want, rtol=1e-12)
        check_gradient(p, out, feeds)
    count = p.run(p.b.SparseMatrixNNZ(m), feeds)
    assert np.asarray(count).tolist() == (kept != 0).sum((-1, -2)).tolist()
    starts, columns, values = p.run(list(p.b.CSRSparseMatrixComponents(m, 0, type=f64)), feeds)
    first = kept[0] if batch else kept
    assert starts.tolist() == [0, *np.cumsum((first != 0).sum(1)).tolist()]
    assert (columns.tolist(), values.tolist()) == (np.nonzero(first)[1].tolist(), first[first != 0].tolist())


def test_complex_matrices_are_conjugated(p: Program) -> None:
    values = np.array([1 + 2j, 3j, 4])
    m = p.b.SparseTensorToCSRSparseMatrix(PLACES, values, SHAPE)
    whole = np.zeros((2, 3), complex)
    whole[tuple(PLACES.T)] = values
    other = np.arange(6).reshape(2, 3) * 1j
    out = p.b.SparseMatrixMatMul(m, other, adjoint_a=True, conjugate_output=True)
    assert p.run(out).tolist() == np.conj(np.conj(whole.T) @ other).tolist()
    turned = p.b.CSRSparseMatrixToDense(
        p.b.SparseMatrixTranspose(m, conjugate=True, type=dtypes.complex128), type=dtypes.complex128
    )
    assert p.run(turned).tolist() == np.conj(whole.T).tolist()


def test_matrices_refuse(p: Program) -> None:
    def made(**args: Any) -> Any:
        return p.b.SparseTensorToCSRSparseMatrix(*sparse(p, **args))

    m, dense = made(), p.feed(np.ones((2, 2), np.float32))
    refused(p, made(at=PLACES * 3), "out of bounds")
    refused(p, made(at=PLACES[:, :1], shape=longs(2)), "rank 2 or 3")
    refused(p, made(shape=longs(2**33, 3)), "fit in int32")
    refused(p, p.b.CSRSparseMatrixToDense(m, type=f64), "type float64 but saw dtype: float32")
    refused(p, p.b.CSRSparseMatrixComponents(m, p.feed(1, dtypes.int32), type=f32), r"index \(1\) not in \[0, 1\)")
    refused(p, p.b.SparseMatrixMatMul(m, dense), "Inner product dimensions")
    refused(p, p.b.SparseMatrixMul(m, dense), "broadcastable")
    refused(p, p.b.SparseMatrixAdd(m, made(shape=longs(2, 4)), np.float32(1), np.float32(1)), "must match")
    refused(p, p.b.SparseMatrixNNZ(p.b.SerializeSparse(PLACES, VALUES, SHAPE, out_type=dtypes.variant)), "CSRSparse")
    refused(p, p.b.DenseToCSRSparseMatrix(dense, p.feed(longs([2, 0]))), "does not index into param shape")
    with p.fails(ValueError, "Only one of adjoint_a and transpose_a"):
        p.b.SparseMatrixSparseMatMul(m, m, adjoint_a=True, transpose_a=True, type=f32)
