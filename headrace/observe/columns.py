"""Columns of a recording: arrays of numbers as base64 of little-endian elements."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

#: Names of dtypes in a document, with numpy's.
DTYPES: Final = {"u1": "<u1", "u4": "<u4", "i4": "<i4", "f8": "<f8"}

#: Index that refers to nothing.
NONE: Final = 0xFFFFFFFF


def column(dtype: str, values: Iterable[Any]) -> dict[str, Any]:
    """Returns a column of a document.

    Example:
      >>> column("u1", [1, 0])
      {'dtype': 'u1', 'n': 2, 'base64': 'AQA='}
    """
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values), DTYPES[dtype])
    return {"dtype": dtype, "n": len(array), "base64": base64.b64encode(array.tobytes()).decode("ascii")}


def read(given: Any) -> np.ndarray:
    """Returns the array of a column.

    Raises:
      ValueError: it is not a column.

    Example:
      >>> read({"dtype": "u1", "n": 2, "base64": "AQA="}).tolist()
      [1, 0]
    """
    if not isinstance(given, dict) or given.keys() != {"dtype", "n", "base64"}:
        raise ValueError("expected a column with dtype, n and base64")
    dtype, n, text = given["dtype"], given["n"], given["base64"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"no dtype {dtype!r:.40}; there are {', '.join(DTYPES)}")
    if type(n) is not int or n < 0 or not isinstance(text, str):
        raise ValueError("expected a number of elements and a text")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError(f"no base64: {e}") from e
    if len(data) != n * np.dtype(DTYPES[dtype]).itemsize:
        raise ValueError(f"{len(data)} bytes for {n} elements of {dtype}")
    return np.frombuffer(data, DTYPES[dtype])
