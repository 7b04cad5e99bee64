"""Convolutions and poolings of numpy arrays by native functions.

A function is compiled at first use and kept by geometry. The number of images is an argument of the functions, so a
batch of another size needs no compilation. The callers check shapes and dtypes; `functions.is_native` says
which arrays are computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.memo import Memo
from headrace.opkit.windows import Axis
from headrace.targets.native.functions import loaded
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.windows import convolution, pooling
from headrace.targets.native.windows.depthwise import Depthwise
from headrace.targets.native.windows.specs import Spec, convolution_spec, write

Array: TypeAlias = np.ndarray

_NAME: Final = "windows"
_MEMO: Memo[Any, Callable[..., None]] = Memo("native windows", thresholds.NATIVE_WINDOWS)


def convolved(x: Array, w: Array, axes: tuple[Axis, ...], groups: int = 1) -> Array:
    """The convolution of `x` [batch, *spatial, channels] with the filter `w`.

    Args:
      x: The input.
      w: The filter, [*window, channels of a group, outputs].
      axes: The windows over the spatial axes.
      groups: The number of groups of channels.

    Returns:
      The result, [batch, *windows, outputs].
    """
    shape = (len(x), *(a.count for a in axes), w.shape[-1])
    spec = convolution_spec(convolution.Kind.FORWARD, axes, x.shape[-1], w.shape[-1], groups, x.dtype)
    if isinstance(spec, Depthwise):
        return _called(_function(spec), shape, [_repeated(x, w.shape[-1]), w], len(x))
    return _convolution(spec, shape, x, w, len(x))


def by_input(w: Array, dy: Array, axes: tuple[Axis, ...], groups: int = 1) -> Array:
    """The gradient of a convolution by its input.

    Args:
      w: The filter.
      dy: The gradient by the result.
      axes: The windows over the spatial axes.
      groups: The number of groups of channels.

    Returns:
      The gradient.
    """
    channels = w.shape[-2] * groups
    shape = (len(dy), *(a.length for a in axes), channels)
    spec = convolution_spec(convolution.Kind.BY_INPUT, axes, channels, w.shape[-1], groups, dy.dtype)
    if isinstance(spec, Depthwise):
        dx = _called(_function(spec), (*shape[:-1], w.shape[-1]), [dy, w], len(dy))
        return dx if w.shape[-1] == channels else dx.reshape(*shape, -1).sum(-1)
    return _convolution(spec, shape, dy, w, len(dy))


def by_filter(x: Array, dy: Array, axes: tuple[Axis, ...], groups: int = 1) -> Array:
    """The gradient of a convolution by its filter.

    Args:
      x: The input.
      dy: The gradient by the result.
      axes: The windows over the spatial axes.
      groups: The number of groups of channels.

    Returns:
      The gradient.
    """
    shape = (*(a.size for a in axes), x.shape[-1] // groups, dy.shape[-1])
    spec = convolution_spec(convolution.Kind.BY_FILTER, axes, x.shape[-1], dy.shape[-1], groups, x.dtype)
    if isinstance(spec, Depthwise):
        return _called(_function(spec), shape, [_repeated(x, dy.shape[-1]), dy], len(x))
    return _convolution(spec, shape, x, dy, len(x))


def pooled(kind: pooling.Kind, x: Array, g: Array | None, axes: tuple[Axis, ...]) -> Array:
    """The result of a pooling, or its gradient by the input.

    Args:
      kind: The result.
      x: The input; for `MEAN_GRADIENT` the gradient by the result.
      g: The gradient by the result for `MAXIMUM_GRADIENT`; None for other kinds.
      axes: The windows over the spatial axes.

    Returns:
      The result.
    """
    of_input = kind in (pooling.Kind.MAXIMUM_GRADIENT, pooling.Kind.MEAN_GRADIENT)
    shape = (len(x), *(a.length if of_input else a.count for a in axes), x.shape[-1])
    function = _function(pooling.Pooling(kind, axes, x.shape[-1], x.dtype))
    return _called(function, shape, [x, x if g is None else g], len(x))


def _repeated(x: Array, outputs: int) -> Array:
    """An array with a channel for each output."""
    return x if x.shape[-1] == outputs else x.repeat(outputs // x.shape[-1], -1)


def _convolution(spec: convolution.Convolution, shape: Sequence[int], a: Array, b: Array, batch: int) -> Array:
    scratch = np.empty(convolution.scratch_bytes(spec), np.uint8)
    return _called(_function(spec), shape, [a, b, scratch], batch)


def _function(spec: Spec) -> Callable[..., None]:
    """The function of a geometry."""
    found = _MEMO.get(spec)
    if found is None:
        module = Module()
        addresses = write(module, spec, _NAME)
        found = loaded(module, _NAME, addresses, 1)
        _MEMO.put(spec, found)
    return found


def _called(function: Callable[..., None], shape: Sequence[int], arrays: Sequence[Array], batch: int) -> Array:
    dtype = arrays[0].dtype
    given = [np.ascontiguousarray(a) for a in arrays]
    out = np.empty(shape, dtype)
    function(out, *given, batch)
    return out
