"""Functions of windows, by the result and the geometry.

Kernels compile each of them alone, and regions in their module.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from headrace.opkit.windows import Axis
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.windows import convolution, pooling
from headrace.targets.native.windows.depthwise import Depthwise, depthwise

Spec: TypeAlias = convolution.Convolution | Depthwise | pooling.Pooling


def convolution_spec(
    kind: convolution.Kind, axes: tuple[Axis, ...], channels: int, outputs: int, groups: int, dtype: np.dtype
) -> convolution.Convolution | Depthwise:
    """The function of a convolution or of a gradient of one.

    That of a filter for each channel takes images with a channel for each output.
    """
    if is_depthwise(groups, channels // groups):
        return Depthwise(kind, axes, outputs, dtype)
    return convolution.Convolution(kind, axes, channels, outputs, groups, dtype)


def is_depthwise(groups: int, channels: int) -> bool:
    """Whether a convolution of groups of so many channels has filters for each channel."""
    return groups > 1 and channels == 1


def write(module: Module, spec: Spec, name: str) -> int:
    """Adds a function to a module; returns the number of addresses that it takes.

    The first one is that of the result. That of scratch memory, if there is one, is last. The number of images follows.
    """
    if isinstance(spec, convolution.Convolution):
        convolution.convolution(module, spec, name)
        return 4
    if isinstance(spec, Depthwise):
        depthwise(module, spec, name)
    else:
        pooling.pooling(module, spec, name)
    return 3
