"""Systems of linear equations, inverses, determinants and functions of matrices."""

from __future__ import annotations

import math as numbers
from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, cond, gathering, math, reductions, scopes, tensors, while_loop
from headrace.api.linalg import matrices
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor

# *** systems of equations ***


def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """Solves `matrix` @ X = `rhs` for X.

    Args:
      matrix: square matrices [..., M, M], of floats or complex numbers.
      rhs: [..., M, K], of the same dtype and with the same batch axes.
      adjoint: whether the matrices are transposed and conjugated first.
      name: name of the operation; "MatrixSolve" if None.

    Raises:
      ShapeError (a ValueError): the shapes are incompatible.
      InvalidArgumentError: in a run, if a matrix is not invertible.

    Source: TensorFlow's `tf.linalg.solve`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [[2.0], [2.0]])
      <EagerTensor shape=[2,1] dtype=float32: array([[1. ],
             [0.5]], dtype=float32)>
    """
    return scopes.builder(matrix, rhs).make("MatrixSolve", (matrix, rhs), {"adjoint": adjoint}, name)


def triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """Solves `matrix` @ X = `rhs` for X, where the matrices are triangular.

    Args:
      matrix: [..., M, M]; elements on the other side of the diagonal are treated as zero.
      rhs: [..., M, K], of the same dtype; the batch axes are broadcast.
      lower: whether the matrices are lower triangular; otherwise upper triangular.
      adjoint: whether the matrices are transposed and conjugated first.
      name: name of the scope; "triangular_solve" if None.

    Raises:
      ShapeError (a ValueError): the shapes are incompatible.
      InvalidArgumentError: in a run, if a matrix has a zero on its diagonal.

    Source: TensorFlow's `tf.linalg.triangular_solve`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.triangular_solve([[2.0, 9.0], [1.0, 1.0]], [[2.0], [3.0]])
      <EagerTensor shape=[2,1] dtype=float32: array([[1.],
             [2.]], dtype=float32)>
    """
    with scopes.name_scope(name, "triangular_solve", [matrix, rhs]):
        b = scopes.builder(matrix, rhs)
        return b.make("MatrixTriangularSolve", (matrix, rhs), {"lower": lower, "adjoint": adjoint})


