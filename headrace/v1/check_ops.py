"""Checks, such as `assert_equal`.

Static values are checked while the graph is built, and others when it runs. TensorFlow 1 runs only operations that a
fetch needs, so a check must be a control input of such an operation:

`with tf.control_dependencies([tf.assert_positive(x)]): y = tf.sqrt(x)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import debugging, grouping, scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.tensors import is_tensor
from headrace.dtypes import DType, as_dtype
from headrace.ir.graph import Operation, Tensor
from headrace.v1.arguments import named
from headrace.v1.graph import get_default_graph, in_default_graph

Assert = in_default_graph(debugging.Assert)
check_numerics = in_default_graph(debugging.check_numerics)
verify_tensor_all_finite = named(
    debugging.assert_all_finite, "t=x msg=message name x message", "verify_tensor_all_finite"
)

_COMPARE = "x y data summarize message name"
assert_equal = named(debugging.assert_equal, _COMPARE)
assert_none_equal = named(debugging.assert_none_equal, _COMPARE)
assert_less = named(debugging.assert_less, _COMPARE)
assert_less_equal = named(debugging.assert_less_equal, _COMPARE)
assert_greater = named(debugging.assert_greater, _COMPARE)
assert_greater_equal = named(debugging.assert_greater_equal, _COMPARE)
_SIGN = "x data summarize message name"
assert_positive = named(debugging.assert_positive, _SIGN)
assert_negative = named(debugging.assert_negative, _SIGN)
assert_non_negative = named(debugging.assert_non_negative, _SIGN)
assert_non_positive = named(debugging.assert_non_positive, _SIGN)
assert_near = named(debugging.assert_near, "x y rtol atol data summarize message name")
_RANK = "x rank data! summarize! message name"
assert_rank = named(debugging.assert_rank, _RANK)
assert_rank_at_least = named(debugging.assert_rank_at_least, _RANK)


@in_default_graph
def assert_rank_in(
    x: Any,
    ranks: Sequence[int],
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Checks that the rank of `x` is one of `ranks`.

    Args:
      x: a tensor.
      ranks: the ranks, ints.
      data: accepted as in TensorFlow, without effect.
      summarize: largest number of elements of each tensor in the message.
      message: prefix of the error message.
      name: name of the scope.

    Raises:
      ValueError: the static rank is known, and is another one. An unknown rank is checked in the run.

    Source: TensorFlow's `tf.assert_rank_in`.
    """
    with scopes.name_scope(name, "assert_rank_in", [x]):
        b = scopes.builder(x)
        x = b.tensor(x, name="x")
        wanted = [int(r) for r in ranks]
        text = f"{message or ''} Tensor {x.name} must have rank in {wanted}.".strip()
        if x.shape is None:
            holds = b.Any(b.Equal(b.Rank(x), np.array(wanted, np.int32)), np.array([0], np.int32))
            checked: Operation = debugging.Assert(holds, [text, "Received shape: ", b.Shape(x)], summarize)
            return checked
        if len(x.shape) not in wanted:
            at = f" (made at {x.op.source})" if x.op.source else ""
            raise ValueError(f"{text} Received rank {len(x.shape)}, shape {x.shape}{at}")
        known: Operation = b.NoOp(name="static_checks_determined_all_ok")
        return known


def _checked(condition: bool, message: str | None, text: str, name: str | None) -> Operation:
    if not condition:
        raise TypeError(f"{message or ''} {text}".strip())
    made: Operation = scopes.builder().NoOp(name=name or "statically_determined_correct_type")
    return made


@in_default_graph
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Checks that `x` has an integer dtype.

    Args:
      x: a tensor.
      message: prefix of the error message.
      name: name of the operation.

    Raises:
      TypeError: `x` has another dtype.

    Source: TensorFlow's `tf.assert_integer`.
    """
    x = scopes.builder(x).tensor(x)
    return _checked(x.dtype.is_integer, message, f'Expected "x" to be integer type. Found: {x.dtype.name}', name)


@in_default_graph
def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Checks that a tensor has a dtype.

    Args:
      tensor: a tensor or `SparseTensor`.
      tf_type: the dtype.
      message: prefix of the error message.
      name: name of the operation.

    Raises:
      TypeError: the tensor has another dtype.

    Source: TensorFlow's `tf.assert_type`.
    """
    x = tensor if isinstance(tensor, SparseTensor) else scopes.builder(tensor).tensor(tensor)
    dtype = as_dtype(tf_type)
    return _checked(x.dtype == dtype, message, f"{x.name} must be of type {dtype.name}. Found: {x.dtype.name}", name)


