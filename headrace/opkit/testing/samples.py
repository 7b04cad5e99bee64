"""Samplers for `sample=` of op records, for the tests over the registry.

Each function here returns a sampler `(rng, dtype) -> cases`; see `opdef.Case`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes
from headrace.ir.opdef import Case

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.opdef import Sample

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3), (0, 2))
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (4,)),
    ((0, 3), (1, 3)),
)


def draw(
    rng: np.random.Generator, dtype: DType, shape: Sequence[int], low: float = -3.0, high: float = 3.0
) -> np.ndarray:
    """Returns random elements of `dtype` in [low, high).

    Integers are drawn from the range, and complex numbers have both parts in it.
    """
    d = dtype.base
    if d is dtypes.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if d is dtypes.string:
        out = np.empty(tuple(shape), dtype=object)
        for i in np.ndindex(out.shape):
            out[i] = bytes(rng.integers(97, 123, rng.integers(0, 5)).astype(np.uint8))
        return out
    if d in dtypes.INTEGER:
        lowest = max(low, 0.0) if d in dtypes.UNSIGNED else low
        return rng.integers(int(np.ceil(lowest)), max(int(np.ceil(high)), int(lowest) + 1), shape).astype(d.numpy)
    if d in dtypes.COMPLEX:
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(d.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(d.numpy)


def meant_as(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Marks `x` as an array of a quantised dtype.

    numpy knows only the dtype of the storage.
    """
    return x.view(np.dtype(dtype.numpy, metadata={"headrace": dtype.name}))


def unary(low: float = -3.0, high: float = 3.0, shapes: Sequence[tuple[int, ...]] = SHAPES) -> Sample:
    """Returns a sampler of one array in several shapes, with elements in [low, high)."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        return [Case((draw(rng, dtype, s, low, high),)) for s in shapes]

    return sample


def binary(low: float = -3.0, high: float = 3.0, low2: float | None = None, high2: float | None = None) -> Sample:
    """Returns a sampler of two arrays that broadcast.

    The second one's range may differ, for example to exclude zero.
    """

    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        return [
            Case(
                (
                    draw(rng, dtype, s, low, high),
                    draw(rng, dtype, t, low if low2 is None else low2, high if high2 is None else high2),
                )
            )
            for s, t in PAIRS
        ]

    return sample
