"""The eager tensor: an array with headrace's dtypes and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import operators, recorder, scopes
from headrace.api.traced_graph import traced_graph
from headrace.errors import GraphError
from headrace.ir.tensor_type import Tensor
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.dtypes import DType
    from headrace.resources.values import Value


class EagerTensor(Tensor):
    """A tensor with a value: the result of an op outside of graphs.

    It is immutable. Comparisons are elementwise, so it is not hashable. In a graph it becomes a constant.

    Attributes:
      dtype: the element type.
      shape: a tuple of ints.

    Source: TensorFlow's `tf.Tensor`, executing eagerly.

    Example:
      >>> import headrace as hr
      >>> x = hr.constant([1.0, 2.0])
      >>> x + 1
      <EagerTensor shape=[2] dtype=float32: array([2., 3.], dtype=float32)>
      >>> (x * x).numpy()
      array([1., 4.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_value", "dtype")

    __array_priority__ = 100.0  # numpy's operators leave the operation to this class
    __eq__ = operators.equal
    __ne__ = operators.not_equal
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, dtype: DType) -> None:
        """For internal use: `value` has the form of values between kernels, and never changes.

        Args:
          value: the value, see `resources.values`.
          dtype: the element type.
        """
        self._value = value
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self._value)

    @property
    def device(self) -> str:
        """Full name of the device that has the value."""
        return "/job:localhost/replica:0/task:0/device:CPU:0"

    def numpy(self) -> Any:
        """Returns the value as an array that the caller may write into.

        A tensor of rank 0 becomes a numpy scalar (`bytes` for a string). A resource or variant is returned as the
        object itself.
        """
        value = self._value
        if not isinstance(value, np.ndarray):
            return value
        return value.copy() if value.ndim else value[()]

    def as_tensor(self, b: Any) -> Any:
        """Returns this tensor for an eager builder `b`, a constant or placeholder for another."""
        if b.graph is None:
            return self
        trace = traced_graph(b.graph)
        captured = None if trace is None else trace.own(self)
        if captured is not None:
            return captured
        if self.dtype.base in (dtypes.resource, dtypes.variant):
            raise GraphError(
                f"an eager tensor of dtype {self.dtype.name} was used in a graph, where only values can become "
                "constants; make it inside `with g:`"
            )
        return b.const(self._value, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self._value, dtype)
        if copy is False or array is not self._value:
            return array
        copied: np.ndarray = array.copy()
        return copied

    def _scalar(self, what: str) -> Any:
        value = self._value
        if shape_of(value) and np.size(value) != 1:
            raise TypeError(f"{what} of a tensor of shape {shapes.show(self.shape)}; only a single value can be one")
        return np.asarray(value).item()

    def __bool__(self) -> bool:
        if shape_of(self._value) and np.size(self._value) != 1:
            raise ValueError(
                f"The truth value of a tensor of shape {shapes.show(self.shape)} is ambiguous; reduce it to one value "
                "(hr.reduce_any, hr.reduce_all)"
            )
        return bool(self._scalar("bool()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if self.shape or not self.dtype.is_integer:
            raise TypeError(f"only an integer scalar can be an index, not {self!r}")
        return int(self._value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a scalar tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[EagerTensor]:
        if not self.shape:
            raise TypeError("a scalar tensor cannot be iterated over")
        if recorder.active.get():
            return iter(nest.as_list(scopes.runtime().eager.Unpack(self, num=self.shape[0])))
        rows = self._value
        # the rows of a vector of strings stay arrays; those of handles are bare objects
        return (
            EagerTensor(rows[i, ...] if self.dtype is dtypes.string else rows[i], self.dtype) for i in range(len(rows))
        )

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec and not self.shape else format(str(self), spec)

    def __repr__(self) -> str:
        return f"<EagerTensor shape={shapes.show(self.shape)} dtype={self.dtype.name}: {self.numpy()!r}>"

    def __str__(self) -> str:
        return str(self.numpy())

    def __copy__(self) -> EagerTensor:
        return self

    def __deepcopy__(self, memo: object) -> EagerTensor:
        return self

    def __reduce__(self) -> Any:
        if self.dtype.base is dtypes.resource:
            raise TypeError(
                f"an eager tensor of dtype resource, the handle of {self._value!r}, means something in this process "
                "only and cannot be pickled; pickle what is in the resource"
            )
        return EagerTensor, (self._value, self.dtype)