@in_default_graph
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """Returns `tensor` after a check that its static shape can be that of a scalar.

    Args:
      tensor: the tensor.
      name: accepted as in TensorFlow, without effect.
      message: prefix of the error message.

    Raises:
      ValueError: the static shape is not that of a scalar.

    Source: TensorFlow's `tf.assert_scalar`.
    """
    x: Tensor = scopes.builder(tensor).tensor(tensor)
    if x.shape not in ((), None):
        raise ValueError(f"{message or ''} Expected scalar shape for {x.name}, saw shape: {x.shape}.".strip())
    return x


def assert_proper_iterable(values: Any) -> None:
    """Checks that `values` is an iterable, and not a tensor, array or text.

    Args:
      values: the values.

    Raises:
      TypeError: `values` is a tensor, an array, text, or not an iterable.

    Source: TensorFlow's `tf.assert_proper_iterable`.
    """
    if is_tensor(values) or isinstance(values, (np.ndarray, str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(
            f"Expected argument 'values' to be a list or another iterable of values, got {type(values).__name__}"
        )


def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> DType:
    """Returns the common floating point dtype of tensors; float32 without tensors.

    Args:
      tensors: the tensors; None elements are ignored.
      dtype: the expected dtype, or None.

    Raises:
      ValueError: the dtypes differ, or are not floating point dtypes.

    Source: TensorFlow's `tf.assert_same_float_dtype`.
    """
    found = None if dtype is None else as_dtype(dtype).base
    for t in tensors or ():
        if t is None:
            continue
        own = as_dtype(t.dtype).base
        if found is not None and own != found:
            raise ValueError(f"Tensor {t!r} has dtype {own.name}, expected {found.name} like the others; cast it")
        found = own
    found = found or dtypes.float32
    if not found.is_floating:
        raise ValueError(f"Expected floating point type, got {found.name}.")
    return found


def is_numeric_tensor(tensor: Any) -> bool:
    """Whether `tensor` is a tensor with a numeric dtype.

    Source: TensorFlow's `tf.is_numeric_tensor`.
    """
    return isinstance(tensor, Tensor) and tensor.dtype.base.is_numeric


def _neighbours(x: Any, name: str | None, default: str, op: str) -> Tensor:
    with scopes.name_scope(name, default, [x]):
        b = scopes.builder(x)
        flat = b.Reshape(b.tensor(x), np.array([-1], np.int32))
        n = b.Size(flat)
        zero, one = np.array([0], np.int32), np.array([1], np.int32)
        length = b.Reshape(b.Maximum(b.Sub(n, 1), 0), one)
        before = b.Slice(flat, zero, length)
        after = b.Slice(flat, b.Reshape(b.Minimum(n, 1), one), length)
        made: Tensor = b.All(b.make(op, (before, after), {}), zero)
        return made


@in_default_graph
def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether no element of `x` is less than the one before it (row by row).

    Source: TensorFlow's `tf.is_non_decreasing`.
    """
    return _neighbours(x, name, "is_non_decreasing", "LessEqual")


@in_default_graph
def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether each element of `x` is greater than the one before it (row by row).

    Source: TensorFlow's `tf.is_strictly_increasing`.
    """
    return _neighbours(x, name, "is_strictly_increasing", "Less")


@in_default_graph
def add_check_numerics_ops() -> Operation:
    """Returns an operation that checks all floating tensors for NaN and Inf, in their order.

    The tensors are those that the default graph has now.

    Raises:
      ValueError: a conditional or loop has such a result; `tf.RunOptions(check_numerics=True)` checks these too.
      InvalidArgumentError: in a run, a tensor has one.

    Source: TensorFlow's `tf.add_check_numerics_ops`.
    """
    check: list[Operation] = []
    for op in get_default_graph().get_operations():
        for t in op.outputs:
            if t.dtype not in dtypes.FLOATING:
                continue
            if op.opdef.structured:
                raise ValueError(
                    "add_check_numerics_ops() is not compatible with conditionals and loops, such as "
                    f"{op.name!r}; use tf.RunOptions(check_numerics=True)"
                )
            with scopes.control_dependencies(check):
                check = [debugging.check_numerics(t, f"{op.name}:{t.index}").op]
    made = grouping.group(*check)
    assert made is not None
    return made
