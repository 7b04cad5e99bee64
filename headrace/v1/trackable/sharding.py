"""Division of object checkpoints into shards: `tf.train.experimental.ShardingCallback` and its policies."""

from __future__ import annotations

import abc
import contextlib
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.api.tensors import constant_value
from headrace.api.variable import Variable
from headrace.files.manifest import ManifestEntry
from headrace.files.slices import parse_spec
from headrace.interchange.object_graphs import OBJECT_GRAPH
from headrace.records import record
from headrace.v1 import logging
from headrace.v1.array_ops import constant
from headrace.v1.array_ops import slice as slice_of
from headrace.v1.device_spec import DeviceSpec
from headrace.v1.graph import Graph, executing_eagerly
from headrace.v1.session import Session
from headrace.v1.tensor_shape import TensorShape

Shard: TypeAlias = dict[str, dict[str, Any]]  # name in the checkpoint -> slice -> tensor


@record(frozen=True)
class ShardableTensor:
    """Tensor of a checkpoint, as a `ShardingCallback` gets it.

    Attributes:
      tensor: the tensor, eager or of a graph in which the callback runs.
      dtype: its dtype.
      device: the `DeviceSpec` of the variable.
      name, checkpoint_key: its name in the checkpoint.
      shape: its `TensorShape`.
      slice_spec: the part of a whole that it is, "" for all.
      trackable: the object with the value; None for the graph of the objects.

    Source: TensorFlow's `tf.train.experimental.ShardableTensor`.
    """

    _tensor_save_spec: Any
    tensor: Any
    dtype: Any
    device: Any
    name: str
    shape: Any
    slice_spec: str
    checkpoint_key: str
    trackable: Any

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, str(self.device), self.checkpoint_key))


class ShardingCallback(abc.ABC):
    """Function that divides the tensors of a checkpoint into shards.

    It is given in `tf.train.CheckpointOptions(experimental_sharding_callback=...)` and called once for the tensors of
    each task of a cluster.

    Source: TensorFlow's `tf.train.experimental.ShardingCallback`.
    """

    @property
    @abc.abstractmethod
    def description(self) -> str:
        """The rule in words."""

    @abc.abstractmethod
    def __call__(self, shardable_tensors: Sequence[ShardableTensor]) -> Sequence[Shard]:
        """Returns the shards.

        Args:
          shardable_tensors: the tensors of one task.

        Returns:
          For each shard a dictionary: name in the checkpoint -> the part's slice ("" for all) -> tensor.
        """

    def __hash__(self) -> int:
        out = hash(self.description)
        for name, value in vars(self).items():
            if not callable(value):
                out ^= hash(name) ^ (hash(value) if isinstance(value, Hashable) else 0)
        return out


class ShardByTaskPolicy(ShardingCallback):
    """Policy of one shard for each task; the one without options.

    Source: TensorFlow's `tf.train.experimental.ShardByTaskPolicy`.
    """

    @property
    def description(self) -> str:
        """See `ShardingCallback.description`."""
        return "Split tensors into shards based on their device spec task."

    def __call__(self, shardable_tensors: Sequence[ShardableTensor]) -> Sequence[Shard]:
        """See `ShardingCallback.__call__`."""
        out: Shard = {}
        for t in shardable_tensors:
            out.setdefault(t.checkpoint_key, {})[t.slice_spec] = t.tensor
        return [out]


