"""Matrices: equations, decompositions and norms, against numpy's and by their definitions; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr

RNG = np.random.default_rng(0)
A = RNG.normal(size=(2, 3, 3)) + 2 * np.eye(3)
S = A @ A.transpose(0, 2, 1) + np.eye(3)
X = RNG.normal(size=(2, 3, 2))
WIDE = RNG.normal(size=(2, 4))
H = S + 1j * (A - A.transpose(0, 2, 1))


def close(got: Any, want: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol, 1e-9)


def unknown(x: np.ndarray) -> Any:
    """A tensor of unknown shape, whose value is `x`."""
    return hr.placeholder_with_default(x, None)


def value(t: Any) -> Any:
    return hr.Session(graph=t.graph).run(t)


def test_equations() -> None:
    close(hr.linalg.solve(A, X), np.linalg.solve(A, X))
    close(hr.linalg.solve(A, X, adjoint=True), np.linalg.solve(A.transpose(0, 2, 1), X))
    close(hr.linalg.triangular_solve(A, X), np.linalg.solve(np.tril(A), X))
    close(hr.linalg.triangular_solve(A, X, lower=False, adjoint=True), np.linalg.solve(np.triu(A).mT, X))
    close(hr.linalg.cholesky_solve(hr.linalg.cholesky(S), X), np.linalg.solve(S, X))
    close(hr.linalg.inv(A), np.linalg.inv(A))
    close(hr.linalg.det(A), np.linalg.det(A))
    close(hr.linalg.logdet(S), np.log(np.linalg.det(S)))
    close(hr.linalg.logdet(H), np.log(np.linalg.det(H).real))
    sign, size = hr.linalg.slogdet(A)
    close(sign * np.exp(size), np.linalg.det(A))
    root = np.asarray(hr.linalg.sqrtm(S))
    close(root @ root, S)


def test_least_squares() -> None:
    tall, rhs = WIDE.T, RNG.normal(size=(4, 1))
    for fast in (True, False):
        close(hr.linalg.lstsq(tall, rhs, fast=fast), np.linalg.lstsq(tall, rhs)[0])
        close(hr.linalg.lstsq(WIDE, rhs[:2], fast=fast), np.linalg.lstsq(WIDE, rhs[:2])[0])
    ridge = np.linalg.solve(tall.T @ tall + 0.5 * np.eye(2), tall.T @ rhs)
    close(hr.linalg.lstsq(tall, rhs, 0.5), ridge)
    with hr.Graph():
        close(value(hr.linalg.lstsq(unknown(tall), rhs, 0.5)), ridge)
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="'matrix' must be a matrix"):
        hr.linalg.lstsq([1.0, 2.0], [[1.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_exponential(dtype: Any, scale: float) -> None:
    """By eigenvalues; the scale decides how often it is squared."""
    x = (S * scale / np.abs(S).max()).astype(dtype)
    values, vectors = np.linalg.eigh(x.astype(np.complex128))
    want = (vectors * np.exp(values)[:, None, :]) @ vectors.conj().transpose(0, 2, 1)
    np.testing.assert_allclose(np.asarray(hr.linalg.expm(x)), want, 3e-4 if dtype is np.float32 else 1e-9)


def test_exponentials_of_anything() -> None:
    assert np.asarray(hr.linalg.expm(np.zeros((0, 3, 3)))).shape == (0, 3, 3)
    close(hr.linalg.expm(np.zeros((2, 2))), np.eye(2))
    with hr.Graph():
        close(value(hr.linalg.expm(unknown(np.zeros((2, 3, 3))))), np.stack([np.eye(3)] * 2))
    with pytest.raises(hr.errors.ShapeError, match="must be square"):
        hr.linalg.expm(np.zeros((2, 3)))


def test_three_diagonals() -> None:
    matrix = np.triu(np.tril(A[0], 1), -1)
    upper, main, lower = np.diag(matrix, 1), np.diag(matrix), np.diag(matrix, -1)
    compact = np.stack([np.append(upper, 9.0), main, np.insert(lower, 0, 9.0)])
    y, v = X[0], X[0, :, 0]
    for form, given in (("compact", compact), ("sequence", [upper, main, lower]), ("matrix", matrix)):
        close(hr.linalg.tridiagonal_solve(given, y, form), np.linalg.solve(matrix, y))
        close(hr.linalg.tridiagonal_solve(given, v, form), np.linalg.solve(matrix, v))
        close(hr.linalg.tridiagonal_matmul(given, y, form), matrix @ y)
    close(hr.linalg.tridiagonal_solve(compact, y.T, transpose_rhs=True), np.linalg.solve(matrix, y))
    band = np.stack([np.append(upper, 9.0), main])
    close(hr.linalg.banded_triangular_solve(band, y, lower=False), np.linalg.solve(np.triu(matrix), y))


@pytest.mark.parametrize(
    ("given", "rhs", "form", "phrase"),
    [
        (np.ones((3, 3)), np.ones((3, 1)), "rows", "Unrecognized diagonals_format"),
        ([np.ones(3)] * 2, np.ones((3, 1)), "sequence", "length 3"),
        ([np.ones(1), np.ones(3), np.ones(3)], np.ones((3, 1)), "sequence", "superdiag to have length 3 or 2"),
        ([np.ones((1, 3)), np.ones(3), np.ones(3)], np.ones((3, 1)), "sequence", "must have the same shape"),
        (np.ones((2, 3)), np.ones((3, 1)), "compact", "Expected 3 diagonals"),
        (np.ones((2, 3)), np.ones((3, 1)), "matrix", "last two dimensions"),
        (np.ones((3, 3)), np.ones((2, 1)), "compact", "left-hand"),
        (np.ones((3, 3)), 1.0, "compact", "rank of rhs"),
        (np.ones((2, 3, 3)), np.ones((4, 3, 1)), "compact", "Batch shapes"),
    ],
)
def test_wrong_diagonals(given: Any, rhs: Any, form: str, phrase: str) -> None:
    with pytest.raises(ValueError, match=phrase):
        hr.linalg.tridiagonal_solve(given, rhs, form)


def test_decompositions() -> None:
    for full in (False, True):
        q, r = hr.linalg.qr(A, full_matrices=full)
        close(hr.matmul(q, r), A)
        s, u, v = hr.linalg.svd(WIDE, full_matrices=full)
        close(np.asarray(u)[:, :2] * s @ np.asarray(v)[:, :2].T, WIDE)
    close(hr.linalg.svd(WIDE, compute_uv=False), np.linalg.svd(WIDE, compute_uv=False))
    values, vectors = hr.linalg.eigh(H)
    close(hr.matmul(H, vectors), np.asarray(vectors) * np.asarray(values)[:, None, :])
    close(hr.linalg.eigvalsh(S), np.linalg.eigvalsh(S))
    values, vectors = hr.linalg.eig(A)
    close(A @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values)[:, None, :])
    close(np.sort(np.asarray(hr.linalg.eigvals(A))), np.sort(np.asarray(values)))
    assert hr.linalg.eigvals(A.astype(np.float32)).dtype == hr.complex64


def test_lu() -> None:
    for x, y in ((A, X), (A[0], X[0]), (A[0], X)):
        parts = hr.linalg.lu(x)
        close(hr.linalg.lu_solve(*parts, y), np.linalg.solve(x, y))
        close(hr.linalg.lu_reconstruct(*parts), x)
        close(hr.linalg.lu_matrix_inverse(*parts), np.linalg.inv(x))
    whole = hr.linalg.lu(A[0])
    for call, phrase in (
        (lambda: hr.linalg.lu_solve(*whole, [1.0]), "`rhs` must have at least 2"),
        (lambda: hr.linalg.lu_solve(*whole, np.ones((2, 1))), "must equal `rhs.shape"),
        (lambda: hr.linalg.lu_reconstruct([1.0], [0]), "`lower_upper` must have at least 2"),
        (lambda: hr.linalg.lu_reconstruct(np.ones((2, 3)), [0]), "must be square"),
        (lambda: hr.linalg.lu_reconstruct(whole.lu, [[0]]), "must equal `rank"),
    ):
        with pytest.raises(hr.errors.ShapeError, match=phrase):
            call()
    with hr.Graph(), pytest.raises(hr.errors.ShapeError, match="rank of the permutation must be known"):
        hr.linalg.lu_solve(A, unknown(np.zeros((2, 3), np.int32)), X)


def test_eigenvalues_of_three_diagonals() -> None:
    main, upper = S[0, 0], S[0, 1, :2]
    want = np.linalg.eigvalsh(np.diag(main) + np.diag(upper, 1) + np.diag(upper, -1))
    close(hr.linalg.eigh_tridiagonal(main, upper), want)
    close(hr.linalg.eigh_tridiagonal(main, upper, select="i", select_range=(1, 1)), want[1:2])
    close(hr.linalg.eigh_tridiagonal(main, upper, select="v", select_range=(want[0], want[1] + 1e-9)), want[1:2])
    values, vectors = hr.linalg.eigh_tridiagonal(main, upper, False, "v", (want[0], want[2] + 1))
    assert np.asarray(vectors).shape == (3, 2)
    close(values, want[1:])
    with pytest.raises(ValueError, match="'select' must be"):
        hr.linalg.eigh_tridiagonal(main, upper, select="x")
    with pytest.raises(ValueError, match="empty index range"):
        hr.linalg.eigh_tridiagonal(main, upper, select="i", select_range=(2, 1))


def test_from_singular_values() -> None:
    flat = np.outer([1.0, 2.0], [1.0, 2.0, 3.0])
    assert np.asarray(hr.linalg.matrix_rank(np.stack([flat, WIDE[:, :3]]))).tolist() == [1, 2]
    assert int(hr.linalg.matrix_rank(WIDE, 1e9)) == 0
    close(hr.linalg.pinv(np.stack([flat, WIDE[:, :3]])), np.linalg.pinv(np.stack([flat, WIDE[:, :3]])))
    close(hr.linalg.pinv(WIDE + 1j), np.linalg.pinv(WIDE + 1j))
    with hr.Graph():
        close(value(hr.linalg.pinv(unknown(flat))), np.linalg.pinv(flat))
        with pytest.raises(TypeError, match="float"):
            hr.linalg.pinv([["a"]])
    with pytest.raises(hr.errors.ShapeError, match="at least 2 dimensions"):
        hr.linalg.matrix_rank([1.0])


def test_spectral_norms() -> None:
    for axis in ((-2, -1), (1, 0), (0, 2)):
        want = np.linalg.norm(A, 2, axis)
        close(hr.norm(A, 2, axis), want)
        with hr.Graph():
            close(value(hr.norm(unknown(A), 2, axis)), want)
    assert hr.norm(A, 2, (0, -1), keepdims=True).shape == (1, 3, 1)
    close(hr.norm(H, 2, (-2, -1)), np.linalg.norm(H, 2, (-2, -1)))
    with pytest.raises(ValueError, match="unique"):
        hr.norm(A, 2, (0, 0))
    with pytest.raises(ValueError, match="axis 3"):
        hr.norm(A, 2, (0, 3))
    with pytest.raises(ValueError, match="supported matrix norm"):
        hr.norm(A, 3, (0, 1))
    scaled, size = hr.linalg.normalize(A, 1, 0)
    close(scaled * size, A)
    close(hr.l2_normalize(H, -1), H / np.linalg.norm(H, axis=-1, keepdims=True))


def test_identities_of_computed_sizes() -> None:
    with hr.Graph():
        n = hr.placeholder_with_default(np.int32(2), ())
        assert value(hr.eye(n, batch_shape=hr.placeholder_with_default(np.int32([3]), (1,)))).shape == (3, 2, 2)
        assert value(hr.eye(n, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32])
def test_sorting(dtype: Any) -> None:
    ends = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype)
    x = np.array([[3, ends.min, 1], [ends.max, 1, 2]], dtype)
    assert np.array_equal(hr.sort(x), np.sort(x))
    assert np.array_equal(hr.sort(x, 0, "DESCENDING"), -np.sort(-x.astype(object), 0))
    assert np.array_equal(hr.argsort(x), np.argsort(x))
    assert np.array_equal(hr.argsort(np.ones((2, 3), dtype), 0), [[0] * 3, [1] * 3])


def test_wrong_sorting() -> None:
    with pytest.raises(ValueError, match="'direction' must be"):
        hr.sort([1, 2], direction="UP")
    with pytest.raises(ValueError, match="'axis' 1 is not an axis"):
        hr.argsort([1, 2], 1)
    with hr.Graph():
        with pytest.raises(ValueError, match="only the last axis"):
            hr.sort(unknown(A), 0)
        with pytest.raises(ValueError, match="must be a constant"):
            hr.sort(A, hr.placeholder(hr.int32, ()))


def test_polynomials_and_beta() -> None:
    close(hr.special.polyval([2.0, -1.0, 0.5], X), np.polyval([2.0, -1.0, 0.5], X))
    close(hr.special.polyval([], X), np.zeros_like(X))
    with pytest.raises(ValueError, match="must be list"):
        hr.special.polyval(2.0, X)
    close(hr.special.lbeta([2.0, 3.0]), np.log(1 / 12), 1e-6)
