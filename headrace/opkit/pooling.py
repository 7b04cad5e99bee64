"""Helpers of pooling records: windows over all axes of an array, their reduction, shape rules.

The data layout needs no transposition: windows have one element along the axes that are not pooled, and such axes cost
nothing.

The functions compute with arrays of any namespace of the array API standard. Those of numpy have their own ways, which
write into memory that they have already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.dtypes import from_numpy
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.memo import cached
from headrace.opkit import window_arrays
from headrace.opkit.arrays import dims
from headrace.opkit.namespaces import constant
from headrace.opkit.windows import Axis, Sliding, sliding
from headrace.shapes import merge, show, with_rank

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.infer import Inference
    from headrace.shapes import Shape

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]


@cached(1024, "pooling windows")
def axes_of(s: Sliding, x: tuple[int, ...], ksize: tuple[int, ...]) -> Axes:
    """Returns the windows over all axes of an array of the shape `x`.

    Raises:
      InvalidArgumentError: the rank, window sizes or padding are wrong.
      UnimplementedError: the pooling is along the batch.
    """
    rank = len(s.strides)
    if len(x) != rank:
        raise InvalidArgumentError(
            f"tensor_in must be {rank}-dimensional: it must have {rank - 2} spatial dimensions, got {show(x)}"
        )
    _check_ksize(s, ksize)
    if ksize[0] != 1 or s.strides[0] != 1:
        raise UnimplementedError("Pooling is not yet supported on the batch dimension.")
    for i in s.spatial if s.margins else ():
        if max(s.margins[i]) >= ksize[i]:
            raise InvalidArgumentError(
                f"Padding {list(s.margins[i])} of dimension {i} needs to be smaller than the window size {ksize[i]}"
            )
    return tuple(s.axis(i, x[i], ksize[i]).trimmed() for i in range(rank))


def _check_ksize(s: Sliding, ksize: tuple[int, ...]) -> None:
    if len(ksize) != len(s.strides):
        raise InvalidArgumentError(
            f"Sliding window ksize field must specify {len(s.strides)} dimensions, got {list(ksize)}"
        )
    if min(ksize) < 1:
        raise InvalidArgumentError(f"Sliding window ksize must be positive, got {list(ksize)}")


def counted(axes: Axes) -> tuple[int, ...]:
    """Returns the shape of the result of a pooling."""
    return tuple(a.count for a in axes)


def expect(what: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raises `InvalidArgumentError` unless an array has the shape `wanted`."""
    if got != wanted:
        raise InvalidArgumentError(f"Expected {what} shape to be {show(wanted)}, but got {show(got)}")


# *** Reductions of the windows of an array, one axis after the other ***