def banded_triangular_solve(
    bands: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """Solves `bands` @ X = `rhs` for X, where the matrices are triangular and banded.

    Args:
      bands: [..., K, M], the diagonals: from the main one downwards if `lower`, otherwise from the uppermost down to
        the main one.
      rhs: [..., M, N], of the same dtype.
      lower, adjoint: see `triangular_solve`.
      name: name of the scope; "banded_triangular_solve" if None.

    Source: TensorFlow's `tf.linalg.banded_triangular_solve`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.banded_triangular_solve([[2.0, 4.0]], [[2.0], [8.0]]).numpy().ravel()
      array([1., 2.], dtype=float32)
    """
    with scopes.name_scope(name, "banded_triangular_solve", [bands, rhs]):
        b = scopes.builder(bands, rhs)
        return b.make("BandedTriangularSolve", (bands, rhs), {"lower": lower, "adjoint": adjoint})


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """Solves A @ X = `rhs` for X, with the Cholesky factor of A.

    Args:
      chol: the Cholesky factors, lower triangular matrices [..., M, M]; see `cholesky`.
      rhs: [..., M, K], of the same dtype.
      name: name of the scope; "cholesky_solve" if None.

    Source: TensorFlow's `tf.linalg.cholesky_solve`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.cholesky_solve(hr.linalg.cholesky([[4.0]]), [[2.0]])
      <EagerTensor shape=[1,1] dtype=float32: array([[0.5]], dtype=float32)>
    """
    with scopes.name_scope(name, "cholesky_solve", [chol, rhs]):
        b = scopes.builder(chol, rhs)
        half = b.make("MatrixTriangularSolve", (chol, rhs), {"lower": True, "adjoint": False})
        return b.make("MatrixTriangularSolve", (chol, half), {"lower": True, "adjoint": True})


def lstsq(matrix: Any, rhs: Any, l2_regularizer: Any = 0.0, fast: bool = True, name: str | None = None) -> Tensor:
    """Solves the least squares problem: the X that minimizes |`matrix` @ X - `rhs`|².

    Args:
      matrix: [..., M, N], of floats or complex numbers.
      rhs: [..., M, K], of the same dtype.
      l2_regularizer: the factor of |X|² in the sum to minimize.
      fast: whether to use a Cholesky factor of the normal equations, which requires matrices of full rank and is less
        precise; otherwise a complete orthogonal decomposition, which has no gradient.
      name: name of the scope; "matrix_solve_ls" if None.

    Returns:
      A tensor [..., N, K]. If there are several solutions (M < N), the one with the least norm.

    Raises:
      ShapeError (a ValueError): the shapes are incompatible.
      InvalidArgumentError: when run, if `fast`: a matrix is not of full rank.

    Source: TensorFlow's `tf.linalg.lstsq`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.lstsq([[1.0], [1.0]], [[2.0], [4.0]]).numpy().round(3).tolist()
      [[3.0]]
    """
    if not fast:
        b = scopes.builder(matrix, rhs)
        return b.make("MatrixSolveLs", (matrix, rhs, l2_regularizer), {"fast": False}, name)
    with scopes.name_scope(name, "matrix_solve_ls", [matrix, rhs, l2_regularizer]):
        b = scopes.builder(matrix, rhs, l2_regularizer)
        a, y = tensors.pair(b, matrix, rhs)
        if a.shape is None or None in a.shape[-2:]:
            size = b.make("Shape", (a,), {})
            rows, columns = size[-2], size[-1]
            is_tall = b.make("GreaterEqual", (rows, columns), {})
            return cond.cond(
                is_tall, lambda: _of_tall(b, a, y, l2_regularizer), lambda: _of_wide(b, a, y, l2_regularizer)
            )
        if len(a.shape) < 2:
            raise ShapeError(f"'matrix' must be a matrix or have more axes, got {a!r}")
        of = _of_tall if a.shape[-2] >= a.shape[-1] else _of_wide
        return of(b, a, y, l2_regularizer)


def _gramian_factor(a: Any, weight: Any, is_tall: bool) -> Any:
    b = scopes.builder(a)
    gramian = matrices.matmul(a, a, adjoint_a=is_tall, adjoint_b=not is_tall)
    if hasattr(weight, "dtype") or weight:
        one = _one_like(b, gramian)
        weight = math.cast(weight, a.dtype.base) if hasattr(weight, "dtype") else weight
        gramian = b.make("AddV2", (gramian, b.make("Mul", (weight, one), {}, "mul")), {}, "add")
    return b.make("Cholesky", (gramian,), {})


def _one_like(b: Any, x: Any) -> Any:
    """Returns the identity matrix of the size of the square matrices `x`."""
    n = None if x.shape is None else x.shape[-1]
    return matrices.eye(b.make("Shape", (x,), {})[-1] if n is None else n, dtype=x.dtype.base)


def _of_tall(b: Any, a: Any, y: Any, weight: Any) -> Any:
    factor = _gramian_factor(a, weight, True)
    return cholesky_solve(factor, matrices.matmul(a, y, adjoint_a=True))


def _of_wide(b: Any, a: Any, y: Any, weight: Any) -> Any:
    return matrices.matmul(a, cholesky_solve(_gramian_factor(a, weight, False), y), adjoint_a=True)


# *** tridiagonal matrices ***


def _diagonals(b: Any, diagonals: Any, form: str) -> tuple[Any, Any, Any]:
    """Returns upper, main and lower diagonals, each with the length of the main one.

    The last element of the upper diagonal and the first of the lower diagonal are ignored.
    """
    if form == "sequence":
        if not isinstance(diagonals, (list, tuple)) or len(diagonals) != 3:
            raise ValueError(f"Expected diagonals to be a sequence of length 3, got {diagonals!r}")
        main = b.tensor(diagonals[1], None, "maindiag")
        upper, lower = (b.tensor(diagonals[i], main.dtype.base, n) for i, n in ((0, "superdiag"), (2, "subdiag")))
        return _padded(b, upper, main, "superdiag", [0, 1]), main, _padded(b, lower, main, "subdiag", [1, 0])
    found = b.tensor(diagonals, None, "diagonals")
    if form == "matrix":
        if found.shape is not None:
            sizes = found.shape[-2:]
            if len(sizes) < 2 or (None not in sizes and sizes[0] != sizes[1]):
                raise ShapeError(f"Expected last two dimensions of diagonals to be same, got {found!r}")
        found = matrices.diag_part(found, name="matrix_diag_part", k=(-1, 1), align="LEFT_RIGHT")
    upper, main, lower = arrays.unstack(found, 3, -2)
    return upper, main, lower


def _padded(b: Any, x: Any, main: Any, what: str, padding: list[int]) -> Any:
    if x.shape is None or main.shape is None:
        return x
    n, m = x.shape[-1] if x.shape else 0, main.shape[-1] if main.shape else 0
    if len(x.shape) != len(main.shape) or not shapes.compatible(x.shape[:-1], main.shape[:-1]):
        raise ShapeError(
            "Tensors representing the three diagonals must have the same shape, except for the last dimension, "
            f"got {x!r} and {main!r}"
        )
    if n is None or n == m or m is None:
        return x
    if n != m - 1:
        raise ShapeError(f"Expected {what} to have length {m} or {m - 1}, got {n}")
    return arrays.pad(x, [[0, 0]] * (len(x.shape) - 1) + [padding])


def _check_form(form: str) -> None:
    if form not in ("compact", "sequence", "matrix"):
        raise ValueError(f"Unrecognized diagonals_format: {form!r}; it must be 'compact', 'sequence' or 'matrix'")


def tridiagonal_solve(
    diagonals: Any,
    rhs: Any,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Tensor:
    """Solves A @ X = `rhs` for X, where A are tridiagonal matrices.

    Args:
      diagonals: for "compact", [..., 3, M]: the upper diagonal (its last element is ignored), the main one, and the
        lower one (its first element is ignored). For "sequence", a list of these three; the outer ones have length M or
        M - 1. For "matrix", [..., M, M].
      rhs: [..., M, K], or [..., M] for vectors, of the same dtype.
      diagonals_format: "compact", "sequence" or "matrix".
      transpose_rhs, conjugate_rhs: whether to transpose and to conjugate `rhs` first. A vector is not transposed.
      name: name of the operation; "TridiagonalSolve" if None.
      partial_pivoting: whether to exchange rows; without it, the computation is faster and less stable.
      perturb_singular: whether to perturb a singular matrix; TensorFlow supports this only on other devices.

    Raises:
      ValueError: the shapes are incompatible, or the format is unknown.
      InvalidArgumentError: in a run, if a matrix is not invertible.

    Source: TensorFlow's `tf.linalg.tridiagonal_solve`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.tridiagonal_solve([[0.0, 0.0], [2.0, 4.0], [0.0, 0.0]], [1.0, 1.0])
      <EagerTensor shape=[2] dtype=float32: array([0.5 , 0.25], dtype=float32)>
    """
    _check_form(diagonals_format)
    b = scopes.builder(diagonals, rhs)
    if diagonals_format == "compact":
        bands, rhs = tensors.pair(b, diagonals, rhs)
    elif diagonals_format == "matrix":
        x = b.tensor(diagonals, None, "diagonals")
        if x.shape is not None and (len(x.shape) < 2 or not shapes.compatible(x.shape[-1:], x.shape[-2:-1])):
            raise ShapeError(f"Expected last two dimensions of diagonals to be same, got {x!r}")
        bands = matrices.diag_part(x, name="MatrixDiagPartV3", k=(-1, 1), align="LEFT_RIGHT")
    else:
        bands = arrays.stack(_diagonals(b, diagonals, diagonals_format), -2)
    y = b.tensor(rhs, bands.dtype.base, "rhs")
    is_vector = False
    if bands.shape is not None:
        rank = len(bands.shape)
        if rank < 2 or bands.shape[-2] not in (3, None):
            raise ShapeError(f"Expected 3 diagonals of rank at least 2, [..., 3, M], got {bands!r}")
        if y.shape is not None:
            if len(y.shape) not in (rank, rank - 1):
                raise ShapeError(f"Expected the rank of rhs to be {rank} or {rank - 1}, got {y!r}")
            is_vector = len(y.shape) == rank - 1
            if not shapes.compatible(bands.shape[:-2], y.shape[: rank - 2]):
                raise ShapeError(f"Batch shapes {bands.shape[:-2]} and {y.shape[: rank - 2]} are incompatible")
    if is_vector:
        y = arrays.expand_dims(math.conj(y) if conjugate_rhs else y, -1)
    elif transpose_rhs:
        y = matrices.matrix_transpose(y, conjugate=conjugate_rhs)
    elif conjugate_rhs:
        y = math.conj(y)
    if bands.shape is not None and y.shape is not None and not shapes.compatible(bands.shape[-1:], y.shape[-2:-1]):
        raise ShapeError(
            f"Expected number of left-hand sided and right-hand sides to be equal, got {bands!r} and {y!r}"
        )
    attrs = {"partial_pivoting": partial_pivoting, "perturb_singular": perturb_singular}
    found = b.make("TridiagonalSolve", (bands, y), attrs, name)
    return arrays.squeeze(found, [-1]) if is_vector else found


def tridiagonal_matmul(diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None) -> Tensor:
    """Multiplies tridiagonal matrices by matrices.

    Args:
      diagonals, diagonals_format: see `tridiagonal_solve`.
      rhs: [..., M, K], of the same dtype.
      name: name of the operation; "TridiagonalMatMul" if None.

    Raises:
      ValueError: the shapes are incompatible, or the format is unknown.

    Source: TensorFlow's `tf.linalg.tridiagonal_matmul`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.tridiagonal_matmul([[1.0, 0.0], [2.0, 2.0], [0.0, 1.0]], [[1.0], [2.0]])
      <EagerTensor shape=[2,1] dtype=float32: array([[4.],
             [5.]], dtype=float32)>
    """
    _check_form(diagonals_format)
    b = scopes.builder(diagonals, rhs)
    parts = [arrays.expand_dims(x, -2) for x in _diagonals(b, diagonals, diagonals_format)]
    return b.make("TridiagonalMatMul", (*parts, rhs), {}, name)


# *** inverses and determinants ***


def inv(input: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """Computes the inverses of square matrices, or of their adjoints.

    Args:
      input: [..., M, M], of floats or complex numbers.
      adjoint: whether to invert the adjoints.
      name: name of the operation; "MatrixInverse" if None.

    Raises:
      InvalidArgumentError: in a run, if a matrix is not invertible.

    Source: TensorFlow's `tf.linalg.inv`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.inv([[2.0, 0.0], [0.0, 4.0]])
      <EagerTensor shape=[2,2] dtype=float32: array([[0.5 , 0.  ],
             [0.  , 0.25]], dtype=float32)>
    """
    return scopes.builder(input).make("MatrixInverse", (input,), {"adjoint": adjoint}, name)


def det(input: Any, name: str | None = None) -> Tensor:
    """Computes the determinants of square matrices.

    Args:
      input: [..., M, M], of floats or complex numbers.
      name: name of the operation; "MatrixDeterminant" if None.

    Source: TensorFlow's `tf.linalg.det`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.det([[2.0, 0.0], [0.0, 4.0]])
      <EagerTensor shape=[] dtype=float32: np.float32(8.0)>
    """
    return scopes.builder(input).make("MatrixDeterminant", (input,), {}, name)


def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """Computes the logarithms of the determinants of Hermitian, positive definite matrices.

    Args:
      matrix: [..., M, M], of floats or complex numbers.
      name: name of the scope; "logdet" if None.

    Returns:
      A tensor [...] of the real dtype.

    Raises:
      InvalidArgumentError: in a run, if a matrix is not positive definite.

    Source: TensorFlow's `tf.linalg.logdet`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.logdet([[2.0, 0.0], [0.0, 0.5]])
      <EagerTensor shape=[] dtype=float32: np.float32(0.0)>
    """
    with scopes.name_scope(name, "logdet", [matrix]):
        b = scopes.builder(matrix)
        factor = b.make("Cholesky", (matrix,), {})
        logs = math.log(math.real(matrices.diag_part(factor)))
        total = reductions.reduce_sum(logs, [-1])
        return b.make("Mul", (2.0, total), {}, "mul")


def expm(input: Any, name: str | None = None) -> Tensor:
    """Computes the exponentials of square matrices: the sums of A^k / k!.

    The algorithm scales the matrix, computes a Padé approximant of degree 7 (13 in double precision), and squares it
    repeatedly: Higham, The scaling and squaring method for the matrix exponential revisited (2005).

    Args:
      input: [..., M, M], of floats or complex numbers.
      name: name of the scope; "matrix_exponential" if None.

    Raises:
      ShapeError (a ValueError): the matrices are not square.

    Source: TensorFlow's `tf.linalg.expm`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.expm([[0.0, 0.0], [0.0, 0.0]])
      <EagerTensor shape=[2,2] dtype=float32: array([[1., 0.],
             [0., 1.]], dtype=float32)>
    """
    with scopes.name_scope(name, "matrix_exponential", [input]):
        b = scopes.builder(input)
        x = b.tensor(input, None, "input")
        dtype = x.dtype.base
        if x.shape is not None and (len(x.shape) < 2 or not shapes.compatible(x.shape[-1:], x.shape[-2:-1])):
            raise ShapeError(f"'input' must be square matrices, got {x!r}")
        if x.shape is not None and 0 in x.shape:
            return b.make("Identity", (x,), {})
        is_double = dtype in (dtypes.float64, dtypes.complex128)
        degree, reach = (13, 5.371920351148152) if is_double else (7, 3.925724783138660)
        real = dtypes.float64 if is_double else dtypes.float32
        size = reductions.reduce_max(reductions.reduce_sum(math.abs(x), -2), -1)
        doublings = b.make("Floor", (b.make("RealDiv", (math.log(size / reach), numbers.log(2.0)), {}),), {})
        times = b.make("Maximum", (doublings + 1.0, b.const(0.0, real)), {})
        times = b.make("SelectV2", (b.make("IsFinite", (times,), {}), times, b.make("ZerosLike", (times,), {})), {})
        scale = b.make("Pow", (b.const(0.5, real), times), {})
        x = b.make("Mul", (x, math.cast(_as_matrices(scale), dtype)), {}, "mul")
        even, odd = _pade(b, x, degree, dtype)
        found = b.make("MatrixSolve", (b.make("Sub", (even, odd), {}), b.make("AddV2", (even, odd), {})), {})
        _, found = while_loop.while_loop(
            lambda i, y: i < reductions.reduce_max(times),
            lambda i, y: (i + 1.0, gathering.where(_as_matrices(i < times), matrices.matmul(y, y), y)),
            (b.const(0.0, real), found),
        )
        return found


def _as_matrices(x: Any) -> Any:
    return arrays.expand_dims(arrays.expand_dims(x, -1), -1)


def _pade(b: Any, x: Any, degree: int, dtype: dtypes.DType) -> tuple[Any, Any]:
    """Returns the even and the odd part of the Padé numerator of exp.

    The denominator is their difference. The coefficient of x^k is (2 n - k)! n! / ((2 n)! k! (n - k)!), scaled so that
    the last one is 1.
    """
    n = degree
    c = [numbers.factorial(2 * n - k) // (numbers.factorial(k) * numbers.factorial(n - k)) for k in range(n + 1)]
    square = matrices.matmul(x, x)
    power = _one_like(b, x)
    even, odd = power * b.const(c[0], dtype), power * b.const(c[1], dtype)
    for k in range(2, n, 2):
        power = matrices.matmul(power, square) if k > 2 else square
        even, odd = even + power * b.const(c[k], dtype), odd + power * b.const(c[k + 1], dtype)
    return even, matrices.matmul(x, odd)


def logm(input: Any, name: str | None = None) -> Tensor:
    """Computes the principal logarithms of complex square matrices.

    Args:
      input: [..., M, M], of complex numbers.
      name: name of the operation; "MatrixLogarithm" if None.

    Source: TensorFlow's `tf.linalg.logm`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> np.allclose(hr.linalg.logm(np.eye(2, dtype=np.complex64)), np.zeros((2, 2)), atol=1e-6)
      True
    """
    return scopes.builder(input).make("MatrixLogarithm", (input,), {}, name)


def sqrtm(input: Any, name: str | None = None) -> Tensor:
    """Computes the principal square roots of square matrices.

    Args:
      input: [..., M, M], of floats or complex numbers.
      name: name of the operation; "MatrixSquareRoot" if None.

    Raises:
      InvalidArgumentError: in a run, if a real matrix has no real square root.

    Source: TensorFlow's `tf.linalg.sqrtm`.

    Example:
      >>> import headrace as hr
      >>> hr.linalg.sqrtm([[4.0]])
      <EagerTensor shape=[1,1] dtype=float32: array([[2.]], dtype=float32)>
    """
    return scopes.builder(input).make("MatrixSquareRoot", (input,), {}, name)