class MaxShardSizePolicy(ShardingCallback):
    """Policy of shards with at most so many bytes.

    Tensors are cut where a shard is full. A scalar, or a row, of more bytes gets a larger shard of its own. The graph
    of the objects counts as 0 bytes.

    Args:
      max_shard_size: the number of bytes.

    Source: TensorFlow's `tf.train.experimental.MaxShardSizePolicy`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.train.experimental.MaxShardSizePolicy(1 << 20).description
      'Split tensors into shards with a max shard size.'
    """

    def __init__(self, max_shard_size: int) -> None:
        self.max_shard_size = max_shard_size

    @property
    def description(self) -> str:
        """See `ShardingCallback.description`."""
        return "Split tensors into shards with a max shard size."

    def __call__(self, shardable_tensors: Sequence[ShardableTensor]) -> Sequence[Shard]:
        """See `ShardingCallback.__call__`."""
        return self.MaxShardSizePartitioner().get_shards(self.max_shard_size, shardable_tensors)

    class MaxShardSizePartitioner:
        """The shards of one call that were filled so far."""

        def get_shards(self, max_shard_size: int, shardable_tensors: Sequence[ShardableTensor]) -> Sequence[Shard]:
            """Returns shards of a greatest size.

            Args:
              max_shard_size: the number of bytes.
              shardable_tensors: the tensors.
            """
            self.max_shard_size = self._left = max_shard_size
            self._shards: list[Shard] = [{}]
            self._large: list[Shard] = []
            for t in shardable_tensors:
                self._add(t)
            return ([*self._shards] if self._shards[0] else []) + self._large

        def _next(self) -> None:
            self._shards.append({})
            self._left = self.max_shard_size

        def _put(self, t: ShardableTensor, spec: str, tensor: Any, size: int) -> None:
            self._shards[-1].setdefault(t.checkpoint_key, {})[spec] = tensor
            self._left -= size

        def _add(self, t: ShardableTensor) -> None:
            whole = tuple(t.shape.as_list())
            if t.slice_spec:
                full, part = parse_spec(t.slice_spec)
                origin = [start for start, _ in part.ranges(full)]
            else:
                full, origin = whole, [0] * len(whole)
            item, size = _bytes(t)
            if not whole or not math.prod(whole):
                if size > self.max_shard_size:
                    self._too_large(t, t.slice_spec, t.tensor, size)
                    return
                if size > self._left:
                    self._next()
                self._put(t, t.slice_spec, t.tensor, size)
                return
            begin, rest = [0] * len(whole), list(whole)

            def piece(sizes: Sequence[int]) -> tuple[str, Any]:
                starts = [a + b for a, b in zip(origin, begin, strict=True)]
                extents = ":".join(f"{a},{n}" for a, n in zip(starts, sizes, strict=True))
                return f"{' '.join(map(str, full))} {extents}", slice_of(t.tensor, begin, list(sizes))

            while size > self._left:
                axis, n = _cut(rest, item, self._left)
                is_larger = n == 0 and self._left == self.max_shard_size
                if n == 0 and not is_larger:
                    self._next()
                    continue
                sizes = list(rest)
                sizes[axis] = max(n, 1)
                taken = math.prod(sizes) * item
                if is_larger:
                    self._too_large(t, *piece(sizes), taken)
                else:
                    self._put(t, *piece(sizes), taken)
                    if self._left == 0:
                        self._next()
                begin[axis] += sizes[axis]
                rest[axis] -= sizes[axis]
                size = math.prod(rest) * item
            if math.prod(rest):
                self._put(t, *piece(rest), size)

        def _too_large(self, t: ShardableTensor, spec: str, tensor: Any, size: int) -> None:
            logging.warning(
                "%s (slice %r) has %d bytes and cannot be cut for shards of %d bytes; its shard is larger",
                t.checkpoint_key,
                spec,
                size,
                self.max_shard_size,
            )
            self._large.append({t.checkpoint_key: {spec: tensor}})


def _bytes(t: ShardableTensor) -> tuple[int, int]:
    """The bytes of an element (of the longest string), and of a tensor."""
    if t.checkpoint_key == OBJECT_GRAPH or t.dtype is dtypes.variant:
        return 0, 0
    if t.dtype is not dtypes.string:
        return t.dtype.size, t.dtype.size * math.prod(t.shape.as_list())
    known = constant_value(t.tensor)
    lengths = [len(s) for s in known.ravel()] if known is not None else [0]
    return max(lengths, default=0), sum(lengths)


