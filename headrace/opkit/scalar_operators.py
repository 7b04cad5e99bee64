"""Python operators in place of ufuncs, which are faster on numpy scalars."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np


class ScalarOperator(NamedTuple):
    """Operator in place of a ufunc.

    Attributes:
      text: the expression, with `{}` for each operand.
      function: the function of the operands; on arrays it calls the ufunc.
      kinds: the kinds of the dtypes for which the results are equal to those of the ufunc.
    """

    text: str
    function: Callable[..., Any]
    kinds: str


SCALAR_OPERATORS: Final[Mapping[np.ufunc, ScalarOperator]] = {
    np.add: ScalarOperator("{} + {}", operator.add, "iuf"),
    np.subtract: ScalarOperator("{} - {}", operator.sub, "iuf"),
    np.multiply: ScalarOperator("{} * {}", operator.mul, "iuf"),
    np.divide: ScalarOperator("{} / {}", operator.truediv, "f"),
    np.negative: ScalarOperator("-{}", operator.neg, "if"),
    np.absolute: ScalarOperator("abs({})", operator.abs, "f"),
    np.less: ScalarOperator("{} < {}", operator.lt, "iuf"),
    np.less_equal: ScalarOperator("{} <= {}", operator.le, "iuf"),
    np.greater: ScalarOperator("{} > {}", operator.gt, "iuf"),
    np.greater_equal: ScalarOperator("{} >= {}", operator.ge, "iuf"),
    np.equal: ScalarOperator("{} == {}", operator.eq, "iufb"),
    np.not_equal: ScalarOperator("{} != {}", operator.ne, "iufb"),
    np.bitwise_and: ScalarOperator("{} & {}", operator.and_, "iub"),
    np.bitwise_or: ScalarOperator("{} | {}", operator.or_, "iub"),
    np.bitwise_xor: ScalarOperator("{} ^ {}", operator.xor, "iub"),
    np.logical_and: ScalarOperator("{} & {}", operator.and_, "b"),
    np.logical_or: ScalarOperator("{} | {}", operator.or_, "b"),
    np.logical_not: ScalarOperator("~{}", operator.invert, "b"),
}


def in_place_of(kernel: Callable[..., Any], dtype: np.dtype) -> Callable[..., Any]:
    """Returns the operator in place of a ufunc for operands of `dtype`; other kernels unchanged."""
    found = SCALAR_OPERATORS.get(kernel) if isinstance(kernel, np.ufunc) else None
    return kernel if found is None or dtype.kind not in found.kinds else found.function


def takes_numbers(kernel: Callable[..., Any]) -> bool:
    """Whether Python numbers as operands of a kernel count as scalars of its dtype.

    This holds for Python's operators with two operands, if the number is in the range of the dtype.
    """
    return kernel in _OPERATORS


_OPERATORS: Final = frozenset(o.function for u, o in SCALAR_OPERATORS.items() if u.nin == 2)
