"""`and`, `or`, `not`, comparisons by value, membership, `assert`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from headrace import dtypes
from headrace.api import debugging, math, reductions, scopes
from headrace.autograph.operators import values
from headrace.autograph.operators.branches import Assigned, failure, if_exp
from headrace.autograph.operators.lists import TensorList, decider
from headrace.errors import AutographError


def and_(first: Any, *rest: Callable[[], Any], state: Assigned | None = None) -> Any:
    """Returns `first and rest[0]() and ...`; `state` is that of `if_exp`."""
    for k, operand in enumerate(rest):
        first = decider(first)
        if values.is_symbolic(first):
            later = functools.partial(_chain, and_, operand, rest[k + 1 :], state)
            return if_exp(first, later, _constant(first, True), state)
        if not first:
            return first
        first = operand()
    return first


def or_(first: Any, *rest: Callable[[], Any], state: Assigned | None = None) -> Any:
    """Returns `first or rest[0]() or ...`; `state` is that of `if_exp`."""
    for k, operand in enumerate(rest):
        first = decider(first)
        if values.is_symbolic(first):
            later = functools.partial(_chain, or_, operand, rest[k + 1 :], state)
            return if_exp(first, _constant(first, False), later, state)
        if first:
            return first
        first = operand()
    return first


def _chain(
    join: Callable[..., Any], operand: Callable[[], Any], rest: tuple[Callable[[], Any], ...], state: Assigned | None
) -> Any:
    return join(operand(), *rest, state=state)


def _constant(x: Any, negative: bool) -> Callable[[], Any]:
    """Returns a function that returns an operand which the operator has tested."""
    is_bool = x.dtype.base.name == "bool"
    return (lambda: not negative) if is_bool else (lambda: x)


def not_(x: Any) -> Any:
    """Returns `not x`."""
    x = decider(x)
    if values.is_symbolic(x):
        return math.logical_not(values.truth(x, "the operand of 'not'"))
    return not x


def eq(first: Any, second: Any) -> Any:
    """Returns `first == second`; tensors are compared by value."""
    if values.is_symbolic(first) or values.is_symbolic(second):
        return _compared("Equal", first, second, False)
    return first == second


def ne(first: Any, second: Any) -> Any:
    """Returns `first != second`; tensors are compared by value."""
    if values.is_symbolic(first) or values.is_symbolic(second):
        return _compared("NotEqual", first, second, True)
    return first != second


def is_constant(x: Any, value: bool | None) -> Any:
    """Returns whether `x` is True, False or None, as a tensor too."""
    if value is None or not values.is_tensor(x) or values.dtype_of(x) is not dtypes.bool_ or x.shape != ():
        return x is value
    return x if value else not_(x)


def _compared(type: str, first: Any, second: Any, otherwise: bool) -> Any:
    for x in (first, second):
        if x is None or (not values.is_tensor_like(x) and not isinstance(x, (str, bytes, list, tuple, TensorList))):
            return (first == second) if type == "Equal" and hasattr(x, "as_tensor") else otherwise
    text = [x for x in (first, second) if isinstance(x, (str, bytes))]
    other = first if values.is_symbolic(first) else second
    if text and other.dtype.base.name != "string":
        return otherwise
    b = scopes.builder(first, second)
    return b.make(type, (first, second), {"incompatible_shape_error": False})


def in_(x: Any, container: Any) -> Any:
    """Returns `x in container`; tensors are compared by value.

    Raises:
      AutographError: a tensor is looked for among the keys of a dictionary or in a set.
    """
    if values.is_symbolic(x) and isinstance(container, (dict, set, frozenset)):
        raise AutographError(
            f"{values.described(x)} is looked for in a {type(container).__name__}, whose keys Python must know; use a "
            "list, or compare with each key"
        )
    if isinstance(container, TensorList):
        container = container.stack()
    if values.is_symbolic(container):
        return math.equal(container, x) if container.static_shape == () else _any(math.equal(container, x))
    if not isinstance(container, (list, tuple, range)):
        return x in container
    if not values.is_symbolic(x) and not any(map(values.is_symbolic, container)):
        return x in container
    found: Any = False
    for item in container:
        if item is x:
            return True
        same = eq(item, x)
        if values.is_symbolic(same):
            same = _all(same)
            found = same if found is False else math.logical_or(found, same)
        elif same:
            return True
    return found


def not_in(x: Any, container: Any) -> Any:
    """Returns `x not in container`."""
    return not_(in_(x, container))


def _any(x: Any) -> Any:
    return reductions.reduce_any(x)


def _all(x: Any) -> Any:
    return x if x.static_shape == () else reductions.reduce_all(x)


def compare(first: Any, op: Callable[[Any, Any], Any], second: Any, *rest: Any, state: Assigned | None = None) -> Any:
    """Returns a chained comparison; each operand is evaluated once, and later ones only if needed.

    Args:
      first: the first operand.
      op: the first operator.
      second: the second operand.
      rest: more operators, each with a function that returns the operand.
      state: see `if_exp`.
    """
    holds = op(first, second)
    if not rest:
        return holds
    later, operand, *more = rest
    return and_(holds, lambda: compare(second, later, operand(), *more, state=state), state=state)


def decided(x: Any) -> Any:
    """Returns the condition of a comprehension over a Python object.

    Raises:
      AutographError: it is a symbolic tensor.
    """
    if values.is_symbolic(x):
        raise AutographError(
            "a tensor decides the 'if' of a comprehension, whose length would depend on it; append in a 'for' "
            f"statement, or use hr.boolean_mask. The condition is {values.described(x)}"
        )
    return x


def assert_(test: Any, message: Callable[[], Any] | None = None) -> None:
    """Checks a condition now, or when the graph runs if it is a symbolic tensor.

    Raises:
      AssertionError: the condition is a false value of Python.
    """
    if values.is_symbolic(test):
        found = "assertion failed" if message is None else message()
        data = found if isinstance(found, (tuple, list)) else [found]
        shown = [x if values.is_tensor_like(x) or isinstance(x, str) else str(x) for x in data]
        debugging.Assert(values.truth(test, "the condition of 'assert'"), shown)
    elif not test:
        raise failure(AssertionError(*([] if message is None else [message()])))
