"""Parts of tensors, as checkpoints know them: a start and a length along each dimension.

A variable that is cut into parts (a partitioned one) is saved part by part, each with the shape of the whole and where
in it the part lies, written `"4 5 0,2:-"`: of a 4 by 5 tensor, rows 0 and 1 (start 0, length 2), all columns. What is
restored may be cut in another way than what was saved: `assemble` puts together what is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from headrace import pb
from headrace.errors import DataLossError, InvalidArgumentError

WHOLE: Final = -1  # as a length: all of the dimension
MOST_RANK: Final = 64  # numpy has no arrays of more
_NUMBER = re.compile("[0-9]{1,19}")


def is_shape(dims: Sequence[int], itemsize: int) -> bool:
    """Whether an array can have this shape with elements of this size, given the memory."""
    return (
        len(dims) <= MOST_RANK
        and all(n >= 0 for n in dims)
        and math.prod(n for n in dims if n) * max(itemsize, 1) < 2**63
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSlice:
    """A part of a tensor.

    Attributes:
      extents: a start and a length for each dimension; the length `WHOLE`, with the start 0: all of it.
    """

    extents: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> TensorSlice:
        """The part that `"0,2:-"` means.

        Raises:
          InvalidArgumentError: it means none.
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
        """The part that a message means; `DataLossError` if it means none."""
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
        """The message."""
        out = pb.TensorSliceProto()
        for start, length in self.extents:
            extent = out.extent.add()
            if length != WHOLE:
                extent.start, extent.length = start, length
        return out

    def __str__(self) -> str:
        return ":".join("-" if length == WHOLE else f"{start},{length}" for start, length in self.extents)

    def ranges(self, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Where it begins and ends in a tensor of `shape`, along each dimension.

        Raises:
          InvalidArgumentError: the tensor has no such part.
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
        """The shape that it has as a part of a tensor of `shape`; `InvalidArgumentError` if that has no such part."""
        return tuple(end - start for start, end in self.ranges(shape))

    def index_in(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """What selects it from an array of `shape`."""
        return tuple(slice(start, end) for start, end in self.ranges(shape))


def all_of(shape: Sequence[int]) -> TensorSlice:
    """The slice that is all of a tensor of this shape."""
    return TensorSlice(((0, WHOLE),) * len(shape))


def parse_spec(spec: str) -> tuple[tuple[int, ...], TensorSlice]:
    """What `"4 5 0,2:-"` means: the shape of the whole, and the part.

    Raises:
      InvalidArgumentError: it means nothing, or the part is none of that shape.

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
    """A tensor, or a part of it, from the parts that are stored.

    Args:
      name: of the tensor, for errors.
      shape: of the whole tensor.
      wanted: which part of it; None: all of it.
      dtype: of the array.
      parts: what is stored, each with a function that reads it.

    Raises:
      DataLossError: the parts do not give every element exactly once.
      InvalidArgumentError: the tensor has no such part.
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
    # Nothing is allocated before it is clear that so much is stored.
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
    """Whether no two of `places`, which have as many elements as `shape` in all, overlap."""
    if len(places) < 2:
        return True
    cut = [d for d, n in enumerate(shape) if any(p[d] != slice(0, n) for p in places)]
    if len(cut) == 1:  # the usual way: along one dimension
        spans = sorted((p[cut[0]].start, p[cut[0]].stop) for p in places)
        return all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    there = np.zeros(shape, np.bool_)
    for p in places:
        if there[p].any():
            return False
        there[p] = True
    return True
