"""Kernels of convolutions and of their gradients with respect to input and filter.

The windows of the input are copied into rows of a matrix, a block of `thresholds.CACHED_BYTES` bytes at a time, and
multiplied by the filter, whose memory layout is that of a matrix ("im2col": Chellapilla, Puri, Simard, "High
Performance Convolutional Neural Networks for Document Processing", 2006). Half precision is computed in float32. For
arrays of other namespaces than numpy, all windows are copied at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace import dtypes, thresholds
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError, OpError
from headrace.memo import cached
from headrace.opkit.arrays import check_size
from headrace.opkit.elementwise import HALF, widened
from headrace.opkit.kernel_library import kernel_library
from headrace.opkit.window_arrays import patch_sums, patches, plain
from headrace.opkit.windows import Axis, Sliding, taps
from headrace.shapes import Dim, show

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]

# *** Arrays, channels last: images are [batch, *spatial, channels], filters [*window, channels, outputs] ***


def blocks(images: int, rows: int, row_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Yields blocks of images and rows of the output.

    A block has at most `thresholds.CACHED_BYTES` bytes, or is one row.
    """
    step = max(1, thresholds.CACHED_BYTES // max(1, row_bytes))
    if step >= rows:
        many = max(1, step // max(1, rows))
        for i in range(0, images, many):
            yield slice(i, min(i + many, images)), slice(0, rows)
        return
    for i in range(images):
        for r in range(0, rows, step):
            yield slice(i, i + 1), slice(r, min(r + step, rows))


def _framed(x: Array, axes: Axes) -> Array:
    """`x` cropped or padded with zeros to the extent of all windows."""
    pairs = [a.overlap() for a in axes]
    inner = x[:, *(elements for _, elements in pairs)]
    if all(a.is_inside for a in axes):
        return inner
    shape = (x.shape[0], *(a.extent for a in axes), x.shape[-1])
    check_size(shape, dtypes.from_numpy(x.dtype))
    frame = np.zeros(shape, x.dtype)
    frame[:, *(place for place, _ in pairs)] = inner
    return frame


def _columns(x: Array, axes: Axes) -> Iterator[tuple[slice, slice, Array]]:
    """Yields images, rows of the output, and their windows as rows of a matrix.

    The matrix is valid until the next iteration.
    """
    channels = x.shape[-1]
    if all(a.is_plain for a in axes):
        yield slice(None), slice(None), x.reshape(-1, channels)
        return
    counts, sizes = [a.count for a in axes], [a.size for a in axes]
    width = math.prod(sizes) * channels
    columns = np.empty(0, x.dtype)
    for images, rows in blocks(len(x), counts[0], math.prod(counts[1:]) * width * x.itemsize):
        parts = (axes[0].part(rows), *axes[1:])
        frame = _framed(x[images], parts)
        first, *between, last = frame.strides
        windows = as_strided(
            frame,
            (len(frame), *(a.count for a in parts), *sizes, channels),
            (
                first,
                *(s * a.stride for s, a in zip(between, parts, strict=True)),
                *(s * a.dilation for s, a in zip(between, parts, strict=True)),
                last,
            ),
            writeable=False,
        )
        if columns.shape != windows.shape:
            columns = np.empty(windows.shape, x.dtype)
        np.copyto(columns, windows)
        yield images, rows, columns.reshape(-1, width)


def convolved(x: Array, w: Array, axes: Axes) -> Array:
    """The convolution (the correlation, as mathematicians say) of `x` with the filter `w`."""
    outputs = w.shape[-1]
    y = np.empty((len(x), *(a.count for a in axes), outputs), x.dtype)
    if y.size:
        matrix = w.reshape(-1, outputs)
        for images, rows, columns in _columns(x, axes):
            np.matmul(columns, matrix, out=y[images, rows].reshape(-1, outputs))
    return y


def _convolved_in_steps(x: Array, w: Array, axes: Axes) -> Array:
    """Convolution of bfloat16 whose partial sums are rounded to bfloat16.

    The sums are computed in float32, in the order of the filter's elements.

    This is what TensorFlow makes of volumes if there are less than eight outputs; of so few bits each counts.
    """
    outputs = w.shape[-1]
    y = np.zeros((len(x), *(a.count for a in axes), outputs), x.dtype)
    for images, rows, columns in _columns(x, axes) if y.size else ():
        total = np.zeros((len(columns), outputs), x.dtype)
        for column, weights in zip(columns.T, w.reshape(-1, outputs), strict=True):
            total = rounded(total + column[:, None] * weights, dtypes.bfloat16)
        y[images, rows].reshape(-1, outputs)[:] = total
    return y


def rounded(x: Array, t: DType) -> Array:
    """`x`, of float32, as exact as the dtype `t` is."""
    return x.astype(t.numpy).astype(np.float32)


def by_filter(x: Array, dy: Array, axes: Axes) -> Array:
    """The gradient by the filter."""
    channels, outputs = x.shape[-1], dy.shape[-1]
    sizes = [a.size for a in axes]
    dw = np.zeros((math.prod(sizes) * channels, outputs), x.dtype)
    if dy.size:
        for images, rows, columns in _columns(x, axes):
            dw += np.dot(columns.T, dy[images, rows].reshape(-1, outputs))
    return dw.reshape(*sizes, channels, outputs)


def by_input(w: Array, dy: Array, axes: Axes) -> Array:
    """The gradient by the input.

    Windows at every element: a convolution of `dy` with the filter turned round. Otherwise, or if that would copy much
    more than there is to add, the gradients of the windows' elements are added up.
    """
    channels, outputs = w.shape[-2:]
    if outputs <= 2 * channels and all(a.stride == 1 and a.reach > a.before for a in axes):
        turned = np.flip(w, tuple(range(len(axes)))).swapaxes(-1, -2)
        back = [Axis(a.count, a.length, a.size, 1, a.dilation, a.reach - 1 - a.before) for a in axes]
        return convolved(dy, turned, tuple(back))
    counts = [a.count for a in axes]
    dx = np.zeros((len(dy), *(a.length for a in axes), channels), dy.dtype)
    part_of_row = math.prod(counts[1:]) * channels * dy.itemsize
    for images, rows in blocks(len(dy), counts[0], part_of_row) if dy.size else ():
        parts = (axes[0].part(rows), *axes[1:])
        block, into = dy[images, rows], dx[images]
        matrix = block.reshape(-1, outputs)
        product = np.empty((*block.shape[:-1], channels), dy.dtype)
        for weights, (windows, elements) in zip(w.reshape(-1, channels, outputs), taps(parts), strict=True):
            np.matmul(matrix, weights.T, out=product.reshape(-1, channels))
            into[:, *elements] += product[:, *windows]
    return dx


def in_groups(
    f: Callable[[Array, Array, Axes], Array],
    a: Array,
    b: Array,
    groups: int,
    axes: Axes,
    whole: Callable[[Array, Array, Axes, int], Array | None] | None = None,
) -> Array:
    """Computes each group of channels by itself and joins the results.

    Args:
      f: The function of one group.
      a: The first array.
      b: The second array.
      groups: The number of groups.
      axes: The windows over the spatial axes.
      whole: The function of a library for all groups, which returns None if it does not support them.

    Returns:
      The result.
    """
    t = a.dtype
    if dtypes.from_numpy(t) in HALF:
        return in_groups(f, a.astype(np.float32), b.astype(np.float32), groups, axes, whole).astype(t)
    found = None if whole is None else whole(a, b, axes, groups)
    if found is not None:
        return found
    if groups == 1:
        return f(a, b, axes)
    both = zip(np.split(a, groups, -1), np.split(b, groups, -1), strict=True)
    return np.concatenate([f(p, q, axes) for p, q in both], -1)


# *** Any namespace of the array API standard ***


class _Portable:
    """Convolutions of arrays of a namespace, channels last, and their gradients.

    Attributes:
      xp: the namespace.
    """

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def convolved(self, x: Any, w: Any, axes: Axes, groups: int) -> Any:
        """Returns the convolution of `x` with the filter `w`."""
        columns, shape = self._columns(x, axes, groups)
        y = self.xp.matmul(columns, self._matrices(w, groups))
        return self.xp.reshape(self.xp.permute_dims(y, (1, 0, 2)), (*shape, w.shape[-1]))

    def by_filter(self, x: Any, dy: Any, axes: Axes, groups: int) -> Any:
        """Returns the gradient by the filter."""
        channels, outputs, sizes = x.shape[-1] // groups, dy.shape[-1], [a.size for a in axes]
        columns, _ = self._columns(x, axes, groups)
        dw = self.xp.matmul(self.xp.matrix_transpose(columns), self._in_groups(dy, groups))
        parted = self.xp.reshape(dw, (groups, math.prod(sizes) * channels, outputs // groups))
        return self.xp.reshape(self.xp.permute_dims(parted, (1, 0, 2)), (*sizes, channels, outputs))

    def by_input(self, w: Any, dy: Any, axes: Axes, groups: int) -> Any:
        """Returns the gradient by the input."""
        channels, taps_ = w.shape[-2], math.prod(w.shape[:-2])
        columns = self.xp.matmul(self._in_groups(dy, groups), self.xp.matrix_transpose(self._matrices(w, groups)))
        parted = self.xp.reshape(columns, (*columns.shape[:2], taps_, channels))
        copies = self.xp.reshape(self.xp.permute_dims(parted, (1, 2, 0, 3)), (*dy.shape[:-1], taps_, groups * channels))
        return patch_sums(self.xp, copies, (plain(dy.shape[0]), *axes, plain(groups * channels)))

    def _in_groups(self, x: Any, groups: int) -> Any:
        """The rows of channels as matrices, [groups, rows, channels of a group]."""
        *shape, channels = x.shape
        return self.xp.permute_dims(self.xp.reshape(x, (math.prod(shape), groups, channels // groups)), (1, 0, 2))

    def _columns(self, x: Any, axes: Axes, groups: int) -> tuple[Any, tuple[int, ...]]:
        """The windows as rows of matrices, and the shape of the rows.

        The matrices are [groups, rows, elements and channels].
        """
        xp, channels = self.xp, x.shape[-1]
        copies = patches(xp, x, (plain(x.shape[0]), *axes, plain(channels)))
        *shape, taps_, _ = copies.shape
        rows, each = math.prod(shape), channels // groups
        parted = xp.permute_dims(xp.reshape(copies, (rows, taps_, groups, each)), (2, 0, 1, 3))
        return xp.reshape(parted, (groups, rows, taps_ * each)), tuple(shape)

    def _matrices(self, w: Any, groups: int) -> Any:
        """The filter as matrices, [groups, elements and channels, outputs of a group]."""
        *sizes, outputs = w.shape
        parted = self.xp.reshape(w, (math.prod(sizes), groups, outputs // groups))
        return self.xp.permute_dims(parted, (1, 0, 2))


Product: TypeAlias = Callable[[Any, Any, Axes, int], Any]


class Products(NamedTuple):
    """Convolution and its gradients: functions of two arrays, axes and groups.

    The arrays have the channels last.

    Attributes:
      xp: the namespace of the arrays.
      dtype: the dtype.
      convolved: of the input and the filter.
      by_input: of the filter and the gradient by the result.
      by_filter: of the input and the gradient by the result.
      in_steps: as `convolved`, for volumes of bfloat16 with few outputs.
    """

    xp: Any
    dtype: DType
    convolved: Product
    by_input: Product
    by_filter: Product
    in_steps: Product


def products(xp: Any, t: DType) -> Products:
    """Returns the convolution of arrays of a namespace and dtype, and its gradients."""
    if xp is np:
        library = kernel_library()
        return Products(
            xp,
            t,
            lambda x, w, axes, groups: in_groups(convolved, x, w, groups, axes, library.convolved),
            lambda w, dy, axes, groups: in_groups(by_input, w, dy, groups, axes, library.by_input),
            lambda x, dy, axes, groups: in_groups(by_filter, x, dy, groups, axes, library.by_filter),
            lambda x, w, axes, groups: in_groups(_convolved_in_steps, x, w, groups, axes),
        )
    portable = _Portable(xp)

    def wide(f: Product) -> Product:
        return lambda a, b, axes, groups: widened(lambda a, b: f(a, b, axes, groups), t, xp)(a, b)

    of_input = wide(portable.convolved)
    return Products(xp, t, of_input, wide(portable.by_input), wide(portable.by_filter), of_input)


# *** Geometry ***


def refuse_others(s: Sliding, error: type[OpError] = InvalidArgumentError) -> None:
    """Raises unless strides and dilations are those of the spatial axes."""
    for what, values in (("strides", s.strides), ("dilations", s.dilations)):
        if any(values[i] != 1 for i in s.others):
            raise error(
                f"Current implementation does not yet support {what} in the batch and depth dimensions, "
                f"got {list(values)}"
            )


def groups_of(inputs: Dim, channels: Dim, outputs: Dim) -> int | None:
    """Number of groups into which a filter's `channels` divide those of the input.

    Raises `ValueError` if they do not divide them.
    """
    if channels == 0:
        raise ValueError("Depth of filter must not be 0")
    if inputs is None or channels is None:
        return None
    if inputs % channels:
        raise ValueError(
            f"Depth of input ({inputs}) is not a multiple of input depth of filter ({channels}): "
            "input depth must be evenly divisible by filter depth"
        )
    groups = inputs // channels
    if outputs is not None and groups and outputs % groups:
        raise ValueError(
            f"Depth of output ({outputs}) is not a multiple of the number of groups ({groups}): "
            "output depth must be evenly divisible by number of groups"
        )
    return groups


@cached(1024, "convolution shapes")
def geometry(s: Sliding, x: tuple[int, ...], w: tuple[int, ...]) -> tuple[Axes, int, tuple[int, ...]]:
    """Axes and groups of the convolution of shapes `x` and `w`, and its result shape.

    Raises:
      InvalidArgumentError: there is no such convolution.
    """
    rank = len(s.strides)
    for what, shape in (("input", x), ("filter", w)):
        if len(shape) != rank:
            raise InvalidArgumentError(f"convolution {what} must be {rank}-dimensional: {show(shape)}")
    try:
        groups = groups_of(x[s.channels], w[-2], w[-1])
    except ValueError as e:
        raise InvalidArgumentError(f"{e}; input {show(x)}, filter {show(w)}") from None
    if not math.prod(w[:-2]):
        raise InvalidArgumentError(
            f"filter must not have zero elements (i.e. all dimensions must be non-zero): {show(w)}"
        )
    axes = tuple(s.axis(i, x[i], size) for i, size in zip(s.spatial, w, strict=False))
    return axes, groups or 1, shape_of(s, x[0], axes, w[-1])


def shape_of(s: Sliding, batch: int, axes: Axes, channels: int) -> tuple[int, ...]:
    """Shape of an array with `batch` images, `channels` and an element for each window."""
    shape = [batch] * len(s.strides)
    shape[s.channels] = channels
    for i, a in zip(s.spatial, axes, strict=True):
        shape[i] = a.count
    return tuple(shape)


def convolution(s: Sliding, x: Any, w: Any, of: Products) -> Any:
    """The convolution of `x`, laid out as `s` says, with the filter `w`.

    Args:
      s: The windows.
      x: The input.
      w: The filter.
      of: The functions of their namespace and dtype.

    Returns:
      The result, in the layout of `x`.

    Raises:
      InvalidArgumentError: see `geometry`.
    """
    axes, groups, y = geometry(s, x.shape, w.shape)
    check_size(y, of.dtype)
    compute = of.in_steps if of.dtype is dtypes.bfloat16 and len(axes) == 3 and w.shape[-1] < 8 else of.convolved
    return laid_out(compute(channels_last(x, s, of.xp), w, axes, groups), s, of.xp)


# *** Layouts ***


def channels_last(x: Any, s: Sliding, xp: Any) -> Any:
    """`x` with the channels last."""
    return x if s.channels == x.ndim - 1 else xp.moveaxis(x, s.channels, -1)


def laid_out(x: Any, s: Sliding, xp: Any) -> Any:
    """`x`, channels last, in the layout of `s`.

    The result is a view, so a chain of convolutions copies nothing.
    """
    return x if s.channels == x.ndim - 1 else xp.moveaxis(x, -1, s.channels)
