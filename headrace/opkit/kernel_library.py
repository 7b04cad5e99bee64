"""Functions of a library that kernels of numpy's arrays use in place of their own.

    library = kernel_library(xp)
    found = library.moments(x)
    mean, variance = moments(x) if found is None else found

A library overrides functions of `KernelLibrary` and registers itself by `provide`. The kernel remains the reference. It
checks its arguments first, and computes what the library leaves to it.

Kernels of elementwise ops do not ask. Engines call them by `kernel_with_library`, which asks for each large array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from headrace import shapes, thresholds
from headrace.dtypes import OBJECT, DType
from headrace.ir.kernel import Kernel, made_for
from headrace.opkit.elementwise import HALF

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.ir.opdef import KernelFactory, OpDef
    from headrace.opkit.windows import Axis
    from headrace.shapes import Shape

Array: TypeAlias = np.ndarray
PoolingKind: TypeAlias = Literal["maximum", "maximum_gradient", "mean", "mean_gradient"]


class Table(NamedTuple):
    """Weighted input elements of each element along an axis of resampled images.

    Attributes:
      source: their numbers, [tables, elements, taps]; -1: there is none. There is one table for all images, or one for
        each image of the result.
      weight: their weights, of the same shape, in float32.
    """

    source: Array
    weight: Array


class KernelLibrary:
    """Functions on numpy arrays.

    A function returns None if the library does not support its arguments, or if numpy is likely to be faster. Those of
    this class always do.
    """

    # *** Elementwise operations ***

    def elementwise(
        self, factory: KernelFactory, attrs: Mapping[str, Any], dtypes: Sequence[np.dtype]
    ) -> Callable[..., Any] | None:
        """A function for an elementwise operation, or one with reductions of rows.

        Args:
          factory: The factory of the kernel.
          attrs: The attributes of the operation.
          dtypes: The dtypes of the results.

        Returns:
          A function of the inputs, which returns None if it leaves arrays of such dtypes and shapes to the kernel.
        """
        return None

    # *** Reductions ***

    def reduced(self, ufunc: np.ufunc, x: Array, axes: Sequence[int]) -> Array | None:
        """The reduction of floats over axes.

        Args:
          ufunc: The ufunc: `np.add`, `np.maximum` or `np.minimum`.
          x: The array.
          axes: The axes, in ascending order and at least 0.

        Returns:
          The result without these axes, in float32 for half precision.
        """
        return None

    # *** Copies ***

    def contiguous(self, x: Array) -> Array | None:
        """A copy of a transposed array in row-major order."""
        return None

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

    def neighbors(self, x: Array, radius: int) -> Array | None:
        """Sums over the channels within `radius` of each; they are the last axis."""
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

    # *** Images [n, height, width, channels] ***

    def resampled(self, images: Array, which: Array, rows: Table, columns: Table, dtype: Any) -> Array | None:
        """Weighted sums of the elements of images along both axes.

        Args:
          images: The images.
          which: The number of an image for each image of the result.
          rows: The taps of the rows.
          columns: The taps of the columns.
          dtype: The dtype of the result and of the sums: float32 or float64.
        """
        return None

    def spread(self, grads: Array, which: Array, rows: Table, columns: Table, out: Array) -> bool:
        """Adds the gradient of `resampled` by the images to `out`, an array of images.

        Args:
          grads: The gradient by the result.
          which: The number of an image for each image of the result.
          rows: The taps of the rows, a table for each image of the result.
          columns: The taps of the columns, likewise.
          out: The array to change.

        Returns:
          False if the library leaves it to the kernel.
        """
        return False

    def slopes(
        self, grads: Array, images: Array, which: Array, rows: Table, columns: Table
    ) -> tuple[Array, Array] | None:
        """Gradients of bilinear crops by the positions of their rows and columns.

        Args:
          grads: The gradient by the crops.
          images: The images.
          which: The number of an image for each crop.
          rows: The taps of the rows: two for each row, one on each side of its position.
          columns: The taps of the columns, likewise.

        Returns:
          The gradients, [crops, rows] and [crops, columns].
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


# *** Functions that ask the library for large arrays alone: for others its import would take longer than they do ***


