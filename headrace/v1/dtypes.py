"""TensorFlow 1's `tf.dtypes`."""

# ruff: noqa: F401 - the names are for importers of this module

from typing import TYPE_CHECKING

from headrace import dtypes as _dtypes
from headrace import public_names
from headrace.dtypes import QUANTIZED as QUANTIZED_DTYPES
from headrace.dtypes import DType as DType
from headrace.dtypes import as_dtype as as_dtype
from headrace.dtypes import bfloat16 as bfloat16
from headrace.dtypes import bool_ as bool
from headrace.dtypes import complex64 as complex64
from headrace.dtypes import complex128 as complex128
from headrace.dtypes import float16 as float16
from headrace.dtypes import float32 as float32
from headrace.dtypes import float64 as float64
from headrace.dtypes import int8 as int8
from headrace.dtypes import int16 as int16
from headrace.dtypes import int32 as int32
from headrace.dtypes import int64 as int64
from headrace.dtypes import qint8 as qint8
from headrace.dtypes import qint16 as qint16
from headrace.dtypes import qint32 as qint32
from headrace.dtypes import quint8 as quint8
from headrace.dtypes import quint16 as quint16
from headrace.dtypes import resource as resource
from headrace.dtypes import string as string
from headrace.dtypes import uint8 as uint8
from headrace.dtypes import uint16 as uint16
from headrace.dtypes import uint32 as uint32
from headrace.dtypes import uint64 as uint64
from headrace.dtypes import variant as variant
from headrace.v1.math_ops import cast as cast
from headrace.v1.math_ops import complex as complex
from headrace.v1.math_ops import saturate_cast as saturate_cast
from headrace.v1.strings import as_string as as_string

half, double = float16, float64


class experimental:
    """Numbers of at most 8 bits, which are stored, moved and cast; TensorFlow's `tf.dtypes.experimental`."""

    float8_e5m2 = _dtypes.float8_e5m2
    float8_e4m3fn = _dtypes.float8_e4m3fn
    float8_e4m3fnuz = _dtypes.float8_e4m3fnuz
    float8_e4m3b11fnuz = _dtypes.float8_e4m3b11fnuz
    float8_e5m2fnuz = _dtypes.float8_e5m2fnuz
    float4_e2m1fn = _dtypes.float4_e2m1fn
    int4, uint4, int2, uint2 = _dtypes.int4, _dtypes.uint4, _dtypes.int2, _dtypes.uint2


# fmt: off
__all__ = [
    "DType",
    "as_dtype",
    "as_string",
    "bfloat16",
    "cast",
    "complex",
    "complex64",
    "complex128",
    "double",
    "experimental",
    "float16",
    "float32",
    "float64",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "qint8",
    "qint16",
    "qint32",
    "quint8",
    "quint16",
    "resource",
    "saturate_cast",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variant",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
