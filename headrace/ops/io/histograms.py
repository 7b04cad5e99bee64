"""The histogram of a summary: numbers in each of about 1550 buckets.

The buckets are the same for all histograms, so that histograms of different steps can be compared. They grow by 10 %
from 1e-12 to 1e20, the negative buckets mirror them, and numbers beyond are in the outermost ones. A message writes a
run of empty buckets as one bucket.

Source: the buckets and their message format are those of TensorFlow's summaries.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import numpy as np

from headrace import thresholds


class Histogram(NamedTuple):
    """See `headrace.files.summaries.histogram`."""

    least: float
    greatest: float
    number: float
    total: float
    squares: float
    limits: list[float]
    counts: list[float]


@functools.cache
def limits() -> np.ndarray:
    """Upper ends of all buckets, in ascending order.

    A number equal to a limit is counted in the next bucket.
    """
    positive = []
    v = 1.0e-12
    while v < 1.0e20:
        positive.append(v)
        v *= 1.1
    positive.append(sys.float_info.max)
    out = np.array([*(-v for v in reversed(positive)), 0.0, *positive])
    out.flags.writeable = False
    return out


def histogram(values: Any) -> Histogram:
    """The histogram of an array of finite numbers of any shape and real dtype.

    The sums are those of TensorFlow to the last bit: it adds one number after the other.
    """
    flat, ends = values.reshape(-1), limits()
    counts = np.zeros(len(ends), np.int64)
    least, greatest, total, squares = sys.float_info.max, -sys.float_info.max, 0.0, 0.0
    for i in range(0, flat.size, thresholds.HISTOGRAM_ELEMENTS):
        part = flat[i : i + thresholds.HISTOGRAM_ELEMENTS].astype(np.float64)
        places = np.minimum(np.searchsorted(ends, part, side="right"), len(ends) - 1)
        counts += np.bincount(places, minlength=len(ends))
        least, greatest = min(least, float(part.min())), max(greatest, float(part.max()))
        total = float(np.add.accumulate(np.concatenate([[total], part]))[-1])
        squares = float(np.add.accumulate(np.concatenate([[squares], part * part]))[-1])
    kept = counts > 0
    kept[:-1] |= counts[1:] > 0  # the last of a run of empty ones, which says where the next one begins
    kept[-1] = True
    return Histogram(
        least, greatest, float(flat.size), total, squares, ends[kept].tolist(), counts[kept].astype(float).tolist()
    )
