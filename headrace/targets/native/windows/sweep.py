"""Sweeps over windows: loops over images, rows, tiles and taps.

A sweep reads an array `source` and writes an array `result`, both [batch, *spatial, channels]. Its generators write
code: the code written at each iteration is inside of the loops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from headrace.opkit.windows import Axis
from headrace.records import record
from headrace.targets.native.windows.lines import Line, Run, parts, plan
from headrace.targets.native.windows.nest import Index, Nest

Range: TypeAlias = "tuple[Index, Index]"


@record(frozen=True, slots=True)
class Block:
    """Vectors of channels that a tile holds.

    Attributes:
      first: the first channel.
      lanes: the channels of each vector.
    """

    first: Index
    lanes: tuple[int, ...]

    @property
    def vectors(self) -> list[tuple[int, int]]:
        """For each vector its first channel within the block, and its channels."""
        return [(sum(self.lanes[:v]), n) for v, n in enumerate(self.lanes)]


def blocks(nest: Nest, channels: int, lanes: int, most: int) -> Iterator[Block]:
    """Writes loops over blocks of up to `most` vectors."""
    rest, first = channels % lanes, 0
    sizes = parts(-(-channels // lanes), most)
    while sizes:
        size, n = sizes[0], sizes.count(sizes[0])
        whole = n - 1 if rest and n == len(sizes) else n
        if whole:
            with nest.loop(0, whole) as i:
                yield Block(nest.add(first, nest.mul(i, size * lanes)), (lanes,) * size)
        if whole < n:
            yield Block(first + whole * size * lanes, (lanes,) * (size - 1) + (rest,))
        first += n * size * lanes
        sizes = sizes[n:]


@record(frozen=True, slots=True)
class Row:
    """Positions that differ only along the last axis.

    Attributes:
      source: the address of element 0 of the row that tap 0 of the other axes reads.
      result: the address of element 0 of the row.
      taps: the ranges of valid taps of the other axes.
      positions: the positions along the other axes.
    """

    source: str
    result: str
    taps: tuple[Range, ...]
    positions: tuple[Index, ...]

    def moved(self, nest: Nest, source: Index, result: Index) -> Row:
        """The row with addresses so many bytes further."""
        return dataclasses.replace(self, source=nest.at(self.source, source), result=nest.at(self.result, result))


@record(frozen=True, slots=True)
class Tile:
    """Consecutive positions of a row.

    Attributes:
      run: the run that the tile is part of.
      first: the first position.
      at: the element that tap 0 reads for the first position.
      source: the address of the element `at`, for tap 0 of the other axes.
      result: the address of the first position's result.
      found: the range of valid taps if `run.taps` is None.
    """

    run: Run
    first: Index
    at: Index
    source: str
    result: str
    found: Range | None


@record(frozen=True, slots=True)
class Taps:
    """One tap of every axis, for some positions of a tile.

    Attributes:
      numbers: the number of the tap along each axis.
      source: the address of the element of the tile's first position.
      positions: the positions of the tile for which it is no padding.
    """

    numbers: tuple[Index, ...]
    source: str
    positions: list[int]


class Sweep:
    """Writer of the loops.

    Args:
      nest: The function's writer.
      channels: The channels of source and result.
      source: The spatial axes of the source.
      result: The spatial axes of the result.

    Attributes:
      nest: The function's writer.
      pixel_in: The bytes of all channels of an element of the source.
      pixel_out: The bytes of all channels of an element of the result.
    """

    def __init__(self, nest: Nest, channels: tuple[int, int], source: Sequence[int], result: Sequence[int]) -> None:
        self.nest = nest
        self.pixel_in, self.pixel_out = (n * nest.size for n in channels)
        self._of_source = [self.pixel_in * math.prod(source[k:]) for k in range(len(source) + 1)]
        self._of_result = [self.pixel_out * math.prod(result[k:]) for k in range(len(result) + 1)]

    @property
    def image_out(self) -> int:
        """The bytes of an image of the result."""
        return self._of_result[0]

    @contextlib.contextmanager
    def images(self, batch: Index, source: str, result: str) -> Iterator[tuple[str, str]]:
        """A loop over images; gives the addresses of one."""
        nest = self.nest
        with nest.loop(0, batch) as i:
            yield nest.at(source, nest.mul(i, self._of_source[0])), nest.at(result, nest.mul(i, self._of_result[0]))

    @contextlib.contextmanager
    def rows(self, lines: Sequence[Line], source: str, result: str) -> Iterator[Row]:
        """Loops over the positions of all axes but the last."""
        nest, taps, positions = self.nest, [], []
        with contextlib.ExitStack() as stack:
            for line, of_source, of_result in zip(lines[:-1], self._of_source[1:], self._of_result[1:], strict=False):
                positions.append(stack.enter_context(nest.loop(0, line.count)))
                at = nest.add(nest.mul(positions[-1], line.stride), line.offset)
                taps.append(valid(nest, line, at))
                source = nest.at(source, nest.mul(at, of_source))
                place = nest.add(nest.mul(positions[-1], line.step), line.first)
                result = nest.at(result, nest.mul(place, of_result))
            yield Row(source, result, tuple(taps), tuple(positions))

    def tiles(self, line: Line, widest: int, row: Row) -> Iterator[Tile]:
        """Writes loops over the tiles of a row."""
        nest = self.nest
        for run in plan(line, widest):
            with nest.loop(0, run.tiles) as t:
                first = nest.add(run.first, nest.mul(t, run.width))
                at = nest.add(nest.mul(first, line.stride), line.offset)
                place = nest.add(nest.mul(first, line.step), line.first)
                result = nest.at(row.result, nest.mul(place, self.pixel_out))
                found = valid(nest, line, at) if run.taps is None else None
                yield Tile(run, first, at, nest.at(row.source, nest.mul(at, self.pixel_in)), result, found)

    def taps(self, lines: Sequence[Line], row: Row, tile: Tile, most_written: int) -> Iterator[Taps]:
        """Writes loops over the taps of a tile.

        Args:
          lines: The lines of all axes.
          row: The row of the tile.
          tile: The tile.
          most_written: The number of taps of the last axis up to which there is no loop over them.

        Yields:
          The taps.
        """
        nest, line, run = self.nest, lines[-1], tile.run
        every, full = list(range(run.width)), (0, line.size)
        with contextlib.ExitStack() as stack:
            source, numbers = tile.source, []
            for k, (low, stop) in enumerate(row.taps):
                numbers.append(stack.enter_context(nest.loop(low, stop)))
                source = nest.at(source, nest.mul(numbers[-1], lines[k].pitch * self._of_source[k + 1]))
            step = line.pitch * self.pixel_in
            if run.taps is None or (all(t == full for t in run.taps) and line.size > most_written):
                low, stop = tile.found or full
                tap = stack.enter_context(nest.loop(low, stop))
                yield Taps((*numbers, tap), nest.at(source, nest.mul(tap, step)), every)
                return
            for number in range(line.size):
                some = [p for p in every if run.taps[p][0] <= number < run.taps[p][1]]
                if some:
                    yield Taps((*numbers, number), nest.at(source, number * step), some)


def valid(nest: Nest, line: Line, at: Index) -> Range:
    """The range of valid taps, where tap 0 is the element `at`."""
    if line.inner == (0, line.count):
        return 0, line.size
    return _between(nest, at, line.length, line.pitch, line.size)


def _between(nest: Nest, at: Index, length: int, step: int, size: int) -> Range:
    """The range of the numbers `i` below `size` with `0 <= at + i * step < length`."""
    below = nest.greatest(0, nest.add(step - 1, nest.mul(at, -1)))
    above = nest.greatest(0, nest.add(length - 1 + step, nest.mul(at, -1)))
    return nest.divided(below, step), nest.least(size, nest.divided(above, step))


def element(nest: Nest, axis: Axis, position: Index, tap: Index) -> Index:
    """The element of the input that a tap reads."""
    at = nest.add(nest.mul(position, axis.stride), -axis.before)
    return nest.add(at, nest.mul(tap, axis.dilation))


def met(nest: Nest, axis: Axis, tap: Index) -> Range:
    """The range of positions whose element of a tap is no padding."""
    if axis.is_inside:
        return 0, axis.count
    return _between(nest, element(nest, axis, 0, tap), axis.length, axis.stride, axis.count)
