"""Matrix factorizations: Cholesky, QR, LU, singular values, eigenvalues; and functions based on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from headrace import dtypes, shapes
from headrace.api import arrays, gathering, indexing, math, reductions, scopes, tensors
from headrace.api.linalg import equations, matrices
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


class QR(NamedTuple):
    """Result of `qr`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> found = hr.linalg.qr([[2.0, 0.0], [0.0, 4.0]])
      >>> np.abs(found.r.numpy()).tolist()
      [[2.0, 0.0], [0.0, 4.0]]
    """

    q: Tensor
    r: Tensor


class LU(NamedTuple):
    """Result of `lu`.

    Example:
      >>> import headrace as hr
      >>> found = hr.linalg.lu([[2.0, 0.0], [0.0, 4.0]])
      >>> found.lu.numpy().tolist(), found.p.numpy().tolist()
      ([[2.0, 0.0], [0.0, 4.0]], [0, 1])
    """

    lu: Tensor
    p: Tensor


class SignAndLog(NamedTuple):
    """Result of `slogdet`.

    Example:
      >>> import headrace as hr
      >>> found = hr.linalg.slogdet([[-1.0, 0.0], [0.0, 1.0]])
      >>> found.sign.numpy(), found.log_abs_determinant.numpy()
      (np.float32(-1.0), np.float32(0.0))
    """

    sign: Tensor
    log_abs_determinant: Tensor


def cholesky(input: Any, name: str | None = None) -> Tensor:
    """Computes the Cholesky factor: the lower triangular L with L @ adjoint(L) = `input`.

    Args:
      input: Hermitian, positive definite matrices [..., M, M], of floats or complex numbers. Elements above the
        diagonal are not read.
      name: name of the operation; "Cholesky" if None.

    Raises:
      InvalidArgumentError: in a run, if a matrix is not positive definite.

    Source: TensorFlow's `tf.linalg.cholesky`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.cholesky([[4.0, 2.0], [2.0, 2.0]])
      <EagerTensor shape=[2,2] dtype=float32: array([[2., 0.],
             [1., 1.]], dtype=float32)>
    """
    return scopes.builder(input).make("Cholesky", (input,), {}, name)


def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> QR:
    """Computes the QR decomposition: Q with orthonormal columns, R upper triangular.

    Args:
      input: [..., M, N], of floats or complex numbers.
      full_matrices: whether Q is [..., M, M] and R [..., M, N]; otherwise Q is [..., M, P] and R [..., P, N] with P =
        min(M, N).
      name: name of the operation; "Qr" if None.

    Source: TensorFlow's `tf.linalg.qr`.

    Example:
      >>> import headrace as hr
      >>> q, r = hr.linalg.qr([[3.0, 1.0], [4.0, 2.0]])
      >>> q.shape, r.shape
      ((2, 2), (2, 2))
    """
    return QR(*scopes.builder(input).make("Qr", (input,), {"full_matrices": full_matrices}, name))


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """Computes the singular value decomposition; singular values are in descending order.

    Args:
      tensor: [..., M, N], of floats or complex numbers; P is min(M, N).
      full_matrices: whether U is [..., M, M] and V [..., N, N], rather than [..., M, P] and [..., N, P].
      compute_uv: whether to compute the singular vectors.
      name: name of the operation; "Svd" if None.

    Returns:
      s [..., P], U and V, where `tensor` is U @ diag(s) @ adjoint(V). Without `compute_uv` only s.

    Source: TensorFlow's `tf.linalg.svd`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.svd([[3.0, 0.0], [0.0, 4.0]], compute_uv=False)
      <EagerTensor shape=[2] dtype=float32: array([4., 3.], dtype=float32)>
    """
    attrs = {"compute_uv": compute_uv, "full_matrices": full_matrices}
    s, u, v = scopes.builder(tensor).make("Svd", (tensor,), attrs, name)
    return (math.real(s), u, v) if compute_uv else math.real(s)


def eigh(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Computes eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.

    Args:
      tensor: [..., N, N], of floats or complex numbers. Elements above the diagonal are not read.
      name: name of the operation; "SelfAdjointEigV2" if None.

    Returns:
      The eigenvalues [..., N], and the eigenvectors, the columns of [..., N, N].

    Source: TensorFlow's `tf.linalg.eigh`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])[0]
      <EagerTensor shape=[2] dtype=float32: array([1., 2.], dtype=float32)>
    """
    values, vectors = scopes.builder(tensor).make("SelfAdjointEigV2", (tensor,), {"compute_v": True}, name)
    return values, vectors


