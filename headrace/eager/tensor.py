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
        shape: tuple[int, ...] = getattr(self._value, "shape", ())  # `shape_of`, without the call
        return shape

    @property
    def device(self) -> str:
        """Full name of the device that has the value."""
        return "/job:localhost/replica:0/task:0/device:CPU:0"

    def numpy(self) -> Any:
        """Returns the value as an array that the caller may write into.

        A tensor of rank 0 becomes a numpy scalar (`bytes` for a string). A resource or variant is returned as the
        object itself.
        """
        if recorder.active.get():
            recorder.left(self)
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
        """Returns the value as an array: a read-only view, or a writable copy.

        Args:
          dtype: the numpy dtype of the array; None: that of the value.
          copy: True for a copy, False for a view, None for a view if the dtype is that of the value.

        Raises:
          ValueError: `copy` is False and the dtype is another one.
        """
        if recorder.active.get():
            recorder.left(self)
        value = np.asarray(self._value)
        if copy or (dtype is not None and value.dtype != dtype):
            if copy is False:
                raise ValueError(f"a tensor of dtype {self.dtype.name} is no array of {np.dtype(dtype)} without a copy")
            return np.array(value, dtype)
        view = value.view()
        view.flags.writeable = False
        return view

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Computes a ufunc of numpy by headrace's function, or by numpy on the values."""
        from headrace.eager.array_api import of_ufunc  # it imports this module

        function = of_ufunc(ufunc) if method == "__call__" and not kwargs else None
        if function is not None:
            return function(*inputs)
        arrays = [np.asarray(x) if isinstance(x, EagerTensor) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Returns the functions of the Python array API standard; see `eager.array_api`.

        Args:
          api_version: a version of the standard; versions later than 2023.12 are refused.

        Raises:
          ValueError: the version is unknown.
        """
        if api_version not in (None, "2021.12", "2022.12", "2023.12"):
            raise ValueError(f"api_version={api_version!r} of the array API standard is unknown; the latest is 2023.12")
        from headrace.eager.array_api import NAMESPACE  # it imports this module

        return NAMESPACE

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns the value as a DLPack capsule.

        A consumer of DLPack 1.0 or later gets a read-only view of the value. Earlier versions have no mark for
        read-only memory, so their consumers get a copy.

        Args:
          stream: None, since the value is on the CPU.
          max_version: the latest version of DLPack that the consumer knows.
          dl_device: the device of the result; None or that of the CPU.
          copy: True for a copy; False for a view or an error.

        Raises:
          BufferError: the value has no DLPack form (a string, a handle), or there is no view for the consumer.

        Source: https://dmlc.github.io/dlpack/latest/python_spec.html
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on the CPU, not on DLPack's device {tuple(dl_device)}; convert it there")
        is_safe = max_version is not None and max_version[0] >= 1
        if copy is False and not is_safe:
            raise BufferError("the tensor is immutable, and this consumer of DLPack would not know; let it copy")
        if self.dtype in dtypes.OBJECT:
            raise BufferError(f"a tensor of dtype {self.dtype.name} has no DLPack form")
        array = self.__array__(copy=copy or not is_safe)
        return array.__dlpack__(max_version=max_version) if is_safe else array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's number of the CPU, and the number of the device."""
        return 1, 0

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
        if recorder.active.get():
            recorder.left(self)
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        if recorder.active.get():
            recorder.left(self)
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        if recorder.active.get():
            recorder.left(self)
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
            parts = scopes.runtime().eager.Unpack(self, num=self.shape[0]) if self.shape[0] else ()
            return iter(nest.as_list(parts))
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


def from_dlpack(x: Any, /, *, device: None = None, copy: bool | None = None) -> EagerTensor:
    """Converts an array of another library to an eager tensor by the DLPack protocol.

    Args:
      x: an object with the methods `__dlpack__` and `__dlpack_device__`, on the CPU.
      device: None, since eager tensors are on the CPU.
      copy: whether to copy the elements. None: yes, unless `x` is an eager tensor. If False, the tensor shares the
        memory, which must not change any more.

    Raises:
      TypeError: `x` has no such methods, or headrace has no tensors of its dtype.
      BufferError: the elements cannot be accessed, such as those on another device.

    Source: the function of that name of the Python array API standard.

    Example:
      >>> import numpy as np
      >>> import headrace as hr
      >>> hr.from_dlpack(np.arange(3))
      <EagerTensor shape=[3] dtype=int64: array([0, 1, 2])>
    """
    if isinstance(x, EagerTensor) and not copy:
        return x
    if device is not None:
        raise ValueError(f"from_dlpack: device must be None, since eager tensors are on the CPU; got {device!r}")
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: {nest.describe(x)} has no method __dlpack__; use hr.constant(x)")
    array = np.from_dlpack(x)
    array = array.copy() if copy is not False else array.view()
    array.flags.writeable = False
    return EagerTensor(array if array.ndim else array[()], dtypes.from_numpy(array.dtype))
