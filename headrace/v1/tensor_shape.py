"""TensorFlow 1's static shapes as objects: `TensorShape` and `Dimension`.

headrace's own shapes are plain tuples (`headrace.shapes`); `Tensor.shape` in a `headrace.v1` graph is a `TensorShape`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from headrace import shapes
from headrace.api import arrays
from headrace.shapes import Dim, Shape


class Dimension:
    """Dimension of a static shape: a number, or unknown.

    Arithmetic with an unknown dimension has an unknown result; a comparison has the result None.

    Args:
      value: a number, None for unknown, or a `Dimension`.

    Raises:
      ValueError: `value` is negative.
      TypeError: `value` is not an integer.

    Source: TensorFlow's `tf.Dimension`.

    Example:
      >>> (Dimension(3) * 2).value, (Dimension(None) + 1).value, Dimension(3) == 3, Dimension(None) == 3
      (6, None, True, None)
    """

    __slots__ = ("value",)

    value: Dim

    def __init__(self, value: Any) -> None:
        if isinstance(value, Dimension):
            value = value.value
        elif value is not None:
            try:
                value = value.__index__()
            except AttributeError:
                raise TypeError(f"a Dimension is a whole number or None, got {value!r}") from None
            if value < 0:
                raise ValueError(f"a Dimension must be >= 0, got {value}; None stands for one that is not known")
        self.value = value

    def __repr__(self) -> str:
        return f"Dimension({self.value})"

    def __str__(self) -> str:
        return "?" if self.value is None else str(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __int__(self) -> Any:
        return self.value  # None is a TypeError, as in TensorFlow

    def __index__(self) -> Any:
        return self.value

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self.value is None:
            raise TypeError("a Dimension that is not known is no number; use tf.shape(x)[i], known when the graph runs")
        return np.array(self.value, dtype or np.int32)

    def is_compatible_with(self, other: Any) -> bool:
        """Whether both dimensions can be the same number.

        Args:
          other: a dimension.
        """
        mine, its = self.value, Dimension(other).value
        return mine is None or its is None or mine == its

    def assert_is_compatible_with(self, other: Any) -> None:
        """Checks that both dimensions can be the same number.

        Args:
          other: a dimension.

        Raises:
          ValueError: the numbers differ.
        """
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        """Returns the dimension that combines the information of both.

        Args:
          other: a dimension.

        Raises:
          ValueError: the numbers differ.
        """
        self.assert_is_compatible_with(other)
        return Dimension(other) if self.value is None else Dimension(self.value)

    def _with(self, other: Any, f: Callable[[int, int], Any], wrap: Callable[[Any], Any]) -> Any:
        try:
            its = Dimension(other).value
        except (TypeError, ValueError):
            return NotImplemented
        return wrap(None) if self.value is None or its is None else wrap(f(self.value, its))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b, Dimension)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, Dimension)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a, Dimension)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b, Dimension)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a // b, Dimension)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b // a, Dimension)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a % b, Dimension)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b % a, Dimension)

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> NoReturn:
        raise TypeError(f"{self!r} / {other!r}: a dimension is a whole number; use // instead")

    __rtruediv__ = __truediv__

    def __eq__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a == b, _plain)

    def __ne__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a != b, _plain)

    def __lt__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a < b, _plain)

    def __le__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a <= b, _plain)

    def __gt__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a > b, _plain)

    def __ge__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a >= b, _plain)


def _plain(x: Any) -> Any:
    return x


class TensorShape:
    """Static shape of a tensor. Dimensions or the rank may be unknown.

    Args:
      dims: a sequence of numbers, None or `Dimension`s; a number, for a vector; a shape; or None for an unknown rank.

    Source: TensorFlow's `tf.TensorShape`.

    Example:
      >>> s = TensorShape([None, 3])
      >>> print(s, s.ndims, s.as_list(), s[1].value, s.is_compatible_with([2, 3]))
      (?, 3) 2 [None, 3] 3 True
    """

    __slots__ = ("_shape",)

    def __init__(self, dims: Any) -> None:
        if isinstance(dims, Dimension):
            dims = [dims]
        elif dims is not None and not isinstance(dims, TensorShape) and hasattr(dims, "__index__"):
            dims = [int(dims)]
        self._shape: Shape = dims._shape if isinstance(dims, TensorShape) else shapes.as_shape(dims)

    @property
    def dims(self) -> list[Dimension] | None:
        """Dimensions; None for an unknown rank."""
        return None if self._shape is None else [Dimension(d) for d in self._shape]

    @property
    def ndims(self) -> int | None:
        """Rank, or None if it is unknown."""
        return None if self._shape is None else len(self._shape)

    rank = ndims

    def as_list(self) -> list[Dim]:
        """Returns the dimensions as a list of numbers and None.

        Raises:
          ValueError: the rank is unknown.
        """
        return list(self._known("as_list() is not defined on an unknown TensorShape."))

    def _known(self, otherwise: str) -> tuple[Dim, ...]:
        if self._shape is None:
            raise ValueError(otherwise)
        return self._shape

    def num_elements(self) -> Dim:
        """Returns the number of elements, or None if it is unknown."""
        return None if self._shape is None else shapes.size(self._shape)

    def is_fully_defined(self) -> bool:
        """Whether the rank and all dimensions are known."""
        return shapes.is_full(self._shape)

    def assert_is_fully_defined(self) -> None:
        """Checks that the rank and all dimensions are known.

        Raises:
          ValueError: the rank or a dimension is unknown.
        """
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor can have both shapes.

        Args:
          other: a shape.
        """
        try:
            self.merge_with(other)
        except ValueError:
            return False
        return True

    def assert_is_compatible_with(self, other: Any) -> None:
        """Checks that a tensor can have both shapes.

        Args:
          other: a shape.

        Raises:
          ValueError: the shapes are incompatible.
        """
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible")

    def merge_with(self, other: Any) -> TensorShape:
        """Returns the shape that combines the information of both.

        Args:
          other: a shape.

        Raises:
          ValueError: the shapes are incompatible.
        """
        its = TensorShape(other)
        try:
            return TensorShape(shapes.merge(self._shape, its._shape))
        except ValueError:
            raise ValueError(f"Shapes {self} and {its} are not compatible") from None

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """Returns the shape with the dimensions in which both agree; others are unknown.

        Args:
          other: a shape.
        """
        return TensorShape(shapes.join(self._shape, TensorShape(other)._shape))

    def concatenate(self, other: Any) -> TensorShape:
        """Returns the dimensions of this shape followed by those of another.

        Args:
          other: a shape.
        """
        return TensorShape(shapes.concatenate(self._shape, TensorShape(other)._shape))

    def with_rank(self, rank: int) -> TensorShape:
        """Returns this shape with a given rank.

        Args:
          rank: the rank.

        Raises:
          ValueError: the shape has another rank.
        """
        return TensorShape(self._ranked(shapes.with_rank, rank, ""))

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Returns this shape after a check of its rank. An unknown rank passes.

        Args:
          rank: smallest rank.

        Raises:
          ValueError: the rank is smaller.
        """
        return TensorShape(self._ranked(shapes.with_rank_at_least, rank, "at least"))

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Returns this shape after a check of its rank. An unknown rank passes.

        Args:
          rank: largest rank.

        Raises:
          ValueError: the rank is larger.
        """
        return TensorShape(self._ranked(shapes.with_rank_at_most, rank, "at most"))

    def _ranked(self, check: Callable[[Shape, int], Shape], rank: int, how: str) -> Shape:
        try:
            return check(self._shape, rank)
        except ValueError:
            raise ValueError(f"Shape {self} must have rank {how} {rank}".replace("  ", " ")) from None

    def assert_has_rank(self, rank: int) -> None:
        """Checks the rank of this shape. An unknown rank passes.

        Args:
          rank: the rank.

        Raises:
          ValueError: the shape has another rank.
        """
        if self._shape is not None and len(self._shape) != rank:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: Any) -> None:
        """Checks that two shapes have the same rank. An unknown rank passes.

        Args:
          other: a shape.

        Raises:
          ValueError: the ranks differ.
        """
        its = TensorShape(other)
        if None not in (self.ndims, its.ndims) and self.ndims != its.ndims:
            raise ValueError(f"Shapes {self} and {its} must have the same rank")

    def as_proto(self) -> Any:
        """Returns a `TensorShapeProto` message."""
        from headrace import pb  # protobuf takes long to import

        if self._shape is None:
            return pb.TensorShapeProto(unknown_rank=True)
        return pb.TensorShapeProto(dim=[{"size": -1 if d is None else d} for d in self._shape])

    def __getitem__(self, key: int | slice) -> Any:
        if self._shape is None:
            if not isinstance(key, slice):
                return _element(None)
            start, stop = key.start or 0, key.stop
            if key.step is not None or start < 0 or stop is None or stop < start:
                return TensorShape(None)
            return TensorShape([None] * (stop - start))
        if isinstance(key, slice):
            return TensorShape(self._shape[key])
        return _element(self._shape[key])

    def __len__(self) -> int:
        return len(self._known("Cannot take the length of shape with unknown rank."))

    def __iter__(self) -> Iterator[Any]:
        return iter([_element(d) for d in self._known("Cannot iterate over a shape with unknown rank.")])

    def __bool__(self) -> bool:
        return self._shape is not None

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        try:
            return self._shape == TensorShape(other)._shape
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if not self.is_fully_defined():
            raise ValueError(
                f"Cannot convert a partially known TensorShape {self} to a Tensor; use tf.shape(x), which is known "
                "when the graph runs"
            )
        return np.array(self._shape, dtype or np.int32)

    def __str__(self) -> str:
        if self._shape is None:
            return "<unknown>"
        return f"({', '.join('?' if d is None else str(d) for d in self._shape)}{',' if len(self._shape) == 1 else ''})"

    def __repr__(self) -> str:
        return f"TensorShape({self.dims})"

    def __reduce__(self) -> tuple[type[TensorShape], tuple[Any]]:
        return TensorShape, (None if self._shape is None else list(self._shape),)


