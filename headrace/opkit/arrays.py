"""Helpers of kernels and shape rules: size limits, handles at rank 0, axes, known integers.

Kernels that move elements work for every dtype. Two kinds of dtypes need care. Strings are always arrays, so a kernel
indexes them with a trailing `...`. Resources and variants are bare objects at rank 0, which `boxed` converts. Both are
arrays of numpy in every namespace.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.opkit.namespaces import device_of, dtype_in, listed

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.infer import Inference
    from headrace.ir.opdef import Case, Sample
    from headrace.shapes import Dim, Shape

HANDLES = frozenset({dtypes.resource, dtypes.variant})


def _memory() -> int:
    """Returns the memory of the machine in bytes, or an estimate."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**36


max_bytes = _memory()  # kernels refuse to create larger arrays; tests lower the limit


def check_size(shape: Sequence[int], dtype: DType) -> None:
    """Raises an error for shapes that cannot be allocated, before an allocation.

    Raises:
      InvalidArgumentError: a dimension is negative, or the number of elements exceeds 64 bits.
      ResourceExhaustedError: the array would not fit into the machine's memory.
    """
    if shape and min(shape) < 0:
        raise InvalidArgumentError(f"Dimension {min(shape)} must be >= 0, got the shape {_show(shape)}")
    n = math.prod(shape)
    if n * dtype.size > max_bytes:
        if n >= 2**63:
            raise InvalidArgumentError(f"Shape {_show(shape)} would have more than 2**63 - 1 elements")
        raise ResourceExhaustedError(
            f"OOM when allocating tensor with shape{_show(shape)} and type {dtype.name}: "
            f"{n * dtype.size} bytes, and this machine has {max_bytes}"
        )


def _show(shape: Sequence[int]) -> str:
    return shapes.show(tuple(shape))


def zeros(xp: Any, shape: tuple[int, ...], dtype: DType, like: Any = None) -> Any:
    """Returns a writable array of zeros; of empty strings; or of None for handles.

    Args:
      xp: the array namespace.
      shape: the shape.
      dtype: the dtype.
      like: an array on the device for the zeros.

    Raises:
      InvalidArgumentError, ResourceExhaustedError: see `check_size`.
    """
    check_size(shape, dtype)
    if dtype in dtypes.OBJECT:
        return np.full(shape, b"" if dtype is dtypes.string else None, object)
    if xp is np:
        return np.zeros(shape, dtype.numpy)
    return xp.zeros(shape, dtype=dtype_in(xp, dtype), **placed(xp, like))


def placed(xp: Any, like: Any) -> dict[str, Any]:
    """Returns the arguments that place a new array on the device of `like`."""
    return {} if xp is np or like is None else {"device": device_of(like)}


def copied(xp: Any, x: Any) -> Any:
    """Returns a writable copy of an array."""
    return np.array(x) if xp is np else xp.asarray(x, copy=True)


def on_host(x: Any) -> Any:
    """Returns indices or sizes as an array of numpy."""
    return x if isinstance(x, np.ndarray) else np.array(listed(x), np.int64)


def bounds(xp: Any, x: Any) -> tuple[int, int]:
    """Returns the least and the greatest of integers; there must be one."""
    if xp is np:  # whose methods are faster than its functions
        return x.min(), x.max()
    return int(xp.min(x)), int(xp.max(x))


def reshaper(xp: Any) -> Callable[[Any, tuple[int, ...]], Any]:
    """Returns the function `(x, shape)` that reshapes arrays, but not numpy's scalars."""
    f: Callable[..., Any] = np.ndarray.reshape if xp is np else xp.reshape  # the method is faster than the function
    return f


def permuter(xp: Any) -> Callable[[Any, tuple[int, ...]], Any]:
    """Returns the function `(x, axes)` that permutes axes of arrays, but not of numpy's scalars."""
    f: Callable[..., Any] = np.ndarray.transpose if xp is np else xp.permute_dims
    return f


