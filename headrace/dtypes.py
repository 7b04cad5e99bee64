"""Element types of tensors: TensorFlow's names and numbers, numpy's (and ml_dtypes') storage.

A `DType` is identified by TensorFlow's `DataType` enum number. A *reference* dtype (number + 100, name `..._ref`) marks
a tensor that carries a variable instead of a value; ops that need the value read it when they fire.

Floats of at most 8 bits and integers of fewer than 8 (`float8_e4m3fn`, `int4`, ...) fill a byte each. As in TensorFlow,
few ops accept them: they are stored, moved and cast.

`string`, `resource` and `variant` have no numpy element type: their arrays are `object` arrays (of `bytes`, of resource
handles, of opaque values). The quantized dtypes (`qint8`, `quint8`, ...) have arrays of integers, whose numpy dtype is
that of plain integers. So a quantized dtype cannot be derived from an array and must be given explicitly.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar, Final

import ml_dtypes
import numpy as np

from headrace import public_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

_REF = 100


class DType:
    """An element type. Compare with `is` or `==`.

    Each dtype has a name in this module, and `as_dtype` returns the dtype of other descriptions.

    Args:
      type_enum: TensorFlow's `DataType` enum number. There is one object for each number.
      handle_data: accepted as in TensorFlow; operations keep the types of their handles.

    Attributes:
      name: TensorFlow's name (`"float32"`, `"string"`, `"float32_ref"`).
      number: TensorFlow's `DataType` enum number.
      numpy: the numpy dtype of its arrays (`object` for string, resource and variant).
      base: the dtype without the reference mark; a dtype without the mark is its own base.
      is_ref: whether its tensors carry a variable.

    Example:
      >>> import headrace as hr
      >>> hr.float32.name, hr.float32.size, hr.as_dtype("float32") is hr.float32
      ('float32', 4, True)
    """

    __slots__ = ("_ref", "base", "is_ref", "name", "number", "numpy")

    name: str
    number: int
    numpy: np.dtype
    base: DType
    is_ref: bool
    _ref: DType | None

    def __new__(cls, type_enum: int, handle_data: object = None) -> DType:
        return from_number(int(type_enum))

    @classmethod
    def _made(cls, name: str, number: int, numpy: np.dtype, base: DType | None = None) -> DType:
        self = object.__new__(cls)
        self.name = name
        self.number = number
        self.numpy = numpy
        self.base = base or self
        self.is_ref = base is not None
        self._ref = None
        return self

    @property
    def ref(self) -> DType:
        """Reference form of this dtype."""
        if self.is_ref:
            return self
        if self._ref is None:
            self._ref = DType._made(self.name + "_ref", self.number + _REF, self.numpy, self)
        return self._ref

    @property
    def base_dtype(self) -> DType:
        """TensorFlow's name for `base`."""
        return self.base

    @property
    def as_numpy_dtype(self) -> type:
        """TensorFlow's name for the numpy scalar type."""
        return self.numpy.type

    @property
    def as_datatype_enum(self) -> int:
        """TensorFlow's name for `number`."""
        return self.number

    @property
    def is_floating(self) -> bool:
        """Whether its elements are real numbers with a fraction."""
        return self.base in FLOATING or self.base in SMALL_FLOATING

    @property
    def is_integer(self) -> bool:
        """Whether its elements are integers."""
        return self.base in INTEGER or self.base in SMALL_INTEGER

    @property
    def is_complex(self) -> bool:
        """Whether its elements are complex numbers."""
        return self.base in COMPLEX

    @property
    def is_bool(self) -> bool:
        """Whether it is the dtype of booleans."""
        return self.base is bool_

    @property
    def is_numeric(self) -> bool:
        """Whether its elements are numbers."""
        return self.base in NUMERIC

    @property
    def size(self) -> int:
        """Bytes of an element (of a pointer, for object storage)."""
        return self.numpy.itemsize

    @property
    def is_quantized(self) -> bool:
        """Whether its elements are quantized numbers."""
        return self.base in QUANTIZED

    @property
    def is_unsigned(self) -> bool:
        """Whether its elements are integers without a sign."""
        return self.base in UNSIGNED or self.base in (uint4, uint2)

    @property
    def is_numpy_compatible(self) -> bool:
        """Whether numpy has arrays of its elements."""
        return self.base not in (resource, variant)

    @property
    def real_dtype(self) -> DType:
        """Dtype of the parts of its complex numbers; the base dtype itself for other elements."""
        return {complex64: float32, complex128: float64}.get(self.base, self.base)

    @property
    def min(self) -> float:
        """Least number: an int of an integer dtype, else a numpy scalar.

        Raises:
          TypeError: the elements have no order.
        """
        return self._extreme("min")

    @property
    def max(self) -> float:
        """Greatest number: an int of an integer dtype, else a numpy scalar.

        Raises:
          TypeError: the elements have no order.
        """
        return self._extreme("max")

    def _extreme(self, which: str) -> float:
        base = self.base
        if base in INTEGER:
            return int(getattr(np.iinfo(base.numpy), which))
        if base in SMALL_INTEGER:
            return int(getattr(ml_dtypes.iinfo(base.numpy), which))
        if base in FLOATING or base in SMALL_FLOATING:
            return getattr(ml_dtypes.finfo(base.numpy), which)  # type: ignore[no-any-return]
        raise TypeError(f"Cannot find {which}imum value of {self!r}: its elements are no real numbers")

    @property
    def limits(self) -> tuple[float, float]:
        """Range of the intensities of an image: (0, 1), or (0, the greatest integer).

        Raises:
          ValueError: images have no such elements.

        >>> uint8.limits, float32.limits
        ((0, 255), (0, 1))
        """
        base = self.base
        if base is bool_:
            return False, True
        if base in (float32, float64):
            return 0, 1
        if base in INTEGER:
            return 0, self.max
        raise ValueError(f"{self!r} does not have defined limits.")

    def is_compatible_with(self, other: object) -> bool:
        """Whether a tensor of dtype `other` can be used as one of this dtype.

        A reference is used as its value.

        Args:
          other: a dtype, or a description for `as_dtype`.
        """
        found = as_dtype(other)
        return self.number in (found.number, found.base.number)

    #: Tells whether the caller, a frame, is a program for TensorFlow 1; None: none is (`v1.dtype_texts` sets it).
    is_for_tensorflow: ClassVar[Callable[[FrameType], bool] | None] = None

    def __repr__(self) -> str:
        asks = DType.is_for_tensorflow
        return f"tf.{self.name}" if asks is not None and asks(sys._getframe(1)) else f"headrace.{self.name}"

    def __str__(self) -> str:
        asks = DType.is_for_tensorflow
        return f"<dtype: {self.name!r}>" if asks is not None and asks(sys._getframe(1)) else self.name

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, DType):
            return self.number == other.number
        if isinstance(other, (str, type, np.dtype)):
            try:
                return self.number == as_dtype(other).number
            except TypeError:
                return False
        return NotImplemented

    def __reduce__(self) -> str | tuple[object, ...]:
        return (as_dtype, (self.name,))


