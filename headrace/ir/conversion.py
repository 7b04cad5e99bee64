"""Conversion of Python values to the arrays that constants hold."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import ConversionError

NO_TENSOR: Final = "cannot be a tensor"  # part of the error texts for values that have no dtype


def as_array(value: Any, dtype: DType | None = None) -> np.ndarray:
    """Returns `value` as a read-only array of `dtype`.

    Without a dtype, Python floats become float32, ints int32 (int64 if too large) and text bytes.

    Raises:
      TypeError: no array can represent the value, or none of `dtype` can without loss (a float as an int, text as a
        number). For None and arrays of text it is a ConversionError, which is a ValueError too.
      ValueError: the rows differ in length, or a number is too large for the dtype.
    """
    if value.__class__ in _NUMBERS:
        usual = usual_number(value.__class__, dtype)
        if usual is not None and usual[0] <= value <= usual[1]:
            number = np.array(value, usual[2])
            number.flags.writeable = False
            return number
    if (dtype is not None and dtype.base is dtypes.string) or (dtype is None and _is_text(value)):
        return frozen(_string_array(value))
    try:
        array = np.asarray(value)
    except ValueError as e:  # numpy's text names the position
        if not isinstance(value, (list, tuple)):
            raise  # numpy's own error for an object that cannot be an array
        raise ValueError(
            f"{shown(value)} {NO_TENSOR}: its rows differ in length or depth. Give rows of equal length, or "
            f"pad them ({e})"
        ) from e
    if array.dtype == object:
        if dtype is not None and dtype in dtypes.OBJECT:
            return frozen(array)
        raise (ConversionError if value is None else TypeError)(
            f"{shown(value)} ({type(value).__name__}) {NO_TENSOR}: give a number, a bool, text, an array, or "
            "lists of these"
        )
    if dtype is None:
        if array.dtype.kind in "SU":
            raise TypeError(f"{shown(value)} {NO_TENSOR}: it mixes text with numbers")
        if array.dtype == np.float64 and not _has_dtype(value):
            array = array.astype(np.float32)
        elif array.dtype == np.int64 and not _has_dtype(value):
            small = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
            array = array.astype(np.int32) if small else array
        return frozen(array)
    want = dtype.base.numpy
    if array.dtype != want:
        if array.size and _RANK_OF_KIND.get(array.dtype.kind, 2) > _RANK_OF_KIND.get(want.kind, 2):
            kind = "text" if array.dtype.kind in "SU" else f"of dtype {array.dtype}"
            error = ConversionError if kind == "text" and _has_dtype(value) else TypeError
            raise error(f"expected {dtype.base.name}, got {shown(value)}, which is {kind}")
        if array.size and want.kind in "iu" and array.dtype.kind in "iu" and not _has_dtype(value):
            least, most = np.iinfo(want).min, np.iinfo(want).max
            if array.min() < least or array.max() > most:
                raise ValueError(
                    f"{shown(value)} does not fit {dtype.base.name}, which goes from {least} to {most}; choose a "
                    "larger dtype"
                )
        array = array.astype(want)
    return frozen(array)


_NUMBERS: Final = frozenset((bool, int, float))
# The most frequent conversions: class of the number and number of the dtype → least, greatest, numpy dtype. The
# general algorithm gives the same result and takes five times as long.
_USUAL: Final[dict[tuple[type, int | None], tuple[Any, Any, np.dtype]]] = {
    (bool, None): (False, True, np.dtype(bool)),
    (bool, dtypes.bool_.number): (False, True, np.dtype(bool)),
    **{
        (int, None if d is None else d.number): (-(2**31), 2**31 - 1, np.dtype(n))
        for d, n in (
            (None, np.int32),
            (dtypes.int32, np.int32),
            (dtypes.int64, np.int64),
            (dtypes.float32, np.float32),
            (dtypes.float64, np.float64),
        )
    },
    **{
        (float, None if d is None else d.number): (-1e38, 1e38, np.dtype(n))
        for d, n in ((None, np.float32), (dtypes.float32, np.float32), (dtypes.float64, np.float64))
    },
}


def usual_number(kind: type, dtype: DType | None) -> tuple[Any, Any, np.dtype] | None:
    """Returns the range in which Python numbers become scalars of a dtype without further checks.

    Args:
      kind: the class of the numbers.
      dtype: the dtype; None: the one that `as_array` chooses.

    Returns:
      The least number, the greatest number and the numpy dtype; None if there is no such range.
    """
    return _USUAL.get((kind, None if dtype is None else dtype.base.number))


def shown(value: Any) -> str:
    """Returns `repr(value)`, cut to 80 characters."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= 80 else text[:77] + "..."


# Range of a kind of number; a conversion to a lower rank would lose information. ('V' is the kind of ml_dtypes'
# floats.)
_RANK_OF_KIND = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3, "S": 9, "U": 9, "O": 9}


def frozen(array: np.ndarray) -> np.ndarray:
    """Returns `array` as a read-only array; a copy if the caller could write its elements."""
    if array.flags.writeable:
        array = array.copy() if array.base is not None or array.flags.owndata else array
        array.flags.writeable = False
    return array


def _has_dtype(value: Any) -> bool:
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, (list, tuple)):
            todo += part
        elif hasattr(part, "dtype"):
            return True
    return False


def _is_text(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    if isinstance(value, (str, bytes)):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "SU" or (value.dtype == object and value.size > 0 and _is_text(value.flat[0]))
    return False


def _string_array(value: Any) -> np.ndarray:
    shaped = np.array(value, dtype=object)
    out = np.empty(shaped.shape, dtype=object)
    for i in np.ndindex(shaped.shape):
        x = shaped[i]
        if isinstance(x, str):
            x = x.encode()
        if not isinstance(x, bytes):
            raise TypeError(f"expected string, got {x!r} of type {type(x).__name__}")
        out[i] = x
    return out
