"""Slices of tensors in checkpoints: a start and a length for each dimension.

A partitioned variable is saved part by part, each with the shape of the whole and the position of the part, written
`"4 5 0,2:-"`: of a 4 by 5 tensor, rows 0 and 1 (start 0, length 2), all columns. A restored slice may differ from the
saved ones: `assemble` combines the saved parts.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from headrace import pb
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.records import record

WHOLE: Final = -1  # the length of a whole dimension
MOST_RANK: Final = 64  # numpy's limit
_NUMBER = re.compile("[0-9]{1,19}")


def is_shape(dims: Sequence[int], itemsize: int) -> bool:
    """Whether an array with elements of this size can have this shape, memory permitting."""
    return (
        len(dims) <= MOST_RANK
        and all(n >= 0 for n in dims)
        and math.prod(n for n in dims if n) * max(itemsize, 1) < 2**63
    )


@record(frozen=True, slots=True)
class TensorSlice:
    """Slice of a tensor.

    Attributes:
      extents: The start and the length for each dimension; 0 and `WHOLE` for a whole dimension.
    """

    extents: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> TensorSlice:
        """The slice that a text such as `"0,2:-"` denotes.

        Raises:
          InvalidArgumentError: The text is invalid.
        """
        extents = []
        for part in text.split(":") if text else ():
            start, comma, length = part.partition(",")
            if part == "-":
                extents.append((0, WHOLE))
            elif comma and _NUMBER.fullmatch(start) and _NUMBER.fullmatch(length):
                if int(length) < 1 or int(start) + int(length) >= 2**63:
                    raise InvalidArgumentError(
                        f"Expected non-negative start and positive length but got start = {start}, length = {length}: "
                        f"string = {part}"
                    )
                extents.append((int(start), int(length)))
            else:
                raise InvalidArgumentError(f"Expected a pair of numbers or '-' but got {part!r}: string = {text}")
        return cls(tuple(extents))

    @classmethod
    def from_proto(cls, proto: pb.TensorSliceProto) -> TensorSlice:
        """The slice that a message denotes; raises `DataLossError` for an invalid message."""
        extents = []
        for e in proto.extent:
            if e.HasField("length"):
                if e.start < 0 or e.length < 1 or e.start + e.length >= 2**63:
                    raise DataLossError(f"a slice cannot start at {e.start} and be {e.length} long")
                extents.append((e.start, e.length))
            elif e.start:
                raise DataLossError(f"a slice of a whole dimension cannot start at {e.start}")
            else:
                extents.append((0, WHOLE))
        return cls(tuple(extents))

    def to_proto(self) -> pb.TensorSliceProto:
        """The slice as a message."""
        out = pb.TensorSliceProto()
        for start, length in self.extents:
            extent = out.extent.add()
            if length != WHOLE:
                extent.start, extent.length = start, length
        return out

    def __str__(self) -> str:
        return ":".join("-" if length == WHOLE else f"{start},{length}" for start, length in self.extents)

    def ranges(self, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The start and the end along each dimension in a tensor of `shape`.

        Raises:
          InvalidArgumentError: The slice does not fit the shape.
        """
        if len(shape) != len(self.extents):
            raise InvalidArgumentError(
                f"the slice {str(self)!r} has {len(self.extents)} dimensions, and the tensor's shape {list(shape)} has "
                f"{len(shape)}"
            )
        out = []
        for d, ((start, length), dim) in enumerate(zip(self.extents, shape, strict=True)):
            if length == WHOLE:
                out.append((0, dim))
            elif start + length > dim:
                raise InvalidArgumentError(
                    f"Extent in dimension {d} out of bounds: shape = {list(shape)}, slice = {self}"
                )
            else:
                out.append((start, start + length))
        return tuple(out)

    def shape_in(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the slice of a tensor of `shape`; errors as in `ranges`."""
        return tuple(end - start for start, end in self.ranges(shape))

    def index_in(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """The index that selects the slice from an array of `shape`."""
        return tuple(slice(start, end) for start, end in self.ranges(shape))


def all_of(shape: Sequence[int]) -> TensorSlice:
    """The slice that is all of a tensor of `shape`."""
    return TensorSlice(((0, WHOLE),) * len(shape))


def parse_spec(spec: str) -> tuple[tuple[int, ...], TensorSlice]:
    """Parses a text such as `"4 5 0,2:-"`.

    Returns:
      The shape of the whole tensor, and the slice.

    Raises:
      InvalidArgumentError: The text is invalid, or the slice does not fit the shape.

    Example:
      >>> shape, part = parse_spec("4 5 0,2:-")
      >>> shape, part.shape_in(shape)
      ((4, 5), (2, 5))
    """
    *dims, last = spec.split(" ")
    if not dims:
        raise InvalidArgumentError(
            f"Need least two elements in shape_and_slice specification: {spec!r}. It is written as '4 5 0,2:-': the "
            "dimensions of the whole tensor, then start and length (or -) along each"
        )
    for d in dims:
        if not _NUMBER.fullmatch(d) or int(d) >= 2**63:
            raise InvalidArgumentError(f"Non numerical dimension in shape_and_slice: {spec!r}")
    shape, part = tuple(map(int, dims)), TensorSlice.parse(last)
    if len(shape) > MOST_RANK:
        raise InvalidArgumentError(f"a tensor cannot have {len(shape)} dimensions; {MOST_RANK} is the limit")
    part.ranges(shape)
    return shape, part


def assemble(
    name: str,
    shape: tuple[int, ...],
    wanted: TensorSlice | None,
    dtype: np.dtype,
    parts: Sequence[tuple[TensorSlice, Callable[[], np.ndarray]]],
) -> np.ndarray:
    """Assembles a tensor, or a slice of it, from the stored parts.

    Args:
      name: The name of the tensor, for errors.
      shape: The shape of the whole tensor.
      wanted: The slice; None for the whole tensor.
      dtype: The dtype of the array.
      parts: The stored parts, each with a function that reads it.

    Returns:
      A new array.

    Raises:
      DataLossError: The parts do not contain every element exactly once.
      InvalidArgumentError: The slice does not fit the shape.
    """
    if wanted is None:
        wanted = all_of(shape)
    target = wanted.ranges(shape)
    size = math.prod(end - start for start, end in target)
    taken = []
    for part, read in parts:
        place = part.ranges(shape)
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(place, target, strict=True)]
        if all(a < b for a, b in common):
            source = tuple(slice(a - p[0], b - p[0]) for (a, b), p in zip(common, place, strict=True))
            goal = tuple(slice(a - t[0], b - t[0]) for (a, b), t in zip(common, target, strict=True))
            taken.append((goal, source, read))
    # The array is allocated only after a check that as many elements are stored.
    stored = sum(math.prod(s.stop - s.start for s in goal) for goal, _, _ in taken)
    if stored != size or not _apart([goal for goal, _, _ in taken], [b - a for a, b in target]):
        raise DataLossError(
            f"tensor {name!r}: its stored parts do not make up {wanted} of the shape {list(shape)} ({stored} elements "
            f"of {size}); a part is missing, or two overlap"
        )
    out = np.empty([end - start for start, end in target], dtype)
    for goal, source, read in taken:
        out[goal] = read()[source]
    return out


def _apart(places: Sequence[tuple[slice, ...]], shape: Sequence[int]) -> bool:
    """Whether `places`, which have as many elements as `shape` in total, do not overlap."""
    if len(places) < 2:
        return True
    cut = [d for d, n in enumerate(shape) if any(p[d] != slice(0, n) for p in places)]
    if len(cut) == 1:  # the usual case: parts along one dimension
        spans = sorted((p[cut[0]].start, p[cut[0]].stop) for p in places)
        return all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    there = np.zeros(shape, np.bool_)
    for p in places:
        if there[p].any():
            return False
        there[p] = True
    return True