def _cut(shape: Sequence[int], item: int, room: int) -> tuple[int, int]:
    """The axis with the fewest cuts, and the length of its pieces.

    A piece has at most `room` bytes; the length is 0 if none fits.
    """
    total = math.prod(shape) * item

    def pieces(axis: int) -> float:
        fitting = room // (total // shape[axis])
        return math.ceil(shape[axis] / fitting) if fitting > 0 else math.inf

    best, fewest = 0, pieces(0)
    for axis in range(1, len(shape)):
        n = pieces(axis)
        if n < fewest and total / n <= room:
            best, fewest = axis, n
    return best, math.ceil(shape[best] / fewest)


_WRONG: Final = "After executing the checkpoint sharding callback, "


def checked(
    shards: Iterable[Shard], tensors: Sequence[ShardableTensor], description: str
) -> Iterator[list[tuple[str, str, Any]]]:
    """Yields name, slice and tensor of each part, shard by shard.

    Raises:
      RuntimeError: parts were left out, added, changed or given twice.
    """
    known = {(t.checkpoint_key, t.slice_spec): t for t in tensors}
    whole = {t.checkpoint_key: t for t in tensors}
    left = {t.checkpoint_key: 0 for t in tensors}
    for t in tensors:
        left[t.checkpoint_key] += math.prod(t.shape.as_list())
    seen: set[tuple[str, str]] = set()

    def wrong(what: str, key: str, spec: str) -> RuntimeError:
        return RuntimeError(
            f"{_WRONG}{what}:\n  callback_description: {description}\n  checkpoint_key: {key}\n  slice_spec: {spec}"
        )

    for shard in shards:
        parts = []
        for key, slices in shard.items():
            for spec, tensor in slices.items():
                spec = spec.strip()
                if key not in whole:
                    raise wrong(
                        "a tensor not originally in the object graph was found in the checkpoint shards", key, spec
                    )
                if (key, spec) in seen:
                    raise wrong("multiple tensors with the same checkpoint key and slice spec were found", key, spec)
                seen.add((key, spec))
                given = known.get((key, spec))
                shape = tuple(tensor.shape)
                if tensor.dtype is not whole[key].dtype:
                    raise wrong("a tensor was found with an altered dtype", key, spec)
                if shape != (tuple(given.shape.as_list()) if given is not None else _shape_of(spec)):
                    raise wrong("a tensor was found with an altered shape", key, spec)
                left[key] -= math.prod(shape)
                parts.append((key, spec, tensor))
        if parts:
            yield parts
    lost = [k for k, n in left.items() if n or not any(key == k for key, _ in seen)]
    if lost:
        raise wrong("tensors in the object graph were not found in the checkpoint shards", ", ".join(lost), "")


def _shape_of(spec: str) -> tuple[int, ...] | None:
    if not spec:
        return None
    full, part = parse_spec(spec)
    return part.shape_in(full)


def divided(
    tensors: Mapping[str, Any], objects: Mapping[str, Any], callback: ShardingCallback
) -> list[list[ManifestEntry]]:
    """Returns the entries of each shard of a checkpoint.

    Args:
      tensors: its arrays by name.
      objects: the objects with the values, by name.
      callback: the division.

    Raises:
      RuntimeError: see `checked`.
    """
    eager = executing_eagerly()
    with contextlib.nullcontext() if eager else Graph().as_default():
        by_task: dict[Any, list[ShardableTensor]] = {}
        for key, value in sorted(tensors.items(), key=lambda item: item[0] == OBJECT_GRAPH):
            owner = objects.get(key)
            dtype = owner.dtype.base if isinstance(owner, Variable) else dtypes.string
            tensor, shape = constant(value, dtype), TensorShape(np.shape(value))
            device = DeviceSpec.from_string((owner if isinstance(owner, Variable) else tensor).device or "")
            group = by_task.setdefault((device.job, device.replica, device.task), [])
            group.append(ShardableTensor(None, tensor, dtype, device, key, shape, "", key, owner))
        shards = [s for group in by_task.values() for s in checked(callback(group), group, callback.description)]
        made = [t for shard in shards for _, _, t in shard]
        if eager:
            values = iter([t.numpy() for t in made])
        else:
            with Session() as session:
                values = iter(session.run(made))
    return [[ManifestEntry.of(key, next(values), t.dtype, spec) for key, spec, t in shard] for shard in shards]
