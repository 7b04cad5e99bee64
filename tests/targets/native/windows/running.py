"""Runs functions of windows on arrays that have guard regions on both sides."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from headrace.opkit.windows import Axis
from headrace.targets.native import engine
from headrace.targets.native.llvm_text import Module

_GUARD = 64  # elements on each side


def drawn_axis(rng: np.random.Generator, most: int = 9) -> Axis:
    """An axis with VALID, SAME or explicit padding."""
    size, stride, dilation = (int(rng.integers(1, n)) for n in (5, 4, 4))
    reach = (size - 1) * dilation + 1
    padding = rng.integers(3)
    if padding == 0:
        length = int(rng.integers(reach, reach + most))
        return Axis(length, (length - reach) // stride + 1, size, stride, dilation, 0)
    length = int(rng.integers(1, most + 4))
    if padding == 1:
        count = -(-length // stride)
        before = max(0, (count - 1) * stride + reach - length) // 2
        return Axis(length, count, size, stride, dilation, before)
    before, after = (int(n) for n in rng.integers(0, reach, 2))
    count = (length + before + after - reach) // stride + 1
    return drawn_axis(rng, most) if count < 1 else Axis(length, count, size, stride, dilation, before)


def run(
    module: Module,
    name: str,
    shape: Sequence[int],
    dtype: np.dtype,
    arrays: Sequence[np.ndarray | int],
    batch: int | None,
) -> np.ndarray:
    """The result of a function.

    Args:
      module: The module.
      name: The function.
      shape: The shape of the result.
      dtype: The dtype of the result.
      arrays: The other arguments: arrays, or numbers of bytes of a scratch buffer.
      batch: The number of images if it is an argument.

    Raises:
      AssertionError: the function wrote outside of the result or of a scratch buffer, or into an argument.
    """
    library = engine.compile_module(module.text(), [name])
    guarded = [_guarded(np.zeros(shape, dtype))]
    guarded[0][_GUARD : len(guarded[0]) - _GUARD] = np.nan  # the function writes each element
    guarded += [_guarded(np.zeros(a, np.uint8) if isinstance(a, int) else a) for a in arrays]
    before = [g.copy() for g in guarded]
    addresses = [g.ctypes.data + _GUARD * g.itemsize for g in guarded]
    numbers = [ctypes.c_int64(batch)] if batch is not None else []
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(addresses), *[ctypes.c_int64] * len(numbers))(
        library.address(name)
    )(*addresses, *numbers)
    for i, (now, then) in enumerate(zip(guarded, before, strict=True)):
        is_written = i == 0 or isinstance(arrays[i - 1], int)
        parts = (slice(_GUARD), slice(len(now) - _GUARD, None)) if is_written else (slice(None),)
        for part in parts:
            np.testing.assert_array_equal(now[part], then[part])
    return guarded[0][_GUARD : len(guarded[0]) - _GUARD].reshape(shape)


def _guarded(a: np.ndarray) -> np.ndarray:
    """The elements of an array between guards.

    Guards are NaN, so that a result that reads them is NaN."""
    guard = np.full(_GUARD, np.nan if a.dtype.kind == "f" else 0xA5, a.dtype)
    return np.concatenate([guard, np.ascontiguousarray(a).reshape(-1), guard])
