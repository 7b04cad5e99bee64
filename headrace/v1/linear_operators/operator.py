"""The base of linear operators, batches of matrices that are known by their products.

A class states its shape and its product with matrices (`_shape`, `_shape_tensor`, `_matmul`). Other methods with an
underscore have defaults, which make the dense matrix; a class overrides those that it computes at less cost. The
methods without an underscore convert and check the arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from headrace.api import linalg
from headrace.dtypes import as_dtype
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.scoping import name_scope
from headrace.v1.tensor_shape import Dimension, TensorShape, broadcast_static_shape
from headrace.v1.variables import Variable

#: Functions that make operators of operators, by kind. The modules of their classes add them, which import this one.
results: dict[str, Callable[..., Any]] = {}


class LinearOperator:
    """A batch of matrices, [..., rows, columns]. Subclasses define `_shape`, `_shape_tensor` and `_matmul`.

    Hints are True, False, or None for unknown; they choose algorithms and are checked only by the `assert_` methods.

    Args:
      dtype: dtype of the matrices.
      graph_parents: accepted as in TensorFlow, without effect.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope of its operations.
      parameters: the arguments by which a subclass was made.

    Raises:
      ValueError: the hints contradict each other.

    Source: TensorFlow's `tf.linalg.LinearOperator`.
    """

    def __init__(
        self,
        dtype: Any,
        graph_parents: Any = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        if is_positive_definite:
            if is_non_singular is False:
                raise ValueError("A positive definite matrix is always non-singular.")
            is_non_singular = True
        if is_non_singular or is_self_adjoint:
            if is_square is False:
                kind = "non-singular" if is_non_singular else "self-adjoint"
                raise ValueError(f"A {kind} matrix is always square.")
            is_square = True
        self.graph_parents = [] if graph_parents is None else list(graph_parents)
        self.dtype: Any = as_dtype(dtype).base if dtype is not None else None
        self.is_non_singular = is_non_singular
        self.is_self_adjoint = is_self_adjoint
        self.is_positive_definite = is_positive_definite
        self._square_hint = is_square
        self.name = name or type(self).__name__
        self._parameters = dict(parameters or {})

    # *** to be defined by subclasses ***

    def _shape(self) -> TensorShape:
        raise NotImplementedError(f"{type(self).__name__} defines no _shape")

    def _shape_tensor(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no _shape_tensor")

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no _matmul")

    # *** properties ***

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments by which it was made."""
        return dict(self._parameters)

    @property
    def is_square(self) -> bool | None:
        """Whether the matrices are square; None if unknown."""
        rows, columns = self._known(-2), self._known(-1)
        known = None if rows is None or columns is None else rows == columns
        if self._square_hint is False and known:
            raise ValueError("User set is_square hint to False, but the operator was square.")
        return known if self._square_hint is None else self._square_hint

    @property
    def shape(self) -> TensorShape:
        """Static shape."""
        return self._shape()

    @property
    def batch_shape(self) -> TensorShape:
        """Static shape of the batch."""
        dims: TensorShape = self.shape[:-2]
        return dims

    @property
    def tensor_rank(self) -> int | None:
        """Number of axes, those of the matrices included."""
        return self.shape.ndims

    @property
    def domain_dimension(self) -> Dimension:
        """Number of columns."""
        return Dimension(self._known(-1))

    @property
    def range_dimension(self) -> Dimension:
        """Number of rows."""
        return Dimension(self._known(-2))

    @property
    def H(self) -> LinearOperator:
        """The adjoint operator."""
        return self.adjoint()

    def _known(self, axis: int) -> int | None:
        dims = self.shape
        found: int | None = None if dims.ndims is None else dims.as_list()[axis]
        return found

    # *** variables and parts, as of TensorFlow's modules ***

    @property
    def variables(self) -> tuple[Any, ...]:
        """Variables among its arguments, those of operators included."""
        found: dict[int, Any] = {}
        for value in self._parameters.values():
            for x in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(x, Variable):
                    found[id(x)] = x
                elif isinstance(x, LinearOperator):
                    found |= {id(v): v for v in x.variables}
        return tuple(found.values())

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Trainable variables among its arguments."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """Variables among its arguments that are not trainable."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[LinearOperator, ...]:
        """Operators among its arguments, and theirs."""
        found: list[LinearOperator] = []
        for value in self._parameters.values():
            for x in value if isinstance(value, (list, tuple)) else [value]:
                found += [x, *x.submodules] if isinstance(x, LinearOperator) else []
        return tuple(found)

    @property
    def name_scope(self) -> Any:
        """The name scope of its name."""
        return name_scope(self.name)

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """Returns a method that makes its operations in the operator's name scope."""

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return call

    @contextlib.contextmanager
    def _name_scope(self, name: str) -> Iterator[None]:
        with name_scope(f"{self.name}/{name}"):
            yield

    # *** shapes in a run ***

    def shape_tensor(self, name: str = "shape_tensor") -> Any:
        """Computes the shape."""
        with self._name_scope(name):
            dims = self.shape
            return array_ops.constant(dims.as_list(), "int32") if dims.is_fully_defined() else self._shape_tensor()

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Any:
        """Computes the shape of the batch."""
        with self._name_scope(name):
            return self._batch_shape_tensor()

    def _batch_shape_tensor(self) -> Any:
        dims = self.batch_shape
        return array_ops.constant(dims.as_list(), "int32") if dims.is_fully_defined() else self._shape_tensor()[:-2]

    def tensor_rank_tensor(self, name: str = "tensor_rank_tensor") -> Any:
        """Computes the number of axes."""
        with self._name_scope(name):
            known = self.tensor_rank
            return array_ops.size(self._shape_tensor()) if known is None else array_ops.constant(known)

    def domain_dimension_tensor(self, name: str = "domain_dimension_tensor") -> Any:
        """Computes the number of columns."""
        with self._name_scope(name):
            return self._size(-1)

    def range_dimension_tensor(self, name: str = "range_dimension_tensor") -> Any:
        """Computes the number of rows."""
        with self._name_scope(name):
            return self._size(-2)

    def _size(self, axis: int) -> Any:
        known = self._known(axis)
        return self._shape_tensor()[axis] if known is None else array_ops.constant(known)

    # *** products ***

    def _converted(self, x: Any, axis: int, of_x: int) -> Any:
        """Returns `x` as a tensor, whose axis `of_x` fits the operator's axis.

        Raises:
          TypeError: another dtype.
          ValueError: another size.
        """
        x = array_ops.convert_to_tensor(x, name="x")
        if x.dtype.base != self.dtype:
            raise TypeError(f"Expected argument to have dtype {self.dtype}.  Found: {x.dtype} in tensor {x!r}")
        size = None if x.get_shape().ndims is None else x.get_shape().as_list()[of_x]
        own = self._known(axis)
        if None not in (size, own) and size != own:
            raise ValueError(f"Dimensions {own} and {size} are not compatible: {self!r} and {x!r}")
        return x

    def matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul") -> Any:
        """Computes the product with matrices, or makes the product with an operator.

        Args:
          x: matrices of the same dtype, [..., columns, any]; or an operator.
          adjoint: whether the adjoint of this operator is multiplied.
          adjoint_arg: whether the adjoint of `x` is.
          name: name of the scope.

        Raises:
          ValueError: the sizes differ.
          TypeError: the dtypes differ.
        """
        if isinstance(x, LinearOperator):
            left, right = _pair(self, x, adjoint, adjoint_arg)
            with self._name_scope(name):
                return left._linop_matmul(left, right)
        with self._name_scope(name):
            x = self._converted(x, -2 if adjoint else -1, -1 if adjoint_arg else -2)
            return self._matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def __matmul__(self, other: Any) -> Any:
        """Multiplies: see `matmul`."""
        return self.matmul(other)

    def matvec(self, x: Any, adjoint: bool = False, name: str = "matvec") -> Any:
        """Computes the product with vectors, [..., columns]."""
        with self._name_scope(name):
            x = self._converted(x, -2 if adjoint else -1, -1)
            return self._matvec(x, adjoint)

    def _matvec(self, x: Any, adjoint: bool = False) -> Any:
        return self._matmul(x[..., None], adjoint=adjoint)[..., 0]

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        found: LinearOperator = results["product"](left_operator, right_operator)
        return found

    # *** solutions ***

    def solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve") -> Any:
        """Solves systems of equations, or makes the product of the inverse with an operator.

        Args:
          rhs: right sides of the same dtype, [..., rows, any]; or an operator.
          adjoint: whether the systems are those of the adjoint.
          adjoint_arg: whether the right sides are the adjoint of `rhs`.
          name: name of the scope.

        Raises:
          NotImplementedError: hints state that the operator is singular or not square.
          ValueError, TypeError: see `matmul`.
        """
        self._check_solvable()
        if isinstance(rhs, LinearOperator):
            left, right = _pair(self, rhs, adjoint, adjoint_arg)
            with self._name_scope(name):
                return left._linop_solve(left, right)
        with self._name_scope(name):
            rhs = self._converted(rhs, -1 if adjoint else -2, -1 if adjoint_arg else -2)
            return self._solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _check_solvable(self) -> None:
        if self.is_non_singular is False:
            raise NotImplementedError("Exact solve not implemented for an operator that is expected to be singular.")
        if self.is_square is False:
            raise NotImplementedError("Exact solve not implemented for an operator that is expected to not be square.")

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        matrix = self._to_dense()
        if self._can_use_cholesky():
            return math_ops.cholesky_solve(*broadcast(math_ops.cholesky(matrix), rhs))
        matrix, rhs = broadcast(matrix, rhs)
        return math_ops.matrix_solve(matrix, rhs, adjoint=adjoint)

    def solvevec(self, rhs: Any, adjoint: bool = False, name: str = "solve") -> Any:
        """Solves a system of equations for each vector of `rhs`, [..., rows]."""
        self._check_solvable()
        with self._name_scope(name):
            rhs = self._converted(rhs, -1 if adjoint else -2, -1)
            return self._solvevec(rhs, adjoint)

    def _solvevec(self, rhs: Any, adjoint: bool = False) -> Any:
        return self._solve(rhs[..., None], adjoint=adjoint)[..., 0]

    def _linop_solve(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        found: LinearOperator = results["quotient"](left_operator, right_operator)
        return found

    # *** other operators ***

    def adjoint(self, name: str = "adjoint") -> LinearOperator:
        """Returns the operator of the transposed, conjugated matrices."""
        if self.is_self_adjoint is True:
            return self
        with self._name_scope(name):
            return self._linop_adjoint()

    def _linop_adjoint(self) -> LinearOperator:
        found: LinearOperator = results["adjoint"](self, **self._hints())
        return found

    def inverse(self, name: str = "inverse") -> LinearOperator:
        """Returns the operator of the inverse matrices.

        Raises:
          ValueError: hints state that the operator is singular or not square.
        """
        if self.is_square is False:
            raise ValueError("Cannot take the Inverse: This operator represents a non square matrix.")
        if self.is_non_singular is False:
            raise ValueError("Cannot take the Inverse: This operator represents a singular matrix.")
        with self._name_scope(name):
            return self._linop_inverse()

    def _linop_inverse(self) -> LinearOperator:
        found: LinearOperator = results["inverse"](self, **self._hints())
        return found

    def cholesky(self, name: str = "cholesky") -> LinearOperator:
        """Returns the operator of the lower triangular Cholesky factors.

        Raises:
          ValueError: hints do not state that the operator is self-adjoint and positive definite.
        """
        if not self._can_use_cholesky():
            raise ValueError("Cannot take the Cholesky decomposition: Not a positive definite self adjoint matrix.")
        with self._name_scope(name):
            return self._linop_cholesky()

    def _linop_cholesky(self) -> LinearOperator:
        factor = math_ops.cholesky(self._to_dense())
        found: LinearOperator = results["lower"](factor, is_non_singular=True, is_self_adjoint=False, is_square=True)
        return found

    def _can_use_cholesky(self) -> bool:
        return bool(self.is_self_adjoint and self.is_positive_definite)

    def _hints(self) -> dict[str, Any]:
        return {
            "is_non_singular": self.is_non_singular,
            "is_self_adjoint": self.is_self_adjoint,
            "is_positive_definite": self.is_positive_definite,
            "is_square": self.is_square,
        }

    # *** numbers ***

    def _check_square(self, what: str) -> None:
        if self.is_square is False:
            raise NotImplementedError(f"{what} not implemented for an operator that is expected to not be square.")

    def determinant(self, name: str = "det") -> Any:
        """Computes the determinants.

        Raises:
          NotImplementedError: the operator is not square.
        """
        self._check_square("Determinant")
        with self._name_scope(name):
            return self._determinant()

    def _determinant(self) -> Any:
        if self._can_use_cholesky():
            return math_ops.exp(self._log_abs_determinant())
        return math_ops.matrix_determinant(self._to_dense())

    def log_abs_determinant(self, name: str = "log_abs_det") -> Any:
        """Computes the logarithms of the absolute values of the determinants.

        Raises:
          NotImplementedError: the operator is not square.
        """
        self._check_square("Determinant")
        with self._name_scope(name):
            return self._log_abs_determinant()

    def _log_abs_determinant(self) -> Any:
        if self._can_use_cholesky():
            diagonal = math_ops.matrix_diag_part(math_ops.cholesky(self._to_dense()))
            return 2 * math_ops.reduce_sum(math_ops.log(diagonal), axis=[-1])
        return linalg.slogdet(self._to_dense())[1]

    def to_dense(self, name: str = "to_dense") -> Any:
        """Makes the matrices."""
        with self._name_scope(name):
            return self._to_dense()

    def _to_dense(self) -> Any:
        eye = math_ops.eye(self._size(-1), batch_shape=self._batch_shape_tensor(), dtype=self.dtype)
        return self._matmul(eye)

    def diag_part(self, name: str = "diag_part") -> Any:
        """Computes the diagonals."""
        with self._name_scope(name):
            return self._diag_part()

    def _diag_part(self) -> Any:
        return math_ops.matrix_diag_part(self._to_dense())

    def trace(self, name: str = "trace") -> Any:
        """Computes the sums of the diagonals."""
        with self._name_scope(name):
            return self._trace()

    def _trace(self) -> Any:
        return math_ops.reduce_sum(self._diag_part(), axis=-1)

    def add_to_tensor(self, x: Any, name: str = "add_to_tensor") -> Any:
        """Adds the matrices to a tensor."""
        with self._name_scope(name):
            x = array_ops.convert_to_tensor(x, name="x")
            if x.dtype.base != self.dtype:
                raise TypeError(f"Expected argument to have dtype {self.dtype}.  Found: {x.dtype} in tensor {x!r}")
            return self._add_to_tensor(x)

    def _add_to_tensor(self, x: Any) -> Any:
        return self._to_dense() + x

    def eigvals(self, name: str = "eigvals") -> Any:
        """Computes the eigenvalues of self-adjoint matrices.

        Raises:
          NotImplementedError: hints do not state that the operator is self-adjoint.
        """
        if not self.is_self_adjoint:
            raise NotImplementedError("Only self-adjoint matrices are supported.")
        with self._name_scope(name):
            return self._eigvals()

    def _eigvals(self) -> Any:
        return math_ops.self_adjoint_eigvals(self._to_dense())

    def cond(self, name: str = "cond") -> Any:
        """Computes the condition numbers: the greatest by the least singular value."""
        with self._name_scope(name):
            return self._cond()

    def _cond(self) -> Any:
        if self.is_self_adjoint:
            values = math_ops.abs(self._eigvals())
        else:
            values = math_ops.svd(self._to_dense(), compute_uv=False)
        return math_ops.reduce_max(values, axis=-1) / math_ops.reduce_min(values, axis=-1)

    # *** checks ***

    def assert_non_singular(self, name: str = "assert_non_singular") -> Any:
        """Makes an operation that fails if a matrix is singular."""
        with self._name_scope(name):
            return self._assert_non_singular()

    def _assert_non_singular(self) -> Any:
        if self._can_use_cholesky():
            return self._assert_positive_definite()
        values = math_ops.svd(self._to_dense(), compute_uv=False)
        cond = math_ops.reduce_max(values, axis=-1) / math_ops.reduce_min(values, axis=-1)
        least = float(np.finfo(real_dtype(self.dtype).numpy).eps)
        size = math_ops.cast(math_ops.maximum(math_ops.maximum(self._size(-1), self._size(-2)), 100), cond.dtype)
        return check_ops.assert_less(cond, 1 / (size * least), message="Singular matrix up to precision epsilon.")

    def assert_positive_definite(self, name: str = "assert_positive_definite") -> Any:
        """Makes an operation that fails if a matrix is not positive definite.

        Raises:
          NotImplementedError: hints do not state that the operator is self-adjoint.
        """
        with self._name_scope(name):
            return self._assert_positive_definite()

    def _assert_positive_definite(self) -> Any:
        if not self.is_self_adjoint:
            raise NotImplementedError("assert_positive_definite is not implemented for this operator")
        diagonal = math_ops.real(math_ops.matrix_diag_part(math_ops.cholesky(self._to_dense())))
        return check_ops.assert_positive(diagonal, message="Matrix was not positive definite.")

    def assert_self_adjoint(self, name: str = "assert_self_adjoint") -> Any:
        """Makes an operation that fails if a matrix is not its adjoint."""
        with self._name_scope(name):
            return self._assert_self_adjoint()

    def _assert_self_adjoint(self) -> Any:
        matrix = self._to_dense()
        return check_ops.assert_equal(matrix, math_ops.adjoint(matrix), message="Matrix was not equal to its adjoint.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} shape={self.shape} dtype={self.dtype.name}>"


def _pair(left: Any, right: Any, adjoint: bool, adjoint_arg: bool) -> tuple[LinearOperator, LinearOperator]:
    """Returns two operators of a product.

    Raises:
      ValueError: the sizes differ.
    """
    left, right = left.adjoint() if adjoint else left, right.adjoint() if adjoint_arg else right
    columns, rows = left._known(-1), right._known(-2)
    if None not in (columns, rows) and columns != rows:
        raise ValueError(f"Operators are incompatible. Expected `x` to have dimension {columns} but got {rows}.")
    return left, right


def kept(x: Any, name: str) -> Any:
    """Returns a variable itself, to be read when used, or a tensor."""
    return x if isinstance(x, Variable) else array_ops.convert_to_tensor(x, name=name)


def read(x: Any) -> Any:
    """Returns the value of a variable, or a tensor itself."""
    return array_ops.convert_to_tensor(x) if isinstance(x, Variable) else x


def real_dtype(dtype: Any) -> Any:
    """Returns the dtype of the real part of numbers."""
    return as_dtype({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name))


def broadcast(*matrices: Any) -> list[Any]:
    """Broadcasts the batches of matrices to a common shape."""
    batches = [x.get_shape().as_list()[:-2] if x.get_shape().ndims is not None else [None] for x in matrices]
    if None not in batches[0] and all(b == batches[0] for b in batches):
        return list(matrices)
    whole = array_ops.shape(matrices[0])[:-2]
    for x in matrices[1:]:
        whole = array_ops.broadcast_dynamic_shape(whole, array_ops.shape(x)[:-2])
    return [array_ops.broadcast_to(x, array_ops.concat([whole, array_ops.shape(x)[-2:]], 0)) for x in matrices]


def broadcast_static(*shapes: TensorShape) -> TensorShape:
    """Returns the static shape to which shapes broadcast, as far as it is known."""
    found = shapes[0]
    for other in shapes[1:]:
        found = broadcast_static_shape(found, other)
    return found


def never_is(hints: Mapping[str, Any], what: str, **values: bool) -> None:
    """Checks hints that a class knows.

    Args:
      hints: the hints that are given.
      what: name of the class.
      **values: the values of hints that cannot be.

    Raises:
      ValueError: a hint has such a value.
    """
    for name, value in values.items():
        if hints.get(name) is value:
            raise ValueError(f"A {what} operator never has {name}={value}")


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a constructor, from its local variables."""
    return {k: v for k, v in given.items() if k not in ("self", "__class__")}
