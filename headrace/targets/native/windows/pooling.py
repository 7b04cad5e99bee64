"""Pooling of arrays with the channels last, and its gradients, as loop nests.

Arrays are [batch, *spatial, channels] and contiguous. The conventions are those of the kernels of `ops.nn.pooling`: NaN
is never the maximum, a window of images without a number above it has the lowest finite number, the gradient flows to
the first maximum, or to a NaN that is the first element of its window, and a mean is over the elements without padding.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from headrace import thresholds
from headrace.opkit.windows import Axis
from headrace.records import record
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.registers import Registers, of_host
from headrace.targets.native.windows.channelwise import POSITIONS, WRITTEN_TAPS, Channelwise
from headrace.targets.native.windows.lines import Line, backward, forward
from headrace.targets.native.windows.nest import Index, Nest, begin
from headrace.targets.native.windows.shares import each_image
from headrace.targets.native.windows.sweep import Block, Row, Taps, Tile

_FLOAT: Final = np.dtype(np.float32)


class Kind(enum.Enum):
    """The result of each window, or the gradient by the input."""

    MAXIMUM = "maximum"
    MAXIMUM_GRADIENT = "maximum_gradient"
    MEAN = "mean"
    MEAN_GRADIENT = "mean_gradient"


@record(frozen=True, slots=True)
class Pooling:
    """Geometry of a pooling.

    Attributes:
      kind: the result.
      axes: the windows over the spatial axes, 1 to 3.
      channels: the number of channels.
      dtype: float32 or float64.
      batch: the number of images; None if it is an argument.
    """

    kind: Kind
    axes: tuple[Axis, ...]
    channels: int
    dtype: np.dtype = _FLOAT
    batch: int | None = None


class _Pool(Channelwise):
    """Writer of the results of windows, with a variable for each position and vector."""

    def __init__(self, nest: Nest, spec: Pooling, registers: Registers) -> None:
        sides = [[getattr(a, name) for a in spec.axes] for name in ("length", "count")]
        if spec.kind is Kind.MEAN_GRADIENT:
            sides.reverse()
        super().__init__(nest, spec.channels, registers, *sides)
        self.spec = spec

    def maxima(self, batch: Index) -> None:
        """Writes the maximum of each window."""
        nest, lines = self.nest, [forward(a) for a in self.spec.axes]
        lowest = nest.literal(float(np.finfo(self.spec.dtype).min))
        with self.images(batch, "%x", "%out") as image, self.rows(lines, *image) as every:
            for block, row in self.blocks(every):
                for tile in self.tiles(lines[-1], POSITIONS, row):
                    best = self.begun(tile, block, lowest)
                    for taps in self.taps(lines, row, tile, WRITTEN_TAPS):
                        for variable, x, lanes in self.elements(taps, tile, block, lines[-1], best):
                            kind, before = nest.vector(lanes), nest.get(variable, lanes)
                            is_more = nest.f.op(f"fcmp ogt {kind} {x}, {before}")
                            nest.put(variable, nest.select(is_more, kind, x, before, lanes), lanes)
                    self.ended(tile, block, lines[-1], best)

    def means(self, batch: Index) -> None:
        """Writes the mean of each window."""
        nest, lines = self.nest, [forward(a) for a in self.spec.axes]
        with self.images(batch, "%x", "%out") as image, self.rows(lines, *image) as every:
            for block, row in self.blocks(every):
                for tile in self.tiles(lines[-1], POSITIONS, row):
                    sums = self.begun(tile, block, nest.literal(0.0))
                    for taps in self.taps(lines, row, tile, WRITTEN_TAPS):
                        for variable, x, lanes in self.elements(taps, tile, block, lines[-1], sums):
                            total = nest.f.op(f"fadd {nest.vector(lanes)} {nest.get(variable, lanes)}, {x}")
                            nest.put(variable, total, lanes)
                    self.ended(tile, block, lines[-1], sums, self.counts(row, tile))

    def counts(self, row: Row, tile: Tile) -> list[str | None]:
        """The number of elements without padding, for each position of a tile."""
        nest = self.nest
        others: Index = 1
        for low, stop in row.taps:
            others = nest.mul(others, nest.add(stop, nest.mul(low, -1)))
        ranges = [tile.found] if tile.run.taps is None else tile.run.taps
        found: list[str | None] = []
        for low, stop in ranges:  # type: ignore[misc]
            count = nest.mul(others, nest.add(stop, nest.mul(low, -1)))
            found.append(nest.number(count))
        return found

    def mean_gradient(self, batch: Index) -> None:
        """Writes, for each element of the input, the sum of its windows' shares."""
        nest, axes = self.nest, self.spec.axes
        tables = [self.shares(k, a) for k, a in enumerate(axes)]
        with self.images(batch, "%x", "%out") as image:
            for lines in itertools.product(*(backward(a) for a in axes)):
                with self.rows(lines, *image) as every:
                    for block, row in self.blocks(every):
                        for tile in self.tiles(lines[-1], POSITIONS, row):
                            sums = self.begun(tile, block, nest.literal(0.0))
                            for taps in self.taps(lines, row, tile, WRITTEN_TAPS):
                                self.shared(lines, row, tile, taps, block, tables, sums)
                            self.ended(tile, block, lines[-1], sums)

    def shared(
        self,
        lines: Sequence[Line],
        row: Row,
        tile: Tile,
        taps: Taps,
        block: Block,
        tables: list[str],
        sums: list[list[str]],
    ) -> None:
        """Adds what the windows of a tap give."""
        nest, windows = self.nest, []
        for line, position, number in zip(lines[:-1], row.positions, taps.numbers[:-1], strict=True):
            at = nest.add(nest.mul(position, line.stride), line.offset)
            windows.append(nest.add(at, nest.mul(number, line.pitch)))
        last = nest.add(tile.at, nest.mul(taps.numbers[-1], lines[-1].pitch))
        share = nest.literal(1.0)
        for table, window in zip(tables, windows, strict=False):
            each = nest.one(nest.at(table, nest.mul(window, nest.size)))
            share = nest.f.op(f"fmul {nest.type} {share}, {each}")
        of_position = {}
        for p in taps.positions:
            each = nest.one(nest.at(tables[-1], nest.mul(nest.add(last, p * lines[-1].stride), nest.size)))
            of_position[p] = nest.f.op(f"fmul {nest.type} {share}, {each}")
        positions = [p for p in taps.positions for _ in block.lanes]
        for p, (variable, g, lanes) in zip(positions, self.elements(taps, tile, block, lines[-1], sums), strict=True):
            each = nest.all_lanes(of_position[p], lanes)
            nest.put(variable, nest.multiply_add(g, each, nest.get(variable, lanes), lanes), lanes)

    def shares(self, k: int, axis: Axis) -> str:
        """A table of the reciprocal number of elements of each window."""
        line = forward(axis)
        values = []
        for i in range(axis.count):
            low, stop = line.valid(i)
            values.append(f"{self.nest.type} {self.nest.literal(1 / max(1, stop - low))}")
        kind = f"[{len(values)} x {self.nest.type}]"
        name = f"{self.nest.f.name}.shares.{k}"
        return self.nest.f.module.add_global(name, f"private constant {kind} [{', '.join(values)}]")

    def maximum_gradient(self, batch: Index) -> None:
        """Writes the gradient to the first maximum of each window."""
        nest, axes = self.nest, self.spec.axes
        lines = [forward(a) for a in axes]
        alone = all(a.is_disjoint for a in axes)
        covered = alone and all(a.stride == a.size and a.before >= 0 for a in axes)
        covered = covered and all(a.extent - a.before >= a.length for a in axes)
        # source of the sweep: x, its result: the array of the windows' gradients
        with self.images(batch, "%x", "%g") as (x, g):
            image = math.prod(a.length for a in axes) * self.pixel_in
            # dx has the shape of x
            dx = nest.shifted(x, "%x", "%out")
            if not covered:
                nest.clear(dx, image)
            with self.rows(lines, x, g) as every:
                for block, row in self.blocks(every):
                    for tile in self.tiles(lines[-1], 1, row):
                        self.to_first(lines, row, tile, block, alone)

    def to_first(self, lines: Sequence[Line], row: Row, tile: Tile, block: Block, alone: bool) -> None:
        """Writes the gradient of one window, whose first maximum is found first."""
        nest, sizes = self.nest, [line.size for line in lines]
        best, which = self.begun(tile, block, nest.literal(0.0))[0], [nest.counters(n) for n in block.lanes]
        ranges = [*row.taps, tile.found if tile.run.taps is None else tile.run.taps[0]]
        start = tile.source
        first: Index = 0
        for k, (line, (low, _)) in enumerate(zip(lines, ranges, strict=True)):  # type: ignore[misc]
            first = nest.add(nest.mul(first, sizes[k]), low)
            start = nest.at(start, nest.mul(low, line.pitch * self._of_source[k + 1]))
        for variable, counter, (v, lanes) in zip(best, which, block.vectors, strict=True):
            nest.put(variable, nest.load(nest.at(start, v * nest.size), lanes), lanes)
            nest.count(counter, nest.same(first, lanes), lanes)
        for taps in self.taps(lines, row, tile, WRITTEN_TAPS):
            number = self.numbered(taps, sizes)
            for counter, (variable, x, lanes) in zip(
                which, self.elements(taps, tile, block, lines[-1], [best]), strict=True
            ):
                kind, before = nest.vector(lanes), nest.get(variable, lanes)
                is_more = nest.f.op(f"fcmp ogt {kind} {x}, {before}")
                nest.put(variable, nest.select(is_more, kind, x, before, lanes), lanes)
                chosen = nest.select(
                    is_more, nest.integers(lanes), nest.same(number, lanes), nest.counted(counter, lanes), lanes
                )
                nest.count(counter, chosen, lanes)
        found = [nest.counted(counter, lanes) for counter, lanes in zip(which, block.lanes, strict=True)]
        gradients = [nest.load(nest.at(tile.result, v * nest.size), lanes) for v, lanes in block.vectors]
        for taps in self.taps(lines, row, tile, WRITTEN_TAPS):
            number = self.numbered(taps, sizes)
            into = nest.hidden(nest.shifted(taps.source, "%x", "%out"))
            for at, g, (v, lanes) in zip(found, gradients, block.vectors, strict=True):
                kind, place = nest.vector(lanes), nest.at(into, v * nest.size)
                is_it = nest.f.op(f"icmp eq {nest.integers(lanes)} {at}, {nest.same(number, lanes)}")
                part = nest.select(is_it, kind, g, "zeroinitializer", lanes)
                if not alone:
                    part = nest.f.op(f"fadd {kind} {nest.load(place, lanes)}, {part}")
                nest.store(part, place, lanes)

    def numbered(self, taps: Taps, sizes: Sequence[int]) -> Index:
        """The number of a tap among those of a window."""
        number: Index = 0
        for size, tap in zip(sizes, taps.numbers, strict=True):
            number = self.nest.add(self.nest.mul(number, size), tap)
        return number