def reduced(f: Any, x: Any, axes: Axes, start: Any, xp: Any = np) -> Any:
    """Reduces each window by the function `f` of two arrays, numpy's ufunc for its arrays.

    Args:
      f: the function.
      x: the array.
      axes: the windows over all of its axes.
      start: the result for padding alone, which changes nothing.
      xp: the namespace.
    """
    if xp is not np:
        return window_arrays.reduced(xp, f, x, axes, start)
    moved = [(i, axis) for i, axis in enumerate(axes) if not axis.is_plain]
    if len(moved) < 2 or x.nbytes <= 2 * thresholds.CACHED_BYTES or not axes[0].is_plain:
        return _reduced(f, x, moved, start)
    out = np.empty(counted(axes), x.dtype)
    step = max(1, len(x) * thresholds.CACHED_BYTES // x.nbytes)
    for image in range(0, len(x), step):  # so that the intermediate result between two axes stays in the cache
        out[image : image + step] = _reduced(f, x[image : image + step], moved, start)
    return out


def _reduced(f: Any, x: Array, moved: Sequence[tuple[int, Axis]], start: Any) -> Array:
    for i, axis in moved:
        x = _along(f, x, i, axis, start)
    return x


def _along(f: Any, x: Array, i: int, axis: Axis, start: Any) -> Array:
    before = (slice(None),) * i
    every = slice(0, axis.count)
    pieces = [axis.tap(k) for k in range(axis.size)]
    whole = [x[*before, elements] for windows, elements in pieces if windows == every]
    if len(whole) == len(pieces) == 1:
        return whole[0]
    if not whole:
        out = np.full((*x.shape[:i], axis.count, *x.shape[i + 1 :]), start, x.dtype)
    else:
        out = whole[0].copy() if len(whole) == 1 else f(*whole[:2])
    for piece in whole[2:]:
        f(out, piece, out=out)
    for windows, elements in pieces:
        if windows != every:
            some = out[*before, windows]
            f(some, x[*before, elements], out=some)
    return out


def spread(g: Any, axes: Axes, xp: Any = np) -> Any:
    """Returns the transpose of sums: for each input element, the sum of its windows' values.

    Args:
      g: the values of the windows.
      axes: the windows over each axis.
      xp: the namespace.
    """
    for i, axis in reversed(list(enumerate(axes))):
        if not axis.is_plain:
            before = (slice(None),) * i
            out = window_arrays.full(xp, (*g.shape[:i], axis.length, *g.shape[i + 1 :]), 0, g)
            for windows, elements in (axis.tap(k) for k in range(axis.size)):
                out[*before, elements, ...] += g[*before, windows, ...]
            g = out
    return g


def counts(axes: Axes, dtype: np.dtype, xp: Any = np, like: Any = None) -> Any:
    """Returns the number of elements of each window without padding.

    The result broadcasts to the shape of the pooling's result.

    Args:
      axes: the windows over all axes.
      dtype: the dtype of the result, as numpy's.
      xp: the namespace.
      like: an array on the device of the result.
    """
    found = _counts(axes, dtype)
    return found if xp is np else constant(xp, found.tolist(), from_numpy(dtype), like)


def _counts(axes: Axes, dtype: np.dtype) -> Any:
    found: Any = dtype.type(1)
    for i, axis in enumerate(axes):
        if axis.is_inside:
            found = found * dtype.type(axis.size)
            continue
        mine = np.zeros(axis.count, dtype)
        for windows, _ in (axis.tap(k) for k in range(axis.size)):
            mine[windows] += 1
        found = found * mine.reshape(-1, *[1] * (len(axes) - 1 - i))
    return found


# *** Shape rules and kernels ***


def rank_of(attrs: Mapping[str, Any]) -> int:
    """Returns the number of axes of the arrays of a pooling with these attributes."""
    return len(attrs.get("data_format", "NHWC"))


def pooled_shape(type: str) -> Any:
    """Returns the shape rule of a pooling.

    The windows are attributes, or the last two inputs.
    """

    def rule(c: Inference) -> Sequence[Shape]:
        s, ksize = _windows_of(type, c)
        x = with_rank(c.shapes[0], rank_of(c.attrs))
        if s is None or ksize is None:
            return [(x[0], *[None] * (len(x) - 1))]
        return [tuple(d if ksize[i] == s.strides[i] == 1 else s.dim(i, d, ksize[i]) for i, d in enumerate(x))]

    return rule


def _windows_of(type: str, c: Inference) -> tuple[Sliding | None, tuple[int, ...] | None]:
    """Returns the windows of an operation and their size; None for unknown values."""
    if "ksize" in c.attrs:
        ksize = c.attrs["ksize"]
        s = sliding(type, c.attrs)
    else:
        with_rank(c.shapes[-2], 1)
        with_rank(c.shapes[-1], 1)
        values = [c.value(i) for i in (len(c.shapes) - 2, len(c.shapes) - 1)]
        if values[0] is None or values[1] is None:
            return None, None
        ksize = dims(values[0])
        s = sliding(type, {**c.attrs, "strides": dims(values[1])})
    if len(ksize) != len(s.strides):
        raise ValueError(
            f"{type} requires the ksize attribute to contain {len(s.strides)} values, but got: {len(ksize)}"
        )
    return s, ksize if min(ksize) > 0 else None


def grad_shape(result: int, others: tuple[int, int]) -> Any:
    """Returns a rule: the output has the shape of one input.

    Two other inputs have equal shapes.

    Args:
      result: the number of the input with the output's shape.
      others: the numbers of the inputs with equal shapes.
    """

    def rule(c: Inference) -> Sequence[Shape]:
        rank = rank_of(c.attrs)
        merge(c.shapes[others[0]], c.shapes[others[1]])
        return [with_rank(c.shapes[result], rank)]

    return rule


def pooling(type: str, make: Callable[[DType, Any], Callable[..., Any]]) -> Any:
    """Returns a kernel factory; `make(dtype, xp)` returns a function of `Sliding`, ksize and arrays.

    ksize and strides are attributes, or the last two inputs.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        compute = make(attrs["T"], xp)
        if "ksize" in attrs:
            return functools.partial(compute, sliding(type, attrs), tuple(attrs["ksize"]))

        def kernel(*args: Any) -> Any:
            *arrays, ksize, strides = args
            return compute(sliding(type, {**attrs, "strides": dims(strides)}), dims(ksize), *arrays)

        return kernel

    return factory


def windows_attrs(n: Any) -> dict[str, Any]:
    """Returns the attributes that describe the windows of a gradient rule's node."""
    return {k: n.attrs[k] for k in ("ksize", "strides", "padding", "data_format", "explicit_paddings") if k in n.attrs}
