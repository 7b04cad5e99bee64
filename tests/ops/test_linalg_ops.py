"""Linear algebra beyond the cases of the records. The values are TensorFlow 2.21's.

Errors; matrices that are not finite, singular or empty; larger matrices; static shapes; and the gradients of
decompositions. The gradients are taken of functions that do not depend on the phases of vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from tests.ops.cases import evaluate, gradients, placeholder
from tests.ops.test_math_ops import array, run

NAN, INF = np.nan, np.inf
F32 = np.float32
Z = np.zeros
ONE = np.eye(2, dtype=F32)
A = array([[1.0, 2.0], [3.0, 4.0]])
FLAT = array([[1.0, 2.0], [2.0, 4.0]])
SQUARE = (
    "BatchMatrixDeterminant BatchMatrixInverse BatchSelfAdjointEig BatchSelfAdjointEigV2 Cholesky Lu MatrixDeterminant "
    "LogMatrixDeterminant MatrixExponential MatrixInverse MatrixSquareRoot SelfAdjointEigV2"
).split()


def random(*shape: int, seed: int = 0, complex_: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, shape)
    return x + 1j * rng.uniform(-1, 1, shape) if complex_ else x


def adjoint(x: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.conj(np.swapaxes(x, -1, -2))
    return out


# *** Errors ***


@pytest.mark.parametrize("type", SQUARE)
def test_matrices_must_be_square(type: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must be square"):
        run(type, Z((2, 3), F32))
    with pytest.raises(InvalidArgumentError, match="rank >= 2, got 1"):
        run(type, Z(3, F32))


@pytest.mark.parametrize(
    ("type", "inputs", "match"),
    [
        ("MatrixInverse", [FLAT], "Input is not invertible"),
        ("Lu", [FLAT], "Input is not invertible"),
        ("Lu", [Z((1, 2, 2), np.complex64)], "Input is not invertible"),
        ("MatrixSolve", [FLAT, A], "Input matrix is not invertible"),
        ("MatrixSolve", [Z((2, 3), F32), A], "must be a square matrix"),
        ("MatrixSolve", [A, Z((3, 2), F32)], "incompatible"),
        ("MatrixSolve", [A, Z(2, F32)], "the same rank"),
        ("MatrixSolve", [A[None], Z((2, 2, 2), F32)], "the same outer dimensions"),
        ("MatrixSolveLs", [FLAT, A, np.float64(0)], "rank deficient or ill-conditioned"),
        ("MatrixSolveLs", [A, A, np.float64(-1)], "l2_regularizer must be >= 0"),
        ("MatrixSolveLs", [A, A, np.float64(NAN)], "l2_regularizer must be >= 0"),
        ("MatrixSolveLs", [A, A, np.ones(1)], "l2_regularizer must be scalar"),
        ("MatrixTriangularSolve", [A, Z(2, F32)], r"In\[1\] ndims must be >= 2"),
        ("MatrixTriangularSolve", [Z((2, 3), F32), A], "must be square"),
        ("MatrixTriangularSolve", [A, Z((3, 1), F32)], "mismatch"),
        ("MatrixTriangularSolve", [Z((2, 2, 2), F32), Z((3, 2, 2), F32)], "compatible batch dimensions"),
        ("BandedTriangularSolve", [Z((2, 2), F32), A], "Input matrix is not invertible"),
        ("BandedTriangularSolve", [Z((0, 2), F32), A], "must not be an empty tensor"),
        ("BandedTriangularSolve", [A, Z((2, 0), F32)], "must not be an empty tensor"),
        ("BandedTriangularSolve", [A, Z((3, 1), F32)], "mismatch"),
        ("CholeskyGrad", [A[None], A], "the same rank"),
        ("CholeskyGrad", [A, Z((3, 3), F32)], "the same shape"),
        ("SelfAdjointEigV2", [array([[1, 0], [NAN, 1.0]])], "eigen decomposition was not successful"),
        ("TridiagonalSolve", [Z((2, 2), F32), Z((2, 1), F32)], r"\[...,3,m\]"),
        ("TridiagonalSolve", [Z((3, 2), F32), Z((3, 1), F32)], "differ in size"),
        ("TridiagonalMatMul", [ONE[:1], ONE[:1], ONE, A], "subdiag"),
    ],
)
def test_invalid_matrices_are_refused(type: str, inputs: list[Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        run(type, *inputs)


def test_attributes_that_do_not_go_together() -> None:
    with pytest.raises(InvalidArgumentError, match="requires partial_pivoting"):
        run("TridiagonalSolve", Z((3, 2), F32), Z((2, 1), F32), partial_pivoting=False, perturb_singular=True)
    with pytest.raises(InvalidArgumentError, match="Eigen decomposition was not successful"):
        run("Eig", array([[1, NAN], [0, 1]]), Tout=dtypes.complex64)


# *** Matrices that are not finite, singular or empty ***


def test_a_matrix_without_a_cholesky_factor_spoils_no_other() -> None:
    got = run("Cholesky", array([[[4.0, 9.0], [2.0, 3.0]], [[4.0, 0.0], [4.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    np.testing.assert_allclose(got[0], [[2, 0], [1, 2**0.5]], rtol=1e-6)
    for failed in got[1:]:
        np.testing.assert_array_equal(failed, [[NAN, 0], [NAN, NAN]])


@pytest.mark.parametrize("size", [1, 5, 32, 33, 70])
@pytest.mark.parametrize("complex_", [False, True])
def test_cholesky_of_any_size(size: int, complex_: bool) -> None:
    x = random(2, size, size, complex_=complex_)
    x = x @ adjoint(x) + np.eye(size)
    got = run("Cholesky", np.tril(x))
    np.testing.assert_allclose(got @ adjoint(got), x, atol=1e-12)
    assert not np.triu(got, 1).any()
    x[1] = -x[1]
    spoilt = run("Cholesky", x)
    np.testing.assert_allclose(spoilt[0], got[0], atol=1e-12)
    assert np.isnan(spoilt[1][np.tril_indices(size)]).all()


def test_what_is_not_finite_gives_nan_for_its_matrix_only() -> None:
    x = np.stack([A, array([[1, NAN], [2, 3]]), array([[1, 2], [INF, 3]])])
    good = run("MatrixInverse", A)
    for got in (run("MatrixInverse", x), run("MatrixSolve", x, np.stack([ONE] * 3))):
        np.testing.assert_allclose(got[0], good, rtol=1e-6)
        assert np.isnan(got[1:]).all()
    s, u, v = run("Svd", x)
    np.testing.assert_allclose(s[0], [5.464985, 0.365966], rtol=1e-5)
    assert all(np.isnan(a[1:]).all() for a in (s, u, v))
    np.testing.assert_array_equal(run("MatrixDeterminant", x[1]), NAN)
    np.testing.assert_array_equal(run("LogMatrixDeterminant", x[1]), (NAN, NAN))
    np.testing.assert_array_equal(run("MatrixDeterminant", array([[INF, 1], [1, 1]])), INF)
    assert np.isnan(run("MatrixSquareRoot", x)[1:]).all()
    assert np.isnan(run("MatrixSolveLs", x, np.stack([ONE] * 3), np.float64(0.5))[1:]).all()


def test_a_zero_on_the_diagonal_is_divided_by() -> None:
    got = run("MatrixTriangularSolve", Z((2, 2), F32), array([[1.0], [2.0]]))
    assert np.isinf(got[0, 0])
    assert not np.isfinite(got[1, 0])


def test_roots_and_logarithms_that_are_none() -> None:
    for x in (
        [[-1.0, 0.0], [0.0, 2.0]],
        [[-1.0, 0.0], [0.0, -1.0]],
        [[0.0, 1.0], [0.0, 0.0]],
        [[0.0, 0.0], [0.0, 0.0]],
    ):
        assert np.isnan(run("MatrixSquareRoot", array(x))).any()
    for x in ([[2.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]):
        assert np.isnan(run("MatrixLogarithm", array(x, np.complex64))).all()
    r = 0.5**0.5
    np.testing.assert_allclose(run("MatrixSquareRoot", array([[0.0, 1.0], [-1.0, 0.0]])), [[r, r], [-r, r]], rtol=1e-6)
    np.testing.assert_allclose(run("MatrixSquareRoot", FLAT), FLAT / 5**0.5, rtol=1e-6)
    log = run("MatrixLogarithm", array([[-1, 0], [0, 2]], np.complex128))
    np.testing.assert_allclose(log, [[np.pi * 1j, 0], [0, np.log(2)]], atol=1e-12)
    np.testing.assert_allclose(run("MatrixLogarithm", array([[1, 1], [0, 1]], complex)), [[0, 1], [0, 0]], atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 2, 2)])
def test_decompositions_of_nothing(shape: tuple[int, ...]) -> None:
    m, n = shape[-2:]
    s, u, v = run("Svd", Z(shape, F32), full_matrices=True)
    assert (s.shape, u.shape, v.shape) == ((*shape[:-2], min(m, n)), (*shape[:-2], m, m), (*shape[:-2], n, n))
    np.testing.assert_array_equal(u, np.broadcast_to(np.eye(m), u.shape))
    q, r = run("Qr", Z(shape, F32))
    assert (q.shape, r.shape) == ((*shape[:-2], m, min(m, n)), (*shape[:-2], min(m, n), n))
    for fast in (True, False):
        x = run("MatrixSolveLs", Z(shape, F32), Z((*shape[:-1], 2), F32), np.float64(0), fast=fast)
        np.testing.assert_array_equal(x, Z((*shape[:-2], n, 2)))


def test_vectors_that_are_not_asked_for() -> None:
    e, v = run("SelfAdjointEigV2", array([[1.0, 9.0], [2.0, 1.0]]), compute_v=False)
    np.testing.assert_allclose(e, [-1, 3], rtol=1e-6)
    assert v.shape == (0,)
    e, v = run("Eig", A, compute_v=False, Tout=dtypes.complex64)
    np.testing.assert_allclose(e, [-0.3722813, 5.372281], rtol=1e-5)
    assert v.shape == (0,)
    s, u, v = run("Svd", A, compute_uv=False)
    np.testing.assert_allclose(s, [5.464985, 0.365966], rtol=1e-5)
    assert u.shape == v.shape == (0,)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32, np.complex64])
def test_lu_pivots_by_absolute_values(dtype: Any) -> None:
    x = random(2, 17, 17, complex_=np.dtype(dtype).kind == "c").astype(dtype)
    lu, p = run("Lu", x, output_idx_type=dtypes.int64)
    lower, upper = np.tril(lu, -1) + np.eye(17), np.triu(lu)
    atol = 1e-12 if x.real.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(x, p[..., None], axis=-2), atol=atol)
    assert abs(lower).max() <= 1 + 1e-6


def test_tridiagonal_systems() -> None:
    ones = np.ones((3, 2), F32)
    right = np.ones((2, 1), F32)
    for pivoting in (True, False):
        assert np.isnan(run("TridiagonalSolve", ones, right, partial_pivoting=pivoting)).all()
    np.testing.assert_array_equal(run("TridiagonalSolve", ones, right, perturb_singular=True), [[1], [0]])
    swapped = array([[1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [0.0, 1.0, 1.0]])
    got = run("TridiagonalSolve", swapped, np.ones((3, 1), F32))
    np.testing.assert_allclose(got, [[-1], [1], [0]], atol=1e-6)
    assert np.isnan(run("TridiagonalSolve", swapped, np.ones((3, 1), F32), partial_pivoting=False)).all()


# *** Static shapes ***


@pytest.mark.parametrize(
    ("type", "shapes", "attrs", "want"),
    [
        ("Cholesky", [(None, 3)], {}, [(3, 3)]),
        ("MatrixDeterminant", [(2, None, None)], {}, [(2,)]),
        ("SelfAdjointEigV2", [(2, None, 3)], {}, [(2, 3), (2, 3, 3)]),
        ("SelfAdjointEigV2", [None], {"compute_v": False}, [None, (0,)]),
        ("SelfAdjointEig", [(None, 3)], {}, [(4, 3)]),
        ("Lu", [(2, None, None)], {}, [(2, None, None), (2, None)]),
        ("Svd", [(None, 3)], {}, [(None,), (None, None), (3, None)]),
        ("Svd", [(2, 3)], {"full_matrices": True}, [(2,), (2, 2), (3, 3)]),
        ("Svd", [None], {"compute_uv": False}, [None, (0,), (0,)]),
        ("Qr", [(None, 3)], {}, [(None, None), (None, 3)]),
        ("MatrixSolve", [None, (2, 2)], {}, [(2, 2)]),
        ("MatrixSolve", [(2, 2), None], {}, [(2, None)]),
        ("MatrixSolve", [(None, 3, 3), (4, 3, None)], {}, [(4, 3, None)]),
        ("MatrixTriangularSolve", [(1, 3, 3), (3, 3, 1)], {}, [(3, 3, 1)]),
        ("MatrixTriangularSolve", [None, (2, 2)], {}, [None]),
        ("BandedTriangularSolve", [(None, 2, 3), (4, 3, None)], {}, [(4, 3, None)]),
        ("TridiagonalSolve", [(5, 3, None), (None, 4, 2)], {}, [(5, 4, 2)]),
    ],
)
def test_static_shapes(type: str, shapes: list[Any], attrs: dict[str, Any], want: list[Any]) -> None:
    b = Builder(Graph())
    found = b.make(type, [b.Placeholder(dtype=dtypes.float32, shape=s) for s in shapes], attrs)
    assert [t.shape for t in (found if isinstance(found, tuple) else (found,))] == want


def test_static_shapes_that_cannot_be() -> None:
    b = Builder(Graph())
    x, y = (b.Placeholder(dtype=dtypes.float32, shape=s) for s in ((2, 3), (3,)))
    for type, inputs in (("Cholesky", [x]), ("MatrixSolve", [x, x]), ("Svd", [y]), ("TridiagonalSolve", [x, x])):
        with pytest.raises(ShapeError):
            b.make(type, inputs, {})


# *** Gradients of what does not depend on phases ***


def check(f: Callable[[Any, Any], Any], x: np.ndarray, orders: int = 2) -> None:
    """Compares gradients of the sum of squares of `f(b, x)` with differences.

    The differences are in a random direction. With `orders` of 2 the gradient of that gradient's sum of squares is
    compared too.
    """
    b = Builder(Graph())
    t = placeholder(b, x, x.shape)
    direction = random(*x.shape, seed=1, complex_=x.dtype.kind == "c")
    y = f(b, t)
    for _ in range(orders):
        size = b.Mul(y, b.Conj(y)) if y.dtype.is_complex else b.Mul(y, y)
        total = b.Sum(size, b.Range(0, b.Rank(size), 1), keep_dims=False)
        total = b.Real(total, Tout=dtypes.float64) if y.dtype.is_complex else total
        (y,) = gradients(b, [total], [b.const(1.0, dtypes.float64)], [t])
        (found,) = evaluate([y], {t: x})
        ahead, behind = (evaluate([total], {t: x + s * 1e-6 * direction})[0] for s in (1, -1))
        want = (ahead - behind) / 2e-6
        assert abs(np.sum(np.conj(found) * direction).real - want) < 2e-5 * max(1, abs(want))


def of_cholesky(b: Any, x: Any) -> Any:
    return b.Cholesky(b.BatchMatMulV2(x, x, adj_y=True))


def of_svd(full: bool) -> Callable[[Any, Any], Any]:
    def f(b: Any, x: Any) -> Any:
        s, u, v = b.Svd(x, full_matrices=full)
        columns = min(x.shape[-2:])
        weights = b.const(np.arange(1.0, columns + 1), x.dtype)
        if full:  # the projector to what the matrix does not reach
            u = b.StridedSlice(u, [0, columns], [0, 0], [1, 1], ellipsis_mask=1, end_mask=2)
            return b.BatchMatMulV2(u, u, adj_y=True)
        return b.BatchMatMulV2(b.Mul(u, b.ExpandDims(b.Mul(b.Exp(s), weights), -2)), v, adj_y=True)

    return f


def of_eigenvectors(b: Any, x: Any) -> Any:
    e, v = b.SelfAdjointEigV2(x)
    weights = b.const(np.arange(1.0, x.shape[-1] + 1), x.dtype)
    return b.BatchMatMulV2(b.Mul(v, b.ExpandDims(b.Mul(b.Exp(e), weights), -2)), v, adj_y=True)


def of_general_eigenvectors(b: Any, x: Any) -> Any:
    e, v = b.Eig(x, Tout=dtypes.complex128)
    size = b.Real(b.Mul(v, b.Conj(v)), Tout=dtypes.float64)
    return b.ConcatV2([size, b.ExpandDims(b.Real(e, Tout=dtypes.float64), -2)], -2)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (of_cholesky, (3, 3)),
        (of_svd(False), (2, 3)),
        (of_svd(False), (2, 3, 2)),
        (of_svd(True), (4, 2)),
        (of_eigenvectors, (3, 3)),
        (of_general_eigenvectors, (3, 3)),
        (lambda b, x: b.Svd(x, compute_uv=False)[0], (2, 3)),
        (lambda b, x: b.SelfAdjointEigV2(x, compute_v=False)[0], (3, 3)),
        (lambda b, x: b.Eig(x, compute_v=False, Tout=dtypes.complex128)[0], (3, 3)),
    ],
)
def test_matrix_gradients_match_differences(
    f: Callable[[Any, Any], Any], shape: tuple[int, ...], complex_: bool
) -> None:
    x = random(*shape, seed=3, complex_=complex_)
    x[..., range(min(shape[-2:])), range(min(shape[-2:]))] += np.arange(min(shape[-2:])) + 1
    check(f, x)


def test_gradients_that_are_not_known_say_so() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float64, shape=(3, 2))
    q, _ = b.Qr(x, full_matrices=True)
    with pytest.raises(LookupError, match="no more rows than columns"):
        gradients(b, [q], [b.OnesLike(q)], [x])
    y = b.Placeholder(dtype=dtypes.float64, shape=None)
    solution = b.MatrixSolveLs(y, x, b.const(0.5, dtypes.float64))
    with pytest.raises(LookupError, match="needs to know the rows and columns"):
        gradients(b, [solution], [b.OnesLike(solution)], [y])


def test_equal_eigenvalues_leave_gradients_finite() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float64, shape=(2, 2))
    e, v = b.SelfAdjointEigV2(x)
    s, u, w = b.Svd(x)
    ys = [e, v, s, u, w]
    (g,) = gradients(b, ys, [b.OnesLike(y) for y in ys], [x])
    (found,) = evaluate([g], {x: np.eye(2)})
    assert np.isfinite(found).all()
