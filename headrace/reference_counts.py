"""Reference counts: whether a caller has the only references to an array.

An array without other references may be changed in place, or handed to the user, without a copy.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np


def count(value: Any) -> int:
    """Number of references that the interpreter counts during the call."""
    return sys.getrefcount(value)


def _probe() -> int:
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 0
    value = np.zeros(1)
    return count(value)


#: Count of an array that only a local variable of the caller holds. It is measured, because interpreters differ; 0
#: where counts are not exact, so that no array seems to be without other references.
LOCAL: Final = _probe()
