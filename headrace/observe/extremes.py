"""Extremes of an array: its range, and its numbers of NaN and Inf."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.records import record


@record(frozen=True, slots=True)
class Extremes:
    """Extremes of a floating-point or complex array.

    Attributes:
      dtype: the name of the dtype.
      shape: the shape.
      least: the least finite element; of a complex array the least magnitude. NaN if no element is finite.
      greatest: the greatest finite element or magnitude, likewise.
      nans: the number of NaN elements.
      infs: the number of infinite elements.

    Example:
      >>> print(Extremes.of(np.array([1.5, np.nan, -2.0], np.float32)))
      float32[3], min -2, max 1.5, 1 NaN
    """

    dtype: str
    shape: tuple[int, ...]
    least: float
    greatest: float
    nans: int
    infs: int

    @classmethod
    def of(cls, value: Any) -> Extremes:
        """Returns the extremes of an array."""
        a = np.asarray(value)
        nans = int(np.count_nonzero(np.isnan(a)))
        finite = a[np.isfinite(a)]
        with np.errstate(over="ignore"):
            wide = np.abs(finite) if np.iscomplexobj(a) else finite.astype(np.float64)
        low, high = (float(wide.min()), float(wide.max())) if wide.size else (float("nan"), float("nan"))
        return cls(a.dtype.name, a.shape, low, high, nans, a.size - nans - finite.size)

    @property
    def are_finite(self) -> bool:
        """Whether all elements are finite."""
        return not (self.nans or self.infs)

    def __str__(self) -> str:
        parts = [f"{self.dtype}{shapes.show(self.shape)}"]
        if self.least == self.least:
            parts.append(f"min {self.least:.6g}, max {self.greatest:.6g}")
        parts += [f"{n} {name}" for n, name in ((self.nans, "NaN"), (self.infs, "Inf")) if n]
        return ", ".join(parts)


def is_inexact(value: Any) -> bool:
    """Whether `value` is an array or scalar that can have NaN: floating-point, bfloat16 or complex."""
    return isinstance(value, (np.ndarray, np.generic)) and (
        value.dtype.kind in "fc" or value.dtype == dtypes.bfloat16.numpy
    )


def is_finite(value: Any) -> bool:
    """Whether all elements of an inexact array are finite."""
    return bool(np.isfinite(value).all())