def eigvalsh(tensor: Any, name: str | None = None) -> Tensor:
    """Computes eigenvalues of Hermitian matrices, in ascending order; see `eigh`.

    Args:
      tensor: [..., N, N], of floats or complex numbers.
      name: name of the operation; "SelfAdjointEigV2" if None.

    Source: TensorFlow's `tf.linalg.eigvalsh`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]).numpy()
      array([1., 2.], dtype=float32)
    """
    return scopes.builder(tensor).make("SelfAdjointEigV2", (tensor,), {"compute_v": False}, name)[0]


def _eig(tensor: Any, wants_vectors: bool, name: str | None) -> Any:
    b = scopes.builder(tensor)
    x = b.tensor(tensor, None, "tensor")
    is_single = x.dtype.base in (dtypes.float32, dtypes.complex64)
    tout = dtypes.complex64 if is_single else dtypes.complex128
    return b.make("Eig", (x,), {"compute_v": wants_vectors, "Tout": tout}, name)


def eig(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Computes complex eigenvalues and eigenvectors of square matrices, in no defined order.

    Args:
      tensor: [..., N, N], of floats or complex numbers.
      name: name of the operation; "Eig" if None.

    Returns:
      The eigenvalues [..., N], and the eigenvectors, the columns of [..., N, N].

    Source: TensorFlow's `tf.linalg.eig`.

    Example:
      >>> import headrace as hr
      >>> values, vectors = hr.linalg.eig([[2.0, 0.0], [0.0, 3.0]])
      >>> values.numpy().real.tolist()
      [2.0, 3.0]
    """
    values, vectors = _eig(tensor, True, name)
    return values, vectors


def eigvals(tensor: Any, name: str | None = None) -> Tensor:
    """Computes complex eigenvalues of square matrices, in no defined order.

    Args:
      tensor: [..., N, N], of floats or complex numbers.
      name: name of the operation; "Eig" if None.

    Source: TensorFlow's `tf.linalg.eigvals`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.eigvals([[2.0]])
      <EagerTensor shape=[1] dtype=complex64: array([2.+0.j], dtype=complex64)>
    """
    return _eig(tensor, False, name)[0]


def eigh_tridiagonal(
    alpha: Any,
    beta: Any,
    eigvals_only: bool = True,
    select: str = "a",
    select_range: Any = None,
    tol: Any = None,
    name: str | None = None,
) -> Any:
    """Computes eigenvalues of a Hermitian tridiagonal matrix, in ascending order.

    Args:
      alpha: [N], the main diagonal, which is real.
      beta: [N - 1], the diagonal above it, of the same dtype.
      eigvals_only: whether to compute only the eigenvalues.
      select: "a": all; "i": those with the indices `select_range[0]` to `select_range[1]`, inclusive; "v": those above
        `select_range[0]` and at most `select_range[1]`.
      select_range: the range for `select`, a pair.
      tol: ignored; accepted for compatibility with TensorFlow. The precision is that of the dtype.
      name: name of the scope; "eigh_tridiagonal" if None.

    Returns:
      The eigenvalues; if `eigvals_only` is False, also the eigenvectors, the columns of a matrix.

    Raises:
      ValueError: `select` is unknown, or its range is missing or empty.

    Source: TensorFlow's `tf.linalg.eigh_tridiagonal`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.eigh_tridiagonal([2.0, 2.0], [1.0]).numpy().round(3)
      array([1., 3.], dtype=float32)
    """
    if select not in ("a", "i", "v"):
        raise ValueError(f"'select' must be 'a', 'i' or 'v', got {select!r}")
    if select != "a" and (select_range is None or select_range[0] > select_range[1]):
        raise ValueError(f"Got empty index range in select_range: {select_range!r}")
    with scopes.name_scope(name, "eigh_tridiagonal", [alpha, beta, tol]):
        b = scopes.builder(alpha, beta)
        main = b.tensor(alpha, None, "alpha")
        upper = b.tensor(beta, main.dtype.base, "beta")
        matrix = b.make("AddV2", (matrices.diag(main), matrices.diag(math.conj(upper), k=-1)), {}, "add")
        values, vectors = eigh(matrix) if not eigvals_only else (eigvalsh(matrix), None)
        values = math.real(values)
        if select == "i":
            first, last = select_range
            values = values[first : last + 1]
            vectors = None if vectors is None else vectors[:, first : last + 1]
        elif select == "v":
            low, high = select_range
            is_in = math.logical_and(math.greater(values, low), math.less_equal(values, high))
            values = indexing.boolean_mask(values, is_in)
            vectors = None if vectors is None else indexing.boolean_mask(vectors, is_in, 1)
        return values if eigvals_only else (values, vectors)


def slogdet(input: Any, name: str | None = None) -> SignAndLog:
    """Computes the signs and the logarithms of the absolute values of determinants.

    Args:
      input: square matrices [..., M, M].
      name: name of the operation; "LogMatrixDeterminant" if None.

    Source: TensorFlow's `tf.linalg.slogdet`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.slogdet([[0.0, 1.0], [1.0, 0.0]]).sign
      <EagerTensor shape=[] dtype=float32: np.float32(-1.0)>
    """
    return SignAndLog(*scopes.builder(input).make("LogMatrixDeterminant", (input,), {}, name))


# *** LU ***


def lu(input: Any, output_idx_type: Any = dtypes.int32, name: str | None = None) -> LU:
    """Computes the LU decomposition of square matrices with row permutations.

    Args:
      input: [..., M, M], of floats or complex numbers.
      output_idx_type: int32 or int64.
      name: name of the operation; "Lu" if None.

    Returns:
      U, with L below its diagonal (the diagonal of L is 1), and the permutation p, [..., M]: row i of L @ U is row p[i]
      of `input`.

    Raises:
      InvalidArgumentError: in a run, if a matrix is not invertible.

    Source: TensorFlow's `tf.linalg.lu`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.lu([[0.0, 1.0], [2.0, 0.0]]).p
      <EagerTensor shape=[2] dtype=int32: array([1, 0], dtype=int32)>
    """
    return LU(*scopes.builder(input).make("Lu", (input,), {"output_idx_type": output_idx_type}, name))


def _factors(b: Any, lower_upper: Any, perm: Any) -> tuple[Any, Any, Any]:
    """Returns the tensors of an LU decomposition, and L."""
    x = b.tensor(lower_upper, None, "lower_upper")
    p = b.tensor(perm, None, "perm")
    if x.shape is not None:
        if len(x.shape) < 2:
            raise ShapeError(f"Input `lower_upper` must have at least 2 dimensions, got {x!r}")
        if not shapes.compatible(x.shape[-1:], x.shape[-2:-1]):
            raise ShapeError(f"`lower_upper` must be square, got {x!r}")
        if p.shape is not None and len(p.shape) != len(x.shape) - 1:
            raise ShapeError(f"`rank(lower_upper)` must equal `rank(perm) + 1`, got {x!r} and {p!r}")
    below = matrices.band_part(x, -1, 0)
    return x, p, matrices.set_diag(below, arrays.ones(arrays.shape(x)[:-1], x.dtype.base))


def lu_solve(lower_upper: Any, perm: Any, rhs: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Solves A @ X = `rhs` for X, with the LU decomposition of A.

    Args:
      lower_upper, perm: the result of `lu` for A.
      rhs: [..., M, K], of the same dtype.
      validate_args: without effect: the arguments are always checked.
      name: name of the scope; "lu_solve" if None.

    Raises:
      ShapeError (a ValueError): the shapes are incompatible.

    Source: TensorFlow's `tf.linalg.lu_solve`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.lu_solve(*hr.linalg.lu([[0.0, 1.0], [2.0, 0.0]]), [[1.0], [4.0]])
      <EagerTensor shape=[2,1] dtype=float32: array([[2.],
             [1.]], dtype=float32)>
    """
    with scopes.name_scope(name, "lu_solve", [lower_upper, perm, rhs]):
        b = scopes.builder(lower_upper, perm, rhs)
        x, p, lower = _factors(b, lower_upper, perm)
        y = b.tensor(rhs, x.dtype.base, "rhs")
        if y.shape is not None and x.shape is not None:
            if len(y.shape) < 2:
                raise ShapeError(f"Input `rhs` must have at least 2 dimensions, got {y!r}")
            if not shapes.compatible(x.shape[-1:], y.shape[-2:-1]):
                raise ShapeError(f"`lower_upper.shape[-1]` must equal `rhs.shape[-2]`, got {x!r} and {y!r}")
        half = equations.triangular_solve(lower, _rows(b, y, p))
        return equations.triangular_solve(x, half, lower=False)


def _rows(b: Any, x: Any, p: Any) -> Any:
    """Permutes rows of matrices by `p`, a vector or one for each matrix."""
    if p.shape is None:
        raise ShapeError(f"the rank of the permutation must be known, got {p!r}; set its shape (set_shape)")
    if len(p.shape) == 1:
        return gathering.gather(x, p, axis=-2)
    size = arrays.shape(x)
    size = arrays.concat([arrays.broadcast_dynamic_shape(size[:-1], arrays.shape(p)), size[-1:]], 0)
    x, p = arrays.broadcast_to(x, size), arrays.broadcast_to(p, size[:-1])
    return gathering.gather(x, p, axis=len(p.shape) - 1, batch_dims=len(p.shape) - 1)


def lu_reconstruct(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Computes the matrices from their LU decompositions.

    Args:
      lower_upper, perm: the result of `lu`.
      validate_args: without effect: the arguments are always checked.
      name: name of the scope; "lu_reconstruct" if None.

    Source: TensorFlow's `tf.linalg.lu_reconstruct`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.lu_reconstruct(*hr.linalg.lu([[0.0, 1.0], [2.0, 0.0]]))
      <EagerTensor shape=[2,2] dtype=float32: array([[0., 1.],
             [2., 0.]], dtype=float32)>
    """
    with scopes.name_scope(name, "lu_reconstruct", [lower_upper, perm]):
        b = scopes.builder(lower_upper, perm)
        x, p, lower = _factors(b, lower_upper, perm)
        product = matrices.matmul(lower, matrices.band_part(x, 0, -1))
        if p.shape is not None and len(p.shape) == 1:
            return _rows(b, product, b.make("InvertPermutation", (p,), {}))
        falling = b.make("Neg", (p,), {})
        return _rows(b, product, b.make("TopKV2", (falling, arrays.shape(p)[-1]), {})[1])


def lu_matrix_inverse(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Computes the inverses of matrices from their LU decompositions.

    Args:
      lower_upper, perm: the result of `lu`.
      validate_args: without effect: the arguments are always checked.
      name: name of the scope; "lu_matrix_inverse" if None.

    Source: TensorFlow's `tf.linalg.lu_matrix_inverse`.

    Example:
      >>> import headrace as hr
      >>> lu, p = hr.linalg.lu([[2.0, 0.0], [0.0, 4.0]])
      >>> hr.linalg.lu_matrix_inverse(lu, p).numpy().tolist()
      [[0.5, 0.0], [0.0, 0.25]]
    """
    with scopes.name_scope(name, "lu_matrix_inverse", [lower_upper, perm]):
        x = scopes.builder(lower_upper, perm).tensor(lower_upper, None, "lower_upper")
        size = arrays.shape(x)
        return lu_solve(x, perm, matrices.eye(size[-1], batch_shape=size[:-2], dtype=x.dtype.base))


# *** from singular values ***


def _precision(x: Any) -> float:
    of = ml_dtypes.finfo(x.dtype.base.numpy)
    return float(of.eps)


def _checked(b: Any, a: Any, what: str) -> Any:
    x = tensors.floats(b, a, what)
    if not (x.dtype.is_floating or x.dtype.is_complex):
        raise TypeError(f"Input `{what}` must have `float`-like `dtype`, got {x!r}")
    if x.shape is not None and len(x.shape) < 2:
        raise ShapeError(f"Input `{what}` must have at least 2 dimensions, got {x!r}")
    return x


def matrix_rank(a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Computes the ranks of matrices: the int32 numbers of singular values above `tol`.

    Args:
      a: [..., M, N], of floats or complex numbers.
      tol: a scalar; None: the greatest singular value times max(M, N) times the machine epsilon of the dtype.
      validate_args: without effect: the arguments are always checked.
      name: name of the scope; "matrix_rank" if None.

    Raises:
      TypeError: `a` has another dtype.
      ShapeError (a ValueError): the rank of `a` is below 2.

    Source: TensorFlow's `tf.linalg.matrix_rank`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]])
      <EagerTensor shape=[] dtype=int32: np.int32(1)>
    """
    with scopes.name_scope(name, "matrix_rank", [a, tol]):
        b = scopes.builder(a, tol)
        x = _checked(b, a, "a")
        s = svd(x, compute_uv=False)
        if tol is None:
            longest = reductions.reduce_max(arrays.shape(x)[-2:])
            share = b.make("Mul", (_precision(x), math.cast(longest, s.dtype.base)), {}, "mul")
            tol = b.make("Mul", (share, reductions.reduce_max(s, -1, True)), {}, "mul")
        above = b.make("Greater", (s, tol), {})
        return reductions.reduce_sum(math.cast(above, dtypes.int32), -1)


def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Computes the Moore-Penrose pseudo-inverses of matrices.

    Args:
      a: [..., M, N], of floats or complex numbers.
      rcond: singular values up to `rcond` times the greatest are treated as zero; None: 10 times max(M, N) times the
        machine epsilon of the dtype.
      validate_args: without effect: the arguments are always checked.
      name: name of the scope; "pinv" if None.

    Returns:
      A tensor [..., N, M].

    Raises:
      TypeError: `a` has another dtype.
      ShapeError (a ValueError): the rank of `a` is below 2.

    Source: TensorFlow's `tf.linalg.pinv`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.pinv([[2.0, 0.0], [0.0, 0.0]])
      <EagerTensor shape=[2,2] dtype=float32: array([[0.5, 0. ],
             [0. , 0. ]], dtype=float32)>
    """
    with scopes.name_scope(name, "pinv", [a, rcond]):
        b = scopes.builder(a, rcond)
        x = _checked(b, a, "a")
        s, u, v = svd(x)
        if rcond is None:
            longest = reductions.reduce_max(arrays.shape(x)[-2:])
            rcond = b.make("Mul", (10.0 * _precision(x), math.cast(longest, s.dtype.base)), {}, "mul")
        least = b.make("Mul", (rcond, reductions.reduce_max(s, -1)), {}, "mul")
        counts = b.make("Greater", (s, arrays.expand_dims(least, -1)), {})
        s = b.make("SelectV2", (counts, s, b.const(np.inf, s.dtype.base)), {})
        scaled = b.make("RealDiv", (v, math.cast(arrays.expand_dims(s, -2), x.dtype.base)), {}, "truediv")
        return matrices.matmul(scaled, u, adjoint_b=True)
