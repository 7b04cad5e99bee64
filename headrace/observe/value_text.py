"""Text of a value at a pause, brief or with all elements."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.ir.kernel_errors import brief
from headrace.observe.extremes import Extremes, is_inexact

_ELEMENTS: Final = 1000  # elements of an array that is shown in full


def value_text(value: Any, whole: bool = False) -> str:
    """Returns a value as text.

    Args:
      value: the value.
      whole: whether an array of at most 1000 elements is shown with all of them.

    Example:
      >>> print(value_text(np.arange(6.0), whole=True))
      float64[6] =
      [0. 1. 2. 3. 4. 5.]
    """
    text = brief(value)
    if not isinstance(value, (np.ndarray, np.generic)) or " = " in text:
        return text
    if whole and value.size <= _ELEMENTS:
        return f"{text} =\n{np.array2string(np.asarray(value), max_line_width=100)}"
    return str(Extremes.of(value)) if is_inexact(value) else text
