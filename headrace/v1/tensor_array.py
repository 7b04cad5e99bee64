"""TensorFlow 1's TensorArray: in the default graph, with elements that are written once."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import tensor_array
from headrace.dtypes import as_dtype
from headrace.ir.builder import Builder
from headrace.v1.graph import in_default_graph
from headrace.v1.tensor_shape import TensorShape


class TensorArray(tensor_array.TensorArray):
    """Array of tensors of one dtype. See `headrace.TensorArray`.

    As in TensorFlow 1, all that `write`, `unstack` and the like return is the same array. When the step runs, each
    element may be written once, and not after it was read. `read`, `gather`, `stack` and `concat` clear the elements
    that they return, unless the array is made with `clear_after_read=False`. (Of an array in the function of a
    `py_function`, nothing is checked.)

    Raises (when it runs):
      InvalidArgumentError: an element is written twice, written after it was read, or read after it was cleared.

    Source: TensorFlow's `tf.TensorArray`.

    Example:
      >>> import headrace.v1 as tf
      >>> array = tf.TensorArray(tf.float32, size=2).unstack([1.0, 2.0])
      >>> both = [array.read(0), array.read(0)]
      >>> tf.Session().run(both)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      headrace.errors.InvalidArgumentError: ...Could not read index 0 twice because it was cleared after a previous ...
    """

    __init__ = in_default_graph(tensor_array.TensorArray.__init__)

    def _made(self, b: Any, flow: Any, clear_after_read: bool | None, name: str | None) -> Any:
        if not isinstance(b, Builder):
            return flow
        attrs = {"tensor_array_name": name or "", "clear_after_read": clear_after_read is not False}
        return b.make("_TensorArrayTrack", (flow,), attrs, "Track")

    def _refilled(self, b: Any, flow: Any) -> Any:
        return b.make("_TensorArrayRefill", (flow, self._flow), {}, "Refill") if isinstance(b, Builder) else flow

    def _reading(self, b: Any, indices: Any = None) -> Any:
        return self._marked(b, "Read", indices)

    def _writing(self, b: Any, indices: Any) -> Any:
        return self._marked(b, "Written", indices)

    def _marked(self, b: Any, how: str, indices: Any) -> Any:
        if not isinstance(b, Builder):
            return b
        at = b.const(0) if indices is None else indices
        return b.after(b.make(f"_TensorArrayMark{how}", (self._flow, at), {"all": indices is None}, f"Mark{how}"))


class TensorArraySpec:
    """The dtype and the shape of the elements of a `TensorArray`.

    Args:
      element_shape: shape of each element; None: any shape.
      dtype: dtype of the elements.
      dynamic_size: whether the array grows.
      infer_shape: whether all elements have one shape.

    Source: TensorFlow's `tf.TensorArraySpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> spec = tf.TensorArraySpec([2], tf.float32)
      >>> with tf.Graph().as_default():
      ...     array = tf.TensorArray(tf.float32, 3, element_shape=[2])
      ...     tf.TensorArraySpec.from_value(array) == spec, spec.is_compatible_with(array)
      (True, True)
    """

    value_type = TensorArray

    def __init__(
        self,
        element_shape: Any = None,
        dtype: Any = dtypes.float32,
        dynamic_size: bool = False,
        infer_shape: bool = True,
    ) -> None:
        self._element_shape = TensorShape(element_shape)
        self._dtype = as_dtype(dtype)
        self._dynamic_size = dynamic_size
        self._infer_shape = infer_shape

    @classmethod
    def from_value(cls, value: TensorArray) -> TensorArraySpec:
        """Describes an array."""
        return cls(value.element_shape, value.dtype, value.dynamic_size, value._infer_shape)

    def _key(self) -> Any:
        dims = None if self._element_shape.ndims is None else tuple(self._element_shape.as_list())
        return dims, self._dtype, self._dynamic_size, self._infer_shape

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a description, or an array, can have a common value with this one."""
        is_array = isinstance(spec_or_value, TensorArray)
        other = self.from_value(spec_or_value) if is_array else spec_or_value
        return (
            isinstance(other, TensorArraySpec)
            and self._key()[1:3] == other._key()[1:3]
            and self._element_shape.is_compatible_with(other._element_shape)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorArraySpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"TensorArraySpec({self._element_shape!r}, {self._dtype!r}, {self._dynamic_size}, {self._infer_shape})"
