"""All kernels of this package: importing the module registers them."""

from __future__ import annotations

from headrace.devices.torch import (
    convolutions,
    elementwise,
    normalization,
    pooling,
    products,
    randomness,
    rows,
    sorting,
    special_functions,
)

__all__ = [
    "convolutions",
    "elementwise",
    "normalization",
    "pooling",
    "products",
    "randomness",
    "rows",
    "sorting",
    "special_functions",
]
