"""Arrays of strings, element by element, and the numbers that are written in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.dtypes import FLOATING, DType


def texts(*elements: bytes) -> np.ndarray:
    """A vector of strings."""
    out = np.empty(len(elements), object)
    out[:] = elements
    return out


def each(f: Callable[[bytes], Any], x: np.ndarray, dtype: Any = object) -> np.ndarray:
    """`f` of each element, as an array of `dtype`."""
    out = np.empty(x.size, dtype)
    out[:] = [f(text) for text in x.ravel()]
    return out.reshape(x.shape)


def number(text: bytes, t: DType) -> Any:
    """The number that `text` says, with white space around it or without; `ValueError` if it is none of `t`."""
    if b"_" in text:  # Python's own
        raise ValueError(text)
    stripped = text.strip().decode("ascii")
    try:
        if t not in FLOATING:
            return np.array(int(stripped), t.numpy)
        return np.array(float.fromhex(stripped) if "x" in stripped.lower() else float(stripped), t.numpy)
    except OverflowError as e:
        raise ValueError(str(e)) from None
