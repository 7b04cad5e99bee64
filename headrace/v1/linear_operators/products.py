"""Operators that are made of others: adjoints, inverses, compositions, Kronecker products and low-rank updates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from headrace.api import linalg
from headrace.v1 import array_ops, math_ops
from headrace.v1.grouping import group
from headrace.v1.linear_operators import hints
from headrace.v1.linear_operators.diagonal import LinearOperatorDiag, LinearOperatorIdentity, LinearOperatorZeros
from headrace.v1.linear_operators.operator import (
    LinearOperator,
    arguments,
    broadcast,
    broadcast_static,
    kept,
    read,
    results,
)
from headrace.v1.scoping import name_scope
from headrace.v1.tensor_shape import TensorShape


def product(left: LinearOperator, right: LinearOperator) -> LinearOperator:
    """Makes the product of two operators of any class."""
    if isinstance(right, LinearOperatorIdentity):
        return left
    if isinstance(right, LinearOperatorZeros):
        if not right.is_square or not left.is_square:
            raise ValueError(
                "Matmul with non-square `LinearOperator`s or non-square `LinearOperatorZeros` not supported"
            )
        return right
    return LinearOperatorComposition([left, right], **hints.of_product(left, right))


def quotient(left: LinearOperator, right: LinearOperator) -> LinearOperator:
    """Makes the product of the inverse of an operator with another one."""
    if isinstance(right, LinearOperatorIdentity):
        return left.inverse()
    return LinearOperatorComposition([LinearOperatorInversion(left), right], **hints.of_product(left, right))


def _swapped(shape: TensorShape) -> TensorShape:
    return shape if shape.ndims is None else shape[:-2].concatenate(TensorShape([shape[-1], shape[-2]]))


class LinearOperatorAdjoint(LinearOperator):
    """The adjoint of an operator.

    Args:
      operator: the operator.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; None: those of the operator.
      name: name of the scope; None: the name of the operator and "_adjoint".

    Source: TensorFlow's `tf.linalg.LinearOperatorAdjoint`.
    """

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        given = arguments(locals())
        self.operator = operator
        super().__init__(
            operator.dtype,
            None,
            _hint(is_non_singular, operator.is_non_singular, "is_non_singular"),
            _hint(is_self_adjoint, operator.is_self_adjoint, "is_self_adjoint"),
            _hint(is_positive_definite, operator.is_positive_definite, "is_positive_definite"),
            _hint(is_square, operator.is_square, "is_square"),
            name or f"{operator.name}_adjoint",
            given,
        )

    def _shape(self) -> TensorShape:
        return _swapped(self.operator.shape)

    def _shape_tensor(self) -> Any:
        dims = self.operator._shape_tensor()
        return array_ops.concat([dims[:-2], dims[-1:], dims[-2:-1]], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator._matmul(x, adjoint=not adjoint, adjoint_arg=adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator._solve(rhs, adjoint=not adjoint, adjoint_arg=adjoint_arg)

    def _determinant(self) -> Any:
        return math_ops.conj(self.operator._determinant())

    def _log_abs_determinant(self) -> Any:
        return self.operator._log_abs_determinant()

    def _trace(self) -> Any:
        return math_ops.conj(self.operator._trace())

    def _diag_part(self) -> Any:
        return math_ops.conj(self.operator._diag_part())

    def _to_dense(self) -> Any:
        return math_ops.adjoint(self.operator._to_dense())

    def _eigvals(self) -> Any:
        values = self.operator._eigvals()
        return math_ops.conj(values) if values.dtype.is_complex else values

    def _cond(self) -> Any:
        return self.operator._cond()

    def _assert_non_singular(self) -> Any:
        return self.operator._assert_non_singular()

    def _assert_positive_definite(self) -> Any:
        return self.operator._assert_positive_definite()

    def _assert_self_adjoint(self) -> Any:
        return self.operator._assert_self_adjoint()

    def _linop_adjoint(self) -> LinearOperator:
        return self.operator


def _hint(given: bool | None, known: bool | None, name: str) -> bool | None:
    """Returns a hint that is given, or the known one.

    Raises:
      ValueError: they contradict each other.
    """
    if given is not None and known is not None and given is not known:
        raise ValueError(f"The operator has {name}={known}, but the hint is {given}")
    return known if given is None else given


class LinearOperatorInversion(LinearOperator):
    """The inverse of an operator.

    Args:
      operator: the operator, square and not singular.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; None: those of the operator.
      name: name of the scope; None: the name of the operator and "_inv".

    Source: TensorFlow's `tf.linalg.LinearOperatorInversion`.
    """

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        given = arguments(locals())
        if operator.is_square is False or is_square is False:
            raise ValueError("operator and supplied hints must have is_square=True or None")
        if operator.is_non_singular is False or is_non_singular is False:
            raise ValueError("operator and supplied hints must have is_non_singular=True or None")
        self.operator = operator
        super().__init__(
            operator.dtype,
            None,
            _hint(is_non_singular, operator.is_non_singular, "is_non_singular"),
            _hint(is_self_adjoint, operator.is_self_adjoint, "is_self_adjoint"),
            _hint(is_positive_definite, operator.is_positive_definite, "is_positive_definite"),
            True,
            name or f"{operator.name}_inv",
            given,
        )

    def _shape(self) -> TensorShape:
        return _swapped(self.operator.shape)

    def _shape_tensor(self) -> Any:
        return self.operator._shape_tensor()

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator._solve(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self.operator._matmul(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def _determinant(self) -> Any:
        return 1 / self.operator._determinant()

    def _log_abs_determinant(self) -> Any:
        return -self.operator._log_abs_determinant()

    def _eigvals(self) -> Any:
        return 1 / self.operator._eigvals()

    def _cond(self) -> Any:
        return self.operator._cond()

    def _assert_non_singular(self) -> Any:
        return self.operator._assert_non_singular()

    def _assert_positive_definite(self) -> Any:
        return self.operator._assert_positive_definite()

    def _assert_self_adjoint(self) -> Any:
        return self.operator._assert_self_adjoint()

    def _linop_inverse(self) -> LinearOperator:
        return self.operator


def _check_operators(operators: Sequence[LinearOperator], kind: str) -> list[LinearOperator]:
    """Returns the operators as a list.

    Raises:
      ValueError: there is none.
      TypeError: their dtypes differ.
    """
    found = list(operators)
    if not found:
        raise ValueError(f"Expected a non-empty list of operators of a {kind}. Found: {operators}")
    if len({op.dtype.name for op in found}) > 1:
        kinds = " ".join(f"{op.name} {op.dtype}" for op in found)
        raise TypeError(f"Expected all operators to have the same dtype.  Found {kinds}")
    return found


def _of_all(given: bool | None, operators: Sequence[LinearOperator], name: str) -> bool | None:
    """Returns a hint; it is True if it is for all operators.

    Raises:
      ValueError: the hint is False, but all operators have it.
    """
    if all(getattr(op, name) for op in operators):
        if given is False:
            raise ValueError(f"The operators always have {name}=True together. Expected the hint to be True or None")
        return True
    return given


class LinearOperatorComposition(LinearOperator):
    """The product of operators: the last one is applied first.

    Args:
      operators: the operators, whose sizes fit.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope; None: the names of the operators, joined by "_o_".

    Source: TensorFlow's `tf.linalg.LinearOperatorComposition`.
    """

    def __init__(
        self,
        operators: Sequence[LinearOperator],
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        given = arguments(locals())
        self.operators = _check_operators(operators, "composition")
        for left, right in zip(self.operators, self.operators[1:], strict=False):
            columns, rows = left._known(-1), right._known(-2)
            if None not in (columns, rows) and columns != rows:
                raise ValueError(f"Operators are incompatible. {left!r} has {columns} columns, {right!r} {rows} rows")
        super().__init__(
            self.operators[0].dtype,
            None,
            _of_all(is_non_singular, self.operators, "is_non_singular"),
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name or "_o_".join(op.name for op in self.operators),
            given,
        )

    def _shape(self) -> TensorShape:
        first, last = self.operators[0].shape, self.operators[-1].shape
        batch = broadcast_static(*[op.batch_shape for op in self.operators])
        if None in (first.ndims, last.ndims) or batch.ndims is None:
            return TensorShape(None)
        return batch.concatenate(TensorShape([first[-2], last[-1]]))

    def _shape_tensor(self) -> Any:
        batch = _batch_of(self.operators)
        sizes = array_ops.stack([self.operators[0]._size(-2), self.operators[-1]._size(-1)])
        return array_ops.concat([batch, sizes], 0)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        for i, op in enumerate(self.operators if adjoint else reversed(self.operators)):
            x = op._matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg and i == 0)
        return x

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        for i, op in enumerate(reversed(self.operators) if adjoint else self.operators):
            rhs = op._solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg and i == 0)
        return rhs

    def _determinant(self) -> Any:
        return functools.reduce(math_ops.multiply, [op.determinant() for op in self.operators])

    def _log_abs_determinant(self) -> Any:
        return functools.reduce(math_ops.add, [op.log_abs_determinant() for op in self.operators])

    def _assert_non_singular(self) -> Any:
        if all(op.is_square for op in self.operators):
            return group(*[op._assert_non_singular() for op in self.operators])
        return super()._assert_non_singular()

    def _linop_adjoint(self) -> LinearOperator:
        return LinearOperatorComposition([op.adjoint() for op in reversed(self.operators)], **self._hints())

    def _linop_inverse(self) -> LinearOperator:
        return LinearOperatorComposition([op.inverse() for op in reversed(self.operators)], **self._hints())


def _batch_of(operators: Sequence[LinearOperator]) -> Any:
    """Computes the shape to which the batches of operators broadcast."""
    return functools.reduce(array_ops.broadcast_dynamic_shape, [op._batch_shape_tensor() for op in operators])


class LinearOperatorKronecker(LinearOperator):
    """The Kronecker product of operators.

    Args:
      operators: the operators.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope; None: the names of the operators, joined by "_x_".

    Source: TensorFlow's `tf.linalg.LinearOperatorKronecker`.
    """

    def __init__(
        self,
        operators: Sequence[LinearOperator],
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
    ) -> None:
        given = arguments(locals())
        self.operators = _check_operators(operators, "Kronecker product")
        super().__init__(
            self.operators[0].dtype,
            None,
            _of_all(is_non_singular, self.operators, "is_non_singular"),
            _of_all(is_self_adjoint, self.operators, "is_self_adjoint"),
            _of_all(is_positive_definite, self.operators, "is_positive_definite"),
            _of_all(is_square, self.operators, "is_square"),
            name or "_x_".join(op.name for op in self.operators),
            given,
        )

    def _shape(self) -> TensorShape:
        batch = broadcast_static(*[op.batch_shape for op in self.operators])
        sizes: list[int | None] = [1, 1]
        for op in self.operators:
            for i, axis in enumerate((-2, -1)):
                known, size = sizes[i], op._known(axis)
                sizes[i] = None if known is None or size is None else known * size
        return batch.concatenate(TensorShape(sizes)) if batch.ndims is not None else TensorShape(None)

    def _shape_tensor(self) -> Any:
        sizes = [functools.reduce(math_ops.multiply, [op._size(axis) for op in self.operators]) for axis in (-2, -1)]
        return array_ops.concat([_batch_of(self.operators), array_ops.stack(sizes)], 0)

    def _applied(self, x: Any, axis: int, apply: Callable[[LinearOperator, Any], Any]) -> Any:
        """Applies each operator along its part of the rows.

        The axis of an operator comes to the front, and goes behind the others after it was applied.
        """
        count = array_ops.shape(x)[-1]
        for op in self.operators:
            batch = array_ops.shape(x)[:-2]
            x = array_ops.reshape(x, array_ops.concat([batch, array_ops.stack([op._size(axis), -1])], 0))
            x = math_ops.matrix_transpose(apply(op, x))
        batch = array_ops.shape(x)[:-2]
        x = array_ops.reshape(x, array_ops.concat([batch, array_ops.stack([count, -1])], 0))
        return math_ops.matrix_transpose(x)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        return self._applied(x, -2 if adjoint else -1, lambda op, y: op._matmul(y, adjoint=adjoint))

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        return self._applied(rhs, -1 if adjoint else -2, lambda op, y: op.solve(y, adjoint=adjoint))

    def _outer(self, vectors: Sequence[Any]) -> Any:
        """Computes the Kronecker product of vectors."""
        found = vectors[0]
        for v in vectors[1:]:
            both = found[..., None] * v[..., None, :]
            found = array_ops.reshape(both, array_ops.concat([array_ops.shape(both)[:-2], [-1]], 0))
        return found

    def _diag_part(self) -> Any:
        if any(op.is_square is not True for op in self.operators):
            return super()._diag_part()
        return self._outer([op._diag_part() for op in self.operators])

    def _eigvals(self) -> Any:
        return self._outer([op._eigvals() for op in self.operators])

    def _trace(self) -> Any:
        if any(op.is_square is not True for op in self.operators):
            return super()._trace()
        return functools.reduce(math_ops.multiply, [op._trace() for op in self.operators])

    def _determinant(self) -> Any:
        powers = [math_ops.cast(self._size(-1) // op._size(-1), self.dtype) for op in self.operators]
        found = [op.determinant() ** p for op, p in zip(self.operators, powers, strict=True)]
        return functools.reduce(math_ops.multiply, found)

    def _log_abs_determinant(self) -> Any:
        found = []
        for op in self.operators:
            logs = op.log_abs_determinant()
            found.append(logs * math_ops.cast(self._size(-1) // op._size(-1), logs.dtype))
        return functools.reduce(math_ops.add, found)

    def _to_dense(self) -> Any:
        found = self.operators[0]._to_dense()
        for op in self.operators[1:]:
            a, b = broadcast(found, op._to_dense())
            both = a[..., :, None, :, None] * b[..., None, :, None, :]
            dims = array_ops.shape(both)
            sizes = array_ops.stack([dims[-4] * dims[-3], dims[-2] * dims[-1]])
            found = array_ops.reshape(both, array_ops.concat([dims[:-4], sizes], 0))
        return found

    def _each(self, method: str) -> LinearOperator:
        return LinearOperatorKronecker([getattr(op, method)() for op in self.operators], **self._hints())

    def _linop_adjoint(self) -> LinearOperator:
        return self._each("adjoint")

    def _linop_inverse(self) -> LinearOperator:
        return self._each("inverse")

    def _linop_cholesky(self) -> LinearOperator:
        if not all(op.is_positive_definite and op.is_self_adjoint for op in self.operators):
            return super()._linop_cholesky()
        factors = [op.cholesky() for op in self.operators]
        return LinearOperatorKronecker(factors, is_non_singular=True, is_square=True)


class LinearOperatorLowRankUpdate(LinearOperator):
    """An operator plus a product of thin matrices: L + U D V^H.

    Args:
      base_operator: the operator L, square.
      u: the matrices U, [..., n, k].
      diag_update: the diagonals of D, [..., k]; None: ones.
      v: the matrices V, [..., n, k]; None: U.
      is_diag_update_positive: hint that D is positive; None: unknown.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope.

    Source: TensorFlow's `tf.linalg.LinearOperatorLowRankUpdate`.
    """

    def __init__(
        self,
        base_operator: LinearOperator,
        u: Any,
        diag_update: Any = None,
        v: Any = None,
        is_diag_update_positive: bool | None = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowRankUpdate",
    ) -> None:
        given = arguments(locals())
        dtype = base_operator.dtype
        if diag_update is None:
            if is_diag_update_positive is False:
                raise ValueError("Default diagonal is the identity, which is positive, but the hint said otherwise")
            is_diag_update_positive = True
        self.is_diag_update_positive = is_diag_update_positive
        with name_scope(name):
            self.u = kept(u, "u")
            self.v = self.u if v is None else kept(v, "v")
            self.diag_update = None if diag_update is None else kept(diag_update, "diag_update")
        parts = [self.u, self.v, *([] if diag_update is None else [self.diag_update])]
        if any(x.dtype.base != dtype for x in parts):
            raise TypeError(f"Tensors of the update must have the operator's dtype {dtype}, got {parts}")
        is_real = not dtype.is_complex or is_diag_update_positive
        if base_operator.is_self_adjoint and v is None and is_real:
            if is_self_adjoint is False:
                raise ValueError("A self-adjoint operator with an update U D U^H stays self-adjoint")
            is_self_adjoint = True
        if (
            base_operator.is_positive_definite
            and base_operator.is_self_adjoint
            and v is None
            and is_diag_update_positive
        ):
            if is_positive_definite is False or is_non_singular is False:
                raise ValueError("A positive definite operator with a positive update stays positive definite")
            is_positive_definite = True
        self.base_operator = base_operator
        super().__init__(dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, is_square, name, given)

    @property
    def diag_operator(self) -> LinearOperator:
        """The operator D."""
        if self.diag_update is None:
            return LinearOperatorIdentity(array_ops.shape(read(self.u))[-1], dtype=self.dtype)
        return LinearOperatorDiag(self.diag_update, is_positive_definite=self.is_diag_update_positive)

    def _shape(self) -> TensorShape:
        own = self.base_operator.shape
        u, v = self.u.get_shape(), self.v.get_shape()
        if None in (own.ndims, u.ndims, v.ndims):
            return TensorShape(None)
        batch = broadcast_static(own[:-2], u[:-2], v[:-2])
        if self.diag_update is not None:
            batch = broadcast_static(batch, self.diag_update.get_shape()[:-1])
        return batch.concatenate(own[-2:])

    def _shape_tensor(self) -> Any:
        batch = self.base_operator._batch_shape_tensor()
        batches = [array_ops.shape(read(x))[:-2] for x in (self.u, self.v)]
        if self.diag_update is not None:
            batches.append(array_ops.shape(read(self.diag_update))[:-1])
        batch = functools.reduce(array_ops.broadcast_dynamic_shape, batches, batch)
        return array_ops.concat([batch, array_ops.stack([self.base_operator._size(a) for a in (-2, -1)])], 0)

    def _scaled(self, x: Any, adjoint: bool) -> Any:
        return self.diag_operator._matmul(x, adjoint=adjoint)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        u, v = read(self.u), read(self.v)
        u, v = (v, u) if adjoint else (u, v)
        thin = self._scaled(math_ops.matmul(v, x, adjoint_a=True), adjoint)
        return self.base_operator._matmul(x, adjoint=adjoint) + math_ops.matmul(u, thin)

    def _diag_part(self) -> Any:
        u, v = broadcast(read(self.u), read(self.v))
        scaled = u if self.diag_update is None else u * read(self.diag_update)[..., None, :]
        return self.base_operator._diag_part() + math_ops.reduce_sum(scaled * math_ops.conj(v), axis=-1)

    def _capacitance(self, adjoint: bool = False) -> Any:
        """Computes D^-1 + V^H L^-1 U, or its adjoint."""
        u, v = read(self.u), read(self.v)
        u, v = (v, u) if adjoint else (u, v)
        inner = math_ops.matmul(v, self.base_operator._solve(u, adjoint=adjoint), adjoint_a=True)
        inverse = self.diag_operator.inverse()
        return (inverse.adjoint() if adjoint else inverse)._add_to_tensor(inner)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        # the formula of Woodbury
        if self.base_operator.is_non_singular is False:
            raise ValueError("Solve not implemented unless this is a perturbation of a non-singular operator.")
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        u, v = read(self.u), read(self.v)
        u, v = (v, u) if adjoint else (u, v)
        first = self.base_operator._solve(rhs, adjoint=adjoint)
        thin = math_ops.matmul(v, first, adjoint_a=True)
        middle = math_ops.matrix_solve(*broadcast(self._capacitance(adjoint), thin))
        return first - self.base_operator._solve(math_ops.matmul(u, middle), adjoint=adjoint)

    def _determinant(self) -> Any:
        # the matrix determinant lemma
        parts = [
            math_ops.matrix_determinant(self._capacitance()),
            self.diag_operator._determinant(),
            self.base_operator._determinant(),
        ]
        return functools.reduce(math_ops.multiply, parts)

    def _log_abs_determinant(self) -> Any:
        logs = linalg.slogdet(self._capacitance())[1]
        parts = [self.diag_operator._log_abs_determinant(), self.base_operator._log_abs_determinant()]
        return functools.reduce(math_ops.add, [math_ops.cast(x, logs.dtype) for x in parts], logs)


results.update(
    product=product, quotient=quotient, adjoint=LinearOperatorAdjoint, inverse=LinearOperatorInversion
)  # fmt: skip
