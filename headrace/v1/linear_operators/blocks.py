"""Operators of blocks: block diagonal and block lower triangular ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from headrace.v1 import array_ops, math_ops
from headrace.v1.linear_operators.operator import LinearOperator, arguments, broadcast, broadcast_static
from headrace.v1.linear_operators.products import _batch_of, _check_operators, _of_all
from headrace.v1.tensor_shape import TensorShape


class _Blocks(LinearOperator):
    """An operator whose arguments can be lists, with a part for each block."""

    def _row_blocks(self) -> list[LinearOperator]:
        """Returns an operator for each row of blocks, whose rows are those of the row."""
        raise NotImplementedError

    def _column_blocks(self) -> list[LinearOperator]:
        """Returns an operator for each column of blocks."""
        raise NotImplementedError

    def _multiplied(self, parts: list[Any], adjoint: bool) -> list[Any]:
        raise NotImplementedError

    def _solved(self, parts: list[Any], adjoint: bool) -> list[Any]:
        raise NotImplementedError

    def _all(self) -> list[LinearOperator]:
        raise NotImplementedError

    def _shape(self) -> TensorShape:
        batch = broadcast_static(*[op.batch_shape for op in self._all()])
        sizes = []
        for axis, blocks in ((-2, self._row_blocks()), (-1, self._column_blocks())):
            known = [op._known(axis) for op in blocks]
            sizes.append(None if None in known else sum(n for n in known if n is not None))
        return batch.concatenate(TensorShape(sizes)) if batch.ndims is not None else TensorShape(None)

    def _shape_tensor(self) -> Any:
        sizes = [
            functools.reduce(math_ops.add, [op._size(axis) for op in blocks])
            for axis, blocks in ((-2, self._row_blocks()), (-1, self._column_blocks()))
        ]
        return array_ops.concat([_batch_of(self._all()), array_ops.stack(sizes)], 0)

    def _blockwise(self, x: Any, by_rows: bool, apply: Callable[[list[Any]], list[Any]]) -> Any:
        """Applies a function of parts to matrices, which it cuts and joins."""
        blocks, axis = (self._row_blocks(), -2) if by_rows else (self._column_blocks(), -1)
        known = [op._known(axis) for op in blocks]
        sizes = array_ops.stack([op._size(axis) for op in blocks]) if None in known else known
        parts = apply(array_ops.split(x, sizes, axis=-2, num=len(blocks)))
        return array_ops.concat(broadcast(*parts), axis=-2)

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        x = math_ops.adjoint(x) if adjoint_arg else x
        return self._blockwise(x, adjoint, lambda parts: self._multiplied(parts, adjoint))

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        rhs = math_ops.adjoint(rhs) if adjoint_arg else rhs
        return self._blockwise(rhs, not adjoint, lambda parts: self._solved(parts, adjoint))

    def _is_cut(self, x: Any, by_rows: bool) -> bool:
        """Whether an argument is a list with a tensor for each block."""
        if not isinstance(x, (list, tuple)):
            return False
        blocks, axis = (self._row_blocks(), -2) if by_rows else (self._column_blocks(), -1)
        if len(x) != len(blocks):
            return False
        if all(array_ops.is_tensor(part) or hasattr(part, "dtype") for part in x):
            return True
        return all(
            isinstance(part, (list, tuple)) and len(part) == op._known(axis) and isinstance(part[0], (list, tuple))
            for part, op in zip(x, blocks, strict=True)
        )

    def matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul") -> Any:
        """Computes the product with matrices, or with a list of parts.

        Args:
          x: matrices, a list of matrices, or an operator.
          adjoint, adjoint_arg, name: as for other operators.

        Returns:
          Matrices; a list of them if `x` is one.
        """
        if not self._is_cut(x, adjoint):
            return super().matmul(x, adjoint, adjoint_arg, name)
        with self._name_scope(name):
            parts = [array_ops.convert_to_tensor(part) for part in x]
            parts = [math_ops.adjoint(part) for part in parts] if adjoint_arg else parts
            return self._multiplied(parts, adjoint)

    def solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve") -> Any:
        """Solves systems of equations, whose right sides can be a list of parts."""
        if not self._is_cut(rhs, not adjoint):
            return super().solve(rhs, adjoint, adjoint_arg, name)
        self._check_solvable()
        with self._name_scope(name):
            parts = [array_ops.convert_to_tensor(part) for part in rhs]
            parts = [math_ops.adjoint(part) for part in parts] if adjoint_arg else parts
            return self._solved(parts, adjoint)

    def _are_vectors(self, x: Any, by_rows: bool) -> bool:
        blocks = self._row_blocks() if by_rows else self._column_blocks()
        return (
            isinstance(x, (list, tuple))
            and len(x) == len(blocks)
            and all(
                array_ops.is_tensor(part) or hasattr(part, "dtype") or isinstance(part, (list, tuple)) for part in x
            )
        )

    def matvec(self, x: Any, adjoint: bool = False, name: str = "matvec") -> Any:
        """Computes the product with vectors, or with a list of parts."""
        if not self._are_vectors(x, adjoint):
            return super().matvec(x, adjoint, name)
        with self._name_scope(name):
            parts = [array_ops.convert_to_tensor(part)[..., None] for part in x]
            return [part[..., 0] for part in self._multiplied(parts, adjoint)]

    def solvevec(self, rhs: Any, adjoint: bool = False, name: str = "solve") -> Any:
        """Solves a system of equations for vectors, or for a list of parts."""
        if not self._are_vectors(rhs, not adjoint):
            return super().solvevec(rhs, adjoint, name)
        self._check_solvable()
        with self._name_scope(name):
            parts = [array_ops.convert_to_tensor(part)[..., None] for part in rhs]
            return [part[..., 0] for part in self._solved(parts, adjoint)]


def _joined(vectors: Sequence[Any]) -> Any:
    """Joins vectors of batches that broadcast."""
    return array_ops.concat([m[..., 0] for m in broadcast(*[v[..., None] for v in vectors])], axis=-1)


class LinearOperatorBlockDiag(_Blocks):
    """An operator whose diagonal consists of operators.

    Args:
      operators: the operators, from the upper left one on.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the scope; None: the names of the operators, joined by "_ds_".

    Source: TensorFlow's `tf.linalg.LinearOperatorBlockDiag`.
    """

    def __init__(
        self,
        operators: Sequence[LinearOperator],
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        name: str | None = None,
    ) -> None:
        given = arguments(locals())
        self.operators = _check_operators(operators, "block diagonal")
        super().__init__(
            self.operators[0].dtype,
            None,
            _of_all(is_non_singular, self.operators, "is_non_singular"),
            _of_all(is_self_adjoint, self.operators, "is_self_adjoint"),
            _of_all(is_positive_definite, self.operators, "is_positive_definite"),
            is_square,
            name or "_ds_".join(op.name for op in self.operators),
            given,
        )

    def _all(self) -> list[LinearOperator]:
        return self.operators

    _row_blocks = _column_blocks = _all

    def _multiplied(self, parts: list[Any], adjoint: bool) -> list[Any]:
        return [op._matmul(x, adjoint=adjoint) for op, x in zip(self.operators, parts, strict=True)]

    def _solved(self, parts: list[Any], adjoint: bool) -> list[Any]:
        return [op._solve(x, adjoint=adjoint) for op, x in zip(self.operators, parts, strict=True)]

    def _determinant(self) -> Any:
        return functools.reduce(math_ops.multiply, [op.determinant() for op in self.operators])

    def _log_abs_determinant(self) -> Any:
        return functools.reduce(math_ops.add, [op.log_abs_determinant() for op in self.operators])

    def _diag_part(self) -> Any:
        if not all(op.is_square for op in self.operators):
            return super()._diag_part()
        return _joined([op._diag_part() for op in self.operators])

    def _trace(self) -> Any:
        if not all(op.is_square for op in self.operators):
            return super()._trace()
        return functools.reduce(math_ops.add, [op._trace() for op in self.operators])

    def _eigvals(self) -> Any:
        return _joined([op._eigvals() for op in self.operators])

    def _each(self, method: str) -> LinearOperator:
        return LinearOperatorBlockDiag([getattr(op, method)() for op in self.operators], **self._hints())

    def _linop_adjoint(self) -> LinearOperator:
        return self._each("adjoint")

    def _linop_inverse(self) -> LinearOperator:
        return self._each("inverse")

    def _linop_cholesky(self) -> LinearOperator:
        factors = [op.cholesky() for op in self.operators]
        return LinearOperatorBlockDiag(factors, is_non_singular=True, is_self_adjoint=None, is_square=True)

    def _linop_matmul(self, left_operator: LinearOperator, right_operator: LinearOperator) -> LinearOperator:
        if isinstance(right_operator, LinearOperatorBlockDiag) and len(right_operator.operators) == len(self.operators):
            pairs = zip(self.operators, right_operator.operators, strict=True)
            return LinearOperatorBlockDiag([a.matmul(b) for a, b in pairs], is_square=self.is_square)
        return super()._linop_matmul(left_operator, right_operator)


class LinearOperatorBlockLowerTriangular(_Blocks):
    """An operator of rows of operators, whose last ones are on the diagonal.

    Args:
      operators: a list for each row of blocks: one operator, then two, and so on.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints; it is singular if a block of the
        diagonal is.
      name: name of the scope.

    Raises:
      ValueError: a row has another number of operators, or sizes differ.

    Source: TensorFlow's `tf.linalg.LinearOperatorBlockLowerTriangular`.
    """

    def __init__(
        self,
        operators: Sequence[Sequence[LinearOperator]],
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorBlockLowerTriangular",
    ) -> None:
        given = arguments(locals())
        self.operators = [list(row) for row in operators]
        if not self.operators:
            raise ValueError(f"Argument `operators` must be a list of >=1 operators. Received: {operators}.")
        for i, row in enumerate(self.operators):
            if len(row) != i + 1:
                raise ValueError(f"Row {i} must have {i + 1} operators. Received: {len(row)}.")
            if row[-1].is_square is False:
                raise ValueError(f"Matrix on the diagonal of row {i} must be square, got {row[-1]!r}")
            for j, op in enumerate(row):
                rows, columns = row[-1]._known(-2), self.operators[j][-1]._known(-1)
                for axis, known in ((-2, rows), (-1, columns)):
                    if None not in (known, op._known(axis)) and op._known(axis) != known:
                        raise ValueError(
                            f"Operator {j} of row {i} has the shape {op.shape}, expected ({rows}, {columns})"
                        )
        diagonal = [row[-1] for row in self.operators]
        _check_operators(self._all(), "block lower triangular operator")
        if is_square is False:
            raise ValueError("`LinearOperatorBlockLowerTriangular` must be square.")
        if any(op.is_non_singular is False for op in diagonal):
            if is_non_singular:
                raise ValueError("The operator is singular, since a block on the diagonal is")
            is_non_singular = False
        else:
            is_non_singular = _of_all(is_non_singular, diagonal, "is_non_singular")
        super().__init__(
            diagonal[0].dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name, given
        )

    def _all(self) -> list[LinearOperator]:
        return [op for row in self.operators for op in row]

    @property
    def _diagonal(self) -> list[LinearOperator]:
        return [row[-1] for row in self.operators]

    def _row_blocks(self) -> list[LinearOperator]:
        return self._diagonal

    _column_blocks = _row_blocks

    def _rows(self, adjoint: bool) -> list[list[tuple[int, LinearOperator]]]:
        """Returns the columns and operators of each row, of the operator or its adjoint."""
        count = len(self.operators)
        if not adjoint:
            return [list(enumerate(row)) for row in self.operators]
        return [[(i, self.operators[i][j]) for i in range(j, count)] for j in range(count)]

    def _multiplied(self, parts: list[Any], adjoint: bool) -> list[Any]:
        return [
            functools.reduce(math_ops.add, [op._matmul(parts[j], adjoint=adjoint) for j, op in row])
            for row in self._rows(adjoint)
        ]

    def _solved(self, parts: list[Any], adjoint: bool) -> list[Any]:
        found: dict[int, Any] = {}
        order = range(len(parts))
        rows = self._rows(adjoint)
        for i in reversed(order) if adjoint else order:
            rest = parts[i]
            for j, op in rows[i]:
                if j != i:
                    rest = rest - op._matmul(found[j], adjoint=adjoint)
            found[i] = self._diagonal[i]._solve(rest, adjoint=adjoint)
        return [found[i] for i in order]

    def _determinant(self) -> Any:
        return functools.reduce(math_ops.multiply, [op.determinant() for op in self._diagonal])

    def _log_abs_determinant(self) -> Any:
        return functools.reduce(math_ops.add, [op.log_abs_determinant() for op in self._diagonal])

    def _diag_part(self) -> Any:
        return _joined([op._diag_part() for op in self._diagonal])

    def _trace(self) -> Any:
        return functools.reduce(math_ops.add, [op._trace() for op in self._diagonal])

    def _eigvals(self) -> Any:
        return _joined([op._eigvals() for op in self._diagonal])