def contiguous(x: Any, xp: Any = np) -> Any:
    """Returns an array in row-major order if its namespace is numpy.

    It is a copy if `x` has another order.
    """
    if xp is not np:
        return x  # other namespaces do not tell the order
    found = kernel_library().contiguous(x) if x.size >= thresholds.NATIVE_TRANSPOSE else None
    return np.ascontiguousarray(x) if found is None else found


def reduced(ufunc: np.ufunc, x: Any, axes: Sequence[int], xp: Any = np) -> Any:
    """Returns `KernelLibrary.reduced` of a large array; None leaves an array to the kernel."""
    if xp is not np or x.size < thresholds.NATIVE_REDUCTION:
        return None
    return kernel_library().reduced(ufunc, x, axes)


# *** Elementwise operations ***

_COMPLEX: Final = ("complex64", "complex128")

#: Ufuncs that take numpy longer than native code, by the names of the dtypes.
SLOW_UFUNCS: Final[dict[str, tuple[str, ...]]] = {
    "cos": ("float64", *_COMPLEX),
    "cosh": _COMPLEX,
    "divide": _COMPLEX,
    "erf": ("float32",),
    "exp": ("float32", *_COMPLEX),
    "expm1": ("float64", *_COMPLEX),
    "log": _COMPLEX,
    "log1p": _COMPLEX,
    "logaddexp": ("float32", "float64"),
    "negative": _COMPLEX,
    "power": _COMPLEX,
    "reciprocal": _COMPLEX,
    "sign": ("float32", "float64", *_COMPLEX),
    "sin": ("float64", *_COMPLEX),
    "sinh": _COMPLEX,
    "sqrt": ("float32", "float64", *_COMPLEX),
    "tan": _COMPLEX,
    "tanh": ("float64", *_COMPLEX),
}


def kernel_with_library(op: Operation, kernel: Kernel, inputs: Iterable[Shape] = ()) -> Callable[..., Any]:
    """Returns a pure kernel that leaves elementwise work on large arrays to the library.

    Args:
      op: The operation.
      kernel: Its kernel.
      inputs: The static shapes of its inputs, if they are known.

    Returns:
      The kernel. Its attribute `uses_threads` is true if an operation of these shapes may have several threads.
    """
    made = made_for(op, kernel)
    record, least = op.opdef, thresholds.NATIVE_MAP
    sizes = [shapes.size(s) for s in inputs]
    if kernel.factory is not record.kernel or not _may_be_elementwise(record):
        return made
    if sizes and all(n is not None and n < least for n in sizes):
        return made
    given = record.input_dtypes(op.attrs)
    if not given or any(d in OBJECT for d in given) or (isinstance(made, np.ufunc) and not _is_slow(made, given)):
        return made
    asking = with_library(made, kernel.factory, op.attrs, [d.numpy for d in record.output_dtypes(op.attrs)])
    asking.uses_threads = any(n is not None and n >= least for n in sizes)  # type: ignore[attr-defined]
    return asking


def with_library(
    made: Callable[..., Any], factory: KernelFactory, attrs: Mapping[str, Any], dtypes: Sequence[np.dtype]
) -> Callable[..., Any]:
    """Returns a function that leaves elementwise work on large arrays to the library.

    Args:
      made: The function.
      factory: The factory of the function.
      attrs: The attributes that it receives.
      dtypes: The dtypes of the results.
    """
    least = thresholds.NATIVE_MAP
    computes: Callable[..., Any] | None = None

    def call(x: Any, *others: Any) -> Any:
        nonlocal computes
        if x.size < least:
            for y in others:
                if y.size >= least:
                    break
            else:
                return made(x, *others)
        if computes is None:
            computes = kernel_library().elementwise(factory, attrs, dtypes) or _leaves
        found = computes(x, *others)
        return made(x, *others) if found is None else found

    return call


def _may_be_elementwise(record: OpDef) -> bool:
    """Whether an op may be elementwise, or of rows: products and reductions are not."""
    facts = record.facts
    if facts.cost is None or facts.blas or facts.dynamic_shape:
        return False
    return not any(a.is_list for a in record.outs)


def _is_slow(ufunc: np.ufunc, dtypes: Iterable[DType]) -> bool:
    """Whether native code may compute a ufunc of arrays of these dtypes faster than numpy."""
    return any(d in HALF or d.name in SLOW_UFUNCS.get(ufunc.__name__, ()) for d in dtypes)


def _leaves(*arrays: Any) -> None:
    """Leaves all arrays to the kernel."""
