"""Lines of windows: positions of one axis, and the taps that they read.

A convolution and its gradient by the input read their source in the same way: position `i` of the result reads, for tap
`t`, the element `i * stride + offset + t * pitch` of the source, and the product takes the weight
`weight + t * weight_pitch`. For the gradient of a convolution with stride `s`, the positions of each remainder by `s`
are a line of their own, with part of the taps ("phases", as in a polyphase filter).

`plan` divides a line into tiles. Taps outside of the source are padding. A tile at the border has a list of valid taps
for each of its positions, so that a generator omits the others, and no source is copied into a padded buffer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Final

from headrace.opkit.windows import Axis
from headrace.records import record

# Taps of a line, positions at each border, and different tiles up to which the tiles at borders are written out.
# More of them are single positions whose taps are counted at run time.
_WRITTEN_TAPS: Final = 16
_WRITTEN_TILES: Final = 6


@record(frozen=True, slots=True)
class Line:
    """Positions of an axis of the result with the same taps.

    Attributes:
      count: the number of positions.
      first: the place of the first position in the result.
      step: the distance between the places of two positions.
      length: the length of the source's axis.
      stride: the distance between the elements of two positions in the source.
      size: the number of taps; 0 if all results are 0.
      offset: the element that tap 0 reads for position 0; negative in the padding.
      pitch: the distance between the elements of two taps, positive.
      weight: the index of tap 0 in the filter.
      weight_pitch: the distance between the indices of two taps in the filter.
    """

    count: int
    first: int
    step: int
    length: int
    stride: int
    size: int
    offset: int
    pitch: int
    weight: int
    weight_pitch: int

    def valid(self, position: int) -> tuple[int, int]:
        """The range of taps that are elements of the source."""
        at = position * self.stride + self.offset
        low = max(0, -(at // self.pitch))
        return low, max(low, min(self.size, (self.length - 1 - at) // self.pitch + 1))

    @property
    def inner(self) -> tuple[int, int]:
        """The range of positions without padding."""
        first = max(0, -(self.offset // self.stride))
        last = self.length - 1 - self.offset - max(0, self.size - 1) * self.pitch
        stop = min(self.count, last // self.stride + 1)
        return (first, stop) if first < stop else (0, 0)


def forward(axis: Axis) -> Line:
    """The line of a convolution's result."""
    a = axis
    return Line(a.count, 0, 1, a.length, a.stride, a.size, -a.before, a.dilation, 0, 1)


def backward(axis: Axis) -> list[Line]:
    """The lines of the gradient by the input, one for each remainder by the stride."""
    lines = []
    for remainder in range(min(axis.stride, axis.length)):
        count = -(-(axis.length - remainder) // axis.stride)
        taps = [k for k in range(axis.size) if not (remainder + axis.before - k * axis.dilation) % axis.stride]
        taps.reverse()  # so that the elements ascend
        reads = [(remainder + axis.before - k * axis.dilation) // axis.stride for k in taps]
        step = axis.stride // math.gcd(axis.stride, axis.dilation)
        pitch = axis.dilation * step // axis.stride
        offset, weight = (reads[0], taps[0]) if taps else (0, 0)
        line = Line(count, remainder, axis.stride, axis.count, 1, len(taps), offset, pitch, weight, -step)
        lines.append(line)
    return lines


@record(frozen=True, slots=True)
class Run:
    """Consecutive tiles of a line with the same valid taps.

    Attributes:
      first: the first position.
      tiles: the number of tiles.
      width: the positions of a tile.
      taps: the range of valid taps for each position of a tile; None if they are found at run time, where `width` is 1.
    """

    first: int
    tiles: int
    width: int
    taps: tuple[tuple[int, int], ...] | None


def parts(count: int, most: int) -> list[int]:
    """Divides `count` into the fewest numbers up to `most`.

    They differ by at most 1 and descend."""
    if count <= 0:
        return []
    n = -(-count // most)
    return [count // n + (i < count % n) for i in range(n)]


def plan(line: Line, widest: int) -> list[Run]:
    """Divides a line into tiles of up to `widest` positions.

    Args:
      line: The line.
      widest: The greatest number of positions in a tile.

    Returns:
      The runs, in the order of their positions.
    """
    first, stop = line.inner
    borders = line.count - (stop - first)
    if borders <= 2 * widest and line.size <= _WRITTEN_TAPS:
        runs = list(_written(line, widest))
        if len(runs) <= _WRITTEN_TILES:
            return runs
    full = ((0, line.size),)
    runs = [Run(0, first, 1, None)] if first else []
    for width in sorted(set(sizes := parts(stop - first, widest)), reverse=True):
        runs.append(Run(first, sizes.count(width), width, full * width))
        first += width * sizes.count(width)
    if stop < line.count:
        runs.append(Run(stop, line.count - stop, 1, None))
    return runs


def _written(line: Line, widest: int) -> Iterator[Run]:
    """The runs whose tiles all have static taps."""
    first, stop = line.inner
    full = (0, line.size)
    at, open_run = 0, None
    for width in parts(line.count, widest):
        inside = first <= at and at + width <= stop
        taps = (full,) * width if inside else tuple(line.valid(i) for i in range(at, at + width))
        if open_run is not None and open_run.taps == taps:
            open_run = dataclasses.replace(open_run, tiles=open_run.tiles + 1)
        else:
            if open_run is not None:
                yield open_run
            open_run = Run(at, 1, width, taps)
        at += width
    if open_run is not None:
        yield open_run
