"""Tensors from values: `constant`, `placeholder`, `convert_to_tensor` and related functions."""

from __future__ import annotations

import math
from typing import Any, TypeVar, overload

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.errors import ShapeError
from headrace.ir import infer
from headrace.ir.conversion import as_array
from headrace.ir.graph import Tensor as SymbolicTensor
from headrace.ir.tensor_type import Tensor

C = TypeVar("C", bound=nest.Composite)


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const") -> Tensor:
    """Creates a tensor with a constant value.

    Args:
      value: a number, text, an array, or nested lists of them.
      dtype: the dtype of the tensor. If None, Python floats become float32, ints int32 (int64 if too large), and arrays
        keep their dtype.
      shape: the shape of the tensor. A single value fills it; otherwise the number of elements must be equal.
      name: the name of the operation.

    Returns:
      The tensor.

    Raises:
      TypeError: the value has another type, cannot be converted to the dtype, or is a tensor already.
      ShapeError (a ValueError): the value has another number of elements.

    Source: TensorFlow's `tf.constant`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.constant([1, 2, 3, 4], shape=(2, 2))
      <Tensor 'Const:0' shape=[2,2] dtype=int32>
    """
    if isinstance(value, SymbolicTensor):
        raise TypeError(
            f"a constant needs a value, got the symbolic tensor {value.name!r}; use it as it is (or identity)"
        )
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    array = as_array(value, dtype)
    if shape is not None:
        array = _shaped(array, shape)
    return scopes.builder().const(array, dtype, name)


def _shaped(array: np.ndarray, shape: Any) -> np.ndarray:
    wanted = known_shape(shape, "a constant")
    size = math.prod(wanted)
    if array.size == size:
        return array.reshape(wanted)
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), wanted)
    raise ShapeError(
        f"a constant of shape {shapes.show(wanted)} has {size} elements, but the value given has {array.size} (shape "
        f"{shapes.show(array.shape)}); give as many, or one to fill it"
    )


def known_shape(shape: Any, what: str) -> tuple[int, ...]:
    """Returns the shape of `what`, which must be known statically.

    Raises:
      ShapeError: the shape is unknown, or a dimension is negative.
    """
    dims = shapes.as_shape([shape] if isinstance(shape, (int, np.integer)) else shape)
    known = [d for d in dims or () if d is not None]
    if dims is None or len(known) < len(dims):
        raise ShapeError(f"the shape of {what} must be known, with dimensions of 0 or more, got {shape!r}")
    return tuple(known)


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """Creates a tensor whose value is fed when the graph runs.

    Args:
      dtype: the dtype of the fed values.
      shape: the static shape: a tuple with None for unknown dimensions, or None for an unknown rank.
      name: the name of the operation; "Placeholder" if None.

    Returns:
      The tensor.

    Raises:
      GraphError: no graph has been entered.
      InvalidArgumentError: in a run without a value for it.

    Source: TensorFlow's `tf.placeholder`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (None, 2), name="x")
      >>> hr.Session(graph=g).run(x * 2.0, {x: [[1.0, 2.0]]})
      array([[2., 4.]], dtype=float32)
    """
    b = scopes.graph_builder("placeholder")
    made: Tensor = b.make(
        "Placeholder", (), {"dtype": dtypes.as_dtype(dtype), "shape": shapes.as_shape(shape)}, name or "Placeholder"
    )
    return made


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """Creates a tensor with the value of `input` unless another value is fed.

    Args:
      input: the default value.
      shape: a shape that fits all fed values and `input`.
      name: the name of the operation; "PlaceholderWithDefault" if None.

    Returns:
      The tensor.

    Source: TensorFlow's `tf.placeholder_with_default`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder_with_default(1, ())
      >>> session = hr.Session(graph=g)
      >>> session.run(x), session.run(x, {x: 5})
      (np.int32(1), np.int32(5))
    """
    b = scopes.graph_builder("placeholder_with_default")
    made: Tensor = b.make("PlaceholderWithDefault", (input,), {"shape": shapes.as_shape(shape)}, name)
    return made


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
) -> Tensor:
    """Converts `value` to a tensor.

    A tensor is returned unchanged, other values become constants, and lists that contain tensors are stacked.

    Args:
      value: a tensor, a variable, a number, an array, or nested lists of them.
      dtype: the required dtype, or None.
      name: the name of a new constant.
      preferred_dtype, dtype_hint: the dtype to use if the value can be converted to it.

    Returns:
      The tensor.

    Raises:
      TypeError: the value cannot be converted to a tensor, or not to one of `dtype`.

    Source: TensorFlow's `tf.convert_to_tensor`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     x = hr.placeholder(hr.float32, ())
      ...     hr.convert_to_tensor([x, 1.0])
      <Tensor 'packed:0' shape=[2] dtype=float32>
    """
    b = scopes.builder(value)
    hint = dtype_hint if preferred_dtype is None else preferred_dtype
    if dtype is None and hint is not None:
        try:
            return b.tensor(value, dtypes.as_dtype(hint), name or "Const")
        except TypeError:
            pass
    return b.tensor(value, None if dtype is None else dtypes.as_dtype(dtype), name or "Const")


