"""Operators that are given by their elements: full, triangular and tridiagonal matrices, reflections, permutations."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import linalg
from headrace.dtypes import as_dtype
from headrace.errors import InvalidArgumentError
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.grouping import no_op
from headrace.v1.linear_operators import hints
from headrace.v1.linear_operators.diagonal import LinearOperatorDiag, LinearOperatorScaledIdentity, nonzero
from headrace.v1.linear_operators.operator import (
    LinearOperator,
    arguments,
    broadcast,
    broadcast_static,
    kept,
    never_is,
    read,
    results,
)
from headrace.v1.scoping import name_scope
from headrace.v1.tensor_shape import TensorShape


class LinearOperatorFullMatrix(LinearOperator):
    """Matrices with all elements.

    Args:
      matrix: the matrices, [..., rows, columns].
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorFullMatrix`.
    """

    def __init__(
        self,
        matrix: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorFullMatrix",
    ) -> None:
        given = arguments(locals())
        with name_scope(name):
            self.matrix = _matrix(matrix, "matrix")
        super().__init__(
            self.matrix.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, is_square, name, given
        )

    def _shape(self) -> TensorShape:
        dims: TensorShape = self.matrix.get_shape()
        return dims

    def _shape_tensor(self) -> Any:
        return array_ops.shape(read(self.matrix))

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return math_ops.matmul(read(self.matrix), x, adjoint_a=adjoint, adjoint_b=adjoint_arg)

    def _to_dense(self) -> Any:
        return read(self.matrix)


def _matrix(x: Any, name: str) -> Any:
    x = kept(x, name)
    if x.get_shape().ndims is not None and x.get_shape().ndims < 2:
        raise ValueError(f"Argument {name} must have at least 2 dimensions.  Found: {x!r}")
    return x


class LinearOperatorLowerTriangular(LinearOperator):
    """Lower triangular matrices.

    Args:
      tril: the matrices, [..., n, n]; elements above the diagonal are ignored.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; they are singular if the diagonal has a
        zero.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorLowerTriangular`.
    """

    def __init__(
        self,
        tril: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowerTriangular",
    ) -> None:
        given = arguments(locals())
        if is_square is False:
            raise ValueError("Only square lower triangular operators supported at this time.")
        with name_scope(name):
            self.tril = _matrix(tril, "tril")
        super().__init__(
            self.tril.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given
        )

    def _shape(self) -> TensorShape:
        dims: TensorShape = self.tril.get_shape()
        return dims

    def _shape_tensor(self) -> Any:
        return array_ops.shape(read(self.tril))

    def _to_dense(self) -> Any:
        return math_ops.matrix_band_part(read(self.tril), -1, 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return math_ops.matmul(self._to_dense(), x, adjoint_a=adjoint, adjoint_b=adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        matrix, rhs = broadcast(read(self.tril), rhs)
        return math_ops.matrix_triangular_solve(matrix, rhs, lower=True, adjoint=adjoint)

    def _diag_part(self) -> Any:
        return math_ops.matrix_diag_part(read(self.tril))

    def _determinant(self) -> Any:
        return math_ops.reduce_prod(self._diag_part(), axis=[-1])

    def _log_abs_determinant(self) -> Any:
        return math_ops.reduce_sum(math_ops.log(math_ops.abs(self._diag_part())), axis=[-1])

    def _eigvals(self) -> Any:
        return self._diag_part()

    def _assert_non_singular(self) -> Any:
        return nonzero(self._diag_part(), "Singular operator:  Diagonal contained zero values.")

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        other = right_operator
        if isinstance(other, (LinearOperatorLowerTriangular, LinearOperatorDiag, LinearOperatorScaledIdentity)):
            product = self._matmul(other._to_dense())
            found = hints.of_product(left_operator, other)
            return LinearOperatorLowerTriangular(product, found["is_non_singular"], is_square=True)
        return super()._linop_matmul(left_operator, right_operator)


class LinearOperatorTridiag(LinearOperator):
    """Matrices with three diagonals.

    Args:
      diagonals: with the format "compact" the superdiagonals, diagonals and subdiagonals, [..., 3, n], of which the
        last superdiagonal and the first subdiagonal element are ignored; with "sequence" a list of these three; with
        "matrix" the matrices, [..., n, n].
      diagonals_format: the format.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope.

    Raises:
      ValueError: there is no such format, or the diagonals have another shape.

    Source: TensorFlow's `tf.linalg.LinearOperatorTridiag`.
    """

    def __init__(
        self,
        diagonals: Any,
        diagonals_format: str = "compact",
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorTridiag",
    ) -> None:
        given = arguments(locals())
        if diagonals_format not in ("compact", "matrix", "sequence"):
            raise ValueError(
                f"Argument `diagonals_format` must be one of compact, matrix, or sequence. Got {diagonals_format}"
            )
        if is_square is False:
            raise ValueError("Only square tridiagonal operators currently supported.")
        with name_scope(name):
            if diagonals_format == "sequence":
                self.diagonals: Any = [kept(d, "diagonal") for d in diagonals]
                dtype = self.diagonals[0].dtype
            else:
                self.diagonals = _matrix(diagonals, "diagonals")
                dtype = self.diagonals.dtype
        self.diagonals_format = diagonals_format
        super().__init__(dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given)

    def _shape(self) -> TensorShape:
        if self.diagonals_format == "matrix":
            dims: TensorShape = self.diagonals.get_shape()
            return dims
        if self.diagonals_format == "sequence":
            whole = broadcast_static(*[d.get_shape() for d in self.diagonals])
            return whole.concatenate(whole[-1:])
        dims = self.diagonals.get_shape()
        dims = dims[:-2].concatenate(dims[-1:]).concatenate(dims[-1:])
        return dims

    def _shape_tensor(self) -> Any:
        return array_ops.shape(self._to_dense())

    def _compact(self) -> Any:
        if self.diagonals_format == "compact":
            return read(self.diagonals)
        if self.diagonals_format == "matrix":
            return math_ops.matrix_diag_part(read(self.diagonals), k=(-1, 1), align="LEFT_RIGHT")
        parts = [read(d) for d in self.diagonals]
        whole = array_ops.shape(parts[0])
        for d in parts[1:]:
            whole = array_ops.broadcast_dynamic_shape(whole, array_ops.shape(d))
        return array_ops.stack([array_ops.broadcast_to(d, whole) for d in parts], axis=-2)

    def _to_dense(self) -> Any:
        if self.diagonals_format == "matrix":
            return read(self.diagonals)
        return math_ops.matrix_diag(self._compact(), k=(-1, 1), align="LEFT_RIGHT")

    def _diag_part(self) -> Any:
        return self._compact()[..., 1, :]

    def _assert_self_adjoint(self) -> Any:
        above, diagonal, below = (self._compact()[..., i, :] for i in range(3))
        text = "Matrix was not equal to its adjoint."
        return [
            check_ops.assert_equal(above[..., :-1], math_ops.conj(below[..., 1:]), message=text),
            check_ops.assert_equal(
                math_ops.imag(diagonal), array_ops.zeros_like(math_ops.imag(diagonal)), message=text
            ),
        ]

    def _adjoint_compact(self) -> Any:
        compact = math_ops.conj(self._compact())
        above, diagonal, below = (compact[..., i, :] for i in range(3))
        nothing = array_ops.zeros_like(above[..., :1])
        return array_ops.stack(
            [
                array_ops.concat([below[..., 1:], nothing], -1),
                diagonal,
                array_ops.concat([nothing, above[..., :-1]], -1),
            ],
            axis=-2,
        )

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        compact = self._adjoint_compact() if adjoint else self._compact()
        above, diagonal, below = (compact[..., i, :, None] for i in range(3))
        nothing = array_ops.zeros_like(x[..., :1, :])
        behind = array_ops.concat([x[..., 1:, :], nothing], -2)
        before = array_ops.concat([nothing, x[..., :-1, :]], -2)
        return diagonal * x + above * behind + below * before

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        compact, rhs = broadcast(self._adjoint_compact() if adjoint else self._compact(), rhs)
        return linalg.tridiagonal_solve(compact, rhs, diagonals_format="compact")


class LinearOperatorHouseholder(LinearOperator):
    """Reflections: identities minus twice the products of a unit vector with itself.

    Args:
      reflection_axis: the vectors, [..., n], of any length.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorHouseholder`.
    """

    def __init__(
        self,
        reflection_axis: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorHouseholder",
    ) -> None:
        given = arguments(locals())
        if is_self_adjoint is False:
            raise ValueError("A Householder operator is always self adjoint.")
        if is_positive_definite is True:
            raise ValueError("A Householder operator is always non-positive definite.")
        if is_square is False:
            raise ValueError("A Householder operator is always square.")
        with name_scope(name):
            self.reflection_axis = kept(reflection_axis, "reflection_axis")
        super().__init__(self.reflection_axis.dtype, None, is_non_singular, True, False, True, name, given)

    def _shape(self) -> TensorShape:
        dims = self.reflection_axis.get_shape()
        return dims.concatenate(dims[-1:]) if dims.ndims is not None else TensorShape(None)

    def _shape_tensor(self) -> Any:
        dims = array_ops.shape(read(self.reflection_axis))
        return array_ops.concat([dims, dims[-1:]], 0)

    def _unit(self) -> Any:
        return math_ops.l2_normalize(read(self.reflection_axis), axis=-1)[..., None]

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        unit = self._unit()
        return x - 2 * unit * math_ops.matmul(unit, x, adjoint_a=True)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._matmul(rhs, adjoint, adjoint_arg)

    def _to_dense(self) -> Any:
        unit = self._unit()
        matrix = -2 * math_ops.matmul(unit, unit, adjoint_b=True)
        return math_ops.matrix_set_diag(matrix, 1 + math_ops.matrix_diag_part(matrix))

    def _diag_part(self) -> Any:
        unit = self._unit()[..., 0]
        return 1 - 2 * unit * math_ops.conj(unit)

    def _trace(self) -> Any:
        return math_ops.cast(self._size(-1) - 2, self.dtype) * array_ops.ones(self._batch_shape_tensor(), self.dtype)

    def _determinant(self) -> Any:
        return -array_ops.ones(self._batch_shape_tensor(), self.dtype)

    def _log_abs_determinant(self) -> Any:
        return array_ops.zeros(self._batch_shape_tensor(), self.dtype)

    def _eigvals(self) -> Any:
        axis = read(self.reflection_axis)
        ones = array_ops.ones_like(axis[..., 1:])
        return array_ops.concat([-array_ops.ones_like(axis[..., :1]), ones], -1)

    def _cond(self) -> Any:
        return array_ops.ones(self._batch_shape_tensor(), self.dtype)

    def _assert_non_singular(self) -> Any:
        return no_op("assert_non_singular")

    def _assert_positive_definite(self) -> Any:
        raise InvalidArgumentError("Householder operators are never positive definite.")

    def _assert_self_adjoint(self) -> Any:
        return no_op("assert_self_adjoint")

    def _linop_inverse(self) -> LinearOperator:
        return self


class LinearOperatorPermutation(LinearOperator):
    """Matrices that permute the elements of vectors.

    Args:
      perm: the permutations, integers [..., n]: element i of a product is element `perm[i]` of the vector.
      dtype: dtype of the matrices.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorPermutation`.
    """

    def __init__(
        self,
        perm: Any,
        dtype: Any = dtypes.float32,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorPermutation",
    ) -> None:
        given = arguments(locals())
        never_is(given, "permutation", is_non_singular=False, is_square=False)
        with name_scope(name):
            self.perm = kept(perm, "perm")
        if not self.perm.dtype.is_integer:
            raise TypeError(f"perm must be integer dtype.  Found: {self.perm!r}")
        known = array_ops.get_static_value(read(self.perm))
        if known is not None and (np.sort(known, -1) != np.arange(known.shape[-1])).any():
            raise ValueError(f"perm must be a vector of unique integers from 0 to n - 1.  Found: {known}")
        super().__init__(
            as_dtype(dtype), None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given
        )

    def _shape(self) -> TensorShape:
        dims = self.perm.get_shape()
        return dims.concatenate(dims[-1:]) if dims.ndims is not None else TensorShape(None)

    def _shape_tensor(self) -> Any:
        dims = array_ops.shape(read(self.perm))
        return array_ops.concat([dims, dims[-1:]], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        perm = read(self.perm)
        perm = math_ops.argsort(perm, axis=-1) if adjoint else perm
        rows, x = broadcast(perm[..., None], x)
        return array_ops.gather(x, rows[..., 0], batch_dims=rows.get_shape().ndims - 2, axis=-2)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._matmul(rhs, not adjoint, adjoint_arg)

    def _to_dense(self) -> Any:
        perm = read(self.perm)
        columns = math_ops.range(math_ops.cast(self._size(-1), perm.dtype))
        return math_ops.cast(math_ops.equal(columns, perm[..., None]), self.dtype)

    def _diag_part(self) -> Any:
        perm = read(self.perm)
        return math_ops.cast(
            math_ops.equal(math_ops.range(math_ops.cast(self._size(-1), perm.dtype)), perm), self.dtype
        )

    def _determinant(self) -> Any:
        perm = read(self.perm)
        later = math_ops.cast(math_ops.less(perm[..., None, :], perm[..., None]), dtypes.int32)
        inversions = math_ops.reduce_sum(math_ops.matrix_band_part(later, 0, -1), axis=[-2, -1])
        return math_ops.cast(1 - 2 * math_ops.floormod(inversions, 2), self.dtype)

    def _log_abs_determinant(self) -> Any:
        return array_ops.zeros(self._batch_shape_tensor(), self.dtype)

    def _cond(self) -> Any:
        return array_ops.ones(self._batch_shape_tensor(), self.dtype)


results.update(lower=LinearOperatorLowerTriangular)
