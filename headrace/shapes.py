"""Static shapes: the shapes of tensors that are known before a graph runs.

A shape is a tuple of dimensions, each an `int` or `None` (unknown), or `None` for an unknown rank. Shapes are plain
values, so that shape functions are plain arithmetic. The functions raise `ValueError`; the op layer adds the node's
name and raises `ShapeError`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Dim: TypeAlias = int | None
Shape: TypeAlias = tuple[Dim, ...] | None


def show(shape: Shape) -> str:
    """Formats a shape as TensorFlow does.

    >>> show((2, None)), show(None), show(())
    ('[2,?]', '<unknown>', '[]')
    """
    if shape is None:
        return "<unknown>"
    return "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def as_shape(value: object) -> Shape:
    """Converts `value` to a shape.

    It is None, an int, a sequence of ints and Nones, or a `TensorShape`.

    Raises:
      SignatureError: a value of another kind, or a negative size.
    """
    if value is None:
        return None
    if is_number(value):
        value = (value,)
    dims = getattr(value, "dims", value)  # a `TensorShape`, or an object like it
    if dims is None:
        return None
    out: list[Dim] = []
    try:
        for d in cast("Iterable[Any]", dims):
            d = getattr(d, "value", d)
            out.append(None if d is None else operator.index(d))
    except (TypeError, ValueError) as e:
        raise SignatureError(
            f"{value!r} is no shape: give a tuple of sizes, None for one that is not known, as in (None, 3)"
        ) from e
    if any(d is not None and d < 0 for d in out):
        raise SignatureError(f"{value!r} is no shape: a Dimension must be >= 0; None stands for one that is not known")
    return tuple(out)


def is_number(value: object) -> bool:
    """Whether `value` represents an integer, and is no array or tensor."""
    return hasattr(type(value), "__index__") and not hasattr(type(value), "__iter__")


def is_full(shape: Shape) -> bool:
    """Whether rank and every dimension are known."""
    return shape is not None and None not in shape


def size(shape: Shape) -> Dim:
    """Number of elements; None if unknown, but 0 if any dimension is 0."""
    if shape is None:
        return None
    n = 1
    unknown = False
    for d in shape:
        if d is None:
            unknown = True
        elif d == 0:
            return 0
        else:
            n *= d
    return None if unknown else n


def compatible(a: Shape, b: Shape) -> bool:
    """Whether some concrete shape fits both shapes."""
    if a is None or b is None or a == b:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def fits(actual: Sequence[int], wanted: Shape) -> bool:
    """Whether the concrete shape `actual` fits the static shape `wanted`."""
    return compatible(tuple(actual), wanted)


def merge_dim(a: Dim, b: Dim) -> Dim:
    """Merges two descriptions of one dimension; raises `ValueError` if they differ."""
    if a is None:
        return b
    if b is None or a == b:
        return a
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


def merge(a: Shape, b: Shape) -> Shape:
    """Merges two descriptions of one shape; raises `ValueError` if they contradict."""
    if a is None:
        return b
    if b is None or a == b:
        return a
    if len(a) != len(b):
        raise ValueError(f"Shapes must be equal rank, but are {len(a)} and {len(b)}: {show(a)} and {show(b)}")
    try:
        return tuple(merge_dim(x, y) for x, y in zip(a, b, strict=True))
    except ValueError as e:
        raise ValueError(f"{e}: {show(a)} and {show(b)}") from None


def join(a: Shape, b: Shape) -> Shape:
    """Most specific shape that covers both shapes."""
    if a is None or b is None or len(a) != len(b):
        return None
    if a == b:
        return a
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def covers(wide: Shape, narrow: Shape) -> bool:
    """Whether every concrete shape that fits `narrow` fits `wide`."""
    return wide is None or join(wide, narrow) == wide


def with_rank(shape: Shape, rank: int) -> tuple[Dim, ...]:
    """Returns `shape` with `rank` dimensions; raises `ValueError` for another rank."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ValueError(f"Shape must be rank {rank} but is rank {len(shape)}: {show(shape)}")
    return shape


def with_rank_at_least(shape: Shape, rank: int) -> Shape:
    """Returns `shape`; raises `ValueError` if its rank is known to be below `rank`."""
    if shape is not None and len(shape) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape)}: {show(shape)}")
    return shape


def with_rank_at_most(shape: Shape, rank: int) -> Shape:
    """Returns `shape`; raises `ValueError` if its rank is known to be above `rank`."""
    if shape is not None and len(shape) > rank:
        raise ValueError(f"Shape must be at most rank {rank} but is rank {len(shape)}: {show(shape)}")
    return shape


def concatenate(a: Shape, b: Shape) -> Shape:
    """Concatenates the dimensions of `a` and `b`."""
    return None if a is None or b is None else a + b


def broadcast(a: Shape, b: Shape) -> Shape:
    """Shape of an elementwise operation on both, by numpy's broadcasting rule."""
    if a is None or b is None:
        return None
    if a == b:
        return a
    if len(a) < len(b):
        a = (1,) * (len(b) - len(a)) + a
    elif len(b) < len(a):
        b = (1,) * (len(a) - len(b)) + b
    out: list[Dim] = []
    for x, y in zip(a, b, strict=True):
        if x == 1:
            out.append(y)
        elif y == 1 or x == y:
            out.append(x)
        elif x is None:
            out.append(y)  # y is not 1 here, so x must be 1 or y
        elif y is None:
            out.append(x)
        else:
            raise ValueError(f"Dimensions must be equal, but are {x} and {y}: {show(a)} and {show(b)}")
    return tuple(out)


def reduced(shape: Shape, axes: Iterable[int] | None, keep_dims: bool) -> Shape:
    """Shape after a reduction over `axes`; None: the axes are not known."""
    if axes is None:
        return None if shape is None or not keep_dims else (None,) * len(shape)
    axes = list(axes)
    if shape is None:
        return None
    rank = len(shape)
    gone = set()
    for a in axes:
        if not -rank <= a < rank:
            raise ValueError(f"Invalid reduction dimension {a} for input with {rank} dimensions")
        gone.add(a % rank)
    if keep_dims:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)
