"""Sobol's sequence: points that fill a cube evenly.

Source: TensorFlow's SobolSample, with the directions of Joe and Kuo (2008), which SciPy has too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace.dtypes import DType, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.resources.values import int_of
from headrace.shapes import Shape

_MOST: Final = 21200  # dimensions
_BITS: Final = 32


def _sobol(attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["dtype"]

    def kernel(dim: Any, num_results: Any, skip: Any) -> Any:
        d, n, first = int_of(dim, "dim"), int_of(num_results, "num_results"), int_of(skip, "skip")
        if d < 1:
            raise InvalidArgumentError(f"dim must be at least one, got {d}")
        if d > _MOST:
            raise InvalidArgumentError(f"dim must be at most {_MOST}, got {d}")
        if n < 1:
            raise InvalidArgumentError(f"num_results must be at least one, got {n}")
        if first < 0:
            raise InvalidArgumentError(f"skip must be non-negative, got {first}")
        if n + first >= 1 << _BITS - 1:
            raise InvalidArgumentError(f"num_results + skip must be less than {1 << _BITS - 1}, got {n + first}")
        check_size((n, d), float64)
        from scipy.stats import qmc

        # SciPy's own way to a point goes by all before it; by the directions that it has read, each is found by itself
        directions = qmc.Sobol(d, scramble=False, bits=_BITS)._sv
        at = np.arange(first + 1, first + 1 + n, dtype=np.uint32)  # the first point is 0, which is left out
        gray = at ^ at >> 1
        points = np.zeros((n, d), np.uint32)
        for bit in range(int(at[-1]).bit_length()):
            points[gray >> bit & 1 == 1] ^= directions[:, bit].astype(np.uint32)
        return (points * 2.0**-_BITS).astype(dtype.numpy)

    return kernel


def _shape(c: Inference) -> Sequence[Shape]:
    return [(c.scalar(1), c.scalar(0))]


def _cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    want = [[0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75], [0.375, 0.375, 0.625]]
    three, two, four, none = (np.array(k, np.int32) for k in (3, 2, 4, 0))
    return [
        case(three, four, none, dtype=dtype, want=np.array(want, dtype.numpy)),
        case(three, two, two, dtype=dtype, want=np.array(want[2:], dtype.numpy)),
    ]


op(
    "SobolSample",
    "dim: int32, num_results: int32, skip: int32",
    "samples: dtype",
    {"dtype": type_attr({float32, float64}, float32)},
    shape=_shape,
    kernel=_sobol,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(30), dynamic_shape=True),
    sample=_cases,
    doc="Points of Sobol's sequence, after the first `skip`, a row each.",
)