def constant_value(tensor: Any) -> np.ndarray | None:
    """Returns the value of `tensor` if it is known without running the graph, else None.

    It is known for constants and for results of small constants; also for eager tensors, numbers and arrays.

    Source: TensorFlow's `tf.get_static_value`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.constant_value(hr.constant([1, 2]) + 1)
      array([2, 3], dtype=int32)
    """
    if isinstance(tensor, SymbolicTensor):
        return infer.constant_value(tensor)
    if nest.is_composite(tensor):
        return None
    if not is_tensor(tensor):
        return as_array(tensor)
    is_variable = hasattr(type(tensor), "assign")  # a variable's value may change
    return np.asarray(tensor.numpy()) if hasattr(tensor, "numpy") and not is_variable else None


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor, symbolic or eager, or represents one (a variable).

    Source: TensorFlow's `tf.is_tensor`.

    Example:
      >>> import headrace as hr
      >>> hr.is_tensor(hr.constant(1)), hr.is_tensor(1)
      (True, False)
    """
    return isinstance(x, SymbolicTensor) or hasattr(type(x), "as_tensor")


@overload
def identity(input: C, name: str | None = None) -> C: ...
@overload
def identity(input: Any, name: str | None = None) -> Tensor: ...
def identity(input: Any, name: str | None = None) -> Any:
    """Returns a tensor with the value of `input`, the output of a new operation.

    The operation can wait for others. For a composite (`SparseTensor`, `IndexedSlices`) it returns a composite of such
    tensors.

    Source: TensorFlow's `tf.identity`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.identity(hr.constant(3) * 2, name="result")
      >>> hr.Session(graph=g).run("result:0")
      np.int32(6)
    """
    if nest.is_composite(input):
        return nest.map_leaves(identity, input)
    return scopes.builder(input).make("Identity", (input,), {}, name)


def identity_n(input: Any, name: str | None = None) -> list[Tensor]:
    """Returns tensors with the values of the list `input`, each available only when all are.

    Source: TensorFlow's `tf.identity_n`.

    Example:
      >>> import headrace as hr
      >>> hr.identity_n([1, 2])
      [<EagerTensor shape=[] dtype=int32: np.int32(1)>, <EagerTensor shape=[] dtype=int32: np.int32(2)>]
    """
    return nest.as_list(scopes.builder(*input).make("IdentityN", (list(input),), {}, name))


@overload
def stop_gradient(input: C, name: str | None = None) -> C: ...
@overload
def stop_gradient(input: Any, name: str | None = None) -> Tensor: ...
def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Returns `input`, a tensor or composite, as a constant for gradients.

    Source: TensorFlow's `tf.stop_gradient`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.constant(3.0)
      ...     dx = hr.gradients(x * hr.stop_gradient(x), [x])
      >>> hr.Session(graph=g).run(dx)
      [np.float32(3.0)]
    """
    if nest.is_composite(input):
        return nest.map_leaves(stop_gradient, input)
    return scopes.builder(input).make("StopGradient", (input,), {}, name)


def prevent_gradient(input: Any, message: str = "", name: str | None = None) -> Tensor:
    """Returns `input`; a gradient through it is an error with the text `message`.

    Source: TensorFlow's `tf.raw_ops.PreventGradient`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, ())
      ...     y = hr.prevent_gradient(x, "not differentiable")
      >>> hr.Session(graph=g).run(y, {x: 2.0})
      np.float32(2.0)
    """
    return scopes.builder(input).make("PreventGradient", (input,), {"message": message}, name)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """Returns `x` with the static shape `shape`, which is checked at run time.

    Source: TensorFlow's `tf.ensure_shape`.

    Example:
      >>> import headrace as hr
      >>> hr.ensure_shape([1, 2], (None,))
      <EagerTensor shape=[2] dtype=int32: array([1, 2], dtype=int32)>
    """
    return scopes.builder(x).make("EnsureShape", (x,), {"shape": shapes.as_shape(shape)}, name)


def narrow(x: Any, shape: Any) -> None:
    """Refines the static shape of a symbolic tensor by `shape`; eager tensors have full shapes."""
    if hasattr(x, "set_shape"):
        x.set_shape(shape)


def pair(b: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Returns both arguments of a binary function as tensors; a number takes the other's dtype.

    Raises:
      TypeError: an argument cannot be converted.
    """
    if is_tensor(x) or not is_tensor(y):
        x = b.tensor(x, None, "x")
        return x, b.tensor(y, None if is_tensor(y) else x.dtype.base, "y")
    y = b.tensor(y, None, "y")
    return b.tensor(x, y.dtype.base, "x"), y


def floats(b: Any, x: Any, name: str) -> Any:
    """Returns `x` as a tensor; Python integers become float32."""
    if not is_tensor(x) and np.asarray(x).dtype.kind in "iu":
        return b.tensor(np.asarray(x, np.float32), None, name)
    return b.tensor(x, None, name)


def shape_tensor(b: Any, shape: Any) -> Any:
    """Returns a shape as an integer vector; known shapes become an int32 constant."""
    if isinstance(shape, (int, np.integer)):
        shape = [shape]
    if isinstance(shape, (list, tuple)) and not shape:
        return b.const(np.zeros(0, np.int32), None, "shape")
    return b.tensor(shape, None, "shape")
