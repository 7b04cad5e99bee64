"""Operators with nothing but a diagonal: diagonal matrices, identities, scaled identities and zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.dtypes import as_dtype
from headrace.errors import InvalidArgumentError
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.grouping import no_op
from headrace.v1.linear_operators import hints
from headrace.v1.linear_operators.operator import (
    LinearOperator,
    arguments,
    broadcast,
    kept,
    never_is,
    read,
    real_dtype,
)
from headrace.v1.scoping import control_dependencies, name_scope
from headrace.v1.tensor_shape import TensorShape


class LinearOperatorDiag(LinearOperator):
    """Diagonal matrices.

    Args:
      diag: the diagonals, [..., n].
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; real ones are self-adjoint.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorDiag`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     operator = tf.linalg.LinearOperatorDiag([1.0, -2.0])
      ...     sess.run([operator.matvec([3.0, 4.0]), operator.determinant()])
      [array([ 3., -8.], dtype=float32), np.float32(-2.0)]
    """

    def __init__(
        self,
        diag: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorDiag",
    ) -> None:
        given = arguments(locals())
        with name_scope(name):
            self.diag = kept(diag, "diag")
        if not self.diag.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("A real diagonal operator is always self adjoint.")
            is_self_adjoint = True
        if is_square is False:
            raise ValueError("Only square diagonal operators currently supported.")
        super().__init__(
            self.diag.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given
        )

    def _shape(self) -> TensorShape:
        dims = self.diag.get_shape()
        return dims.concatenate(dims[-1:]) if dims.ndims is not None else TensorShape(None)

    def _shape_tensor(self) -> Any:
        dims = array_ops.shape(read(self.diag))
        return array_ops.concat([dims, dims[-1:]], 0)

    def _column(self, adjoint: bool) -> Any:
        diag = read(self.diag)
        return (math_ops.conj(diag) if adjoint else diag)[..., None]

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._column(adjoint) * (math_ops.adjoint(x) if adjoint_arg else x)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return (math_ops.adjoint(rhs) if adjoint_arg else rhs) / self._column(adjoint)

    def _determinant(self) -> Any:
        return math_ops.reduce_prod(read(self.diag), axis=[-1])

    def _log_abs_determinant(self) -> Any:
        logs = math_ops.reduce_sum(math_ops.log(math_ops.abs(read(self.diag))), axis=[-1])
        return math_ops.cast(logs, self.dtype)

    def _diag_part(self) -> Any:
        return read(self.diag)

    def _to_dense(self) -> Any:
        return math_ops.matrix_diag(read(self.diag))

    def _add_to_tensor(self, x: Any) -> Any:
        matrix = broadcast(x, self._to_dense())[0]
        return math_ops.matrix_set_diag(matrix, math_ops.matrix_diag_part(matrix) + read(self.diag))

    def _eigvals(self) -> Any:
        return read(self.diag)

    def _cond(self) -> Any:
        sizes = math_ops.abs(read(self.diag))
        found = math_ops.reduce_max(sizes, axis=-1) / math_ops.reduce_min(sizes, axis=-1)
        return array_ops.where_v2(math_ops.is_nan(found), array_ops.constant(np.inf, found.dtype), found)

    def _assert_non_singular(self) -> Any:
        return nonzero(self.diag, "Singular operator:  Diagonal contained zero values.")

    def _assert_positive_definite(self) -> Any:
        text = "Diagonal operator had diagonal entries with non-positive real part, thus was not positive definite."
        return check_ops.assert_positive(math_ops.real(read(self.diag)), message=text)

    def _assert_self_adjoint(self) -> Any:
        return without_imaginary(self.diag, "This diagonal operator contained non-zero imaginary values.")

    def _linop_adjoint(self) -> LinearOperator:
        return LinearOperatorDiag(math_ops.conj(read(self.diag)), **self._hints())

    def _linop_inverse(self) -> LinearOperator:
        return LinearOperatorDiag(1 / read(self.diag), **self._hints())

    def _linop_cholesky(self) -> LinearOperator:
        return LinearOperatorDiag(math_ops.sqrt(read(self.diag)), True, True, True, True)

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        other = right_operator
        if isinstance(other, (LinearOperatorDiag, LinearOperatorScaledIdentity)):
            of_other = read(other.diag) if isinstance(other, LinearOperatorDiag) else read(other.multiplier)[..., None]
            return LinearOperatorDiag(read(self.diag) * of_other, **hints.of_commuting(left_operator, other))
        return super()._linop_matmul(left_operator, right_operator)

    def _linop_solve(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        other = right_operator
        if isinstance(other, (LinearOperatorDiag, LinearOperatorScaledIdentity)):
            of_other = read(other.diag) if isinstance(other, LinearOperatorDiag) else read(other.multiplier)[..., None]
            return LinearOperatorDiag(of_other / read(self.diag), **hints.of_commuting(left_operator, other))
        return super()._linop_solve(left_operator, right_operator)


def nonzero(x: Any, message: str) -> Any:
    """Makes an operation that fails if an element is zero."""
    return check_ops.assert_positive(math_ops.abs(read(x)), message=message)


def without_imaginary(x: Any, message: str) -> Any:
    """Makes an operation that fails if an element has an imaginary part."""
    imaginary = math_ops.imag(read(x))
    return check_ops.assert_equal(array_ops.zeros_like(imaginary), imaginary, message=message)


class _OfSize(LinearOperator):
    """Matrices of a given size, equal in the batch up to a factor."""

    _num_rows: Any
    _num_columns: Any
    _batch: Any = None

    def _take_size(self, num_rows: Any, num_columns: Any, batch_shape: Any, checks: bool) -> None:
        """Keeps the sizes.

        Raises:
          TypeError: a size is no integer.
          ValueError: a known size is no scalar, or negative.
        """
        self._num_rows = _checked(num_rows, 0, "num_rows", checks)
        self._num_columns = self._num_rows if num_columns is None else _checked(num_columns, 0, "num_columns", checks)
        self._batch = None if batch_shape is None else _checked(batch_shape, 1, "batch_shape", checks)

    def _shape(self) -> TensorShape:
        batch: Any = [] if self._batch is None else array_ops.get_static_value(self._batch)
        sizes = [_static(self._num_rows), _static(self._num_columns)]
        return TensorShape(None) if batch is None else TensorShape([*(int(n) for n in batch), *sizes])

    def _shape_tensor(self) -> Any:
        batch = array_ops.zeros([0], dtypes.int32) if self._batch is None else self._batch
        return array_ops.concat([batch, array_ops.stack([self._num_rows, self._num_columns])], 0)

    def _least(self) -> Any:
        """Returns the length of the diagonal."""
        rows, columns = self._size(-2), self._size(-1)
        return rows if self._num_rows is self._num_columns else math_ops.minimum(rows, columns)

    def _filled(self, make: Any) -> Any:
        """Makes diagonals of ones or zeros."""
        return make(array_ops.concat([self._batch_shape_tensor(), [self._least()]], 0), self.dtype)


def _static(x: Any) -> int | None:
    found = array_ops.get_static_value(x)
    return None if found is None else int(found)


def _checked(x: Any, rank: int, name: str, checks: bool) -> Any:
    x = array_ops.convert_to_tensor(x, name=name, preferred_dtype=dtypes.int32)
    if not x.dtype.is_integer:
        raise TypeError(f"Argument {name} must be integer type.  Found: {x!r}")
    known = array_ops.get_static_value(x)
    if known is not None and known.ndim != rank:
        raise ValueError(f"Argument {name} must be a {rank}-D Tensor.  Found: {known}")
    if known is not None and (known < 0).any():
        raise ValueError(f"Argument {name} must be non-negative.  Found: {known}")
    x = math_ops.cast(x, dtypes.int32)
    if checks:
        found = [check_ops.assert_rank(x, rank), check_ops.assert_non_negative(x)]
        with control_dependencies(found):
            x = array_ops.identity(x)
    return x


class LinearOperatorIdentity(_OfSize):
    """Identity matrices.

    Args:
      num_rows: number of rows and columns, an integer.
      batch_shape: shape of the batch, a vector of integers; None: no batch.
      dtype: dtype of the matrices; None: float32.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, all True.
      assert_proper_shapes: whether a step checks the sizes.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorIdentity`.
    """

    def __init__(
        self,
        num_rows: Any,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool = True,
        is_self_adjoint: bool = True,
        is_positive_definite: bool = True,
        is_square: bool = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorIdentity",
    ) -> None:
        given = arguments(locals())
        for hint in ("is_self_adjoint", "is_non_singular", "is_positive_definite", "is_square"):
            if not given[hint]:
                raise ValueError(f"An identity operator is always {hint[3:].replace('_', '-')}.")
        super().__init__(dtype or dtypes.float32, None, True, True, True, True, name, given)
        with name_scope(name):
            self._take_size(num_rows, None, batch_shape, assert_proper_shapes)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        if self._batch is None:
            return x
        batch = array_ops.concat([self._batch_shape_tensor(), [1, 1]], 0)
        return array_ops.broadcast_to(x, array_ops.broadcast_dynamic_shape(array_ops.shape(x), batch))

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._matmul(rhs, adjoint_arg=adjoint_arg)

    def _determinant(self) -> Any:
        return array_ops.ones(self._batch_shape_tensor(), self.dtype)

    def _log_abs_determinant(self) -> Any:
        return array_ops.zeros(self._batch_shape_tensor(), self.dtype)

    def _trace(self) -> Any:
        return math_ops.cast(self._least(), self.dtype) * self._determinant()

    def _diag_part(self) -> Any:
        return self._filled(array_ops.ones)

    _eigvals = _diag_part

    def _cond(self) -> Any:
        return array_ops.ones(self._batch_shape_tensor(), self.dtype)

    def _add_to_tensor(self, x: Any) -> Any:
        return math_ops.matrix_set_diag(x, math_ops.matrix_diag_part(x) + 1)

    def add_to_tensor(self, mat: Any, name: str = "add_to_tensor") -> Any:
        """Adds the matrices to a tensor."""
        return super().add_to_tensor(mat, name)

    def _assert_non_singular(self) -> Any:
        return no_op("assert_non_singular")

    def _assert_positive_definite(self) -> Any:
        return no_op("assert_positive_definite")

    def _assert_self_adjoint(self) -> Any:
        return no_op("assert_self_adjoint")

    def _linop_inverse(self) -> LinearOperator:
        return self

    def _linop_cholesky(self) -> LinearOperator:
        return LinearOperatorIdentity(self._num_rows, self._batch, self.dtype)

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        return right_operator

    _linop_solve = _linop_matmul


class LinearOperatorScaledIdentity(_OfSize):
    """Identity matrices times numbers.

    Args:
      num_rows: number of rows and columns, an integer.
      multiplier: the numbers, of the shape of the batch.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; real ones are self-adjoint.
      assert_proper_shapes: whether a step checks the sizes.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorScaledIdentity`.
    """

    def __init__(
        self,
        num_rows: Any,
        multiplier: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorScaledIdentity",
    ) -> None:
        given = arguments(locals())
        with name_scope(name):
            self.multiplier = kept(multiplier, "multiplier")
            self._take_size(num_rows, None, None, assert_proper_shapes)
        if not self.multiplier.dtype.is_complex:
            if is_self_adjoint is False:
                raise ValueError("A real diagonal operator is always self adjoint.")
            is_self_adjoint = True
        if not is_square:
            raise ValueError("A ScaledIdentity operator is always square.")
        super().__init__(
            self.multiplier.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given
        )

    def _shape(self) -> TensorShape:
        size = _static(self._num_rows)
        dims: TensorShape = self.multiplier.get_shape().concatenate(TensorShape([size, size]))
        return dims

    def _shape_tensor(self) -> Any:
        sizes = array_ops.stack([self._num_rows, self._num_rows])
        return array_ops.concat([array_ops.shape(read(self.multiplier)), sizes], 0)

    def _factor(self, adjoint: bool) -> Any:
        factor = read(self.multiplier)
        return (math_ops.conj(factor) if adjoint else factor)[..., None, None]

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return (math_ops.adjoint(x) if adjoint_arg else x) * self._factor(adjoint)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return (math_ops.adjoint(rhs) if adjoint_arg else rhs) / self._factor(adjoint)

    def _determinant(self) -> Any:
        return read(self.multiplier) ** math_ops.cast(self._num_rows, self.dtype)

    def _log_abs_determinant(self) -> Any:
        return math_ops.cast(self._num_rows, real_dtype(self.dtype)) * math_ops.log(math_ops.abs(read(self.multiplier)))

    def _trace(self) -> Any:
        return read(self.multiplier) * math_ops.cast(self._num_rows, self.dtype)

    def _diag_part(self) -> Any:
        return self._filled(array_ops.ones) * read(self.multiplier)[..., None]

    _eigvals = _diag_part

    def _cond(self) -> Any:
        factor = read(self.multiplier)
        one = array_ops.ones_like(factor)
        nothing = array_ops.fill(array_ops.shape(factor), array_ops.constant(np.nan, self.dtype))
        return array_ops.where_v2(math_ops.equal(factor, array_ops.zeros_like(factor)), nothing, one)

    def _to_dense(self) -> Any:
        return math_ops.matrix_diag(self._diag_part())

    def _add_to_tensor(self, x: Any) -> Any:
        matrix = broadcast(x, self._factor(False))[0]
        return math_ops.matrix_set_diag(matrix, math_ops.matrix_diag_part(matrix) + read(self.multiplier)[..., None])

    def add_to_tensor(self, mat: Any, name: str = "add_to_tensor") -> Any:
        """Adds the matrices to a tensor."""
        return super().add_to_tensor(mat, name)

    def _assert_non_singular(self) -> Any:
        return nonzero(self.multiplier, "LinearOperator was singular")

    def _assert_positive_definite(self) -> Any:
        return check_ops.assert_positive(
            math_ops.real(read(self.multiplier)), message="LinearOperator was not positive definite."
        )

    def _assert_self_adjoint(self) -> Any:
        return without_imaginary(self.multiplier, "LinearOperator was not self-adjoint")

    def _of(self, multiplier: Any, **given: Any) -> LinearOperator:
        return LinearOperatorScaledIdentity(self._num_rows, multiplier, **given)

    def _linop_adjoint(self) -> LinearOperator:
        return self._of(math_ops.conj(read(self.multiplier)), **self._hints())

    def _linop_inverse(self) -> LinearOperator:
        return self._of(1 / read(self.multiplier), **self._hints())

    def _linop_cholesky(self) -> LinearOperator:
        return self._of(
            math_ops.sqrt(read(self.multiplier)), is_non_singular=True, is_self_adjoint=True,
            is_positive_definite=True, is_square=True,
        )  # fmt: skip

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        other = right_operator
        if isinstance(other, LinearOperatorScaledIdentity):
            product = read(self.multiplier) * read(other.multiplier)
            return self._of(product, **hints.of_commuting(left_operator, other))
        if isinstance(other, LinearOperatorDiag):
            product = read(self.multiplier)[..., None] * read(other.diag)
            return LinearOperatorDiag(product, **hints.of_commuting(left_operator, other))
        return super()._linop_matmul(left_operator, right_operator)

    def _linop_solve(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        other = right_operator
        if isinstance(other, LinearOperatorScaledIdentity):
            quotient = read(other.multiplier) / read(self.multiplier)
            return self._of(quotient, **hints.of_commuting(left_operator, other))
        if isinstance(other, LinearOperatorDiag):
            quotient = read(other.diag) / read(self.multiplier)[..., None]
            return LinearOperatorDiag(quotient, **hints.of_commuting(left_operator, other))
        return super()._linop_solve(left_operator, right_operator)


class LinearOperatorZeros(_OfSize):
    """Matrices of zeros.

    Args:
      num_rows: number of rows, an integer.
      num_columns: number of columns; None: that of the rows.
      batch_shape: shape of the batch, a vector of integers; None: no batch.
      dtype: dtype of the matrices; None: float32.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      assert_proper_shapes: whether a step checks the sizes.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorZeros`.
    """

    def __init__(
        self,
        num_rows: Any,
        num_columns: Any = None,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool = False,
        is_self_adjoint: bool = True,
        is_positive_definite: bool = False,
        is_square: bool = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorZeros",
    ) -> None:
        given = arguments(locals())
        if not is_self_adjoint and is_square:
            raise ValueError("A zero operator is always self adjoint.")
        never_is(given, "zero", is_non_singular=True, is_positive_definite=True)
        super().__init__(as_dtype(dtype or dtypes.float32), None, False, is_self_adjoint, False, is_square, name, given)
        with name_scope(name):
            self._take_size(num_rows, num_columns, batch_shape, assert_proper_shapes)
        rows, columns = _static(self._num_rows), _static(self._num_columns)
        if is_square and None not in (rows, columns) and rows != columns:
            raise ValueError("LinearOperatorZeros initialized as is_square=True, but got num_rows != num_columns")

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        rows = self._size(-1 if adjoint else -2)
        whole = array_ops.broadcast_dynamic_shape(array_ops.shape(x)[:-2], self._batch_shape_tensor())
        return array_ops.zeros(
            array_ops.concat([whole, array_ops.stack([rows, array_ops.shape(x)[-1]])], 0), self.dtype
        )

    def _to_dense(self) -> Any:
        return array_ops.zeros(self._shape_tensor(), self.dtype)

    def _determinant(self) -> Any:
        return array_ops.zeros(self._batch_shape_tensor(), self.dtype)

    def _log_abs_determinant(self) -> Any:
        return array_ops.fill(self._batch_shape_tensor(), array_ops.constant(-np.inf, self.dtype))

    _trace = _determinant

    def _diag_part(self) -> Any:
        return self._filled(array_ops.zeros)

    _eigvals = _diag_part

    def _add_to_tensor(self, x: Any) -> Any:
        whole = array_ops.broadcast_dynamic_shape(array_ops.shape(x), self._shape_tensor())
        return array_ops.broadcast_to(x, whole)

    def add_to_tensor(self, mat: Any, name: str = "add_to_tensor") -> Any:
        """Adds the matrices, which are zeros, to a tensor."""
        return super().add_to_tensor(mat, name)

    def _assert_non_singular(self) -> Any:
        raise InvalidArgumentError("Zero operators are always non-invertible.")

    def _assert_positive_definite(self) -> Any:
        raise InvalidArgumentError("Zero operators are always non-positive definite.")

    def _assert_self_adjoint(self) -> Any:
        return no_op("assert_self_adjoint")

    def _linop_adjoint(self) -> LinearOperator:
        return LinearOperatorZeros(
            self._num_columns, self._num_rows, self._batch, self.dtype,
            is_self_adjoint=bool(self.is_self_adjoint), is_square=bool(self.is_square),
        )  # fmt: skip

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        if not left_operator.is_square or not right_operator.is_square:
            raise ValueError(
                "Matmul with non-square `LinearOperator`s or non-square `LinearOperatorZeros` not supported"
            )
        return left_operator


__all__ = [
    "LinearOperatorDiag", "LinearOperatorIdentity", "LinearOperatorScaledIdentity", "LinearOperatorZeros",
]  # fmt: skip
