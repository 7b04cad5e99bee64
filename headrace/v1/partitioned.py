"""Partitioned variables of `get_variable`: calls of a partitioner, and checks of its answer.

A partitioner is a function of `shape` (a `TensorShape`) and `dtype` that returns the number of parts of each axis. Only
one axis can have several parts. If its length cannot be divided evenly, the first parts have one more element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.api import partitioned
from headrace.dtypes import DType
from headrace.records import record
from headrace.v1.tensor_shape import TensorShape


class PartitionedVariable(partitioned.PartitionedVariable):
    """Variable in several parts. See `headrace.api.partitioned.PartitionedVariable`.

    Source: TensorFlow's `PartitionedVariable`.
    """

    def get_shape(self) -> TensorShape:
        """Returns the static shape of the whole variable."""
        return TensorShape(self.shape)


@record(frozen=True)
class PartitionInfo:
    """Description of a part of a variable, for initializers with a parameter `partition_info`.

    Attributes:
      full_shape: shape of the whole variable.
      var_offset: offset of the part in the whole, along each axis.

    Source: TensorFlow's `_PartitionInfo`.
    """

    full_shape: list[int]
    var_offset: list[int]

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """Returns the axis along which the variable is partitioned, or None.

        Args:
          shape: shape of the part.

        Returns:
          The axis. None: the part is the whole.

        Raises:
          ValueError: the part does not fit into the whole, or the whole is partitioned along several axes.
        """
        if len(shape) != len(self.full_shape):
            raise ValueError(f"a part of shape {list(shape)} is none of a whole of shape {self.full_shape}")
        ends = [o + n for o, n in zip(self.var_offset, shape, strict=True)]
        if any(end > n for end, n in zip(ends, self.full_shape, strict=True)):
            raise ValueError(f"a part of shape {list(shape)} at {self.var_offset} exceeds the shape {self.full_shape}")
        cut = [d for d, (n, whole) in enumerate(zip(shape, self.full_shape, strict=True)) if n != whole]
        if len(cut) > 1:
            raise ValueError(f"a part of shape {list(shape)} of {self.full_shape} is cut along {len(cut)} axes")
        return cut[0] if cut else None

    def single_offset(self, shape: Sequence[int]) -> int:
        """Returns the offset along the partitioned axis; 0 if the part is the whole.

        Args:
          shape: shape of the part.
        """
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self.var_offset[axis]


def ask(partitioner: Any, shape: TensorShape, dtype: DType) -> list[int]:
    """Returns the number of parts along each axis, as the partitioner decides.

    Args:
      partitioner: a function of shape and dtype.
      shape: shape of the variable.
      dtype: dtype of the variable.

    Raises:
      ValueError: the partitioner is not callable, the variable cannot be partitioned, or the result is wrong.
    """
    if not callable(partitioner):
        raise ValueError(f"Partitioner must be callable, but received: {partitioner!r}")
    if not shape.is_fully_defined():
        raise ValueError(f"Shape of a new partitioned variable must be fully defined, but instead was {shape}.")
    if not shape.ndims:
        raise ValueError(f"A partitioned Variable must have rank at least 1, shape: {shape}")
    answer = partitioner(shape=shape, dtype=dtype)
    if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes)):
        raise ValueError(f"Partitioner must return a sequence, but saw: {answer!r}")
    if len(answer) != shape.ndims:
        raise ValueError(
            f"Partitioner returned a partition list that does not match the Variable's rank: {answer} vs. {shape}"
        )
    if any(n < 1 for n in answer):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {answer}")
    if sum(n > 1 for n in answer) > 1:
        raise ValueError(f"Can only slice a variable along one dimension: shape: {shape}, partitioning: {answer}")
    return [int(n) for n in answer]


def cut(shape: Sequence[int], partitions: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the offset and the shape of each part.

    Args:
      shape: shape of the whole variable.
      partitions: number of parts along each axis.

    Example:
      >>> list(cut([5, 2], [2, 1]))
      [([0, 0], [3, 2]), ([3, 0], [2, 2])]
    """
    axis = next((d for d, n in enumerate(partitions) if n > 1), 0)
    each, longer = divmod(shape[axis], partitions[axis])
    start = 0
    for i in range(partitions[axis]):
        length = each + (i < longer)
        yield [start if d == axis else 0 for d in range(len(shape))], [*shape[:axis], length, *shape[axis + 1 :]]
        start += length
