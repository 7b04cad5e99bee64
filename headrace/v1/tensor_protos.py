"""`TensorProto` messages of arrays, as TensorFlow 1 writes and reads them in Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes
from headrace.interchange.files import read_message
from headrace.ir.attr_values import BadTensor
from headrace.ir.conversion import as_array
from headrace.ir.serial import attrs

if TYPE_CHECKING:
    from headrace.pb import TensorProto


_BY_ELEMENTS: Final = (
    dtypes.string,
    dtypes.bool_,
    dtypes.uint16,
)  # dtypes whose elements TensorFlow never writes as one content


def make_tensor_proto(
    values: Any,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> TensorProto:
    """Returns an array as a `TensorProto` message, with TensorFlow's bytes.

    Args:
      values: a number, a text, an array, or nested lists of such.
      dtype: the dtype; None: that of a constant.
      shape: the shape; None: that of the values. The last value stands for elements that are missing.
      verify_shape: whether the values must have the shape.
      allow_broadcast: whether a single value may stand for all elements even if `verify_shape` is set.

    Raises:
      TypeError: a value does not fit the dtype, or the shape with `verify_shape`.
      ValueError: None, or more values than elements.

    Source: TensorFlow's `tf.make_tensor_proto`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.make_ndarray(tf.make_tensor_proto([1.0, 2.0], shape=[2, 2]))
      array([[1., 2.],
             [2., 2.]], dtype=float32)
    """
    from headrace import pb

    if values is None:
        raise ValueError("None values not supported.")
    array = as_array(values, None if dtype is None else dtypes.as_dtype(dtype))
    kind = dtypes.from_numpy(array.dtype)
    sizes = array.shape if shape is None else tuple(int(d) for d in shape)
    if verify_shape and array.shape != sizes and not (allow_broadcast and array.size == 1):
        raise TypeError(f"Expected Tensor's shape: {sizes}, but got {array.shape}.")
    if array.size > math.prod(sizes):
        raise ValueError(f"Too many elements provided. Takes at most {math.prod(sizes)}, but got {array.size}.")
    if 1 < array.size == math.prod(sizes) and kind not in _BY_ELEMENTS and not kind.is_complex:
        return pb.TensorProto.FromString(attrs.write_tensor(array.reshape(sizes), kind))
    proto = pb.TensorProto(tensor_shape=attrs.encode_shape(sizes))
    proto.dtype = kind.number  # type: ignore[assignment]
    attrs.add_elements(proto, array.reshape(-1), kind)
    return proto


def make_ndarray(tensor: Any) -> np.ndarray:
    """Returns the array of a `TensorProto` message; text is `bytes`.

    Args:
      tensor: headrace's message or TensorFlow's.

    Raises:
      TypeError: the message is malformed, or an argument of another type.

    Source: TensorFlow's `tf.make_ndarray`.
    """
    from headrace import pb

    found = attrs.decode_tensor(read_message(pb.TensorProto, tensor))
    if isinstance(found, BadTensor):
        raise TypeError(found.reason)
    return np.array(found)