def pooling(module: Module, spec: Pooling, name: str, registers: Registers | None = None) -> str:
    """Adds the function of a pooling, or of a gradient, to a module.

    The function has the signature `void(ptr out, ptr x, ptr g[, i64 batch])`. The result is written to `out`, which no
    other argument may overlap. `x` is the input, or for `MEAN_GRADIENT` the gradient by the result; only
    `MAXIMUM_GRADIENT` reads `g`, the gradient by the result.

    Args:
      module: The module.
      spec: The geometry.
      name: The name of the function.
      registers: The vector registers of the processor; by default those of this machine.

    Returns:
      The name.
    """
    arrays, of_images = ("out", "x", "g"), f"{name}.images"
    nest = Nest(begin(module, of_images, arrays, ["batch"], "internal"), spec.dtype)
    writer = _Pool(nest, spec, registers or of_host())
    write = {
        Kind.MAXIMUM: writer.maxima,
        Kind.MAXIMUM_GRADIENT: writer.maximum_gradient,
        Kind.MEAN: writer.means,
        Kind.MEAN_GRADIENT: writer.mean_gradient,
    }[spec.kind]
    sides = [[getattr(a, side) for a in spec.axes] for side in ("length", "count")]
    of_input = spec.kind in (Kind.MAXIMUM_GRADIENT, Kind.MEAN_GRADIENT)
    is_empty = spec.batch == 0 or not spec.channels or not math.prod(sides[0 if of_input else 1])
    if not is_empty:
        write("%batch")
    nest.f.line("ret void")
    caller = nest.of(begin(module, name, arrays, ["batch"] if spec.batch is None else []))
    if not is_empty:
        x, result = (math.prod(side) * spec.channels * nest.size for side in sides)
        sizes = (x, result, 0) if spec.kind is Kind.MEAN_GRADIENT else (x, x, result) if of_input else (result, x, 0)
        cost = thresholds.NATIVE_POOLED * math.prod(a.count * a.size for a in spec.axes) * spec.channels
        batch: Index = "%batch" if spec.batch is None else spec.batch
        each_image(caller, of_images, dict(zip(arrays, sizes, strict=True)), batch, cost)
    caller.f.line("ret void")
    return name