def boxed(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Adapts a kernel factory for arrays to resources and variants, whose scalars are bare objects.

    The factory is `(xp, attrs)` or `(attrs)`; for handles `xp` is always numpy. The element type is the attribute `T`,
    `Tparams` or `dtype`.
    """

    @functools.wraps(factory)
    def make(*context: Any) -> Callable[..., Any]:
        *namespace, attrs = context
        element = next((attrs[a] for a in ("T", "Tparams", "dtype") if a in attrs), None)
        if element not in HANDLES:
            made: Callable[..., Any] = factory(*context)
            return made
        kernel = factory(*[np for _ in namespace], attrs)

        def on_objects(*args: Any) -> Any:
            out = kernel(*map(_box, args))
            return tuple(map(_unbox, out)) if isinstance(out, tuple) else _unbox(out)

        return on_objects

    return make


def _box(x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic)):
        return x
    out = np.empty((), object)
    out[()] = x
    return out


def _unbox(x: Any) -> Any:
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def single(many: Callable[..., Any], n: int) -> Callable[..., Any]:
    """Adapts `many`, which returns `n` arrays, to the return value of a kernel.

    A kernel returns the array itself for one output, and None for no output.
    """
    if n == 1:
        return lambda *args: many(*args)[0]
    if n > 1:
        return many

    def none(*args: Any) -> None:
        many(*args)

    return none


def axis_in(axis: int, rank: int, what: str = "axis") -> int:
    """Returns the non-negative number of an axis that may be counted from the end.

    Raises:
      ValueError: there are only `rank` axes.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"{what} = {axis} is not in [{-rank}, {rank}): there are {rank} dimensions")
    return axis % rank


def entries(c: Inference, i: int) -> list[int | None] | None:
    """Returns the statically known entries of input `i`, an integer scalar or vector.

    Negative entries are known only if the whole input is a constant.

    Returns:
      The entries, None for an unknown one; None if their number is unknown.
    """
    v = c.value(i)
    if v is not None:
        if v.ndim > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {v.ndim}: {shapes.show(v.shape)}")
        return [int(x) for x in np.ravel(v)]
    known = c.shape_value(i)
    return None if known is None else list(known)


def shape_from(c: Inference, i: int) -> Shape:
    """Returns input `i` as a shape, in which -1 means unknown.

    Raises:
      ValueError: the input is not a vector or has other negative entries.
    """
    shapes.with_rank(c.shapes[i], 1)
    v = c.value(i)
    if v is not None and v.size and v.min() < -1:
        raise ValueError(f"Invalid value in tensor used for shape: {v.min()}")
    return c.shape_value(i)


def ranked(shape: Shape, rank: Dim) -> Shape:
    """Returns `shape`, refined by `rank` dimensions if the rank is known.

    Raises:
      ValueError: the shape has another rank, or no array can have that rank.
    """
    if rank is None:
        return shape
    if rank > 254:
        raise ValueError(f"a shape cannot have {rank} dimensions; 254 is the limit")
    return shapes.with_rank(shape, rank)


def vector_of_unknowns(c: Inference, shape: Shape) -> Shape:
    """Returns the `shape_value` of an integer output with only a static shape."""
    if shape == ():
        return (None,)
    if shape is not None and len(shape) == 1 and shape[0] is not None and shape[0] <= 1024:
        return (None,) * shape[0]
    return None


def dims(values: Any) -> tuple[int, ...]:
    """Returns the elements of an integer vector, an array of any namespace, as a tuple.

    Raises:
      ValueError: `values` has another rank.
    """
    if values.ndim != 1:
        raise ValueError(f"expected a vector of integers, got the shape {shapes.show(values.shape)}")
    return tuple(values.tolist() if isinstance(values, np.ndarray) else listed(values))


def scalar(x: Any, name: str) -> Any:
    """Returns the scalar in `x`, a scalar or a vector of length 1.

    Old graphs contain such vectors in place of scalars.

    Raises:
      InvalidArgumentError: `x` has another shape.
    """
    if x.ndim == 0:
        return x
    if x.shape == (1,):
        return x[0, ...]
    raise InvalidArgumentError(f"{name} must be a scalar, got shape {shapes.show(x.shape)}")


def add_dims(ds: Iterable[Dim]) -> Dim:
    """Returns the sum of dimensions; None if one of them is unknown."""
    total = 0
    for d in ds:
        if d is None:
            return None
        total += d
    return total


def values_only(sample: Sample) -> Sample:
    """Returns a sampler without cases for resources and variants, which have no random values."""

    @functools.wraps(sample)
    def drawn(rng: np.random.Generator, dtype: DType) -> Iterable[Case]:
        return [] if dtype.base in HANDLES else sample(rng, dtype)

    return drawn