def _dtype(name: str, number: int, numpy: object) -> DType:
    d = DType._made(name, number, np.dtype(numpy))  # type: ignore[call-overload]
    _BY_NUMBER[number] = d
    _BY_NAME[name] = d
    if number not in _STORED_OTHERWISE:
        _BY_NUMPY[d.numpy] = d
    return d


_BY_NUMBER: dict[int, DType] = {}
_BY_NAME: dict[str, DType] = {}
_BY_NUMPY: dict[np.dtype, DType] = {}
_STORED_OTHERWISE = (7, 20, 21, 11, 12, 13, 15, 16)  # as objects, or as plain integers

float32: Final = _dtype("float32", 1, np.float32)
float64: Final = _dtype("float64", 2, np.float64)
int32: Final = _dtype("int32", 3, np.int32)
uint8: Final = _dtype("uint8", 4, np.uint8)
int16: Final = _dtype("int16", 5, np.int16)
int8: Final = _dtype("int8", 6, np.int8)
string: Final = _dtype("string", 7, object)
complex64: Final = _dtype("complex64", 8, np.complex64)
int64: Final = _dtype("int64", 9, np.int64)
bool_: Final = _dtype("bool", 10, np.bool_)
qint8: Final = _dtype("qint8", 11, np.int8)
quint8: Final = _dtype("quint8", 12, np.uint8)
qint32: Final = _dtype("qint32", 13, np.int32)
bfloat16: Final = _dtype("bfloat16", 14, ml_dtypes.bfloat16)
qint16: Final = _dtype("qint16", 15, np.int16)
quint16: Final = _dtype("quint16", 16, np.uint16)
uint16: Final = _dtype("uint16", 17, np.uint16)
complex128: Final = _dtype("complex128", 18, np.complex128)
float16: Final = _dtype("float16", 19, np.float16)
resource: Final = _dtype("resource", 20, object)
variant: Final = _dtype("variant", 21, object)
uint32: Final = _dtype("uint32", 22, np.uint32)
uint64: Final = _dtype("uint64", 23, np.uint64)
float8_e5m2: Final = _dtype("float8_e5m2", 24, ml_dtypes.float8_e5m2)
float8_e4m3fn: Final = _dtype("float8_e4m3fn", 25, ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz: Final = _dtype("float8_e4m3fnuz", 26, ml_dtypes.float8_e4m3fnuz)
float8_e4m3b11fnuz: Final = _dtype("float8_e4m3b11fnuz", 27, ml_dtypes.float8_e4m3b11fnuz)
float8_e5m2fnuz: Final = _dtype("float8_e5m2fnuz", 28, ml_dtypes.float8_e5m2fnuz)
int4: Final = _dtype("int4", 29, ml_dtypes.int4)
uint4: Final = _dtype("uint4", 30, ml_dtypes.uint4)
int2: Final = _dtype("int2", 31, ml_dtypes.int2)
uint2: Final = _dtype("uint2", 32, ml_dtypes.uint2)
float4_e2m1fn: Final = _dtype("float4_e2m1fn", 33, ml_dtypes.float4_e2m1fn)

_ALIASES = {"float": float32, "double": float64, "half": float16}

FLOATING: Final = frozenset({float16, bfloat16, float32, float64})
COMPLEX: Final = frozenset({complex64, complex128})
SIGNED: Final = frozenset({int8, int16, int32, int64})
UNSIGNED: Final = frozenset({uint8, uint16, uint32, uint64})
INTEGER: Final = SIGNED | UNSIGNED
REAL: Final = FLOATING | INTEGER
INEXACT: Final = FLOATING | COMPLEX
NUMERIC: Final = REAL | COMPLEX
INDEX: Final = frozenset({int32, int64})
OBJECT: Final = frozenset({string, resource, variant})
ALL: Final = NUMERIC | OBJECT | {bool_}
QUANTIZED: Final = frozenset({qint8, quint8, qint16, quint16, qint32})  # not in ALL: few ops accept them
SMALL_FLOATING: Final = frozenset(
    {float8_e5m2, float8_e4m3fn, float8_e4m3fnuz, float8_e4m3b11fnuz, float8_e5m2fnuz, float4_e2m1fn}
)
SMALL_INTEGER: Final = frozenset({int4, uint4, int2, uint2})
SMALL: Final = SMALL_FLOATING | SMALL_INTEGER  # not in ALL: they are stored, moved and cast, without arithmetic
VALUE: Final = ALL - {resource, variant}  # dtypes with elements that can be read; the others are handles


def from_number(number: int) -> DType:
    """Returns the dtype of a `DataType` enum number (reference dtypes are number + 100).

    Raises:
      TypeError: a number that headrace has no dtype for.

    Example:
      >>> import headrace as hr
      >>> hr.dtypes.from_number(1)
      headrace.float32
    """
    d = _BY_NUMBER.get(number)
    if d is None and number > _REF:
        base = _BY_NUMBER.get(number - _REF)
        d = base and base.ref
    if d is None:
        raise TypeError(f"DataType {number} is not one of headrace's dtypes")
    return d


def from_numpy(d: np.dtype) -> DType:
    """Returns the dtype of numpy arrays of `d`.

    Text (`U`, `S`) and object arrays are strings.

    Raises:
      TypeError: a numpy dtype without a counterpart.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.dtypes.from_numpy(np.dtype("float32"))
      headrace.float32
    """
    found = _BY_NUMPY.get(d)
    if found is None and d.kind in "OSU":
        found = string
    if found is None and d.byteorder not in "=|":
        found = _BY_NUMPY.get(d.newbyteorder("="))
    if found is None:
        raise TypeError(f"numpy dtype {d} has no counterpart; headrace has {_names(_BY_NUMPY.values())}")
    return found


def as_dtype(type_value: object) -> DType:
    """Returns the `DType` that `type_value` describes.

    A description is a name, an enum number, a numpy dtype or a Python scalar type. A `DType` is returned unchanged.

    >>> as_dtype("float"), as_dtype(3), as_dtype(np.int64)
    (headrace.float32, headrace.int32, headrace.int64)
    """
    if isinstance(type_value, DType):
        return type_value
    if isinstance(type_value, str):
        found = _BY_NAME.get(type_value) or _ALIASES.get(type_value)
        if found is None and type_value.endswith("_ref"):
            return as_dtype(type_value[:-4]).ref
        if found is not None:
            return found
    if type_value is float:
        return float32
    if type_value is int:
        return int32
    if type_value is bool:
        return bool_
    if type_value is complex:
        return complex128
    if type_value is str or type_value is bytes:
        return string
    if isinstance(type_value, int):
        return from_number(type_value)
    try:
        return from_numpy(np.dtype(type_value))  # type: ignore[call-overload]
    except TypeError as e:
        raise TypeError(f"{type_value!r} is not a dtype; headrace has {_names(_BY_NAME.values())}") from e


def _names(ds: Iterable[DType]) -> str:
    return ", ".join(sorted(d.name for d in ds))


# fmt: off
__all__ = [
    "DType",
    "as_dtype",
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "float4_e2m1fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "float32",
    "float64",
    "from_number",
    "from_numpy",
    "int2",
    "int4",
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
    "string",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variant",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
