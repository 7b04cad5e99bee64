"""Text of the first elements of a value, with as many digits as needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import thresholds

if TYPE_CHECKING:
    from collections.abc import Callable


def elements(array: np.ndarray) -> str:
    """Returns the text of the first elements.

    Example:
      >>> elements(np.array([[0.5, 2.0], [3.0, 4.0]], np.float32))
      '0.5, 2, 3, 4'
    """
    n = thresholds.RECORDED_ELEMENTS
    show = show_of(array.dtype)
    texts = [show(x) for x in array.reshape(-1)[:n]]
    return ", ".join(texts) + (", ..." if array.size > n else "")


def show_of(dtype: np.dtype[Any]) -> Callable[[Any], str]:
    """Returns the function that formats an element of `dtype`."""
    if dtype.kind == "f" and dtype.isbuiltin == 1:
        return lambda x: (
            np.format_float_positional(x, trim="-") if 1e-4 <= abs(float(x)) < 1e7 else f"{x!s}".removesuffix(".0")
        )
    if dtype.hasobject:
        return element
    return lambda x: str(x)


def element(x: Any) -> str:
    """Returns the text of an element of a string tensor, cut to a few characters."""
    if not isinstance(x, (bytes, str)):
        return type(x).__name__
    limit = thresholds.RECORDED_ELEMENT_CHARACTERS
    return repr(x[:limit]) + ("..." if len(x) > limit else "")
