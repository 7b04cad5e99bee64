"""Partitioners: functions that determine the number of parts of a variable in `get_variable`.

Each function here creates a partitioner, for `partitioner=` of `tf.get_variable` and `tf.variable_scope`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headrace import dtypes
from headrace.dtypes import as_dtype
from headrace.v1.graph import in_default_graph
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.variable_scopes import variable_scope
from headrace.v1.variable_store import get_variable

Partitioner: TypeAlias = Callable[..., list[int]]


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Cuts an axis into `num_shards` parts, or as many as it is long.

    Args:
      num_shards: how many.
      axis: which axis; negative: counted from the end.

    Returns:
      A partitioner. It raises IndexError for a variable without that axis.

    Source: TensorFlow's `tf.fixed_size_partitioner`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     w = tf.get_variable("w", [5, 2], partitioner=tf.fixed_size_partitioner(2))
      ...     [(v.name, v.shape.as_list()) for v in w]
      [('w/part_0:0', [3, 2]), ('w/part_1:0', [2, 2])]
    """

    def partitioner(shape: Any, dtype: Any = None) -> list[int]:
        dims = _with_axis(shape, axis)
        return _cut(dims, axis, min(num_shards, dims[axis]))

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Partitioner:
    """Cuts an axis into as few parts as possible of at most `max_shard_bytes` each.

    Args:
      max_shard_bytes: how large a part may be. A part is at least one long along the axis, though.
      axis: which axis; negative: counted from the end.
      bytes_per_string_element: how large a string is taken to be.
      max_shards: the most parts, however large they are then.

    Returns:
      A partitioner. It raises IndexError for a variable without that axis, ValueError for a shape that is not known.

    Raises:
      ValueError: a number is not positive.

    Source: TensorFlow's `tf.variable_axis_size_partitioner`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.variable_axis_size_partitioner(1024)(tf.TensorShape([1000, 2]), tf.float32)
      [8, 1]
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "Both max_shard_bytes and bytes_per_string_element must be positive, got "
            f"{max_shard_bytes} and {bytes_per_string_element}"
        )
    if max_shards is not None and max_shards < 1:
        raise ValueError(f"max_shards must be positive, got {max_shards}")

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        if not isinstance(shape, TensorShape):
            raise ValueError(f"shape is not a TensorShape: {shape!r}")
        dims = _with_axis(shape, axis)
        each = math.prod(dims[:axis]) * math.prod(dims[axis:][1:]) * _size(dtype, bytes_per_string_element)
        if not each:
            return _cut(dims, axis, 1)
        fit = max(1, max_shard_bytes // each)
        return _cut(dims, axis, min(max_shards or dims[axis], math.ceil(dims[axis] / fit)))

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10, bytes_per_string_element: int = 16
) -> Partitioner:
    """Cuts an axis into as many parts as possible of at least `min_slice_size` bytes each.

    Args:
      max_partitions: the most parts.
      axis: which axis.
      min_slice_size: how small a part may be.
      bytes_per_string_element: how large a string is taken to be.

    Returns:
      A partitioner. It raises ValueError for a variable without that axis.

    Source: TensorFlow's `tf.min_max_variable_partitioner`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.min_max_variable_partitioner(16)(tf.TensorShape([1024, 512]), tf.float32)
      [8, 1]
    """

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        dims = _known(shape)
        if not -len(dims) <= axis < len(dims):
            raise ValueError(f"Cannot partition variable along axis {axis} when shape is only {dims}")
        size = math.prod(dims) * _size(dtype, bytes_per_string_element)
        return _cut(dims, axis, max(1, min(dims[axis], max_partitions, math.ceil(size / min_slice_size))))

    return partitioner


def _known(shape: Any) -> list[int]:
    given = TensorShape(shape)
    if not given.is_fully_defined():
        raise ValueError(f"shape is not fully defined: {given}")
    return [int(n) for n in given]


def _with_axis(shape: Any, axis: int) -> list[int]:
    dims = _known(shape)
    if not -len(dims) <= axis < len(dims):
        raise IndexError(f"a variable of shape {dims} has no axis {axis} to be cut along")
    return dims


def _cut(dims: Sequence[int], axis: int, n: int) -> list[int]:
    out = [1] * len(dims)
    out[axis] = n
    return out


def _size(dtype: Any, string: int) -> int:
    wanted = as_dtype(dtype).base
    return string if wanted is dtypes.string else wanted.size


@in_default_graph
def create_partitioned_variables(
    shape: Sequence[int],
    slicing: Sequence[int],
    initializer: Any,
    dtype: Any = dtypes.float32,
    trainable: bool = True,
    collections: Any = None,
    name: str | None = None,
    reuse: Any = None,
) -> list[Any]:
    """Makes the parts of a variable by `slicing`; `get_variable` is newer.

    Args:
      shape: of the whole.
      slicing: into how many parts each axis is cut; one number alone may be above 1.
      initializer, dtype, trainable, collections: see `get_variable`.
      name: of the whole; "PartitionedVariable", made unique, if None.
      reuse: see `variable_scope`.

    Raises:
      ValueError: `slicing` does not fit; or see `get_variable`.

    Source: TensorFlow's `tf.create_partitioned_variables`.
    """
    if len(shape) != len(slicing):
        raise ValueError(
            f"The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: {shape}, slicing: "
            f"{slicing}"
        )
    if not shape:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        made = get_variable(
            "", shape, dtype, initializer, trainable=trainable, collections=collections,
            partitioner=lambda **_: slicing,
        )  # fmt: skip
    return list(made)
