"""Element types and tensors of ONNX's messages as dtypes and arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    import onnx

#: Dtypes by the number of the element type in `onnx.TensorProto`.
DTYPES: Final[dict[int, DType]] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    8: dtypes.string,
    9: dtypes.bool_,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    14: dtypes.complex64,
    15: dtypes.complex128,
    16: dtypes.bfloat16,
    17: dtypes.float8_e4m3fn,
    18: dtypes.float8_e4m3fnuz,
    19: dtypes.float8_e5m2,
    20: dtypes.float8_e5m2fnuz,
    21: dtypes.uint4,
    22: dtypes.int4,
    23: dtypes.float4_e2m1fn,
    25: dtypes.uint2,
    26: dtypes.int2,
}

#: Numbers of the element types by dtype.
NUMBERS: Final = {dtype: number for number, dtype in DTYPES.items()}

#: Largest number of elements of a sparse initializer, which a few bytes could otherwise make arbitrarily large.
LARGEST_SPARSE: Final = 1 << 28


def dtype_of(number: int, what: str) -> DType:
    """Returns the dtype of an element type of ONNX.

    Args:
      number: the number of the type in `onnx.TensorProto`.
      what: the value with this type, for the error text.

    Raises:
      UnimplementedError: headrace has no such dtype.
    """
    found = DTYPES.get(number)
    if found is None:
        raise UnimplementedError(f"{what} has ONNX's element type {number}, which headrace does not have")
    return found


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """Returns the elements of a tensor that is stored in its message; strings as bytes.

    Raises:
      InvalidArgumentError: the data do not fit the shape, or are in another file.
      UnimplementedError: headrace does not have the element type.
    """
    import onnx

    what = f"the tensor {tensor.name!r}"
    dtype = dtype_of(tensor.data_type, what)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise InvalidArgumentError(f"{what} is in another file, which only hr.onnx.load(path) reads")
    if any(d < 0 for d in tensor.dims):
        raise InvalidArgumentError(f"{what} has the shape {tuple(tensor.dims)}")
    try:
        if dtype == dtypes.string:
            strings = np.empty(len(tensor.string_data), object)
            strings[:] = list(tensor.string_data)
            return strings.reshape(tuple(tensor.dims))
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as e:
        raise InvalidArgumentError(f"{what} of shape {tuple(tensor.dims)} is damaged: {e}") from e


def sparse_array_of(tensor: onnx.SparseTensorProto) -> np.ndarray:
    """Returns a sparse tensor as a dense array.

    Raises:
      InvalidArgumentError: the tensor is damaged or has more than `LARGEST_SPARSE` elements.
    """
    name, dims = tensor.values.name, tuple(tensor.dims)
    size = math.prod(dims)
    if any(d < 0 for d in dims) or size > LARGEST_SPARSE:
        raise InvalidArgumentError(f"the sparse tensor {name!r} has the shape {dims}; the limit is 2**28 elements")
    values, indices = array_of(tensor.values), array_of(tensor.indices)
    if indices.ndim == 2 and indices.shape[1] == len(dims):
        flat = np.zeros(len(indices), np.int64)
        for column, d in zip(indices.T, dims, strict=True):
            if ((column < 0) | (column >= d)).any():
                raise InvalidArgumentError(f"the sparse tensor {name!r} has an index outside of its shape {dims}")
            flat = flat * d + column
    else:
        flat = indices.reshape(-1)
    if values.ndim != 1 or len(values) != len(flat) or ((flat < 0) | (flat >= size)).any():
        raise InvalidArgumentError(f"the sparse tensor {name!r} has values or indices that do not fit its shape {dims}")
    out = np.zeros(size, values.dtype)
    out[flat] = values
    return out.reshape(dims)


def as_text(x: Any) -> str:
    """Returns the text of an attribute or element that is bytes."""
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x)
