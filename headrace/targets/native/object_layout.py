"""Layout of arrays and scalars of numpy in memory, and numpy's C interface, for machine code that uses them.

The layout is that of CPython with its global lock and of numpy 2, on 64-bit machines. `difference` compares it with
objects of the running process, and native code is refused if they differ.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Final

import ml_dtypes
import numpy as np

from headrace import memo


class Array(ctypes.Structure):
    """Start of `PyArrayObject`."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("dimensions", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("dtype", ctypes.c_void_p),
        ("flags", ctypes.c_int32),
    )


#: Bits of `Array.flags` of an array whose elements are in order, without gaps, and naturally aligned.
QUALIFIED: Final = 0x101

#: Offset of the type in any object, of the value in a numpy scalar, of the items in a tuple, of the bytes in `bytes`.
TYPE_AT: Final = 8
VALUE_AT: Final = 16
ITEMS_AT: Final = 24
BYTES_AT: Final = 32

#: Positions of functions in the table of numpy's C interface.
_FUNCTIONS: Final = {"PyArray_NewFromDescr": 94, "PyArray_Scalar": 60}
_VERSION_AT: Final = 0
_ARRAY_TYPE_AT: Final = 2
_VERSION: Final = 2  # the upper byte of the version of the binary interface

_KINDS: Final = "?bhilqBHILQefdFD"


@memo.cached(1, "numpy symbols")
def symbols() -> dict[str, int]:
    """Addresses of numpy's functions, and of objects that exist once, by name."""
    table = _table()
    objects: dict[str, object] = {"PyArray_Type": np.ndarray, "_Py_NoneStruct": None}
    objects |= {"_Py_TrueScalar": np.True_, "_Py_FalseScalar": np.False_}
    return {**{name: id(thing) for name, thing in objects.items()}, **{n: table[at] for n, at in _FUNCTIONS.items()}}


def difference() -> str:
    """A text about a difference between this module and the running process; "" if there is none."""
    table = _table()
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(table[_VERSION_AT])() >> 24
    if version != _VERSION or table[_ARRAY_TYPE_AT] != id(np.ndarray):
        return f"numpy {np.__version__} has another C interface"
    if not _has_known_arrays():
        return f"numpy {np.__version__} lays out arrays in another way"
    if not all(_has_known_scalars(np.dtype(kind)) for kind in (*_KINDS, ml_dtypes.bfloat16)):
        return f"numpy {np.__version__} lays out scalars in another way"
    probe = (np.ndarray, None)
    if _pointer_at(id(probe) + TYPE_AT) != id(tuple) or _pointer_at(id(probe) + ITEMS_AT) != id(np.ndarray):
        return "this Python lays out tuples in another way"
    if ctypes.string_at(id(b"a probe") + BYTES_AT, 8) != b"a probe\0":
        return "this Python lays out bytes in another way"
    return "" if _has_known_functions() else f"numpy {np.__version__} has other C functions"


def _table() -> Any:
    """Numpy's C interface: an array of addresses."""
    table = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return ctypes.cast(pointer_of(table, None), ctypes.POINTER(ctypes.c_size_t))


def _pointer_at(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _has_known_arrays() -> bool:
    base = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for probe, is_qualified in ((base, True), (base[:, ::-1], False), (base[1], True), (base[:0], True)):
        found = Array.from_address(id(probe))
        shape = tuple(ctypes.c_int64.from_address(found.dimensions + 8 * i).value for i in range(probe.ndim))
        strides = tuple(ctypes.c_int64.from_address(found.strides + 8 * i).value for i in range(probe.ndim))
        is_same = (found.type, found.data, found.rank) == (id(np.ndarray), probe.ctypes.data, probe.ndim)
        is_same = is_same and (shape, strides) == (probe.shape, probe.strides) and found.dtype == id(probe.dtype)
        is_same = is_same and found.base == (None if probe.base is None else id(probe.base))
        if not is_same or (found.flags & QUALIFIED == QUALIFIED) != is_qualified:
            return False
    return True


def _has_known_scalars(dtype: np.dtype[Any]) -> bool:
    probe = np.ones(1, dtype)[0]
    is_same = _pointer_at(id(probe) + TYPE_AT) == id(dtype.type)
    is_same = is_same and dtype.type.__basicsize__ >= VALUE_AT + max(8, dtype.itemsize)  # 8 bytes may be written
    return is_same and ctypes.string_at(id(probe) + VALUE_AT, dtype.itemsize) == probe.tobytes()


def _has_known_functions() -> bool:
    """Calls the functions of numpy in the way that machine code does."""
    found = symbols()
    dtype = np.dtype(np.float32)
    dims = (ctypes.c_int64 * 2)(3, 5)
    kind = ctypes.py_object(np.ndarray)
    new = ctypes.PYFUNCTYPE(
        *(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int, ctypes.c_void_p),
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
    )(found["PyArray_NewFromDescr"])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # the function takes a reference over
    array = new(kind, dtype, 2, ctypes.addressof(dims), None, None, 0, None)
    if type(array) is not np.ndarray or array.shape != (3, 5) or array.dtype is not dtype:
        return False
    scalar_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        found["PyArray_Scalar"]
    )
    value = ctypes.c_float(2.5)
    scalar = scalar_of(ctypes.addressof(value), dtype, None)
    return type(scalar) is np.float32 and scalar == 2.5
