"""Summaries of values: dtype, shape, range, mean, number of NaNs and the first elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from headrace import shapes
from headrace.inspect.elements import element, show_of
from headrace.inspect.elements import elements as elements_of
from headrace.records import record

_NAN: Final = math.nan
_NUMBERS: Final = "biuf"  # kinds of numpy dtypes with an order


@record(frozen=True, slots=True)
class Summary:
    """Summary of one value.

    Attributes:
      dtype: the name of the dtype; the name of the class for an object that is no array (a tensor list, a handle).
      shape: the shape as text; "" for such an object.
      min: the smallest element that is no NaN; NaN if there is none, or the elements have no order.
      max: the largest such element.
      mean: the mean of these elements.
      nans: number of NaNs.
      bytes: size of the elements, in bytes.
      elements: the first elements as text.
    """

    dtype: str
    shape: str
    min: float = _NAN
    max: float = _NAN
    mean: float = _NAN
    nans: int = 0
    bytes: int = 0
    elements: str = ""


#: Summary of an output whose token is dead: the side of a Switch that was not taken.
NO_VALUE: Final = Summary("", "")


def summary(value: Any) -> Summary:
    """Returns the summary of a value between kernels.

    Args:
      value: an array, a scalar, bytes, or another object, of which only the class is named.

    Example:
      >>> summary(np.array([1.0, np.nan, 3.0]))
      Summary(dtype='float64', shape='[3]', min=1.0, max=3.0, mean=2.0, nans=1, bytes=24, elements='1, nan, 3')
    """
    if isinstance(value, bytes):
        return Summary("string", "[]", bytes=len(value), elements=element(value))
    if isinstance(value, (bool, int, float)):
        value = np.asarray(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        return Summary(type(value).__name__, "")
    array = np.asarray(value)
    shape = shapes.show(array.shape)
    if array.dtype.hasobject:
        size = sum(len(x) for x in array.flat if isinstance(x, bytes))
        return Summary("string", shape, bytes=size, elements=elements_of(array))
    name, elements, size = array.dtype.name, elements_of(array), array.nbytes
    if array.dtype.kind == "c":
        return Summary(name, shape, nans=int(np.isnan(array).sum()), bytes=size, elements=elements)
    numbers = _as_numbers(array)
    if numbers is None or not numbers.size:
        return Summary(name, shape, bytes=size, elements=elements)
    nans = int(np.isnan(numbers).sum()) if numbers.dtype.kind == "f" else 0
    if nans:
        numbers = numbers[~np.isnan(numbers)]
        if not numbers.size:
            return Summary(name, shape, nans=nans, bytes=size, elements=elements)
    with np.errstate(all="ignore"):
        mean = float(numbers.mean(dtype=np.float64))
    return Summary(name, shape, float(numbers.min()), float(numbers.max()), mean, nans, size, elements)


def summaries(values: Iterable[Any]) -> list[Summary]:
    """Returns the summary of each value; a value that is a `Summary` is its own.

    An array that occurs several times is summarized once. Scalars of one dtype are read together, since one call of
    numpy takes longer than a firing.
    """
    out: list[Any] = []
    known: dict[int, Summary] = {}
    scalars: dict[type, list[int]] = {}
    for value in values:
        kind = value.__class__
        if kind is Summary:
            out.append(value)
        elif kind is np.ndarray:
            found = known.get(id(value))
            if found is None:
                found = known[id(value)] = summary(value)
            out.append(found)
        elif issubclass(kind, np.generic) and value.dtype.kind in _NUMBERS:
            scalars.setdefault(kind, []).append(len(out))
            out.append(value)
        else:
            out.append(summary(value))
    for kind, places in scalars.items():
        _summarize_scalars(out, kind, places)
    return out


def _summarize_scalars(out: list[Any], kind: type, places: Sequence[int]) -> None:
    """Replaces the scalars of one class at `places` of `out` by their summaries."""
    dtype = np.dtype(kind)
    show = show_of(dtype)
    known: dict[Any, Summary] = {}
    for i in places:
        value = out[i]
        x = value.item()
        found = known.get(x)
        if found is None:  # for each NaN, since none equals another
            number = float(x)
            nan = number != number
            found = Summary(dtype.name, "[]", number, number, number + 0.0, int(nan), dtype.itemsize, show(value))
            if x:  # 0.0 and -0.0 are equal and have different texts
                known[x] = found
        out[i] = found


def _as_numbers(array: np.ndarray) -> np.ndarray | None:
    """Returns the elements as numbers of numpy's own dtypes; None if they have no order."""
    if array.dtype.kind in _NUMBERS and array.dtype.isbuiltin == 1:
        return array.reshape(-1)
    try:
        return array.reshape(-1).astype(np.float32)  # bfloat16, float8, int4
    except (TypeError, ValueError):
        return None