def unknown_shape(rank: int | None = None) -> TensorShape:
    """Returns a shape with unknown dimensions, and an unknown rank unless `rank` is given."""
    return TensorShape(None if rank is None else [None] * rank)


def dimension_value(dimension: Any) -> Dim:
    """Returns the number in a `Dimension`, or a number or None unchanged.

    It works in programs for TensorFlow 1 and for TensorFlow 2.
    """
    return dimension.value if isinstance(dimension, Dimension) else dimension


def dimension_at_index(shape: Any, index: int) -> Dimension:
    """Returns a dimension of a shape, which is unknown if the rank is."""
    return Dimension(TensorShape(shape)[index])


_has_numbers = False  # whether the elements of shapes are numbers


def _element(d: Dim) -> Any:
    return d if _has_numbers else Dimension(d)


def enable_v2_tensorshape() -> None:
    """Makes the elements of shapes numbers or None, as in TensorFlow 2.

    Source: TensorFlow's `tf.enable_v2_tensorshape`.

    Example:
      >>> enable_v2_tensorshape()
      >>> list(TensorShape([2, None])), TensorShape([2, None]).dims
      ([2, None], [Dimension(2), Dimension(None)])
      >>> disable_v2_tensorshape()
      >>> list(TensorShape([2, None]))
      [Dimension(2), Dimension(None)]
    """
    global _has_numbers
    _has_numbers = True


def disable_v2_tensorshape() -> None:
    """Makes the elements of shapes `Dimension`s, as they are by default.

    Source: TensorFlow's `tf.disable_v2_tensorshape`.
    """
    global _has_numbers
    _has_numbers = False


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """Returns the static shape to which tensors of two static shapes broadcast.

    Args:
      shape_x, shape_y: the shapes.

    Raises:
      ValueError: the shapes cannot be broadcast.

    Source: TensorFlow's `tf.broadcast_static_shape`.
    """
    return TensorShape(arrays.broadcast_static_shape(shape_x, shape_y))


def as_sequence(shape: Any) -> Sequence[Any] | None:
    """Returns a shape as a list of numbers and None, or None for no shape."""
    return None if shape is None else TensorShape(shape).as_list()
