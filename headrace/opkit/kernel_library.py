"""Functions of a library that kernels of numpy's arrays use in place of their own.

    library = kernel_library(xp)
    found = library.moments(x)
    mean, variance = moments(x) if found is None else found

A library overrides functions of `KernelLibrary` and registers itself by `provide`. The kernel remains the reference. It
checks its arguments first, and computes what the library leaves to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from headrace.opkit.windows import Axis

Array: TypeAlias = np.ndarray
PoolingKind: TypeAlias = Literal["maximum", "maximum_gradient", "mean", "mean_gradient"]


class KernelLibrary:
    """Functions on numpy arrays.

    A function returns None if the library does not support its arguments, or if numpy is likely to be faster. Those of
    this class always do.
    """

    # *** Windows over arrays, channels last ***

    def convolved(self, x: Array, w: Array, axes: tuple[Axis, ...], groups: int) -> Array | None:
        """The convolution of `x` with the filter `w`."""
        return None

    def by_input(self, w: Array, dy: Array, axes: tuple[Axis, ...], groups: int) -> Array | None:
        """The gradient of a convolution by its input."""
        return None

    def by_filter(self, x: Array, dy: Array, axes: tuple[Axis, ...], groups: int) -> Array | None:
        """The gradient of a convolution by its filter."""
        return None

    def pooled(self, kind: PoolingKind, x: Array | None, g: Array | None, axes: tuple[Axis, ...]) -> Array | None:
        """The result of a pooling or its gradient by the input.

        Args:
          kind: The result.
          x: The input; None for the gradient of a mean.
          g: The gradient by the result; None for a result.
          axes: The windows over all axes of the array.
        """
        return None

    # *** Channels of arrays [outer, channels, inner] ***

    def moments(self, x: Array) -> tuple[Array, Array] | None:
        """The mean and the variance of each channel, [channels]."""
        return None

    def scaled(self, x: Array, mean: Array, factor: Array, offset: Array, out: Array) -> Array | None:
        """`(x - mean) * factor + offset`, with vectors of channels, written to `out`."""
        return None

    def products(self, g: Array, x: Array, mean: Array) -> tuple[Array, Array] | None:
        """The sums of `g` and of `g * (x - mean)` over each channel."""
        return None

    def centred(
        self, g: Array, x: Array, mean: Array, slope: Array, shift: Array, factor: Array, out: Array
    ) -> Array | None:
        """`((x - mean) * slope + g - shift) * factor`, with vectors of channels, written to `out`."""
        return None

    # *** Rows ***

    def accumulated(self, how: Literal["add", "subtract"], out: Array, rows: Array, updates: Array) -> Array | None:
        """Adds each row of `updates` to a row of `out`, or subtracts it; returns `out`.

        Args:
          how: The operation.
          out: The array to change, [n, width].
          rows: The numbers of the rows of `out`, all in [0, n).
          updates: The updates, [len(rows), width].
        """
        return None

    # *** Variables ***

    def updated(
        self,
        formula: Callable[..., Sequence[Any]],
        attrs: Mapping[str, Any],
        values: Sequence[Array],
        gradient: Array,
        numbers: Sequence[Any],
        position: int,
    ) -> list[Array] | None:
        """The new values of a variable and its slots.

        Args:
          formula: `f(xp, attrs, *values, *arguments) -> new values`, elementwise and of arithmetic alone.
          attrs: The attributes of the operation.
          values: The old values, all of one shape.
          gradient: The gradient, of the same shape.
          numbers: The other arguments, scalars.
          position: The position of the gradient among the arguments.
        """
        return None


_libraries: list[Callable[[], KernelLibrary]] = []  # at most one: the registry of the library for numpy's arrays
_NONE = KernelLibrary()


def provide(library: Callable[[], KernelLibrary]) -> None:
    """Registers a function that returns the library for numpy's arrays.

    It is called when a kernel first needs the library, so that steps without such kernels do not import it.
    """
    _libraries[:] = [library]


def kernel_library(xp: Any = np) -> KernelLibrary:
    """Returns the library for arrays of a namespace."""
    return _libraries[0]() if xp is np and _libraries else _NONE
